package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// Effect is what a Function does to anything outside. It decides whether a call needs the passage of an environment.
type Effect = autoflowv1.FunctionEffect

// The effects.
const (
	// Reads changes nothing.
	Reads = autoflowv1.FunctionEffect_FUNCTION_EFFECT_READS
	// Changes changes something. Such a Function has Places.
	Changes = autoflowv1.FunctionEffect_FUNCTION_EFFECT_CHANGES
	// TakesBack only takes back what a rollout has begun. Such a Function has Places.
	TakesBack = autoflowv1.FunctionEffect_FUNCTION_EFFECT_TAKES_BACK
)

// Place is something that a call changes; its members are JSON pointers into the arguments.
type Place = autoflowv1.FunctionPlace

// Function is something that programs can call with run and poll.
type Function struct {
	// Name begins with the prefix of the token: shop.reserve.
	Name string
	// Doc says in the reference of the installation what the Function does and answers, as Markdown.
	Doc string
	// Arguments and Result are JSON schemas; nil accepts everything.
	Arguments, Result json.RawMessage
	// Retry has failures that are Retryable tried again, until the timeout of the call.
	Retry  bool
	Effect Effect
	Places []*Place
	// Secrets are arguments that name credentials, or secrets of the run: Call.Secrets has their values. A credential has to be for the
	// Function, with worker://shop.charge among its URLs.
	Secrets []string
	// Do carries it out. The value is encoded as JSON; an *Error says what went wrong, and any other error is the code "internal". ctx ends at
	// the call's deadline, or when the call is no longer this worker's.
	Do func(ctx context.Context, call Call) (any, error)
}

// Handle makes a Function of Go types: arguments are decoded from JSON.
func Handle[A, R any](name string, effect Effect, do func(ctx context.Context, call Call, arguments A) (R, error)) Function {
	return Function{Name: name, Effect: effect, Do: func(ctx context.Context, call Call) (any, error) {
		var arguments A
		if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
			return nil, &Error{Code: "invalid", Message: "the arguments cannot be decoded: " + err.Error()}
		}
		return do(ctx, call, arguments)
	}}
}

// Call is one attempt at a Function.
type Call struct {
	// ID is the same for every attempt at the same call: use it as the idempotency key. Attempt counts from 1.
	ID      string
	Attempt int
	// Function is the name it was called by.
	Function string
	// Arguments is a JSON object.
	Arguments json.RawMessage
	// Deadline is when the run stops waiting.
	Deadline time.Time
	// Workflow is the id of the run, and Organization whose it is.
	Workflow     string
	Organization int64
	// TraceParent is the trace of the run (W3C); empty for none.
	TraceParent string
	// Secrets are the values of the Function's secret arguments, by argument. They belong into no log and no result.
	Secrets Secrets
}

// Secrets are values that are shown nowhere: they are printed, logged and encoded without them.
type Secrets map[string]string

// String does not show the values.
func (s Secrets) String() string { return fmt.Sprintf("%d secrets", len(s)) }

// GoString does not show the values.
func (s Secrets) GoString() string { return s.String() }

