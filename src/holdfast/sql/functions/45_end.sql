-- The end of messages. Outside the short way of ack, a message ends here and nowhere else, or moves to another queue.

create or replace function holdfast._end(queue_id int, ids bigint[], outcome text, at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_ended bigint[];
begin
  with ended as (delete from holdfast.message m where m.id = any (_end.ids) returning m.id)
  select coalesce(array_agg(e.id order by e.id), '{}') into v_ended from ended e;
  perform holdfast._count(_end.queue_id, _end.outcome, cardinality(v_ended));
  return v_ended;
end $$;
comment on function holdfast._end is 'End messages as done, expired, failed or discarded; returns those that were there';
