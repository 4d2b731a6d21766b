-- name: PutSource :batchexec
-- PutSource resets the schedule and the memory of a source if its configuration has changed.
INSERT INTO source (id, organization_id, source_ref, source_config, revision, name, place, interval_seconds, pulled_at, next_at)
VALUES (@id, @organization_id, @source_ref, @source_config, @revision, @name, @place, @interval_seconds, @pulled_at, sqlc.narg(next_at))
ON CONFLICT (id) DO UPDATE
SET pulled_at        = excluded.pulled_at,
    organization_id  = excluded.organization_id,
    source_ref       = excluded.source_ref,
    source_config    = excluded.source_config,
    revision         = excluded.revision,
    name             = excluded.name,
    place            = excluded.place,
    interval_seconds = excluded.interval_seconds,
    next_at          = CASE WHEN source.revision = excluded.revision THEN source.next_at ELSE excluded.next_at END,
    memory           = CASE WHEN source.revision = excluded.revision THEN source.memory END,
    failures         = CASE WHEN source.revision = excluded.revision THEN source.failures ELSE 0 END,
    last_error       = CASE WHEN source.revision = excluded.revision THEN source.last_error ELSE '' END;

-- name: DropSources :exec
DELETE FROM source WHERE pulled_at < @before::timestamptz;

-- name: ClaimSources :many
UPDATE source
SET next_at = @until::timestamptz
WHERE id = ANY (ARRAY(
    SELECT s.id FROM source s
    WHERE s.next_at <= @now::timestamptz
    ORDER BY s.next_at
    LIMIT @most
    FOR UPDATE SKIP LOCKED
))
RETURNING *;

-- name: TakeSource :one
UPDATE source
SET next_at = CASE WHEN interval_seconds > 0 THEN @until::timestamptz END
WHERE id = @id AND organization_id = @organization_id
RETURNING *;

-- name: PostponeSource :exec
UPDATE source SET next_at = @until::timestamptz WHERE id = @id AND revision = @revision AND interval_seconds > 0;

-- name: SaveOutcome :execrows
UPDATE source
SET looked_at        = @looked_at::timestamptz,
    next_at          = CASE WHEN nudges = @nudges THEN sqlc.narg(next_at) ELSE next_at END,
    memory           = sqlc.narg(memory),
    failures         = @failures,
    last_error       = @last_error,
    last_artifact    = CASE WHEN @last_artifact::text <> '' THEN @last_artifact ELSE last_artifact END,
    last_artifact_at = CASE WHEN @last_artifact::text <> '' AND last_artifact <> @last_artifact THEN @looked_at ELSE last_artifact_at END
WHERE id = @id AND revision = @revision;

-- name: NudgeSources :execrows
UPDATE source SET next_at = @now::timestamptz, nudges = nudges + 1
WHERE source_ref = @source_ref AND name = ANY (@names::text[]) AND interval_seconds > 0;

-- name: SourceStates :many
SELECT id, interval_seconds, next_at, looked_at, failures, last_error, last_artifact, last_artifact_at FROM source
WHERE organization_id = @organization_id AND id = ANY (@ids::bigint[]);
