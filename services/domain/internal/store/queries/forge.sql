-- name: OrganizationsWithDueForge :many
-- Across organizations, on purpose: the workers are for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_forge(@at) AS organization_id
UNION
SELECT organization_id::bigint FROM cd_organizations_with_due_pulls(@at) AS organization_id
UNION
SELECT organization_id::bigint FROM cd_organizations_with_unread_pipelines() AS organization_id;

-- name: ForgeMirrors :many
SELECT * FROM cd_forge_mirrors WHERE organization_id = @organization_id ORDER BY application_id;

-- name: SaveForgeMirror :exec
INSERT INTO cd_forge_mirrors (organization_id, application_id, environment_ids, credential, enabled, plans, deployments, addresses, principal_type, principal_id, principal_name, changed_at)
VALUES (@organization_id, @application_id, @environment_ids, @credential, @enabled, @plans, @deployments, @addresses, @principal_type, @principal_id, @principal_name, @changed_at)
ON CONFLICT (organization_id, application_id) DO UPDATE SET environment_ids = EXCLUDED.environment_ids, credential = EXCLUDED.credential,
    enabled = EXCLUDED.enabled, plans = EXCLUDED.plans, deployments = EXCLUDED.deployments, addresses = EXCLUDED.addresses, principal_type = EXCLUDED.principal_type, principal_id = EXCLUDED.principal_id,
    principal_name = EXCLUDED.principal_name, changed_at = EXCLUDED.changed_at;

-- name: ForgeOfCredential :one
-- The kind of forge of a credential of the organization; empty if it has no such credential, or it is of none.
SELECT COALESCE((SELECT c.forge FROM cd_credentials c WHERE c.organization_id = @organization_id AND c.name = @name AND c.revoked_at IS NULL), '')::text;

-- name: MarkForgeLive :exec
-- Has the statuses of what is live of an application looked at, of the rollouts that are the latest in its environments, and of those whose
-- deployments the forges do not yet have the end of: they may have been replaced while publishing was off.
SELECT cd_mark_forge_subject(s.organization_id, s.application_id, s.version_set_id) FROM (
    SELECT c.organization_id, c.application_id, c.live_version_set_id AS version_set_id FROM cd_cells c
    WHERE c.organization_id = @organization_id AND c.application_id = @application_id AND c.live_version_set_id IS NOT NULL
    UNION
    SELECT c.organization_id, c.application_id, r.version_set_id FROM cd_cells c
    JOIN cd_rollout_environments e ON e.organization_id = c.organization_id AND e.id = c.latest_rollout_environment_id
    JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
    WHERE c.organization_id = @organization_id AND c.application_id = @application_id
    UNION
    SELECT d.organization_id, d.application_id, d.version_set_id FROM cd_forge_statuses d
    WHERE d.organization_id = @organization_id AND d.application_id = @application_id AND d.kind = 'deployment'
      AND d.stage IN ('queued', 'in_progress', 'success')
) s;

-- name: DueForgeMark :one
-- The one that has been due longest.
SELECT * FROM cd_forge_marks WHERE organization_id = @organization_id AND due_at <= @at ORDER BY due_at, id LIMIT 1;

-- name: ForgeMarksOf :many
SELECT id FROM cd_forge_marks WHERE organization_id = @organization_id AND application_id = @application_id AND version_set_id = @version_set_id ORDER BY id;

-- name: LockForgeSubject :exec
-- Until the transaction ends: one worker writes the statuses of a version set at a time.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/forge', current_schema(), @organization_id::bigint, @application_id::bigint, @version_set_id::bigint), 0));

-- name: ForgetForgeMarks :one
SELECT cd_forget_forge_marks(@done::bigint[])::bigint;

-- name: InsertForgeMark :exec
INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at) VALUES (@organization_id, @application_id, @version_set_id, @due_at);

-- name: PutOffForgeMarks :exec
UPDATE cd_forge_marks SET due_at = GREATEST(due_at, @until::timestamptz) WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: LatestRolloutOfSet :one
-- The latest rollout of a version set; 0 for none.
SELECT COALESCE(max(id), 0)::bigint FROM cd_rollouts WHERE organization_id = @organization_id AND application_id = @application_id AND version_set_id = @version_set_id;

