-- name: TakeOffers :many
-- Taking a call counts the attempt and sets when it is given up, in one statement: it goes to one session only.
UPDATE call SET holder = sqlc.arg(session), attempt = call.attempt + 1, offer_at = sqlc.arg(until)
FROM execution
WHERE execution.id = ANY (ARRAY[call.execution]) AND call.id = ANY (ARRAY(
    SELECT c.id FROM call c
    WHERE c.organization = sqlc.arg(organization) AND c.function = ANY (sqlc.arg(functions)::text[])
        AND c.offer_at <= sqlc.arg(now) AND c.deadline > sqlc.arg(now)
    ORDER BY c.offer_at, c.id
    LIMIT sqlc.arg(most)
    FOR UPDATE SKIP LOCKED
))
RETURNING call.id, call.execution, call.function, call.args, call.attempt, call.deadline, execution.workflow,
    coalesce((SELECT parent FROM trace WHERE trace.execution = call.execution), '')::text AS trace;

-- name: ExtendOffers :many
-- A row that is locked is being answered or closed: it is skipped, and HeldOffers still has it if it is held.
UPDATE call SET offer_at = sqlc.arg(until)
WHERE id = ANY (ARRAY(
    SELECT c.id FROM call c WHERE c.id = ANY (sqlc.arg(ids)::text[]) AND c.holder = sqlc.arg(session) AND c.offer_at IS NOT NULL
    ORDER BY c.id
    FOR UPDATE SKIP LOCKED
))
RETURNING id;

-- name: HeldOffers :many
SELECT id FROM call WHERE id = ANY (sqlc.arg(ids)::text[]) AND holder = sqlc.arg(session) AND offer_at IS NOT NULL;

-- name: ReleaseOffers :execrows
UPDATE call SET offer_at = sqlc.arg(now), holder = ''
WHERE id = ANY (ARRAY(
    SELECT c.id FROM call c WHERE c.id = ANY (sqlc.arg(ids)::text[]) AND c.holder = sqlc.arg(session) AND c.offer_at IS NOT NULL
    ORDER BY c.id
    FOR UPDATE SKIP LOCKED
));

-- name: SecretsOf :one
SELECT secrets FROM execution WHERE id = $1;

-- name: PostponeOffer :exec
UPDATE call SET offer_at = $2, refused = refused + 1, holder = '', tries = $3 WHERE id = $1;

-- name: LockWorkerFunctions :exec
SELECT pg_advisory_xact_lock(hashtextextended('worker_function', sqlc.arg(organization)::bigint));

-- name: EndWorkerFunctions :exec
DELETE FROM worker_function WHERE organization = sqlc.arg(organization) AND seen_at < sqlc.arg(before);

-- name: SaveWorkerFunctions :exec
INSERT INTO worker_function (organization, name, declaration, registered_at, seen_at, registered_by, registered_by_worker, registered_by_version)
SELECT sqlc.arg(organization), u.name, u.declaration::jsonb, sqlc.arg(now)::timestamptz, sqlc.arg(now)::timestamptz,
    sqlc.arg(principal)::text, sqlc.arg(worker)::text, sqlc.arg(version)::text
FROM (SELECT unnest(sqlc.arg(names)::text[]) AS name, unnest(sqlc.arg(declarations)::text[]) AS declaration ORDER BY 1) AS u
ON CONFLICT (organization, name) DO UPDATE SET declaration = excluded.declaration, seen_at = excluded.seen_at,
    registered_at = CASE WHEN worker_function.declaration = excluded.declaration THEN worker_function.registered_at ELSE excluded.registered_at END,
    registered_by = CASE WHEN worker_function.declaration = excluded.declaration THEN worker_function.registered_by ELSE excluded.registered_by END,
    registered_by_worker = CASE WHEN worker_function.declaration = excluded.declaration
        THEN worker_function.registered_by_worker ELSE excluded.registered_by_worker END,
    registered_by_version = CASE WHEN worker_function.declaration = excluded.declaration
        THEN worker_function.registered_by_version ELSE excluded.registered_by_version END;

-- name: SeeWorkerFunctions :exec
UPDATE worker_function SET seen_at = sqlc.arg(now)
WHERE organization = sqlc.arg(organization) AND name = ANY (sqlc.arg(names)::text[]) AND seen_at < sqlc.arg(now);

-- name: WorkerFunctions :many
SELECT name, declaration, registered_at, seen_at, registered_by, registered_by_worker, registered_by_version FROM worker_function WHERE organization = $1 ORDER BY name;

-- name: CountWorkerFunctions :one
SELECT count(*) FROM worker_function WHERE organization = $1;

-- name: ListenOffers :exec
LISTEN lockstep_worker_offer;

-- name: CurrentSchema :one
SELECT current_schema()::text;

-- name: NotifyOffers :exec
SELECT pg_notify('lockstep_worker_offer', current_schema()::text);

-- name: Hasten :exec
-- Hasten has the commit answered before it is on the disk. A crash of the server may lose the transaction, as a whole, and nothing else.
SELECT set_config('synchronous_commit', 'off', true);
