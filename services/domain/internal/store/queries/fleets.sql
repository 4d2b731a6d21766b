-- name: InsertRolloutFleet :exec
INSERT INTO cd_rollout_fleets (organization_id, rollout_environment_id, fleet, agents, waves, targets)
VALUES (@organization_id, @rollout_environment_id, @fleet, @agents, @waves, @targets);

-- name: InsertRolloutWaves :exec
INSERT INTO cd_rollout_waves (organization_id, rollout_environment_id, wave, targets)
SELECT @organization_id::bigint, @rollout_environment_id::bigint, unnest(@waves::integer[]), unnest(@targets::integer[]);

-- name: InsertRolloutTargets :exec
INSERT INTO cd_rollout_targets (organization_id, rollout_environment_id, agent_id, name, wave)
SELECT @organization_id::bigint, @rollout_environment_id::bigint, unnest(@agents::bigint[]), unnest(@names::text[]), unnest(@waves::integer[]);

-- name: RolloutFleets :many
SELECT * FROM cd_rollout_fleets WHERE organization_id = @organization_id AND rollout_environment_id = ANY(@ids::bigint[]);

-- name: RolloutWaves :many
SELECT * FROM cd_rollout_waves WHERE organization_id = @organization_id AND rollout_environment_id = ANY(@ids::bigint[])
ORDER BY rollout_environment_id, wave;

-- name: BeginRolloutWave :one
-- Targets that are healthy already are left alone.
WITH begun AS (
    UPDATE cd_rollout_waves w SET attempt = w.attempt + 1, failed = 0, started_at = COALESCE(w.started_at, @at::timestamptz),
        finished_at = CASE WHEN w.healthy = w.targets THEN w.finished_at END
    WHERE w.organization_id = @organization_id AND w.rollout_environment_id = @rollout_environment_id AND w.wave = @wave
    RETURNING w.attempt
), again AS (
    UPDATE cd_rollout_targets t SET state = 'deploying', attempt = begun.attempt, reason = '', started_at = @at, finished_at = NULL
    FROM begun
    WHERE t.organization_id = @organization_id AND t.rollout_environment_id = @rollout_environment_id AND t.wave = @wave AND t.state <> 'healthy'
    RETURNING t.agent_id
), former AS (
    SELECT count(*)::integer AS failed FROM cd_rollout_targets t
    WHERE t.organization_id = @organization_id AND t.rollout_environment_id = @rollout_environment_id AND t.wave = @wave AND t.state = 'failed'
), counted AS (
    UPDATE cd_rollout_fleets f SET failed = f.failed - former.failed FROM former
    WHERE f.organization_id = @organization_id AND f.rollout_environment_id = @rollout_environment_id
)
SELECT attempt FROM begun;

-- name: EndRolloutTarget :many
-- Of several reports about an attempt the first counts, and one about an earlier attempt never does. One row, or none: whether the wave has ended.
WITH ended AS (
    UPDATE cd_rollout_targets t SET state = @state, reason = @reason, finished_at = @at::timestamptz
    WHERE t.organization_id = @organization_id AND t.rollout_environment_id = @rollout_environment_id AND t.agent_id = @agent_id
      AND t.state = 'deploying' AND t.attempt = @attempt
    RETURNING t.wave, (t.state = 'healthy')::integer AS healthy, (t.state = 'failed')::integer AS failed
), counted AS (
    UPDATE cd_rollout_fleets f SET healthy = f.healthy + ended.healthy, failed = f.failed + ended.failed FROM ended
    WHERE f.organization_id = @organization_id AND f.rollout_environment_id = @rollout_environment_id
)
UPDATE cd_rollout_waves w SET healthy = w.healthy + ended.healthy, failed = w.failed + ended.failed,
    finished_at = CASE WHEN w.healthy + w.failed + 1 = w.targets THEN @at END
FROM ended
WHERE w.organization_id = @organization_id AND w.rollout_environment_id = @rollout_environment_id AND w.wave = ended.wave
RETURNING (w.finished_at IS NOT NULL)::boolean AS finished;

