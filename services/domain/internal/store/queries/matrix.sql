-- Applications beside environments.

-- name: Cells :many
-- One cell for each requested application environment.
SELECT ae.id, COALESCE(c.live_version_set_id, 0)::bigint AS live_version_set_id, c.live_since,
       COALESCE(c.latest_rollout_environment_id, 0)::bigint AS latest_stop_id, c.latest_state, COALESCE(r.version_set_id, 0)::bigint AS latest_version_set_id,
       COALESCE(c.worst, '')::text AS worst
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

-- name: StopsAsking :many
-- Rollout environments at which a gate is open (what makes it so is OpenGates'): the one that the gate is named for,
-- <environment> or <environment>/<weight>, and for any other gate the next that the rollout comes to. It costs what is open.
SELECT DISTINCT s.id::bigint AS id
FROM cd_rollouts r
CROSS JOIN LATERAL (
    SELECT t.gate_id, max(t.id) AS id FROM cd_rollout_transitions t
    WHERE t.organization_id = @organization_id AND t.rollout_id = r.id AND t.event = 'request_approval'
    GROUP BY t.gate_id
) q
LEFT JOIN cd_rollout_gates g ON g.organization_id = @organization_id AND g.rollout_id = r.id AND g.gate_id = q.gate_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.event = 'approve') AS agreed,
           count(*) FILTER (WHERE a.event = 'approve' AND a.conditions -> 0 ->> 'outcome' = 'approved') AS completed, count(*) FILTER (WHERE a.event IN ('reject', 'expire', 'abort', 'break_glass')) AS ended
    FROM cd_rollout_transitions a
    WHERE a.organization_id = @organization_id AND a.rollout_id = r.id AND (a.gate_id = q.gate_id OR a.event = 'abort') AND a.id > q.id
) answers
CROSS JOIN LATERAL (
    SELECT e.id FROM cd_rollout_environments e
    JOIN cd_environments v ON v.organization_id = e.organization_id AND v.id = e.environment_id
    WHERE e.organization_id = @organization_id AND e.rollout_id = r.id AND (v.name = split_part(q.gate_id, '/', 1) OR e.state IN ('pending', 'in_progress', 'paused'))
    ORDER BY v.name = split_part(q.gate_id, '/', 1) DESC, e.position LIMIT 1
) s
WHERE r.organization_id = @organization_id AND r.asked AND r.state IN ('pending', 'in_progress', 'paused') AND answers.ended = 0 AND CASE WHEN g.also IS NULL THEN answers.agreed < COALESCE(g.quorum, 1) ELSE answers.completed = 0 END;

-- name: PlanForValues :exec
-- The filters below are all in one statement, and what is not asked for is empty. Only a plan that sees the values leaves
-- those parts out, and goes by the index that finds the fewest rows. A page is walked by indexes, row by row, and ends when it
-- is full: a table that the planner would rather read whole, or join whole, is one that is small today, or was when its
-- statistics were taken.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('random_page_cost', '1.1', true);

-- name: MatrixByCell :many
-- Applications that have a cell that meets everything that is asked. Of every state and health that would do, the first few
-- are read, in order of name, by an index that has them so: the page is among them, however many there are, and whatever is
-- rare. What is not asked for is every state, or every health.
SELECT a.* FROM cd_applications a
WHERE a.organization_id = @organization_id AND a.name = ANY(ARRAY(
  SELECT found.application_name
  FROM unnest(@states::text[]) AS s(standing) CROSS JOIN unnest(@healths::text[]) AS h(worst)
  CROSS JOIN LATERAL (
    SELECT c.application_name FROM cd_cells c
    WHERE c.organization_id = @organization_id AND c.shown AND c.standing = s.standing AND c.worst = h.worst
      AND (cardinality(@environments::bigint[]) = 0 OR c.environment_id = ANY(@environments::bigint[]))
      AND c.application_name > @above_name AND (@below_name::text = '' OR c.application_name < @below_name::text)
      AND (@contains::text = '' OR position(@contains::text in lower(c.application_name)) > 0)
      AND (cardinality(@without::bigint[]) = 0 OR c.latest_rollout_environment_id IS NULL OR NOT (c.latest_rollout_environment_id = ANY(@without::bigint[])))
    GROUP BY c.application_name
    ORDER BY CASE WHEN NOT @falling::boolean THEN c.application_name END, CASE WHEN @falling::boolean THEN c.application_name END DESC
    LIMIT @at_most
  ) found
  GROUP BY found.application_name
  ORDER BY CASE WHEN NOT @falling::boolean THEN found.application_name END, CASE WHEN @falling::boolean THEN found.application_name END DESC
  LIMIT @at_most
))
ORDER BY CASE WHEN NOT @falling::boolean THEN a.name END, CASE WHEN @falling::boolean THEN a.name END DESC;

