-- Seals: with which public keys the bodies of a queue are encrypted before they are stored.
--
-- queue.seal_key          the id of the key in force; null: messages are stored as they come
-- holdfast.seal_key       one row a key that a queue has, or had
-- holdfast.seal_secret    one row a queue that had a key: what plaintexts are hashed with, to tell repeated sends

alter table holdfast.queue add column seal_key text;
comment on column holdfast.queue.seal_key is 'the id of the public key that messages are sealed with; null: they are not sealed';

create table holdfast.seal_key (
  queue_id int not null references holdfast.queue on delete cascade,
  id text not null,
  kind text not null,
  public_key text not null,
  n int not null,
  set_at timestamptz not null,
  dropped_at timestamptz,
  primary key (queue_id, id)
);
comment on table holdfast.seal_key is 'A public key of a queue; the private one is with its consumers alone';
comment on column holdfast.seal_key.id is 'SHA-256 of the key (SubjectPublicKeyInfo, DER), in hex';
comment on column holdfast.seal_key.kind is 'rsa or x25519';
comment on column holdfast.seal_key.public_key is 'the key as PEM';
comment on column holdfast.seal_key.n is 'the highest of those that are not dropped is in force';
comment on column holdfast.seal_key.dropped_at is 'since then nothing sealed with it is taken';

create table holdfast.seal_secret (
  queue_id int primary key references holdfast.queue on delete cascade,
  secret bytea not null
);
comment on table holdfast.seal_secret is 'The key of the hash by which a sealed message that is sent again is known';

create type holdfast.seal_key_info as (
  id text, kind text, public_key text, set_at timestamptz, dropped_at timestamptz
);
comment on type holdfast.seal_key_info is 'A public key of a queue';

-- It has another argument now.
drop function if exists holdfast._suspect(holdfast.staged, int, boolean, text, int, timestamptz);
