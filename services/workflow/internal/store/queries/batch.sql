-- The statements of one commit that carries many turns, starts and events. Arrays are columns: the same place in each
-- belongs to the same row. An empty text stands for NULL.
--
-- Such rows find those of a table one by one, by its index: a join says "= ANY (ARRAY[…])" of the key's first column. To the
-- planner that is a condition for an index and nothing else. "=" is also an order in which two inputs could be merged, for
-- which it considers to read the whole index, and while a table is short, or is believed to be, it does so; the plan is kept
-- for longer than that is true. A sequential scan is ruled out by the settings of the connection (Settings), and
-- TestCommitsReachEveryRowByItsKey looks at the plans.

-- name: LockMatching :exec
-- One transaction at a time, of all processes, makes events or waits known (store/match.go). One whose process stalls
-- with the lock in hand is ended by the server.
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), pg_advisory_xact_lock(hashtextextended(current_schema() || '/match', 0));

-- name: SavePrograms :exec
INSERT INTO program (digest, source)
SELECT unnest(sqlc.arg(digests)::bytea[]), unnest(sqlc.arg(sources)::bytea[])
ON CONFLICT DO NOTHING;

-- name: CreateExecutions :many
-- Answers no row for a workflow that exists.
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
RETURNING id, ref
), runs AS (
    INSERT INTO runnable (execution) SELECT made.id FROM made
)
SELECT made.id, made.ref FROM made;

-- name: BeginExecutions :exec
-- CreateExecutions with the first turn of each: where it stands behind that, its entries, which name it by its place in refs, and its
-- trace. One that exists already is an error. The ids are drawn first, so that entries know them before there is a row to ask.
WITH ids AS MATERIALIZED (
    SELECT array_agg(nextval('execution_id_seq')) AS id FROM generate_series(1, cardinality(sqlc.arg(refs)::text[]))
), made AS (
    INSERT INTO execution (
        id, ref, organization, workflow, program, modules, inputs, secrets, labels, start_event, created_at,
        turn, state, error, last_seq, ended_at, owner, owner_epoch
    ) OVERRIDING SYSTEM VALUE
    SELECT ids.id[u.place], u.ref, u.organization, u.workflow, u.program, u.modules::json, u.inputs::json, u.secrets::json,
        u.labels::jsonb, (SELECT coalesce(max(event.id), 0) FROM event), u.created_at,
        1, u.state, u.error, u.last_seq, CASE WHEN u.state >= 2 THEN u.turned_at END,
        CASE WHEN u.state = 0 THEN u.owner END, CASE WHEN u.state = 0 THEN u.epoch END
    FROM ids, (
        SELECT generate_subscripts(sqlc.arg(refs)::text[], 1) AS place,
            unnest(sqlc.arg(refs)::text[]) AS ref, unnest(sqlc.arg(organizations)::bigint[]) AS organization,
            unnest(sqlc.arg(workflows)::text[]) AS workflow, unnest(sqlc.arg(programs)::bytea[]) AS program,
            unnest(sqlc.arg(modules)::text[]) AS modules, unnest(sqlc.arg(inputs)::text[]) AS inputs,
            unnest(sqlc.arg(secrets)::text[]) AS secrets,
            unnest(sqlc.arg(labels)::text[]) AS labels, unnest(sqlc.arg(created)::timestamptz[]) AS created_at,
            unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
            unnest(sqlc.arg(states)::smallint[]) AS state, unnest(sqlc.arg(failures)::text[]) AS error,
            unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(turned)::timestamptz[]) AS turned_at
    ) AS u
    RETURNING execution.id, execution.state
), runs AS (
    INSERT INTO runnable (execution) SELECT made.id FROM made WHERE made.state = 0
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

-- name: HoldTurns :many
-- The fence, for turns that have recorded something and go on: all that they leave in the row of their execution is a lock, which no other
-- writer of the row passes before the commit. Where they stand is what the history says. A new version of the row for each step would need
-- room on its page for as many as end at a time, and where there is none, a row in every index. What has got on does not kill its process.
--
-- Beside turns that end they hold the rows for these as well: whoever locks several executions does so in the order of their ids.
WITH held AS (
    SELECT execution.id, execution.crashes
    FROM (
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
            unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
    ) AS u
    JOIN execution ON execution.id = ANY (ARRAY[u.id])
    WHERE execution.turn = u.turn AND execution.state = 0 AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
    FOR NO KEY UPDATE OF execution
), absolved AS (
    UPDATE execution SET crashes = 0 WHERE execution.id = ANY (ARRAY(SELECT held.id FROM held WHERE held.crashes > 0))
)
SELECT held.id FROM held;

-- name: HoldTurnsAsAsked :exec
-- HoldTurns where every turn passes; else nothing happens, and the error has the code LS001.
WITH held AS (
    SELECT execution.id, execution.crashes
    FROM (
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
            unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
    ) AS u
    JOIN execution ON execution.id = ANY (ARRAY[u.id])
    WHERE execution.turn = u.turn AND execution.state = 0 AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
    FOR NO KEY UPDATE OF execution
), absolved AS (
    UPDATE execution SET crashes = 0 WHERE execution.id = ANY (ARRAY(SELECT held.id FROM held WHERE held.crashes > 0))
)
SELECT CASE WHEN count(*) < cardinality(sqlc.arg(ids)::bigint[]) THEN refuse('LS001', 'a turn is not as asked') END FROM held;

-- name: EndTurns :many
-- The fence: each turn must be the one that was loaded, and the owner must be the caller; the others answer no row. What has recorded
-- nothing must know the whole history (whatever else is recorded, its primary key says so). An
-- execution to which something has come since it was loaded does not park.
WITH moved AS (
UPDATE execution SET
    turn = execution.turn + 1,
    last_seq = u.last_seq,
    state = CASE WHEN u.next = 1 AND execution.wakes <> u.wakes THEN 0 ELSE u.next END,
    owner = CASE WHEN u.next = 0 OR (u.next = 1 AND execution.wakes <> u.wakes) THEN execution.owner END,
    owner_epoch = CASE WHEN u.next = 0 OR (u.next = 1 AND execution.wakes <> u.wakes) THEN execution.owner_epoch END,
    error = u.error,
    -- What gets on, or parks, does not kill its process.
    crashes = CASE WHEN u.recorded OR u.next = 1 THEN 0 ELSE execution.crashes END,
    ended_at = CASE WHEN u.next >= 2 THEN u.ended_at END
FROM (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
        unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
        unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(nexts)::smallint[]) AS next,
        unnest(sqlc.arg(wakes)::bigint[]) AS wakes, unnest(sqlc.arg(errors)::text[]) AS error,
        unnest(sqlc.arg(ended)::timestamptz[]) AS ended_at, unnest(sqlc.arg(recorded)::boolean[]) AS recorded
) AS u
WHERE execution.id = ANY (ARRAY[u.id]) AND execution.turn = u.turn AND execution.state = 0
  AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
  AND (u.recorded OR NOT EXISTS (SELECT FROM entry n WHERE n.execution = execution.id AND n.seq > u.last_seq))
RETURNING execution.id, execution.turn, execution.state
), stopped AS (
    DELETE FROM runnable WHERE runnable.execution = ANY (ARRAY(SELECT moved.id FROM moved WHERE moved.state <> 0))
)
SELECT moved.id, moved.turn, moved.state FROM moved;

