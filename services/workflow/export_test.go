package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	workflow "github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// exported reads an export into a recording.
func exported(t *testing.T, s *service, id string) (r workflow.Recording, text string) {
	t.Helper()
	r, text, err := exportedAs(t, s, &autoflowv1.ExportWorkflowRequest{OrganizationId: organization, WorkflowId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r, text
}

func exportedAs(t *testing.T, s *service, request *autoflowv1.ExportWorkflowRequest) (r workflow.Recording, text string, err error) {
	t.Helper()
	stream, err := s.ExportWorkflow(t.Context(), request)
	if err != nil {
		return r, "", err
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r, text, nil
		}
		if err != nil {
			return r, text, err
		}
		text += part.String()
		if head := part.GetWorkflow(); head != nil {
			r = workflow.Recording{
				Workflow: request.GetWorkflowId(), Ref: head.GetHandle(), Program: map[string]string{workflow.MainFile: string(head.GetStarlark())},
				Inputs: head.GetInputs(), Continuation: head.GetContinuation(), Concealed: head.GetConcealed(),
			}
			for name, source := range head.GetModules() {
				r.Program[name] = string(source)
			}
			continue
		}
		e := part.GetEntry()
		if err := r.Add(workflow.RecordedEntry{
			Sequence: e.GetSequence(), Branch: int(e.GetBranch()), Operation: int(e.GetOperation()), Kind: e.GetKind(), Name: e.GetName(),
			Digest: e.GetDigest(), Value: e.GetValue(), Error: e.GetError(), Event: e.GetEvent(),
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnExportReplaysElsewhereWithoutItsTokens(t *testing.T) { // issue 18
	t.Parallel()
	s := start(t)
	s.submit("talk", `
c = channel()
attempt(run, "no.such", {"to": c.token})
note = [now(), uuid(), random()]
print(c.token)
receive(c, inbox())
def again(token):
    sleep(3600)
continue_with(again, c.token)
`, "")
	s.await("talk", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	check := func() {
		t.Helper()
		r, text := exported(t, s, "talk")
		if tokens := len(history.ReplaceTokens([]byte(text), func(string) string { return "" })); tokens == len(text) || !r.Concealed {
			t.Errorf("no token was replaced: %s", text)
		}
		history.ReplaceTokens([]byte(text), func(token string) string {
			if !history.HasPseudonym([]byte(token)) {
				t.Errorf("the export has the token %s", token)
			}
			return ""
		})
		file, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if r, err = workflow.ReadRecording(file); err != nil {
			t.Fatal(err)
		}
		report, err := workflow.Replay(r, workflow.ReplayOptions{})
		if err != nil || !report.Fits || report.Outcome != "waiting" || len(report.Waits) != 1 {
			t.Fatalf("%+v %+v, error %v", report, report.Problem, err)
		}
	}
	check()
	if _, err := s.SendToChannel(t.Context(), &autoflowv1.SendToChannelRequest{
		OrganizationId: organization, WorkflowId: "talk", MessageId: "1", Data: []byte(`"more"`),
	}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the second generation", func(ctx context.Context) bool {
		got, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "talk"})
		return err == nil && got.GetWorkflow().GetGeneration() == 2 && len(got.GetWorkflow().GetWaits()) == 1
	})
	check()
	for id, source := range map[string]string{"done": "print(now())", "broken": "run('no.such')"} {
		s.submit(id, source, "")
		s.eventually(id+" has ended", func(ctx context.Context) bool {
			got, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
			return err == nil && got.GetWorkflow().GetFinishedAt() != nil
		})
		r, _ := exported(t, s, id)
		want := map[string]string{"done": "completed", "broken": "failed"}[id]
		if report, err := workflow.Replay(r, workflow.ReplayOptions{}); err != nil || !report.Fits || report.Outcome != want {
			t.Errorf("%s: %+v %+v, error %v", id, report, report.Problem, err)
		}
	}
	stream, err := s.ExportWorkflow(t.Context(), &autoflowv1.ExportWorkflowRequest{
		OrganizationId: organization, WorkflowId: strings.Repeat("a", 300),
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("an id that is too long: %v", err)
	}
}