-- name: ForgeLive :many
-- What is live of an application, by environment, with its name.
SELECT c.environment_id, c.live_version_set_id::bigint AS version_set_id, s.name, c.live_since FROM cd_cells c
JOIN cd_version_sets s ON s.organization_id = c.organization_id AND s.id = c.live_version_set_id
WHERE c.organization_id = @organization_id AND c.application_id = @application_id;

-- name: VersionsOfSet :many
-- The versions of a set, with the sources that they came from.
SELECT v.id, v.digest, v.reference, a.source_config FROM cd_version_set_entries e
JOIN cd_versions v ON v.organization_id = e.organization_id AND v.id = e.version_id
JOIN cd_artifact_sources a ON a.organization_id = v.organization_id AND a.id = v.artifact_source_id
WHERE e.organization_id = @organization_id AND e.version_set_id = @version_set_id ORDER BY v.id;

-- name: MergeForgeStatus :exec
-- Stores what is to be published under a name, unless that is known already, or is about an older version set than what is known. One that a run
-- sends now is sent again afterwards; one that waits after a failed attempt continues to wait. One that failed without an attempt was not
-- published because publishing was off.
INSERT INTO cd_forge_statuses AS s (organization_id, repository, host, commit_sha, name, application_id, environment_id, version_set_id, phase, description, link,
    credential, due_at, kind, stage, rollout_id)
SELECT @organization_id, @repository, @host, @commit_sha, @name, @application_id, @environment_id, @version_set_id, @phase, @description, @link, @credential, @due_at,
    @kind, @stage, @rollout_id
WHERE NOT @only_known::boolean OR EXISTS (SELECT FROM cd_forge_statuses o WHERE o.organization_id = @organization_id AND o.repository = @repository
    AND o.commit_sha = @commit_sha AND o.name = @name)
ON CONFLICT (organization_id, repository, commit_sha, name) DO UPDATE SET
    application_id = EXCLUDED.application_id, environment_id = EXCLUDED.environment_id, version_set_id = EXCLUDED.version_set_id, phase = EXCLUDED.phase,
    description = EXCLUDED.description, link = EXCLUDED.link, credential = EXCLUDED.credential, stage = EXCLUDED.stage, revision = s.revision + 1,
    due_at = CASE WHEN s.state = 'sending' OR s.state = 'pending' THEN s.due_at ELSE EXCLUDED.due_at END,
    attempts = CASE WHEN s.state IN ('pending', 'sending') THEN s.attempts ELSE 0 END,
    state = CASE WHEN s.state = 'sending' THEN s.state ELSE 'pending' END
WHERE ((s.application_id, s.environment_id, s.version_set_id, s.phase, s.stage, s.description, s.link, s.credential) IS DISTINCT FROM
    (EXCLUDED.application_id, EXCLUDED.environment_id, EXCLUDED.version_set_id, EXCLUDED.phase, EXCLUDED.stage, EXCLUDED.description, EXCLUDED.link,
        EXCLUDED.credential)
    OR s.state = 'failed' AND s.attempts = 0)
  AND (s.version_set_id <= EXCLUDED.version_set_id OR s.application_id <> EXCLUDED.application_id);

-- name: OpenForgeDeployments :many
-- The rollouts of a version set with deployments that may change yet.
SELECT DISTINCT rollout_id FROM cd_forge_statuses WHERE organization_id = @organization_id AND application_id = @application_id
  AND version_set_id = @version_set_id AND kind = 'deployment' AND stage IN ('queued', 'in_progress', 'success') ORDER BY rollout_id;

-- name: DueForgeStatus :one
-- The one that has been due longest and may be begun now, or whose run is to be looked at; those that others have locked are skipped. What waits
-- for the account of the operator holds up nothing that is sent with a credential of the organization.
SELECT * FROM cd_forge_statuses s WHERE s.organization_id = @organization_id AND s.state IN ('pending', 'sending') AND s.due_at <= @at
  AND (s.state = 'sending' OR s.host <> ALL (ARRAY(
      SELECT h.host FROM cd_forge_hosts h WHERE h.organization_id = @organization_id AND (h.paused_until > @at OR (
          SELECT count(*) FROM cd_forge_statuses x WHERE x.organization_id = h.organization_id AND x.host = h.host AND x.state = 'sending'
      ) >= CASE WHEN h.failures > 0 THEN 1 ELSE @together::bigint END)))
      AND (s.host <> ALL (ARRAY(SELECT h.host FROM cd_forge_hosts h WHERE h.organization_id = @organization_id AND h.shared_paused_until > @at))
          OR cd_forge_own(@organization_id, s.credential, s.repository)))
