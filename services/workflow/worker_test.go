package workflow_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/worker"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

const (
	workToken   = "the-token-of-a-worker"
	othersToken = "the-token-of-another-organizations-worker"
	// looseToken is that of an operator's worker of the first organization.
	looseToken = "the-token-of-a-worker-that-may-redeclare"
)

// withWorkers lets workers of two organizations connect, under the same prefix.
func withWorkers(heartbeat time.Duration) func(*workflow.Config) {
	return func(c *workflow.Config) {
		c.WorkerHeartbeat = heartbeat
		for i, token := range []string{workToken, othersToken} {
			sum := sha256.Sum256([]byte(token))
			c.Tokens = append(c.Tokens, workflow.AccessToken{
				Name: "worker", Scope: "work", Prefix: "shop", Organization: organization + int64(i), SHA256: hex.EncodeToString(sum[:]),
			})
		}
		sum := sha256.Sum256([]byte(looseToken))
		c.Tokens = append(c.Tokens, workflow.AccessToken{
			Name: "operator", Scope: "work", Prefix: "shop", Organization: organization, SHA256: hex.EncodeToString(sum[:]), Redeclare: true,
		})
	}
}

// dial is a connection to a replica with a token.
func dial(t *testing.T, address, token string) grpc.ClientConnInterface {
	t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: address, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// works runs a worker until the test ends, or stop is called.
func works(t *testing.T, c worker.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, c) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// registered waits until at least this many workers offer a Function: two that connect at once may never be seen as one.
func (s *service) registered(name string, workers int) {
	s.t.Helper()
	s.eventually("function "+name+" is registered", func(ctx context.Context) bool {
		all, err := s.ListFunctions(ctx, &autoflowv1.ListFunctionsRequest{OrganizationId: organization})
		for _, f := range all.GetFunctions() {
			if err == nil && f.GetName() == name && int(f.GetWorkers()) >= workers {
				return true
			}
		}
		return false
	})
}

type sum struct{ A, B int }

// A program calls a Function of a worker as any other: checked by its schemas, retried as it says, with its codes (issue 18, item 1).
func TestAWorkerCarriesOutCalls(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Minute))
	var flaky atomic.Int32
	add := worker.Handle("shop.add", worker.Reads, func(_ context.Context, _ worker.Call, a sum) (int, error) { return a.A + a.B, nil })
	add.Doc = "Adds two numbers."
	add.Arguments = json.RawMessage(`{"type": "object", "required": ["a", "b"], "additionalProperties": false,
		"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}`)
	add.Result = json.RawMessage(`{"type": "integer", "maximum": 100}`)
	works(t, worker.Config{Conn: dial(t, s.config.GRPCAddress, workToken), Name: "a", Version: "1.4.2", Functions: []worker.Function{
		add,
		{Name: "shop.flaky", Effect: worker.Reads, Retry: true, Do: func(context.Context, worker.Call) (any, error) {
			if flaky.Add(1) < 3 {
				return nil, &worker.Error{Code: "busy", Message: "later", Retryable: true}
			}
			return "done", nil
		}},
		{Name: "shop.fail", Effect: worker.Reads, Do: func(_ context.Context, c worker.Call) (any, error) {
			switch string(c.Arguments) {
			case `{}`:
				return nil, &worker.Error{Code: "sold_out", Message: "token=hunter22hunter22 is in this text", Retryable: true}
			case `{"panic":true}`:
				panic("on purpose")
			default:
				return nil, errors.New("a detail that stays at the worker")
			}
		}},
	}})
	s.registered("shop.fail", 1)
	s.submit("calls", `
def check(answer, **want):
    for name, value in want.items():
        if getattr(answer, name) != value:
            fail("%s: found %s, expected %s" % (name, answer, value))
r = run("shop.add", {"a": 40, "b": 2})
if r != 42:
    fail("found %s" % r)
check(run("shop.add", {"a": 40}, on_error = "return"), ok = False, code = "invalid")
check(run("shop.add", {"a": 400, "b": 2}, on_error = "return"), ok = False, code = "unreadable")
check(run("shop.flaky"), )
if run("shop.flaky") != "done":
    fail("flaky")
refused = run("shop.fail", on_error = "return", timeout = 30)
check(refused, code = "sold_out")
if "hunter22" in refused.error:
    fail("found a secret")
check(run("shop.fail", {"panic": True}, on_error = "return"), code = "internal")
plain = run("shop.fail", {"x": 1}, on_error = "return")
check(plain, code = "internal")
if "detail" in plain.error:
    fail("found a detail")
if poll("shop.add", {"a": 1, "b": 1}, until = lambda v: v == 2, interval = 1) != 2:
    fail("poll")
check(run("shop.unknown", on_error = "return"), code = "unknown_function")
`, `{}`)
	s.await("calls", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if n := flaky.Load(); n != 4 {
		t.Errorf("the function that is busy was called %d times, expected 4", n)
	}
	checked, err := s.CheckProgram(t.Context(), &autoflowv1.CheckProgramRequest{
		OrganizationId: organization, Starlark: []byte("run(\"shop.add\")\nrun(\"shop.none\")\n"),
	})
	if err != nil || len(checked.GetProblems()) != 1 || !strings.Contains(checked.GetProblems()[0].GetDescription(), "shop.none") {
		t.Errorf("checked: %v, %v", checked, err)
	}
	ours, err := s.ListFunctions(t.Context(), &autoflowv1.ListFunctionsRequest{OrganizationId: organization})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ours.GetFunctions() {
		by := []string{f.GetRegisteredBy(), f.GetRegisteredByWorker(), f.GetRegisteredByVersion()}
		want := []string{"", "", ""}
		if f.GetWorker() {
			want = []string{"worker", "a", "1.4.2"}
		}
		if !slices.Equal(by, want) {
			t.Errorf("%s is registered by %q, expected %q", f.GetName(), by, want)
		}
	}
	// To another organization it does not exist.
	theirs, err := s.ListFunctions(t.Context(), &autoflowv1.ListFunctionsRequest{OrganizationId: organization + 1})
	if err != nil || strings.Contains(theirs.String(), "shop.") || !strings.Contains(theirs.String(), "git.commit") {
		t.Errorf("another organization: %v, %v", theirs, err)
	}
	checked, err = s.CheckProgram(t.Context(), &autoflowv1.CheckProgramRequest{
		OrganizationId: organization + 1, Starlark: []byte("run(\"shop.add\")\n"),
	})
	if err != nil || len(checked.GetProblems()) != 1 {
		t.Errorf("another organization: %v, %v", checked, err)
	}
}

