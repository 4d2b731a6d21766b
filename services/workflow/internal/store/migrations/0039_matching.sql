-- +goose Up

-- How many transactions wait for a lock of event matching, of all processes: those of types and keys (LockTypes, LockKeys), and the one that
-- processes of earlier releases take (BeginMatching).
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION match_waiting() RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*) FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND NOT l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (
          (l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(current_schema() || '/match', 0))
          OR (l.objsubid = 2 AND l.classid::bigint IN (
              hashtext(current_schema() || '/match/type')::bigint & 4294967295, hashtext(current_schema() || '/match/key')::bigint & 4294967295
          ))
      )
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION match_waiting() RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*) FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND NOT l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(current_schema() || '/match', 0)
$$;
-- +goose StatementEnd
