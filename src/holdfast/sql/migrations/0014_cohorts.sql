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