// raw is a worker that does what no library would.
type raw struct {
	t *testing.T
	autoflowv1.AutoFlow_WorkClient
	cancel  context.CancelFunc
	sending *sync.Mutex
}

func (s *service) raw(address, token string, register *autoflowv1.RegisterWorker) (raw, error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	stream, err := autoflowv1.NewAutoFlowClient(dial(s.t, address, token)).Work(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	r := raw{s.t, stream, cancel, &sync.Mutex{}}
	_ = stream.Send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Register{Register: register}}) // Recv has the reason
	answer, err := stream.Recv()
	if err == nil && answer.GetRegistered() == nil {
		s.t.Fatalf("found %v, expected the receipt", answer)
	}
	return r, err
}

// beats sends heartbeats from then on; a raw worker that answers as well sends from two goroutines, so it takes turns.
func (r raw) beats() raw {
	go func() {
		for r.Context().Err() == nil {
			r.sending.Lock()
			beat := &autoflowv1.WorkRequest_Heartbeat{Heartbeat: &autoflowv1.WorkHeartbeat{}}
			_ = r.Send(&autoflowv1.WorkRequest{Message: beat}) // it ends with the stream
			r.sending.Unlock()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}()
	return r
}

func (r raw) answer(call string) {
	r.t.Helper()
	r.sending.Lock()
	defer r.sending.Unlock()
	err := r.Send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Result{Result: &autoflowv1.WorkResult{
		CallId: call, Outcome: &autoflowv1.WorkResult_Value{Value: []byte(`"mine"`)},
	}}})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r raw) next() *autoflowv1.WorkResponse {
	r.t.Helper()
	m, err := r.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func reads(names ...string) (all []*autoflowv1.WorkerFunction) {
	for _, name := range names {
		all = append(all, &autoflowv1.WorkerFunction{Name: name, Effect: autoflowv1.FunctionEffect_FUNCTION_EFFECT_READS})
	}
	return all
}

// A worker registers nothing but its own (issue 18, item 1): no name of Lockstep's, no other prefix, nothing unbounded.
func TestWhatAWorkerMayNotRegister(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Minute))
	changes := func(places ...*autoflowv1.FunctionPlace) []*autoflowv1.WorkerFunction {
		return []*autoflowv1.WorkerFunction{{Name: "shop.a", Effect: autoflowv1.FunctionEffect_FUNCTION_EFFECT_CHANGES, Places: places}}
	}
	for name, tt := range map[string]struct {
		change func(*autoflowv1.RegisterWorker)
		want   codes.Code
	}{
		"a name of Lockstep's":     {func(r *autoflowv1.RegisterWorker) { r.Functions = reads("git.commit") }, codes.InvalidArgument},
		"emit":                     {func(r *autoflowv1.RegisterWorker) { r.Functions = reads("emit") }, codes.InvalidArgument},
		"another prefix":           {func(r *autoflowv1.RegisterWorker) { r.Functions = reads("shops.a") }, codes.InvalidArgument},
		"the prefix alone":         {func(r *autoflowv1.RegisterWorker) { r.Functions = reads("shop") }, codes.InvalidArgument},
		"odd characters":           {func(r *autoflowv1.RegisterWorker) { r.Functions = reads("shop.A\x00") }, codes.InvalidArgument},
		"one name twice":           {func(r *autoflowv1.RegisterWorker) { r.Functions = reads("shop.a", "shop.a") }, codes.InvalidArgument},
		"no functions":             {func(r *autoflowv1.RegisterWorker) { r.Functions = nil }, codes.InvalidArgument},
		"another organization":     {func(r *autoflowv1.RegisterWorker) { r.OrganizationId = organization + 1 }, codes.NotFound},
		"unbounded calls":          {func(r *autoflowv1.RegisterWorker) { r.MaxInFlight = 1001 }, codes.InvalidArgument},
		"no effect":                {func(r *autoflowv1.RegisterWorker) { r.Functions[0].Effect = 0 }, codes.InvalidArgument},
		"a change without a place": {func(r *autoflowv1.RegisterWorker) { r.Functions = changes() }, codes.InvalidArgument},
		"a whole cluster": {
			func(r *autoflowv1.RegisterWorker) { r.Functions = changes(&autoflowv1.FunctionPlace{Agent: "/agent"}) }, codes.InvalidArgument,
		},
		"a whole repository": {
			func(r *autoflowv1.RegisterWorker) { r.Functions = changes(&autoflowv1.FunctionPlace{Repository: "/r"}) }, codes.InvalidArgument,
		},
		"no pointer": {func(r *autoflowv1.RegisterWorker) { r.Functions = changes(&autoflowv1.FunctionPlace{Url: "url"}) }, codes.InvalidArgument},
		"a malformed schema": {
			func(r *autoflowv1.RegisterWorker) { r.Functions[0].ArgumentsSchema = []byte(`{"type": 7}`) }, codes.InvalidArgument,
		},
		"a schema of elsewhere": {
			func(r *autoflowv1.RegisterWorker) {
				r.Functions[0].ArgumentsSchema = []byte(`{"$ref": "http://169.254.169.254/x"}`)
			}, codes.InvalidArgument,
		},
		"a large declaration": {func(r *autoflowv1.RegisterWorker) { r.Functions[0].Doc = strings.Repeat("x", 70_000) }, codes.InvalidArgument},
		"not a registration":  {func(r *autoflowv1.RegisterWorker) { *r = autoflowv1.RegisterWorker{} }, codes.InvalidArgument},
		"right":               {func(*autoflowv1.RegisterWorker) {}, codes.OK},
	} {
		r := &autoflowv1.RegisterWorker{OrganizationId: organization, Worker: "a", MaxInFlight: 1, Functions: reads("shop.a")}
		tt.change(r)
		if _, err := s.raw(s.config.GRPCAddress, workToken, r); status.Code(err) != tt.want {
			t.Errorf("%s: found %v, expected %s", name, err, tt.want)
		}
	}
	// Other tokens do not work, and that of a worker does nothing else.
	if _, err := s.raw(s.config.GRPCAddress, token, &autoflowv1.RegisterWorker{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a token of scope admin: %v", err)
	}
	of := s.as(workToken)
	if _, err := of.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a read with the token of a worker: %v", err)
	}
	if _, err := of.DeclareAgents(t.Context(), &autoflowv1.DeclareAgentsRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an admin's call with the token of a worker: %v", err)
	}
}

