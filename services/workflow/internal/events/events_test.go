package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

var noon = time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)

func TestWhatProgramsMayEmit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ eventType, data, want string }{
		{"com.gitlab.cd.rollout.started", `{"rollout_id": 3}`, ""},
		{"com.gitlab.cd.rollout.started", `{"rollout_id": "3"}`, "invalid: emit com.gitlab.cd.rollout.started: data.rollout_id:"},
		{"com.gitlab.cd.rollout.started", ``, "invalid: emit com.gitlab.cd.rollout.started: data"},
		{"com.gitlab.cd.function.completed", `{}`, `type: found "com.gitlab.cd.function.completed", expected an event type of the domain path`},
		{"com.gitlab.cd.artifact.published", `{}`, "expected an event type of the domain path"},
		{"", `{}`, `type: found "", expected`},
		{
			history.TypeFailed, `{"workflow_id": "w", "error": "e"}`,
			`found "com.gitlab.cd.workflow.failed" from a program, expected it from the engine`,
		},
		{event.TypeApprovalResolved, `{"rollout_id": 3, "gate_id": "production", "resolution": "approved", "principal_type": "user", "principal_id": 1}`, "from a program, expected it from the domain service"},
	} {
		refusal := CheckEmit(history.Emit{
			ID: "e/0.1", Organization: 1, Workflow: "w", Type: tt.eventType,
			Data: json.RawMessage(tt.data), Time: noon,
		})
		switch {
		case tt.want == "" && refusal != nil:
			t.Errorf("%s %s: %v", tt.eventType, tt.data, refusal)
		case tt.want != "" && (refusal == nil || !strings.Contains(refusal.Error(), tt.want)):
			t.Errorf("%s %s: found %v, expected %q", tt.eventType, tt.data, refusal, tt.want)
		}
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	sealed, err := Encode(history.Emit{
		ID: "r/0.1", Organization: 4, Workflow: "rollout-3", Type: event.TypeRolloutStarted,
		Data: []byte(`{"rollout_id":3}`), Time: noon,
	}, trace)
	if err != nil {
		t.Fatal(err)
	}
	e, err := sealed.Event()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{
		e.ID(), e.Source(), sealed.Subject(), event.Extension(e, event.ExtensionCorrelation), string(e.Data()),
		event.Extension(e, event.ExtensionTraceParent), sealed.Trace(),
	}
	want := []string{"r/0.1", "/services/workflow", "cd.domain.4.rollout.started", "rollout-3", `{"rollout_id":3}`, trace, trace}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The event about the end of a run is published as it is stored for the waits of this service's own programs, whatever the run's name.
func TestTheEndOfARunIsPublishedAsStored(t *testing.T) {
	t.Parallel()
	for _, workflow := range []string{"w-1", `"<&>\`, "ä\u2028"} {
		data, err := json.Marshal(map[string]string{"workflow_id": workflow})
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := Encode(history.Emit{
			ID: "r/completed", Organization: 4, Workflow: workflow, Type: history.TypeCompleted,
			Data: data, Time: noon,
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		e, err := sealed.Event()
		if diff := cmp.Diff(string(data), string(e.Data())); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", workflow, err, diff)
		}
	}
}

type published struct {
	msgID string
	event event.Event
}

func (p *published) PublishAttempt(_ context.Context, e event.Event, msgID string) error {
	*p = published{msgID, e}
	return nil
}

func TestEachAttemptAtACallHasItsOwnMessage(t *testing.T) {
	t.Parallel()
	var sent published
	call := agent.OutgoingCall{
		ID: "r/0.1", Agent: 7, Function: "k8s.get", Args: []byte(`{"a":1}`), Attempt: 3, Deadline: noon,
		Workflow: "w", Organization: 3,
	}
	if err := (Calls{Bus: &sent, Clock: clocktest.New(noon)}).Send(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	data, err := event.Decode[event.FunctionCalled](sent.event)
	if err != nil {
		t.Fatal(err)
	}
	want := event.FunctionCalled{
		AgentID: 7, CallID: "r/0.1", Function: "k8s.get", Arguments: []byte(`{"a":1}`), Attempt: 3,
		Deadline: "2026-03-25T12:00:00Z",
	}
	if diff := cmp.Diff(want, data); diff != "" || sent.msgID != "r/0.1/3" {
		t.Errorf("message %q (-want +got):\n%s", sent.msgID, diff)
	}
	// Where two installations work in one cluster, the relay keeps their objects apart.
	call.Owner = "o3.e1.a2"
	reported := Calls{Bus: &sent, Clock: clocktest.New(noon), Installation: func(context.Context) (string, error) { return "4f9c", nil }}
	if err := reported.Send(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if data, err := event.Decode[event.FunctionCalled](sent.event); err != nil || data.Installation != "4f9c" || data.Owner != call.Owner {
		t.Errorf("found %+v, %v; expected the owner and the installation", data, err)
	}
	// By it the relay knows whom an Application was handed over to.
	if organization, err := event.Organization(sent.event); err != nil || organization != 3 {
		t.Errorf("organization %d, %v; want that of the execution", organization, err)
	}
}

type answers []agent.Answer

func (a *answers) Answer(_ context.Context, answer agent.Answer) error {
	*a = append(*a, answer)
	return nil
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		subject string
		data    event.FunctionCompleted
		want    []agent.Answer
		class   fault.Class
		refused bool
	}{
		"value": {
			subject: "cd.cluster.7.result", data: event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)},
			want: []agent.Answer{{Call: "c", Agent: 7, Value: json.RawMessage(`{"found":true}`)}},
		},
		"error": {
			subject: "cd.cluster.7.result", data: event.FunctionCompleted{Error: &event.CallError{
				Code:    "forbidden",
				Message: "no", Retryable: true,
			}},
			want: []agent.Answer{{Call: "c", Agent: 7, Error: &history.FunctionError{Code: "forbidden", Message: "no", Retryable: true}}},
		},
		"another agent's subject": {
			subject: "cd.cluster.8.result", data: event.FunctionCompleted{Value: json.RawMessage(`{}`)}, refused: true,
		},
		"neither": {subject: "cd.cluster.7.result", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.data.AgentID, tt.data.CallID, tt.data.Attempt = 7, "c", 1
			e, err := event.New(event.Header{ID: "1", Source: "/agents/7", Time: noon}, tt.data)
			var got answers
			if err == nil {
				cluster := Cluster{Answerer: &got, Health: NewHealth(), Log: slog.New(slog.DiscardHandler)}
				err = cluster.Handle(t.Context(), bus.Delivery{Event: e, Subject: tt.subject})
			}
			if tt.refused != fault.Is(err, fault.Invalid) || !tt.refused && err != nil {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, []agent.Answer(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatNoProgramCanReadIsNoObservation holds relays to the limits of the other doors.
func TestWhatNoProgramCanReadIsNoObservation(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 201) + strings.Repeat("]", 201)
	for _, object := range []string{`{"n": 1}`, `{"n": 1e400}`, `{"n": ` + deep + `}`} {
		e, err := event.New(event.Header{ID: "1", Source: "/agents/42", Time: noon}, event.Raw{
			Type: event.TypeObjectChanged, JSON: json.RawMessage(`{"agent_id": 42, "watch": "w", "kind": "Pod", "name": "api", "found": true, "observed_at": "2026-03-25T12:00:00Z", "fields": ` + object + `}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		seen := &wanted{}
		err = Cluster{Observed: seen, Log: slog.New(slog.DiscardHandler)}.Handle(t.Context(),
			bus.Delivery{Event: e, Subject: "cd.cluster.42.event"})
		if good := object == `{"n": 1}`; good != (err == nil) || good != (len(seen.observed) == 1) || !good && !fault.Is(err, fault.Invalid) {
			t.Errorf("%.40s: found %v and %v", object, err, seen.observed)
		}
	}
}

type inbox struct {
	received []history.Event
	changes  []guard.Change
	rejected []string
	err      error
}

func (i *inbox) ReceiveFrom(_ context.Context, _ event.Event, e history.Event) (int, bool, error) {
	i.received = append(i.received, e)
	return 1, false, i.err
}

func (i *inbox) ReceiveChange(ctx context.Context, wire event.Event, e history.Event, c guard.Change) (int, bool, error) {
	i.changes = append(i.changes, c)
	return i.ReceiveFrom(ctx, wire, e)
}

func (i *inbox) ReceivePolicySet(ctx context.Context, wire event.Event, s callpolicy.Set) error {
	_, _, err := i.ReceiveFrom(ctx, wire, history.Event{Organization: s.Organization, ID: wire.ID()})
	return err
}

func (i *inbox) ReceiveCallAnswer(ctx context.Context, wire event.Event, organization int64, _ history.CallAnswer) error {
	_, _, err := i.ReceiveFrom(ctx, wire, history.Event{Organization: organization, ID: wire.ID()})
	return err
}

func (i *inbox) ReceiveCredential(ctx context.Context, wire event.Event, r book.Report) error {
	_, _, err := i.ReceiveFrom(ctx, wire, history.Event{Organization: r.Organization, ID: wire.ID()})
	return err
}

func (i *inbox) Reject(_ context.Context, e event.Event, reason string) error {
	i.rejected = append(i.rejected, e.ID()+" "+reason)
	return nil
}

func TestDomainEvents(t *testing.T) {
	t.Parallel()
	deliver := func(source string, i *inbox) error {
		e, err := event.New(event.Header{ID: "1", Source: source, Organization: 4, Time: noon}, event.RolloutAbortRequested{RolloutID: 3})
		if err != nil {
			t.Fatal(err)
		}
		domain := Domain{Receiver: i, Policies: i, Inbox: i, Log: slog.New(slog.DiscardHandler)}
		err = domain.Handle(t.Context(), bus.Delivery{Event: e})
		domain.Rejected(t.Context(), bus.Delivery{Event: e}, errors.New("secret"))
		return err
	}
	var own, foreign, failing inbox
	if err := deliver(Source, &own); err != nil || len(own.received)+len(own.rejected) != 0 {
		t.Errorf("own event: error %v, %+v", err, own)
	}
	want := []history.Event{{
		Organization: 4, Source: "/services/domain", ID: "1", Type: event.TypeRolloutAbortRequested,
		Data: []byte(`{"rollout_id":3}`), Time: noon,
	}}
	err := deliver("/services/domain", &foreign)
	if diff := cmp.Diff(want, foreign.received); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"1 internal error"}, foreign.rejected); diff != "" {
		t.Errorf("rejected (-want +got):\n%s", diff)
	}
	failing.err = fault.New(fault.Unavailable, "away")
	if err := deliver("/services/domain", &failing); !fault.Is(err, fault.Unavailable) {
		t.Errorf("error %v", err)
	}
}

