package workflow_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/s3test"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	workflow "github.com/lockstep-cd/lockstep/services/workflow"
)

// archiving starts a service whose ended runs are archived after a day.
func archiving(t *testing.T, wrap func(http.Handler) http.Handler) *service {
	t.Helper()
	s := startWith(t, func(c *workflow.Config) { c.Archive = s3test.Start(t, wrap) })
	s.archives()
	return s
}

// archives has runs archived a day after their end.
func (s *service) archives() {
	s.t.Helper()
	if _, err := s.SetRetention(s.t.Context(), &autoflowv1.SetRetentionRequest{
		OrganizationId: organization, Rule: &autoflowv1.RetentionRule{Keep: durationpb.New(24 * time.Hour)}, Reason: "space",
	}); err != nil {
		s.t.Fatal(err)
	}
}

// aDayLater has everything happen two days earlier than it did, and starts the service again, which deletes what is due.
func (s *service) aDayLater() {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.config.DatabaseURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(s.t.Context())) }()
	if _, err := conn.Exec(s.t.Context(), `UPDATE `+pgx.Identifier{s.config.Schema, "execution"}.Sanitize()+
		` SET created_at = created_at - interval '2 days', ended_at = ended_at - interval '2 days'`); err != nil {
		s.t.Fatal(err)
	}
	s.down()
	s.up()
}

func (s *service) exists(id string) bool {
	s.t.Helper()
	_, err := s.GetWorkflow(s.t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
	if err != nil && !fault.Is(err, fault.NotFound) {
		s.t.Fatal(err)
	}
	return err == nil
}

func (s *service) gone(id string) {
	s.t.Helper()
	s.eventually(id+" is deleted", func(context.Context) bool { return !s.exists(id) })
}

// TestDeletedRunsAreInTheArchive: a run that its organization's rule deletes is read back from the archive as it was, replays, and is
// read by nobody else; a run that is not due, and a rollout's, stay (issue 18, item 8; issue 17, item 4).
func TestDeletedRunsAreInTheArchive(t *testing.T) {
	t.Parallel()
	s := archiving(t, nil)
	long := "../" + strings.Repeat("x/é", 60)
	for _, id := range []string{"a.b/c", "..", long} {
		s.submit(id, "c = channel()\nx = uuid()\nset_status(\"x\", x)\nprint(c.token)", `{"n": 7}`)
		s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	}
	s.submit("open", "receive(inbox())", `{}`)
	s.submit("rollout-9", "pass", `{}`)
	s.await("rollout-9", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	before := map[string]workflow.Recording{}
	for _, id := range []string{"a.b/c", "..", long} {
		before[id], _ = exported(t, s, id)
	}
	s.aDayLater()
	for id, was := range before {
		s.gone(id)
		request := &autoflowv1.ExportWorkflowRequest{OrganizationId: organization, WorkflowId: id, Archived: true}
		found, text, err := exportedAs(t, s, request)
		if err != nil {
			t.Fatal(err)
		}
		if found.Ref != was.Ref || len(found.History) != len(was.History) || string(found.Inputs) != `{"n":7}` {
			t.Errorf("%s: found %s with %d entries and the inputs %s", id, found.Ref, len(found.History), found.Inputs)
		}
		if !strings.Contains(text, "WORKFLOW_STATE_COMPLETED") || !strings.Contains(text, id) {
			t.Errorf("found %s", text)
		}
		if report, err := workflow.Replay(found, workflow.ReplayOptions{}); err != nil || report.Problem != nil {
			t.Errorf("%s does not replay: %+v, %v", id, report, err)
		}
	}
	for _, id := range []string{"open", "rollout-9"} {
		if !s.exists(id) {
			t.Errorf("%s was deleted", id)
		}
	}
	var ids []string
	list := &autoflowv1.ListArchivedWorkflowsRequest{OrganizationId: organization, PageSize: 2}
	for {
		page, err := s.ListArchivedWorkflows(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.GetWorkflows() {
			if run.GetSize() == 0 || time.Since(run.GetFinishedAt().AsTime()) < 47*time.Hour {
				t.Errorf("found %v", run)
			}
			ids = append(ids, run.GetWorkflowId())
		}
		if list.PageToken = page.GetNextPageToken(); list.GetPageToken() == "" {
			break
		}
	}
	slices.Sort(ids)
	if len(ids) != 3 || ids[0] != ".." || !strings.HasPrefix(long, ids[1]) || ids[2] != "a.b/c" {
		t.Errorf("found %q", ids)
	}
	for name, request := range map[string]*autoflowv1.ExportWorkflowRequest{
		"another organization's": {OrganizationId: 2, WorkflowId: "a.b/c", Archived: true},
		"none":                   {OrganizationId: organization, WorkflowId: "a.b", Archived: true},
		"one that is still here": {OrganizationId: organization, WorkflowId: "open", Archived: true},
	} {
		if _, _, err := exportedAs(t, s, request); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: found %v", name, err)
		}
	}
	list.OrganizationId, list.PageToken = 2, "runs/1/a"
	if _, err := s.ListArchivedWorkflows(t.Context(), list); !fault.Is(err, fault.Invalid) {
		t.Errorf("a token of another organization: %v", err)
	}
}

// TestNothingIsDeletedThatTheArchiveDoesNotKeep: while the storage refuses, runs stay; a restart after it has stored some and refused
// others archives those again, which changes nothing.
func TestNothingIsDeletedThatTheArchiveDoesNotKeep(t *testing.T) {
	t.Parallel()
	var left atomic.Int64 // how many uploads succeed
	var refused atomic.Int64
	s := archiving(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && left.Add(-1) < 0 {
				refused.Add(1)
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	for _, id := range []string{"a", "b"} {
		s.submit(id, "x = uuid()", `{}`)
		s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	}
	left.Store(1)
	s.aDayLater()
	s.eventually("the storage has refused", func(context.Context) bool { return refused.Load() > 0 })
	if !s.exists("a") || !s.exists("b") {
		t.Error("a run was deleted of which the storage has confirmed nothing")
	}
	left.Store(100)
	s.down()
	s.up()
	s.gone("a")
	s.gone("b")
	page, err := s.ListArchivedWorkflows(t.Context(), &autoflowv1.ListArchivedWorkflowsRequest{OrganizationId: organization})
	if err != nil || len(page.GetWorkflows()) != 2 {
		t.Errorf("found %v, %v, expected each run once", page, err)
	}
}

// TestWithoutAnArchive: what asks for it is refused with the reason.
func TestWithoutAnArchive(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, err := s.ListArchivedWorkflows(t.Context(), &autoflowv1.ListArchivedWorkflowsRequest{OrganizationId: organization})
	if !fault.Is(err, fault.Refused) {
		t.Errorf("found %v", err)
	}
	_, _, err = exportedAs(t, s, &autoflowv1.ExportWorkflowRequest{OrganizationId: organization, WorkflowId: "a", Archived: true})
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "no archive is configured") {
		t.Errorf("found %v", err)
	}
}
