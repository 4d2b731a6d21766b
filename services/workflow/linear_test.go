package workflow_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// What callers do to a run, each as one moment between call and answer.
type (
	// apiCall is a call. n is which of two inputs a start has, and which of two events is sent.
	apiCall struct {
		method   string
		workflow string
		n        int
		// at is when it was called, in nanoseconds.
		at int64
	}
	// apiAnswer is its answer. unknown: there was none, so it may have happened at any time since, or never happens.
	apiAnswer struct {
		unknown bool
		code    codes.Code
		// ref and created are a start's answer, duplicate is an event's, state that of a look.
		ref                string
		created, duplicate bool
		state              autoflowv1.WorkflowState
		// at is when it came.
		at int64
	}
	// known is a run as its callers may know it. It ends some time after the call that ends it, so its end counts once a caller has seen it.
	known struct {
		exists bool
		n      int
		ref    string
		// started is when the start was called that made it, events when the answer to each event came: one that came before started is
		// none of the run's.
		started   int64
		events    [2]int64
		cancelled bool
		ended     autoflowv1.WorkflowState
	}
)

// step says whether a run that is k may answer so, and what it is then. What was not answered has its effect if it can have one: the
// checker tries every moment for it, and the last of all is as good as never.
func (k known) step(a apiCall, t apiAnswer) (bool, known) {
	switch a.method {
	case "start":
		switch {
		case !k.exists:
			k.exists, k.n, k.ref, k.started = true, a.n, t.ref, a.at
			return t.unknown || t.code == codes.OK && t.created, k
		case t.unknown:
			return true, k
		case k.n != a.n:
			return t.code == codes.AlreadyExists, k
		}
		if k.ref == "" {
			k.ref = t.ref // the start that created it got no answer
		}
		return t.code == codes.OK && !t.created && t.ref == k.ref, k
	case "event":
		duplicate := k.events[a.n] != 0
		if !duplicate {
			k.events[a.n] = t.at
		}
		return t.unknown || t.code == codes.OK && t.duplicate == duplicate, k
	case "cancel":
		k.cancelled = k.cancelled || k.exists
		return t.unknown || k.exists == (t.code == codes.OK) && k.exists != (t.code == codes.NotFound), k
	default:
		return k.look(t)
	}
}

// look is step for GetWorkflow.
func (k known) look(t apiAnswer) (bool, known) {
	if t.unknown || !k.exists {
		return t.unknown || t.code == codes.NotFound, k
	}
	if t.code != codes.OK || k.ref != "" && k.ref != t.ref {
		return false, k
	}
	k.ref = t.ref
	if k.ended != 0 {
		return t.state == k.ended, k
	}
	switch t.state {
	case autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED:
		k.ended = t.state
		return slices.ContainsFunc(k.events[:], func(at int64) bool { return at >= k.started && at > 0 }), k
	case autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED:
		k.ended = t.state
		return k.cancelled, k
	default:
		return t.state == autoflowv1.WorkflowState_WORKFLOW_STATE_RUNNING || t.state == autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED, k
	}
}

// oneRun is the specification: each run by itself is as if it were asked one thing after the other.
func oneRun() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byRun := map[string][]porcupine.Operation{}
			for _, o := range history {
				workflow := o.Input.(apiCall).workflow
				byRun[workflow] = append(byRun[workflow], o)
			}
			var parts [][]porcupine.Operation
			for _, part := range byRun {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return known{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(known).step(input.(apiCall), output.(apiAnswer))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// recorder records calls and their answers.
type recorder struct {
	began time.Time
	mu    sync.Mutex
	all   []porcupine.Operation
}

func (r *recorder) now() int64 { return int64(clock.System().Now().Sub(r.began)) + 1 }

// ask makes a call and records it.
func (r *recorder) ask(ctx context.Context, c autoflowv1.AutoFlowClient, client int, a apiCall) (apiAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var t apiAnswer
	var err error
	a.at = r.now()
	switch a.method {
	case "start":
		var resp *autoflowv1.StartWorkflowResponse
		resp, err = c.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: a.workflow, Inputs: fmt.Appendf(nil, `{"id": %q, "n": %d}`, a.workflow, a.n),
			Starlark: []byte(`wait_for_event("com.example.go", filter = {"id": id})`),
		})
		t.ref, t.created = resp.GetWorkflowRef(), resp.GetCreated()
	case "event":
		var resp *autoflowv1.CloudEventResponse
		resp, err = c.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
			`{"specversion":"1.0","id":"%s-%d","source":"/linear","type":"com.example.go","organizationid":"%d","data":{"id":%q}}`, a.workflow,
			a.n, organization, a.workflow)})
		t.duplicate = resp.GetDuplicate()
	case "cancel":
		_, err = c.CancelWorkflow(ctx, &autoflowv1.CancelWorkflowRequest{
			OrganizationId: organization, WorkflowId: a.workflow,
			Reason: "no longer wanted",
		})
	default:
		var resp *autoflowv1.GetWorkflowResponse
		resp, err = c.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: a.workflow})
		t.ref, t.state = resp.GetWorkflow().GetWorkflowRef(), resp.GetWorkflow().GetState()
	}
	t.at = r.now()
	switch t.code = status.Code(err); t.code {
	case codes.OK, codes.NotFound, codes.AlreadyExists:
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		t.unknown, t.at = true, math.MaxInt64
	default:
		return t, err
	}
	if t.unknown && a.method == "look" {
		return t, nil // it says nothing and has done nothing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, porcupine.Operation{ClientId: client, Input: a, Call: a.at, Output: t, Return: t.at})
	return t, nil
}

