-- The statements of one commit of many turns, starts and events. Arrays are columns: the same place in each
-- belongs to the same row. An empty text stands for NULL.
--
-- Such rows are joined with those of a table one by one, by its index: a join has "= ANY (ARRAY[…])" for the key's first column, which the
-- planner can only use as a condition for an index. With "=" it would also consider a merge join that reads the whole index, would choose
-- that while a table is short, or is believed to be, and would keep the plan for longer than that is true. Sequential scans are ruled out
-- by the settings of the connection (Settings), and TestCommitsReachEveryRowByItsKey checks the plans.

-- name: BeginMatching :exec
-- Before any lock of matching is taken (store/lock.go): the server ends a transaction whose process stalls while it holds one. Processes
-- of earlier releases take the lock of this statement alone, so that one of them and others of this release keep out of each other's way.
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), pg_advisory_xact_lock_shared(hashtextextended(current_schema() || '/match', 0));

-- name: LockTypes :exec
-- Locks of types of events, in ascending order: the whole type, or a share of it (store/lock.go).
SELECT CASE WHEN l.whole
    THEN pg_advisory_xact_lock(hashtext(current_schema() || '/match/type'), l.id)
    ELSE pg_advisory_xact_lock_shared(hashtext(current_schema() || '/match/type'), l.id) END
FROM (SELECT unnest(sqlc.arg(ids)::int[]) AS id, unnest(sqlc.arg(wholes)::boolean[]) AS whole) AS l;

-- name: LockKeys :exec
-- Locks of keys and of names of events, in ascending order, behind those of their types.
SELECT pg_advisory_xact_lock(hashtext(current_schema() || '/match/key'), l.id) FROM (SELECT unnest(sqlc.arg(ids)::int[]) AS id) AS l;

-- name: LockMatched :exec
-- Locks the executions of the transaction and those with a wait for one of the keys, in the order of their ids, as everywhere. No other
-- transaction delivers an event to any of them before the commit; and with the keys locked, no other execution begins to wait for one.
SELECT e.id FROM execution e
WHERE e.id = ANY (ARRAY(
    SELECT unnest(sqlc.arg(executions)::bigint[]) UNION SELECT wait.execution FROM wait WHERE wait.key = ANY (sqlc.arg(keys)::bytea[])
))
ORDER BY e.id
FOR NO KEY UPDATE;

-- name: SavePrograms :exec
INSERT INTO program (digest, source)
SELECT unnest(sqlc.arg(digests)::bytea[]), unnest(sqlc.arg(sources)::bytea[])
ON CONFLICT DO NOTHING;

-- name: CreateExecutions :many
-- Returns no row for a workflow that exists.
WITH made AS (
INSERT INTO execution (
    ref, organization, workflow, program, modules, inputs, secrets, labels, start_event, created_at, owner, owner_epoch
)
SELECT u.ref, u.organization, u.workflow, u.program, u.modules::json, u.inputs::json, u.secrets::json,
    u.labels::jsonb, (SELECT coalesce(max(event.id), 0) FROM event), u.created_at,
    nullif(u.owner, ''), nullif(u.epoch, 0)
FROM (
    SELECT unnest(sqlc.arg(refs)::text[]) AS ref, unnest(sqlc.arg(organizations)::bigint[]) AS organization,
        unnest(sqlc.arg(workflows)::text[]) AS workflow, unnest(sqlc.arg(programs)::bytea[]) AS program,
        unnest(sqlc.arg(modules)::text[]) AS modules, unnest(sqlc.arg(inputs)::text[]) AS inputs,
        unnest(sqlc.arg(secrets)::text[]) AS secrets,
        unnest(sqlc.arg(labels)::text[]) AS labels, unnest(sqlc.arg(created)::timestamptz[]) AS created_at,
        unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
) AS u
ON CONFLICT ON CONSTRAINT execution_once DO NOTHING
RETURNING id, ref, organization
), runs AS (
    INSERT INTO runnable (execution, organization) SELECT made.id, made.organization FROM made
)
SELECT made.id, made.ref FROM made;