-- name: MatrixByEnvironment :many
-- MatrixByCell in some environments.
SELECT a.* FROM cd_applications a
WHERE a.organization_id = @organization_id AND a.name = ANY(ARRAY(
  SELECT found.application_name
  FROM unnest(@environments::bigint[]) AS e(id) CROSS JOIN unnest(@states::text[]) AS s(standing) CROSS JOIN unnest(@healths::text[]) AS h(worst)
  CROSS JOIN LATERAL (
    SELECT c.application_name FROM cd_cells c
    WHERE c.organization_id = @organization_id AND c.shown AND c.environment_id = e.id AND c.standing = s.standing AND c.worst = h.worst
      AND c.application_name > @above_name AND (@below_name::text = '' OR c.application_name < @below_name::text)
      AND (@contains::text = '' OR position(@contains::text in lower(c.application_name)) > 0)
      AND (cardinality(@without::bigint[]) = 0 OR c.latest_rollout_environment_id IS NULL OR NOT (c.latest_rollout_environment_id = ANY(@without::bigint[])))
    GROUP BY c.application_name
    ORDER BY CASE WHEN NOT @falling::boolean THEN c.application_name END, CASE WHEN @falling::boolean THEN c.application_name END DESC
    LIMIT @at_most
  ) found
  GROUP BY found.application_name
  ORDER BY CASE WHEN NOT @falling::boolean THEN found.application_name END, CASE WHEN @falling::boolean THEN found.application_name END DESC
  LIMIT @at_most
))
ORDER BY CASE WHEN NOT @falling::boolean THEN a.name END, CASE WHEN @falling::boolean THEN a.name END DESC;

-- name: MatrixAmong :many
-- MatrixByCell among few cells: those of some applications, those where the newest rollout is at one of some stops, or
-- both. Empty lists are not asked for. The sums keep the indexes of states out of it: by those, all cells are read.
SELECT a.* FROM cd_applications a
WHERE a.organization_id = @organization_id AND a.name = ANY(ARRAY(
  SELECT c.application_name FROM cd_cells c
  WHERE c.organization_id = @organization_id AND c.shown AND (c.standing || '') = ANY(@states::text[]) AND (c.worst || '') = ANY(@healths::text[])
    AND (cardinality(@applications::bigint[]) = 0 OR c.application_id = ANY(@applications::bigint[]))
    AND (cardinality(@stops::bigint[]) = 0 OR c.latest_rollout_environment_id = ANY(@stops::bigint[]))
    AND (cardinality(@environments::bigint[]) = 0 OR c.environment_id = ANY(@environments::bigint[]))
    AND c.application_name > @above_name AND (@below_name::text = '' OR c.application_name < @below_name::text)
    AND (@contains::text = '' OR position(@contains::text in lower(c.application_name)) > 0)
    AND (cardinality(@without::bigint[]) = 0 OR c.latest_rollout_environment_id IS NULL OR NOT (c.latest_rollout_environment_id = ANY(@without::bigint[])))
  GROUP BY c.application_name
  ORDER BY CASE WHEN NOT @falling::boolean THEN c.application_name END, CASE WHEN @falling::boolean THEN c.application_name END DESC
  LIMIT @at_most
))
ORDER BY CASE WHEN NOT @falling::boolean THEN a.name END, CASE WHEN @falling::boolean THEN a.name END DESC;

-- name: CountMatrix :one
-- How many applications have such a cell: waiting is 0 for all, 1 for those at stops, 2 for all others. It grows with the list.
SELECT count(DISTINCT c.application_id) FROM cd_cells c
WHERE c.organization_id = @organization_id AND c.shown AND c.standing = ANY(@states::text[]) AND c.worst = ANY(@healths::text[])
  AND (cardinality(@environments::bigint[]) = 0 OR c.environment_id = ANY(@environments::bigint[]))
  AND (@contains::text = '' OR position(@contains::text in lower(c.application_name)) > 0)
  AND (@waiting::integer <> 1 OR c.latest_rollout_environment_id = ANY(@stops::bigint[]))
  AND (@waiting::integer <> 2 OR c.latest_rollout_environment_id IS NULL OR NOT (c.latest_rollout_environment_id = ANY(@stops::bigint[])));

