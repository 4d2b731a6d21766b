package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Control is what people and machines ask of the store beside what the engine needs: to find executions, to read along,
// and to interfere. Each method is one transaction.
type Control interface {
	// List reads executions, newest first, without what they wait for.
	List(ctx context.Context, q ListQuery) ([]Execution, error)
	// Logs reads the entries of a history that a log shows, in order.
	Logs(ctx context.Context, q LogQuery) ([]Entry, error)
	// Retries reads the retries of an execution, oldest first.
	Retries(ctx context.Context, execution int64) ([]Retry, error)
	// Terminate is Store.Cancel with another final state, and the event of a failure (D36).
	Terminate(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error)
	// Retry has a failed execution run again with its history cut before a step (see RetryRequest). fault.NotFound;
	// fault.Refused for one that has not failed; fault.Invalid when the history does not reach From.
	Retry(ctx context.Context, r RetryRequest) error
	// Progresses reads where executions stand; those that do not exist are left out.
	Progresses(ctx context.Context, executions []int64) ([]Progress, error)
}

// ListQuery says which executions are listed. All conditions hold together; a zero one is none.
type ListQuery struct {
	Organization int64
	States       []State
	// Labels must all be there.
	Labels map[string]string
	// Program is the SHA-256 of the main source.
	Program []byte
	// Before is the ID that all must be below: the last one of the page before.
	Before int64
	Limit  int
}

// LogQuery says which part of a log is read.
type LogQuery struct {
	Execution int64
	// Branch is the only one wanted; nil for all.
	Branch *int
	// After is the Seq that all must be above.
	After int64
	Limit int
}

// RetryRequest asks for a failed execution to go on (E29).
type RetryRequest struct {
	Organization     int64
	Workflow, Reason string
	// From is the first entry to be forgotten; 0 is the step that failed: the last entry with an error, or where there is
	// none the last one that its branch had been blocked for. What lies before stays and is not done again.
	//
	// What is done from then on has other activity ids than before, because the outcome of the old ones is known to the
	// world: a relay, a forge and the readers of events would take a repeat for the attempt that failed (E24, E26).
	From int64
	At   time.Time
}

// Retry is one that was carried out.
type Retry struct {
	At            time.Time
	Reason, Error string
	// From is the first entry that was forgotten.
	From int64
}

// Progress is how far an execution has come.
type Progress struct {
	Execution int64
	State     State
	LastSeq   int64
	// Turn moves with every change that LastSeq does not show.
	Turn int64
}

// View is an execution with everything a reader wants to know of it.
type View struct {
	Execution
	// Waiting is what it waits for.
	Waiting []Waiting
	Retries []Retry
}

// Operator is a Service for people and their tools: they look, and they interfere.
type Operator struct {
	*Service
	control  Control
	watchers *Watchers
}

// NewOperator makes an Operator.
func NewOperator(s *Service, control Control, watchers *Watchers) *Operator {
	return &Operator{Service: s, control: control, watchers: watchers}
}

// changed tells watchers of an execution that was interfered with; the store has told the engine.
func (o *Operator) changed(ctx context.Context, organization int64, workflow string) {
	if e, err := o.store.Get(ctx, organization, workflow); err == nil {
		o.watchers.Changed(e.ID) // else they look by themselves, a little later
	}
}

// Cancel is the Service's, and told to watchers.
func (o *Operator) Cancel(ctx context.Context, organization int64, workflow, reason string) error {
	err := o.Service.Cancel(ctx, organization, workflow, reason)
	if err == nil {
		o.changed(ctx, organization, workflow)
	}
	return err
}

// List answers a page of executions.
func (o *Operator) List(ctx context.Context, q ListQuery) ([]Execution, error) {
	const most = 8
	var fields []fault.Field
	if err := checkOrganization(q.Organization); err != nil {
		fields = append(fields, fault.FieldsOf(err)...)
	}
	if len(q.Labels) > most {
		fields = append(fields, fault.Field{Name: "labels", Problem: fmt.Sprintf("found %d, expected at most %d", len(q.Labels), most)})
	}
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		if problem := checkLabel(name, q.Labels[name]); problem != "" {
			fields = append(fields, fault.Field{Name: "labels." + name, Problem: problem})
		}
	}
	if len(fields) > 0 {
		return nil, fault.InvalidFields(fields...)
	}
	return o.control.List(ctx, q)
}

// View answers an execution with everything about it.
func (o *Operator) View(ctx context.Context, organization int64, workflow string) (View, error) {
	e, err := o.find(ctx, organization, workflow)
	if err != nil {
		return View{}, err
	}
	return o.view(ctx, e)
}

func (o *Operator) view(ctx context.Context, e Execution) (v View, err error) {
	v.Execution = e
	if !e.State.Ended() {
		if v.Waiting, err = o.store.Waiting(ctx, e.ID); err != nil {
			return View{}, err
		}
	}
	if e.State == Failed && e.Stack == nil {
		last, err := o.store.History(ctx, e.ID, e.LastSeq-1, 1)
		if err != nil {
			return View{}, err
		}
		if len(last) > 0 { // else cut by a retry meanwhile
			v.Stack = last[0].Stack()
		}
	}
	if e.Attempt > 1 {
		v.Retries, err = o.control.Retries(ctx, e.ID)
	}
	return v, err
}

// find is an execution by the id that its caller chose.
func (o *Operator) find(ctx context.Context, organization int64, workflow string) (Execution, error) {
	if err := checkNamed(workflow); err != nil {
		return Execution{}, err
	}
	return o.store.Get(ctx, organization, workflow)
}

// Terminate ends an execution at once. One that has ended stays as it is.
func (o *Operator) Terminate(ctx context.Context, organization int64, workflow, reason string) (View, error) {
	if err := checkNamed(workflow); err != nil {
		return View{}, err
	}
	if err := checkReason(reason, 1); err != nil {
		return View{}, err
	}
	ended, err := o.control.Terminate(ctx, organization, workflow, storable(reason), o.clock.Now())
	if err != nil {
		return View{}, err
	}
	if ended {
		o.changed(ctx, organization, workflow)
	}
	return o.View(ctx, organization, workflow)
}

// Retry has a failed execution go on.
func (o *Operator) Retry(ctx context.Context, r RetryRequest) (View, error) {
	if err := checkNamed(r.Workflow); err != nil {
		return View{}, err
	}
	if err := checkReason(r.Reason, 0); err != nil {
		return View{}, err
	}
	if r.From < 0 {
		return View{}, fault.InvalidFields(fault.Field{Name: "from_sequence", Problem: fmt.Sprintf("found %d, expected a number of the history, or 0", r.From)})
	}
	r.Reason, r.At = storable(r.Reason), o.clock.Now()
	if err := o.control.Retry(ctx, r); err != nil {
		return View{}, err
	}
	o.changed(ctx, r.Organization, r.Workflow)
	return o.View(ctx, r.Organization, r.Workflow)
}

// maxReason bounds the reason that somebody gives, in characters: it goes into the row, the history and an event.
const maxReason = 1024

func checkReason(reason string, least int) error {
	if n := utf8.RuneCountInString(reason); n < least || n > maxReason {
		return fault.InvalidFields(fault.Field{Name: "reason", Problem: fmt.Sprintf("found %d characters, expected %d to %d", n, least, maxReason)})
	}
	return nil
}