-- name: EndTurnsAsAsked :exec
-- EndTurns where every turn passes and gets the state that it asks for; else nothing happens, and the error has the code LS001. The
-- answer is known before, so that nobody has to wait for it.
WITH moved AS (
UPDATE execution SET
    turn = execution.turn + 1,
    last_seq = u.last_seq,
    state = u.next,
    owner = CASE WHEN u.next = 0 THEN execution.owner END,
    owner_epoch = CASE WHEN u.next = 0 THEN execution.owner_epoch END,
    error = u.error,
    crashes = CASE WHEN u.recorded OR u.next = 1 THEN 0 ELSE execution.crashes END,
    ended_at = CASE WHEN u.next >= 2 THEN u.ended_at END
FROM (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(turns)::bigint[]) AS turn,
        unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
        unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(nexts)::smallint[]) AS next,
        unnest(sqlc.arg(wakes)::bigint[]) AS wakes, unnest(sqlc.arg(errors)::text[]) AS error,
        unnest(sqlc.arg(ended)::timestamptz[]) AS ended_at, unnest(sqlc.arg(recorded)::boolean[]) AS recorded
) AS u
WHERE execution.id = ANY (ARRAY[u.id]) AND execution.turn = u.turn AND execution.state = 0
  AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
  AND (u.recorded OR NOT EXISTS (SELECT FROM entry n WHERE n.execution = execution.id AND n.seq > u.last_seq))
  AND NOT (u.next = 1 AND execution.wakes <> u.wakes)
RETURNING execution.id, execution.state
), stopped AS (
    DELETE FROM runnable WHERE runnable.execution = ANY (ARRAY(SELECT moved.id FROM moved WHERE moved.state <> 0))
)
SELECT CASE WHEN count(*) < cardinality(sqlc.arg(ids)::bigint[]) THEN refuse('LS001', 'a turn is not as asked') END FROM moved;

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

