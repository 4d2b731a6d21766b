package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func contract(t *testing.T) *ast.Schema {
	t.Helper()
	files, err := filepath.Glob("../../../services/domain/internal/api/graph/schema/*.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	var sources []*ast.Source
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, &ast.Source{Name: file, Input: string(text)})
	}
	schema, err := gqlparser.LoadSchema(sources...)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestEveryDocumentIsOneOfTheSchema sends every document to a server that only checks it against the contract.
func TestEveryDocumentIsOneOfTheSchema(t *testing.T) {
	t.Parallel()
	schema, checked := contract(t), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request struct{ Query string }
		if err := json.Unmarshal(body, &request); err != nil {
			t.Errorf("request: %v", err)
		}
		if _, errs := gqlparser.LoadQueryWithRules(schema, request.Query, nil); len(errs) > 0 {
			t.Errorf("%s\n%v", request.Query, errs)
		}
		checked++
		_, _ = io.WriteString(w, `{"data":{}}`)
	}))
	t.Cleanup(server.Close)
	c, ctx := client.New(client.Config{Endpoint: server.URL}), t.Context()
	calls := []func() error{
		func() error { _, err := c.Applications(ctx); return err },
		func() error { _, err := c.Application(ctx, "shop"); return err },
		func() error { _, err := c.VersionSets(ctx, "shop", 1); return err },
		func() error { _, err := c.NewestVersionSet(ctx, "shop"); return err },
		func() error { _, err := c.SourceVersions(ctx, "artifactsource_1", 1); return err },
		func() error { _, err := c.DeliveryMetrics(ctx, "shop", "", time.Time{}, time.Time{}); return err },
		func() error { _, err := c.VersionSet(ctx, "versionset_1"); return err },
		func() error { _, err := c.Environments(ctx); return err },
		func() error { _, err := c.Environment(ctx, "staging"); return err },
		func() error { _, err := c.Drifts(ctx, "staging"); return err },
		func() error { _, err := c.Rollouts(ctx, client.Filter{}); return err },
		func() error { _, err := c.Rollout(ctx, "rollout_1"); return err },
		func() error { _, err := c.RolloutWithCauses(ctx, "rollout_1"); return err },
		func() error { _, err := c.PreviewRollout(ctx, "versionset_1"); return err },
		func() error { _, err := c.Preview(ctx, "preview_1"); return err },
		func() error { _, err := c.Printed(ctx, "rollout_1"); return err },
		func() error { _, err := c.CreateApplication(ctx, "shop", "", nil); return err },
		func() error { _, err := c.CreateEnvironment(ctx, client.EnvironmentInput{}); return err },
		func() error { _, err := c.CreateFlowDefinition(ctx, "shop", nil); return err },
		func() error { _, err := c.FlowDefinition(ctx, "shop"); return err },
		func() error { _, err := c.Sources(ctx, "shop"); return err },
		func() error { _, err := c.Drivers(ctx); return err },
		func() error { _, err := c.DriverSchemas(ctx); return err },
		func() error { _, err := c.SourceKinds(ctx); return err },
		func() error { _, err := c.CreateSource(ctx, "service_1", "git@1", nil); return err },
		func() error { _, err := c.SetSourceConfig(ctx, "artifactsource_1", nil); return err },
		func() error { _, err := c.DisableSource(ctx, "artifactsource_1", ""); return err },
		func() error { _, err := c.EnableSource(ctx, "artifactsource_1", ""); return err },
		func() error { _, err := c.RemoveSource(ctx, "artifactsource_1", ""); return err },
		func() error { _, err := c.ReplaceSource(ctx, "artifactsource_1", "git@1", nil, ""); return err },
		func() error { _, err := c.AddService(ctx, "shop", "api", "", nil, ""); return err },
		func() error { _, err := c.RetireService(ctx, "service_1", ""); return err },
		func() error { _, err := c.RestoreService(ctx, "service_1", ""); return err },
		func() error {
			_, err := c.CreateVersionSet(ctx, client.NewVersionSet{Application: "shop", From: "versionset_1", Versions: []client.ChosenVersion{{Service: "api", Version: "1"}}})
			return err
		},
		func() error { _, err := c.LookAtSource(ctx, "artifactsource_1"); return err },
		func() error { _, err := c.TrySource(ctx, "git@1", nil); return err },
		func() error {
			_, err := c.CreateRollout(ctx, client.NewRollout{VersionSet: "versionset_1", Strategy: "QUICK"})
			return err
		},
		func() error { _, err := c.ApproveGate(ctx, "rollout_1", "release", ""); return err },
		func() error { _, err := c.RejectGate(ctx, "rollout_1", "release", ""); return err },
		func() error { _, err := c.CancelRollout(ctx, "rollout_1", ""); return err },
		func() error { _, err := c.CancelThen(ctx, "rollout_1", "ROLLBACK", ""); return err },
		func() error { _, err := c.SetRollbackPolicy(ctx, "shop", client.RollbackPolicy{}); return err },
		func() error { _, err := c.PauseRollout(ctx, "rollout_1", ""); return err },
		func() error { _, err := c.PauseWave(ctx, client.Wave{Rollout: "rollout_1"}); return err },
		func() error { _, err := c.ResumeWave(ctx, client.Wave{Rollout: "rollout_1"}); return err },
		func() error { _, err := c.SetAgentLabels(ctx, "agent_1", map[string]string{"a": "b"}); return err },
		func() error { _, err := c.InstallationPolicies(ctx); return err },
		func() error {
			owner := "payments"
			d := client.Details{Subject: "application_1", Owner: &owner, SetLabels: map[string]string{"a": "b"}}
			_, err := client.SetDetails[client.Application](ctx, c, d)
			d.Owner = nil
			_, failed := client.SetDetails[client.Environment](ctx, c, d)
			_, wrong := client.SetDetails[client.Service](ctx, c, d)
			return errors.Join(err, failed, wrong)
		},
		func() error {
			_, err := c.Targets(ctx, client.TargetFilter{Rollout: "rollout_1", Environment: "edge", State: "FAILED"})
			return err
		},
		func() error { _, err := c.ResumeRollout(ctx, "rollout_1", ""); return err },
		func() error { _, err := c.BreakGlass(ctx, "rollout_1", "down"); return err },
		func() error { _, err := c.StopAutomaticRollback(ctx, "rollout_1", ""); return err },
		func() error {
			_, err := c.RollbackRollout(ctx, "rollout_1", client.RollbackInput{VersionSet: "versionset_1"})
			return err
		},
		func() error { _, err := c.Members(ctx); return err },
		func() error { _, err := c.Self(ctx); return err },
		func() error { _, err := c.Groups(ctx); return err },
		func() error { _, err := c.Viewer(ctx); return err },
		func() error { _, err := c.Organizations(ctx); return err },
		func() error { _, err := c.CreateOrganization(ctx, "books", "alice"); return err },
		func() error { _, err := c.RenameOrganization(ctx, "organization_2", "books"); return err },
		func() error {
			_, err := c.GrantPermissions(ctx, client.GrantInput{Member: "member_1", Permissions: []string{"DEPLOY"}})
			return err
		},
		func() error { _, err := c.ProposedChanges(ctx, true, 1); return err },
		func() error { _, err := c.ProposedChange(ctx, "proposedchange_1"); return err },
		func() error { _, err := c.ConfirmChange(ctx, "proposedchange_1", ""); return err },
		func() error { _, err := c.RejectChange(ctx, "proposedchange_1", ""); return err },
		func() error { _, err := c.WithdrawChange(ctx, "proposedchange_1", ""); return err },
		func() error { _, err := c.ForceChange(ctx, "proposedchange_1", "fire"); return err },
		func() error { _, err := c.RolloutChecks(ctx, "rollout_1"); return err },
		func() error {
			driver, text := "paper@1", "x"
			_, err := c.UpdateEnvironment(ctx, client.EnvironmentChange{
				Environment: "environment_1", Description: &text, DriverRef: &driver, DriverConfig: map[string]any{}, BindingVersion: 1,
			})
			return err
		},
		func() error { _, err := c.SetEnvironmentChecks(ctx, "environment_1", nil); return err },
		func() error { _, err := c.SetChangeControl(ctx, "environment_1", true, ""); return err },
		func() error { _, err := c.RevokeGrant(ctx, "grant_1", "on leave"); return err },
		func() error { _, err := c.UnanswerableRules(ctx, "application_1", "environment_1"); return err },
		func() error { _, err := c.CreateMember(ctx, "alice", "USER", "VIEWER"); return err },
		func() error { _, err := c.SetMemberRole(ctx, "member_1", "VIEWER"); return err },
		func() error { _, err := c.RemoveMember(ctx, "member_1"); return err },
		func() error { _, err := c.CreateGroup(ctx, "release", nil); return err },
		func() error { _, err := c.SetGroupMembers(ctx, "group_1", nil); return err },
		func() error { _, err := c.CreateToken(ctx, client.TokenInput{Scopes: []string{"READ"}}); return err },
		func() error { _, err := c.RevokeToken(ctx, "accesstoken_1"); return err },
		func() error { _, err := c.Journal(ctx, "", 0); return err },
		func() error { _, err := c.Agents(ctx, true); return err },
		func() error { _, err := c.RegisterAgent(ctx, "production"); return err },
		func() error { _, err := c.RotateAgent(ctx, "agent_1", 0); return err },
		func() error { _, err := c.RevokeAgent(ctx, "agent_1"); return err },
		func() error { _, err := c.RevokeAgentKey(ctx, "agentkey_1"); return err },
		func() error { _, err := c.AccessChanges(ctx, 0); return err },
		func() error {
			_, err := c.Audit(ctx, client.AuditFilter{Principal: "a", Since: time.Unix(1, 0)}, 0)
			return err
		},
		func() error { _, err := c.CheckJournalChain(ctx); return err },
		func() error { _, err := c.Retention(ctx); return err },
		func() error { _, err := c.ArchivedObjects(ctx, "handoffs"); return err },
		func() error { _, err := c.SetRetention(ctx, "requests", 30, ""); return err },
		func() error { _, err := c.SetLegalHold(ctx, true, "case 7"); return err },
		func() error { _, err := c.RecordDifferences(ctx, time.Unix(1, 0)); return err },
		func() error {
			_, err := c.ReconcileRecord(ctx, time.Unix(1, 0), "run_missing", "rollout_1", "")
			return err
		},
		func() error { _, err := c.ArchiveApplication(ctx, "shop", ""); return err },
		func() error { _, err := c.RenameApplication(ctx, "shop", "store", ""); return err },
		func() error { _, err := c.RenameEnvironment(ctx, "environment_1", "live", ""); return err },
		func() error { _, err := c.RenameService(ctx, "service_1", "front", ""); return err },
		func() error { _, err := c.RestoreApplication(ctx, "shop", ""); return err },
		func() error { _, err := c.ArchiveEnvironment(ctx, "environment_1", ""); return err },
		func() error { _, err := c.RestoreEnvironment(ctx, "environment_1", ""); return err },
		func() error { _, err := c.JournalCursor(ctx); return err },
		func() error { _, err := c.Triggers(ctx, "shop"); return err },
		func() error { _, err := c.TriggerDecisions(ctx, "shop"); return err },
		func() error { _, err := c.TriggerKinds(ctx); return err },
		func() error {
			_, err := c.PutTrigger(ctx, "shop", client.Trigger{Name: "a", Kind: "VERSION", Config: []byte(`{}`)}, "")
			return err
		},
		func() error { _, err := c.NotificationKinds(ctx); return err },
		func() error { _, err := c.NotificationChannels(ctx); return err },
		func() error { _, err := c.NotificationRoutes(ctx); return err },
		func() error { _, err := c.NotificationMessages(ctx, "FAILED", "hook", 5); return err },
		func() error {
			_, err := c.PutNotificationChannel(ctx, client.NotificationChannel{Name: "a", Kind: "WEBHOOK", Config: []byte(`{}`), Rate: 5}, "")
			return err
		},
		func() error { _, err := c.RemoveNotificationChannel(ctx, "a", ""); return err },
		func() error {
			_, err := c.PutNotificationRoute(ctx, client.NotificationRoute{Name: "a", Channel: "b", Config: []byte(`{}`)}, "")
			return err
		},
		func() error { _, err := c.RemoveNotificationRoute(ctx, "a", ""); return err },
		func() error { _, err := c.TestNotificationRoute(ctx, "a"); return err },
		func() error { _, err := c.RetryNotification(ctx, 1); return err },
		func() error { _, err := c.MyNotificationChannels(ctx); return err },
		func() error { _, err := c.Feeds(ctx); return err },
		func() error { _, err := c.CreateFeed(ctx, "a", "FREEZES", ""); return err },
		func() error { _, err := c.RevokeFeed(ctx, "a", ""); return err },
		func() error { _, err := c.Badges(ctx); return err },
		func() error { _, err := c.SetBadges(ctx, "a", true, ""); return err },
		func() error { _, err := c.MyNotifications(ctx); return err },
		func() error { _, err := c.MyNotificationMessages(ctx, 5); return err },
		func() error {
			_, err := c.PutMyNotification(ctx, client.MyNotification{Name: "a", Channel: "b", Config: []byte(`{}`)})
			return err
		},
		func() error { _, err := c.RemoveMyNotification(ctx, "a"); return err },
		func() error { _, err := c.RetryMyNotification(ctx, 1); return err },
		func() error { _, err := c.ForgeMirrors(ctx); return err },
		func() error { _, err := c.ForgeStatuses(ctx, "FAILED", "DEPLOYMENT", "c", 5); return err },
		func() error { _, err := c.ForgeHosts(ctx); return err },
		func() error { _, err := c.PutForgeMirror(ctx, client.ForgeMirror{Application: "shop"}, ""); return err },
		func() error { _, err := c.RetryForgeStatuses(ctx, 1, ""); return err },
		func() error { _, err := c.Credentials(ctx); return err },
		func() error {
			at := time.Unix(4_000_000_000, 0)
			_, err := c.CreateCredential(ctx, client.Credential{Name: "a", Kind: "HTTP", URLPrefixes: []string{"https://a"}},
				client.CredentialValue{Value: "x", ExpiresAt: &at}, "")
			return err
		},
		func() error {
			_, err := c.RotateCredential(ctx, "a", client.CredentialValue{Reference: "env:X"}, "")
			return err
		},
		func() error { _, err := c.RevokeCredential(ctx, "a", ""); return err },
		func() error { _, err := c.RemoveTrigger(ctx, "shop", "a", ""); return err },
		func() error { _, err := c.ReleasePromotionHold(ctx, "shop", "staging", ""); return err },
		func() error {
			_, err := c.SendEvent(ctx, client.Event{ID: "1", Source: "/ci", Type: "a", Data: []byte(`{}`)})
			return err
		},
		func() error {
			return c.FollowRollout(ctx, "rollout_1", "", func() {}, func(string) error { return nil })
		},
	}
	for _, call := range calls {
		_ = call() // the empty response is an error for most; only the request matters
	}
	if want := len(calls) + 2; checked != want { // that of details sends three
		t.Errorf("%d documents were sent, expected %d", checked, want)
	}
}