// A worker's declaration may become stricter, and not looser: the calls of programs that were checked with it would need no passage any
// more (D46). An operator's token may say otherwise.
func TestADeclarationOnlyBecomesStricter(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Minute))
	const (
		reading  = autoflowv1.FunctionEffect_FUNCTION_EFFECT_READS
		changing = autoflowv1.FunctionEffect_FUNCTION_EFFECT_CHANGES
		undoing  = autoflowv1.FunctionEffect_FUNCTION_EFFECT_TAKES_BACK
	)
	site, other := &autoflowv1.FunctionPlace{Url: "/site"}, &autoflowv1.FunctionPlace{Url: "/other"}
	for i, step := range []struct {
		token  string
		effect autoflowv1.FunctionEffect
		places []*autoflowv1.FunctionPlace
		want   codes.Code
	}{
		{workToken, reading, nil, codes.OK},
		{workToken, undoing, []*autoflowv1.FunctionPlace{site}, codes.OK},
		{workToken, reading, nil, codes.PermissionDenied},
		{workToken, changing, []*autoflowv1.FunctionPlace{other}, codes.PermissionDenied},
		{workToken, changing, []*autoflowv1.FunctionPlace{site, other}, codes.OK},
		{workToken, changing, []*autoflowv1.FunctionPlace{site, other}, codes.OK},
		{workToken, undoing, []*autoflowv1.FunctionPlace{site, other}, codes.PermissionDenied},
		{workToken, changing, []*autoflowv1.FunctionPlace{other}, codes.PermissionDenied},
		{othersToken, reading, nil, codes.OK}, // another organization's Function of the same name
		{workToken, reading, nil, codes.PermissionDenied},
		{looseToken, reading, nil, codes.OK},
		{workToken, reading, nil, codes.OK},
	} {
		_, err := s.raw(s.config.GRPCAddress, step.token, &autoflowv1.RegisterWorker{Worker: "a", MaxInFlight: 1, Functions: []*autoflowv1.WorkerFunction{
			{Name: "shop.new", Effect: reading}, {Name: "shop.a", Effect: step.effect, Places: step.places},
		}})
		if status.Code(err) != step.want || err != nil && !strings.Contains(err.Error(), "functions[1]: shop.a: found ") {
			t.Errorf("registration %d: found %v, expected %s", i, err, step.want)
		}
	}
}