// LogValue does not show the values.
func (s Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON does not show the values.
func (s Secrets) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Error is a failure that programs see and can compare with. It is recorded, so it contains no secret.
type Error struct {
	// Code is a stable word: lower-case letters, digits and underscores.
	Code string
	// Message is one sentence.
	Message string
	// Retryable is set if the same call may succeed later, RetryAfter is how long to wait at least.
	Retryable  bool
	RetryAfter time.Duration
}

// Error is "code: message".
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Config is a worker.
type Config struct {
	// Conn is a connection to the workflow service, whose calls carry a token of scope work.
	Conn grpc.ClientConnInterface
	// Name is for the service's logs, and for those who ask who has registered a Function.
	Name string
	// Version is the version of the worker's program, up to 100 bytes; it is shown beside the Name.
	Version string
	// Organization may be 0: that of the token.
	Organization int64
	Functions    []Function
	// InFlight is how many calls are carried out at a time. Default: 16.
	InFlight int
	// Drain is how long calls in progress may take to end once ctx has ended. Default: 30 s.
	Drain time.Duration
	// Log receives lost connections and rejected answers; nil means none.
	Log *slog.Logger
	// Clock is nil for the system's.
	Clock clock.Clock
}

const (
	firstPause, longestPause = 100 * time.Millisecond, 10 * time.Second
	defaultInFlight          = 16
	defaultDrain             = 30 * time.Second
)

// Run carries out calls until ctx ends; then it takes no more, and returns nil when those in progress have ended. It connects again
// whenever the connection is lost. The error is that of a registration that the service refuses permanently: INVALID_ARGUMENT,
// UNAUTHENTICATED or PERMISSION_DENIED.
func Run(ctx context.Context, c Config) error {
	if c.InFlight == 0 {
		c.InFlight = defaultInFlight
	}
	if c.Drain == 0 {
		c.Drain = defaultDrain
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		s := &session{Config: c, running: map[string]context.CancelFunc{}}
		err := s.run(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped
		}
		switch status.Code(err) {
		case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
			return err
		default:
		}
		if s.registered {
			pause = firstPause
		}
		c.Log.WarnContext(ctx, "the connection to the workflow service was lost; will connect again", "error", err, "pause", pause)
		if clock.Sleep(ctx, c.Clock, pause) != nil {
			return nil //nolint:nilerr // it was stopped
		}
	}
}

// session is one connection.
type session struct {
	Config

	stream     autoflowv1.AutoFlow_WorkClient
	registered bool
	calls      sync.WaitGroup

	sending sync.Mutex // a stream takes one message at a time

	mu      sync.Mutex
	running map[string]context.CancelFunc
}

// run serves one connection until it is lost, or until ctx has ended and the calls in progress have.
func (s *session) run(ctx context.Context) error {
	// The connection outlives ctx: calls in progress still answer.
	open, closeStream := context.WithCancel(context.WithoutCancel(ctx))
	defer s.calls.Wait()
	defer closeStream()
	// Also while the service is away: Work waits for it.
	stopConnecting := context.AfterFunc(ctx, closeStream)
	var err error
	if s.stream, err = autoflowv1.NewAutoFlowClient(s.Conn).Work(open, grpc.WaitForReady(true)); err != nil {
		stopConnecting()
		return fmt.Errorf("connect: %w", err)
	}
	interval, err := s.register()
	if !stopConnecting() || err != nil {
		return err
	}
	s.registered = true
	ended := make(chan error, 1)
	go func() { ended <- s.receive(open) }()
	beat := s.Clock.NewTimer(interval)
	defer beat.Stop()
	stopping := ctx.Done()
	var cut <-chan time.Time
	for {
		select {
		case err := <-ended:
			return err
		case <-beat.C():
			// If it cannot be sent, receive ends, too.
			_ = s.send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Heartbeat{Heartbeat: &autoflowv1.WorkHeartbeat{}}})
			beat = s.Clock.NewTimer(interval)
		case <-stopping:
			stopping = nil
			_ = s.send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Drain{Drain: &autoflowv1.WorkDrain{}}}) // receive ends, too
			t := s.Clock.NewTimer(s.Drain)
			defer t.Stop()
			cut = t.C()
		case <-cut:
			return nil
		}
	}
}

// register sends the Functions, and returns how often to send heartbeats.
func (s *session) register() (time.Duration, error) {
	r := &autoflowv1.RegisterWorker{OrganizationId: s.Organization, Worker: s.Name, MaxInFlight: int32(s.InFlight), Version: s.Version}
	for _, f := range s.Functions {
		r.Functions = append(r.Functions, &autoflowv1.WorkerFunction{
			Name: f.Name, Doc: f.Doc, ArgumentsSchema: f.Arguments, ResultSchema: f.Result, Retry: f.Retry, Effect: f.Effect, Places: f.Places,
			Secrets: f.Secrets,
		})
	}
	_ = s.send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Register{Register: r}}) // Recv returns what went wrong
	answer, err := s.stream.Recv()
	if err != nil {
		return 0, fmt.Errorf("register: %w", err)
	}
	if answer.GetRegistered() == nil {
		return 0, fmt.Errorf("register: found %T, expected the receipt", answer.GetMessage())
	}
	return max(answer.GetRegistered().GetHeartbeatInterval().AsDuration(), 10*time.Millisecond), nil
}