-- name: CloseMany :exec
-- Removes what was open for operations that are part of the history now.
WITH c AS (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op
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
-- Removes everything that ended executions have open.
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
-- A call of a relay is due at once, one of this process is never sent.
INSERT INTO call (id, execution, branch, op, function, args, location, agent, no_retry, retry, next_at, deadline)
SELECT u.id, u.execution, u.branch, u.op, u.function, u.args::json, u.location, u.agent, u.no_retry, nullif(u.retry, '')::json,
    CASE WHEN u.location = 1 THEN u.at END, u.deadline
FROM (
    SELECT unnest(sqlc.arg(ids)::text[]) AS id, unnest(sqlc.arg(executions)::bigint[]) AS execution,
        unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op,
        unnest(sqlc.arg(functions)::text[]) AS function, unnest(sqlc.arg(args)::text[]) AS args,
        unnest(sqlc.arg(locations)::smallint[]) AS location, unnest(sqlc.arg(agents)::bigint[]) AS agent,
        unnest(sqlc.arg(no_retries)::boolean[]) AS no_retry, unnest(sqlc.arg(retries)::text[]) AS retry,
        unnest(sqlc.arg(ats)::timestamptz[]) AS at,
        unnest(sqlc.arg(deadlines)::timestamptz[]) AS deadline
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

-- name: SaveEvents :many
-- Answers no row for a duplicate, and with each event the sets of paths that waits for its type have, and whether it has met a
-- flow's handler.
INSERT INTO event (organization, source, event_id, type, data, occurred_at, received_at)
SELECT u.organization, u.source, u.event_id, u.type, u.data::json, u.occurred_at, sqlc.arg(received)::timestamptz
FROM (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(sources)::text[]) AS source,
        unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(types)::text[]) AS type,
        unnest(sqlc.arg(data)::text[]) AS data, unnest(sqlc.arg(occurred)::timestamptz[]) AS occurred_at
) AS u
ON CONFLICT ON CONSTRAINT event_once DO NOTHING
RETURNING id, organization, source, event_id, coalesce((
    SELECT json_agg(shape.paths ORDER BY shape.id) FROM shape WHERE shape.organization = event.organization AND shape.type = event.type
), '[]')::json AS shapes, EXISTS (
    SELECT 1 FROM flow_trigger WHERE flow_trigger.organization = event.organization AND flow_trigger.type = event.type
)::boolean AS met;

-- name: SaveUnawaited :exec
-- SaveEvents for types that no wait has a filter for and that no flow has a handler for, so that there is nothing to match; else
-- nothing happens, and the error has the code LS002 and says which type of which organization it is. One that is there already is an
-- error, too: what is emitted is new, and to be ready for anything else costs a second record in the log for each. Each type of the events is
-- looked up once.
WITH saved AS (
INSERT INTO event (organization, source, event_id, type, data, occurred_at, received_at)
SELECT u.organization, u.source, u.event_id, u.type, u.data::json, u.occurred_at, sqlc.arg(received)::timestamptz
FROM (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(sources)::text[]) AS source,
        unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(types)::text[]) AS type,
        unnest(sqlc.arg(data)::text[]) AS data, unnest(sqlc.arg(occurred)::timestamptz[]) AS occurred_at
) AS u
)
SELECT refuse('LS002', t.organization || ' ' || t.type)
FROM (SELECT unnest(sqlc.arg(unawaited_organizations)::bigint[]) AS organization, unnest(sqlc.arg(unawaited_types)::text[]) AS type) AS t
WHERE EXISTS (SELECT 1 FROM shape WHERE shape.organization = t.organization AND shape.type = t.type)
   OR EXISTS (SELECT 1 FROM flow_trigger WHERE flow_trigger.organization = t.organization AND flow_trigger.type = t.type);

-- name: SaveKnown :exec
-- SaveEvents with their keys, for types whose sets of paths the caller knows all of, as their numbers say, and that no flow has a handler
-- for; else nothing happens, and the error has the code LS003 and says which type of which organization it is. One that is there
-- already is an error, too. A key names its event by its place in the list.
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
    -- They are numbered in the order of the list.
    INSERT INTO event_key (key, event)
    SELECT k.key, (ARRAY(SELECT saved.id FROM saved ORDER BY saved.id))[k.place]
    FROM (SELECT unnest(sqlc.arg(keys)::bytea[]) AS key, unnest(sqlc.arg(places)::int[]) AS place) AS k
    ON CONFLICT DO NOTHING
)
SELECT refuse('LS003', t.organization || ' ' || t.type)
FROM (
    SELECT unnest(sqlc.arg(known_organizations)::bigint[]) AS organization, unnest(sqlc.arg(known_types)::text[]) AS type, unnest(sqlc.arg(known_shapes)::int[]) AS shapes
) AS t
WHERE t.shapes <> (SELECT count(*) FROM shape WHERE shape.organization = t.organization AND shape.type = t.type)
   OR EXISTS (SELECT 1 FROM flow_trigger WHERE flow_trigger.organization = t.organization AND flow_trigger.type = t.type);