// A stream without a registration has no heartbeats that could be missed; it ends all the same (issue 18, item 1).
func TestAWorkerThatNeverRegisters(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Second))
	stream, err := autoflowv1.NewAutoFlowClient(dial(t, s.config.GRPCAddress, workToken)).Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no registration was received in time") {
		t.Errorf("found %v, expected the stream to end", err)
	}
}

// Only the worker that has a call may answer it; one that is silent or disconnects loses its calls to another (issue 18, item 1).
func TestACallIsItsHoldersAlone(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Second))
	register := func() *autoflowv1.RegisterWorker {
		return &autoflowv1.RegisterWorker{Worker: "a", MaxInFlight: 1, Functions: reads("shop.a")}
	}
	silent, err := s.raw(s.config.GRPCAddress, workToken, register())
	if err != nil {
		t.Fatal(err)
	}
	s.submit("w", `
if run("shop.a") != by:
    fail("answered by the wrong worker")
`, `{"by": "mine"}`)
	call := silent.next().GetCall()
	if call.GetFunction() != "shop.a" || call.GetAttempt() != 1 || string(call.GetArguments()) != "{}" || call.GetWorkflowId() != "w" {
		t.Fatalf("found %v", call)
	}
	thief, err := s.raw(s.config.GRPCAddress, othersToken, register())
	if err != nil {
		t.Fatal(err)
	}
	thief.beats().answer(call.GetCallId())
	if m := thief.next(); m.GetRejected().GetCallId() != call.GetCallId() {
		t.Errorf("an answer of another organization's worker: found %v, expected it to be rejected", m)
	}
	// The silent one is given up after a second; its call goes to the next.
	next, err := s.raw(s.config.GRPCAddress, workToken, register())
	if err != nil {
		t.Fatal(err)
	}
	if again := next.beats().next().GetCall(); again.GetCallId() != call.GetCallId() || again.GetAttempt() != 2 {
		t.Fatalf("found %v, expected the call a second time", again)
	}
	if _, err := silent.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the silent worker: %v", err)
	}
	next.cancel() // it disconnects: the call is offered at once
	last, err := s.raw(s.config.GRPCAddress, workToken, register())
	if err != nil {
		t.Fatal(err)
	}
	if again := last.beats().next().GetCall(); again.GetCallId() != call.GetCallId() || again.GetAttempt() != 3 {
		t.Fatalf("found %v, expected the call a third time", again)
	}
	last.answer(call.GetCallId())
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	last.answer(call.GetCallId()) // a second answer
	m := last.next()
	if m.GetCancelled().GetCallId() == call.GetCallId() { // its run ended before the worker was seen to hold it no longer
		m = last.next()
	}
	if m.GetRejected().GetCallId() != call.GetCallId() {
		t.Errorf("a second answer: found %v, expected it to be rejected", m)
	}
}