// once is a client that sends everything once: one that tried again by itself would hide whether the first try was applied.
func (s *service) once() autoflowv1.AutoFlowClient {
	s.t.Helper()
	conn, err := grpc.NewClient(s.config.GRPCAddress, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 20 * time.Millisecond, Multiplier: 1,
			MaxDelay: 20 * time.Millisecond,
		}, MinConnectTimeout: time.Second}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return autoflowv1.NewAutoFlowClient(conn)
}

// awaitBack returns when the service is available again, or has been unavailable for too long, which the next call notices. A call made
// meanwhile would have an unknown outcome, and the checker tries all orders of those.
func awaitBack(ctx context.Context, c autoflowv1.AutoFlowClient) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		_, err := c.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "none"})
		if status.Code(err) == codes.NotFound || clock.Sleep(ctx, clock.System(), 20*time.Millisecond) != nil {
			return
		}
	}
}

// TestTheAPIIsLinearizableOverKills starts runs with equal and different inputs, sends them events, some twice, cancels and reads them, all
// concurrently, while the service is killed and restarted. For each run there must be one order of all calls, in which each call takes
// effect between its request and its answer, and every answer is right (E19, E25, R41). A call without an answer may take effect at any
// later time, or never.
func TestTheAPIIsLinearizableOverKills(t *testing.T) {
	t.Parallel()
	const (
		clients = 4
		calls   = 100 // of each client
		window  = 3   // runs at a time
		kills   = 3
	)
	s := start(t)
	s.down()
	kill := s.spawn()
	r := &recorder{began: clock.System().Now()}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	methods := []string{"start", "start", "start", "event", "event", "cancel", "look", "look", "look", "look"}
	var group sync.WaitGroup
	var done [clients]chan struct{}
	for client := range clients {
		c := s.once()
		done[client] = make(chan struct{}, calls)
		group.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(client))) //nolint:gosec // what is asked can be asked again
			for i := range calls {
				a := apiCall{method: methods[random.IntN(len(methods))], workflow: fmt.Sprintf("linear-%d", i/8+random.IntN(window)), n: random.IntN(2)}
				answer, err := r.ask(ctx, c, client, a)
				if err != nil {
					t.Errorf("%+v: %v", a, err)
				}
				done[client] <- struct{}{}
				if answer.unknown {
					awaitBack(ctx, c)
				}
			}
			close(done[client])
		})
	}
	for range kills {
		for range calls / (kills + 1) {
			<-done[0]
		}
		kill()
		kill = s.spawn()
	}
	group.Wait()
	for workflow := range calls/8 + window {
		if _, err := r.ask(ctx, s.once(), clients, apiCall{method: "look", workflow: fmt.Sprintf("linear-%d", workflow)}); err != nil {
			t.Error(err)
		}
	}
	r.check(t)
}