-- name: BeginExecutions :exec
-- CreateExecutions with the first turn of each: its state after the turn, its entries, which name it by its place in refs, and its
-- trace. An execution that exists already is an error. The ids are drawn first, so that entries can refer to them.
WITH ids AS MATERIALIZED (
    SELECT array_agg(nextval('execution_id_seq')) AS id FROM generate_series(1, cardinality(sqlc.arg(refs)::text[]))
), made AS (
    INSERT INTO execution (
        id, ref, organization, workflow, program, modules, inputs, secrets, labels, start_event, created_at,
        turn, state, error, last_seq, ended_at, owner, owner_epoch
    ) OVERRIDING SYSTEM VALUE
    SELECT ids.id[u.place], u.ref, u.organization, u.workflow, u.program, u.modules::json, u.inputs::json, u.secrets::json,
        u.labels::jsonb, (SELECT coalesce(max(event.id), 0) FROM event), u.created_at,
        1, u.state, u.error, u.last_seq, CASE WHEN u.state NOT IN ('running', 'parked') THEN u.turned_at END,
        CASE WHEN u.state = 'running' THEN nullif(u.owner, '') END, CASE WHEN u.state = 'running' THEN nullif(u.epoch, 0) END
    FROM ids, (
        SELECT generate_subscripts(sqlc.arg(refs)::text[], 1) AS place,
            unnest(sqlc.arg(refs)::text[]) AS ref, unnest(sqlc.arg(organizations)::bigint[]) AS organization,
            unnest(sqlc.arg(workflows)::text[]) AS workflow, unnest(sqlc.arg(programs)::bytea[]) AS program,
            unnest(sqlc.arg(modules)::text[]) AS modules, unnest(sqlc.arg(inputs)::text[]) AS inputs,
            unnest(sqlc.arg(secrets)::text[]) AS secrets,
            unnest(sqlc.arg(labels)::text[]) AS labels, unnest(sqlc.arg(created)::timestamptz[]) AS created_at,
            unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
            unnest(sqlc.arg(states)::text[]) AS state, unnest(sqlc.arg(failures)::text[]) AS error,
            unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(turned)::timestamptz[]) AS turned_at
    ) AS u
    RETURNING execution.id, execution.state, execution.organization
), runs AS (
    INSERT INTO runnable (execution, organization) SELECT made.id, made.organization FROM made WHERE made.state = 'running'
), traces AS (
    INSERT INTO trace (execution, parent)
    SELECT ids.id[t.place], t.parent
    FROM ids, (SELECT unnest(sqlc.arg(traced)::int[]) AS place, unnest(sqlc.arg(parents)::text[]) AS parent) AS t
)
INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, error, recorded_at)
SELECT ids.id[n.place::int], n.seq, n.branch, n.op, n.kind, n.name, n.hash, nullif(n.value, '')::json, nullif(n.error, '')::json, n.at
FROM ids, (
    SELECT unnest(sqlc.arg(places)::bigint[]) AS place, unnest(sqlc.arg(seqs)::bigint[]) AS seq,
        unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op,
        unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(names)::text[]) AS name,
        unnest(sqlc.arg(hashes)::bigint[]) AS hash, unnest(sqlc.arg(vals)::text[]) AS value,
        unnest(sqlc.arg(errors)::text[]) AS error, unnest(sqlc.arg(ats)::timestamptz[]) AS at
) AS n;

-- name: FindRefs :many
SELECT id, ref FROM execution WHERE ref = ANY (sqlc.arg(refs)::text[]);

-- name: FindStarts :many
SELECT execution.id, execution.ref, execution.organization, execution.workflow, execution.program, execution.modules,
    execution.inputs, execution.secrets
FROM execution
JOIN (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(workflows)::text[]) AS workflow) AS u
    ON execution.organization = ANY (ARRAY[u.organization]) AND execution.workflow = u.workflow;

-- name: LockTurns :many
-- Locks the executions of turns that pass the fence, and returns how many arrivals each has had. Each turn must be the one that was
-- loaded, and the owner must be the caller; a turn that records nothing must know the whole history (for all others the primary key of
-- the history checks it). Every statement that locks several executions does so in the order of their ids.
SELECT execution.id, execution.turn, execution.wakes
FROM (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
        unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
        unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(recorded)::boolean[]) AS recorded
) AS u
JOIN execution ON execution.id = ANY (ARRAY[u.id])
WHERE execution.turn = u.turn AND execution.state = 'running' AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
  AND (u.recorded OR NOT EXISTS (SELECT FROM entry n WHERE n.execution = execution.id AND n.seq > u.last_seq))