ORDER BY s.due_at, s.id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: LockForgeStatus :one
SELECT * FROM cd_forge_statuses WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: SaveForgeStatus :exec
UPDATE cd_forge_statuses SET state = @state, due_at = @due_at, attempts = @attempts, run = @run, started = @started, inputs = sqlc.narg(inputs)::jsonb,
    begun_revision = @begun_revision, sent_revision = @sent_revision, error = @error, sent_at = @sent_at, away_since = @away_since,
    forge_number = @forge_number, spent_at = @spent_at
WHERE organization_id = @organization_id AND id = @id;

-- name: HurryForgeStatus :exec
-- The run that sends a status has ended: it is looked at now.
UPDATE cd_forge_statuses SET due_at = LEAST(due_at, @at) WHERE organization_id = @organization_id AND id = @id AND run = @run AND state = 'sending' AND started;

-- name: ForgeNumbersOfOthers :many
-- Across organizations, on purpose: several may publish to one repository.
SELECT n.number::bigint AS number FROM cd_forge_numbers(@organization_id::bigint, @status::bigint, @place::text, @title::text) AS n;

-- name: ForgeStatusesSending :one
SELECT count(*) FROM cd_forge_statuses WHERE organization_id = @organization_id AND host = @host AND state = 'sending';

-- name: ForgeStatuses :many
SELECT * FROM cd_forge_statuses
WHERE organization_id = @organization_id AND (@state::text = '' OR state = @state) AND (@commit_sha::text = '' OR commit_sha = @commit_sha)
  AND (@kind::text = '' OR kind = @kind)
  AND (@before::bigint = 0 OR id < @before)
ORDER BY id DESC LIMIT @most;

-- name: RetryForgeStatuses :execrows
-- Has those sent again that were given up, the oldest first.
WITH chosen AS MATERIALIZED (
    SELECT s.id FROM cd_forge_statuses s WHERE s.organization_id = @organization_id AND s.state = 'failed' AND (@id::bigint = 0 OR s.id = @id)
    ORDER BY s.id LIMIT @most FOR UPDATE
)
UPDATE cd_forge_statuses f SET state = 'pending', attempts = 0, away_since = NULL, due_at = @due_at
FROM chosen c WHERE f.organization_id = @organization_id AND f.id = c.id;

-- name: ForgetForgeStatuses :one
SELECT cd_forget_forge_statuses(@before::timestamptz, @most::integer)::bigint;

-- name: LockForgeHost :one
-- Made if it is not known yet.
INSERT INTO cd_forge_hosts (organization_id, host) VALUES (@organization_id, @host)
ON CONFLICT (organization_id, host) DO UPDATE SET host = EXCLUDED.host RETURNING *;

-- name: SaveForgeHost :exec
UPDATE cd_forge_hosts SET paused_until = @paused_until, problem = @problem, failures = @failures, window_at = @window_at, window_count = @window_count,
    pull_window_at = @pull_window_at, pull_window_count = @pull_window_count, pull_paused_until = @pull_paused_until, pull_failures = @pull_failures,
    quota_limit = @quota_limit, quota_remaining = @quota_remaining, quota_resets_at = @quota_resets_at,
    shared_paused_until = @shared_paused_until
WHERE organization_id = @organization_id AND host = @host;

-- name: OwnForgeCredential :one
-- Whether a credential of the organization itself is used in any case.
SELECT cd_forge_own(@organization_id, @credential, @repository)::boolean;

-- name: ForgetForgeBudgets :exec
-- Across organizations, on purpose. Those that others have locked are in use.
DELETE FROM forge_budgets WHERE host IN (
    SELECT b.host FROM forge_budgets b WHERE b.window_at < @before AND b.paused_until < @before ORDER BY b.host LIMIT 20 FOR UPDATE SKIP LOCKED);