// A worker is not given more than it takes, stops what is cancelled, and drains (issue 18, item 1).
func TestBackpressureCancellationAndDrain(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(600*time.Millisecond))
	var now, most atomic.Int32
	pair := make(chan struct{})
	cancelled, begun, finish := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	stop := works(t, worker.Config{
		Conn: dial(t, s.config.GRPCAddress, workToken), Name: "a", InFlight: 2, Functions: []worker.Function{
			{Name: "shop.count", Effect: worker.Reads, Do: func(context.Context, worker.Call) (any, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() { //nolint:revive // the condition does the work
				}
				select { // it takes two to end
				case pair <- struct{}{}:
				case <-pair:
				}
				return nil, nil //nolint:nilnil // None
			}},
			{Name: "shop.wait", Effect: worker.Reads, Do: func(ctx context.Context, _ worker.Call) (any, error) {
				begun <- struct{}{}
				select {
				case <-ctx.Done():
					cancelled <- struct{}{}
					return nil, ctx.Err()
				case <-finish:
					return "finished", nil
				}
			}},
		},
	})
	s.registered("shop.wait", 1)
	s.submit("many", "gather(*[spawn(run, \"shop.count\") for _ in range(200)])\n", `{}`)
	s.await("many", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if most.Load() != 2 {
		t.Errorf("found %d calls at a time, expected 2", most.Load())
	}
	s.submit("stopped", "run(\"shop.wait\")\n", `{}`)
	<-begun
	_, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{OrganizationId: organization, WorkflowId: "stopped"})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-cancelled:
	case <-time.After(within):
		t.Fatal("the worker was not cancelled")
	}
	// While it drains, it finishes what it has and is given nothing else.
	s.submit("last", "run(\"shop.wait\")\n", `{}`)
	<-begun
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	s.submit("later", "run(\"shop.wait\")\n", `{}`)
	close(finish)
	<-ended
	s.await("last", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	works(t, worker.Config{Conn: dial(t, s.config.GRPCAddress, workToken), Name: "b", Functions: []worker.Function{
		{Name: "shop.wait", Effect: worker.Reads, Do: func(context.Context, worker.Call) (any, error) { return "later", nil }},
	}})
	s.await("later", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if len(begun) != 0 {
		t.Error("the worker was given a call while it drained")
	}
}

// A worker may be connected to any replica: calls of the runs of all others reach it, promptly (issue 18, item 1).
func TestAWorkerOfAnotherReplica(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Minute))
	second := *s
	second.config.Instance, second.config.GRPCAddress = "second", porttest.FreeAddress(t)
	second.AutoFlowClient = autoflowv1.NewAutoFlowClient(dial(t, second.config.GRPCAddress, token))
	second.up()
	t.Cleanup(second.down)
	works(t, worker.Config{Conn: dial(t, second.config.GRPCAddress, workToken), Name: "a", Functions: []worker.Function{
		{Name: "shop.a", Effect: worker.Reads, Do: func(_ context.Context, c worker.Call) (any, error) { return c.ID, nil }},
	}})
	second.registered("shop.a", 1)
	s.submit("w", "for _ in range(20):\n    run(\"shop.a\")\n", `{}`)
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
}

