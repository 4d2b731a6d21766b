-- Applications beside environments.

-- name: Cells :many
-- One cell for each application environment that is asked about. The health is the worst of its services': degraded, then
-- progressing, then unknown.
SELECT ae.id, COALESCE(c.live_version_set_id, 0)::bigint AS live_version_set_id, c.live_since,
       COALESCE(c.latest_rollout_environment_id, 0)::bigint AS latest_stop_id, c.latest_state, COALESCE(r.version_set_id, 0)::bigint AS latest_version_set_id,
       COALESCE((SELECT max(CASE h.health WHEN 3 THEN 3 WHEN 2 THEN 2 WHEN 0 THEN 1 ELSE 0 END)
           FROM cd_services s
           JOIN cd_service_environment_healths h ON h.organization_id = s.organization_id AND h.service_id = s.id AND h.environment_id = ae.environment_id
           WHERE s.organization_id = @organization_id AND s.application_id = ae.application_id), 1)::smallint AS worst
FROM cd_application_environments ae
LEFT JOIN cd_cells c ON c.organization_id = ae.organization_id AND c.application_id = ae.application_id AND c.environment_id = ae.environment_id
LEFT JOIN cd_rollout_environments e ON e.organization_id = c.organization_id AND e.id = c.latest_rollout_environment_id
LEFT JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
WHERE ae.organization_id = @organization_id AND ae.id = ANY(@ids::bigint[]);

-- name: EnvironmentsOfDrivers :many
-- Environments whose latest binding names one of some drivers.
SELECT b.environment_id FROM cd_environment_driver_bindings b
WHERE b.organization_id = @organization_id AND b.driver_ref = ANY(@drivers::text[])
  AND b.version = (SELECT max(l.version) FROM cd_environment_driver_bindings l WHERE l.organization_id = b.organization_id AND l.environment_id = b.environment_id);

-- name: PlanForValues :exec
-- The filters below are all in one statement, and what is not asked for is empty. Only a plan that sees the values leaves
-- those parts out, and goes by the index that finds the fewest rows. A table that the planner would rather read whole is
-- one that is small today, or was when its statistics were taken.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'off', true);

-- name: MatrixByCell :many
-- Applications that have a cell that meets everything that is asked: waiting is 0 for all, 1 for stops, 2 for all others.
-- How many there are is worked out only where it is asked for.
SELECT sqlc.embed(a), (CASE WHEN @counting::boolean THEN count(*) OVER () ELSE 0 END)::bigint AS items FROM cd_applications a
WHERE a.organization_id = @organization_id AND a.name > @above_name AND (@below_name::text = '' OR a.name < @below_name::text) AND a.archived_at IS NULL
  AND (@contains::text = '' OR position(lower(@contains::text) in lower(a.name)) > 0)
  AND a.id IN (
    SELECT ae.application_id
    FROM cd_application_environments ae
    LEFT JOIN cd_cells c ON c.organization_id = ae.organization_id AND c.application_id = ae.application_id AND c.environment_id = ae.environment_id
    WHERE ae.organization_id = @organization_id AND ae.current
      AND (cardinality(@environments::bigint[]) = 0 OR ae.environment_id = ANY(@environments::bigint[]))
      AND (cardinality(@states::smallint[]) = 0 OR c.latest_state = ANY(@states::smallint[]))
      AND (@waiting::integer <> 1 OR c.latest_rollout_environment_id = ANY(@stops::bigint[]))
      AND (@waiting::integer <> 2 OR c.latest_rollout_environment_id IS NULL OR NOT (c.latest_rollout_environment_id = ANY(@stops::bigint[])))
  )
ORDER BY CASE WHEN NOT @falling::boolean THEN a.name END, CASE WHEN @falling::boolean THEN a.name END DESC
LIMIT @at_most;

