-- name: SealHorizon :one
-- JournalHorizon with the journal of changes.
SELECT GREATEST(
    (SELECT COALESCE(max(c.id), 0) FROM cd_changes c WHERE c.organization_id = @organization_id),
    (SELECT COALESCE(max(t.id), 0) FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id),
    (SELECT COALESCE(max(u.id), 0) FROM cd_rollout_environment_transitions u WHERE u.organization_id = @organization_id),
    (SELECT COALESCE(max(v.id), 0) FROM cd_deployment_transitions v WHERE v.organization_id = @organization_id)
)::bigint AS position,
pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next;

-- name: InUTC :exec
-- to_jsonb writes instants in the session's time zone.
SELECT set_config('TimeZone', 'UTC', true);

-- name: SealedRows :many
-- The rows of all journals between two positions, whole: a column that a later release adds is covered where it has a value.
SELECT j.journal, j.id, j.content FROM (
    (SELECT 'change'::text AS journal, c.id, (to_jsonb(c) - 'updated_at')::jsonb AS content FROM cd_changes c
     WHERE c.organization_id = @organization_id AND c.id > @above AND c.id <= @upto ORDER BY c.id LIMIT @at_most)
    UNION ALL
    (SELECT 'rollout'::text, t.id, (to_jsonb(t) - 'updated_at')::jsonb FROM cd_rollout_transitions t
     WHERE t.organization_id = @organization_id AND t.id > @above AND t.id <= @upto ORDER BY t.id LIMIT @at_most)
    UNION ALL
    (SELECT 'rolloutenvironment'::text, u.id, (to_jsonb(u) - 'updated_at')::jsonb FROM cd_rollout_environment_transitions u
     WHERE u.organization_id = @organization_id AND u.id > @above AND u.id <= @upto ORDER BY u.id LIMIT @at_most)
    UNION ALL
    (SELECT 'deployment'::text, v.id, (to_jsonb(v) - 'updated_at')::jsonb FROM cd_deployment_transitions v
     WHERE v.organization_id = @organization_id AND v.id > @above AND v.id <= @upto ORDER BY v.id LIMIT @at_most)
) j ORDER BY j.id, j.journal LIMIT @at_most;

-- name: InsertJournalBlock :exec
INSERT INTO cd_journal_blocks (organization_id, number, above, upto, row_count, previous, digest, sealed_at)
VALUES (@organization_id, @number, @above, @upto, @row_count, @previous, @digest, @sealed_at);

-- name: LastJournalBlock :one
SELECT * FROM cd_journal_blocks WHERE organization_id = @organization_id ORDER BY number DESC LIMIT 1;

-- name: JournalBlocks :many
SELECT * FROM cd_journal_blocks WHERE organization_id = @organization_id AND number > @after_number ORDER BY number LIMIT @at_most;

-- name: SaveJournalCheck :exec
INSERT INTO cd_journal_checks (organization_id, block, head, upto, problem, checked_at)
VALUES (@organization_id, @block, @head, @upto, @problem, @checked_at)
ON CONFLICT (organization_id) DO UPDATE SET block = excluded.block, head = excluded.head, upto = excluded.upto, problem = excluded.problem, checked_at = excluded.checked_at;

-- name: JournalCheckOf :one
SELECT * FROM cd_journal_checks WHERE organization_id = @organization_id;

-- name: JournalHealth :one
-- Across organizations, on purpose: what the operator of the installation watches.
SELECT problems::bigint AS problems, oldest_check::timestamptz AS oldest_check FROM cd_journal_health();
