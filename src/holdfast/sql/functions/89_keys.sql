-- API keys of the HTTP server.
--
--   add_key      a new key, of which the caller has made the secret and passes the hash
--   keys         all of them, without the hashes
--   find_key     the key that a hash belongs to, if it is valid now
--   rotate_key   another secret for a key; the old one may stay valid for a while
--   revoke_key   not valid any more
--   touch_keys   when keys were last used
--   has_keys     was there ever one
--
-- The secret itself never comes here, so that no log and no dump can hold it. Every change is announced on the channel
-- holdfast_keys: servers remember for a few seconds what they have found.

create or replace function holdfast._check_key_text(name text, prefix text, hash bytea) returns void language plpgsql immutable
as $$
begin
  if name is null or length(name) not between 1 and 64 then
    perform holdfast._fail('QH901', 'a key cannot have this name', format('Got %s.', coalesce(quote_literal(left(name, 100)), 'null')),
      'A name has 1 to 64 characters.');
  end if;
  if prefix is null or length(prefix) not between 1 and 20 or hash is null or length(hash) <> 32 then
    perform holdfast._fail('QH901', 'a key has a prefix and a hash', format('Got a prefix of %s characters and a hash of %s bytes.',
      coalesce(length(prefix)::text, 'no'), coalesce(length(hash)::text, 'no')), 'prefix: 1 to 20 characters of the secret; hash: its SHA-256.');
  end if;
end $$;
comment on function holdfast._check_key_text is 'Refuse a bad name, prefix or hash of a key';

create or replace function holdfast._check_key_rights(scopes text[], queues text[], expires_in interval, rate float8, burst int) returns void
language plpgsql immutable
as $$
begin
  if coalesce(cardinality(scopes), 0) = 0 or array_position(scopes, null) is not null or not scopes <@ '{send,consume,read,admin}' then
    perform holdfast._fail('QH901', 'these are no scopes', format('Got %s.', coalesce(left(scopes::text, 100), 'null')),
      'scopes takes one or more of send, consume, read, admin.');
  end if;
  if coalesce(cardinality(queues), 0) not between 1 and 100
     or exists (select from unnest(queues) q where (q ~ '^[A-Za-z0-9._:*-]{1,200}$') is not true) then
    perform holdfast._fail('QH901', 'these are no patterns of queues', format('Got %s.', coalesce(left(queues::text, 100), 'null')),
      'queues takes 1 to 100 names of queues, in which * stands for anything.');
  end if;
  if expires_in <= interval '0' or expires_in > interval '10 years' then
    perform holdfast._fail('QH901', 'expires_in is out of range', format('Got %s.', expires_in), 'A key is valid for up to 10 years, or without end.');
  end if;
  if rate is not null then
    perform holdfast._check_rate('key', rate, burst, 1, false);
  elsif burst is not null then
    perform holdfast._fail('QH901', 'burst needs a rate', format('Got a burst of %s.', burst), 'Pass rate too.');
  end if;
end $$;
comment on function holdfast._check_key_rights is 'Refuse bad scopes, queues, expiry or limits of a key';

create or replace function holdfast.add_key(
  name text, prefix text, hash bytea, scopes text[], queues text[] default '{*}', expires_in interval default null,
  rate float8 default null, burst int default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
  v_id bigint;
begin
  perform holdfast._check_key_text(add_key.name, add_key.prefix, add_key.hash);
  perform holdfast._check_key_rights(add_key.scopes, add_key.queues, expires_in, add_key.rate, add_key.burst);
  insert into holdfast.api_key (name, prefix, hash, scopes, queues, rate, burst, created_at, expires_at)
  values (add_key.name, add_key.prefix, add_key.hash, add_key.scopes, add_key.queues, add_key.rate, add_key.burst, v_now, v_now + expires_in)
  returning id into v_id;
  perform pg_notify('holdfast_keys', '');
  return v_id;
end $$;
comment on function holdfast.add_key is 'Make a key to the HTTP server; returns its id. hash: SHA-256 of the secret, which the caller keeps';

create or replace function holdfast.keys() returns setof holdfast.api_key_info
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select k.id, k.name, k.prefix, k.scopes, k.queues, k.rate, k.burst, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
  from holdfast.api_key k order by k.id
$$;
comment on function holdfast.keys is 'All keys to the HTTP server, without their secrets';

create or replace function holdfast.find_key(hash bytea) returns setof holdfast.api_key_info
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select k.id, k.name, k.prefix, k.scopes, k.queues, k.rate, k.burst, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
  from holdfast.api_key k
  where (k.hash = find_key.hash or (k.old_hash = find_key.hash and k.old_until > holdfast.now()))
    and k.revoked_at is null and (k.expires_at is null or k.expires_at > holdfast.now())
$$;
comment on function holdfast.find_key is 'The key that this hash belongs to, if it is valid now';

create or replace function holdfast._no_key(id bigint) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH902', format('there is no key %s', coalesce(_no_key.id::text, 'null')), 'It was never made, or is revoked.',
    'holdfast.keys() lists them.');
end $$;
comment on function holdfast._no_key is 'Refuse a key that is not there';

create or replace function holdfast.rotate_key(id bigint, prefix text, hash bytea, grace interval default '0') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_key_text('key', rotate_key.prefix, rotate_key.hash);
  if grace is null or grace not between interval '0' and interval '7 days' then
    perform holdfast._fail('QH901', 'grace is out of range', format('Got %s.', coalesce(grace::text, 'null')),
      'The old secret can stay valid for up to 7 days.');
  end if;
  update holdfast.api_key k set prefix = rotate_key.prefix, hash = rotate_key.hash,
    old_hash = case when grace > interval '0' then k.hash end, old_until = case when grace > interval '0' then v_now + grace end
  where k.id = rotate_key.id and k.revoked_at is null;
  if not found then
    perform holdfast._no_key(rotate_key.id);
  end if;
  perform pg_notify('holdfast_keys', '');
  return true;
end $$;
comment on function holdfast.rotate_key is 'Give a key another secret; the old one stays valid for grace';

create or replace function holdfast.revoke_key(id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update holdfast.api_key k set revoked_at = holdfast.now() where k.id = revoke_key.id and k.revoked_at is null;
  if not found then
    perform holdfast._no_key(revoke_key.id) where not exists (select from holdfast.api_key k where k.id = revoke_key.id);
    return false;
  end if;
  perform pg_notify('holdfast_keys', '');
  return true;
end $$;
comment on function holdfast.revoke_key is 'Let a key be valid no more; false: it was revoked before';

create or replace function holdfast.touch_keys(ids bigint[], times timestamptz[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update holdfast.api_key k set last_used_at = u.at
  from (select t.id, max(t.at) as at from unnest(touch_keys.ids, touch_keys.times) t(id, at) group by t.id) u
  where k.id = u.id and (k.last_used_at is null or k.last_used_at < u.at);
end $$;
comment on function holdfast.touch_keys is 'Remember when keys were last used';

create or replace function holdfast.has_keys() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select exists (select from holdfast.api_key)
$$;
comment on function holdfast.has_keys is 'Was there ever a key, revoked ones included: until then the HTTP server is open, on loopback';