FOR NO KEY UPDATE OF execution;

-- name: HoldTurns :exec
-- The fence of turns that record something and keep their execution running: all of them pass, or the transaction is refused. It only
-- locks the row of the execution, which no other writer of the row passes before the commit; the history says where the execution is. A
-- new version of the row for each step would need room on its page, and without it a row in every index. An execution that makes
-- progress does not kill its process, so its crashes are forgotten.
--
-- Beside turns that end, it locks the rows for these as well: executions are locked in the order of their ids.
WITH held AS (
    SELECT execution.id, execution.crashes
    FROM (
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
            unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
    ) AS u
    JOIN execution ON execution.id = ANY (ARRAY[u.id])
    WHERE execution.turn = u.turn AND execution.state = 'running' AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
    FOR NO KEY UPDATE OF execution
), absolved AS (
    UPDATE execution SET crashes = 0 WHERE execution.id = ANY (ARRAY(SELECT held.id FROM held WHERE held.crashes > 0))
)
SELECT CASE WHEN count(*) < cardinality(sqlc.arg(ids)::bigint[]) THEN refuse('LS001', 'a turn is fenced') END FROM held;

-- name: EndTurns :exec
-- The fence of all other turns: all of them pass, or the transaction is refused. The conditions are those of LockTurns. An execution to
-- which something has come since it was loaded does not park: when strict, that refuses the transaction, too.
WITH moved AS (
UPDATE execution SET
    turn = execution.turn + 1,
    last_seq = u.last_seq,
    state = CASE WHEN u.next = 'parked' AND execution.wakes <> u.wakes THEN 'running' ELSE u.next END,
    owner = CASE WHEN u.next = 'running' OR (u.next = 'parked' AND execution.wakes <> u.wakes) THEN execution.owner END,
    owner_epoch = CASE WHEN u.next = 'running' OR (u.next = 'parked' AND execution.wakes <> u.wakes) THEN execution.owner_epoch END,
    error = u.error,
    -- An execution that makes progress, or parks, does not kill its process.
    crashes = CASE WHEN u.recorded OR u.next = 'parked' THEN 0 ELSE execution.crashes END,
    ended_at = CASE WHEN u.next NOT IN ('running', 'parked') THEN u.ended_at END
FROM (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
        unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
        unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(nexts)::text[]) AS next,
        unnest(sqlc.arg(wakes)::bigint[]) AS wakes, unnest(sqlc.arg(errors)::text[]) AS error,
        unnest(sqlc.arg(ended)::timestamptz[]) AS ended_at, unnest(sqlc.arg(recorded)::boolean[]) AS recorded
) AS u
WHERE execution.id = ANY (ARRAY[u.id]) AND execution.turn = u.turn AND execution.state = 'running'
  AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
  AND (u.recorded OR NOT EXISTS (SELECT FROM entry n WHERE n.execution = execution.id AND n.seq > u.last_seq))
  AND NOT (sqlc.arg(strict)::boolean AND u.next = 'parked' AND execution.wakes <> u.wakes)
RETURNING execution.id, execution.state
), stopped AS (
    DELETE FROM runnable WHERE runnable.execution = ANY (ARRAY(SELECT moved.id FROM moved WHERE moved.state <> 'running'))
)
SELECT CASE WHEN count(*) < cardinality(sqlc.arg(ids)::bigint[]) THEN refuse('LS001', 'a turn is fenced, or may not park') END FROM moved;

-- name: AppendMany :exec
INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, error, event, recorded_at)
SELECT u.execution, u.seq, u.branch, u.op, u.kind, u.name, u.hash, nullif(u.value, '')::json, nullif(u.error, '')::json, nullif(u.event, 0), u.at
FROM (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(seqs)::bigint[]) AS seq,
        unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op,
        unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(names)::text[]) AS name,
        unnest(sqlc.arg(hashes)::bigint[]) AS hash, unnest(sqlc.arg(vals)::text[]) AS value,
        unnest(sqlc.arg(errors)::text[]) AS error, unnest(sqlc.arg(events)::bigint[]) AS event,
        unnest(sqlc.arg(ats)::timestamptz[]) AS at
) AS u;