-- name: ApplicationsNamed :many
-- Applications that have a text in their names, some of them more than once: as many as are asked for, in no order. What begins
-- with the text is between it and the text with a letter behind it that is greater than any that names may have.
SELECT n.application_id FROM cd_application_name_ends n
WHERE n.organization_id = @organization_id AND n.name_end >= @contains::text AND n.name_end < @contains::text || '~'
LIMIT @at_most;

-- name: CellDifferences :many
-- Cells of applications that are not what rollouts, pipelines and healths say. In one statement, since what is read one after
-- the other may change in between; what is missing on a side is 0, -1 or empty there.
WITH stops AS (
    SELECT r.application_id, e.environment_id, e.id, e.state, r.version_set_id, e.finished_at
    FROM cd_rollouts r JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id
    WHERE r.organization_id = @organization_id AND r.application_id = ANY(@applications::bigint[])
), latest AS (
    SELECT DISTINCT ON (s.application_id, s.environment_id) s.application_id, s.environment_id, s.id, s.state FROM stops s
    ORDER BY s.application_id, s.environment_id, s.id DESC
), live AS (
    SELECT DISTINCT ON (s.application_id, s.environment_id) s.application_id, s.environment_id, s.id, s.version_set_id, s.finished_at FROM stops s
    WHERE s.state = 'completed' ORDER BY s.application_id, s.environment_id, s.id DESC
), rebuilt AS (
    SELECT p.application_id, p.environment_id, l.id AS latest_id, l.state, v.id AS live_id, v.version_set_id, v.finished_at,
        a.archived_at IS NULL AND COALESCE(p.current, false) AS shown, cd_worst_health(@organization_id, p.application_id, p.environment_id) AS worst, a.name
    FROM (
        SELECT e.application_id, e.environment_id, e.current FROM cd_application_environments e
        WHERE e.organization_id = @organization_id AND e.application_id = ANY(@applications::bigint[])
    ) p
    JOIN cd_applications a ON a.organization_id = @organization_id AND a.id = p.application_id
    LEFT JOIN latest l ON l.application_id = p.application_id AND l.environment_id = p.environment_id
    LEFT JOIN live v ON v.application_id = p.application_id AND v.environment_id = p.environment_id
), kept AS (
    SELECT * FROM cd_cells k WHERE k.organization_id = @organization_id AND k.application_id = ANY(@applications::bigint[])
)
SELECT COALESCE(t.application_id, c.application_id)::bigint AS application_id, COALESCE(t.environment_id, c.environment_id)::bigint AS environment_id,
    COALESCE(t.latest_id, c.latest_rollout_environment_id, 0)::bigint AS stop_id,
    (t.application_id IS NOT NULL)::boolean AS rebuilt, COALESCE(t.name, '')::text AS rebuilt_name, COALESCE(t.shown, false)::boolean AS rebuilt_shown, COALESCE(t.worst, '')::text AS rebuilt_worst,
    COALESCE(t.latest_id, 0)::bigint AS rebuilt_latest, COALESCE(t.state, '')::text AS rebuilt_state, COALESCE(t.live_id, 0)::bigint AS rebuilt_live,
    COALESCE(t.version_set_id, 0)::bigint AS rebuilt_set, COALESCE(t.finished_at::text, '')::text AS rebuilt_since,
    (c.id IS NOT NULL)::boolean AS kept, COALESCE(c.application_name, '')::text AS kept_name, COALESCE(c.shown, false)::boolean AS kept_shown, COALESCE(c.worst, '')::text AS kept_worst,
    COALESCE(c.latest_rollout_environment_id, 0)::bigint AS kept_latest, COALESCE(c.latest_state, '')::text AS kept_state,
    COALESCE(c.live_rollout_environment_id, 0)::bigint AS kept_live, COALESCE(c.live_version_set_id, 0)::bigint AS kept_set, COALESCE(c.live_since::text, '')::text AS kept_since
FROM rebuilt t
FULL JOIN kept c ON c.application_id = t.application_id AND c.environment_id = t.environment_id
WHERE (t.latest_id, t.state, t.live_id, t.version_set_id, t.finished_at, t.shown, t.worst, t.name)
    IS DISTINCT FROM (c.latest_rollout_environment_id, c.latest_state, c.live_rollout_environment_id, c.live_version_set_id, c.live_since, c.shown, c.worst, c.application_name)
ORDER BY 1, 2;