-- name: LockForgeBudget :one
-- Across organizations, on purpose: they share the account of the operator. Made if it is not known yet.
INSERT INTO forge_budgets (host) VALUES (@host) ON CONFLICT (host) DO UPDATE SET host = EXCLUDED.host RETURNING *;

-- name: SaveForgeBudget :exec
-- Across organizations, on purpose: they share the account of the operator.
UPDATE forge_budgets SET window_at = @window_at, window_count = @window_count, paused_until = @paused_until, quota_limit = @quota_limit,
    quota_remaining = @quota_remaining, quota_resets_at = @quota_resets_at
WHERE host = @host;

-- name: ForgeHosts :many
SELECT h.*, (SELECT count(*) FROM cd_forge_statuses s WHERE s.organization_id = h.organization_id AND s.host = h.host AND s.state IN ('pending', 'sending'))::bigint AS waiting
FROM cd_forge_hosts h WHERE h.organization_id = @organization_id ORDER BY h.host LIMIT 100;

-- name: InsertForgeHook :one
INSERT INTO cd_forge_hooks (organization_id, key, forge, repositories, check_keys, plans, commands, principal_type, principal_id, principal_name, created_at)
VALUES (@organization_id, @key, @forge, @repositories, @check_keys, @plans, @commands, @principal_type, @principal_id, @principal_name, @created_at)
RETURNING *;

-- name: ForgeHooks :many
-- With when each last received something that was not known; the epoch for never.
SELECT sqlc.embed(h), COALESCE((SELECT max(r.updated_at) FROM cd_forge_reports r WHERE r.organization_id = h.organization_id AND r.hook_id = h.id), 'epoch')::timestamptz AS reported_at
FROM cd_forge_hooks h WHERE h.organization_id = @organization_id AND h.removed_at IS NULL ORDER BY h.id;

-- name: ForgeHookByKey :one
-- Locked against removal, so that what it reports is recorded before or not at all.
SELECT * FROM cd_forge_hooks WHERE organization_id = @organization_id AND key = @key AND removed_at IS NULL FOR SHARE;

-- name: RemoveForgeHook :one
UPDATE cd_forge_hooks SET removed_at = @removed_at WHERE organization_id = @organization_id AND id = @id AND removed_at IS NULL RETURNING *;

-- name: ForgeHooksAfter :many
-- Across organizations, on purpose: there is one registry service for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id, f.key::text AS key FROM cd_forge_hooks_after(@behind::bigint, @most::integer) AS f;

-- name: LockForgeHooks :exec
-- One hook of an organization is added at a time: their number is bounded.
SELECT pg_advisory_xact_lock(hashtextextended('forge hooks', @organization_id::bigint));

-- name: LockForgeCommit :exec
-- Until the transaction ends: what is reported about a commit, and which version sets come from it, are not recorded at the same time.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/forge commit', current_schema(), @organization_id::bigint, @commit_sha::text), 0));

-- name: KindOfForgeReport :one
-- Of a report whose event did not say its kind: that of the latest one of the context, as it did before there were kinds.
SELECT COALESCE((
    SELECT r.kind FROM cd_forge_reports r
    WHERE r.organization_id = @organization_id AND r.hook_id = @hook_id AND r.repository = @repository AND r.commit_sha = @commit_sha AND r.context = @context
    ORDER BY r.observed_at DESC, r.sequence DESC, r.id DESC LIMIT 1
), '')::text;

-- name: SaveForgeReport :execrows
-- Unless a later one is known: of runs the one with the higher number, whenever it ends, of statuses the one at the later time. Of two at the
-- same time with the same number, one that has ended is later, and a failure counts.
INSERT INTO cd_forge_reports AS r (organization_id, hook_id, repository, commit_sha, context, kind, phase, description, link, observed_at, sequence, counted)
VALUES (@organization_id, @hook_id, @repository, @commit_sha, @context, @kind, @phase, @description, @link, @observed_at, @sequence,
    EXISTS (SELECT FROM cd_forge_commits c WHERE c.organization_id = @organization_id AND c.commit_sha = @commit_sha))
