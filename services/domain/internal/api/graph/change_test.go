package graph_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// recordedElsewhere are the mutations that change no control, with what records them instead.
func recordedElsewhere() map[string]string {
	const rollouts = "the rollouts' journals"
	const twoPeople = "TestAChangeTakesTwoPeople, as they take two people"
	return map[string]string{
		"createRollout": rollouts, "pauseWave": rollouts, "resumeWave": rollouts, "rollbackRollout": rollouts, "pauseRollout": rollouts, "resumeRollout": rollouts, "cancelRollout": rollouts,
		"abortRollout": rollouts, "retryRollout": rollouts, "approveGate": rollouts, "rejectGate": rollouts, "stopAutomaticRollback": rollouts,
		"previewRollout":       "nothing: it deploys nothing and is forgotten after a week",
		"lookAtArtifactSource": "nothing: it polls what is polled anyway",
		"lookUpProvenance":     "nothing: it looks up what is looked up anyway",
		"tryArtifactSource":    "nothing: it keeps nothing",
		"evaluateCheck":        "the runs of the check's program, and what they report",
		"reportCheck":          "the statuses of checks, which are append-only",
		"decideCheck":          "TestAPersonDecidesWhatACheckCannot, as a program has to ask first",
		"answerCall":           "TestPeopleAnswerCalls, as the engine has to ask first",
		"openNotificationLink": "the links of messages that were opened; it decides nothing",
		"sendEvent":            "the decisions of the triggers that it matches",
		"confirmChange":        twoPeople, "rejectChange": twoPeople, "withdrawChange": twoPeople, "forceChange": twoPeople,
	}
}

const canary = "canary-5f1d"

