-- name: PolicySets :many
-- All of the organization, with their latest versions, by name.
SELECT sqlc.embed(s), sqlc.embed(v) FROM cd_policy_sets s
JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id AND v.version = s.version
WHERE s.organization_id = @organization_id ORDER BY s.name;

-- name: PolicySetVersions :many
-- Of one set by its name, the latest first.
SELECT sqlc.embed(s), sqlc.embed(v) FROM cd_policy_sets s
JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id
WHERE s.organization_id = @organization_id AND s.name = @name ORDER BY v.version DESC LIMIT 100;

-- name: LockPolicySet :many
-- By its name, so that one author at a time changes it; none for a new one.
SELECT id FROM cd_policy_sets WHERE organization_id = @organization_id AND name = @name FOR UPDATE;

-- name: InsertPolicySet :one
INSERT INTO cd_policy_sets (organization_id, name, application_id, environment_id, application_labels, version)
VALUES (@organization_id, @name, sqlc.narg(application_id), sqlc.narg(environment_id), sqlc.narg(application_labels), 1) RETURNING id;

-- name: RaisePolicySet :exec
UPDATE cd_policy_sets SET version = @version WHERE organization_id = @organization_id AND id = @id;

-- name: NotePolicySent :exec
UPDATE cd_policy_sets SET sent = @version::integer WHERE organization_id = @organization_id AND id = @id AND (sent IS NULL OR sent < @version::integer);

-- name: SentPolicies :many
-- What the engine was sent last of each set that concerns an application, for which no environment is left out.
SELECT s.name, s.environment_id, s.sent::integer AS sent FROM cd_policy_sets s
WHERE s.organization_id = @organization_id AND s.sent IS NOT NULL AND (s.application_id IS NULL OR s.application_id = @application_id)
  AND (s.application_labels IS NULL OR EXISTS (
    SELECT FROM cd_details d WHERE d.organization_id = s.organization_id AND d.application_id = @application_id AND d.labels @> s.application_labels))
ORDER BY s.name;

-- name: InsertPolicyVersion :exec
INSERT INTO cd_policy_versions (organization_id, policy_set_id, version, mode, time_zone, text, reason, principal_type, principal_id, principal_name, created_at)
VALUES (@organization_id, @policy_set_id, @version, @mode, @time_zone, @text, @reason, @principal_type, @principal_id, @principal_name, @created_at);

-- name: PoliciesConcerning :many
-- The latest versions that concern an application, for which no environment is left out, and those that a rollout has pinned.
SELECT sqlc.embed(s), sqlc.embed(v), (r.rollout_id IS NOT NULL)::boolean AS pinned, (s.version = v.version)::boolean AS latest FROM cd_policy_sets s
JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id
LEFT JOIN cd_rollout_policies r ON r.organization_id = s.organization_id AND r.rollout_id = @rollout_id AND r.policy_set_id = s.id AND r.version = v.version
WHERE s.organization_id = @organization_id AND (s.version = v.version OR r.rollout_id IS NOT NULL) AND v.mode <> 'off'
  AND (s.application_id IS NULL OR s.application_id = @application_id)
  AND (s.application_labels IS NULL OR r.rollout_id IS NOT NULL OR EXISTS (
    SELECT FROM cd_details d WHERE d.organization_id = s.organization_id AND d.application_id = @application_id AND d.labels @> s.application_labels))
ORDER BY s.name, v.version;

-- name: PinPolicy :exec
INSERT INTO cd_rollout_policies (organization_id, rollout_id, policy_set_id, version) VALUES (@organization_id, @rollout_id, @policy_set_id, @version);

-- name: PolicyRequester :one
-- Who created a rollout, with the groups of a member.
SELECT c.principal_type, COALESCE(c.principal_id, 0)::bigint AS principal_id, COALESCE(m.name, '')::text AS name,
       ARRAY(SELECT g.name FROM cd_group_members gm JOIN cd_groups g ON g.organization_id = gm.organization_id AND g.id = gm.group_id
             WHERE gm.organization_id = c.organization_id AND gm.member_id = c.principal_id AND c.principal_type IN ('user', 'agent') ORDER BY g.name)::text[] AS groups
