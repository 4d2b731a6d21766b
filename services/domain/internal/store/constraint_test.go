package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func migration() pgtest.Migration { return pgtest.Migration{Name: "domain", FS: store.Migrations()} }

// seed is one of everything, twice over: organization 1 has application 1 (service 1, source 1, versions 1 and 2, set 1,
// pipeline 1), application 2 (service 2, source 2, version 3, set 2), environments 1 and 2 and a rollout of application 1;
// organization 2 has application 3 and environment 3.
const seed = `
-- What is written here is not by a release that says which controls it knows; upgrade_test.go of the service is about that.
DROP TRIGGER cd_rollouts_controls_are_known ON cd_rollouts;
DROP TRIGGER cd_rollout_transitions_controls_are_known ON cd_rollout_transitions;
INSERT INTO cd_organizations (id, name) VALUES (1, 'one'), (2, 'two');
INSERT INTO cd_applications (organization_id, name) VALUES (1, 'shop'), (1, 'blog'), (2, 'shop');
INSERT INTO cd_services (organization_id, application_id, name) VALUES (1, 1, 'api'), (1, 2, 'api'), (2, 3, 'api');
INSERT INTO cd_artifact_sources (organization_id, service_id, source_ref, source_config, match_key)
    VALUES (1, 1, 'oci-image@1', '{}', 'k1'), (1, 2, 'oci-image@1', '{}', 'k2'), (2, 3, 'oci-image@1', '{}', 'k1');
INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at)
    VALUES (1, 1, '1.0', 'sha256:a', 'r', now()), (1, 1, '1.1', 'sha256:b', 'r', now()), (1, 2, '1.0', 'sha256:a', 'r', now());
INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count) VALUES (1, 1, 'set-1', 'd1', 1), (1, 2, 'set-1', 'd2', 1);
INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id) VALUES (1, 1, 1, 1, 1), (1, 2, 3, 2, 2);
INSERT INTO cd_newest_version_sets (organization_id, application_id, version_set_id) VALUES (1, 1, 1);
INSERT INTO cd_environments (organization_id, name, tier) VALUES (1, 'staging', 'staging'), (1, 'production', 'production'), (2, 'staging', 'staging');
INSERT INTO cd_environment_driver_bindings (organization_id, environment_id, version, driver_ref, driver_config) VALUES (1, 1, 1, 'p@1', '{}'), (1, 2, 1, 'p@1', '{}');
INSERT INTO cd_driver_bundles (organization_id, digest, driver_ref, content) VALUES (1, 'sha256:driver', 'p@1', 'x');
INSERT INTO driver_artifacts (digest, drivers, content) VALUES ('sha256:' || repeat('0', 64), '{p@1}', 'x');
INSERT INTO driver_artifact_names (reference, digest, asked_at) VALUES ('oci://r.example.com/p:1', 'sha256:' || repeat('0', 64), now());
INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition) VALUES (1, 1, 1, '{}');
INSERT INTO cd_application_environments (organization_id, application_id, environment_id) VALUES (1, 1, 1);
INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id) VALUES (1, 1, 1, 1);
INSERT INTO cd_rollout_environments (organization_id, rollout_id, environment_id, position, driver_binding_id, driver_digest) VALUES (1, 1, 1, 1, 1, 'sha256:driver');
INSERT INTO cd_deployments (organization_id, rollout_environment_id, service_id) VALUES (1, 1, 1);
INSERT INTO cd_deployment_snapshots (organization_id, deployment_id, commit_sha, manifest_digest, parameters) VALUES (1, 1, 'abc', 'sha256:m', '{}');
INSERT INTO cd_rollout_transitions (organization_id, rollout_id, to_state, event, principal_type) VALUES (1, 1, 'pending', 'create', 'user');
INSERT INTO cd_rollout_environment_transitions (organization_id, rollout_environment_id, to_state, event, principal_type) VALUES (1, 1, 'pending', 'create', 'user');
INSERT INTO cd_deployment_transitions (organization_id, deployment_id, to_state, event, principal_type) VALUES (1, 1, 'pending', 'create', 'user');
INSERT INTO cd_service_environment_healths (organization_id, service_id, environment_id, health, since, observed_at) VALUES (1, 1, 1, 'healthy', now(), now());
INSERT INTO cd_agents (organization_id, name) VALUES (1, 'cluster');
INSERT INTO cd_agent_keys (organization_id, agent_id, public_key) VALUES (1, 1, 'U' || repeat('A', 55));
INSERT INTO cd_environment_agents (organization_id, environment_id, agent_id) VALUES (1, 1, 1);
INSERT INTO cd_handoffs (organization_id, kind, workflow_id, subject_kind, subject_id, program, driver_digest, inputs, due_at)
    VALUES (1, 'start', 'rollout-1', 'rollout', 1, 'deploy', 'sha256:driver', '{}', now());
INSERT INTO cd_rollout_places (organization_id, rollout_id, environment_id, places, weights) VALUES (1, 1, 1, '[]', '{}');
INSERT INTO cd_environment_protections (organization_id, environment_id, direct_changes) VALUES (1, 1, true);
INSERT INTO cd_freezes (organization_id, tiers, environment_ids, application_ids, rollbacks, reason, starts_at, ends_at, bounded_from, principal_type, principal_id, principal_name)
    VALUES (1, '{production}', '{}', '{}', false, 'x', now(), now() + interval '1 day', now(), 'user', 1, 'ann');
INSERT INTO cd_vetoes (organization_id, version_id, reason, principal_type, principal_id, principal_name) VALUES (1, 1, 'x', 'user', 1, 'ann');
INSERT INTO cd_environment_pins (organization_id, environment_id, pinned, reason, since, principal_type, principal_id, principal_name)
    VALUES (1, 1, true, 'x', now(), 'user', 1, 'ann');
INSERT INTO cd_passage_stops (organization_id, rollout_id, gate_id, kind, control_id) VALUES (1, 1, 'staging', 'freeze', 1);
INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) VALUES (1, 1, now());
INSERT INTO cd_policy_sets (organization_id, name, version) VALUES (1, 'rules', 1);
INSERT INTO cd_policy_versions (organization_id, policy_set_id, version, mode, time_zone, text, reason, principal_type, principal_id, principal_name)
    VALUES (1, 1, 1, 'enforce', 'UTC', 'permit (principal, action, resource);', 'x', 'user', 1, 'ann');
INSERT INTO cd_triggers (organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
    VALUES (1, 1, 'sets', 'version', '{}', true, 'user', 1, 'ann', now()), (1, 1, 'by-hand', 'manual', '{}', true, 'user', 1, 'ann', now()),
    (1, 1, 'builds', 'event', '{"types":["build.*"]}', true, 'user', 1, 'ann', now());
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at) VALUES (1, 1, 'set:1', now(), now());
INSERT INTO cd_promotion_holds (organization_id, application_id, environment_id, rollout_id, since) VALUES (1, 1, 1, 1, now());
INSERT INTO cd_notification_channels (organization_id, name, kind, config, rate, enabled, principal_type, principal_id, principal_name, changed_at)
    VALUES (1, 'team', 'webhook', '{}', 20, true, 'user', 1, 'ann', now());
INSERT INTO cd_notification_routes (organization_id, channel_id, name, config, enabled, principal_type, principal_id, principal_name, changed_at)
    VALUES (1, 1, 'all', '{}', true, 'user', 1, 'ann', now());
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at) VALUES (1, 'test', 'test:1', now(), now());
INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, sealed, key_id, principal_type, principal_id, principal_name, changed_at)
    VALUES (1, 'api', 'http', '{https://x.example/}', '', '', '', 1, '', 'x', 7, 'user', 1, 'ann', now());
INSERT INTO cd_notification_messages (organization_id, channel_id, key, severity, notification_ids, due_at) VALUES (1, 1, 'notification:1', 1, '{1}', now());
INSERT INTO cd_feeds (organization_id, name, kind, digest, principal_type, principal_id, principal_name) VALUES (1, 'office', 'freezes', sha256('1'), 'user', 1, 'ann');
INSERT INTO cd_badges (organization_id, application_id, enabled, principal_type, principal_id, principal_name, changed_at) VALUES (1, 1, true, 'user', 1, 'ann', now());
INSERT INTO cd_forge_mirrors (organization_id, application_id, environment_ids, credential, enabled, principal_type, principal_id, principal_name, changed_at)
    VALUES (1, 1, '{}', '', true, 'user', 1, 'ann', now());
INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at) VALUES (1, 1, 1, now());
INSERT INTO cd_forge_hooks (organization_id, key, forge, repositories, check_keys, principal_type, principal_id, principal_name)
VALUES (1, '0123456789abcdef', 'github', '{github.com/shop/*}', '{}', 'user', 1, 'ann');
INSERT INTO cd_forge_pulls (organization_id, hook_id, name, number, repository, host, asked_by, due_at)
VALUES (1, 1, 'github.com/shop/api', 7, 'https://github.com/shop/api', 'github.com', '{}', now());
INSERT INTO cd_forge_reports (organization_id, hook_id, repository, commit_sha, context, phase, description, link, observed_at, sequence)
VALUES (1, 1, 'github.com/shop/api', repeat('a', 40), 'ci', 'success', '', '', now(), 1);
INSERT INTO cd_forge_commits (organization_id, application_id, version_set_id, commit_sha) VALUES (1, 1, 1, repeat('a', 40));
INSERT INTO cd_forge_statuses (organization_id, repository, host, commit_sha, name, credential, due_at)
    VALUES (1, 'https://git.example/shop', 'git.example', repeat('a', 40), 'lockstep/staging/e2e', '', now());
INSERT INTO cd_forge_hosts (organization_id, host) VALUES (1, 'git.example');
INSERT INTO cd_members (organization_id, name, kind, role) VALUES (1, 'opener', 'user', 'viewer');
INSERT INTO cd_notification_links (organization_id, message_id, run, request_id, gate_id, member_id, member_name, opened_at)
    SELECT 1, 1, 1, 1, '', id, name, now() FROM cd_members WHERE name = 'opener';
INSERT INTO cd_members (organization_id, name, kind, role) VALUES (1, 'other', 'user', 'viewer');
INSERT INTO cd_notification_recipients (organization_id, member_id) SELECT 1, id FROM cd_members WHERE name = 'opener';
INSERT INTO cd_notification_subscriptions (organization_id, member_id, channel_id, name, moments, severities, tiers, involvement, config, enabled, changed_at)
    SELECT 1, id, 1, 'mine', '{}', '{}', '{}', '', '{}', true, now() FROM cd_members WHERE name = 'opener';
INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at)
    SELECT 1, 'slack', 'T1', 'U1', 'ann', id, sha256('1'), now() FROM cd_members WHERE name = 'opener';
INSERT INTO cd_chat_requests (organization_id, channel_id, digest, workspace, chat_user, chat_name, key_digest, received_at)
    VALUES (1, 1, sha256('1'), 'T1', 'U1', 'ann', sha256('1'), now());
INSERT INTO cd_chains (organization_id, trigger_id, application_id, rollout_id, blocks, began_at) VALUES (1, 1, 1, 1, 2, now());
INSERT INTO cd_chain_nodes (organization_id, chain_id, block, application_id, trigger_id, state) VALUES (1, 1, 1, 1, 1, 'waiting');
INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, seconds, action, counts_waiting, started_at, due_at) VALUES (1, 1, 'rollout', 60, 'fail', false, now(), now());
INSERT INTO cd_rollout_policies (organization_id, rollout_id, policy_set_id, version) VALUES (1, 1, 1, 1);
INSERT INTO cd_policy_decisions (organization_id, rollout_id, gate_id, verdict, decision, request) VALUES (1, 1, '', 'allow', '{}', '{}');
INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, rollout_id, function, state, policy, reason, approver_group, quorum, requester_may, decision, request)
    VALUES (1, 'rollout-1', 'x/0.0!1', 1, 'git.commit', 'denied', 'rules/a', 'no', '', 0, false, '{}', '{}');
INSERT INTO cd_call_answers (organization_id, call_request_id, approves, reason, principal_type, principal_id, principal_name) VALUES (1, 1, true, 'r', 'user', 1, 'a');
INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds) VALUES (1, 1, 1, 'active', 'healthy', 'status', 0);
INSERT INTO cd_check_statuses (organization_id, application_id, environment_id, version_set_id, key, phase, description, link, principal_type, principal_id, principal_name)
    VALUES (1, 1, 1, 1, 'healthy', 'success', '', '', 'user', 1, 'ann');
`

