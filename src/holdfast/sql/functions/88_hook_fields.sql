-- What the configuration of an inbound hook takes. No message shows what may be a secret.

create or replace function holdfast._check_hook_name(hook text) returns void language plpgsql stable
as $$
begin
  if (_check_hook_name.hook ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH882', 'invalid name of a hook', format('Got %s.', coalesce(quote_literal(left(_check_hook_name.hook, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_hook_name is 'Refuse a bad name of a hook';

create or replace function holdfast._check_slug(prefix text, hash bytea) returns void language plpgsql stable
as $$
begin
  if (_check_slug.prefix ~ '^[A-Za-z0-9_-]{1,8}$' and length(_check_slug.hash) = 32) is not true then
    perform holdfast._fail('QH882', 'a slug has a prefix and a hash', format('Got a prefix of %s characters and a hash of %s bytes.',
      coalesce(length(_check_slug.prefix)::text, 'no'), coalesce(length(_check_slug.hash)::text, 'no')),
      'prefix: the first 1 to 8 characters of the slug, out of A-Z a-z 0-9 _ -; hash: its SHA-256.');
  end if;
end $$;
comment on function holdfast._check_slug is 'Refuse a bad prefix or hash of a slug';

create or replace function holdfast._check_hook_field(field text, good boolean, value jsonb, expected text) returns void language plpgsql immutable
as $$
begin
  if good is not true then
    perform holdfast._fail('QH882', format('bad value for %s', field), format('Got %s.', left(value::text, 100)), format('%s takes %s.', field, expected));
  end if;
end $$;
comment on function holdfast._check_hook_field is 'Refuse a field of a hook';

create or replace function holdfast._hook_seconds(field text, value jsonb) returns float8 language plpgsql stable
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
    perform holdfast._check_hook_field(field, false, value, 'a duration: a number of seconds, or text such as "30 s"');
end $$;
comment on function holdfast._hook_seconds is 'A duration in the configuration of a hook, in seconds';

create or replace function holdfast._check_hook_seconds(field text, value jsonb, lo float8, hi float8, expected text) returns void language plpgsql stable
as $$
begin
  perform holdfast._check_hook_field(field, holdfast._hook_seconds(field, value) between lo and hi, value, expected);
end $$;
comment on function holdfast._check_hook_seconds is 'Refuse a duration of a hook that is out of range';

create or replace function holdfast._check_hook_texts(field text, value jsonb, pattern text, expected text) returns void language plpgsql stable
as $$
declare
  v_text jsonb;
begin
  perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'array' and jsonb_array_length(value) <= 50, value, format('a list of up to 50 %s', expected));
  for v_text in select e.value from jsonb_array_elements(value) e loop
    perform holdfast._check_hook_field(field, jsonb_typeof(v_text) = 'string' and v_text #>> '{}' ~ pattern, v_text, expected);
  end loop;
end $$;
comment on function holdfast._check_hook_texts is 'Refuse a bad list of a hook';

create or replace function holdfast._check_hook_value(field text, value jsonb) returns void language plpgsql stable
as $$
declare
  v_token text := '[!#$%&''*+.^_`|~0-9A-Za-z-]{1,100}';
begin
  case field
    when 'enabled' then
      perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'boolean', value, 'true or false');
    when 'plan' then
      perform holdfast._check_hook_field(field, value in ('"free"', '"pro"', '"enterprise"'), value, 'free, pro or enterprise');
    when 'rate_limit' then
      perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'number' and value between '0.001' and '1000000', value, '0.001 to 1,000,000 calls a second');
    when 'burst' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 1, 1000000), value, '1 to 1,000,000 calls at once after a pause');
    when 'max_body' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 0, 67108864), value, '0 to 67,108,864 bytes');
    when 'max_deliveries' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 0, 1000), value, '1 to 1,000, or 0 for no limit');
    when 'keep_calls' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 0, 10000), value, '0 to 10,000 calls');
    when 'content_types' then
      perform holdfast._check_hook_texts(field, value, format('^(\*/\*|%1$s/(\*|%1$s))$', replace(v_token, '*', '')), 'media types such as application/json or text/*');
    when 'drop_headers' then
      perform holdfast._check_hook_texts(field, value, format('^%s$', v_token), 'names of headers, of up to 100 characters');
    else  -- idempotency_header
      perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'string' and value #>> '{}' ~ format('^%s$', v_token), value, 'the name of a header, of up to 100 characters');
  end case;
end $$;
comment on function holdfast._check_hook_value is 'Refuse a bad value of a plain field of a hook';

create or replace function holdfast._check_hook_config(config jsonb) returns void language plpgsql stable
as $$
declare
  v_known text := 'enabled, signing_secret, tolerance, idempotency_header, idempotency_window, max_body, content_types, drop_headers, plan, rate_limit, burst, '
                  'lock_timeout, ttl, max_deliveries, keep_calls';
  v_field text;
  v_value jsonb;
begin
  if jsonb_typeof(config) is distinct from 'object' then
    perform holdfast._fail('QH882', 'the configuration of a hook must be a JSON object', format('Got %s.', coalesce(jsonb_typeof(config), 'null')),
      'Pass for example {"rate_limit": 10}.');
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(config) e loop
    if v_field <> all (string_to_array(v_known, ', ')) then
      perform holdfast._fail('QH882', format('unknown field "%s" in the configuration of a hook', left(v_field, 100)), 'It means nothing.', format('Fields: %s.', v_known));
    end if;
    continue when v_value = 'null';
    case v_field
      when 'signing_secret' then perform holdfast._check_sealed_field(v_field, v_value);
      when 'tolerance' then perform holdfast._check_hook_seconds(v_field, v_value, 1, 86400, '1 second to 24 hours');
      when 'idempotency_window' then perform holdfast._check_hook_seconds(v_field, v_value, 1, 604800, '1 second to 7 days');
      when 'lock_timeout' then perform holdfast._check_hook_seconds(v_field, v_value, 0.1, 86400, '100 milliseconds to 24 hours');
      when 'ttl' then perform holdfast._check_hook_seconds(v_field, v_value, 1, 315360000, '1 second to 3,650 days');
      else perform holdfast._check_hook_value(v_field, v_value);
    end case;
  end loop;
end $$;
comment on function holdfast._check_hook_config is 'Refuse a bad configuration of a hook';

create or replace function holdfast._normal_hook(config jsonb) returns jsonb language sql stable
  return config || coalesce((select jsonb_object_agg(f, holdfast._hook_seconds(f, config -> f))
                             from unnest('{tolerance,idempotency_window,lock_timeout,ttl}'::text[]) f
                             where jsonb_typeof(config -> f) in ('number', 'string')), '{}');
comment on function holdfast._normal_hook is 'A checked configuration of a hook with all durations in seconds';
