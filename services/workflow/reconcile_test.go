package workflow_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// knowledge is a client of Reconciliation with another token.
func (s *service) knowledge(token string) autoflowv1.ReconciliationClient {
	s.t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: token, Insecure: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return autoflowv1.NewReconciliationClient(conn)
}

// D66: what a run has reported is listed, page by page, and published again under its ids although it was delivered; what it was granted
// and which branches environments have is listed, and only to callers with the scope operate of the organization.
func TestWhatWasReportedIsListedAndRepeated(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	s.submit("rollout-7", `
for n in range(3):
    run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": 7}})
wait_for_event("com.gitlab.cd.rollout.passage_granted", {"rollout_id": 7}, timeout = 600)
`, "")
	s.submit("another", `run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": 8}})`, "")
	s.await("another", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	s.await("rollout-7", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	js := s.bus.JetStream(t, "domain")
	for subject, data := range map[string]event.Data{
		"cd.domain.1.rollout.passage_granted": event.RolloutPassageGranted{
			RolloutID: 7, GateID: "production", EnvironmentID: 5, PinnedWeights: []int{50},
		},
		"cd.domain.1.environment.places_changed": event.EnvironmentPlacesChanged{
			EnvironmentID: 5, Name: "production", Sequence: 1, Places: []event.Place{{Repository: "http://127.0.0.1:1/shop.git", Branch: "main"}},
		},
	} {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: wireOf(t, subject, event.SourceDomain, data)})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.await("rollout-7", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)

	ctx, since := t.Context(), timestamppb.New(time.Now().Add(-time.Hour))
	known := s.knowledge(tokenOf(organization, "operate"))
	var ids []string
	for token := ""; ; {
		page, err := known.ListReports(ctx, &autoflowv1.ListReportsRequest{Since: since, PageSize: 2, PageToken: token, WorkflowId: "rollout-7"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.GetReports() {
			if r.GetWorkflowId() != "rollout-7" || r.GetSource() != event.SourceWorkflow {
				t.Errorf("found a report of %s by %s", r.GetWorkflowId(), r.GetSource())
			}
			ids = append(ids, r.GetEventId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(ids) != 4 { // three of the program, and its end
		t.Fatalf("found %d reports, expected 4: %q", len(ids), ids)
	}
	conn, err := pgx.Connect(ctx, s.config.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	table := pgx.Identifier{s.config.Schema, "outbox"}.Sanitize()
	count := func() (n int) {
		t.Helper()
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM "+table+" WHERE event_id = ANY ($1)", ids).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := conn.Exec(ctx, "DELETE FROM "+table); err != nil { // all were delivered
		t.Fatal(err)
	}
	for range 2 { // idempotent
		resp, err := known.RepeatReports(ctx, &autoflowv1.RepeatReportsRequest{EventIds: append(ids, "unknown/0.1")})
		if err != nil || resp.GetRepeatedCount() != 4 || count() != 4 {
			t.Errorf("repeated %d, %v, with %d in the outbox; expected 4 of each", resp.GetRepeatedCount(), err, count())
		}
	}

	passages, err := known.ListPassages(ctx, &autoflowv1.ListPassagesRequest{WorkflowIds: []string{"rollout-7", "rollout-8"}, Since: since})
	if err != nil || fmt.Sprint(passages.GetPassages()) != `[workflow_id:"rollout-7" gate_id:"production" pinned_weights:50]` &&
		fmt.Sprint(passages.GetPassages()) != `[workflow_id:"rollout-7"  gate_id:"production"  pinned_weights:50]` {
		t.Errorf("passages: %v, %v", passages.GetPassages(), err)
	}
	var commits *autoflowv1.ListCommitsResponse
	s.eventually("the places have come", func(ctx context.Context) bool {
		commits, err = known.ListCommits(ctx, &autoflowv1.ListCommitsRequest{})
		return err == nil && len(commits.GetBranches()) > 0
	})
	b := commits.GetBranches()[0]
	if b.GetRepositoryUrl() != "http://127.0.0.1:1/shop.git" || b.GetBranch() != "main" || b.GetError() == "" ||
		len(commits.GetBranches()) != 1 {
		t.Errorf("branches: %v; expected one that cannot be read, with the reason", commits)
	}

	many := make([]string, 1001)
	for name, call := range map[string]func(context.Context, autoflowv1.ReconciliationClient) error{
		"ListReports": func(ctx context.Context, c autoflowv1.ReconciliationClient) error {
			_, err := c.ListReports(ctx, &autoflowv1.ListReportsRequest{OrganizationId: organization, Since: since})
			return err
		},
		"RepeatReports": func(ctx context.Context, c autoflowv1.ReconciliationClient) error {
			_, err := c.RepeatReports(ctx, &autoflowv1.RepeatReportsRequest{OrganizationId: organization, EventIds: ids})
			return err
		},
		"ListPassages": func(ctx context.Context, c autoflowv1.ReconciliationClient) error {
			_, err := c.ListPassages(ctx, &autoflowv1.ListPassagesRequest{OrganizationId: organization, Since: since})
			return err
		},
		"ListCommits": func(ctx context.Context, c autoflowv1.ReconciliationClient) error {
			_, err := c.ListCommits(ctx, &autoflowv1.ListCommitsRequest{OrganizationId: organization})
			return err
		},
	} {
		if err := call(ctx, s.knowledge(tokenOf(2, "admin"))); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s of another organization: %v, expected not found", name, err)
		}
		if err := call(ctx, s.knowledge(tokenOf(organization, "start"))); !fault.Is(err, fault.Denied) {
			t.Errorf("%s with scope start: %v, expected a denial", name, err)
		}
		if err := call(ctx, s.knowledge("unknown")); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s with an unknown token: %v, expected unauthenticated", name, err)
		}
	}
	for name, err := range map[string]error{
		"too many ids":    second(known.RepeatReports(ctx, &autoflowv1.RepeatReportsRequest{EventIds: many})),
		"too many runs":   second(known.ListPassages(ctx, &autoflowv1.ListPassagesRequest{WorkflowIds: many, Since: since})),
		"no time":         second(known.ListReports(ctx, &autoflowv1.ListReportsRequest{})),
		"another's token": second(known.ListReports(ctx, &autoflowv1.ListReportsRequest{Since: since, PageToken: "x"})),
	} {
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, expected a refusal", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
