-- API keys of the HTTP server.
--
--   create_key    a new key, of which the caller has made the secret and passes the hash
--   keys          all of them, without the hashes
--   rotate_key    another secret for a key; the old one may stay valid for a while
--   revoke_key    not valid any more
--   find_key      for servers: the key that a hash belongs to, if it is valid now
--   begin_login   for servers: a second, short-lived secret for whoever has shown a key
--   touch_keys    for servers: these keys are in use
--   has_keys      for servers: was there ever a key
--
-- Tables: api_key, api_login. No secret ever comes here, so that no log and no dump can hold one: a secret has 256 random
-- bits, and from its SHA-256 nobody gets back to it. Every change is announced on the channel holdfast_keys: servers remember
-- for a few seconds what they have found. Rows of keys stay for ever: who was let in can be told, and there never is no key again.

create or replace function holdfast._check_key_name(name text) returns void language plpgsql immutable
as $$
begin
  if (length(_check_key_name.name) between 1 and 64 and _check_key_name.name !~ '[[:cntrl:]]' and _check_key_name.name ~ '\S') is not true then
    perform holdfast._fail('QH901', 'a key cannot have this name', format('Got %s.', coalesce(quote_literal(left(_check_key_name.name, 100)), 'null')),
      'A name has 1 to 64 characters, of which not all are spaces and none is a control character.');
  end if;
end $$;
comment on function holdfast._check_key_name is 'Refuse a bad name of a key';

create or replace function holdfast._check_key_hash(prefix text, hash bytea) returns void language plpgsql stable
as $$
begin
  if (_check_key_hash.prefix ~ '^[!-~]{1,20}$' and length(_check_key_hash.hash) = 32) is not true then
    perform holdfast._fail('QH901', 'a key has a prefix and a hash', format('Got a prefix of %s characters and a hash of %s bytes.',
      coalesce(length(_check_key_hash.prefix)::text, 'no'), coalesce(length(_check_key_hash.hash)::text, 'no')),
      'prefix: the first 1 to 20 characters of the secret, without spaces; hash: its SHA-256.');
  end if;
  if exists (select from holdfast.api_key k where k.hash = _check_key_hash.hash or k.old_hash = _check_key_hash.hash) then
    perform holdfast._fail('QH901', 'this secret is in use', 'A key has, or had, the same hash.', 'Make another secret, of 32 random bytes.');
  end if;
end $$;
comment on function holdfast._check_key_hash is 'Refuse a bad prefix or hash of a key, and a hash that another has';

create or replace function holdfast._check_key_rights(scopes text[], queues text[], expires_in interval) returns void
language plpgsql immutable
as $$
begin
  if (cardinality(scopes) between 1 and 10 and array_position(scopes, null) is null and scopes <@ '{send,consume,read,admin}') is not true then
    perform holdfast._fail('QH901', 'these are no scopes', format('Got %s.', coalesce(left(scopes::text, 100), 'null')),
      'scopes takes one or more of send, consume, read, admin.');
  end if;
  if (cardinality(queues) between 1 and 100) is not true
     or exists (select from unnest(queues) q where (q ~ '^[A-Za-z0-9._:*-]{1,200}$') is not true) then
    perform holdfast._fail('QH901', 'these are no patterns of queues', format('Got %s.', coalesce(left(queues::text, 100), 'null')),
      'queues takes 1 to 100 names of queues, in which * stands for anything.');
  end if;
  if expires_in <= interval '0' or expires_in > interval '10 years' then
    perform holdfast._fail('QH901', 'expires_in is out of range', format('Got %s.', expires_in), 'A key is valid for up to 10 years, or without end.');
  end if;
end $$;
comment on function holdfast._check_key_rights is 'Refuse bad scopes, queues or expiry of a key';

create or replace function holdfast._check_key_rate(rate float8, burst int) returns void language plpgsql immutable
as $$
begin
  if rate is not null then
    perform holdfast._check_fill(rate, burst);
  elsif burst is not null then
    perform holdfast._fail('QH901', 'burst needs a rate', format('Got a burst of %s.', burst), 'Pass rate too.');
  end if;
end $$;
comment on function holdfast._check_key_rate is 'Refuse a bad limit of a key';

create or replace function holdfast.create_key(
  name text, prefix text, hash bytea, scopes text[], queues text[] default '{*}', expires_in interval default null,
  rate float8 default null, burst int default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
  v_id bigint;
begin
  perform holdfast._check_key_name(create_key.name);
  perform holdfast._check_key_hash(create_key.prefix, create_key.hash);
  perform holdfast._check_key_rights(create_key.scopes, create_key.queues, create_key.expires_in);
  perform holdfast._check_key_rate(create_key.rate, create_key.burst);
  insert into holdfast.api_key (name, prefix, hash, scopes, queues, rate, burst, created_at, expires_at)
  values (create_key.name, create_key.prefix, create_key.hash,
          array(select s from unnest('{send,consume,read,admin}'::text[]) s where s = any (create_key.scopes)),
          array(select distinct q from unnest(create_key.queues) q order by q),
          create_key.rate, create_key.burst, v_now, v_now + create_key.expires_in)
  returning id into v_id;
  perform pg_notify('holdfast_keys', '');
  return v_id;
end $$;
comment on function holdfast.create_key is
  'Make a key to the HTTP server; returns its id. prefix: how the secret begins; hash: its SHA-256; the secret itself stays with the caller';

create or replace function holdfast.keys() returns setof holdfast.api_key_info
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select k.id, k.name, k.prefix, k.scopes, k.queues, k.rate, k.burst, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
  from holdfast.api_key k order by k.id
$$;
comment on function holdfast.keys is 'All keys to the HTTP server, without their secrets';

create or replace function holdfast._no_key(id bigint) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH902', format('there is no key %s', coalesce(_no_key.id::text, 'null')), 'It was never made, is revoked, or has expired.',
    'holdfast.keys() lists them.');
