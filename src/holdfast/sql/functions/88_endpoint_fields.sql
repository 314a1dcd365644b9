-- What the configuration of an endpoint takes, and which addresses it may name.
--
-- A URL is read as RFC 3986 has it, and no other way: what a client of HTTP might read otherwise is refused. Addresses that are not
-- everybody's (private, loopback, link-local, metadata services) are refused where they are named literally, unless the endpoint allows
-- them; a name is looked up by whoever connects, and checked there again.
-- No message shows what may be a secret.

create or replace function holdfast._check_endpoint_name(endpoint text) returns void language plpgsql stable
as $$
begin
  if (_check_endpoint_name.endpoint ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH872', 'invalid name of an endpoint', format('Got %s.', coalesce(quote_literal(left(_check_endpoint_name.endpoint, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_endpoint_name is 'Refuse a bad name of an endpoint';

create or replace function holdfast._check_endpoint_field(field text, good boolean, value jsonb, expected text) returns void language plpgsql immutable
as $$
begin
  if good is not true then
    perform holdfast._fail('QH872', format('bad value for %s', field), coalesce(format('Got %s.', left(value::text, 100)), 'It is not shown here.'),
      format('%s takes %s.', field, expected));
  end if;
end $$;
comment on function holdfast._check_endpoint_field is 'Refuse a field of an endpoint; a value that is null is not shown';

create or replace function holdfast._unknown_endpoint_field(field text, fields text) returns void language plpgsql immutable
as $$
begin
  perform holdfast._fail('QH872', format('unknown field "%s" in the configuration of an endpoint', left(field, 100)), 'It means nothing.', format('Fields: %s.', fields));
end $$;
comment on function holdfast._unknown_endpoint_field is 'Refuse a field that an endpoint does not have';

create or replace function holdfast._seconds(field text, value jsonb) returns float8 language plpgsql stable
as $$
begin
  if jsonb_typeof(value) = 'number' then
    return (value #>> '{}')::float8;
  elsif jsonb_typeof(value) = 'string' then
    return extract(epoch from (value #>> '{}')::interval);
  end if;
  raise exception using errcode = 'invalid_text_representation';
exception
  when data_exception then
    perform holdfast._check_endpoint_field(field, false, value, 'a duration: a number of seconds, or text such as "30 s"');
end $$;
comment on function holdfast._seconds is 'A duration in the configuration of an endpoint, in seconds';

create or replace function holdfast._check_seconds(field text, value jsonb, lo float8, hi float8, expected text) returns void language plpgsql stable
as $$
begin
  perform holdfast._check_endpoint_field(field, holdfast._seconds(field, value) between lo and hi, value, expected);
end $$;
comment on function holdfast._check_seconds is 'Refuse a duration of an endpoint that is out of range';

create or replace function holdfast._check_sealed_field(field text, value jsonb) returns void language plpgsql stable
as $$
begin
  if (jsonb_typeof(value) = 'string' and length(value #>> '{}') <= 8192 and value #>> '{}' ~ '^hfs1\.[0-9a-f]{8}\.[A-Za-z0-9_-]+={0,2}$') is not true then
    perform holdfast._fail('QH874', format('%s is not sealed', field), 'It is not shown here.',
      'SQL takes secrets that were sealed only (hfs1.…). Clients, servers and the command line seal what they are given: pass it to one of them.');
  end if;
end $$;
comment on function holdfast._check_sealed_field is 'Refuse a secret that is not sealed, without showing it';

create or replace function holdfast._check_auth(auth jsonb) returns void language plpgsql stable
as $$
declare
  v_type text := case when jsonb_typeof(auth) = 'object' then auth ->> 'type' end;
  v_unknown text;
begin
  perform holdfast._check_endpoint_field('auth', v_type in ('basic', 'bearer'), null,
    '{"type": "basic", "username": …, "password": …} or {"type": "bearer", "token": …}');
  select k into v_unknown from jsonb_object_keys(auth) k
  where k <> all (case v_type when 'basic' then '{type,username,password}'::text[] else '{type,token}' end);
  if found then
    perform holdfast._unknown_endpoint_field('auth.' || v_unknown, case v_type when 'basic' then 'type, username, password' else 'type, token' end);
  end if;
  if v_type = 'basic' then
    perform holdfast._check_endpoint_field('auth.username', jsonb_typeof(auth -> 'username') = 'string' and auth ->> 'username' ~ '^[^:[:cntrl:]]{1,200}$',
      auth -> 'username', '1 to 200 characters without a colon');
    perform holdfast._check_sealed_field('auth.password', auth -> 'password');
  else
    perform holdfast._check_sealed_field('auth.token', auth -> 'token');
  end if;
end $$;
comment on function holdfast._check_auth is 'Refuse a bad auth of an endpoint';

create or replace function holdfast._check_endpoint_headers(headers jsonb) returns void language plpgsql stable
as $$
declare
  v_name text;
  v_value jsonb;
begin
  perform holdfast._check_endpoint_field('headers', jsonb_typeof(headers) = 'object', headers, 'an object of texts');
  perform holdfast._check_endpoint_field('headers', (select count(*) from jsonb_object_keys(headers)) <= 50 and octet_length(headers::text) <= 16384, null,
    'up to 50 headers, of 16,384 bytes together');
  for v_name, v_value in select h.key, h.value from jsonb_each(headers) h loop
    perform holdfast._check_endpoint_field('headers', v_name ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]{1,100}$', to_jsonb(v_name), 'names of headers, of up to 100 characters');
    if lower(v_name) in ('authorization', 'proxy-authorization', 'cookie') then
      perform holdfast._fail('QH872', format('headers cannot have %s', v_name), 'Headers are not sealed.', 'Pass auth.');
    end if;
    perform holdfast._check_endpoint_field('headers', lower(v_name) !~ '^(host|content-length|transfer-encoding|connection|keep-alive|upgrade|te|trailer|expect|webhook-.*)$',
      to_jsonb(v_name), 'no headers that a delivery sets by itself');
    perform holdfast._check_endpoint_field('headers.' || v_name, jsonb_typeof(v_value) = 'string' and v_value #>> '{}' ~ '^[ -~]*$' and v_value #>> '{}' !~ '^ | $',
      v_value, 'printable ASCII, without spaces around it');
  end loop;
end $$;
comment on function holdfast._check_endpoint_headers is 'Refuse bad headers of an endpoint';

create or replace function holdfast._check_retry(retry jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_endpoint_field('retry', jsonb_typeof(retry) = 'object', retry, 'an object {strategy, base, factor, increment, cap, jitter, max_attempts, retry_after}');
  for v_field, v_value in select e.key, e.value from jsonb_each(retry) e loop
    if v_field not in ('strategy', 'base', 'factor', 'increment', 'cap', 'jitter', 'max_attempts', 'retry_after') then
      perform holdfast._unknown_endpoint_field('retry.' || v_field, 'strategy, base, factor, increment, cap, jitter, max_attempts, retry_after');
    end if;
    continue when v_value = 'null';
    case v_field
      when 'strategy' then
        perform holdfast._check_endpoint_field('retry.strategy', v_value in ('"exponential"', '"linear"', '"fixed"'), v_value, 'exponential, linear or fixed');
      when 'factor' then
        perform holdfast._check_endpoint_field('retry.factor', jsonb_typeof(v_value) = 'number' and v_value between '1' and '10', v_value, '1 to 10');
      when 'jitter' then
        perform holdfast._check_endpoint_field('retry.jitter', jsonb_typeof(v_value) = 'number' and v_value between '0' and '1', v_value, '0 to 1, a share of the delay');
      when 'max_attempts' then
        perform holdfast._check_endpoint_field('retry.max_attempts', holdfast._whole(v_value, 0, 1000), v_value, '1 to 1,000, or 0 for no limit');
      when 'retry_after' then
        perform holdfast._check_endpoint_field('retry.retry_after', jsonb_typeof(v_value) = 'boolean', v_value, 'true or false');
      else
        perform holdfast._check_seconds('retry.' || v_field, v_value, 0, 2592000, '0 seconds to 30 days');
    end case;
  end loop;
end $$;
comment on function holdfast._check_retry is 'Refuse a bad retry policy';

create or replace function holdfast._check_breaker(breaker jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_endpoint_field('breaker', jsonb_typeof(breaker) = 'object', breaker, 'an object {threshold, cooldown}');
  for v_field, v_value in select e.key, e.value from jsonb_each(breaker) e loop
    if v_field not in ('threshold', 'cooldown') then
      perform holdfast._unknown_endpoint_field('breaker.' || v_field, 'threshold, cooldown');
    end if;
    continue when v_value = 'null';
    if v_field = 'threshold' then
      perform holdfast._check_endpoint_field('breaker.threshold', holdfast._whole(v_value, 1, 10000), v_value, '1 to 10,000 failures in a row');
    else
      perform holdfast._check_seconds('breaker.cooldown', v_value, 0.1, 86400, '100 milliseconds to 24 hours');
    end if;
  end loop;
end $$;
comment on function holdfast._check_breaker is 'Refuse bad settings of a breaker';

create or replace function holdfast._check_allow(allow jsonb) returns void language plpgsql stable
as $$
declare
  v_entry jsonb;
begin
  perform holdfast._check_endpoint_field('allow', jsonb_typeof(allow) = 'array' and jsonb_array_length(allow) <= 50, allow, 'a list of up to 50 addresses, networks and host names');
  for v_entry in select e.value from jsonb_array_elements(allow) e loop
    perform holdfast._check_endpoint_field('allow', jsonb_typeof(v_entry) = 'string'
      and (holdfast._inet(v_entry #>> '{}') is not null or (holdfast._is_host(v_entry #>> '{}') and v_entry #>> '{}' !~ '(^|\.)[0-9]+\.?$')), v_entry,
      'addresses (10.0.0.7), networks (10.0.0.0/8, fd00::/8) and names of hosts');
  end loop;
end $$;
comment on function holdfast._check_allow is 'Refuse a bad list of addresses that an endpoint may have';

create or replace function holdfast._check_endpoint_config(config jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  if jsonb_typeof(config) is distinct from 'object' then
    perform holdfast._fail('QH872', 'the configuration of an endpoint must be a JSON object', format('Got %s.', coalesce(jsonb_typeof(config), 'null')),
      'Pass for example {"url": "https://example.com/hooks"}.');
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(config) e loop
    if v_field not in ('url', 'method', 'headers', 'timeout', 'connect_timeout', 'retry', 'signing_secret', 'auth', 'rate_limit', 'concurrency', 'ordering', 'cloudevents',
                       'cloudevents_type', 'cloudevents_source', 'capture_response', 'capture_limit', 'disable_on_gone', 'allow', 'breaker', 'keep_attempts') then
      perform holdfast._unknown_endpoint_field(v_field, 'url, method, headers, timeout, connect_timeout, retry, signing_secret, auth, rate_limit, concurrency, ordering, cloudevents, '
        'cloudevents_type, cloudevents_source, capture_response, capture_limit, disable_on_gone, allow, breaker, keep_attempts');
    end if;
    continue when v_value = 'null' and v_field <> 'url';
    case
      when v_field = 'url' then
        perform holdfast._check_endpoint_field('url', jsonb_typeof(v_value) = 'string', v_value, 'a URL, and is needed');
      when v_field = 'headers' then perform holdfast._check_endpoint_headers(v_value);
      when v_field = 'retry' then perform holdfast._check_retry(v_value);
      when v_field = 'breaker' then perform holdfast._check_breaker(v_value);
      when v_field = 'auth' then perform holdfast._check_auth(v_value);
      when v_field = 'allow' then perform holdfast._check_allow(v_value);
      when v_field = 'signing_secret' then perform holdfast._check_sealed_field(v_field, v_value);
      when v_field = 'timeout' then perform holdfast._check_seconds(v_field, v_value, 0.1, 300, '100 milliseconds to 5 minutes');
      when v_field = 'connect_timeout' then perform holdfast._check_seconds(v_field, v_value, 0.1, 60, '100 milliseconds to 1 minute');
      when v_field = 'keep_attempts' then perform holdfast._check_seconds(v_field, v_value, 60, 31622400, '1 minute to 366 days');
      else perform holdfast._check_endpoint_value(v_field, v_value);
    end case;
  end loop;
end $$;
comment on function holdfast._check_endpoint_config is 'Refuse a bad configuration of an endpoint';

create or replace function holdfast._check_endpoint_value(field text, value jsonb) returns void language plpgsql stable
as $$
declare
  v_text text := case when jsonb_typeof(value) = 'string' then value #>> '{}' end;
begin
  case field
    when 'method' then
      perform holdfast._check_endpoint_field(field, v_text in ('POST', 'PUT', 'PATCH', 'DELETE', 'GET'), value, 'POST, PUT, PATCH, DELETE or GET');
    when 'rate_limit' then
      perform holdfast._check_endpoint_field(field, jsonb_typeof(value) = 'number' and value between '0.001' and '1000000', value, '0.001 to 1,000,000 deliveries a second');
    when 'concurrency' then
      perform holdfast._check_endpoint_field(field, holdfast._whole(value, 1, 1000), value, '1 to 1,000 deliveries at once');
    when 'ordering' then
      perform holdfast._check_endpoint_field(field, v_text in ('none', 'key', 'strict'), value, 'none, key or strict');
    when 'cloudevents' then
      perform holdfast._check_endpoint_field(field, v_text in ('off', 'binary', 'structured'), value, 'off, binary or structured');
    when 'cloudevents_type' then
      perform holdfast._check_endpoint_field(field, v_text ~ '^[!-~]([ -~]{0,198}[!-~])?$', value, '1 to 200 characters of ASCII');
    when 'cloudevents_source' then
      perform holdfast._check_endpoint_field(field, v_text ~ '^[!-~]+$' and length(v_text) <= 2000, value, 'a URI reference of up to 2,000 characters, such as /holdfast');
    when 'capture_limit' then
      perform holdfast._check_endpoint_field(field, holdfast._whole(value, 0, 65536), value, '0 to 65,536 bytes');
    else
      perform holdfast._check_endpoint_field(field, jsonb_typeof(value) = 'boolean', value, 'true or false');
  end case;
end $$;
comment on function holdfast._check_endpoint_value is 'Refuse a bad value of a plain field of an endpoint';

create or replace function holdfast._in_seconds(config jsonb, fields text[], prefix text default '') returns jsonb language sql stable
  return config || coalesce((select jsonb_object_agg(f, holdfast._seconds(prefix || f, config -> f)) from unnest(fields) f
                             where jsonb_typeof(config -> f) in ('number', 'string')), '{}');
comment on function holdfast._in_seconds is 'A configuration with these durations in seconds';

create or replace function holdfast._normal_endpoint(config jsonb) returns jsonb language sql stable
  return holdfast._in_seconds(config, '{timeout,connect_timeout,keep_attempts}')
         || case when jsonb_typeof(config -> 'retry') = 'object'
              then jsonb_build_object('retry', holdfast._in_seconds(config -> 'retry', '{base,increment,cap}', 'retry.')) else '{}' end
         || case when jsonb_typeof(config -> 'breaker') = 'object'
              then jsonb_build_object('breaker', holdfast._in_seconds(config -> 'breaker', '{cooldown}', 'breaker.')) else '{}' end;
comment on function holdfast._normal_endpoint is 'A checked configuration of an endpoint with all durations in seconds';

create or replace function holdfast._inet(address text) returns inet language plpgsql immutable
as $$
begin
  -- inet takes 10/8 and 10.1 for networks; connecting to such would mean something else.
  if address ~ '^[0-9.]+(/[0-9]+)?$' and address !~ '^[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?$' then
    return null;
  elsif address !~ '^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$' or address ~ '(^|[.])0[0-9]' then
    return null;
  end if;
  return address::inet;
exception
  when data_exception then return null;
end $$;
comment on function holdfast._inet is 'An address or a network, as text has it in full; null: it is none';

create or replace function holdfast._is_host(host text) returns boolean language sql immutable
  return length(host) <= 253 and host ~ '^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$';
comment on function holdfast._is_host is 'Is this the name of a host';

create or replace function holdfast._is_public(address inet) returns boolean language sql immutable
  return case family(address)
    when 4 then not address <<= any ('{0.0.0.0/8,10.0.0.0/8,100.64.0.0/10,127.0.0.0/8,169.254.0.0/16,172.16.0.0/12,192.0.0.0/24,192.0.2.0/24,192.88.99.0/24,192.168.0.0/16,198.18.0.0/15,198.51.100.0/24,203.0.113.0/24,224.0.0.0/3}'::inet[])
    else address <<= inet '2000::/3' and not address <<= any ('{2001::/23,2001:db8::/32,2002::/16,3fff::/20}'::inet[]) end;
comment on function holdfast._is_public is 'Is this an address on the internet, and of nothing special';

create or replace function holdfast._may_connect(host text, allow text[]) returns boolean language plpgsql immutable
as $$
declare
  v_address inet := holdfast._inet(host);
begin
  if v_address is not null then
    return holdfast._is_public(v_address) or exists (select from unnest(allow) a where v_address <<= holdfast._inet(a));
  end if;
  return lower(rtrim(host, '.')) in (select lower(rtrim(a, '.')) from unnest(allow) a)
         or lower(rtrim(host, '.')) !~ '^((.*\.)?localhost|metadata|metadata\.google\.internal|instance-data(\..*)?)$';
end $$;
comment on function holdfast._may_connect is 'May an endpoint have this host, as far as can be told without looking it up';

create or replace function holdfast._check_url(url text, allow text[]) returns void language plpgsql stable
as $$
declare
  v_parts text[] := regexp_match(url, '^(https?)://([^/?#]*)([/?].*)?$', 'i');
  v_host text;
  v_port text;
begin
  perform holdfast._check_endpoint_field('url', url is not null, 'null', 'a URL, and is needed');
  perform holdfast._check_endpoint_field('url', length(url) <= 2048 and url ~ '^[A-Za-z0-9._~:/?\[\]@!$&''()*+,;=%-]+$', to_jsonb(left(url, 2)::text || '…'),
    'up to 2,048 characters of those that a URL has, without a fragment; others are written as %XX, and names of hosts in ASCII (xn--…)');
  perform holdfast._check_endpoint_field('url', v_parts is not null, to_jsonb(substring(url from '^[^:/?]{0,20}:?')), 'a scheme of http or https, and a host');
  if v_parts[2] ~ '@' then
    perform holdfast._fail('QH872', 'bad value for url', 'It has a user name or a password in it.', 'url takes no credentials; pass auth.');
  end if;
  v_host := (regexp_match(v_parts[2], '^(\[[^\]]*\]|[^:\[\]]*)'))[1];
  v_port := substr(v_parts[2], length(v_host) + 1);
  perform holdfast._check_endpoint_field('url', v_port ~ '^(:[0-9]{1,5})?$' and coalesce(nullif(ltrim(v_port, ':'), '')::int, 80) between 1 and 65535,
    to_jsonb(v_parts[2]), 'a port of 1 to 65535');
  if v_host ~ '^\[' then
    v_host := trim(v_host, '[]');
    perform holdfast._check_endpoint_field('url', family(holdfast._inet(v_host)) = 6 and v_host !~ '/', to_jsonb(v_parts[2]), 'an address of IPv6 in brackets');
  else
    -- 127.1, 0177.0.0.1 and 0x7f000001 are 127.0.0.1 to some.
    perform holdfast._check_endpoint_field('url', holdfast._is_host(v_host) and (v_host !~ '(^|\.)(0[xX][0-9A-Fa-f]*|[0-9]+)\.?$' or holdfast._inet(v_host) is not null),
      to_jsonb(v_parts[2]), 'the name of a host, or an address in full');
  end if;
  if not holdfast._may_connect(v_host, allow) then
    perform holdfast._fail('QH873', 'this address is not allowed', format('The host is %s: private, loopback, link-local, or of a metadata service.', left(v_host, 100)),
      'Deliver to a public address; or, in an intranet, let the endpoint have it: {"allow": ["10.0.0.0/8"]}.');
  end if;
end $$;
comment on function holdfast._check_url is 'Refuse a URL that is none, and one of an address that is not everybody''s';