// check looks for an order, and that what was recorded is worth the look.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for _, o := range r.all {
		a, answer := o.Input.(apiCall), o.Output.(apiAnswer)
		if answer.unknown {
			seen[a.method+" without an answer"]++
			continue
		}
		seen[fmt.Sprintf("%s %s", a.method, answer.code)]++
	}
	t.Logf("%d calls: %v", len(r.all), seen)
	for _, what := range []string{"start OK", "start AlreadyExists", "event OK", "cancel OK", "look OK", "look NotFound"} {
		if seen[what] == 0 {
			t.Errorf("nothing recorded of %q", what)
		}
	}
	result, info := porcupine.CheckOperationsVerbose(oneRun(), r.all, within)
	if result == porcupine.Ok {
		return
	}
	path := t.ArtifactDir() + "/history.html"
	if err := porcupine.VisualizePath(oneRun(), info, path); err != nil {
		t.Log(err)
	}
	t.Errorf("there is no order of what was done (%s): %s, kept with -artifacts", result, path)
}

// TestTheSpecificationOfARunRefusesWhatIsWrong changes one answer of histories that are right.
func TestTheSpecificationOfARunRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const parked, completed, cancelled = autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED,
		autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED
	type call struct {
		apiCall
		apiAnswer
	}
	start := func(n int, t apiAnswer) call { return call{apiCall{method: "start", n: n}, t} }
	event := func(n int, t apiAnswer) call { return call{apiCall{method: "event", n: n}, t} }
	look := func(t apiAnswer) call { return call{apiCall{method: "look"}, t} }
	cancel := func(t apiAnswer) call { return call{apiCall{method: "cancel"}, t} }
	made, lost := apiAnswer{ref: "r", created: true}, apiAnswer{unknown: true, at: math.MaxInt64}
	state := func(s autoflowv1.WorkflowState) apiAnswer { return apiAnswer{ref: "r", state: s} }
	for name, tt := range map[string]struct {
		calls []call
		right bool
	}{
		"made, and completed by an event":   {[]call{start(0, made), look(state(parked)), event(0, apiAnswer{}), look(state(completed))}, true},
		"completed by nothing":              {[]call{start(0, made), look(state(completed))}, false},
		"completed by an event before":      {[]call{event(0, apiAnswer{}), start(0, made), look(state(completed))}, false},
		"completed, and parked again":       {[]call{start(0, made), event(0, apiAnswer{}), look(state(completed)), look(state(parked))}, false},
		"cancelled by nobody":               {[]call{start(0, made), look(state(cancelled))}, false},
		"cancelled":                         {[]call{start(0, made), cancel(apiAnswer{}), look(state(parked)), look(state(cancelled))}, true},
		"cancelled by who was not answered": {[]call{start(0, made), cancel(lost), look(state(cancelled))}, true},
		"made twice":                        {[]call{start(0, made), start(0, made)}, false},
		"two handles":                       {[]call{start(0, made), start(0, apiAnswer{ref: "other"})}, false},
		"other inputs taken for the same":   {[]call{start(0, made), start(1, apiAnswer{ref: "r"})}, false},
		"other inputs refused":              {[]call{start(0, made), start(1, apiAnswer{code: codes.AlreadyExists})}, true},
		"gone":                              {[]call{start(0, made), look(apiAnswer{code: codes.NotFound})}, false},
		"made by who was not answered":      {[]call{start(0, lost), start(0, apiAnswer{ref: "r"}), look(state(parked))}, true},
		"not made by who was not answered":  {[]call{start(0, lost), look(apiAnswer{code: codes.NotFound}), start(0, made)}, true},
		"made by nobody":                    {[]call{start(0, apiAnswer{ref: "r"})}, false},
		"an event stored twice":             {[]call{event(0, apiAnswer{}), event(0, apiAnswer{})}, false},
		"an event that is a duplicate":      {[]call{event(0, apiAnswer{}), event(0, apiAnswer{duplicate: true})}, true},
		"a duplicate of what nobody sent":   {[]call{event(0, apiAnswer{}), event(1, apiAnswer{duplicate: true})}, false},
		"an event lost, and its second sent": {[]call{
			start(0, made), event(0, lost), event(0, apiAnswer{duplicate: true}),
			look(state(completed)),
		}, true},
	} {
		var history []porcupine.Operation
		for i, c := range tt.calls {
			c.workflow, c.apiCall.at = "w", int64(10*i+1)
			if !c.unknown {
				c.apiAnswer.at = c.apiCall.at + 5
			}
			history = append(history, porcupine.Operation{Input: c.apiCall, Call: c.apiCall.at, Output: c.apiAnswer, Return: c.apiAnswer.at})
		}
		if got := porcupine.CheckOperations(oneRun(), history); got != tt.right {
			t.Errorf("%s: found right %t", name, got)
		}
	}
}