ON CONFLICT (organization_id, commit_sha, repository, context, kind, hook_id) DO UPDATE SET
    phase = EXCLUDED.phase, description = EXCLUDED.description, link = EXCLUDED.link, observed_at = EXCLUDED.observed_at, sequence = EXCLUDED.sequence
WHERE (CASE WHEN r.kind = 'run' THEN r.sequence ELSE 0 END, r.observed_at, r.sequence, array_position(ARRAY['pending', 'success', 'failure'], r.phase))
    < (CASE WHEN r.kind = 'run' THEN EXCLUDED.sequence ELSE 0 END, EXCLUDED.observed_at, EXCLUDED.sequence,
        array_position(ARRAY['pending', 'success', 'failure'], EXCLUDED.phase));

-- name: ForgeReports :many
-- What hooks that there still are have received about commits; of one kind and context the latest is the last.
SELECT sqlc.embed(r), h.check_keys FROM cd_forge_reports r
JOIN cd_forge_hooks h ON h.organization_id = r.organization_id AND h.id = r.hook_id
WHERE r.organization_id = @organization_id AND r.commit_sha = ANY(@commits::text[]) AND h.removed_at IS NULL
ORDER BY CASE WHEN r.kind = 'run' THEN r.sequence ELSE 0 END, r.observed_at, r.sequence,
    array_position(ARRAY['pending', 'success', 'failure'], r.phase), r.id;

-- name: ForgeReportsOf :many
-- Of each hook that was not removed the newest that may be on the page, however much the others have received.
WITH page AS (
    SELECT x.id, h.check_keys FROM cd_forge_hooks h CROSS JOIN LATERAL (
        SELECT r.id FROM cd_forge_reports r
        WHERE r.organization_id = h.organization_id AND r.hook_id = h.id AND r.id < COALESCE(NULLIF(@before::bigint, 0), 9223372036854775807)
        ORDER BY r.id DESC LIMIT @most
    ) x
    WHERE h.organization_id = @organization_id AND h.removed_at IS NULL
    ORDER BY x.id DESC LIMIT @most
)
SELECT sqlc.embed(r), p.check_keys FROM page p JOIN cd_forge_reports r ON r.organization_id = @organization_id AND r.id = p.id
ORDER BY r.id DESC;

-- name: ForgeReportsOfCommit :many
SELECT sqlc.embed(r), h.check_keys FROM cd_forge_reports r
JOIN cd_forge_hooks h ON h.organization_id = r.organization_id AND h.id = r.hook_id AND h.removed_at IS NULL
WHERE r.organization_id = @organization_id AND r.commit_sha = @commit_sha AND (@before::bigint = 0 OR r.id < @before)
ORDER BY r.id DESC LIMIT @most;

-- name: SaveForgeCommit :exec
INSERT INTO cd_forge_commits (organization_id, application_id, version_set_id, commit_sha)
VALUES (@organization_id, @application_id, @version_set_id, @commit_sha)
ON CONFLICT (organization_id, version_set_id, commit_sha) DO NOTHING;

-- name: KeepForgeReports :exec
-- What was reported about commits counts from now on, and is kept.
UPDATE cd_forge_reports SET counted = true WHERE organization_id = @organization_id AND commit_sha = ANY(@commits::text[]) AND NOT counted;

-- name: MarkForgeCommit :exec
-- Has the checks of the version sets looked at that come from a commit and are being rolled out. A rollout that begins later looks by itself.
INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
SELECT DISTINCT c.organization_id, c.application_id, c.version_set_id, 'epoch'::timestamptz FROM cd_forge_commits c
JOIN cd_rollouts r ON r.organization_id = c.organization_id AND r.application_id = c.application_id AND r.version_set_id = c.version_set_id
    AND COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz) = '9999-12-31 00:00:00+00'::timestamptz
WHERE c.organization_id = @organization_id AND c.commit_sha = @commit_sha;

-- name: MarkForgeRollouts :exec
-- Has the checks of what is being rolled out looked at.
INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
SELECT r.organization_id, r.application_id, r.version_set_id, 'epoch' FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz) = '9999-12-31 00:00:00+00'::timestamptz;

