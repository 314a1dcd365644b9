-- Stages have an owner, and numbers that nobody can guess: all senders may insert rows, and only into stages of their own.

alter table holdfast.stage add column opened_by text not null default session_user;
alter table holdfast.stage alter column opened_by drop default;
alter table holdfast.stage alter column id drop default;
drop sequence holdfast.stage_n;
comment on column holdfast.stage.opened_by is 'the user whose it is; others can neither send nor drop what lies in it';

-- These have other arguments now.
drop function if exists holdfast._dubious_repairs(holdfast.queue, bigint, bigint, bigint, text[], timestamptz);
drop function if exists holdfast._check_repairs(holdfast.queue, bigint, bigint, bigint, text[], timestamptz);
