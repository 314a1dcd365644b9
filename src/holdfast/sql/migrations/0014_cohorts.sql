-- Cohorts: several claimers that one call serves.
--
-- holdfast.cohort_delivery   a delivery, and whose it is

create type holdfast.cohort_delivery as (
  claimer int,
  token bigint, id bigint, queue text, payload jsonb, body bytea, content_type text, headers jsonb, priority int,
  key text, ordering_key text, correlation_id uuid, tag text, deliveries int, max_deliveries int,
  enqueued_at timestamptz, deadline timestamptz, last_error text, origin jsonb
);
comment on type holdfast.cohort_delivery is 'A message as claim_cohort hands it out: to which claimer, counted from 1, and as claim does';

-- These have other arguments now: what is refused is named by its place among others.
drop function if exists holdfast._fail(text, text, text, text);
drop function if exists holdfast._too_large(text, int);
drop function if exists holdfast._check_size(jsonb, bytea, int);
drop function if exists holdfast._fits(jsonb, int);
drop function if exists holdfast._draft(jsonb, holdfast.queue, timestamptz);
drop function if exists holdfast._check_depth(holdfast.queue, bigint);
drop function if exists holdfast._store_one(holdfast.queue, holdfast.draft, regclass, timestamptz);
drop function if exists holdfast._sent_before(holdfast.queue, holdfast.draft);
drop function if exists holdfast._no_append(text, jsonb);
