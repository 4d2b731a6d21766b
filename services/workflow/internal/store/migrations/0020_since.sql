-- +goose Up

-- Since when an execution can run: the oldest says whether runs wait for places (lockstep_runs_oldest_runnable_age_seconds).
ALTER TABLE runnable ADD COLUMN since timestamptz NOT NULL DEFAULT now();

-- How many transactions wait for the lock of event matching (LockMatching), of all processes.
-- +goose StatementBegin
CREATE FUNCTION match_waiting() RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*) FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND NOT l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(current_schema() || '/match', 0)
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION match_waiting();
ALTER TABLE runnable DROP COLUMN since;
