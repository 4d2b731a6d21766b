-- name: InsertRolloutCheck :exec
INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, own, kind, duration_seconds, windows, config, kind_digest, in_sync)
VALUES (@organization_id, @rollout_id, @environment_id, @target, @key, @own, @kind, @duration_seconds, sqlc.narg(windows), sqlc.narg(config), sqlc.narg(kind_digest), @in_sync);

-- name: RolloutChecks :many
SELECT * FROM cd_rollout_checks WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[])
ORDER BY rollout_id, environment_id, target DESC, key, own;

-- name: EnvironmentChecks :many
SELECT * FROM cd_environment_checks WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) AND checks <> '{}';

-- name: SaveEnvironmentChecks :exec
INSERT INTO cd_environment_checks (organization_id, environment_id, checks) VALUES (@organization_id, @environment_id, @checks)
ON CONFLICT (organization_id, environment_id) DO UPDATE SET checks = excluded.checks;

-- name: ReviewChecked :exec
-- Only of a rollout that has checks, or is to enter an environment that follows this one.
INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at)
SELECT @organization_id::bigint, @rollout_id::bigint, @due_at::timestamptz
WHERE EXISTS (SELECT 1 FROM cd_rollout_checks c WHERE c.organization_id = @organization_id AND c.rollout_id = @rollout_id)
OR EXISTS (
    SELECT 1 FROM cd_rollout_environments e
    WHERE e.organization_id = @organization_id AND e.rollout_id = @rollout_id AND e.needs_health AND e.state = 'pending'
        AND @environment_id::bigint = ANY(e.follows)
)
ON CONFLICT DO NOTHING;

-- name: ReviewHealth :exec
-- Of the active rollouts that have a check of kind health in an environment, or are to enter one that follows it.
INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at)
SELECT r.organization_id, r.id, @due_at::timestamptz FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.state IN ('pending', 'in_progress', 'paused') AND (EXISTS (
    SELECT 1 FROM cd_rollout_checks c
    WHERE c.organization_id = r.organization_id AND c.rollout_id = r.id AND c.environment_id = @environment_id AND c.kind = 'health'
) OR EXISTS (
    SELECT 1 FROM cd_rollout_environments e
    WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.needs_health AND e.state = 'pending' AND @environment_id = ANY(e.follows)
))
ON CONFLICT DO NOTHING;

-- name: ReviewInSync :exec
-- Of the active rollouts that have a check which waits until nothing differs in an application environment.
INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at)
SELECT r.organization_id, r.id, @due_at::timestamptz
FROM cd_application_environments ae
JOIN cd_rollouts r ON r.organization_id = ae.organization_id AND r.application_id = ae.application_id AND r.state IN ('pending', 'in_progress', 'paused')
WHERE ae.organization_id = @organization_id AND ae.id = @application_environment_id AND EXISTS (
    SELECT 1 FROM cd_rollout_checks c
    WHERE c.organization_id = r.organization_id AND c.rollout_id = r.id AND c.environment_id = ae.environment_id AND c.in_sync
)
ON CONFLICT DO NOTHING;

-- name: LockReporter :exec
-- Until the transaction ends: reports of one reporter about one check are recorded one after the other, also the first ones.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(
    '/', 'lockstep/report', current_schema(), @organization_id::bigint, @version_set_id::bigint, @environment_id::bigint, @reporter::text, @key::text
), 0));

-- name: InsertCheckStatus :one
INSERT INTO cd_check_statuses (organization_id, application_id, environment_id, version_set_id, key, phase, description, link, principal_type, principal_id, principal_name, observed_at, created_at, asks, environments, proposed_commit)
VALUES (@organization_id, @application_id, @environment_id, @version_set_id, @key, @phase, @description, @link, @principal_type, @principal_id, @principal_name, @observed_at, @created_at, @asks, @environments, @proposed_commit)
RETURNING *;

-- name: ForgetCheckStatuses :one
SELECT cd_forget_statuses(@latest::bigint)::bigint;

-- name: LatestCheckStatuses :many
-- Of version sets, the latest for each environment, key and reporter. One about a commit that is not the proposed one any more is none.
SELECT DISTINCT ON (version_set_id, environment_id, key, principal_type, principal_id) * FROM cd_check_statuses s
WHERE s.organization_id = @organization_id AND s.version_set_id = ANY(@ids::bigint[])
  AND (s.proposed_commit = '' OR cd_is_proposed(s.organization_id, s.environment_id, s.version_set_id, s.proposed_commit))
ORDER BY version_set_id, environment_id, key, principal_type, principal_id, id DESC;

-- name: LatestStatusesOfCheck :many
-- Of one subject and key, the latest of each reporter. One about a commit that is not the proposed one any more is none.
SELECT DISTINCT ON (principal_type, principal_id) * FROM cd_check_statuses s
WHERE s.organization_id = @organization_id AND s.version_set_id = @version_set_id AND s.environment_id = @environment_id AND s.key = @key
  AND (s.proposed_commit = '' OR cd_is_proposed(s.organization_id, s.environment_id, s.version_set_id, s.proposed_commit))
