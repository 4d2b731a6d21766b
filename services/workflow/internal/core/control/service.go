package control

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Service is what callers can ask of the engine. It stores; the Engine runs.
type Service struct {
	// Admit refuses a start with so many bytes of inputs where its organization is at a limit; nil: there is none. Runs of the domain service
	// are always admitted.
	Admit func(organization int64, bytes int) error
	// AdmitMessage refuses the message of a start in the same way.
	AdmitMessage func(organization int64, bytes int) error
	// AdmitCall refuses a call of a channel; nil: none is.
	AdmitCall func(organization int64) error
	// Full reports whether the runs of an organization wait for storage before their next generations; nil: they do not.
	Full func(organization int64) bool
	// Rests is why an execution rests in this process; nil: none does.
	Rests func(execution int64) engine.Rest
	// Tries are the failed attempts so far at a call that is under way in this process; nil: none are known.
	Tries   func(call string) *history.Tries
	store   Store
	scripts program.Scripts
	clock   clock.Clock
	runner  Runner
	calls   calls
}

// Runner is the engine of this process, as Service needs it. It polls the store for whatever it is not notified of.
type Runner interface {
	// Reserve keeps a place for an execution that is about to be stored for the lease; Begin or Release follows. false:
	// there is no place, and the execution is stored for any process to claim.
	Reserve(organization int64) (engine.Lease, bool)
	// Ahead stores an execution for which there is a place together with its first turn, where that is likely to do, and has it
	// run on. done is false where nothing was stored: Begin or Release follows then, as after Reserve.
	Ahead(ctx context.Context, n engine.NewExecution, l engine.Loaded) (c engine.Created, done bool, err error)
	// Begin has a stored execution run, without its being loaded first.
	Begin(l engine.Loaded)
	// Release gives the place back.
	Release(organization int64)
	// Wake means that the execution may have changed.
	Wake(w engine.Woken)
	// Runs reports whether the execution runs in this process since it was started. Watch will report its end.
	Runs(organization int64, workflow string) bool
	// Recall answers an execution that has completed in this process lately, and can no longer change.
	Recall(organization int64, workflow string) (execution.Execution, bool)
	// Watch answers a channel that gets the execution, once, when it ends in this process. forget has to be called.
	Watch(organization int64, workflow string) (ended <-chan execution.Execution, forget func())
	// WatchAnswer returns a channel that is notified when a run of this process has answered the call. forget has to be called.
	WatchAnswer(organization int64, token, id string) (answered <-chan struct{}, forget func())
}

var _ Runner = (*engine.Engine)(nil)

// NewService makes a Service.
func NewService(store Store, scripts program.Scripts, c clock.Clock, runner Runner) *Service {
	return &Service{store: store, scripts: scripts, clock: c, runner: runner}
}

// Start stores a run of a program, unless its id exists: with the same program and inputs the answer is the first run's,
// with others fault.Conflict, which names what differs (D5). It returns once the run is stored (E18). The program is
// checked before, so that what can never run is refused to the caller instead of failing later. Where there is a place for the run,
// it begins here at once.
func (s *Service) Start(ctx context.Context, start execution.Start) (execution.Started, error) {
	if err := checkStartMessage(start); err != nil {
		return execution.Started{}, err
	}
	if start.Message != nil && s.AdmitMessage != nil && !id.ReservedRun(start.Workflow) {
		if err := s.AdmitMessage(start.Organization, len(start.Message.Data)); err != nil {
			if earlier, known := s.repeated(ctx, start); known {
				return earlier, nil // it stores nothing
			}
			return execution.Started{}, err
		}
	}
	err := start.Admit()
	if err == nil {
		var started execution.Started
		if started, err = s.start(ctx, start); err == nil {
			return s.deliver(ctx, start, started)
		}
	}
	if fault.Is(err, fault.Invalid) {
		// It may have been accepted earlier, when less was refused: a repeat gets the handle of the first run.
		if earlier, notFound := s.existing(ctx, start); notFound == nil {
			return s.deliver(ctx, start, earlier)
		}
	}
	return execution.Started{}, err
}

// existing is the receipt of a start whose run exists with the same content.
func (s *Service) existing(ctx context.Context, start execution.Start) (execution.Started, error) {
	if err := errors.Join(execution.CheckOrganization(start.Organization), execution.CheckNamed(start.Workflow)); err != nil {
		return execution.Started{}, err
	}
	digests, err := start.Digests()
	if err != nil {
		return execution.Started{}, err
	}
	c, err := s.store.FindStart(ctx, start.Organization, start.Workflow)
	if err != nil {
		return execution.Started{}, err
	}
	if differing := digests.Differences(c.Existing); len(differing) > 0 {
		return execution.Started{}, execution.Conflict(start.Workflow, differing)
	}
	return execution.Started{Workflow: start.Workflow, Ref: c.Ref}, nil
}

// repeated is the receipt of a start whose run and message are stored.
func (s *Service) repeated(ctx context.Context, start execution.Start) (execution.Started, bool) {
	earlier, err := s.existing(ctx, start)
	if err != nil {
		return execution.Started{}, false
	}
	known, err := s.store.HasMessage(ctx, s.toInbox(*start.Message, start.Organization, earlier.Ref))
	return earlier, known && err == nil
}