-- name: SaveKeys :exec
INSERT INTO event_key (key, event)
SELECT unnest(sqlc.arg(keys)::bytea[]), unnest(sqlc.arg(events)::bigint[])
ON CONFLICT DO NOTHING;

-- name: OpenWaitsOf :many
SELECT DISTINCT execution, branch, op FROM wait WHERE execution = ANY (sqlc.arg(executions)::bigint[]);

-- name: Satisfy :many
-- Hands waits, those named and those that have one of the keys, the earliest event that each matches, that came after its
-- execution began and that the execution has not had yet. Where several waits of an execution would have one event, the
-- first gets it, and the others have to be asked again: several says that there are such executions. Behind the rows of what was
-- handed over come those of the executions that it wakes (WakeMany).
WITH c AS (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op
    UNION
    SELECT wait.execution, wait.branch, wait.op FROM wait WHERE wait.key = ANY (sqlc.arg(keys)::bytea[])
), f AS (
    SELECT w.execution, w.branch, w.op, min(k.event) AS event
    FROM c
    -- OFFSET keeps the planner from turning the two around.
    CROSS JOIN LATERAL (
        SELECT wait.execution, wait.branch, wait.op, wait.key FROM wait
        WHERE wait.execution = c.execution AND wait.branch = c.branch AND wait.op = c.op
        OFFSET 0
    ) AS w
    JOIN execution x ON x.id = ANY (ARRAY[w.execution]) AND x.state IN (0, 1)
    CROSS JOIN LATERAL (
        SELECT greatest(x.start_event, (SELECT h.event FROM had h WHERE h.execution = w.execution AND h.key = w.key)) AS event OFFSET 0
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
        state = 0,
        owner = CASE WHEN execution.state = 1 THEN sqlc.narg(instance)::text ELSE execution.owner END,
        owner_epoch = CASE WHEN execution.state = 1 THEN sqlc.narg(epoch)::bigint ELSE execution.owner_epoch END
    WHERE execution.id = ANY (ARRAY(
        SELECT e.id FROM execution e WHERE e.id = ANY (ARRAY(SELECT handed.execution FROM handed)) AND e.state IN (0, 1) ORDER BY e.id FOR UPDATE
    ))
    RETURNING execution.id, execution.turn, execution.wakes, execution.organization,
        coalesce(execution.owner = sqlc.narg(instance)::text AND execution.owner_epoch = sqlc.narg(epoch)::bigint, false) AS ours
), runs AS (
    INSERT INTO runnable (execution) SELECT woken.id FROM woken ON CONFLICT DO NOTHING
)
SELECT handed.execution::bigint AS execution, handed.branch::int AS branch, handed.op::int AS op, handed.event::bigint AS event,
    e.organization::bigint AS organization, e.source::text AS source, e.event_id::text AS event_id, (SELECT count(*) > count(DISTINCT c.execution) FROM c)::boolean AS several,
    false::boolean AS woken, 0::bigint AS turn, 0::bigint AS wakes, false::boolean AS ours
FROM handed JOIN event e ON e.id = ANY (ARRAY[handed.event])
UNION ALL
SELECT woken.id, 0, 0, 0, woken.organization, '', '', false, true, woken.turn, woken.wakes, woken.ours FROM woken;

-- name: WakeMany :many
-- What is parked becomes the caller's, if it has a lease: it needs no claim. Locks in the order of ids, as everything else
-- that locks several executions.
WITH woken AS (
UPDATE execution SET
    wakes = wakes + 1,
    state = 0,
    owner = CASE WHEN state = 1 THEN sqlc.narg(instance)::text ELSE owner END,
    owner_epoch = CASE WHEN state = 1 THEN sqlc.narg(epoch)::bigint ELSE owner_epoch END
WHERE id = ANY (ARRAY(
    SELECT e.id FROM execution e WHERE e.id = ANY (sqlc.arg(ids)::bigint[]) AND e.state IN (0, 1) ORDER BY e.id FOR UPDATE
))
RETURNING id, turn, wakes, organization, coalesce(owner = sqlc.narg(instance)::text AND owner_epoch = sqlc.narg(epoch)::bigint, false)::boolean AS ours
), runs AS (
    INSERT INTO runnable (execution) SELECT woken.id FROM woken ON CONFLICT DO NOTHING
)
SELECT woken.id, woken.turn, woken.wakes, woken.organization, woken.ours FROM woken;

-- name: SaveTraces :exec
INSERT INTO trace (execution, parent)
SELECT unnest(sqlc.arg(executions)::bigint[]), unnest(sqlc.arg(parents)::text[]);