-- name: AppendTried :exec
-- AppendMany where a call may have been attempted more than once. What a relay or a worker was asked for and did not answer in time has its
-- failed attempts beside the call, which the turn closes behind this.
INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, error, event, recorded_at, tries)
SELECT u.execution, u.seq, u.branch, u.op, u.kind, u.name, u.hash, nullif(u.value, '')::json, nullif(u.error, '')::json, nullif(u.event, 0), u.at,
    CASE WHEN u.tries <> '' THEN u.tries::json WHEN u.kind = 'run' THEN (
        SELECT c.tries FROM call c WHERE c.execution = u.execution AND c.branch = u.branch AND c.op = u.op
    ) END
FROM (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(seqs)::bigint[]) AS seq,
        unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op,
        unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(names)::text[]) AS name,
        unnest(sqlc.arg(hashes)::bigint[]) AS hash, unnest(sqlc.arg(vals)::text[]) AS value,
        unnest(sqlc.arg(errors)::text[]) AS error, unnest(sqlc.arg(events)::bigint[]) AS event,
        unnest(sqlc.arg(ats)::timestamptz[]) AS at, unnest(sqlc.arg(tries)::text[]) AS tries
) AS u;

-- name: CloseMany :exec
-- Deletes the open rows of operations that are part of the history now.
WITH c AS (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(branches)::int[]) AS branch,
        unnest(sqlc.arg(ops)::int[]) AS op
), timers AS (
    DELETE FROM timer USING c WHERE timer.execution = ANY (ARRAY[c.execution]) AND timer.branch = c.branch AND timer.op = c.op
), waits AS (
    DELETE FROM wait USING c WHERE wait.execution = ANY (ARRAY[c.execution]) AND wait.branch = c.branch AND wait.op = c.op
), calls AS (
    DELETE FROM call USING c WHERE call.execution = ANY (ARRAY[c.execution]) AND call.branch = c.branch AND call.op = c.op
), polls AS (
    DELETE FROM poll USING c WHERE poll.execution = ANY (ARRAY[c.execution]) AND poll.branch = c.branch AND poll.op = c.op
)
DELETE FROM delivery USING c WHERE delivery.execution = ANY (ARRAY[c.execution]) AND delivery.branch = c.branch AND delivery.op = c.op;

-- name: DropMany :exec
-- Deletes all open rows of executions that have ended.
WITH timers AS (
    DELETE FROM timer WHERE timer.execution = ANY (sqlc.arg(executions)::bigint[])
), waits AS (
    DELETE FROM wait WHERE wait.execution = ANY (sqlc.arg(executions)::bigint[])
), calls AS (
    DELETE FROM call WHERE call.execution = ANY (sqlc.arg(executions)::bigint[])
), polls AS (
    DELETE FROM poll WHERE poll.execution = ANY (sqlc.arg(executions)::bigint[])
), channels AS (
    DELETE FROM channel WHERE channel.execution = ANY (sqlc.arg(executions)::bigint[])
)
DELETE FROM delivery WHERE delivery.execution = ANY (sqlc.arg(executions)::bigint[]);

-- name: OpenTimers :exec
INSERT INTO timer (execution, branch, op, due, opened_at)
SELECT unnest(sqlc.arg(executions)::bigint[]), unnest(sqlc.arg(branches)::int[]), unnest(sqlc.arg(ops)::int[]),
    unnest(sqlc.arg(dues)::timestamptz[]), unnest(sqlc.arg(opened)::timestamptz[]);

