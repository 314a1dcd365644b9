-- Rights. Every public function runs as the owner of the schema; a role gets the verbs it needs, and no table. Consumers
-- may read the views that show what scan shows.

create or replace function holdfast._grant_rights() returns void language plpgsql volatile
as $$
declare
  v_grant record;
begin
  revoke all on all functions in schema holdfast from public;
  revoke all on all tables in schema holdfast from public;
  if to_regclass('holdfast.migration') is not null then
    -- A client looks there whether it fits the schema.
    grant select on holdfast.migration to public;
  end if;
  for v_grant in
    select * from (values
      ('holdfast_producer', '{send,send_batch,send_many,send_once,queue_schema,schema_versions,sealing,seal_keys,open_stage,check_staged,send_staged,drop_staged,writes,json_errors,begin_run,report_run,end_run,runs,publish,publish_batch,event_types,fast_mode,now}'::text[]),
      ('holdfast_consumer', '{read,read_archive,log_stats,extent,base_id,queue_schema,schema_versions,seal_keys,claim,claim_cohort,claims,take,bury_spent,hold,next,ack,nack,reject,release,extend,dispatch_endpoints,admit,yield_probe,record_attempts,attempts,endpoint_attempts,held,holders,listen,browse,message,whereabouts,contents,outcomes,scan,scan_bounds,scan_source,put_rollups,queue_stats,blocked_keys,begin_run,report_run,end_run,runs,fast_mode,now}'),
      ('holdfast_monitor', '{queue_stats,outcomes,queues,queue_info,queue_schema,schema_versions,seal_keys,leases,log_stats,extent,base_id,blocked_keys,samples,rollups,archived,why,runs,endpoints,endpoint_info,endpoint_health,endpoint_events,hooks,hook_info,hook_calls,event_types,subscriptions,now}'),
      ('holdfast_admin', (select array_agg(distinct p.proname::text) from pg_proc p
                          where p.pronamespace = 'holdfast'::regnamespace and p.proname not like '\_%'))
    ) g(role, verbs)
    where exists (select from pg_roles r where r.rolname = g.role)
  loop
    execute format('grant usage on schema holdfast to %I', v_grant.role);
    execute (select string_agg(format('grant execute on function %s to %I', p.oid::regprocedure, v_grant.role), '; ')
             from pg_proc p where p.pronamespace = 'holdfast'::regnamespace and p.proname = any (v_grant.verbs));
    if v_grant.role in ('holdfast_producer', 'holdfast_admin') then
      execute format('grant insert (queue, payload, body, content_type, headers, priority, deliver_at, expires_at, correlation_id, tag, '
                     'max_deliveries, ordering_key, key, idempotency_key) on holdfast.inbox to %I', v_grant.role);
      execute format('grant usage on sequence holdfast.inbox_n to %I', v_grant.role);
      execute format('grant insert on holdfast.staged to %I', v_grant.role);
    end if;
    if v_grant.role in ('holdfast_consumer', 'holdfast_admin') then
      execute format('grant select on holdfast.scan_message, holdfast.scan_archive, holdfast.scan_lease, holdfast.row_message, '
                     'holdfast.row_queue to %I', v_grant.role);
    end if;
  end loop;
end $$;
comment on function holdfast._grant_rights is 'Give each role that exists its rights; the owner may call it again after a role was created';

do $$
begin
  perform holdfast._grant_rights();
end $$;