// recent are the rows of tables that earlier releases, of which upgrades begin, do not have.
const recent = `
INSERT INTO cd_application_aliases (organization_id, application_id, name) VALUES (1, 1, 'store');
INSERT INTO cd_rollout_proposals (organization_id, rollout_id, environment_id, repository, branch, number, head, state, ended_head, ended_by, ended_by_id, reported_at)
    VALUES (1, 1, 1, 'https://git/x', 'main', 1, '', 'open', '', '', 0, now());
INSERT INTO cd_deployment_attempts (organization_id, deployment_id, commit_sha, manifest_digest, reported_at) VALUES (1, 1, 'ab', 'sha256:m', now());
INSERT INTO cd_forge_places (organization_id, application_id, environment, repository, ssh, target) VALUES (1, 1, 'staging', 'github.com/shop/api', false, '{}');
INSERT INTO cd_drift_looks (organization_id, application_environment_id, due_at) VALUES (1, 1, now()) ON CONFLICT DO NOTHING;
INSERT INTO cd_details (organization_id, application_id, labels) VALUES (1, 1, '{"team": "payments"}');
INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, from_set_id, principal_type) VALUES (1, 1, 1, '2.0', 1, 'user');
INSERT INTO cd_forge_codes (organization_id, hook_id, member_id, account, permissions, digest, expires_at)
    SELECT 1, 1, id, 'ann', 5, sha256('1'), now() FROM cd_members WHERE name = 'opener';
INSERT INTO cd_forge_comments (organization_id, hook_id, name, number, comment_id, author_id, author, command, digest, received_at)
    VALUES (1, 1, 'github.com/shop/api', 7, 42, 11, 'ann', '/lockstep why', sha256('why'), now());
INSERT INTO cd_rollout_fleets (organization_id, rollout_environment_id, fleet, agents, waves, targets) VALUES (1, 1, '{}', '{1}', 1, 1);
INSERT INTO cd_rollout_waves (organization_id, rollout_environment_id, wave, targets) VALUES (1, 1, 1, 1);
INSERT INTO cd_rollout_targets (organization_id, rollout_environment_id, agent_id, name, wave) VALUES (1, 1, 1, 'cluster', 1);
`

func seeded(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, _ := pgtest.New(t, migration())
	if _, err := pool.Exec(t.Context(), seed+recent); err != nil {
		t.Fatalf("seed: %v", err)
	}
	return pool
}

// attempt runs SQL in a transaction of its own, to its commit.
func attempt(ctx context.Context, pool *pgxpool.Pool, sql string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	})
}

func TestTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	pool := seeded(t)
	const (
		transition    = `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type) VALUES `
		entry         = `INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id) VALUES `
		planned       = `INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id, strategy, strategy_reason) VALUES (1, 1, 1, 1, `
		rolloutOf     = `INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id, state, finished_at) VALUES `
		triggerOf     = `INSERT INTO cd_triggers (organization_id, application_id, config, enabled, principal_type, principal_id, principal_name, changed_at, name, kind) VALUES (1, 1, '{}', true, 'user', 1, 'a', now(), `
		freezeOf      = `INSERT INTO cd_freezes (organization_id, environment_ids, application_ids, rollbacks, starts_at, principal_type, principal_id, principal_name, tiers, reason, ends_at, bounded_from) VALUES (1, '{}', '{}', false, now(), 'user', 1, 'a', `
		callRequest   = `INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, policy, reason, approver_group, requester_may, decision, request, state, rollout_id, quorum) VALUES (1, 'w', `
		policyVersion = `INSERT INTO cd_policy_versions (organization_id, policy_set_id, version, mode, time_zone, text, reason, principal_type, principal_id, principal_name) VALUES (1, 1, `
		stop          = `INSERT INTO cd_rollout_environments (organization_id, rollout_id, environment_id, position, driver_binding_id, driver_digest, previous_version_set_id) VALUES `
	)
	tests := []struct{ name, sql, constraint string }{
		// the identity of a member at an identity provider
		{"half an identity", `INSERT INTO cd_members (organization_id, name, kind, role, issuer) VALUES (1, 'a', 'user', 'viewer', 'https://id')`, "cd_members_identity_is_whole"},
		{"an identity twice", `INSERT INTO cd_members (organization_id, name, kind, role, issuer, subject) VALUES (1, 'a', 'user', 'viewer', 'https://id', 's'), (1, 'b', 'user', 'viewer', 'https://id', 's')`, "cd_members_identity_is_unique"},
		// R6: names
		{
			"a second application of a name", `INSERT INTO cd_applications (organization_id, name) VALUES (1, 'shop')`,
			"cd_applications_name_is_unique",
		},
		{
			"a second service of a name", `INSERT INTO cd_services (organization_id, application_id, name) VALUES (1, 1, 'api')`,
			"cd_services_name_is_unique",
		},
		{"a second version of a name", `INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at) VALUES (1, 1, '1.0', 'sha256:c', 'r', now())`, "cd_versions_name_is_unique"},
		{"a second curated set of a name (D57)", `INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, principal_type) VALUES (1, 1, 1, '2.0', 'user')`, "cd_curated_version_sets_name_is_unique"},
		{"a curated set of another application (D57)", `INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, principal_type) VALUES (1, 2, 1, 'x', 'user')`, "cd_curated_version_sets_set"},
		{"a curated set begun with one of another application (D57)", `INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, from_set_id, principal_type) VALUES (1, 1, 1, 'x', 2, 'user')`, "cd_curated_version_sets_from"},
		{"a curated set by nobody (D57)", `INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, principal_type) VALUES (1, 1, 1, 'x', 'cat')`, "cd_curated_version_sets_principal_is_known"},
		{"a curated set with an endless name (D57)", `INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, principal_type) VALUES (1, 1, 1, repeat('x', 201), 'user')`, "cd_curated_version_sets_name_is_bounded"},
		{"a curated set with an endless reason (D57)", `INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, reason, principal_type) VALUES (1, 1, 1, 'x', repeat('x', 2001), 'user')`, "cd_curated_version_sets_reason_is_bounded"},
		{"a curated set that changes (D57)", `UPDATE cd_curated_version_sets SET reason = 'x'`, "cd_curated_version_sets_are_append_only"},
		{"a source replaced by one of another service (D57)", `UPDATE cd_artifact_sources SET removed_at = now(), replaced_by = 2 WHERE id = 1`, "cd_artifact_sources_replacement"},
		{"a replaced source that is not removed (D57)", `UPDATE cd_artifact_sources SET replaced_by = 2 WHERE id = 1`, "cd_artifact_sources_replaced_is_removed"},
		{"a second version set of a name", `INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count) VALUES (1, 1, 'set-1', 'd3', 1)`, "cd_version_sets_name_is_unique"},
		{
			"a second environment of a name", `INSERT INTO cd_environments (organization_id, name, tier) VALUES (1, 'staging', 'qa')`,
			"cd_environments_name_is_unique",
		},
		// D57: display names
		{"an environment shown by the name of another", `UPDATE cd_environments SET display_name = 'production' WHERE organization_id = 1 AND name = 'staging'`, "cd_environments_names_are_apart"},
		{
			"an environment with the name that another is shown by", `UPDATE cd_environments SET display_name = 'live' WHERE organization_id = 1 AND name = 'staging';
			INSERT INTO cd_environments (organization_id, name, tier) VALUES (1, 'live', 'qa')`, "cd_environments_names_are_apart",
		},
		{"two environments shown alike", `UPDATE cd_environments SET display_name = 'live' WHERE organization_id = 1`, "cd_environments_display_name_is_unique"},
		{"an empty display name", `UPDATE cd_environments SET display_name = ''`, "cd_environments_display_name_is_another"},
		{"another name of an environment", `UPDATE cd_environments SET name = 'other' WHERE id = 1`, "cd_environments_name_is_immutable"},
		{
			"a service with the name that another is shown by", `UPDATE cd_services SET display_name = 'front' WHERE id = 1;
			INSERT INTO cd_services (organization_id, application_id, name) SELECT organization_id, application_id, 'front' FROM cd_services WHERE id = 1`,
			"cd_services_names_are_apart",
		},
		{
			"two services shown alike", `UPDATE cd_services SET display_name = 'front' WHERE id = 1;
			INSERT INTO cd_services (organization_id, application_id, name, display_name)
			SELECT organization_id, application_id, 'second', 'front' FROM cd_services WHERE id = 1`, "cd_services_display_name_is_unique",
		},
		{"an empty display name of a service", `UPDATE cd_services SET display_name = ''`, "cd_services_display_name_is_another"},
		{"another name of a service", `UPDATE cd_services SET name = 'other' WHERE id = 1`, "cd_services_name_is_immutable"},
		{"an application without a name", `INSERT INTO cd_applications (organization_id, name) VALUES (1, '')`, "cd_applications_name_is_given"},
		// D48: kinds of checks that are data
		{
			"a check kind without its bundle",
			`INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds) VALUES (1, 1, 1, 'active', 'a', 'ticket@1', 0)`,
			"cd_rollout_checks_program_is_pinned",
		},
		{
			"a bundle of a kind without one",
			`INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds, kind_digest) VALUES (1, 1, 1, 'active', 'a', 'status', 0, 'sha256:driver')`,
			"cd_rollout_checks_program_is_pinned",
		},
		{
			"a check kind without a major",
			`INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds) VALUES (1, 1, 1, 'active', 'a', 'ticket', 0)`,
			"cd_rollout_checks_kind_is_known",
		},
		{
			"a run of a check that the rollout does not have",
			`INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number) VALUES (1, 1, 1, 'active', 'other', false, 1)`,
			"cd_check_runs_check",
		},
		{
			"two open runs of a check",
			`INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number) VALUES (1, 1, 1, 'active', 'healthy', false, 1), (1, 1, 1, 'active', 'healthy', false, 2)`,
			"cd_check_runs_one_is_open",
		},
		{
			"a run before the first",
			`INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number) VALUES (1, 1, 1, 'active', 'healthy', false, 0)`,
			"cd_check_runs_are_counted_from_one",
		},
		// D24: gates
		{"a quorum of nobody", `INSERT INTO cd_rollout_gates (organization_id, rollout_id, gate_id, quorum, requester_may_approve) VALUES (1, 1, 'g', 0, false)`, "cd_rollout_gates_quorum_counts"},
		{
			"a gate of another organization's rollout",
			`INSERT INTO cd_rollout_gates (organization_id, rollout_id, gate_id, quorum, requester_may_approve) VALUES (2, 1, 'g', 1, false)`,
			"cd_rollout_gates_rollout",
		},
		{"an expiry with another outcome", `INSERT INTO cd_environment_approvals (organization_id, environment_id, quorum, requester_may_approve, on_expiry) VALUES (1, 1, 1, false, 'wait')`, "cd_environment_approvals_outcome_is_known"},
		// D49: what stops passages
		{"a freeze without a reason", freezeOf + `'{}', '', now() + interval '1 day', now())`, "cd_freezes_reason_is_given"},
		{"a freeze of 31 days", freezeOf + `'{}', 'x', now() + interval '31 days', now())`, "cd_freezes_time_is_bounded"},
		{"a freeze that ends before it starts", freezeOf + `'{}', 'x', now() - interval '1 day', now())`, "cd_freezes_end_comes_last"},
		{"a freeze of a tier that does not exist", freezeOf + `'{prod}', 'x', now() + interval '1 day', now())`, "cd_freezes_tiers_are_known"},
		// D51: policies
		{"a second channel of a name (D62)", `INSERT INTO cd_notification_channels (organization_id, name, kind, config, rate, enabled, principal_type, principal_id, principal_name, changed_at) VALUES (1, 'team', 'email', '{}', 20, true, 'user', 1, 'a', now())`, "cd_notification_channels_name_is_unique"},
		{"a channel of a kind that does not exist", `UPDATE cd_notification_channels SET kind = 'fax'`, "cd_notification_channels_kind_is_known"},
		{"a channel that is flooded", `UPDATE cd_notification_channels SET rate = 61`, "cd_notification_channels_rate_is_bounded"},
		{"a second route of a name (D62)", `INSERT INTO cd_notification_routes (organization_id, channel_id, name, config, enabled, principal_type, principal_id, principal_name, changed_at) VALUES (1, 1, 'all', '{}', true, 'user', 1, 'a', now())`, "cd_notification_routes_name_is_unique"},
		{"a second credential of a name (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at) VALUES (1, 'api', 'git', '{https://x.example/}', '', '', '', 1, 'env:X', 0, 'user', 1, 'a', now())`, "cd_credentials_name_is_unique"},
		{"a credential for every place (D56)", `UPDATE cd_credentials SET url_prefixes = '{}'`, "cd_credentials_places_are_bounded"},
		{"a credential with a value and a reference (D56)", `UPDATE cd_credentials SET reference = 'env:X'`, "cd_credentials_value_is_one"},
		{"a revoked credential with a value (D56)", `UPDATE cd_credentials SET revoked_at = now()`, "cd_credentials_value_is_one"},
		{"a value that is sealed with no key (D56)", `UPDATE cd_credentials SET key_id = 0`, "cd_credentials_key_is_of_a_sealed_value"},
		{"a credential of a kind that does not exist", `UPDATE cd_credentials SET kind = 'fax'`, "cd_credentials_kind_is_known"},
		{"a moment that is known already (D62)", `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at) VALUES (1, 'test', 'test:1', now(), now())`, "cd_notifications_once"},
		{"a second message of a key in a channel (D62)", `INSERT INTO cd_notification_messages (organization_id, channel_id, key, severity, notification_ids, due_at) VALUES (1, 1, 'notification:1', 1, '{1}', now())`, "cd_notification_messages_one_of_a_key"},
		{"a second subscription of a name (D62)", `INSERT INTO cd_notification_subscriptions (organization_id, member_id, channel_id, name, moments, severities, tiers, involvement, config, enabled, changed_at) SELECT 1, id, 1, 'mine', '{}', '{}', '{}', '', '{}', true, now() FROM cd_members WHERE name = 'opener'`, "cd_notification_subscriptions_name_is_unique"},
		{"a subscription of nobody", `INSERT INTO cd_notification_subscriptions (organization_id, member_id, channel_id, name, moments, severities, tiers, involvement, config, enabled, changed_at) VALUES (1, 99, 1, 'mine', '{}', '{}', '{}', '', '{}', true, now())`, "cd_notification_subscriptions_recipient"},
		{"a subscription for an unknown involvement", `UPDATE cd_notification_subscriptions SET involvement = 'friend'`, "cd_notification_subscriptions_involvement_is_known"},
		{"an address that nobody has verified (D62)", `UPDATE cd_notification_recipients SET email = 'a@example.com'`, "cd_notification_recipients_email_was_verified"},
		{"a link that is opened again (D63)", `INSERT INTO cd_notification_links (organization_id, message_id, run, request_id, gate_id, member_id, member_name, opened_at) SELECT 1, 1, 1, 1, '', id, 'a', now() FROM cd_members WHERE name = 'opener'`, "cd_notification_links_once"},
		{"a link to a gate of nothing (D63)", `UPDATE cd_notification_links SET gate_id = 'production'`, "cd_notification_links_is_about_a_question"},
		{"a link of no run (D63)", `UPDATE cd_notification_links SET run = 0`, "cd_notification_links_run_is_given"},
		{"a chat account of two members (D63)", `INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at) SELECT 1, 'slack', 'T1', 'U1', 'a', id, sha256('1'), now() FROM cd_members WHERE name = 'other'`, "cd_chat_accounts_user_is_one_members"},
		{"two chat accounts of a member (D63)", `INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at) SELECT 1, 'slack', 'T1', 'U2', 'a', id, sha256('1'), now() FROM cd_members WHERE name = 'opener'`, "cd_chat_accounts_member_has_one"},
		{"an account of a chat that does not answer (D63)", `UPDATE cd_chat_accounts SET kind = 'teams'`, "cd_chat_accounts_kind_is_known"},
		{"an account without the secret that proved it (D63)", `UPDATE cd_chat_accounts SET key_digest = ''`, "cd_chat_accounts_key_is_a_digest"},
		{"a press that is received again (D63)", `INSERT INTO cd_chat_requests (organization_id, channel_id, digest, workspace, chat_user, chat_name, key_digest, received_at) VALUES (1, 1, sha256('1'), 'T1', 'U1', 'a', sha256('1'), now())`, "cd_chat_requests_once"},
		{"a command that is received again by another channel (D63)", `WITH other AS (INSERT INTO cd_notification_channels (organization_id, name, kind, config, rate, enabled, principal_type, principal_id, principal_name, changed_at) VALUES (1, 'other', 'slack', '{}', 20, true, 'user', 1, 'a', now()) RETURNING id) INSERT INTO cd_chat_requests (organization_id, channel_id, digest, workspace, chat_user, chat_name, key_digest, received_at) SELECT 1, id, sha256('1'), 'T1', 'U1', 'a', sha256('1'), now() FROM other`, "cd_chat_requests_once_in_all_channels"},
		{"an account that is good for nothing (D63)", `UPDATE cd_chat_accounts SET permissions = 0`, "cd_chat_accounts_permissions_are_known"},
		{"an account with half a secret for commands (D63)", `UPDATE cd_chat_accounts SET command_digest = ''`, "cd_chat_accounts_command_digest_is_one"},
		{"a code that two have (D63)", `INSERT INTO cd_forge_codes (organization_id, hook_id, member_id, account, permissions, digest, expires_at) SELECT 1, 1, id, 'bob', 5, sha256('1'), now() FROM cd_members WHERE name = 'other'`, "cd_forge_codes_once"},
		{"two codes of a member (D63)", `INSERT INTO cd_forge_codes (organization_id, hook_id, member_id, account, permissions, digest, expires_at) SELECT 1, 1, id, 'bob', 5, sha256('2'), now() FROM cd_members WHERE name = 'opener'`, "cd_forge_codes_member_has_one"},
		{"a comment that is received again (D63)", `INSERT INTO cd_forge_comments (organization_id, hook_id, name, number, comment_id, author_id, author, command, digest, received_at) VALUES (1, 1, 'github.com/shop/api', 8, 42, 12, 'bob', '/lockstep why', sha256('why'), now())`, "cd_forge_comments_once"},
		{"a comment without a digest of its own (D63)", `UPDATE cd_forge_comments SET digest = 'x'`, "cd_forge_comments_digest_is_one"},
		{"a comment of nobody (D63)", `UPDATE cd_forge_comments SET author_id = 0`, "cd_forge_comments_author_is_one"},
		{"an outcome of a comment that is not known (D63)", `UPDATE cd_forge_comments SET outcome = 'done'`, "cd_forge_comments_outcome_is_known"},
		{"a press of no user (D63)", `UPDATE cd_chat_requests SET chat_user = ''`, "cd_chat_requests_user_is_bounded"},
		{"quiet hours that are no object (D62)", `UPDATE cd_notification_messages SET quiet = '[]'`, "cd_notification_messages_quiet_is_an_object"},
		{"a dead letter without a reason", `UPDATE cd_notification_messages SET state = 'failed'`, "cd_notification_messages_failed_says_why"},
		{"an error of a template without an end", `UPDATE cd_notification_messages SET template_error = repeat('x', 4001)`, "cd_notification_messages_template_error_is_bounded"},
		{"a message that nothing sends", `UPDATE cd_notification_messages SET state = 'sending'`, "cd_notification_messages_sending_has_inputs"},
		{"a second feed of a name (D64)", `INSERT INTO cd_feeds (organization_id, name, kind, digest, principal_type, principal_id, principal_name) VALUES (1, 'office', 'freezes', sha256('2'), 'user', 1, 'ann')`, "cd_feeds_name_is_unique"},
		{"two feeds of a token (D64)", `INSERT INTO cd_feeds (organization_id, name, kind, digest, principal_type, principal_id, principal_name) VALUES (1, 'other', 'freezes', sha256('1'), 'user', 1, 'ann')`, "cd_feeds_digest_is_unique"},
		{"a feed with another token (D64)", `UPDATE cd_feeds SET digest = sha256('3')`, "cd_feeds_token_is_immutable"},
		{"a feed of a kind that does not exist", `INSERT INTO cd_feeds (organization_id, name, kind, digest, principal_type, principal_id, principal_name) VALUES (1, 'x', 'all', sha256('4'), 'user', 1, 'ann')`, "cd_feeds_kind_is_known"},
		{"a second status of a name (R3-09)", `INSERT INTO cd_forge_statuses (organization_id, repository, host, commit_sha, name, credential, due_at) VALUES (1, 'https://git.example/shop', 'git.example', repeat('a', 40), 'lockstep/staging/e2e', '', now())`, "cd_forge_statuses_one_of_a_name"},
		{"a status of another name than ours (R3-09)", `UPDATE cd_forge_statuses SET name = 'ci/build'`, "cd_forge_statuses_name_is_ours"},
		{"a status of what is no commit", `UPDATE cd_forge_statuses SET commit_sha = 'main'`, "cd_forge_statuses_commit_is_one"},
		{"a status that was given up without a reason", `UPDATE cd_forge_statuses SET state = 'failed'`, "cd_forge_statuses_failed_says_why"},
		{"a status without a phase that is known (R3-02)", `UPDATE cd_forge_statuses SET phase = 'fine'`, "cd_forge_statuses_phase_is_known"},
		{"a second hook of a key (D48)", `INSERT INTO cd_forge_hooks (organization_id, key, forge, repositories, check_keys, principal_type, principal_id, principal_name) VALUES (1, '0123456789abcdef', 'gitea', '{a.test/b}', '{}', 'user', 1, 'ann')`, "cd_forge_hooks_one_of_a_key"},
		{"a second row of a pull request (R4-27)", `INSERT INTO cd_forge_pulls (organization_id, hook_id, name, number, repository, host, asked_by, due_at) VALUES (1, 1, 'github.com/shop/api', 7, 'https://github.com/shop/api', 'github.com', '{ann}', now())`, "cd_forge_pulls_one_of_a_number"},
		{"a pull request that a run is about, without inputs (R4-27)", `UPDATE cd_forge_pulls SET state = 'sending', run = 1`, "cd_forge_pulls_sending_has_inputs"},
		{"a pull request that was given up without a reason (R4-27)", `UPDATE cd_forge_pulls SET state = 'failed', sent_at = now()`, "cd_forge_pulls_failed_says_why"},
		{"a pull request that is done with at no time (R4-27)", `UPDATE cd_forge_pulls SET state = 'sent'`, "cd_forge_pulls_settled_has_a_time"},
		{"a hook for no repository (D48)", `UPDATE cd_forge_hooks SET repositories = '{}'`, "cd_forge_hooks_repositories_are_bounded"},
		{"a hook of a forge that is not known (D48)", `UPDATE cd_forge_hooks SET forge = 'svn'`, "cd_forge_hooks_forge_is_known"},
		{"a second report of a context (D48)", `INSERT INTO cd_forge_reports (organization_id, hook_id, repository, commit_sha, context, phase, description, link, observed_at, sequence) VALUES (1, 1, 'github.com/shop/api', repeat('a', 40), 'ci', 'failure', '', '', now(), 2)`, "cd_forge_reports_one_of_a_context"},
		{"a proof of a credential that is a list (R3-41)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'http', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '[]')`, "cd_credentials_proof_is_an_object"},
		{"a GitHub App that is not for Git (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'http', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"github_app":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a client of OAuth 2.0 for Git (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'git', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"oauth2":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a key of SSH that is not for Git (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'http', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ssh_key":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a key of SSH that is an App as well (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'git', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ssh_key":{},"github_app":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a registry with a key of SSH (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'registry', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ssh_key":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a registry with a cloud and a key of SSH (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'registry', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ecr":{},"ssh_key":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a registry with a cloud and a client (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'registry', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"gar":{},"oauth2":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a registry with two clouds (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'registry', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ecr":{},"acr":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a registry with an App (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'registry', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"github_app":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a cloud that is not for registries (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'http', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ecr":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a cloud for Git (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'git', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"gar":{}}')`, "cd_credentials_proof_is_an_object"},
		{"a key of SSH with a cloud (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof) VALUES (1, 'proved', 'git', '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), '{"ssh_key":{},"gar":{}}')`, "cd_credentials_proof_is_an_object"},
		{"an output of a check that is a list (R3-38)", `INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number, output) VALUES (1, 1, 1, 'active', 'healthy', false, 1, '[]')`, "cd_check_runs_output_is_an_object"},
		{"an output of a check that is too long (R3-38)", `INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number, output) VALUES (1, 1, 1, 'active', 'healthy', false, 1, json_build_object('long', repeat('x', 20000)))`, "cd_check_runs_output_is_bounded"},
		{"phases of environments that are a list (R3-44)", `INSERT INTO cd_check_statuses (organization_id, application_id, environment_id, version_set_id, key, phase, description, link, principal_type, principal_id, principal_name, environments) VALUES (1, 1, 1, 1, 'ci', 'success', '', '', 'user', 1, 'ann', '[]')`, "cd_check_statuses_environments_is_an_object"},
		{"a report of a kind that there is not (D48)", `UPDATE cd_forge_reports SET kind = 'check'`, "cd_forge_reports_kind_is_known"},
		{"a report of what Lockstep publishes (D48)", `UPDATE cd_forge_reports SET context = 'lockstep/shop/dev/ci'`, "cd_forge_reports_context_is_not_ours"},
		{"a report about what is no commit (D48)", `UPDATE cd_forge_reports SET commit_sha = 'main'`, "cd_forge_reports_commit_is_one"},
		{"a status with the stage of a deployment (D64)", `UPDATE cd_forge_statuses SET stage = 'success'`, "cd_forge_statuses_deployment_has_a_stage"},
		{"a deployment without a rollout (D64)", `UPDATE cd_forge_statuses SET kind = 'deployment', stage = 'queued'`, "cd_forge_statuses_deployment_has_a_stage"},
		{"a deployment of an unknown stage (D64)", `UPDATE cd_forge_statuses SET kind = 'deployment', rollout_id = 1, stage = 'fine'`, "cd_forge_statuses_stage_is_known"},
		{"a publication of an unknown kind (D64)", `UPDATE cd_forge_statuses SET kind = 'release'`, "cd_forge_statuses_kind_is_known"},
		{"a deployment that is sent as a status, as an earlier release would", `UPDATE cd_forge_statuses SET kind = 'deployment', rollout_id = 1, stage = 'queued', state = 'sending', run = 1, inputs = '{"status": {}}'`, "cd_forge_statuses_inputs_are_of_the_kind"},
		{"a status that nothing sends", `UPDATE cd_forge_statuses SET state = 'sending'`, "cd_forge_statuses_sending_has_inputs"},
		{"a second mirror of an application", `INSERT INTO cd_forge_mirrors (organization_id, application_id, environment_ids, credential, enabled, principal_type, principal_id, principal_name, changed_at) VALUES (1, 1, '{}', '', true, 'user', 1, 'ann', now())`, "cd_forge_mirrors_pkey"},
		{"a second trigger of a name", triggerOf + `'sets', 'drift')`, "cd_triggers_name_is_unique"},
		{"a second manual trigger", triggerOf + `'by-mail', 'manual')`, "cd_triggers_one_is_manual"},
		{"a trigger of a kind that does not exist", triggerOf + `'pull', 'pull')`, "cd_triggers_kind_is_known"},
		{"a trigger without a plain name", triggerOf + `'A b', 'drift')`, "cd_triggers_name_is_plain"},
		{"a cause that a trigger knows already (D58)", `INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at) VALUES (1, 1, 'set:1', now(), now())`, "cd_trigger_signals_once"},
		{"a decision without a reason", `UPDATE cd_trigger_signals SET outcome = 'waiting'`, "cd_trigger_signals_decision_says_why"},
		{"a decision that only waits", `UPDATE cd_trigger_signals SET state = 'decided', outcome = 'waiting', reason = 'x', decided_at = now()`, "cd_trigger_signals_decided_has_outcome"},
		{"a decision that began nothing", `UPDATE cd_trigger_signals SET state = 'decided', outcome = 'began', reason = 'x', decided_at = now()`, "cd_trigger_signals_began_has_rollout"},
		{"a chain that a rollout began already (D58)", `INSERT INTO cd_chains (organization_id, trigger_id, application_id, rollout_id, blocks, began_at) VALUES (1, 1, 1, 1, 2, now())`, "cd_chains_once"},
		{"a block beyond the last one", `UPDATE cd_chains SET block = 3`, "cd_chains_blocks_are_in_order"},
		{"a chain that ended without a reason", `UPDATE cd_chains SET state = 'stopped', ended_at = now()`, "cd_chains_ended_says_why"},
		{"a chain that runs and has ended", `UPDATE cd_chains SET ended_at = now()`, "cd_chains_ended_says_why"},
		{"a chain in a state that does not exist", `UPDATE cd_chains SET state = 'failed', ended_at = now(), reason = 'x'`, "cd_chains_state_is_known"},
		{"an application that is in a chain already", `INSERT INTO cd_chain_nodes (organization_id, chain_id, block, application_id, trigger_id, state) VALUES (1, 1, 2, 1, 1, 'waiting')`, "cd_chain_nodes_application_is_once"},
		{"a follower without a trigger", `UPDATE cd_chain_nodes SET trigger_id = NULL`, "cd_chain_nodes_skipped_has_no_trigger"},
		{"an application that failed without a reason", `UPDATE cd_chain_nodes SET state = 'failed'`, "cd_chain_nodes_ended_says_why"},
		{"an application in block 0", `UPDATE cd_chain_nodes SET block = 0`, "cd_chain_nodes_block_is_counted"},
		{"a second hold of an environment", `INSERT INTO cd_promotion_holds (organization_id, application_id, environment_id, rollout_id, since) VALUES (1, 1, 1, 1, now())`, "cd_promotion_holds_one_in_force"},
		{"a policy set without a plain name", `INSERT INTO cd_policy_sets (organization_id, name, version) VALUES (1, 'A b', 1)`, "cd_policy_sets_name_is_plain"},
		{"a second policy set of a name", `INSERT INTO cd_policy_sets (organization_id, name, version) VALUES (1, 'rules', 1)`, "cd_policy_sets_name_is_unique"},
		{"a policy set of two scopes", `INSERT INTO cd_policy_sets (organization_id, name, application_id, environment_id, version) VALUES (1, 'two', 1, 1, 1)`, "cd_policy_sets_scope_is_one"},
		{"a policy set of another organization's environment", `INSERT INTO cd_policy_sets (organization_id, name, environment_id, version) VALUES (2, 'theirs', 1, 1)`, "cd_policy_sets_environment"},
		{"a second decision about a call", callRequest + `'x/0.0!1', 'f', '', '', '', false, '{}', '{}', 'denied', NULL, 0)`, "cd_call_requests_call_is_unique"},
		{"a call in a state that does not exist", callRequest + `'y', 'f', '', '', '', false, '{}', '{}', 'done', NULL, 0)`, "cd_call_requests_state_is_known"},
		{"a call that waits for nobody", callRequest + `'y', 'f', '', '', '', false, '{}', '{}', 'pending', NULL, 0)`, "cd_call_requests_pending_asks"},
		{"a call of no rollout of the organization", callRequest + `'y', 'f', '', '', '', false, '{}', '{}', 'denied', 99, 0)`, "cd_call_requests_rollout"},
		{"a second answer of a person to a call", `INSERT INTO cd_call_answers (organization_id, call_request_id, approves, reason, principal_type, principal_id, principal_name) VALUES (1, 1, false, 'r', 'user', 1, 'a')`, "cd_call_answers_are_of_different_people"},
		{"policies without a reason", policyVersion + `2, 'enforce', 'UTC', 'x', '', 'user', 1, 'a')`, "cd_policy_versions_reason_is_given"},
		{"policies in a mode that does not exist", policyVersion + `2, 'on', 'UTC', 'x', 'y', 'user', 1, 'a')`, "cd_policy_versions_mode_is_known"},
		{"policies of more than 64 KiB", policyVersion + `2, 'enforce', 'UTC', repeat('x', 65537), 'y', 'user', 1, 'a')`, "cd_policy_versions_text_is_bounded"},
		{"a version of policies twice", policyVersion + `1, 'enforce', 'UTC', 'x', 'y', 'user', 1, 'a')`, "cd_policy_versions_pkey"},
		{"a pinned version of policies that does not exist", `INSERT INTO cd_rollout_policies (organization_id, rollout_id, policy_set_id, version) VALUES (1, 1, 2, 1)`, "cd_rollout_policies_version"},
		{"a verdict that does not exist", `INSERT INTO cd_policy_decisions (organization_id, rollout_id, gate_id, verdict, decision, request) VALUES (1, 1, '', 'maybe', '{}', '{}')`, "cd_policy_decisions_verdict_is_known"},
		{"a veto of nothing", `INSERT INTO cd_vetoes (organization_id, reason, principal_type, principal_id, principal_name) VALUES (1, 'x', 'user', 1, 'a')`, "cd_vetoes_subject_is_one"},
		{"a second veto of a version", `INSERT INTO cd_vetoes (organization_id, version_id, reason, principal_type, principal_id, principal_name) VALUES (1, 1, 'y', 'user', 1, 'a')`, "cd_vetoes_of_version"},
		{"a machine that bypasses a freeze", `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type, principal_id, reason) VALUES (1, 1, 'pending', 'pending', 'bypass_freeze', 'agent', 1, 'x')`, "cd_rollout_transitions_person_bypasses"},
		{"a bypass without a reason", `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type, principal_id, reason) VALUES (1, 1, 'pending', 'pending', 'bypass_freeze', 'user', 1, '')`, "cd_rollout_transitions_person_bypasses"},
		// R5: organizations
		{"an application of nobody", `INSERT INTO cd_applications (organization_id, name) VALUES (9, 'x')`, "cd_applications_organization"},
		{
			"a service of another organization's application",
			`INSERT INTO cd_services (organization_id, application_id, name) VALUES (2, 1, 'web')`, "cd_services_application",
		},
		{
			"a binding of another organization's environment",
			`INSERT INTO cd_environment_driver_bindings (organization_id, environment_id, version, driver_ref, driver_config) VALUES (2, 1, 2, 'p@1', '{}')`, "cd_environment_driver_bindings_environment",
		},
		// R8 to R10: versions and sets
		{"a digest twice on a source", `INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at) VALUES (1, 1, '2.0', 'sha256:a', 'r', now())`, "cd_versions_digest_is_unique"},
		{"a version that changes", `UPDATE cd_versions SET digest = 'sha256:z' WHERE id = 1`, "cd_versions_are_immutable"},
		{"a version that goes", `DELETE FROM cd_versions WHERE id = 2`, "cd_versions_are_immutable"},
		{"the same entries twice", `INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count) VALUES (1, 1, 'set-2', 'd1', 1)`, "cd_version_sets_entries_are_unique"},
		{"a set without its entries", `INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count) VALUES (1, 1, 'set-2', 'd3', 1)`, "cd_version_sets_is_whole"},
		{"an entry added later", entry + `(1, 1, 3, 2, 2)`, "cd_version_sets_is_whole"},
		{"two versions of a source in a set", entry + `(1, 1, 2, 1, 1)`, "cd_version_set_entries_one_version_per_source"},
		{"an entry with another source's version", entry + `(1, 2, 3, 1, 1)`, "cd_version_set_entries_version_of_source"},
		{"an entry with another service's source", entry + `(1, 1, 3, 2, 1)`, "cd_version_set_entries_source_of_service"},
		{"a set that changes", `UPDATE cd_version_sets SET name = 'x' WHERE id = 1`, "cd_version_sets_are_immutable"},
		{"an entry that goes", `DELETE FROM cd_version_set_entries WHERE id = 1`, "cd_version_set_entries_are_immutable"},
		// R12, R13: append-only
		{"a binding version twice", `INSERT INTO cd_environment_driver_bindings (organization_id, environment_id, version, driver_ref, driver_config) VALUES (1, 1, 1, 'p@1', '{}')`, "cd_environment_driver_bindings_version_is_unique"},
		{
			"a binding that changes", `UPDATE cd_environment_driver_bindings SET driver_config = '{"a":1}' WHERE id = 1`,
			"cd_environment_driver_bindings_are_append_only",
		},
		{"a binding that goes", `DELETE FROM cd_environment_driver_bindings WHERE id = 2`, "cd_environment_driver_bindings_are_append_only"},
		{"a pipeline version twice", `INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition) VALUES (1, 1, 1, '{}')`, "cd_application_flow_definitions_version_is_unique"},
		{
			"a pipeline that changes", `UPDATE cd_application_flow_definitions SET definition = 'x' WHERE id = 1`,
			"cd_application_flow_definitions_are_append_only",
		},
		{"an artifact without drivers", `INSERT INTO driver_artifacts (digest, drivers, content) VALUES ('sha256:' || repeat('a', 64), '{}', 'x')`, "driver_artifacts_have_drivers"},
		{
			"an artifact without a digest", `INSERT INTO driver_artifacts (digest, drivers, content) VALUES ('latest', '{p@1}', 'x')`,
			"driver_artifacts_digest_is_sha256",
		},
		{"an artifact that changes", `UPDATE driver_artifacts SET content = 'y'`, "driver_artifacts_are_immutable"},
		{"an artifact that goes", `DELETE FROM driver_artifacts`, "driver_artifacts_are_immutable"},
		{"the name of an artifact that goes", `DELETE FROM driver_artifact_names`, "driver_artifact_names_are_kept"},
		{"the name of no artifact", `INSERT INTO driver_artifact_names (reference, digest, asked_at) VALUES ('oci://r.example.com/a:1', 'sha256:none', now())`, "driver_artifact_names_artifact"},
		{"a bundle that changes", `UPDATE cd_driver_bundles SET content = 'y'`, "cd_driver_bundles_are_immutable"},
		{"a bundle in use that goes", `DELETE FROM cd_driver_bundles`, "cd_rollout_environments_driver_bundle"},
		// R14: one active rollout
		{"a second active rollout", rolloutOf + `(1, 1, 1, 1, 'pending', NULL)`, "cd_rollouts_one_active_per_application"},
		{"a second, paused one", rolloutOf + `(1, 1, 1, 1, 'paused', NULL)`, "cd_rollouts_one_active_per_application"},
		{"a rollout of another application's set", rolloutOf + `(1, 1, 2, 1, 'completed', now())`, "cd_rollouts_version_set"},
		{"a rollout by another application's pipeline", rolloutOf + `(1, 2, 2, 1, 'pending', NULL)`, "cd_rollouts_flow_definition"},
		{"an unknown state", `UPDATE cd_rollouts SET state = 'lost'`, "cd_rollouts_state_is_known"},
		{"an end without its time", `UPDATE cd_rollouts SET state = 'completed'`, "cd_rollouts_finished_when_ended"},
		{"an unknown strategy", planned + `'slow', 'x')`, "cd_rollouts_strategy_is_known"},
		{"a strategy without a reason", planned + `'quick', '')`, "cd_rollouts_strategy_has_a_reason"},
		{"inputs that are no object", `INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id, inputs) VALUES (1, 1, 1, 1, '[]')`, "cd_rollouts_inputs_are_an_object"},
		{"inputs that change", `UPDATE cd_rollouts SET inputs = '{"a":1}'`, "cd_rollouts_pins_are_immutable"},
		{"inputs in the queue that are no object", `INSERT INTO cd_queued_rollouts (organization_id, application_id, version_set_id, principal_type, reason, requested_at, inputs)
			VALUES (1, 1, 1, 'user', '', now(), '[]')`, "cd_queued_rollouts_inputs_are_an_object"},
		{"a strategy that changes", `UPDATE cd_rollouts SET strategy = 'quick', strategy_reason = 'x'`, "cd_rollouts_pins_are_immutable"},
		{"an unknown choice", `INSERT INTO cd_queued_rollouts (organization_id, application_id, version_set_id, principal_type, reason, requested_at, strategy)
			VALUES (1, 1, 1, 'user', '', now(), 'slow')`, "cd_queued_rollouts_strategy_is_known"},
		{"a message without an end", `INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at, commit_message)
			VALUES (1, 1, '1.2', 'sha256:c', 'r', now(), repeat('x', 4097))`, "cd_versions_commit_message_is_bounded"},
		{"a target that changes", `UPDATE cd_rollouts SET version_set_id = 2`, "cd_rollouts_pins_are_immutable"},
		{"a rollout that goes", `DELETE FROM cd_rollouts`, "cd_rollouts_are_kept"},
		{"a failed rollout that continues", `UPDATE cd_rollouts SET state = 'failed', finished_at = now(); UPDATE cd_rollouts SET state = 'in_progress', finished_at = NULL`, "cd_rollouts_ended_is_final"},
		// R15, R16
		{"an environment twice in a rollout", stop + `(1, 1, 1, 2, 1, 'sha256:driver', NULL)`, "cd_rollout_environments_environment_is_unique"},
		{"a position twice", stop + `(1, 1, 2, 1, 2, 'sha256:driver', NULL)`, "cd_rollout_environments_position_is_unique"},
		{"another environment's binding", stop + `(1, 1, 2, 2, 1, 'sha256:driver', NULL)`, "cd_rollout_environments_driver_binding"},
		{"a bundle that nobody kept", stop + `(1, 1, 2, 2, 2, 'sha256:other', NULL)`, "cd_rollout_environments_driver_bundle"},
		{"a previous set that does not exist", stop + `(1, 1, 2, 2, 2, 'sha256:driver', 99)`, "cd_rollout_environments_previous_version_set"},
		{"a binding pinned anew", `UPDATE cd_rollout_environments SET driver_binding_id = 2`, "cd_rollout_environments_pins_are_immutable"},
		{"a service twice in an environment", `INSERT INTO cd_deployments (organization_id, rollout_environment_id, service_id) VALUES (1, 1, 1)`, "cd_deployments_service_is_unique"},
		{
			"a healthy deployment that degrades", `UPDATE cd_deployments SET state = 'healthy', finished_at = now(); UPDATE cd_deployments SET state = 'degraded'`,
			"cd_deployments_ended_is_final",
		},
		{"a snapshot that changes", `UPDATE cd_deployment_snapshots SET commit_sha = 'x'`, "cd_deployment_snapshots_are_immutable"},
		{"a second proposal", `INSERT INTO cd_rollout_proposals (organization_id, rollout_id, environment_id, repository, branch, number, head, state, ended_head, ended_by, ended_by_id, reported_at) VALUES (1, 1, 1, 'https://git/y', 'main', 2, '', 'open', '', '', 0, now())`, "cd_rollout_proposals_one_per_environment"},
		{"a proposal in no state", `UPDATE cd_rollout_proposals SET state = 'x'`, "cd_rollout_proposals_state_is_known"},
		{"a proposal of no repository", `UPDATE cd_rollout_proposals SET repository = ''`, "cd_rollout_proposals_repository_is_bounded"},
		{"a proposal for a long branch", `UPDATE cd_rollout_proposals SET branch = repeat('x', 256)`, "cd_rollout_proposals_branch_is_bounded"},
		{"a proposal before the first", `UPDATE cd_rollout_proposals SET number = -1`, "cd_rollout_proposals_number_counts"},
		{"a proposal ended by a long name", `UPDATE cd_rollout_proposals SET ended_by = repeat('x', 256)`, "cd_rollout_proposals_name_is_bounded"},
		{"a proposal merged into a long branch", `UPDATE cd_rollout_proposals SET state = 'merged', ended_branch = repeat('x', 256)`, "cd_rollout_proposals_ended_branch_is_bounded"},
		{"a long answer to a merge", `UPDATE cd_rollout_proposals SET state = 'merged', answer = repeat('x', 1001)`, "cd_rollout_proposals_answer_is_bounded"},
		{"a long reason why a merge is not shown", `UPDATE cd_rollout_proposals SET state = 'merged', unshown = repeat('x', 256)`, "cd_rollout_proposals_unshown_is_bounded"},
		{"a proposal ended by no user", `UPDATE cd_rollout_proposals SET ended_by_id = -1`, "cd_rollout_proposals_user_counts"},
		{"a proposal of no rollout", `UPDATE cd_rollout_proposals SET rollout_id = 999`, "cd_rollout_proposals_rollout"},
		{"a proposal for no environment", `UPDATE cd_rollout_proposals SET environment_id = 999`, "cd_rollout_proposals_environment"},
		{"a snapshot that goes", `DELETE FROM cd_deployment_snapshots`, "cd_deployment_snapshots_go_as_attempts"},
		{"an attempt that changes", `UPDATE cd_deployment_attempts SET commit_sha = 'x'`, "cd_deployment_attempts_are_append_only"},
		{"an attempt that goes", `DELETE FROM cd_deployment_attempts`, "cd_deployment_attempts_are_append_only"},
		{"attempts that are emptied", `TRUNCATE cd_deployment_attempts`, "cd_deployment_attempts_are_kept"},
		{"an attempt of nothing", `INSERT INTO cd_deployment_attempts (organization_id, deployment_id, commit_sha, manifest_digest, reported_at) VALUES (1, 999, 'a', 'm', now())`, "cd_deployment_attempts_deployment"},
		{"a link that is no page", `INSERT INTO cd_deployment_links (organization_id, deployment_id, name, namespace, url, status) VALUES (1, 1, '#1', '', 'javascript:alert(1)', '')`, "cd_deployment_links_url_is_one"},
		{"a link without a name", `INSERT INTO cd_deployment_links (organization_id, deployment_id, name, namespace, url, status) VALUES (1, 1, '', '', '', '')`, "cd_deployment_links_name_is_given"},
		{"a link of nothing", `INSERT INTO cd_deployment_links (organization_id, deployment_id, name, namespace, url, status) VALUES (1, 999, '#1', '', '', '')`, "cd_deployment_links_deployment"},
		{"a phase that does not exist", `INSERT INTO cd_deployment_links (organization_id, deployment_id, name, namespace, url, status, reported) VALUES (1, 1, '#1', '', '', '', ARRAY['Done'])`, "cd_deployment_links_reported_is_known"},
		{"a second snapshot", `INSERT INTO cd_deployment_snapshots (organization_id, deployment_id, commit_sha, manifest_digest, parameters) VALUES (1, 1, 'd', 'm', '{}')`, "cd_deployment_snapshots_one_per_deployment"},
		// R17
		{"a second health", `INSERT INTO cd_service_environment_healths (organization_id, service_id, environment_id, health, since, observed_at) VALUES (1, 1, 1, 'healthy', now(), now())`, "cd_service_environment_healths_is_unique"},
		{"an unknown health", `UPDATE cd_service_environment_healths SET health = 'sick'`, "cd_service_environment_healths_health_is_known"},
		// R39 to R42: the journals
		{"an archiving of nothing", `INSERT INTO cd_archivings (organization_id, archived, principal_type, principal_id, reason) VALUES (1, true, 'user', 1, '')`, "cd_archivings_are_of_one_thing"},
		{"a journal row that changes", `UPDATE cd_rollout_transitions SET reason = 'x'`, "cd_rollout_transitions_are_append_only"},
		{"a journal row that goes", `DELETE FROM cd_rollout_transitions`, "cd_rollout_transitions_are_append_only"},
		{"a journal that is emptied", `TRUNCATE cd_rollout_transitions`, "cd_rollout_transitions_are_kept"},
		{
			"an environment's journal row that changes", `UPDATE cd_rollout_environment_transitions SET reason = 'x'`,
			"cd_rollout_environment_transitions_are_append_only",
		},
		{
			"a deployment's journal row that changes", `UPDATE cd_deployment_transitions SET reason = 'x'`,
			"cd_deployment_transitions_are_append_only",
		},
		{"a deployment's journal that is emptied", `TRUNCATE cd_deployment_transitions`, "cd_deployment_transitions_are_kept"},
		{"an unknown verb", transition + `(1, 1, 'pending', 'in_progress', 'begin', NULL, 'user')`, "cd_rollout_transitions_verb_is_known"},
		{"an unknown actor", transition + `(1, 1, 'pending', 'in_progress', 'start', NULL, 'robot')`, "cd_rollout_transitions_principal_is_known"},
		{"a leap from pending to completed", transition + `(1, 1, 'pending', 'completed', 'complete', NULL, 'user')`, "cd_rollout_transitions_path_is_legal"},
		{"a way out of a terminal state", transition + `(1, 1, 'failed', 'in_progress', 'start', NULL, 'user')`, "cd_rollout_transitions_path_is_legal"},
		{"a creation into a later state", transition + `(1, 1, NULL, 'in_progress', 'create', NULL, 'user')`, "cd_rollout_transitions_path_is_legal"},
		{"a creation that has a before", transition + `(1, 1, 'pending', 'in_progress', 'create', NULL, 'user')`, "cd_rollout_transitions_creation_is_first"},
		{
			"an approval that changes the state", transition + `(1, 1, 'pending', 'in_progress', 'approve', 'g', 'user')`,
			"cd_rollout_transitions_request_changes_nothing",
		},
		{"an approval of no gate", transition + `(1, 1, 'pending', 'pending', 'approve', NULL, 'user')`, "cd_rollout_transitions_gate_is_named"},
		{"a passage of no gate", transition + `(1, 1, 'in_progress', 'in_progress', 'pass_gate', NULL, 'system')`, "cd_rollout_transitions_gate_is_named"},
		{
			"a passage that changes the state", transition + `(1, 1, 'in_progress', 'paused', 'request_passage', 'g', 'system')`,
			"cd_rollout_transitions_request_changes_nothing",
		},
		{"a start that starts nothing", transition + `(1, 1, 'in_progress', 'in_progress', 'start', NULL, 'system')`, "cd_rollout_transitions_request_changes_nothing"},
		{"a pause of what is over", transition + `(1, 1, 'failed', 'failed', 'pause', NULL, 'user')`, "cd_rollout_transitions_terminal_asks_nothing"},
		{"a state that no rollout has", transition + `(1, 1, 'late', 'late', 'reach_gate', 'g', 'system')`, "cd_rollout_transitions_state_is_known"},
		{"a leap of a deployment", `INSERT INTO cd_deployment_transitions (organization_id, deployment_id, from_state, to_state, event, principal_type) VALUES (1, 1, 'pending', 'healthy', 'complete', 'system')`, "cd_deployment_transitions_path_is_legal"},
		{"a gate that nobody names", `INSERT INTO cd_deployment_transitions (organization_id, deployment_id, from_state, to_state, event, principal_type) VALUES (1, 1, 'deploying', 'deploying', 'reach_gate', 'system')`, "cd_deployment_transitions_gate_is_named"},
		{"a gate passed before the start", `INSERT INTO cd_deployment_transitions (organization_id, deployment_id, from_state, to_state, event, gate_id, principal_type) VALUES (1, 1, 'pending', 'pending', 'pass_gate', 'staging/25', 'system')`, "cd_deployment_transitions_path_is_legal"},
		{"another organization's journal row", transition + `(2, 1, 'pending', 'in_progress', 'start', NULL, 'user')`, "cd_rollout_transitions_subject"},
		// E74, D13
		{
			"a policy that waits for less than nothing",
			`INSERT INTO cd_application_policies (organization_id, application_id, rollback_on_failed, rollback_on_degraded, degraded_after_seconds) VALUES (1, 1, true, true, -1)`, "cd_application_policies_wait_is_bounded",
		},
		{
			"another organization's application's policy",
			`INSERT INTO cd_application_policies (organization_id, application_id, rollback_on_failed, rollback_on_degraded, degraded_after_seconds) VALUES (2, 1, true, true, 0)`, "cd_application_policies_application",
		},
		{
			"a rollback that is done and made nothing",
			`INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at, state) VALUES (1, 1, 'failed', now(), 'started')`,
			"cd_automatic_rollbacks_started_has_made",
		},
		{
			"a rollback that is dropped without a word",
			`INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at, state) VALUES (1, 1, 'failed', now(), 'dropped')`,
			"cd_automatic_rollbacks_dropped_says_why",
		},
		{"two deadlines of a rollout", `INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, seconds, action, counts_waiting) VALUES (1, 1, 'rollout', 60, 'fail', false)`, "cd_rollout_deadlines_once"},
		{"a deadline without time", `INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, seconds, action, counts_waiting) VALUES (1, 1, 'abort', 0, 'fail', false)`, "cd_rollout_deadlines_seconds_are_bounded"},
		{"a deadline of no environment", `INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, seconds, action, counts_waiting) VALUES (1, 1, 'environment', 60, 'fail', false)`, "cd_rollout_deadlines_environment_has_a_gate"},
		{"a deadline that is due before it runs", `INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, seconds, action, counts_waiting, due_at) VALUES (1, 1, 'abort', 60, 'fail', false, now())`, "cd_rollout_deadlines_runs_before_it_is_due"},
		{"a deadline of another organization's rollout", `INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, seconds, action, counts_waiting) VALUES (2, 1, 'abort', 60, 'fail', false)`, "cd_rollout_deadlines_rollout"},
		{"two automatic rollbacks of a rollout", `INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at) VALUES (1, 1, 'failed', now()), (1, 1, 'degraded', now())`, "cd_automatic_rollbacks_once_per_rollout"},
		{"a failure that is never due", `INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at) VALUES (1, 1, 'failed', NULL)`, "cd_automatic_rollbacks_only_a_clock_stands"},
		{"a clock that stands and is settled", `INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at, state, outcome) VALUES (1, 1, 'degraded', NULL, 'dropped', 'x')`, "cd_automatic_rollbacks_only_a_clock_stands"},
		{
			"another organization's rollout's rollback",
			`INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at) VALUES (2, 1, 'failed', now())`,
			"cd_automatic_rollbacks_rollout",
		},
		// D15 and the hand-over
		{"an unknown tier", `UPDATE cd_environments SET tier = 'moon'`, "cd_environments_tier_is_known"},
		{"an unknown readiness", `UPDATE cd_environments SET readiness = 'maybe'`, "cd_environments_readiness_is_known"},
		{"not ready without a reason", `UPDATE cd_environments SET readiness = 'not_ready'`, "cd_environments_not_ready_has_reason"},
		{
			"not ready without a reason, in an application", `UPDATE cd_application_environments SET readiness = 'not_ready'`,
			"cd_application_environments_not_ready_has_reason",
		},
		{"an application environment twice", `INSERT INTO cd_application_environments (organization_id, application_id, environment_id) VALUES (1, 1, 1)`, "cd_application_environments_is_unique"},
		{
			"an application in another organization's environment",
			`INSERT INTO cd_application_environments (organization_id, application_id, environment_id) VALUES (1, 1, 3)`,
			"cd_application_environments_environment",
		},
		{"a workflow started twice", `INSERT INTO cd_handoffs (organization_id, kind, workflow_id, subject_kind, subject_id, program, driver_digest, inputs, due_at) VALUES (1, 'start', 'rollout-1', 'rollout', 1, 'deploy', 'sha256:driver', '{}', now())`, "cd_handoffs_once_per_workflow"},
		{"a start without a program", `INSERT INTO cd_handoffs (organization_id, kind, workflow_id, subject_kind, subject_id, due_at) VALUES (1, 'start', 'rollout-2', 'rollout', 2, now())`, "cd_handoffs_start_is_complete"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := attempt(t.Context(), pool, tt.sql)
			if err == nil {
				t.Fatalf("the database took it; want it refused by %s", tt.constraint)
			}
			if got := pg.Constraint(err); got != tt.constraint {
				t.Errorf("refused by %q (%v), want %q", got, err, tt.constraint)
			}
		})
	}
}

func TestTheDatabaseTakes(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, sql string }{
		{"a registry with each cloud, and with none, and a key of SSH (D56)", `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version,
			reference, key_id, principal_type, principal_id, principal_name, changed_at, proof)
			SELECT 1, 'proved-' || n, kind, '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), proof::jsonb
			FROM (VALUES (1, 'registry', '{"ecr":{}}'), (2, 'registry', '{"gar":{}}'), (3, 'registry', '{"acr":{}}'), (4, 'registry', '{}'),
				(5, 'git', '{"ssh_key":{}}'), (6, 'git', '{}')) AS t (n, kind, proof)`},
		{"names of another organization", `INSERT INTO cd_environments (organization_id, name, tier) VALUES (2, 'production', 'production')`},
		{"a rollout after one that has ended", `UPDATE cd_rollouts SET state = 'cancelled', finished_at = now();
			INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id) VALUES (1, 1, 1, 1)`},
		{"rollouts of two applications at once (R14)", `INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition) VALUES (1, 2, 1, '{}');
			INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id) VALUES (1, 2, 2, 2)`},
		{
			"a handle stored on a rollout that has ended",
			`UPDATE cd_rollouts SET state = 'cancelled', finished_at = now(); UPDATE cd_rollouts SET workflow_ref = 'r'`,
		},
		{"a set with its entries in one transaction", `INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count) VALUES (1, 1, 'set-2', 'd3', 1);
			INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id) SELECT 1, max(id), 2, 1, 1 FROM cd_version_sets`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := attempt(t.Context(), seeded(t), tt.sql); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEveryTableHasAnOwnerAndTimes asks the database's own catalogue (R5).
func TestEveryTableHasAnOwnerAndTimes(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t, migration())
	rows, err := pool.Query(t.Context(), `
		SELECT t.table_name || '.' || wanted.name FROM information_schema.tables t
		CROSS JOIN (VALUES ('organization_id'), ('created_at'), ('updated_at'), ('id')) AS wanted (name)
		WHERE t.table_schema = current_schema() AND t.table_name LIKE 'cd\_%'
		  AND NOT (t.table_name = 'cd_organizations' AND wanted.name = 'organization_id')
		  AND NOT EXISTS (SELECT FROM information_schema.columns c
			WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = wanted.name AND c.is_nullable = 'NO')`)
	if err != nil {
		t.Fatal(err)
	}
	absent, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(absent) > 0 {
		t.Errorf("columns that are absent or nullable: %q, %v", absent, err)
	}
}
