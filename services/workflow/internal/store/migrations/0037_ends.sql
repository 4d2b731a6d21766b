-- When rows end.

-- +goose Up
COMMENT ON TABLE batch IS 'A batch of changes to many runs. An ended one is deleted after 30 days, and behind the last thousand of its organization.';
COMMENT ON TABLE call IS 'A call that a relay or a worker carries out. Deleted with the turn that takes its answer, and with the end of its run.';
COMMENT ON TABLE child IS 'Who started a run. As execution and entry, the record of runs, it is kept.';
COMMENT ON TABLE guarded_run IS 'What is known of the run of a rollout beside its passages. One row for a rollout; kept, because an event that arrives late must find that the rollout has ended.';
COMMENT ON TABLE passage IS 'What the run of a rollout may change. Deleted with the end of the rollout.';
COMMENT ON TABLE schedule_fire IS 'A due time of a schedule. Those behind the last ones are deleted unless their run is under way, and all of them with the schedule.';
COMMENT ON TABLE worker_function IS 'A Function that workers have registered. Deleted 30 days after its last worker was seen.';

-- +goose Down
COMMENT ON TABLE batch IS NULL;
COMMENT ON TABLE call IS NULL;
COMMENT ON TABLE child IS NULL;
COMMENT ON TABLE guarded_run IS NULL;
COMMENT ON TABLE passage IS NULL;
COMMENT ON TABLE schedule_fire IS NULL;
COMMENT ON TABLE worker_function IS NULL;
