-- A batch whose agent was about to commit on the service: what became of it is not known until it is tried again.

alter table holdfast.service_task add column begun boolean not null default false;
comment on column holdfast.service_task.begun is 'whether an attempt got so far that it may have been done on the service';
