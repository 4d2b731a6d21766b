package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// Builtin is a Function that all organizations have.
type Builtin struct {
	Name, Doc string
	Effect    activity.Effect
}

// Work serves a worker until its stream ends, it is silent, or the server stops.
func (s *Server) Work(stream autoflowv1.AutoFlow_WorkServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-s.Stopping:
			cancel(control.ErrStopping)
		case <-ctx.Done():
		}
	}()
	opening, err := s.registration(ctx, stream)
	if err != nil {
		return err
	}
	session, err := s.Workers.Open(ctx, opening)
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	err = stream.Send(&autoflowv1.WorkResponse{Message: &autoflowv1.WorkResponse_Registered{Registered: &autoflowv1.WorkerRegistered{
		Session:           session.ID(),
		HeartbeatInterval: durationpb.New(s.Workers.Interval()), HeartbeatTimeout: durationpb.New(s.Workers.Heartbeat),
	}}})
	if err != nil {
		return ended(err)
	}
	over := make(chan error, 3+answering) // room for all, so that none of them outlives the handler for long
	go func() { over <- session.Run(ctx) }()
	go func() { over <- sending(ctx, session, stream) }()
	go func() { over <- receiving(ctx, session, stream, over) }()
	err = <-over
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, control.ErrStopping) {
		err = cause
	}
	cancel(err)
	return err
}

// ended is the error of a stream that its worker has ended or lost. It has a status already.
func ended(err error) error { return err }

// registration receives the first message. A caller that connects and does not send it would keep a stream for ever, so it has as long as a
// worker may be silent.
func (s *Server) registration(ctx context.Context, stream autoflowv1.AutoFlow_WorkServer) (worker.Opening, error) {
	type first struct {
		opening worker.Opening
		err     error
	}
	received := make(chan first, 1) // the receiver ends with the stream, which ends with its handler
	go func() {
		o, err := firstOf(ctx, stream)
		received <- first{o, err}
	}()
	limit := s.Workers.Clock.NewTimer(s.Workers.Heartbeat)
	defer limit.Stop()
	select {
	case f := <-received:
		return f.opening, f.err
	case <-limit.C():
		return worker.Opening{}, worker.ErrUnregistered
	case <-ctx.Done():
		return worker.Opening{}, ended(context.Cause(ctx))
	}
}

// firstOf receives the registration.
func firstOf(ctx context.Context, stream autoflowv1.AutoFlow_WorkServer) (worker.Opening, error) {
	caller, known := rpc.CallerFrom(ctx)
	if !known {
		return worker.Opening{}, fault.New(fault.Unauthenticated, "the call carries no known token")
	}
	first, err := stream.Recv()
	if err != nil {
		return worker.Opening{}, ended(err)
	}
	r := first.GetRegister()
	if r == nil {
		return worker.Opening{}, invalid("register", "missing, expected the registration in the first message")
	}
	org, err := organization(ctx, r.GetOrganizationId())
	if err != nil {
		return worker.Opening{}, err
	}
	if org == 0 { // the configuration refuses such a token
		return worker.Opening{}, fault.New(fault.Denied, "the token of a worker names its organization")
	}
	o := worker.Opening{
		Organization: org, Prefix: caller.Prefix, Name: r.GetWorker(), InFlight: int(r.GetMaxInFlight()), Redeclare: caller.Redeclare,
		Principal: caller.Name, Version: history.Storable(r.GetVersion()),
	}
	for _, f := range r.GetFunctions() {
		d := worker.Declaration{
			Name: f.GetName(), Doc: history.Storable(f.GetDoc()), Arguments: f.GetArgumentsSchema(), Result: f.GetResultSchema(),
			Retry: f.GetRetry(), Effect: effectNames()[f.GetEffect()], Secrets: f.GetSecrets(),
		}
		for _, p := range f.GetPlaces() {
			d.Places = append(d.Places, worker.PlaceForm{
				Agent: p.GetAgent(), Application: p.GetApplication(), ApplicationNamespace: p.GetApplicationNamespace(), Namespace: p.GetNamespace(),
				Name: p.GetName(), Repository: p.GetRepository(), Branch: p.GetBranch(), Path: p.GetPath(), URL: p.GetUrl(),
			})
		}
		o.Functions = append(o.Functions, d)
	}
	return o, nil
}

func effectNames() map[autoflowv1.FunctionEffect]string {
	return map[autoflowv1.FunctionEffect]string{
		autoflowv1.FunctionEffect_FUNCTION_EFFECT_READS: "reads", autoflowv1.FunctionEffect_FUNCTION_EFFECT_CHANGES: "changes",
		autoflowv1.FunctionEffect_FUNCTION_EFFECT_TAKES_BACK: "takes_back",
	}
}