func (s *session) send(r *autoflowv1.WorkRequest) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.stream.Send(r); err != nil {
		return fmt.Errorf("send: %w", err) // the reason is what Recv returns
	}
	return nil
}

// receive starts calls until the stream ends.
func (s *session) receive(ctx context.Context) error {
	for {
		answer, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		switch m := answer.GetMessage().(type) {
		case *autoflowv1.WorkResponse_Call:
			s.begin(ctx, m.Call)
		case *autoflowv1.WorkResponse_Cancelled:
			s.mu.Lock()
			if cancel, running := s.running[m.Cancelled.GetCallId()]; running {
				cancel()
			}
			s.mu.Unlock()
		case *autoflowv1.WorkResponse_Rejected:
			s.Log.WarnContext(ctx, "an answer was rejected", "call", m.Rejected.GetCallId(), "reason", m.Rejected.GetReason())
		case *autoflowv1.WorkResponse_Drained:
			return nil
		}
	}
}

// begin carries out a call, beside the others.
func (s *session) begin(ctx context.Context, c *autoflowv1.WorkCall) {
	ctx, cancel := context.WithTimeout(ctx, c.GetDeadline().AsTime().Sub(s.Clock.Now()))
	s.mu.Lock()
	s.running[c.GetCallId()] = cancel
	s.mu.Unlock()
	s.calls.Go(func() {
		defer cancel()
		result := s.result(ctx, c)
		s.mu.Lock()
		delete(s.running, c.GetCallId())
		s.mu.Unlock()
		// A lost connection is noticed by receive; the call is given again.
		_ = s.send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Result{Result: result}})
	})
}

// result is what comes of a call.
func (s *session) result(ctx context.Context, c *autoflowv1.WorkCall) *autoflowv1.WorkResult {
	value, err := s.do(ctx, c)
	if err == nil {
		encoded, encodeErr := json.Marshal(value)
		if encodeErr == nil {
			return &autoflowv1.WorkResult{CallId: c.GetCallId(), Outcome: &autoflowv1.WorkResult_Value{Value: encoded}}
		}
		err = fmt.Errorf("encode the value: %w", encodeErr)
	}
	failure := &autoflowv1.WorkFailure{Code: "internal", Message: "the function did not finish; the worker's log says why"}
	if worded, ok := errors.AsType[*Error](err); ok {
		failure = &autoflowv1.WorkFailure{
			Code: worded.Code, Message: worded.Message, Retryable: worded.Retryable, RetryAfter: durationpb.New(worded.RetryAfter),
		}
	} else {
		s.Log.WarnContext(ctx, "function failed", "function", c.GetFunction(), "call", c.GetCallId(), "error", err)
	}
	return &autoflowv1.WorkResult{CallId: c.GetCallId(), Outcome: &autoflowv1.WorkResult_Failure{Failure: failure}}
}

// do calls the Function. A panic is the failure of that call and of no other.
func (s *session) do(ctx context.Context, c *autoflowv1.WorkCall) (value any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	for _, f := range s.Functions {
		if f.Name == c.GetFunction() {
			if missing := f.missing(c); missing != "" {
				return nil, &Error{Code: "unreachable", Message: "the service did not send the secret " + missing, Retryable: true}
			}
			return f.Do(ctx, Call{
				ID: c.GetCallId(), Attempt: int(c.GetAttempt()), Function: c.GetFunction(), Arguments: c.GetArguments(),
				Deadline: c.GetDeadline().AsTime(), Workflow: c.GetWorkflowId(), Organization: c.GetOrganizationId(), TraceParent: c.GetTraceParent(),
				Secrets: c.GetSecrets(),
			})
		}
	}
	return nil, &Error{Code: "unknown_function", Message: "the worker does not have the function " + c.GetFunction()}
}

// missing is a secret argument of a call that was sent without its value, by a service of an earlier release; "" for none.
func (f Function) missing(c *autoflowv1.WorkCall) string {
	if len(f.Secrets) == 0 {
		return ""
	}
	var arguments map[string]json.RawMessage
	_ = json.Unmarshal(c.GetArguments(), &arguments) // what is no object has no such arguments
	for _, name := range f.Secrets {
		given, named := arguments[name]
		if _, sent := c.GetSecrets()[name]; named && string(given) != "null" && !sent {
			return name
		}
	}
	return ""
}