-- name: OpenCalls :exec
-- A call of a relay is due immediately, one of a worker is offered, at once or once its holder is not heard of, and one of this process is
-- never sent.
INSERT INTO call (
    id, execution, branch, op, function, args, location, agent, no_retry, retry, next_at, deadline, organization, offer_at, holder, attempt
)
SELECT u.id, u.execution, u.branch, u.op, u.function, u.args::json, u.location, u.agent, u.no_retry, nullif(u.retry, '')::json,
    CASE WHEN u.location = 1 THEN u.at END, u.deadline,
    CASE WHEN u.location = 2 THEN (SELECT e.organization FROM execution e WHERE e.id = u.execution) ELSE 0 END,
    CASE WHEN u.location = 2 THEN u.at END, u.holder, CASE WHEN u.holder <> '' THEN 1 ELSE 0 END
FROM (
    SELECT unnest(sqlc.arg(ids)::text[]) AS id, unnest(sqlc.arg(executions)::bigint[]) AS execution,
        unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op,
        unnest(sqlc.arg(functions)::text[]) AS function, unnest(sqlc.arg(args)::text[]) AS args,
        unnest(sqlc.arg(locations)::smallint[]) AS location, unnest(sqlc.arg(agents)::bigint[]) AS agent,
        unnest(sqlc.arg(no_retries)::boolean[]) AS no_retry, unnest(sqlc.arg(retries)::text[]) AS retry,
        unnest(sqlc.arg(ats)::timestamptz[]) AS at,
        unnest(sqlc.arg(deadlines)::timestamptz[]) AS deadline, unnest(sqlc.arg(holders)::text[]) AS holder
) AS u;

-- name: OpenWaits :exec
INSERT INTO wait (execution, branch, op, key, shape, type, filter, created_at)
SELECT u.execution, u.branch, u.op, u.key, u.shape, u.type, u.filter::json, u.at
FROM (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(branches)::int[]) AS branch,
        unnest(sqlc.arg(ops)::int[]) AS op, unnest(sqlc.arg(keys)::bytea[]) AS key, unnest(sqlc.arg(shapes)::bigint[]) AS shape,
        unnest(sqlc.arg(types)::text[]) AS type, unnest(sqlc.arg(filters)::text[]) AS filter, unnest(sqlc.arg(ats)::timestamptz[]) AS at
) AS u;

-- name: OpenPolls :exec
INSERT INTO poll (execution, branch, op, function, round, calling, deadline, value, error)
SELECT u.execution, u.branch, u.op, u.function, u.round, u.calling, u.deadline, nullif(u.value, '')::json, nullif(u.error, '')::json
FROM (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(branches)::int[]) AS branch,
        unnest(sqlc.arg(ops)::int[]) AS op, unnest(sqlc.arg(functions)::text[]) AS function, unnest(sqlc.arg(rounds)::int[]) AS round,
        unnest(sqlc.arg(calling)::boolean[]) AS calling, unnest(sqlc.arg(deadlines)::timestamptz[]) AS deadline,
        unnest(sqlc.arg(vals)::text[]) AS value, unnest(sqlc.arg(errors)::text[]) AS error
) AS u;

-- name: OpenChannels :exec
INSERT INTO channel (token, execution, organization)
SELECT unnest(sqlc.arg(tokens)::text[]), unnest(sqlc.arg(executions)::bigint[]), unnest(sqlc.arg(organizations)::bigint[]);

-- name: FindEvents :many
-- The events that are stored already. Their names are locked, so no other of these becomes known before the commit.
SELECT event.organization, event.source, event.event_id
FROM (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(sources)::text[]) AS source,
        unnest(sqlc.arg(event_ids)::text[]) AS event_id
) AS u
JOIN event ON event.organization = ANY (ARRAY[u.organization]) AND event.source = u.source AND event.event_id = u.event_id;

-- name: FindFilters :many
-- For each type, the sets of paths that waits for it have, and whether a flow has a handler for it.
SELECT t.organization::bigint AS organization, t.type::text AS type, coalesce((
    SELECT json_agg(shape.paths ORDER BY shape.id) FROM shape WHERE shape.organization = t.organization AND shape.type = t.type
), '[]')::json AS shapes, EXISTS (
    SELECT FROM flow_trigger WHERE flow_trigger.organization = t.organization AND flow_trigger.type = t.type
)::boolean AS flows
FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(types)::text[]) AS type) AS t;

