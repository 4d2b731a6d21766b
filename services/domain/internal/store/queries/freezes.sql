-- name: InsertFreeze :one
INSERT INTO cd_freezes (organization_id, tiers, environment_ids, application_ids, rollbacks, reason, starts_at, ends_at, bounded_from, principal_type, principal_id, principal_name, created_at, incident,
    application_labels, environment_labels)
VALUES (@organization_id, @tiers, @environment_ids, @application_ids, @rollbacks, @reason, @starts_at, @ends_at, @bounded_from, @principal_type, @principal_id, @principal_name, @created_at, @incident,
    sqlc.narg(application_labels), sqlc.narg(environment_labels))
RETURNING *;

-- name: LockFreeze :one
SELECT * FROM cd_freezes WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: ExtendFreeze :exec
UPDATE cd_freezes SET ends_at = @ends_at, bounded_from = @bounded_from WHERE organization_id = @organization_id AND id = @id;

-- name: EndFreeze :exec
UPDATE cd_freezes SET ended_at = @at WHERE organization_id = @organization_id AND id = @id;

-- name: HoldControls :one
-- No freeze, veto or pin of the organization, and no label, changes before the transaction ends: what changes one waits in LockControls.
-- What is read from here on is so what is in force until the end, and the end of a control finds what it has stopped.
SELECT true::boolean AS held
FROM pg_advisory_xact_lock_shared(hashtextextended(concat_ws('/', 'lockstep/controls', current_schema(), @organization_id::bigint), 0));

-- name: LockControls :exec
-- Waits for the passages that are being decided. The tables take it as well (migration 1630), for replicas of earlier releases.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/controls', current_schema(), @organization_id::bigint), 0));

-- name: FreezesAt :many
-- Those that stop something at an instant. What begins when it is made is in force from its commit, whatever the clock of a replica says.
SELECT * FROM cd_freezes
WHERE organization_id = @organization_id AND ended_at IS NULL AND ends_at > @at AND (starts_at <= @at OR starts_at <= created_at)
ORDER BY ends_at, id;

-- name: FreezesInForce :many
-- Those that stop something at an instant, or will: all of them, since one that was left out would stop nothing. StartFreeze bounds them.
SELECT * FROM cd_freezes WHERE organization_id = @organization_id AND ended_at IS NULL AND ends_at > @at ORDER BY ends_at, id;

-- name: LabelledFreezes :many
-- Those by label that are not over. Locked against replicas of earlier releases, which hold the rows of what stops a passage.
SELECT * FROM cd_freezes
WHERE organization_id = @organization_id AND ended_at IS NULL AND ends_at > @at AND num_nonnulls(application_labels, environment_labels) > 0
ORDER BY id FOR UPDATE;

-- name: OpenIncidents :many
-- Those whose freezes are in force and cover an application in one of some environments.
SELECT DISTINCT f.incident FROM cd_freezes f
WHERE f.organization_id = @organization_id AND f.ended_at IS NULL AND (f.starts_at <= @at OR f.starts_at <= f.created_at) AND f.ends_at > @at AND f.incident <> ''
  AND (cardinality(f.application_ids) = 0 OR @application_id::bigint = ANY(f.application_ids))
  AND (f.application_labels IS NULL OR EXISTS (
    SELECT FROM cd_details d WHERE d.organization_id = @organization_id AND d.application_id = @application_id AND d.labels @> f.application_labels))
  AND (cardinality(f.tiers) + cardinality(f.environment_ids) = 0 AND f.environment_labels IS NULL OR EXISTS (
    SELECT FROM cd_environments e WHERE e.organization_id = @organization_id AND e.id = ANY(@environments::bigint[])
      AND (cardinality(f.tiers) = 0 OR e.tier = ANY(f.tiers)) AND (cardinality(f.environment_ids) = 0 OR e.id = ANY(f.environment_ids))
      AND (f.environment_labels IS NULL OR EXISTS (
        SELECT FROM cd_details d WHERE d.organization_id = @organization_id AND d.environment_id = e.id AND d.labels @> f.environment_labels))))
ORDER BY f.incident;

-- name: ControlsExist :one
SELECT EXISTS (SELECT 1 FROM cd_freezes f WHERE f.organization_id = @organization_id AND f.ended_at IS NULL AND f.ends_at > @at
        AND (f.starts_at <= @at OR f.starts_at <= f.created_at)) AS freezes,
       (EXISTS (SELECT 1 FROM cd_vetoes v WHERE v.organization_id = @organization_id AND v.version_set_id = @version_set_id AND v.lifted_at IS NULL)
    OR EXISTS (SELECT 1 FROM cd_version_set_entries e JOIN cd_vetoes v ON v.organization_id = e.organization_id AND v.version_id = e.version_id AND v.lifted_at IS NULL
        WHERE e.organization_id = @organization_id AND e.version_set_id = @version_set_id))::boolean AS vetoes,
       EXISTS (SELECT 1 FROM cd_environment_pins p WHERE p.organization_id = @organization_id AND p.environment_id = ANY(@environments::bigint[]) AND p.pinned) AS pins;

-- name: RolloutRequesters :many
SELECT rollout_id, principal_type FROM cd_rollout_transitions
WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) AND event = 'create';

-- name: CountFreezes :one
SELECT count(*) FROM cd_freezes WHERE organization_id = @organization_id AND ended_at IS NULL AND ends_at > @at;

