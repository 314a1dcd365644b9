-- Seals: public keys of queues. What is sent to a queue that has one is encrypted before it is stored.
--
--   set_seal_key     from now on messages are sealed with this key; those of before still count
--   seal_keys        all that a queue has, or had
--   drop_seal_key    nothing that is sealed with this key is taken any more; without keys, messages are stored as they come
--   sealing          for those who send: the key in force, and what plaintexts are hashed with
--
-- Tables: seal_key, seal_secret. Nothing here encrypts: servers and clients do, with the key that they have looked up. So they
-- are told of a change as of one of the configuration; and whatever comes unsealed all the same, or sealed with a key that the
-- queue does not have, is refused, so that nobody who has not heard of a key yet stores a plaintext. Moves are not checked.
-- Lock order: the queue row, then its keys.

create or replace function holdfast._public_key(public_key text, out id text, out kind text, out pem text) language plpgsql immutable
as $$
declare
  v_text text := regexp_replace(substring(_public_key.public_key from '^\s*-----BEGIN PUBLIC KEY-----(.*)-----END PUBLIC KEY-----\s*$'), '\s', '', 'g');
  v_der bytea;
begin
  if length(v_text) between 4 and 4000 and length(v_text) % 4 = 0 and v_text ~ '^[A-Za-z0-9+/]+={0,2}$' then
    v_der := decode(v_text, 'base64');
  end if;
  if length(v_der) = 44 and substr(v_der, 1, 12) = '\x302a300506032b656e032100' then
    kind := 'x25519';
  elsif length(v_der) > 270 and substr(v_der, 1, 2) = '\x3082' and get_byte(v_der, 2) * 256 + get_byte(v_der, 3) = length(v_der) - 4
        and substr(v_der, 5, 17) = '\x300d06092a864886f70d01010105000382' and substr(v_der, 24, 3) = '\x003082' and substr(v_der, 29, 2) = '\x0282'
        -- The modulus, with a zero before it: 2,048 to 8,192 bits.
        and get_byte(v_der, 30) * 256 + get_byte(v_der, 31) between 257 and 1025 and get_byte(v_der, 32) = 0 and get_byte(v_der, 33) >= 128 then
    kind := 'rsa';
  else
    perform holdfast._fail('QH110', 'this is no public key that messages can be sealed with',
      case when _public_key.public_key is null then 'Got null.' when _public_key.public_key ~ 'PRIVATE KEY' then 'It is a private key: keep it with the consumer.'
           else format('Got %s characters.', length(_public_key.public_key)) end,
      'public_key takes PEM (BEGIN PUBLIC KEY) of RSA with 2,048 to 8,192 bits, or of X25519.');
  end if;
  id := encode(sha256(v_der), 'hex');
  pem := E'-----BEGIN PUBLIC KEY-----\n' || rtrim(regexp_replace(translate(encode(v_der, 'base64'), E'\n', ''), '(.{64})', E'\\1\n', 'g'), E'\n')
         || E'\n-----END PUBLIC KEY-----\n';
end $$;
comment on function holdfast._public_key is 'A public key with its id and kind, as PEM that is always written the same way; refuses what is none';

create or replace function holdfast.set_seal_key(queue text, public_key text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_key record;
  v_queue holdfast.queue;
begin
  select k.* into v_key from holdfast._public_key(set_seal_key.public_key) k;
  select q.* into v_queue from holdfast.queue q where q.name = set_seal_key.queue for no key update;
  if not found then
    perform holdfast._no_queue(set_seal_key.queue);
  end if;
  -- Random enough for a key: two UUIDs have 244 bits of it. A restored dump may lack it.
  insert into holdfast.seal_secret (queue_id, secret)
  values (v_queue.id, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))) on conflict on constraint seal_secret_pkey do nothing;
  if v_queue.seal_key = v_key.id then
    return v_key.id;
  end if;
  insert into holdfast.seal_key as k (queue_id, id, kind, public_key, n, set_at)
  values (v_queue.id, v_key.id, v_key.kind, v_key.pem, coalesce((select max(o.n) from holdfast.seal_key o where o.queue_id = v_queue.id), 0) + 1, holdfast.now())
  on conflict on constraint seal_key_pkey do update set n = excluded.n, set_at = excluded.set_at, dropped_at = null;
  update holdfast.queue q set seal_key = v_key.id where q.id = v_queue.id;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return v_key.id;
end $$;
comment on function holdfast.set_seal_key is
  'Have the messages of a queue sealed with this public key from now on; returns its id. Those before it still count, for whoever has sealed already';

