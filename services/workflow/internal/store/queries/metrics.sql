-- name: Load :one
-- The load that an operator watches. Its cost grows with the runnable executions, up to a bound, and not with those that are parked.
SELECT (SELECT count(*) FROM (SELECT FROM runnable LIMIT sqlc.arg(most)::integer) counted)::bigint AS runnable,
       COALESCE((SELECT extract(epoch FROM clock_timestamp() - min(r.since)) FROM runnable r), 0)::double precision AS oldest_seconds,
       match_waiting()::bigint AS match_waiting;

-- name: Beats :many
-- The newest heartbeat of each agent that has not been revoked.
SELECT a.id, a.seen_at, a.reachable FROM agent a
WHERE NOT EXISTS (SELECT FROM agent_owner o WHERE o.id = a.id AND o.revoked)
ORDER BY a.id
LIMIT sqlc.arg(most)::integer;