-- name: MatrixByHealth :many
-- MatrixByCell, where also the worst health of a service there is one of those asked for; a service that was never seen
-- counts for nothing.
SELECT sqlc.embed(a), (CASE WHEN @counting::boolean THEN count(*) OVER () ELSE 0 END)::bigint AS items FROM cd_applications a
WHERE a.organization_id = @organization_id AND a.name > @above_name AND (@below_name::text = '' OR a.name < @below_name::text) AND a.archived_at IS NULL
  AND (@contains::text = '' OR position(lower(@contains::text) in lower(a.name)) > 0)
  AND a.id IN (
    SELECT ae.application_id
    FROM cd_service_environment_healths h
    JOIN cd_services s ON s.organization_id = h.organization_id AND s.id = h.service_id
    JOIN cd_application_environments ae ON ae.organization_id = h.organization_id AND ae.application_id = s.application_id AND ae.environment_id = h.environment_id
    LEFT JOIN cd_cells c ON c.organization_id = ae.organization_id AND c.application_id = ae.application_id AND c.environment_id = ae.environment_id
    WHERE h.organization_id = @organization_id AND h.health = ANY(@healths::smallint[]) AND ae.current
      AND (cardinality(@environments::bigint[]) = 0 OR h.environment_id = ANY(@environments::bigint[]))
      AND (cardinality(@states::smallint[]) = 0 OR c.latest_state = ANY(@states::smallint[]))
      AND (@waiting::integer <> 1 OR c.latest_rollout_environment_id = ANY(@stops::bigint[]))
      AND (@waiting::integer <> 2 OR c.latest_rollout_environment_id IS NULL OR NOT (c.latest_rollout_environment_id = ANY(@stops::bigint[])))
      AND NOT EXISTS (
        SELECT FROM cd_services o
        JOIN cd_service_environment_healths w ON w.organization_id = o.organization_id AND w.service_id = o.id AND w.environment_id = h.environment_id
        WHERE o.organization_id = h.organization_id AND o.application_id = s.application_id
          AND CASE w.health WHEN 3 THEN 3 WHEN 2 THEN 2 WHEN 0 THEN 1 ELSE 0 END > CASE h.health WHEN 3 THEN 3 WHEN 2 THEN 2 WHEN 0 THEN 1 ELSE 0 END
      )
  )
ORDER BY CASE WHEN NOT @falling::boolean THEN a.name END, CASE WHEN @falling::boolean THEN a.name END DESC
LIMIT @at_most;

-- name: CellDifferences :many
-- Cells of applications that are not what their rollouts say. In one statement, since what is read one after the other may
-- change in between; what is missing on a side is 0, -1 or empty there.
WITH stops AS (
    SELECT r.application_id, e.environment_id, e.id, e.state, r.version_set_id, e.finished_at
    FROM cd_rollouts r JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id
    WHERE r.organization_id = @organization_id AND r.application_id = ANY(@applications::bigint[])
), latest AS (
    SELECT DISTINCT ON (s.application_id, s.environment_id) s.application_id, s.environment_id, s.id, s.state FROM stops s
    ORDER BY s.application_id, s.environment_id, s.id DESC
), live AS (
    SELECT DISTINCT ON (s.application_id, s.environment_id) s.application_id, s.environment_id, s.id, s.version_set_id, s.finished_at FROM stops s
    WHERE s.state = 3 ORDER BY s.application_id, s.environment_id, s.id DESC
), kept AS (
    SELECT * FROM cd_cells k WHERE k.organization_id = @organization_id AND k.application_id = ANY(@applications::bigint[])
)
SELECT COALESCE(l.id, c.latest_rollout_environment_id)::bigint AS stop_id, COALESCE(l.environment_id, c.environment_id)::bigint AS environment_id,
    COALESCE(l.id, 0)::bigint AS told_latest, COALESCE(l.state, -1)::smallint AS told_state, COALESCE(v.id, 0)::bigint AS told_live,
    COALESCE(v.version_set_id, 0)::bigint AS told_set, COALESCE(v.finished_at::text, '')::text AS told_since,
    COALESCE(c.latest_rollout_environment_id, 0)::bigint AS kept_latest, COALESCE(c.latest_state, -1)::smallint AS kept_state,
    COALESCE(c.live_rollout_environment_id, 0)::bigint AS kept_live, COALESCE(c.live_version_set_id, 0)::bigint AS kept_set, COALESCE(c.live_since::text, '')::text AS kept_since
FROM latest l
LEFT JOIN live v ON v.application_id = l.application_id AND v.environment_id = l.environment_id
FULL JOIN kept c ON c.application_id = l.application_id AND c.environment_id = l.environment_id
WHERE (l.id, l.state, v.id, v.version_set_id, v.finished_at)
    IS DISTINCT FROM (c.latest_rollout_environment_id, c.latest_state, c.live_rollout_environment_id, c.live_version_set_id, c.live_since)
ORDER BY 1;