-- name: SaveEvents :exec
-- Stores events with their keys. An event that is stored already is an error: nearly all are new, and ON CONFLICT would cost a second
-- record in the log for each. A key names its event by the event's place in the list. When strict, the transaction is refused if the
-- filters of a type are not those that the caller knows, by their number (shapes are never deleted), or if flows are not.
WITH saved AS (
INSERT INTO event (organization, source, event_id, type, data, occurred_at, received_at)
SELECT u.organization, u.source, u.event_id, u.type, u.data::json, u.occurred_at, sqlc.arg(received)::timestamptz
FROM (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(sources)::text[]) AS source,
        unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(types)::text[]) AS type,
        unnest(sqlc.arg(data)::text[]) AS data, unnest(sqlc.arg(occurred)::timestamptz[]) AS occurred_at
) AS u
RETURNING id
), keyed AS (
    -- Ids are in the order of the list.
    INSERT INTO event_key (key, event)
    SELECT k.key, (ARRAY(SELECT saved.id FROM saved ORDER BY saved.id))[k.place]
    FROM (SELECT unnest(sqlc.arg(keys)::bytea[]) AS key, unnest(sqlc.arg(places)::int[]) AS place) AS k
)
SELECT refuse('LS001', 'the filters of events ' || t.type || ' of organization ' || t.organization || ' have changed')
FROM (
    SELECT unnest(sqlc.arg(known_organizations)::bigint[]) AS organization, unnest(sqlc.arg(known_types)::text[]) AS type,
        unnest(sqlc.arg(known_shapes)::int[]) AS shapes, unnest(sqlc.arg(known_flows)::boolean[]) AS flows
) AS t
WHERE sqlc.arg(strict)::boolean AND (
    t.shapes <> (SELECT count(*) FROM shape WHERE shape.organization = t.organization AND shape.type = t.type)
    OR t.flows <> EXISTS (SELECT FROM flow_trigger WHERE flow_trigger.organization = t.organization AND flow_trigger.type = t.type)
);

-- name: SaveKeys :exec
INSERT INTO event_key (key, event)
SELECT unnest(sqlc.arg(keys)::bytea[]), unnest(sqlc.arg(events)::bigint[])
ON CONFLICT DO NOTHING;