create or replace function holdfast.drop_seal_key(queue text, key_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = drop_seal_key.queue for no key update;
  if not found then
    perform holdfast._no_queue(drop_seal_key.queue);
  end if;
  update holdfast.seal_key k set dropped_at = holdfast.now()
  where k.queue_id = v_queue.id and k.id = drop_seal_key.key_id and k.dropped_at is null;
  if not found then
    return false;
  end if;
  update holdfast.queue q
  set seal_key = (select k.id from holdfast.seal_key k where k.queue_id = q.id and k.dropped_at is null order by k.n desc limit 1)
  where q.id = v_queue.id;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return true;
end $$;
comment on function holdfast.drop_seal_key is
  'Take a public key from a queue: the one set before it is in force then, or none, and messages are stored as they come. false: it has no such key';

create or replace function holdfast.seal_keys(queue text) returns setof holdfast.seal_key_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = seal_keys.queue;
  if not found then
    perform holdfast._no_queue(seal_keys.queue);
  end if;
  return query
    select k.id, k.kind, k.public_key, k.set_at, k.dropped_at from holdfast.seal_key k
    where k.queue_id = v_queue.id order by k.dropped_at is not null, k.n desc;
end $$;
comment on function holdfast.seal_keys is 'The public keys of a queue: the one in force first, then those before it, then those that were dropped';

create or replace function holdfast.sealing(queue text) returns table (key_id text, public_key text, digest_key bytea)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = sealing.queue;
  if not found then
    perform holdfast._no_queue(sealing.queue);
  end if;
  return query
    select k.id, k.public_key, s.secret from holdfast.seal_key k left join holdfast.seal_secret s on s.queue_id = k.queue_id
    where k.queue_id = v_queue.id and k.id = v_queue.seal_key;
end $$;
comment on function holdfast.sealing is
  'For those who send: the key that messages are sealed with, and the one that plaintexts are hashed with under an idempotency_key. No row: they are not sealed';

create or replace function holdfast._envelope(body bytea) returns jsonb language plpgsql immutable
as $$
declare
  v_length int;
begin
  if (length(body) >= 22 and substr(body, 1, 4) = '\x48464531') is not true then
    return null;
  end if;
  v_length := get_byte(body, 4) * 256 + get_byte(body, 5);
  if length(body) < 22 + v_length then
    return null;
  end if;
  return convert_from(substr(body, 7, v_length), 'UTF8')::jsonb;
exception
  when data_exception then
    return null;
end $$;
comment on function holdfast._envelope is 'The header of a sealed body; null: it is none';

create or replace function holdfast._digest(body bytea) returns bytea language plpgsql immutable
as $$
begin
  return decode(holdfast._envelope(body) ->> 'digest', 'base64');
exception
  when data_exception then
    return null;
end $$;
comment on function holdfast._digest is 'The keyed hash of the plaintext that a sealed body carries; null: it carries none';

create or replace function holdfast._digests(messages jsonb) returns jsonb language plpgsql immutable
as $$
begin
  return (
    select jsonb_agg(case when d.digest is null then m.value else m.value || jsonb_build_object('body', encode(d.digest, 'hex')) end order by m.n)
    from jsonb_array_elements(messages) with ordinality m(value, n)
      cross join lateral (select case when m.value ->> 'body' like 'SEZFM%' then holdfast._digest(decode(m.value ->> 'body', 'base64')) end as digest) d);
exception
  when data_exception then
    return messages;
end $$;
comment on function holdfast._digests is 'Messages with the hashes of their plaintexts in place of sealed bodies, which are others each time';

create or replace function holdfast._check_sealed(queue holdfast.queue, body bytea, nth bigint default null) returns void language plpgsql stable
as $$
declare
  v_envelope jsonb := holdfast._envelope(body);
begin
  if v_envelope is null then
    perform holdfast._fail('QH241', format('queue "%s" takes sealed messages only', queue.name), format('They are sealed with the key %s.', queue.seal_key),
      'Send with a client, the command line or a server, which seal them; or send an envelope as the body.', nth);
  elsif not exists (select from holdfast.seal_key k where k.queue_id = queue.id and k.id = v_envelope ->> 'kid' and k.dropped_at is null) then
    perform holdfast._fail('QH241', format('queue "%s" does not have the key that this message is sealed with', queue.name),
      format('It is sealed with %s; the queue has %s.', left(coalesce(v_envelope ->> 'kid', 'none'), 100), queue.seal_key), 'Seal it anew.', nth);
  end if;
end $$;
comment on function holdfast._check_sealed is 'Refuse what is not sealed with a key of this queue, which has some. nth: which of several messages it is';