-- name: EndRolloutTargets :exec
-- Nobody reports any more how what is being deployed ends.
WITH ended AS (
    UPDATE cd_rollout_targets t SET state = 'failed', reason = left(@reason::text, 2000), finished_at = @at::timestamptz
    WHERE t.organization_id = @organization_id AND t.rollout_environment_id = @rollout_environment_id AND t.state = 'deploying'
    RETURNING t.wave
), each AS (
    SELECT wave, count(*)::integer AS failed FROM ended GROUP BY wave
), counted AS (
    UPDATE cd_rollout_fleets f SET failed = f.failed + total.failed FROM (SELECT count(*)::integer AS failed FROM ended) total
    WHERE f.organization_id = @organization_id AND f.rollout_environment_id = @rollout_environment_id AND total.failed > 0
)
UPDATE cd_rollout_waves w SET failed = w.failed + each.failed,
    finished_at = CASE WHEN w.healthy + w.failed + each.failed = w.targets THEN @at END
FROM each
WHERE w.organization_id = @organization_id AND w.rollout_environment_id = @rollout_environment_id AND w.wave = each.wave;

-- name: WaveAgents :many
SELECT agent_id FROM cd_rollout_targets
WHERE organization_id = @organization_id AND rollout_environment_id = @rollout_environment_id AND wave = @wave ORDER BY agent_id;

-- name: IsTarget :one
SELECT EXISTS (
    SELECT FROM cd_deployments d
    JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
    JOIN cd_rollout_targets t ON t.organization_id = e.organization_id AND t.rollout_environment_id = e.id
    WHERE d.organization_id = @organization_id AND d.id = @deployment_id AND e.environment_id = @environment_id AND t.agent_id = @agent_id
);

-- name: RolloutTarget :many
-- One row, or none.
SELECT * FROM cd_rollout_targets
WHERE organization_id = @organization_id AND rollout_environment_id = @rollout_environment_id AND agent_id = @agent_id;

-- name: PauseRolloutWave :exec
UPDATE cd_rollout_waves SET paused = @paused
WHERE organization_id = @organization_id AND rollout_environment_id = @rollout_environment_id AND wave = @wave;

-- name: ListRolloutTargets :many
SELECT * FROM cd_rollout_targets
WHERE organization_id = @organization_id AND rollout_environment_id = @rollout_environment_id AND (@wave::integer = 0 OR wave = @wave)
  AND (@state::text = '' OR state = @state) AND place > @above AND place < @below
ORDER BY CASE WHEN NOT @falling::boolean THEN place END, CASE WHEN @falling::boolean THEN place END DESC
LIMIT @at_most;

-- name: CountRolloutTargets :one
SELECT count(*) FROM cd_rollout_targets
WHERE organization_id = @organization_id AND rollout_environment_id = @rollout_environment_id AND (@wave::integer = 0 OR wave = @wave)
  AND (@state::text = '' OR state = @state);

-- name: RolloutFleetAgents :many
-- The targets of an environment of a rollout, wave by wave, in their order.
SELECT t.agent_id, t.name, t.wave, (t.attempt > 0)::boolean AS begun, (a.revoked_at IS NOT NULL)::boolean AS revoked
FROM cd_rollout_targets t
JOIN cd_agents a ON a.organization_id = t.organization_id AND a.id = t.agent_id
WHERE t.organization_id = @organization_id AND t.rollout_environment_id = @rollout_environment_id
ORDER BY t.wave, t.id;

-- name: TargetsThatRan :many
-- What an application's rollouts deployed last to each target of its fleets, from the last one on that was completed there and is no rollback.
SELECT DISTINCT ON (e.environment_id, t.agent_id) e.environment_id, t.agent_id, r.version_set_id, (t.state = 'healthy')::boolean AS healthy
FROM unnest(@environments::bigint[]) AS n(id)
LEFT JOIN LATERAL (
    SELECT o.id FROM cd_rollouts o
    CROSS JOIN LATERAL (
        SELECT FROM cd_rollout_environments c
        WHERE c.organization_id = o.organization_id AND c.rollout_id = o.id AND c.environment_id = n.id AND c.state = 'completed' LIMIT 1
    ) c
    WHERE o.organization_id = @organization_id AND o.application_id = @application_id AND o.rollback_of IS NULL
    ORDER BY o.id DESC LIMIT 1
) since ON true
JOIN cd_rollouts r ON r.organization_id = @organization_id AND r.application_id = @application_id AND r.id >= CASE WHEN since.id IS NULL THEN 0 ELSE since.id END -- not COALESCE, as in TouchedEnvironments
JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = n.id
JOIN cd_rollout_targets t ON t.organization_id = e.organization_id AND t.rollout_environment_id = e.id AND t.attempt > 0
ORDER BY e.environment_id, t.agent_id, e.rollout_id DESC;