-- name: Satisfy :many
-- Delivers to waits (those that are named, those with one of the keys, and all of the executions in again) the earliest event that each
-- matches, that is newer than its execution and that the execution has not consumed. If several waits of an execution match one event, the
-- first gets it, and the others have to be matched again: several reports that there may be such waits. The rows of the executions that
-- are woken follow those of the deliveries (WakeMany): one statement is one round trip. Executions that may get something are locked
-- (LockMatched, or the fence of a turn): of two deliveries to one wait the second would otherwise come to nothing, and the event would pass
-- other waits by.
WITH c AS (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(branches)::int[]) AS branch,
        unnest(sqlc.arg(ops)::int[]) AS op
    UNION
    SELECT wait.execution, wait.branch, wait.op FROM wait WHERE wait.key = ANY (sqlc.arg(keys)::bytea[])
    UNION
    SELECT wait.execution, wait.branch, wait.op FROM wait WHERE wait.execution = ANY (sqlc.arg(again)::bigint[])
), f AS (
    SELECT w.execution, w.branch, w.op, min(k.event) AS event
    FROM c
    -- OFFSET keeps the planner from swapping the two.
    CROSS JOIN LATERAL (
        SELECT wait.execution, wait.branch, wait.op, wait.key FROM wait
        WHERE wait.execution = c.execution AND wait.branch = c.branch AND wait.op = c.op
        OFFSET 0
    ) AS w
    JOIN execution x ON x.id = ANY (ARRAY[w.execution]) AND x.state IN ('running', 'parked')
    CROSS JOIN LATERAL (
        SELECT greatest(x.start_event, (SELECT h.event FROM consumed h WHERE h.execution = w.execution AND h.key = w.key)) AS event OFFSET 0
    ) AS behind
    CROSS JOIN LATERAL (
        SELECT event_key.event FROM event_key
        WHERE event_key.key = ANY (ARRAY[w.key]) AND event_key.event > behind.event
          AND NOT EXISTS (SELECT 1 FROM entry n WHERE n.execution = w.execution AND n.event = event_key.event)
          AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.execution = w.execution AND d.event = event_key.event)
          AND NOT EXISTS (SELECT 1 FROM spent s WHERE s.execution = w.execution AND s.event = event_key.event)
        ORDER BY event_key.key, event_key.event
        LIMIT 1
    ) AS k
    WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.execution = ANY (ARRAY[w.execution]) AND d.branch = w.branch AND d.op = w.op)
    GROUP BY w.execution, w.branch, w.op
), handed AS (
    INSERT INTO delivery (execution, branch, op, kind, event)
    SELECT DISTINCT ON (f.execution, f.event) f.execution, f.branch, f.op, 0, f.event
    FROM f
    ORDER BY f.execution, f.event, f.branch, f.op
    ON CONFLICT DO NOTHING
    RETURNING delivery.execution, delivery.branch, delivery.op, delivery.event
), woken AS (
    UPDATE execution SET
        wakes = execution.wakes + 1,
        state = 'running',
        owner = CASE WHEN execution.state = 'parked' THEN sqlc.narg(instance)::text ELSE execution.owner END,
        owner_epoch = CASE WHEN execution.state = 'parked' THEN sqlc.narg(epoch)::bigint ELSE execution.owner_epoch END
    WHERE execution.id = ANY (ARRAY(
        SELECT e.id FROM execution e WHERE e.id = ANY (ARRAY(SELECT handed.execution FROM handed)) AND e.state IN ('running', 'parked') ORDER BY e.id FOR NO KEY UPDATE
    ))
    RETURNING execution.id, execution.turn, execution.wakes, execution.organization,
        coalesce(execution.owner = sqlc.narg(instance)::text AND execution.owner_epoch = sqlc.narg(epoch)::bigint, false) AS ours
), runs AS (
    INSERT INTO runnable (execution, organization) SELECT woken.id, woken.organization FROM woken ON CONFLICT DO NOTHING
)
SELECT handed.execution::bigint AS execution, handed.branch::int AS branch, handed.op::int AS op, handed.event::bigint AS event,
    e.organization::bigint AS organization, e.source::text AS source, e.event_id::text AS event_id, (SELECT count(*) > count(DISTINCT c.execution) FROM c)::boolean AS several,
    false::boolean AS woken, 0::bigint AS turn, 0::bigint AS wakes, false::boolean AS ours
FROM handed JOIN event e ON e.id = ANY (ARRAY[handed.event])
UNION ALL
SELECT woken.id, 0, 0, 0, woken.organization, '', '', false, true, woken.turn, woken.wakes, woken.ours FROM woken;

-- name: WakeMany :many
-- An execution that is parked becomes the caller's, if it has a lease, and needs no claim. Executions are locked in the order of their ids,
-- as everywhere.
WITH woken AS (
UPDATE execution SET
    wakes = wakes + 1,
    state = 'running',
    owner = CASE WHEN state = 'parked' THEN sqlc.narg(instance)::text ELSE owner END,
    owner_epoch = CASE WHEN state = 'parked' THEN sqlc.narg(epoch)::bigint ELSE owner_epoch END
WHERE id = ANY (ARRAY(
    SELECT e.id FROM execution e WHERE e.id = ANY (sqlc.arg(ids)::bigint[]) AND e.state IN ('running', 'parked') ORDER BY e.id FOR UPDATE
))
RETURNING id, turn, wakes, organization, coalesce(owner = sqlc.narg(instance)::text AND owner_epoch = sqlc.narg(epoch)::bigint, false)::boolean AS ours
), runs AS (
    INSERT INTO runnable (execution, organization) SELECT woken.id, woken.organization FROM woken ON CONFLICT DO NOTHING
), freed AS (
    -- What has arrived, such as a cancellation, is not to wait until the time until which a process that is gone has held the run.
    UPDATE runnable SET not_before = NULL FROM woken WHERE runnable.execution = woken.id AND runnable.not_before IS NOT NULL
)
SELECT woken.id, woken.turn, woken.wakes, woken.organization, woken.ours FROM woken;

-- name: SaveTraces :exec
INSERT INTO trace (execution, parent)
SELECT unnest(sqlc.arg(executions)::bigint[]), unnest(sqlc.arg(parents)::text[]);