FROM cd_rollout_transitions c
LEFT JOIN cd_members m ON m.organization_id = c.organization_id AND m.id = c.principal_id AND c.principal_type IN ('user', 'agent')
WHERE c.organization_id = @organization_id AND c.rollout_id = @rollout_id AND c.event = 'create' LIMIT 1;

-- name: MemberGroups :many
SELECT g.name FROM cd_group_members gm JOIN cd_groups g ON g.organization_id = gm.organization_id AND g.id = gm.group_id
WHERE gm.organization_id = @organization_id AND gm.member_id = @member_id ORDER BY g.name;

-- name: GroupNames :many
SELECT name FROM cd_groups WHERE organization_id = @organization_id;

-- name: MemberKinds :many
SELECT id, kind FROM cd_members WHERE organization_id = @organization_id AND removed_at IS NULL;

-- name: ApplicationNames :many
SELECT a.id, a.name, COALESCE(d.labels, '{}')::jsonb AS labels FROM cd_applications a
LEFT JOIN cd_details d ON d.organization_id = a.organization_id AND d.application_id = a.id
WHERE a.organization_id = @organization_id AND a.archived_at IS NULL;

-- name: EnvironmentNames :many
SELECT id, name FROM cd_environments WHERE organization_id = @organization_id AND archived_at IS NULL;

-- name: AgentNames :many
SELECT name FROM cd_agents WHERE organization_id = @organization_id AND revoked_at IS NULL ORDER BY name;

-- name: ServiceNames :many
SELECT DISTINCT s.name FROM cd_services s JOIN cd_applications a ON a.organization_id = s.organization_id AND a.id = s.application_id
WHERE s.organization_id = @organization_id AND s.retired_at IS NULL AND a.archived_at IS NULL ORDER BY s.name;

-- name: InsertPolicyDecision :one
INSERT INTO cd_policy_decisions (organization_id, rollout_id, gate_id, verdict, decision, request, created_at)
VALUES (@organization_id, sqlc.narg(rollout_id), @gate_id, @verdict, @decision, @request, @created_at) RETURNING id;

-- name: LatestPolicyDecisions :many
-- The latest about each gate of rollouts.
SELECT DISTINCT ON (rollout_id, gate_id) * FROM cd_policy_decisions
WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) ORDER BY rollout_id, gate_id, id DESC;

-- name: PolicyDecisionsByRollout :many
-- Of each rollout the latest first, at most 100.
SELECT sqlc.embed(d) FROM unnest(@ids::bigint[]) AS r(id)
JOIN cd_policy_decisions d ON d.organization_id = @organization_id AND d.rollout_id = r.id
WHERE d.id >= COALESCE((SELECT o.id FROM cd_policy_decisions o WHERE o.organization_id = @organization_id AND o.rollout_id = r.id ORDER BY o.id DESC OFFSET 99 LIMIT 1), 0)
ORDER BY d.rollout_id, d.id DESC;

-- name: PolicyDecisionsByID :many
SELECT * FROM cd_policy_decisions WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: PolicyDecisionsSince :many
-- The latest first, for simulations, a page at a time.
SELECT * FROM cd_policy_decisions WHERE organization_id = @organization_id AND created_at >= @since AND (created_at, id) < (@before::timestamptz, @before_id::bigint)
ORDER BY created_at DESC, id DESC LIMIT 200;

-- name: PoliciesThatMention :many
-- The latest versions that are not off and may name an action, by name: a text with escapes may name it in other letters.
SELECT sqlc.embed(s), sqlc.embed(v) FROM cd_policy_sets s
JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id AND v.version = s.version
WHERE s.organization_id = @organization_id AND v.mode <> 'off' AND (position(@action::text IN v.text) > 0 OR position(E'\\' IN v.text) > 0)
ORDER BY s.name;

-- name: ChangeOf :one
-- An application with its labels and its owner, empty for none, and the present time.
SELECT now()::timestamptz AS at, COALESCE(a.name, '')::text AS application, COALESCE(d.labels, '{}')::jsonb AS labels, COALESCE(d.owner, '')::text AS owner
FROM (SELECT 1) AS one
LEFT JOIN cd_applications a ON a.organization_id = @organization_id AND a.id = @application_id::bigint
LEFT JOIN cd_details d ON d.organization_id = a.organization_id AND d.application_id = a.id;