-- name: MarkForgeVersion :exec
-- Has the checks of what is being rolled out with a version looked at.
SELECT cd_mark_forge_subject(s.organization_id, s.application_id, s.version_set_id) FROM (
    SELECT DISTINCT r.organization_id, r.application_id, r.version_set_id FROM cd_rollouts r
    JOIN cd_version_set_entries e ON e.organization_id = r.organization_id AND e.version_set_id = r.version_set_id AND e.version_id = @version_id
    WHERE r.organization_id = @organization_id AND COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz) = '9999-12-31 00:00:00+00'::timestamptz
) s;

-- name: ForgetForgeReports :one
SELECT cd_forget_forge_reports(@before::timestamptz, @most::integer)::bigint;

-- name: MergeForgePull :execrows
-- Notes that a pull request may have changed. One that a run is about is begun again afterwards, and one that waits after a failed attempt
-- continues to wait. A comment does not hide that there was a push, nor who has asked before: the last ten who have asked are kept.
-- Those that wait because of a comment, which outsiders may write, are at most half of all that may wait, with those that wait for answers.
INSERT INTO cd_forge_pulls AS p (organization_id, hook_id, name, number, repository, host, asked_by, due_at)
SELECT @organization_id, @hook_id, @name, @number, @repository, @host, @asked_by, @due_at
WHERE EXISTS (SELECT FROM cd_forge_pulls o WHERE o.organization_id = @organization_id AND o.name = @name AND o.number = @number
        AND (NOT @asked::boolean OR o.state IN ('pending', 'sending')))
   OR (NOT @asked::boolean OR (SELECT count(*) FROM (SELECT FROM cd_forge_pulls o WHERE o.organization_id = @organization_id
            AND o.state IN ('pending', 'sending') AND (o.asked_by <> '{}' OR o.answers > o.answers_written AND o.revision = o.begun_revision)
            LIMIT @most_asked::bigint) x) < @most_asked::bigint)
        AND (SELECT count(*) FROM (SELECT FROM cd_forge_pulls o WHERE o.organization_id = @organization_id AND o.state IN ('pending', 'sending') LIMIT @most::bigint) x) < @most::bigint
ON CONFLICT (organization_id, name, number) DO UPDATE SET
    hook_id = EXCLUDED.hook_id, repository = EXCLUDED.repository, revision = p.revision + 1,
    asked_by = (SELECT COALESCE(array_agg(u.who ORDER BY u.n), '{}') FROM (
        SELECT w.who, max(w.n) AS n FROM unnest(p.asked_by || EXCLUDED.asked_by) WITH ORDINALITY AS w (who, n) GROUP BY w.who ORDER BY n DESC LIMIT 10) u),
    due_at = CASE WHEN p.state IN ('sending', 'pending') THEN p.due_at
        ELSE GREATEST(EXCLUDED.due_at, COALESCE(p.sent_at, 'epoch') + make_interval(secs => @pause_seconds::double precision)) END,
    attempts = CASE WHEN p.state IN ('pending', 'sending') THEN p.attempts ELSE 0 END,
    state = CASE WHEN p.state = 'sending' THEN p.state ELSE 'pending' END;

-- name: DueForgePull :one
-- The one that may be begun now, or whose run is to be looked at; those that others have locked are skipped. What was pushed comes before
-- what was asked for, and before answers alone, which outsiders may cause.
SELECT * FROM cd_forge_pulls p WHERE p.organization_id = @organization_id AND p.state IN ('pending', 'sending') AND p.due_at <= @at
  AND (p.state = 'sending' OR p.host <> ALL (ARRAY(
      SELECT h.host FROM cd_forge_hosts h WHERE h.organization_id = @organization_id AND (h.paused_until > @at OR h.pull_paused_until > @at
          OR h.quota_remaining < h.quota_limit / 2 AND h.quota_resets_at > @at AND h.quota_resets_at <= @resets_by::timestamptz
          OR h.pull_window_count >= @rate::bigint AND h.pull_window_at > @window_at
          OR (SELECT count(*) FROM cd_forge_pulls x WHERE x.organization_id = h.organization_id AND x.host = h.host AND x.state = 'sending')
              >= CASE WHEN h.pull_failures > 0 THEN 1 ELSE @together::bigint END))))