-- name: ListFreezes :many
SELECT * FROM cd_freezes
WHERE organization_id = @organization_id AND id > @above AND id < @below AND (NOT @in_force::boolean OR ended_at IS NULL AND ends_at > @at)
ORDER BY CASE WHEN @falling::boolean THEN -id ELSE id END
LIMIT @at_most;

-- name: CountListedFreezes :one
SELECT count(*) FROM cd_freezes WHERE organization_id = @organization_id AND (NOT @in_force::boolean OR ended_at IS NULL AND ends_at > @at);

-- name: FreezesByID :many
SELECT * FROM cd_freezes WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: InsertVeto :one
INSERT INTO cd_vetoes (organization_id, version_id, version_set_id, reason, principal_type, principal_id, principal_name, created_at)
VALUES (@organization_id, @version_id, @version_set_id, @reason, @principal_type, @principal_id, @principal_name, @created_at)
RETURNING *;

-- name: LockVeto :one
SELECT * FROM cd_vetoes WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: LiftVeto :exec
UPDATE cd_vetoes SET lifted_at = @at WHERE organization_id = @organization_id AND id = @id;

-- name: VetoesByID :many
SELECT * FROM cd_vetoes WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: VetoesByVersion :many
SELECT * FROM cd_vetoes WHERE organization_id = @organization_id AND version_id = ANY(@ids::bigint[]) AND lifted_at IS NULL;

-- name: VetoesByVersionSet :many
-- Of each set its own veto and those of its versions.
SELECT s.id::bigint AS set_id, sqlc.embed(v) FROM unnest(@ids::bigint[]) AS s(id)
JOIN LATERAL (
    SELECT o.* FROM cd_vetoes o WHERE o.organization_id = @organization_id AND o.version_set_id = s.id AND o.lifted_at IS NULL
    UNION ALL
    SELECT o.* FROM cd_version_set_entries e JOIN cd_vetoes o ON o.organization_id = e.organization_id AND o.version_id = e.version_id AND o.lifted_at IS NULL
    WHERE e.organization_id = @organization_id AND e.version_set_id = s.id
) f ON true
JOIN cd_vetoes v ON v.organization_id = @organization_id AND v.id = f.id
ORDER BY s.id, v.id;

-- name: LockPin :one
SELECT * FROM cd_environment_pins WHERE organization_id = @organization_id AND environment_id = @environment_id FOR UPDATE;

-- name: SavePin :exec
INSERT INTO cd_environment_pins (organization_id, environment_id, pinned, reason, since, principal_type, principal_id, principal_name)
VALUES (@organization_id, @environment_id, @pinned, @reason, @since, @principal_type, @principal_id, @principal_name)
ON CONFLICT (organization_id, environment_id) DO UPDATE SET pinned = excluded.pinned, reason = excluded.reason, since = excluded.since,
    principal_type = excluded.principal_type, principal_id = excluded.principal_id, principal_name = excluded.principal_name;

-- name: PinsByEnvironment :many
SELECT * FROM cd_environment_pins WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) AND pinned;

-- name: InsertPassageStop :exec
INSERT INTO cd_passage_stops (organization_id, rollout_id, gate_id, kind, control_id) VALUES (@organization_id, @rollout_id, @gate_id, @kind, @control_id)
ON CONFLICT DO NOTHING;

-- name: ForgetPassageStops :one
-- Of a rollout, but those of gates that wait still.
SELECT cd_forget_stops(@rollout_id::bigint, @keep::text[])::bigint;

-- name: ReviewStopped :one
SELECT cd_review_stopped(@kind::text, @control_id::bigint, @at::timestamptz)::bigint;

-- name: CountStopped :many
SELECT control_id, count(DISTINCT rollout_id)::integer AS rollouts FROM cd_passage_stops
WHERE organization_id = @organization_id AND kind = 'freeze' AND control_id = ANY(@ids::bigint[]) GROUP BY control_id;

-- name: ScheduleReview :exec
INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) VALUES (@organization_id, @rollout_id, @due_at) ON CONFLICT DO NOTHING;

-- name: DueReview :many
-- The rollout that is due first, with all of its reviews that are due. The first lock is the rollout's, as everywhere before anything under
-- it. What others have locked is skipped: nobody waits here for a rollout that is busy.
SELECT r.id, r.rollout_id FROM cd_passage_reviews r
WHERE r.organization_id = @organization_id AND r.due_at <= @at AND r.rollout_id = (
    SELECT o.id FROM cd_passage_reviews f
    JOIN cd_rollouts o ON o.organization_id = f.organization_id AND o.id = f.rollout_id
    WHERE f.organization_id = @organization_id AND f.due_at <= @at ORDER BY f.due_at, f.id LIMIT 1 FOR NO KEY UPDATE OF o SKIP LOCKED
)
ORDER BY r.id FOR UPDATE SKIP LOCKED;

-- name: SettleLostReviews :one
-- Those of rollouts that do not exist, which nobody can evaluate.
SELECT cd_settle_reviews(ARRAY(
    SELECT r.id FROM cd_passage_reviews r WHERE r.organization_id = @organization_id AND r.due_at <= @at AND NOT EXISTS (
        SELECT 1 FROM cd_rollouts o WHERE o.organization_id = r.organization_id AND o.id = r.rollout_id
    ) ORDER BY r.id LIMIT 1000
))::bigint;

-- name: SettleReviews :one
SELECT cd_settle_reviews(@ids::bigint[])::bigint;

-- name: OrganizationsWithDueReviews :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_reviews(@at) AS organization_id;

-- name: FreezeBypasses :one
-- Across organizations, on purpose: the metrics are the installation's.
SELECT cd_freeze_bypasses()::bigint;