// Only the domain service's own reports decide what runs may change (D46, D47); a grant that opens no environment decides nothing.
func TestOnlyTheDomainServiceDecidesWhatRunsMayChange(t *testing.T) {
	t.Parallel()
	granted := event.RolloutPassageGranted{RolloutID: 3, GateID: "production", EnvironmentID: 5, PinnedWeights: []int{50}}
	run := guard.Change{Organization: 4, At: noon, Workflow: "rollout-3"}
	passage, wave, aborted, retried, revoked := run, run, run, run, run
	wave.Granted = &guard.Passage{Environment: 5, Wave: 2, Places: []activity.Place{{Agent: 8}}, At: noon}
	passage.Granted = &guard.Passage{Environment: 5, Pinned: []int{50}, At: noon}
	aborted.Aborted, retried.Retried, revoked.Revoked = true, true, true
	cancelled := revoked
	cancelled.Cancelled, cancelled.Left = true, []int64{5}
	for _, tt := range []struct {
		name, source string
		data         event.Data
		want         []guard.Change
	}{
		{"a grant", "/services/domain", granted, []guard.Change{passage}},
		{"a grant of a program", "/services/registry", granted, nil},
		{"a grant of a wave", "/services/domain", event.RolloutPassageGranted{
			RolloutID: 3, GateID: "edge/wave-2", EnvironmentID: 5, Wave: 2, Places: []event.Place{{AgentID: 8}},
		}, []guard.Change{wave}},
		{"a grant of a step", "/services/domain", event.RolloutPassageGranted{RolloutID: 3, GateID: "release"}, nil},
		{"an abort", "/services/domain", event.RolloutAbortRequested{RolloutID: 3}, []guard.Change{aborted}},
		{"a retry", "/services/domain", event.RolloutRetryRequested{RolloutID: 3}, []guard.Change{retried}},
		{"the end", "/services/domain", event.RolloutPassagesRevoked{RolloutID: 3}, []guard.Change{revoked}},
		{"a cancellation", "/services/domain", event.RolloutPassagesRevoked{RolloutID: 3, Cancelled: true, EnvironmentIDs: []int64{5}}, []guard.Change{cancelled}},
		{"a cancellation of a program", "/services/workflow", event.RolloutPassagesRevoked{RolloutID: 3, Cancelled: true, EnvironmentIDs: []int64{5}}, nil},
		{"another event", "/services/domain", event.RolloutStarted{RolloutID: 3}, nil},
		{
			"places", "/services/domain",
			event.EnvironmentPlacesChanged{EnvironmentID: 5, Name: "production", Sequence: 2, Protected: true, Places: []event.Place{{AgentID: 7}}},
			[]guard.Change{{Organization: 4, At: noon, Territory: &guard.Territory{
				Environment: 5, Name: "production", Sequence: 2, Protected: true, Places: []activity.Place{{Agent: 7}},
			}}},
		},
		{
			"places of a fleet", "/services/domain",
			event.EnvironmentPlacesChanged{EnvironmentID: 5, Name: "edge", Sequence: 2, Places: []event.Place{}, Fleet: &event.FleetPlaces{
				AgentIDs: []int64{7}, TargetIDs: []int64{52, 51},
			}},
			[]guard.Change{{Organization: 4, At: noon, Territory: &guard.Territory{
				Environment: 5, Name: "edge", Sequence: 2, Fleet: &guard.Fleet{Agents: []int64{7}, Targets: []int64{51, 52}},
			}}},
		},
	} {
		wire, err := event.New(event.Header{ID: "1", Source: tt.source, Organization: 4, Time: noon}, tt.data)
		if err != nil {
			t.Fatal(err)
		}
		received, err := FromWire(wire)
		if err != nil {
			t.Fatal(err)
		}
		var got []guard.Change
		c, decides, err := changeOf(wire, received)
		if decides {
			got = append(got, c)
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
		i := &inbox{}
		err = Domain{Receiver: i, Policies: i, Inbox: i, Log: slog.New(slog.DiscardHandler)}.Handle(t.Context(), bus.Delivery{Event: wire})
		if diff := cmp.Diff(tt.want, i.changes); diff != "" || len(tt.want) > 0 && err != nil {
			t.Errorf("%s, received: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}