// StartOfFlow is Start for a run of a flow, whose names were accepted when it was registered.
func (s *Service) StartOfFlow(ctx context.Context, start execution.Start) (execution.Started, error) {
	if err := start.Validate(); err != nil {
		return execution.Started{}, err
	}
	return s.start(ctx, start)
}

func (s *Service) start(ctx context.Context, start execution.Start) (execution.Started, error) {
	if s.Admit != nil && !id.ReservedRun(start.Workflow) {
		if err := s.Admit(start.Organization, len(start.Inputs)); err != nil {
			if earlier, notFound := s.existing(ctx, start); notFound == nil {
				return earlier, nil // a repeat begins nothing
			}
			return execution.Started{}, err
		}
	}
	now := s.clock.Now()
	n := engine.NewExecution{Start: start, Ref: id.New(now), Digest: program.Digest(start.Program.Source), At: now}
	if start.Message != nil {
		first := s.toInbox(*start.Message, start.Organization, n.Ref)
		n.Message = &first
	}
	l := engine.Loaded{
		Execution: execution.Execution{
			Ref: n.Ref, Organization: start.Organization, Workflow: start.Workflow,
			Program: program.Hex(n.Digest), Labels: start.Labels, CreatedAt: now, Attempt: 1, Generation: 1,
			Trace: start.Trace,
		},
		Program: start.Program, Inputs: start.Inputs, Secrets: start.Secrets,
	}
	lease, reserved := s.runner.Reserve(start.Organization)
	if reserved {
		n.Owner = &lease
		// To be run, a program passes the same checks.
		if n.Message == nil { // a first turn that is stored with the start cannot have received it
			if c, done, err := s.runner.Ahead(ctx, n, l); err != nil || done {
				return execution.Started{Workflow: start.Workflow, Ref: c.Ref, Created: c.Created}, err
			}
		}
	}
	c, err := s.create(ctx, n)
	switch {
	case reserved && err == nil && c.Created:
		l.ID = c.ID
		s.runner.Begin(l)
	case reserved:
		s.runner.Release(start.Organization)
	case err == nil && c.Created:
		s.runner.Wake(engine.Woken{ID: c.ID})
	}
	if err != nil {
		return execution.Started{}, err
	}
	if !c.Created {
		digests, err := start.Digests()
		if err != nil {
			return execution.Started{}, err
		}
		if differing := digests.Differences(c.Existing); len(differing) > 0 {
			return execution.Started{}, execution.Conflict(start.Workflow, differing)
		}
	}
	return execution.Started{Workflow: start.Workflow, Ref: c.Ref, Created: c.Created}, nil
}

// create checks the program of a start and stores it.
func (s *Service) create(ctx context.Context, n engine.NewExecution) (engine.Created, error) {
	if err := program.ScriptsFor(s.scripts, n.Organization).Check(n.Program, n.Inputs); err != nil {
		return engine.Created{}, err
	}
	return s.store.Create(ctx, n)
}

// Get answers an execution and, where it is parked, what it waits for, one sentence each.
func (s *Service) Get(ctx context.Context, organization int64, workflow string) (execution.Execution, []string, error) {
	if err := execution.CheckNamed(workflow); err != nil {
		return execution.Execution{}, nil, err
	}
	e, err := s.store.Get(ctx, organization, workflow)
	if err != nil || e.State.Ended() {
		return e, nil, err
	}
	open, err := s.store.Waiting(ctx, e.ID)
	if err != nil {
		return execution.Execution{}, nil, err
	}
	if open, err = s.withRest(ctx, e, open); err != nil {
		return execution.Execution{}, nil, err
	}
	sentences := make([]string, len(open))
	for i, w := range open {
		sentences[i] = w.Sentence()
	}
	return e, sentences, nil
}

// History answers a page of a history.
func (s *Service) History(ctx context.Context, organization int64, workflow string, after int64, limit int) ([]history.Entry, error) {
	if err := execution.CheckNamed(workflow); err != nil {
		return nil, err
	}
	e, err := s.store.Get(ctx, organization, workflow)
	if err != nil {
		return nil, err
	}
	return s.store.History(ctx, e.ID, after, limit)
}

// Cancel ends an execution. It answers once that is stored; an execution that has ended stays as it is.
func (s *Service) Cancel(ctx context.Context, organization int64, workflow, reason string) error {
	if err := execution.CheckNamed(workflow); err != nil {
		return err
	}
	if err := execution.CheckReason(reason, 0); err != nil {
		return err
	}
	_, err := s.store.Cancel(ctx, organization, workflow, history.Storable(reason), s.clock.Now())
	return err
}

// Receive stores an event and hands it to the waits it matches.
func (s *Service) Receive(ctx context.Context, e history.Event) (matched int, duplicate bool, err error) {
	return s.store.Receive(ctx, e)
}

// retryAnswer is how long the engine waits before it sends a call again whose answer asked for it. It replaces the
// backoff of calls that are not answered: the relay is available, and the cluster may be again at any moment.
const retryAnswer = 5 * time.Second

// Answer takes a relay's answer to a call.
func (s *Service) Answer(ctx context.Context, a agent.Answer) error {
	if a.Error == nil {
		if refusal := history.AnswerDoor.Refuse("the relay", a.Value); refusal != nil {
			a.Value, a.Error = nil, refusal
		}
	}
	return s.store.Answer(ctx, a, s.clock.Now().Add(retryAnswer))
}
