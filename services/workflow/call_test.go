package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// answering answers every call with its number and what it was sent, refuses the call with null, and ends with "end" without an answer.
const answering = `
def main():
    for n in range(1, 1000):
        m = receive(inbox(), timeout = 3600)
        if m.data == "end":
            break
        if m.data == None:
            print(reply(m, error = "found nothing, expected something"))
        elif m.data != "ignore":
            print(reply(m, {"n": n, "got": m.data}), reply(m, "again"))
`

// call calls the inbox of a run.
func (s *service) call(workflow, id, data string, wait time.Duration) (*autoflowv1.CallChannelResponse, error) {
	s.t.Helper()
	return s.CallChannel(s.t.Context(), &autoflowv1.CallChannelRequest{
		OrganizationId: organization, WorkflowId: workflow, RequestId: id, Data: []byte(data), Wait: durationpb.New(wait),
	})
}

// answered requires the answer of a call, twice.
func (s *service) answered(workflow, id, data, want string) {
	s.t.Helper()
	for range 2 {
		if a, err := s.call(workflow, id, data, within); err != nil || fmt.Sprintf("%s|%s", a.GetValue(), a.GetError()) != want {
			s.t.Errorf("call %s: found %v, %v, expected %s", id, a, err, want)
		}
	}
}

// TestACallHasOneAnswer: the same call again has the same answer, also after the service was replaced and the run has ended (issue 18).
func TestACallHasOneAnswer(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("called", answering, "")
	s.answered("called", "one", `"a"`, `{"got":"a","n":1}|`)
	s.answered("called", "two", `null`, `|found nothing, expected something`)
	if _, err := s.call("called", "late", `"ignore"`, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that nobody answers: %v, expected that its time is up", err)
	}
	// A message that was only sent has the same id, and is another one; nobody waits for its answer.
	if _, err := s.SendToChannel(t.Context(), &autoflowv1.SendToChannelRequest{
		OrganizationId: organization, WorkflowId: "called", MessageId: "one", Data: []byte(`"sent"`),
	}); err != nil {
		t.Fatal(err)
	}
	s.down()
	s.up()
	s.answered("called", "one", `"other"`, `{"got":"a","n":1}|`)
	s.answered("called", "three", `"b"`, `{"got":"b","n":5}|`)
	if _, err := s.call("called", "last", `"end"`, within); !fault.Is(err, fault.Refused) {
		t.Errorf("a call of a run that ends: %v, expected that it is refused", err)
	}
	s.await("called", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	s.answered("called", "three", `"b"`, `{"got":"b","n":5}|`)
	for id, want := range map[string]fault.Class{"late": fault.Refused, "new": fault.NotFound} {
		if _, err := s.call("called", id, `"x"`, within); !fault.Is(err, want) {
			t.Errorf("call %s of a run that has ended: %v, expected %v", id, err, want)
		}
	}
	want := []string{"True False", "True", "False False", "True False"}
	if lines := s.lines("called"); fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("found %q, expected %q", lines, want)
	}
}

// TestAStartBringsItsMessage: it is stored with the run; a repeated start changes nothing, and one with another message id delivers that
// to the run that exists (issue 18).
func TestAStartBringsItsMessage(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	const source = `
def main():
    print(receive(inbox(), timeout = 3600).data)
    print(receive(inbox(), timeout = 3600).data)
    print(receive(inbox(), timeout = 3600).data)
`
	begin := func(id string, created bool) error {
		t.Helper()
		r, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: "begun", Starlark: []byte(source),
			Message: &autoflowv1.StartMessage{MessageId: id, Data: []byte(`"` + id + `"`)},
		})
		if err == nil && r.GetCreated() != created {
			t.Errorf("start with %s: created %t", id, r.GetCreated())
		}
		return err
	}
	if err := errors.Join(begin("a", true), begin("a", false), begin("b", false)); err != nil {
		t.Fatal(err)
	}
	s.down()
	s.up()
	if err := errors.Join(begin("b", false), begin("a", false), begin("c", false)); err != nil {
		t.Fatal(err)
	}
	s.await("begun", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if lines := s.lines("begun"); fmt.Sprint(lines) != "[a b c]" {
		t.Errorf("received %v, expected each message once, in order", lines)
	}
	if err := begin("c", false); err != nil {
		t.Errorf("a message that was delivered before the end: %v", err)
	}
	if err := begin("d", false); !fault.Is(err, fault.Refused) {
		t.Errorf("a new message after the end: %v, expected that it is refused", err)
	}
	// A run that was started without a message takes one, and another organization or a reserved id gets nothing.
	// It ends with the second one: so the call that brings the first surely meets its deadline, while the other's may meet the end.
	s.submit("plain", "receive(inbox(), timeout = 3600)\nreceive(inbox(), timeout = 3600)", "")
	if _, err := s.call("plain", "x", `"hello"`, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := s.call("plain", "y", `"hello"`, 0); !errors.Is(err, context.DeadlineExceeded) && !fault.Is(err, fault.Refused) {
		t.Error(err)
	}
	s.await("plain", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	stranger := s.as(tokenOf(2, "admin"))
	for id, want := range map[string]fault.Class{"begun": fault.NotFound, "rollout-7": fault.Denied} {
		_, err := stranger.CallChannel(t.Context(), &autoflowv1.CallChannelRequest{OrganizationId: 2, WorkflowId: id, RequestId: "1"})
		if !fault.Is(err, want) {
			t.Errorf("call of %s by another organization: %v, expected %v", id, err, want)
		}
	}
}