ORDER BY principal_type, principal_id, id DESC;

-- name: VersionSetOfCommit :many
-- Which version sets a commit has brought to an environment, with whichever attempt, the latest first.
SELECT DISTINCT r.version_set_id FROM (
    SELECT l.organization_id, l.deployment_id FROM cd_deployment_snapshots l
    WHERE l.organization_id = @organization_id AND l.commit_sha = @commit_sha
    UNION ALL
    SELECT b.organization_id, b.deployment_id FROM cd_deployment_attempts b
    WHERE b.organization_id = @organization_id AND b.commit_sha = @commit_sha
) s
JOIN cd_deployments d ON d.organization_id = s.organization_id AND d.id = s.deployment_id
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
WHERE e.environment_id = @environment_id AND r.application_id = @application_id
ORDER BY r.version_set_id DESC LIMIT 2;

-- name: ProposedCommit :one
-- The commit by which a rollout would change an environment; no row where it proposes nothing there, or has withdrawn it.
SELECT head FROM cd_rollout_proposals
WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND environment_id = @environment_id AND head <> '' AND state IN ('open', 'merged');

-- name: VersionSetsOfArtifact :many
-- Of the hundred newest version sets of an application, and one that is rolled out, those with an artifact that has a digest or, if that is
-- asked, was built from this commit alone, the latest first. Whole is whether every artifact of the set is such a one. Artifacts are found
-- first, by index: most sets have none of them, and reports are large.
WITH named AS MATERIALIZED (
    SELECT v.id FROM cd_versions v WHERE v.organization_id = @organization_id AND v.digest = @artifact::text
    UNION
    SELECT r.version_id FROM cd_version_reports r
    WHERE @built::boolean AND r.organization_id = @organization_id AND r.revision = @artifact::text AND NOT EXISTS (
        SELECT FROM cd_version_reports l WHERE l.organization_id = r.organization_id AND l.version_id = r.version_id AND l.id > r.id)
), newest AS MATERIALIZED (
    (SELECT s.id FROM cd_version_sets s WHERE s.organization_id = @organization_id AND s.application_id = @application_id ORDER BY s.id DESC LIMIT 100)
    UNION SELECT @active::bigint
)
SELECT e.version_set_id, bool_and(e.version_id IN (SELECT n.id FROM named n))::boolean AS whole
FROM newest JOIN cd_version_set_entries e ON e.organization_id = @organization_id AND e.version_set_id = newest.id
WHERE EXISTS (SELECT FROM named)
GROUP BY e.version_set_id HAVING bool_or(e.version_id IN (SELECT n.id FROM named n)) ORDER BY e.version_set_id DESC LIMIT 100;

-- name: InsertCheckRun :one
INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number, created_at)
VALUES (@organization_id, @rollout_id, @environment_id, @target, @key, @own, @number, @created_at)
RETURNING *;

-- name: CheckRuns :many
-- Of rollouts, the latest of each check.
SELECT DISTINCT ON (rollout_id, environment_id, target, key, own)
    id, rollout_id, environment_id, target, key, own, number, ended_at, created_at
FROM cd_check_runs
WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[])
ORDER BY rollout_id, environment_id, target, key, own, number DESC;

-- name: CheckRun :one
SELECT * FROM cd_check_runs WHERE organization_id = @organization_id AND id = @id;

-- name: EndCheckRuns :many
-- Those of a rollout that have not ended: some of them, or all where none are named.
UPDATE cd_check_runs SET ended_at = @ended_at
WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND ended_at IS NULL AND (cardinality(@ids::bigint[]) = 0 OR id = ANY(@ids::bigint[]))
RETURNING *;

-- name: SetCheckRunWorkflowRef :exec
UPDATE cd_check_runs SET workflow_ref = @workflow_ref WHERE organization_id = @organization_id AND id = @id;

-- name: CheckOutputs :many
-- Of runs that have reported one: as many of the first ones as have no more than @most bytes together; empty for the others.
SELECT o.id, (CASE WHEN o.bytes <= @most::bigint THEN o.output::text ELSE '' END)::text AS output FROM (
    SELECT r.id, r.output, sum(octet_length(r.output::text)) OVER (ORDER BY w.place) AS bytes
    FROM unnest(@ids::bigint[]) WITH ORDINALITY AS w(id, place)
    JOIN cd_check_runs r ON r.organization_id = @organization_id AND r.id = w.id AND r.output::text <> '{}'
) o;

-- name: SetCheckOutput :exec
UPDATE cd_check_runs SET output = @output::json WHERE organization_id = @organization_id AND id = @id AND output::text <> (@output::json)::text;
