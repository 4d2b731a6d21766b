package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxMessageID bounds the identifier of a message, in characters.
const maxMessageID = 255

// SendToChannel hands a message to the run that made the channel. It returns once the message is stored, and true if it
// was already. A channel that there is not, or whose run has ended, is fault.NotFound.
func (s *Service) SendToChannel(ctx context.Context, m history.Message) (duplicate bool, err error) {
	if err := checkMessage(m, "message_id"); err != nil {
		return false, err
	}
	m.Time = s.clock.Now()
	_, duplicate, err = s.store.Send(ctx, m)
	return duplicate, err
}

// Inbox has a message go to the inbox of a run; fault.NotFound.
func (s *Service) Inbox(ctx context.Context, m history.Message, workflow string) (history.Message, error) {
	if err := execution.CheckNamed(workflow); err != nil {
		return m, err
	}
	e, err := s.store.Get(ctx, m.Organization, workflow)
	if err != nil {
		return m, err
	}
	return s.toInbox(m, m.Organization, e.Ref), nil
}

func (s *Service) toInbox(m history.Message, organization int64, ref string) history.Message {
	m.Organization, m.Ref, m.Token, m.Time = organization, ref, history.InboxToken(ref), s.clock.Now()
	return m
}

// checkMessage finds what is wrong with a message, whose ID callers know by the name of a field.
func checkMessage(m history.Message, idField string) error {
	var fields []fault.Field
	if m.Ref == "" && !history.IsToken(m.Token) {
		fields = append(fields, fault.Field{Name: "token", Problem: "expected the token of a channel"})
	}
	if n := utf8.RuneCountInString(m.ID); n < 1 || n > maxMessageID || history.Storable(m.ID) != m.ID {
		fields = append(fields, fault.Field{
			Name:    idField,
			Problem: fmt.Sprintf("found %d characters, expected 1 to %d of text", n, maxMessageID),
		})
	}
	if len(m.Data) > 0 {
		fields = append(fields, fault.FieldsOf(history.MessageDoor.CheckField("data", m.Data))...)
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// checkStartMessage is checkMessage for the message of a start.
func checkStartMessage(start execution.Start) error {
	if start.Message == nil {
		return nil
	}
	m := *start.Message
	m.Ref = "new"
	var fields []fault.Field
	for _, f := range fault.FieldsOf(checkMessage(m, "message_id")) {
		fields = append(fields, fault.Field{Name: "message." + f.Name, Problem: f.Problem})
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// deliver sends the message of a start to a run that existed before: a new run has it already. The same message again changes nothing.
func (s *Service) deliver(ctx context.Context, start execution.Start, to execution.Started) (execution.Started, error) {
	if start.Message == nil || to.Created {
		return to, nil
	}
	_, _, err := s.store.Send(ctx, s.toInbox(*start.Message, start.Organization, to.Ref))
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.Refused, "workflow %q has ended and takes no message; expected one that runs, or a new workflow_id", start.Workflow)
	}
	if err != nil {
		return execution.Started{}, err
	}
	return to, nil
}

// callsMost is how many calls of one organization may wait at once in this process.
const callsMost = 1000

// CallChannel sends a message and answers what the program replies. The same ID again is the same call: it joins the wait, or has the
// answer at once. fault.NotFound: there is no such channel, or its run has ended and had no such call; fault.Refused: the run has
// ended without a reply; fault.Limited; context.DeadlineExceeded after the wait, of which the message knows nothing.
func (s *Service) CallChannel(ctx context.Context, m history.Message, w Wait) (history.Answer, error) {
	if err := w.check(); err != nil {
		return history.Answer{}, err
	}
	if err := checkMessage(m, "request_id"); err != nil {
		return history.Answer{}, err
	}
	leave, err := s.calls.enter(m.Organization)
	if err != nil {
		return history.Answer{}, err
	}
	defer leave()
	if s.AdmitCall != nil {
		if err := s.AdmitCall(m.Organization); err != nil {
			return history.Answer{}, err
		}
	}
	// Before the message: it may be answered with the turn that receives it.
	answered, forget := s.runner.WatchAnswer(m.Organization, m.Token, m.ID)
	defer forget()
	m.Call, m.Time = true, s.clock.Now()
	deadline := m.Time.Add(w.For)
	_, repeated, err := s.store.Send(ctx, m)
	if err != nil {
		return history.Answer{}, err
	}
	for first := !repeated && w.For > 0; ; first = false {
		if !first {
			answer, open, err := s.store.AnswerTo(ctx, m)
			switch {
			case err != nil:
				return history.Answer{}, err
			case answer != nil:
				return *answer, nil
			case !open:
				return history.Answer{}, fault.New(fault.Refused, "the workflow has ended without answering the call")
			}
		}
		left := deadline.Sub(s.clock.Now())
		if left <= 0 {
			return history.Answer{}, lateError{m.ID, w.For}
		}
		look := lookAgain
		if first { // most answers come within milliseconds
			look = firstLook
		}
		if err := s.pause(ctx, answered, w.Stopping, min(left, look)); err != nil {
			return history.Answer{}, err
		}
	}
}

// lateError means that a call was not answered in time. That is a program's business: no failure of the service, and none for its log.
type lateError struct {
	id     string
	waited time.Duration
}

func (e lateError) Error() string {
	return fmt.Sprintf("the call %q was not answered within %s", e.id, e.waited)
}

// Unwrap is context.DeadlineExceeded.
func (lateError) Unwrap() error { return context.DeadlineExceeded }

// Level is how the boundary logs it.
func (lateError) Level() slog.Level { return slog.LevelInfo }

// firstLook is how long a call waits before it looks at the store for the first time.
const firstLook = 20 * time.Millisecond

// pause waits until it is notified, or for d.
func (s *Service) pause(ctx context.Context, notified, stopping <-chan struct{}, d time.Duration) error {
	t := s.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-notified:
		return nil
	case <-t.C():
		return nil
	case <-stopping:
		return ErrStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// calls are the calls under way in this process, by organization.
//
// It is safe for concurrent use.
type calls struct {
	mu      sync.Mutex
	waiting map[int64]int
}

// enter lets a call in; leave ends it.
func (c *calls) enter(organization int64) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[int64]int{}
	}
	if n := c.waiting[organization]; n >= callsMost {
		return nil, fault.New(fault.Limited, "found %d calls of organization %d that wait for an answer, expected fewer than %d", n, organization,
			callsMost)
	}
	c.waiting[organization]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[organization]--; c.waiting[organization] == 0 {
			delete(c.waiting, organization)
		}
	}, nil
}
