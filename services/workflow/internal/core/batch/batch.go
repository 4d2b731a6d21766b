// Package batch carries out an operation on many runs: cancel, terminate, retry or reset. Progress is stored, so that a batch continues
// after a crash.
package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Action is what is done to each run. The texts are stored.
type Action string

// The actions.
const (
	Cancel    Action = "cancel"
	Terminate Action = "terminate"
	Retry     Action = "retry"
	// Reset starts a run that continues from the step that failed, or from an entry.
	Reset Action = "reset"
)

// State is where a batch is. The texts are stored.
type State string

// The states.
const (
	Running State = "running"
	Done    State = "done"
	Stopped State = "stopped"
)

// Batch is an operation on many runs.
type Batch struct {
	ID, Organization int64
	Action           Action
	State            State
	// Filter says which runs, of those that exist when the batch starts; Workflows names them instead.
	Filter    control.ListQuery
	Workflows []string
	Reason    string
	// StartedBy is the name of the caller's token.
	StartedBy string
	// Rate is how many runs a second.
	Rate int
	// To is the first entry that a reset does not keep; 0 is the step that failed.
	To int64
	// Total is how many runs it was about when it was started, AtLeast that there may have been more.
	Total   int64
	AtLeast bool
	// Position is the ID below which runs are still to be done, or the place in Workflows.
	Position int64
	// Finished counts the runs that the action was carried out on, Refused those that did not allow it.
	Finished, Refused  int64
	LastRefusal        string
	CreatedAt, EndedAt time.Time
}

// Progress is what a part of a batch has led to.
type Progress struct {
	// Was is the position before.
	Was, Position     int64
	Finished, Refused int64
	LastRefusal       string
	Ended             bool
	Now, Next         time.Time
}

// Store keeps batches. Each method is one transaction.
type Store interface {
	// SaveBatch stores a new batch; fault.Refused where the organization has most that are running.
	SaveBatch(ctx context.Context, b Batch, most int) (int64, error)
	// FindBatch reads a batch; fault.NotFound.
	FindBatch(ctx context.Context, organization, id int64) (Batch, error)
	// ListBatches reads batches, newest first, those before a number.
	ListBatches(ctx context.Context, organization, before int64, limit int) ([]Batch, error)
	// StopBatch ends a batch that is running; fault.NotFound. One that has ended stays as it is.
	StopBatch(ctx context.Context, organization, id int64, now time.Time) error
	// TakeBatches takes batches that are due, which come again at that time unless progress is stored.
	TakeBatches(ctx context.Context, now, again time.Time, limit int) ([]Batch, error)
	// AdvanceBatch stores progress, unless the batch was stopped, or another process has stored progress from the same position.
	AdvanceBatch(ctx context.Context, b Batch, p Progress) error
	// NextBatch is when the next batch is due; zero if none is.
	NextBatch(ctx context.Context) (time.Time, error)
}

// Runs are the operations on runs.
type Runs interface {
	List(ctx context.Context, q control.ListQuery) (list []execution.Execution, rest int64, err error)
	Count(ctx context.Context, q control.ListQuery) (n int64, atLeast bool, err error)
	Cancel(ctx context.Context, organization int64, workflow, reason string) error
	Terminate(ctx context.Context, organization int64, workflow, reason string) (control.View, error)
	Retry(ctx context.Context, r control.RetryRequest) (control.View, error)
	Reset(ctx context.Context, r control.ResetRequest) (v control.View, created bool, err error)
}

// Deps are what Batches work with.
type Deps struct {
	Store Store
	Runs  Runs
	Clock clock.Clock
	Log   *slog.Logger
}

// Batches starts batches and carries them out.
type Batches struct {
	Deps
	alarm *wake.Alarm
}

// New makes Batches.
func New(d Deps) *Batches { return &Batches{Deps: d, alarm: wake.NewAlarm()} }

// The bounds of batches.
const (
	maxWorkflows = 1000
	maxRate      = 1000
	defaultRate  = 50
	// maxRunning is how many batches of an organization run at once.
	maxRunning = 10
	// sample is how many runs a preview shows.
	sample = 10
)

// Preview is what a batch would be about.
type Preview struct {
	// Count is how many runs; AtLeast that there may be more.
	Count   int64
	AtLeast bool
	// Sample are some of them, newest first.
	Sample []execution.Execution
}