// workerCommand makes the test's binary a worker, which calls a server with the id of each call and dies where its order says.
const workerCommand = "worker"

type workerOrder struct {
	Address, World string
	// Seed says at which of its calls it kills itself, and whether before or after the effect.
	Seed uint64
}

func workerProcess() int {
	var order workerOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return 1
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Address: order.Address, Token: workToken, Insecure: true})
	if err != nil {
		return 1
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(order.Seed, 1)) //nolint:gosec // where to die
	dies := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return order.Seed > 0 && random.IntN(12) == 0
	}
	err = worker.Run(context.Background(), worker.Config{Conn: conn, Name: "killed", InFlight: 4, Functions: []worker.Function{
		{Name: "shop.effect", Effect: worker.Reads, Do: func(ctx context.Context, c worker.Call) (any, error) {
			if dies() {
				killMyself() // before the effect
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, order.World, strings.NewReader(c.ID))
			if err != nil {
				return nil, err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return nil, err
			}
			defer func() { _ = response.Body.Close() }()
			answer, err := io.ReadAll(response.Body)
			if dies() {
				killMyself() // after the effect, before its answer
			}
			return string(answer), err
		}},
	}})
	_, _ = fmt.Fprintln(os.Stderr, "the worker has ended:", err)
	return 1
}

// Workers and the engine are killed (signal 9) at each step, again and again: every call takes effect once by its id, each run has the
// answer of its own call, and nothing is lost (issue 18, item 1).
func TestWorkersAndEngineAreKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes many processes")
	}
	var mu sync.Mutex
	effects, attempts := map[string]int{}, 0
	world := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		attempts++
		if effects[string(key)] == 0 {
			effects[string(key)] = len(effects) + 1 // the effect, once by its id
		}
		_, _ = fmt.Fprint(w, effects[string(key)])
	}))
	t.Cleanup(world.Close)
	s := startWith(t, withWorkers(time.Second))
	s.config.LeaseDuration = time.Second
	s.down()
	kill := s.spawn()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	var seed atomic.Uint64
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var peaceful atomic.Bool
	for range 2 {
		workers.Go(func() {
			for ctx.Err() == nil {
				order := workerOrder{Address: s.config.GRPCAddress, World: world.URL, Seed: seed.Add(1)}
				if peaceful.Load() {
					order.Seed = 0
				}
				text, _ := json.Marshal(order)
				cmd := exec.CommandContext(ctx, self, workerCommand)
				cmd.Stdin, cmd.Stderr = bytes.NewReader(text), io.Discard
				_ = cmd.Run() // it is killed
			}
		})
	}
	s.registered("shop.effect", 1)
	const runs, calls = 8, 6
	for i := range runs {
		s.submit(fmt.Sprintf("run-%d", i), `
seen = [run("shop.effect") for _ in range(3)] + gather(*[spawn(run, "shop.effect") for _ in range(3)])
if len(set(seen)) != 6:
    fail("two calls have one answer: %s" % seen)
print(seen)
`, `{}`)
	}
	for range 3 {
		time.Sleep(400 * time.Millisecond) // how far everything has come by then is what differs
		kill()
		kill = s.spawn()
	}
	peaceful.Store(true)
	for i := range runs {
		s.await(fmt.Sprintf("run-%d", i), autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(effects) != runs*calls {
		t.Errorf("found %d effects, expected %d", len(effects), runs*calls)
	}
	t.Logf("%d attempts for %d effects, %d workers", attempts, len(effects), seed.Load())
}