-- name: PolicyPlaces :many
-- Some environments, those that an application goes to, or all, with what policies see of them: by the driver binding that a rollout has
-- pinned, and otherwise the latest. Agents are all that any configuration has named, and the targets of the rollout.
SELECT v.id, v.name, v.tier, COALESCE(d.labels, '{}')::jsonb AS labels, COALESCE(b.driver_ref, '')::text AS driver,
    COALESCE(b.driver_config, '{}')::jsonb AS config, COALESCE((
    SELECT jsonb_agg(jsonb_build_object('id', g.id, 'name', g.name, 'labels', g.labels, 'target', n.target) ORDER BY g.id) FROM (
        SELECT ea.agent_id, false AS target FROM cd_environment_agents ea
        WHERE ea.organization_id = v.organization_id AND ea.environment_id = v.id
        UNION ALL SELECT t.agent_id, true FROM cd_rollout_environments p
        JOIN cd_rollout_targets t ON t.organization_id = p.organization_id AND t.rollout_environment_id = p.id
        WHERE p.organization_id = v.organization_id AND p.rollout_id = @rollout::bigint AND p.environment_id = v.id) n
    JOIN cd_agents g ON g.organization_id = v.organization_id AND g.id = n.agent_id AND g.revoked_at IS NULL), '[]')::jsonb AS agents
FROM cd_environments v
LEFT JOIN cd_details d ON d.organization_id = v.organization_id AND d.environment_id = v.id
LEFT JOIN LATERAL (SELECT l.driver_ref, l.driver_config FROM cd_environment_driver_bindings l
    LEFT JOIN cd_rollout_environments p ON p.organization_id = l.organization_id AND p.rollout_id = @rollout::bigint AND p.environment_id = v.id
        AND p.driver_binding_id = l.id
    WHERE l.organization_id = v.organization_id AND l.environment_id = v.id
    ORDER BY p.id IS NULL, l.version DESC LIMIT 1) b ON true
WHERE v.organization_id = @organization_id AND (@everywhere::boolean OR v.id = ANY(@ids::bigint[]) OR EXISTS (
    SELECT FROM cd_application_environments ae
    WHERE ae.organization_id = v.organization_id AND ae.environment_id = v.id AND ae.application_id = @goes_to::bigint AND ae.current));

-- name: LastFailureIn :one
-- The latest failure of a deployment of a rollout's environment.
SELECT COALESCE(t.reason, '')::text AS reason FROM cd_deployments d
JOIN cd_deployment_transitions t ON t.organization_id = d.organization_id AND t.deployment_id = d.id AND t.event IN ('fail', 'degrade')
WHERE d.organization_id = @organization_id AND d.rollout_environment_id = @rollout_environment_id ORDER BY t.id DESC LIMIT 1;

-- name: ControlDecisions :many
-- About changes of controls, the latest first.
SELECT * FROM cd_policy_decisions WHERE organization_id = @organization_id AND rollout_id IS NULL AND gate_id = 'control.change' ORDER BY id DESC LIMIT 100;

-- name: LastControlDecision :one
-- The latest about changes of controls, with its request.
SELECT * FROM cd_policy_decisions WHERE organization_id = @organization_id AND rollout_id IS NULL AND gate_id = 'control.change' ORDER BY id DESC LIMIT 1;

-- name: OrganizationsWithPolicySets :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_policy_sets(@behind, @most) AS organization_id;

-- name: OrganizationsStoppedBy :many
-- Across organizations, on purpose: the policies of the installation concern all of them.
SELECT organization_id::bigint FROM cd_organizations_stopped_by(@kind) AS organization_id;

-- name: PoliciesReviewed :many
-- The digest of the installation's sets by which everything was evaluated again last; none before the first time.
SELECT digest FROM policy_reviews;

-- name: SavePoliciesReviewed :exec
INSERT INTO policy_reviews (digest) VALUES (@digest) ON CONFLICT (one) DO UPDATE SET digest = excluded.digest;