// sending sends a worker what there is for it.
func sending(ctx context.Context, session *worker.Session, stream autoflowv1.AutoFlow_WorkServer) error {
	for {
		select {
		case m := <-session.Messages():
			if err := stream.Send(message(m)); err != nil {
				return ended(err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// answering is how many answers of one worker are stored at the same time.
const answering = 16

// receiving takes what a worker sends. What fails while an answer is stored ends the stream.
func receiving(ctx context.Context, session *worker.Session, stream autoflowv1.AutoFlow_WorkServer, over chan<- error) error {
	slots := make(chan struct{}, answering)
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ended(err)
		}
		switch m := request.GetMessage().(type) {
		case *autoflowv1.WorkRequest_Result:
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			go func() {
				defer func() { <-slots }()
				if err := session.Answer(ctx, m.Result.GetCallId(), m.Result.GetValue(), failure(m.Result)); err != nil {
					select {
					case over <- err:
					case <-ctx.Done():
					}
				}
			}()
		case *autoflowv1.WorkRequest_Heartbeat:
			session.Heartbeat()
		case *autoflowv1.WorkRequest_Drain:
			session.Drain(ctx)
		default:
			return invalid("message", "found %T, expected result, heartbeat or drain", m)
		}
	}
}

// failure is why a result has no value; nil if it has one.
func failure(r *autoflowv1.WorkResult) *history.FunctionError {
	f := r.GetFailure()
	if f == nil && r.GetValue() != nil {
		return nil
	}
	if f == nil {
		return &history.FunctionError{Code: history.CodeUnreadable, Message: "the worker sent neither a value nor a failure"}
	}
	return &history.FunctionError{
		Code: cmp.Or(f.GetCode(), "failed"), Message: f.GetMessage(), Retryable: f.GetRetryable(), After: f.GetRetryAfter().AsDuration(),
	}
}

// message is what a worker is sent.
func message(m worker.Message) *autoflowv1.WorkResponse {
	switch {
	case m.Call != nil:
		return &autoflowv1.WorkResponse{Message: &autoflowv1.WorkResponse_Call{Call: &autoflowv1.WorkCall{
			CallId: m.Call.ID, Attempt: int32(m.Call.Attempt), Function: m.Call.Function, Arguments: m.Call.Args,
			Deadline: timestamppb.New(m.Call.Deadline), WorkflowId: m.Call.Workflow, OrganizationId: m.Call.Organization, TraceParent: m.Call.Trace,
			Secrets: m.Call.Secrets,
		}}}
	case m.Cancelled != "":
		return &autoflowv1.WorkResponse{Message: &autoflowv1.WorkResponse_Cancelled{Cancelled: &autoflowv1.WorkCancelled{CallId: m.Cancelled}}}
	case m.Rejected != "":
		return &autoflowv1.WorkResponse{Message: &autoflowv1.WorkResponse_Rejected{
			Rejected: &autoflowv1.WorkRejected{CallId: m.Rejected, Reason: m.Reason},
		}}
	default:
		return &autoflowv1.WorkResponse{Message: &autoflowv1.WorkResponse_Drained{Drained: &autoflowv1.WorkDrained{}}}
	}
}

// ListFunctions answers what programs of an organization may call.
func (s *Server) ListFunctions(ctx context.Context, req *autoflowv1.ListFunctionsRequest) (*autoflowv1.ListFunctionsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListFunctionsResponse{}
	for _, f := range s.Functions {
		resp.Functions = append(resp.Functions, &autoflowv1.FunctionInfo{Name: f.Name, Doc: f.Doc, Effect: effect(f.Effect)})
	}
	if org < 0 {
		return nil, invalid("organization_id", "found %d, expected a number from 0", org)
	}
	if org > 0 {
		all, err := s.Workers.Catalogue.List(ctx, org)
		if err != nil {
			return nil, err
		}
		connected := s.Workers.Connected(org)
		for _, f := range all {
			resp.Functions = append(resp.Functions, &autoflowv1.FunctionInfo{
				Name: f.Name, Doc: f.Doc, ArgumentsSchema: f.Arguments, ResultSchema: f.Result, Effect: effect(f.EffectOf()), Worker: true,
				Workers: int32(connected[f.Name]), RegisteredAt: timestamppb.New(f.RegisteredAt),
				Secrets: f.Secrets, RegisteredBy: f.By.Principal, RegisteredByWorker: f.By.Worker, RegisteredByVersion: f.By.Version,
			})
		}
	}
	slices.SortFunc(resp.GetFunctions(), func(a, b *autoflowv1.FunctionInfo) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return resp, nil
}

func effect(e activity.Effect) autoflowv1.FunctionEffect {
	switch e {
	case activity.Reads:
		return autoflowv1.FunctionEffect_FUNCTION_EFFECT_READS
	case activity.Changes:
		return autoflowv1.FunctionEffect_FUNCTION_EFFECT_CHANGES
	case activity.TakesBack:
		return autoflowv1.FunctionEffect_FUNCTION_EFFECT_TAKES_BACK
	case activity.Proposes, activity.Publishes: // of no worker's Function
	case activity.Unstated:
	}
	return autoflowv1.FunctionEffect_FUNCTION_EFFECT_UNSPECIFIED
}
