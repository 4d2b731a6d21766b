package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Service is what callers can ask of the engine. It stores; the Engine runs.
type Service struct {
	store   Store
	scripts Scripts
	clock   clock.Clock
	wake    func()
}

// NewService makes a Service. wake is called after something was stored that the engine should look at.
func NewService(store Store, scripts Scripts, c clock.Clock, wake func()) *Service {
	return &Service{store: store, scripts: scripts, clock: c, wake: wake}
}

// Start stores a run of a program, unless its id exists: with the same program and inputs the answer is the first run's,
// with others fault.Conflict, which names what differs (D5). It returns once the run is stored (E18). The program is
// checked before, so that what can never run is refused to the caller instead of failing later.
func (s *Service) Start(ctx context.Context, start Start) (Started, error) {
	if err := start.validate(); err != nil {
		return Started{}, err
	}
	digests, err := start.digests()
	if err != nil {
		return Started{}, err
	}
	if err := s.scripts.Check(start.Program, start.Inputs); err != nil {
		return Started{}, err
	}
	now := s.clock.Now()
	existing, ref, created, err := s.store.Create(ctx, NewExecution{Start: start, Ref: id.New(now), Digests: digests, At: now})
	if err != nil {
		return Started{}, err
	}
	if !created {
		if differing := digests.Differences(existing); len(differing) > 0 {
			return Started{}, conflict(start.Workflow, differing)
		}
		return Started{Workflow: start.Workflow, Ref: ref}, nil
	}
	s.wake()
	return Started{Workflow: start.Workflow, Ref: ref, Created: true}, nil
}

// Get answers an execution and, where it is parked, what it waits for, one sentence each.
func (s *Service) Get(ctx context.Context, organization int64, workflow string) (Execution, []string, error) {
	if err := checkNamed(workflow); err != nil {
		return Execution{}, nil, err
	}
	e, err := s.store.Get(ctx, organization, workflow)
	if err != nil || e.State.Ended() {
		return e, nil, err
	}
	open, err := s.store.Waiting(ctx, e.ID)
	if err != nil {
		return Execution{}, nil, err
	}
	sentences := make([]string, len(open))
	for i, w := range open {
		sentences[i] = w.Sentence()
	}
	return e, sentences, nil
}

// History answers a page of a history.
func (s *Service) History(ctx context.Context, organization int64, workflow string, after int64, limit int) ([]Entry, error) {
	if err := checkNamed(workflow); err != nil {
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
	if err := checkNamed(workflow); err != nil {
		return err
	}
	if err := checkReason(reason, 0); err != nil {
		return err
	}
	ended, err := s.store.Cancel(ctx, organization, workflow, storable(reason), s.clock.Now())
	if ended {
		s.wake() // whoever runs it finds out now, not at its next commit
	}
	return err
}

// Receive stores an event and hands it to the waits it matches.
func (s *Service) Receive(ctx context.Context, e Event) (matched int, duplicate bool, err error) {
	matched, duplicate, err = s.store.Receive(ctx, e)
	if matched > 0 {
		s.wake()
	}
	return matched, duplicate, err
}

// retryAnswer is how long the engine waits before it sends a call again whose answer asked for it. It replaces the
// backoff of calls that are not answered: the relay is there, and the cluster may be back at any moment.
const retryAnswer = 5 * time.Second

// Answer takes a relay's answer to a call. It wakes the engine also for an answer that changed nothing, which costs
// an empty look.
func (s *Service) Answer(ctx context.Context, a Answer) error {
	err := s.store.Answer(ctx, a, s.clock.Now().Add(retryAnswer))
	if err == nil {
		s.wake()
	}
	return err
}

// Sentence says what is waited for.
func (w Waiting) Sentence() string {
	until := w.Due.UTC().Format(time.RFC3339)
	switch w.Kind {
	case KindSleep:
		return "sleeps until " + until
	case KindReceive:
		return "waits for a message to its channel, at the longest until " + until
	case KindWait:
		return "waits for " + describe(w.Types, w.Filter) + ", at the longest until " + until
	default:
		where := ""
		if w.Location == Cluster {
			where = fmt.Sprintf(" on agent %d (sent %d times)", w.Agent, w.Attempt)
		}
		return fmt.Sprintf("waits for function %s%s, at the longest until %s", w.Name, where, until)
	}
}

// Hex is a digest as people see it.
func Hex(sum [32]byte) string { return hex.EncodeToString(sum[:]) }

// Digest identifies source code.
func Digest(source []byte) [32]byte { return sha256.Sum256(source) }