ORDER BY p.state = 'pending', p.asked_by <> '{}' OR p.revision = p.begun_revision, p.due_at, p.id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: LockForgePull :one
SELECT * FROM cd_forge_pulls WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: SaveForgePull :exec
UPDATE cd_forge_pulls SET state = @state, due_at = @due_at, attempts = @attempts, run = @run, started = @started, inputs = sqlc.narg(inputs)::jsonb,
    begun_revision = @begun_revision, answers_begun = @answers_begun, answers_written = @answers_written, step = @step, reading = sqlc.narg(reading)::jsonb, head = @head, link = @link, answers_link = @answers_link, outcome = @outcome, error = @error,
    sent_at = @sent_at, away_since = @away_since, asked_by = @asked_by, spent_at = @spent_at
WHERE organization_id = @organization_id AND id = @id;

-- name: SaveForgePullReading :exec
-- What the present run has read; that of an earlier one is dropped.
UPDATE cd_forge_pulls SET reading = @reading, due_at = LEAST(due_at, @at)
WHERE organization_id = @organization_id AND id = @id AND run = @run AND state = 'sending' AND step = 'read';

-- name: HurryForgePull :exec
-- The run that is about a pull request has ended: it is looked at now.
UPDATE cd_forge_pulls SET due_at = LEAST(due_at, @at) WHERE organization_id = @organization_id AND id = @id AND run = @run AND state = 'sending' AND started;

-- name: ForgePullsSending :one
SELECT count(*) FROM cd_forge_pulls WHERE organization_id = @organization_id AND host = @host AND state = 'sending';

-- name: ForgePulls :many
-- Without what runs have read and are begun with, which may be long.
SELECT id, hook_id, name, number, repository, host, asked_by, revision, begun_revision, step, head, link, outcome, state, due_at, attempts, run,
    started, away_since, error, sent_at
FROM cd_forge_pulls WHERE organization_id = @organization_id AND (@before::bigint = 0 OR id < @before) ORDER BY id DESC LIMIT @most;

-- name: ForgetForgePulls :one
SELECT cd_forget_forge_pulls(@before::timestamptz, @most::integer)::bigint;

-- name: ForgePlaces :many
-- Overlays and charts of a repository, of applications that plans are about. Over SSH an address says nothing of the port of the pages.
SELECT p.application_id, a.name AS application, p.environment, p.target FROM cd_forge_places p
JOIN cd_applications a ON a.organization_id = p.organization_id AND a.id = p.application_id AND a.archived_at IS NULL
WHERE p.organization_id = @organization_id AND (p.repository = @name::text AND NOT p.ssh OR p.repository = @portless::text AND p.ssh)
  AND NOT EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = p.organization_id AND m.application_id = p.application_id AND NOT m.plans)
ORDER BY a.name, p.environment, p.id LIMIT @most;

-- name: MayHaveForgePlaces :one
-- While a pipeline was not read, it may name the repository.
SELECT (EXISTS (SELECT FROM cd_forge_unread u WHERE u.organization_id = @organization_id) OR EXISTS (
    SELECT FROM cd_forge_places p
    JOIN cd_applications a ON a.organization_id = p.organization_id AND a.id = p.application_id AND a.archived_at IS NULL
    WHERE p.organization_id = @organization_id AND (p.repository = @name::text AND NOT p.ssh OR p.repository = @portless::text AND p.ssh)
      AND NOT EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = p.organization_id AND m.application_id = p.application_id AND NOT m.plans)
))::boolean;

-- name: UnreadPipelines :many
-- The first, and as many others as fit. The length of a text is known without reading it.
SELECT o.application_id, o.version, o.definition FROM (
    SELECT u.application_id, u.version, d.definition, octet_length(d.definition) AS size,
        sum(octet_length(d.definition)) OVER (ORDER BY u.application_id) AS together
    FROM (SELECT n.* FROM cd_forge_unread n WHERE n.organization_id = @organization_id ORDER BY n.application_id LIMIT @most) u
    JOIN cd_application_flow_definitions d ON d.organization_id = u.organization_id AND d.application_id = u.application_id AND d.version = u.version
) o WHERE o.together <= @bytes::bigint OR o.together = o.size ORDER BY o.application_id;

-- name: SaveForgePlaces :one
SELECT cd_save_forge_places(@application_id, @version, @places)::boolean;