end $$;
comment on function holdfast._no_key is 'Refuse a key that is not there';

create or replace function holdfast._check_grace(grace interval) returns void language plpgsql immutable
as $$
begin
  if (grace between interval '0' and interval '7 days') is not true then
    perform holdfast._fail('QH901', 'grace is out of range', format('Got %s.', coalesce(grace::text, 'null')),
      'The old secret stays valid for up to 7 days.');
  end if;
end $$;
comment on function holdfast._check_grace is 'Refuse a bad time for which an old secret stays valid';

create or replace function holdfast.rotate_key(id bigint, prefix text, hash bytea, grace interval default '0') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_key_hash(rotate_key.prefix, rotate_key.hash);
  perform holdfast._check_grace(rotate_key.grace);
  update holdfast.api_key k set prefix = rotate_key.prefix, hash = rotate_key.hash, old_hash = k.hash, old_until = v_now + rotate_key.grace
  where k.id = rotate_key.id and k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now);
  if not found then
    perform holdfast._no_key(rotate_key.id);
  end if;
  -- Whoever has logged in with the old secret stays no longer than it does.
  update holdfast.api_login l set expires_at = least(l.expires_at, v_now + rotate_key.grace) where l.key_id = rotate_key.id;
  perform pg_notify('holdfast_keys', '');
  return true;
end $$;
comment on function holdfast.rotate_key is 'Give a key another secret; the old one, and logins, stay valid for grace';

create or replace function holdfast.revoke_key(id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update holdfast.api_key k set revoked_at = holdfast.now() where k.id = revoke_key.id and k.revoked_at is null;
  if not found then
    perform holdfast._no_key(revoke_key.id) where not exists (select from holdfast.api_key k where k.id = revoke_key.id);
    return false;
  end if;
  delete from holdfast.api_login l where l.key_id = revoke_key.id;
  perform pg_notify('holdfast_keys', '');
  return true;
end $$;
comment on function holdfast.revoke_key is 'Let a key be valid no more, and no login; false: it was revoked before';

create or replace function holdfast.find_key(hash bytea) returns setof holdfast.api_key_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  return query
    select k.id, k.name, k.prefix, k.scopes, k.queues, k.rate, k.burst, k.created_at, least(k.expires_at, f.until), k.last_used_at, k.revoked_at
    from (select o.id, null::timestamptz as until from holdfast.api_key o where o.hash = find_key.hash
          union all select o.id, o.old_until from holdfast.api_key o where o.old_hash = find_key.hash
          union all select l.key_id, l.expires_at from holdfast.api_login l where l.hash = find_key.hash) f
      join holdfast.api_key k on k.id = f.id
    where k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now) and (f.until is null or f.until > v_now);
end $$;
comment on function holdfast.find_key is
  'The key that this hash belongs to, if it is valid now: by its secret, by one it had, or by a login; expires_at is then when that ends';

create or replace function holdfast.begin_login(hash bytea, token bytea, lasts interval default '15 min') returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_key bigint;
  v_until timestamptz;
begin
  if (length(begin_login.token) = 32 and lasts > interval '0' and lasts <= interval '1 day') is not true then
    perform holdfast._fail('QH901', 'a login has a hash, and an end', format('Got a hash of %s bytes for %s.',
      coalesce(length(begin_login.token)::text, 'no'), coalesce(lasts::text, 'null')), 'token: a SHA-256; lasts: up to a day.');
  end if;
  -- With a secret of the key alone: a login that could be exchanged for another would never end.
  select k.id, least(v_now + lasts, k.expires_at, case when k.hash <> begin_login.hash then k.old_until end) into v_key, v_until
  from holdfast.find_key(begin_login.hash) f join holdfast.api_key k on k.id = f.id
  where (k.hash = begin_login.hash or k.old_hash = begin_login.hash) and k.revoked_at is null
  for no key update of k;
  if v_key is null then
    return null;
  end if;
  -- What has ended goes, and a key has 1,000 logins at most: the first to end makes room.
  delete from holdfast.api_login l where l.hash = any (array(
    select o.hash from holdfast.api_login o
    where o.hash in ((select e.hash from holdfast.api_login e where e.expires_at <= v_now order by e.expires_at limit 1000)
                     union (select e.hash from holdfast.api_login e where e.key_id = v_key order by e.expires_at desc offset 999))
    for update skip locked));
  insert into holdfast.api_login (hash, key_id, expires_at) values (begin_login.token, v_key, v_until) on conflict do nothing;
  if not found then
    perform holdfast._fail('QH901', 'this token is in use', 'A login has the same hash.', 'Make another token, of 32 random bytes.');
  end if;
  return v_until;
end $$;
comment on function holdfast.begin_login is
  'Let a token (its SHA-256) stand for the key with this hash, for so long; returns until when. Null: there is no such key';

create or replace function holdfast.touch_keys(ids bigint[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  -- Many servers say the same: one row a key and half a minute is written.
  update holdfast.api_key k set last_used_at = v_now
  from (select o.id from holdfast.api_key o
        where o.id = any (touch_keys.ids) and (o.last_used_at is null or o.last_used_at < v_now - interval '30 s')
        order by o.id for no key update skip locked) u
  where k.id = u.id;
end $$;
comment on function holdfast.touch_keys is 'These keys are in use: keys() shows when they last were, to half a minute';

create or replace function holdfast.has_keys() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select exists (select from holdfast.api_key)
$$;
comment on function holdfast.has_keys is 'Was there ever a key, revoked ones included: until then the HTTP server is open, on loopback';
