-- The end of messages. Outside the short way of ack, a message ends here and nowhere else, or moves to another queue.

create or replace function holdfast._end(queue_id int, ids bigint[], outcome text, at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_ended bigint[];
  v_keys text[];
  v_orders bigint[];
  v_heads boolean[];
begin
  with ended as (
    delete from holdfast.message m where m.id = any (_end.ids) returning m.id, m.ordering_key, m.order_no, m.head
  )
  select coalesce(array_agg(e.id order by e.id), '{}'), array_agg(e.ordering_key) filter (where e.ordering_key is not null),
         array_agg(e.order_no) filter (where e.ordering_key is not null),
         array_agg(e.head is true or outcome in ('done', 'failed')) filter (where e.ordering_key is not null)
  into v_ended, v_keys, v_orders, v_heads from ended e;
  if v_keys is not null then
    perform holdfast._pass_baton(_end.queue_id, v_keys, v_orders, v_heads, at);
  end if;
  return v_ended;
end $$;
comment on function holdfast._end is 'End messages as done, expired, failed or discarded; returns those that were there';