// Preview answers what a batch would be about. Nothing is stored.
func (s *Batches) Preview(ctx context.Context, b Batch) (p Preview, err error) {
	if err := b.check(); err != nil {
		return Preview{}, err
	}
	if len(b.Workflows) > 0 {
		return Preview{Count: int64(len(b.Workflows))}, nil
	}
	if p.Count, p.AtLeast, err = s.Runs.Count(ctx, b.Filter); err != nil {
		return Preview{}, err
	}
	b.Filter.Limit = sample
	p.Sample, _, err = s.Runs.List(ctx, b.Filter)
	return p, err
}

// Start stores a batch, which is carried out from then on. It is about runs that exist now.
func (s *Batches) Start(ctx context.Context, b Batch) (Batch, error) {
	if err := b.check(); err != nil {
		return Batch{}, err
	}
	if b.Rate == 0 {
		b.Rate = defaultRate
	}
	b.State, b.CreatedAt, b.Reason = Running, s.Clock.Now(), history.Storable(b.Reason)
	b.Total = int64(len(b.Workflows))
	if len(b.Workflows) == 0 {
		var err error
		if b.Total, b.AtLeast, err = s.Runs.Count(ctx, b.Filter); err != nil {
			return Batch{}, err
		}
		last, _, err := s.Runs.List(ctx, control.ListQuery{Organization: b.Organization, Limit: 1})
		if err != nil {
			return Batch{}, err
		}
		if b.Position = 1; len(last) > 0 {
			b.Position = last[0].ID + 1
		}
	}
	id, err := s.Store.SaveBatch(ctx, b, maxRunning)
	if err != nil {
		return Batch{}, err
	}
	s.alarm.Raise()
	b.ID = id
	return b, nil
}

func (b Batch) check() error {
	if err := execution.CheckOrganization(b.Organization); err != nil {
		return err
	}
	var fields []fault.Field
	if !slices.Contains([]Action{Cancel, Terminate, Retry, Reset}, b.Action) {
		fields = append(fields, fault.Field{
			Name: "action", Problem: fmt.Sprintf("found %.40q, expected cancel, terminate, retry or reset", b.Action),
		})
	}
	least := 0
	if b.Action == Terminate {
		least = 1
	}
	fields = append(fields, fault.FieldsOf(execution.CheckReason(b.Reason, least))...)
	if b.Rate < 0 || b.Rate > maxRate {
		fields = append(fields, fault.Field{Name: "rate", Problem: fmt.Sprintf("found %d, expected 0 to %d", b.Rate, maxRate)})
	}
	if b.To < 0 || b.To > 0 && b.Action != Reset {
		fields = append(fields, fault.Field{
			Name: "to_sequence", Problem: fmt.Sprintf("found %d for %s, expected 0, or the number of an entry for a reset", b.To, b.Action),
		})
	}
	f := b.Filter
	conditions := len(f.States) > 0 || len(f.Labels) > 0 || len(f.Program) > 0 || f.Prefix != "" || f.Part != "" || len(f.Status) > 0 ||
		!f.StartedFrom.IsZero() || !f.StartedTo.IsZero() || !f.EndedFrom.IsZero() || !f.EndedTo.IsZero()
	if conditions == (len(b.Workflows) > 0) {
		fields = append(fields, fault.Field{Name: "filter", Problem: "expected at least one condition, or workflow_ids, and not both"})
	}
	if len(b.Workflows) > maxWorkflows {
		fields = append(fields, fault.Field{
			Name:    "workflow_ids",
			Problem: fmt.Sprintf("found %d, expected at most %d", len(b.Workflows), maxWorkflows),
		})
	}
	for _, workflow := range b.Workflows[:min(len(b.Workflows), maxWorkflows)] {
		if err := execution.CheckNamed(workflow); err != nil {
			fields = append(fields, fault.Field{Name: "workflow_ids", Problem: fault.FieldsOf(err)[0].Problem})
			break
		}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// Get answers a batch.
func (s *Batches) Get(ctx context.Context, organization, id int64) (Batch, error) {
	return s.Store.FindBatch(ctx, organization, id)
}

// List answers a page of batches.
func (s *Batches) List(ctx context.Context, organization, before int64, limit int) ([]Batch, error) {
	if err := execution.CheckOrganization(organization); err != nil {
		return nil, err
	}
	return s.Store.ListBatches(ctx, organization, before, limit)
}

// Stop ends a batch. What it has done stays done.
func (s *Batches) Stop(ctx context.Context, organization, id int64) (Batch, error) {
	if err := s.Store.StopBatch(ctx, organization, id, s.Clock.Now()); err != nil {
		return Batch{}, err
	}
	return s.Store.FindBatch(ctx, organization, id)
}

const (
	// part is how many runs are done between two notes of progress, at the most.
	part = 100
	// again is after how long a part is done again whose process has died.
	again = 30 * time.Second
	// maxIdle is after how long a process looks for batches that others have started.
	maxIdle = 5 * time.Second
	// limitedPause is how long a batch pauses at a limit of its organization.
	limitedPause = 2 * time.Second
	// atOnce is how many batches a process takes at once.
	atOnce = 8
)

// Run carries out batches until ctx ends. Several processes may do so side by side.
func (s *Batches) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := s.Store.NextBatch(ctx)
		now := s.Clock.Now()
		if err == nil && !next.IsZero() && !next.After(now) {
			if err = s.Round(ctx); err == nil {
				continue
			}
		}
		until := now.Add(maxIdle)
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "carrying out batches failed; will retry", "error", err)
		} else if !next.IsZero() && next.Before(until) {
			until = next
		}
		s.alarm.Sleep(ctx, s.Clock, until)
	}
	return nil
}