// controls changes every control once, by the API.
func (f *fixture) controls() {
	f.t.Helper()
	f.story()
	do := func(mutation, object string, input map[string]any) string {
		f.t.Helper()
		p := f.change(ours, mutation, object, "id", input)
		if len(p.Errors) > 0 {
			f.t.Fatalf("%s: %+v", mutation, p.Errors)
		}
		return p.Object["id"].(string)
	}
	member := do("createMember", "member", map[string]any{"name": "ann", "role": "VIEWER"})
	do("setMemberRole", "member", map[string]any{"memberId": member, "role": "APPROVER"})
	group := do("createGroup", "group", map[string]any{"name": "release", "members": []string{member}})
	do("setGroupMembers", "group", map[string]any{"groupId": group, "members": []string{}})
	grant := do("grantPermissions", "grant", map[string]any{
		"memberId": member, "permissions": []string{"DEPLOY"}, "tiers": []string{"STAGING"}, "reason": "on call",
	})
	do("revokeGrant", "grant", map[string]any{"grantId": grant})
	token := do("createToken", "accessToken", map[string]any{"name": "laptop", "memberId": member})
	do("revokeToken", "accessToken", map[string]any{"tokenId": token})
	do("removeMember", "member", map[string]any{"memberId": member})
	agent := do("registerAgent", "agent", map[string]any{"name": "edge"})
	do("setAgentLabels", "agent", map[string]any{"agentId": agent, "set": map[string]any{"region": "eu"}})
	do("rotateAgent", "agent", map[string]any{"agentId": agent})
	do("revokeAgentKey", "agent", map[string]any{"keyId": "agentkey_1"})
	do("revokeAgent", "agent", map[string]any{"agentId": agent})
	organization := do("createOrganization", "organization", map[string]any{"name": "books", "owner": "bob"})
	do("renameOrganization", "organization", map[string]any{"organizationId": organization, "name": "library"})
	application := do("createApplication", "application", map[string]any{"name": "idle", "services": []map[string]any{{
		"name": "api", "artifactSources": []map[string]any{{
			"sourceRef":    "oci-image@1",
			"sourceConfig": map[string]any{"image": "r.example.com/idle"},
		}},
	}}})
	do("renameApplication", "application", map[string]any{"application": application, "name": "idler", "reason": "a better one"})
	do("renameApplication", "application", map[string]any{"application": "idler", "name": "idle"})
	do("archiveApplication", "application", map[string]any{"application": application, "reason": "unused"})
	do("restoreApplication", "application", map[string]any{"application": application})
	do("setRollbackPolicy", "application", map[string]any{
		"application": "idle", "onFailed": false, "onDegraded": false,
		"degradedAfterSeconds": 90,
	})
	do("setRolloutPolicy", "application", map[string]any{"application": "idle", "onFailure": "ABORT", "onNewer": "QUEUE"})
	do("putTrigger", "application", map[string]any{"application": "idle", "name": "nightly", "kind": "SCHEDULE", "config": map[string]any{"cron": "@daily"}})
	do("removeTrigger", "application", map[string]any{"application": "idle", "name": "nightly", "reason": "noise"})
	hook := map[string]any{"name": "hook", "kind": "WEBHOOK", "config": map[string]any{"url": "https://hooks.example.com/cd"}}
	notifies := func(mutation, object, key string, input map[string]any) {
		f.t.Helper()
		if p := f.change(ours, mutation, object, key, input); len(p.Errors) > 0 {
			f.t.Fatalf("%s: %+v", mutation, p.Errors)
		}
	}
	notifies("putNotificationChannel", "channel", "name", hook)
	notifies("putNotificationRoute", "route", "name", map[string]any{"name": "all", "channel": "hook"})
	notifies("testNotificationRoute", "route", "name", map[string]any{"name": "all"})
	if _, err := f.owner.Exec(f.t.Context(), `UPDATE cd_notification_messages SET state = 'failed', error = 'refused' WHERE id = 1`); err != nil {
		f.t.Fatal(err)
	}
	notifies("retryNotification", "message", "number", map[string]any{"number": 1})
	notifies("removeNotificationRoute", "route", "name", map[string]any{"name": "all", "reason": "noise"})
	notifies("removeNotificationChannel", "channel", "name", map[string]any{"name": "hook"})
	notifies("putForgeMirror", "mirror", "application", map[string]any{"application": "idle", "credential": "git", "reason": "statuses"})
	notifies("retryForgeStatuses", "retried", "count", map[string]any{"reason": "the token was replaced"})
	notifies("addForgeHook", "made", "path", map[string]any{"forge": "GITHUB", "repositories": []string{"github.com/shop/*"}, "reason": "e2e"})
	notifies("removeForgeHook", "hook", "number", map[string]any{"number": 1, "reason": "moved"})
	notifies("addForgeHook", "made", "path", map[string]any{"forge": "GITHUB", "repositories": []string{"github.com/shop/*"}, "commands": true})
	notifies("linkChatAccount", "account", "user", map[string]any{"token": f.pressed()})
	notifies("unlinkChatAccount", "account", "user", map[string]any{"number": 1, "reason": "moved"})
	if _, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at)
		SELECT organization_id, 'forge', 'github.com/hook_2', '42', 'ann', member_id, key_digest, now() FROM cd_chat_accounts WHERE id = 1`); err != nil {
		f.t.Fatal(err)
	}
	notifies("makeForgeAccountCode", "made", "account", map[string]any{"hook": 2, "account": "ann"})
	notifies("unlinkForgeAccount", "account", "user", map[string]any{"number": 2, "reason": "moved"})
	notifies("putNotificationChannel", "channel", "name", map[string]any{
		"name": "mail", "kind": "EMAIL", "config": map[string]any{"url": "smtps://mail.example.com", "from": "cd@example.com", "personal": true},
	})
	notifies("putMyNotification", "subscription", "name", map[string]any{"name": "mine", "channel": "mail"})
	if _, err := f.owner.Exec(f.t.Context(), `UPDATE cd_notification_messages SET member_id = (SELECT member_id FROM cd_notification_subscriptions WHERE organization_id = $1),
		state = 'failed', error = 'refused' WHERE id = 1`, ours); err != nil {
		f.t.Fatal(err)
	}
	notifies("retryMyNotification", "message", "number", map[string]any{"number": 1})
	notifies("removeMyNotification", "subscription", "name", map[string]any{"name": "mine"})
	notifies("createFeed", "feed", "name", map[string]any{"name": "office", "kind": "FREEZES"})
	notifies("revokeFeed", "feed", "name", map[string]any{"name": "office", "reason": "got around"})
	notifies("setBadges", "badges", "application", map[string]any{"application": "shop", "enabled": true})
	notifies("createCredential", "credential", "name", map[string]any{
		"name": "api", "kind": "HTTP", "urlPrefixes": []string{"https://api.example.com/"}, "value": "hunter2",
	})
	notifies("rotateCredential", "credential", "name", map[string]any{"name": "api", "value": "hunter3"})
	notifies("revokeCredential", "credential", "name", map[string]any{"name": "api", "reason": "leaked"})
	if _, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_promotion_holds (organization_id, application_id, environment_id, rollout_id, since)
		SELECT $1, r.application_id, e.environment_id, r.id, now() FROM cd_rollouts r JOIN cd_rollout_environments e ON e.rollout_id = r.id
		WHERE r.id = 2 ORDER BY e.position LIMIT 1`, ours); err != nil {
		f.t.Fatal(err)
	}
	do("releasePromotionHold", "application", map[string]any{"application": "shop", "environment": "staging"})
	do("cancelQueuedRollout", "queuedRollout", map[string]any{"queuedRolloutId": f.queued(), "reason": "wrong version"})
	do("cancelChain", "chain", map[string]any{"chainId": f.chained(), "reason": "wrong version"})
	environment := do("createEnvironment", "environment", map[string]any{
		"name": "lab", "tier": "DEVELOPMENT", "driverRef": "argo-rollouts@1",
		"driverConfig": map[string]any{"cluster_agent_id": f.clusterOf(ours)},
	})
	do("updateEnvironment", "environment", map[string]any{"environmentId": environment, "description": "bench", "reason": "audit"})
	do("setLabels", "environment", map[string]any{"subjectId": environment, "set": map[string]any{"region": "eu"}, "reason": "audit"})
	do("setDetails", "environment", map[string]any{"subjectId": environment, "owner": "platform"})
	do("renameEnvironment", "environment", map[string]any{"environmentId": environment, "displayName": "bench", "reason": "as we call it"})
	do("setEnvironmentApproval", "environment", map[string]any{"environmentId": environment, "approval": map[string]any{"quorum": 1}})
	do("setEnvironmentApproval", "environment", map[string]any{"environmentId": environment})
	do("setEnvironmentChecks", "environment", map[string]any{"environmentId": environment, "checks": map[string]any{"active": []any{map[string]any{"key": "soak"}}}})
	do("setEnvironmentChecks", "environment", map[string]any{"environmentId": environment})
	do("setDirectChanges", "environment", map[string]any{"environmentId": environment, "allowed": true, "reason": "nightly"})
	do("retryEnvironmentOnboarding", "environment", map[string]any{"environmentId": environment})
	f.apply(ours, rollout.EnvironmentReadiness{EnvironmentID: numberOf(environment), Ready: true})
	do("createFlowDefinition", "flowDefinition", map[string]any{"application": "idle", "definition": deployTo("lab", shopConfig())})
	all := must(f.view.ApplicationEnvironmentsByApplication(f.t.Context(), ours, []int64{numberOf(application)}))(f.t)
	f.apply(ours, rollout.ApplicationEnvironmentReadiness{ApplicationEnvironmentID: all[numberOf(application)][0].ID, Ready: true})
	do("retryApplicationEnvironmentSetup", "applicationEnvironment",
		map[string]any{"applicationEnvironmentId": fmt.Sprintf("applicationenvironment_%d", all[numberOf(application)][0].ID)})
	do("archiveEnvironment", "environment", map[string]any{"environmentId": environment, "reason": "unused"})
	do("restoreEnvironment", "environment", map[string]any{"environmentId": environment})
	source := do("createArtifactSource", "artifactSource", map[string]any{
		"serviceId": "service_1", "sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": "r.example.com/another"},
	})
	do("setArtifactSourceConfig", "artifactSource", map[string]any{
		"artifactSourceId": source, "sourceConfig": map[string]any{"image": "r.example.com/another", "allow_tags": "^v"},
	})
	do("disableArtifactSource", "artifactSource", map[string]any{"artifactSourceId": source, "reason": "noise"})
	do("enableArtifactSource", "artifactSource", map[string]any{"artifactSourceId": source})
	replacement := do("replaceArtifactSource", "artifactSource", map[string]any{
		"artifactSourceId": source, "sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": "r.example.com/moved"},
	})
	do("removeArtifactSource", "artifactSource", map[string]any{"artifactSourceId": replacement, "reason": "unused"})
	service := do("addService", "service", map[string]any{"application": "idle", "name": "worker", "artifactSources": []map[string]any{{
		"sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": "r.example.com/worker"},
	}}})
	do("renameService", "service", map[string]any{"serviceId": service, "displayName": "jobs"})
	do("retireService", "service", map[string]any{"serviceId": service, "reason": "merged"})
	do("restoreService", "service", map[string]any{"serviceId": service})
	do("createVersionSet", "versionSet", map[string]any{"application": "shop", "fromVersionSetId": "versionset_1", "name": "2.0", "reason": "audit"})
	end := func(hours time.Duration) string {
		return time.Now().Add(hours * time.Hour).UTC().Format(time.RFC3339)
	}
	do("pinEnvironment", "environment", map[string]any{"environmentId": environment, "reason": "by hand"})
	do("unpinEnvironment", "environment", map[string]any{"environmentId": environment})
	do("putPolicySet", "policySet", map[string]any{
		"name": "rules", "text": `@id("base") permit (principal, action, resource);`, "reason": "audit",
	})
	veto := do("vetoVersion", "veto", map[string]any{"versionId": "version_1", "reason": "bad"})
	do("liftVeto", "veto", map[string]any{"vetoId": veto, "reason": "fine"})
	do("breakGlass", "rollout", map[string]any{"rolloutId": "rollout_2", "reason": "fire"})
	freeze := do("startFreeze", "freeze", map[string]any{"reason": "audit", "endsAt": end(1)})
	f.apply(ours, rollout.PassageRequested{RolloutID: 2, GateID: "free"})
	do("bypassFreeze", "rollout", map[string]any{"rolloutId": "rollout_2", "reason": "fire"})
	do("extendFreeze", "freeze", map[string]any{"freezeId": freeze, "endsAt": end(2)})
	do("endFreeze", "freeze", map[string]any{"freezeId": freeze})
	for mutation, id := range map[string]string{"retryWorkflow": "environment-3-1", "cancelWorkflow": "rollout-2"} {
		if p := f.change(ours, mutation, "workflow", "workflowId", map[string]any{"workflowId": id, "reason": "stuck"}); len(p.Errors) > 0 {
			f.t.Fatalf("%s: %+v", mutation, p.Errors)
		}
	}
	var reconciled struct {
		It struct {
			Settled bool
			Errors  []userError
		}
	}
	f.ask(ours, `mutation($since: Time!) { it: reconcileRecord(input: {since: $since, kind: "commit_unknown", subject: "`+strings.Repeat("a", 40)+`"}) {
		settled errors { code message field } } }`, map[string]any{"since": time.Now().UTC().Format(time.RFC3339)}).into(f.t, &reconciled)
	if !reconciled.It.Settled || len(reconciled.It.Errors) > 0 {
		f.t.Fatalf("reconcileRecord: %+v", reconciled)
	}
	for mutation, input := range map[string]string{
		"setRetention": `{kind: "requests", keepDays: 30, reason: "audit"}`, "setLegalHold": `{on: true, reason: "case 7"}`,
	} {
		var data struct{ It struct{ Errors []userError } }
		f.ask(ours, `mutation { it: `+mutation+`(input: `+input+`) { retention { legalHold rules { kind keepDays due } } errors { code message field } } }`,
			nil).into(f.t, &data)
		if len(data.It.Errors) > 0 {
			f.t.Fatalf("%s: %+v", mutation, data.It.Errors)
		}
	}
	for _, mutation := range []string{"pauseWorkflowSchedule", "resumeWorkflowSchedule", "triggerWorkflowSchedule"} {
		var data struct{ It struct{ Errors []userError } }
		f.ask(ours, `mutation { it: `+mutation+`(input: {name: "nightly", reason: "stuck"}) { errors { code message field } } }`, nil).into(f.t, &data)
		if len(data.It.Errors) > 0 {
			f.t.Fatalf("%s: %+v", mutation, data.It.Errors)
		}
	}
	for mutation, input := range map[string]string{
		"registerWorkflowSchedule": `name: "nightly", cron: ["0 3 * * *"], program: "x = 1", reason: "new"`,
		"backfillWorkflowSchedule": `name: "nightly", from: "2026-11-01T00:00:00Z", to: "2026-11-03T00:00:00Z", overlap: ALLOW, reason: "missed"`,
		"deleteWorkflowSchedule":   `name: "nightly", reason: "done"`,
	} {
		var data struct{ It struct{ Errors []userError } }
		f.ask(ours, `mutation { it: `+mutation+`(input: {`+input+`}) { errors { code message field } } }`, nil).into(f.t, &data)
		if len(data.It.Errors) > 0 {
			f.t.Fatalf("%s: %+v", mutation, data.It.Errors)
		}
	}
	// Change control takes two people, who are not what is tested here.
	if _, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_members (organization_id, name, kind, role)
		VALUES ($1, 'first', 'user', 'owner'), ($1, 'second', 'user', 'owner')`, ours); err != nil {
		f.t.Fatal(err)
	}
	controlled := do("createEnvironment", "environment", map[string]any{
		"name": "controlled", "tier": "QA", "driverRef": "argo-rollouts@1", "driverConfig": map[string]any{"cluster_agent_id": f.clusterOf(ours)},
	})
	do("setChangeControl", "environment", map[string]any{"environmentId": controlled, "on": true, "reason": "audited"})
}

// TestEveryMutationIsOnRecord goes through the schema: a mutation leaves a row in the journal of changes, or is listed with what records it
// (D50).
func TestEveryMutationIsOnRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.controls()
	rows, err := f.owner.Query(t.Context(), `SELECT action, count(*) FROM cd_changes
		WHERE organization_id = $1 AND principal_type = 'user' AND principal_id = 7 AND principal_name <> '' AND (before IS NOT NULL OR after IS NOT NULL) GROUP BY action`, ours)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	recorded := map[string]int{}
	for rows.Next() {
		var action string
		var n int
		if err := rows.Scan(&action, &n); err != nil {
			t.Fatal(err)
		}
		recorded[action] = n
	}
	elsewhere := recordedElsewhere()
	for _, m := range schemaOf(t).Mutation.Fields {
		_, listed := elsewhere[m.Name]
		switch {
		case listed && recorded[m.Name] > 0:
			t.Errorf("%s is in the journal of changes, and listed as recorded elsewhere", m.Name)
		case !listed && recorded[m.Name] == 0:
			t.Errorf("%s leaves no row in the journal of changes: record it, add it to controls, or list what records it", m.Name)
		}
		delete(elsewhere, m.Name)
	}
	if len(elsewhere) > 0 {
		t.Errorf("listed, and not in the schema: %v", elsewhere)
	}
}

func TestTheJournalOfChangesKeepsBeforeAndAfter(t *testing.T) { // D50
	t.Parallel()
	f := newFixture(t)
	f.controls()
	for action, want := range map[string]string{
		"setMemberRole":              `{"role": "viewer"} {"role": "approver"} - -`,
		"setRollbackPolicy":          `{"in_full": false, "on_failed": true, "on_degraded": true, "degraded_after": 1800} {"in_full": false, "on_failed": false, "on_degraded": false, "degraded_after": 90} idle -`,
		"archiveApplication":         `{"archived": false} {"archived": true} idle - unused`,
		"renameApplication":          `{"name": "idle"} {"name": "idler"} idle - a better one`,
		"renameEnvironment":          `{"display_name": "lab"} {"display_name": "bench"} - lab as we call it`,
		"renameOrganization":         `{"name": "books"} {"name": "library"} - -`,
		"retryEnvironmentOnboarding": `{"reason": "being onboarded", "attempt": 1, "readiness": "pending"} {"reason": "being onboarded", "attempt": 2, "readiness": "pending"} - lab`,
		"setGroupMembers":            `{"members": ["ann"]} {"members": []} - -`,
	} {
		var got string
		err := f.owner.QueryRow(t.Context(), `SELECT concat_ws(' ', c.before::text, c.after::text, COALESCE(a.name, '-'), COALESCE(e.name, '-'), NULLIF(c.reason, '')) FROM cd_changes c
			LEFT JOIN cd_applications a ON a.id = c.application_id LEFT JOIN cd_environments e ON e.id = c.environment_id
			WHERE c.action = $1 AND c.organization_id = $2 ORDER BY c.id LIMIT 1`, action, ours).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s: found %s, %v\nwant %s", action, got, err, want)
		}
	}
	// An approval that is taken away has a before, and no after.
	var removed int
	err := f.owner.QueryRow(t.Context(), `SELECT count(*) FROM cd_changes WHERE action = 'setEnvironmentApproval' AND before ->> 'quorum' = '1' AND after IS NULL`).Scan(&removed)
	if err != nil || removed != 1 {
		t.Errorf("approvals taken away: %d, %v; want 1", removed, err)
	}
}

func TestNoSecretIsInTheJournalOfChanges(t *testing.T) { // D27, D50
	t.Parallel()
	f := newFixture(t)
	_, secret, err := f.access.CreateToken(t.Context(), actor(ours), access.NewToken{
		MemberID: must(f.access.CreateMember(t.Context(), actor(ours),
			access.NewMember{Name: "ci", Kind: core.PrincipalAgent, Role: core.RoleDeployer}))(t).ID,
		Name: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	_, seed, err := f.access.RegisterAgent(t.Context(), actor(ours), "edge")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{
		map[string]any{"password": canary, "nested": []any{map[string]any{"apiKey": canary, "url": "https://user:" + canary + "@host/x"}}},
		map[string]any{"note": "the token is lockstep_" + strings.Repeat("CANARYAB", 3) + " there", "agent": seed},
		map[string]any{"credential": "vault:team/git#token", "clientSecret": canary},
	} {
		err := f.store.ForAccess().In(t.Context(), ours, func(ctx context.Context, tx access.Tx) error {
			return core.Record(ctx, tx, actor(ours), core.Change{
				Action:  "createEnvironment",
				Subject: core.AccessSubject{Kind: core.ChangedEnvironment, ID: 1},
			}, v, v)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var kept string
	if err := f.owner.QueryRow(t.Context(), `SELECT string_agg(c::text, ' ') FROM cd_changes c`).Scan(&kept); err != nil {
		t.Fatal(err)
	}
	for _, one := range []string{canary, "CANARYAB", secret, seed} {
		if strings.Contains(kept, one) {
			t.Errorf("the journal of changes has the secret %q: %s", one, kept)
		}
	}
	if !strings.Contains(kept, "vault:team/git#token") {
		t.Error("a reference to a secret was removed; want it kept")
	}
}