// Round carries out a part of each batch that is due. One that fails does not keep the others waiting: it comes again by itself. Run calls
// it.
func (s *Batches) Round(ctx context.Context) error {
	now := s.Clock.Now()
	due, err := s.Store.TakeBatches(ctx, now, now.Add(again), atOnce)
	if err != nil {
		return err
	}
	var failed []error
	for _, b := range due {
		if err := s.advance(ctx, b); err != nil {
			failed = append(failed, fmt.Errorf("batch %d of organization %d: %w", b.ID, b.Organization, err))
		}
	}
	return errors.Join(failed...)
}

// advance does a part of a batch. If the process dies in the middle, the whole part is done again: to cancel and to terminate a run that
// has ended is a no-op, and one that was retried is refused, unless it has failed again.
func (s *Batches) advance(ctx context.Context, b Batch) error {
	ctx, cancel := context.WithTimeout(ctx, again*2/3)
	defer cancel()
	size := min(part, b.Rate)
	p := Progress{Was: b.Position, Position: b.Position}
	var workflows []string
	var positions []int64 // behind each of them
	if len(b.Workflows) > 0 {
		end := min(int(b.Position)+size, len(b.Workflows))
		workflows = b.Workflows[b.Position:end]
		for i := range workflows {
			positions = append(positions, b.Position+int64(i)+1)
		}
		p.Position, p.Ended = int64(end), end == len(b.Workflows)
	} else {
		q := b.Filter
		q.Organization, q.Before, q.Limit = b.Organization, b.Position, size
		list, rest, err := s.Runs.List(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range list {
			workflows, positions = append(workflows, e.Workflow), append(positions, e.ID)
			p.Position = e.ID
		}
		switch {
		case len(list) == size:
		case rest != 0:
			p.Position = rest
		default:
			p.Ended = true
		}
	}
	for i, workflow := range workflows {
		err := s.one(ctx, b, workflow)
		switch fault.ClassOf(err) {
		case fault.Limited: // the organization may not have one more run now
			if p.Position, p.Ended = p.Was, false; i > 0 {
				p.Position = positions[i-1]
			}
			p.Now = s.Clock.Now()
			p.Next = p.Now.Add(max(limitedPause, time.Duration(i)*time.Second/time.Duration(b.Rate)))
			return s.Store.AdvanceBatch(ctx, b, p)
		case fault.Refused, fault.NotFound, fault.Invalid, fault.Conflict:
			p.Refused, p.LastRefusal = p.Refused+1, history.Truncate(history.Storable(workflow+": "+fault.Public(err)), history.MaxError)
		default:
			if err != nil {
				return err
			}
			p.Finished++
		}
	}
	p.Now = s.Clock.Now()
	p.Next = p.Now.Add(time.Duration(len(workflows)) * time.Second / time.Duration(b.Rate))
	return s.Store.AdvanceBatch(ctx, b, p)
}

func (s *Batches) one(ctx context.Context, b Batch, workflow string) error {
	var err error
	switch b.Action {
	case Cancel:
		err = s.Runs.Cancel(ctx, b.Organization, workflow, b.Reason)
	case Terminate:
		_, err = s.Runs.Terminate(ctx, b.Organization, workflow, b.Reason)
	case Retry:
		_, err = s.Runs.Retry(ctx, control.RetryRequest{Organization: b.Organization, Workflow: workflow, Reason: b.Reason})
	case Reset:
		_, _, err = s.Runs.Reset(ctx, control.ResetRequest{
			Organization: b.Organization, Workflow: workflow, New: fmt.Sprintf("%s.reset-%d", workflow, b.ID), Reason: b.Reason, To: b.To,
		})
	default:
		err = fault.New(fault.Internal, "batch %d has the action %q", b.ID, b.Action)
	}
	return err
}
