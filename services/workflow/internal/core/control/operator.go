package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// View is an execution with everything a reader wants to know of it.
type View struct {
	execution.Execution
	// Waiting is what it waits for.
	Waiting []Waiting
	Retries []Retry
	// Changes are those of its program.
	Changes []Changed
}

// Operator is a Service for people and their tools: they look, and they interfere.
type Operator struct {
	*Service
	control  OperatorStore
	watchers *Subscriptions
	exports  exports
}

// NewOperator makes an Operator.
func NewOperator(s *Service, control OperatorStore, watchers *Subscriptions) *Operator {
	return &Operator{Service: s, control: control, watchers: watchers}
}

// changed notifies the watchers of an execution that an operator has changed; the store has notified the engine.
func (o *Operator) changed(ctx context.Context, organization int64, workflow string) {
	if e, err := o.store.Get(ctx, organization, workflow); err == nil {
		o.watchers.Changed(e.ID) // else they look by themselves, a little later
	}
}

// Cancel is the Service's, and notifies watchers.
func (o *Operator) Cancel(ctx context.Context, organization int64, workflow, reason string) error {
	err := o.Service.Cancel(ctx, organization, workflow, reason)
	if err == nil {
		o.changed(ctx, organization, workflow)
	}
	return err
}

// List answers a page of executions, and where the next one begins if this one is not full but may not be the last.
func (o *Operator) List(ctx context.Context, q ListQuery) (list []execution.Execution, rest int64, err error) {
	if err := q.check(); err != nil {
		return nil, 0, err
	}
	if list, rest, err = o.control.List(ctx, q); err != nil || len(list) == 0 {
		return list, rest, err
	}
	ids := make([]int64, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	statuses, err := o.control.Statuses(ctx, q.Organization, ids)
	for i := range list {
		list[i].Status = statuses[list[i].ID]
	}
	return list, rest, err
}

// maxCount is how far executions are counted.
const maxCount = 10_000

// Count counts executions up to 10,000. atLeast reports that there may be more.
func (o *Operator) Count(ctx context.Context, q ListQuery) (n int64, atLeast bool, err error) {
	if err := q.check(); err != nil {
		return 0, false, err
	}
	return o.control.Count(ctx, q, maxCount)
}

// check refuses conditions that nothing can meet.
func (q ListQuery) check() error {
	const most, maxText = 8, 255
	var fields []fault.Field
	if err := execution.CheckOrganization(q.Organization); err != nil {
		fields = append(fields, fault.FieldsOf(err)...)
	}
	if len(q.Labels) > most {
		fields = append(fields, fault.Field{Name: "labels", Problem: fmt.Sprintf("found %d, expected at most %d", len(q.Labels), most)})
	}
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		if problem := execution.CheckLabel(name, q.Labels[name]); problem != "" {
			fields = append(fields, fault.Field{Name: "labels." + name, Problem: problem})
		}
	}
	if len(q.Status) > most {
		fields = append(fields, fault.Field{Name: "status", Problem: fmt.Sprintf("found %d, expected at most %d", len(q.Status), most)})
	}
	for _, key := range slices.Sorted(maps.Keys(q.Status)) {
		// JSON may have NUL as an escape, which the database refuses.
		if value := q.Status[key]; execution.CheckLabel(key, "") != "" || len(value) > maxText || !json.Valid([]byte(value)) ||
			!utf8.ValidString(value) || strings.Contains(value, `\u`) {
			fields = append(fields, fault.Field{
				Name:    "status." + history.Storable(key),
				Problem: fmt.Sprintf("found %.80q, expected JSON of at most %d bytes, without escapes by number", value, maxText),
			})
		}
	}
	for _, text := range []struct{ name, given string }{{"id_prefix", q.Prefix}, {"id_contains", q.Part}} {
		if len(text.given) > maxText || strings.ContainsRune(text.given, 0) || !utf8.ValidString(text.given) {
			fields = append(fields, fault.Field{Name: text.name, Problem: fmt.Sprintf("expected at most %d bytes of text, without NUL", maxText)})
		}
	}
	for _, between := range []struct {
		name     string
		from, to time.Time
	}{{"started_before", q.StartedFrom, q.StartedTo}, {"ended_before", q.EndedFrom, q.EndedTo}} {
		if !between.from.IsZero() && !between.to.IsZero() && !between.from.Before(between.to) {
			fields = append(fields, fault.Field{Name: between.name, Problem: fmt.Sprintf("found %s, expected a time after %s",
				between.to.UTC().Format(time.RFC3339), between.from.UTC().Format(time.RFC3339))})
		}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// View answers an execution with everything about it.
func (o *Operator) View(ctx context.Context, organization int64, workflow string) (View, error) {
	e, err := o.find(ctx, organization, workflow)
	if err != nil {
		return View{}, err
	}
	v, err := o.view(ctx, e)
	if err != nil {
		return View{}, err
	}
	return o.reported(ctx, v)
}

// reported is a view with what the program reports of itself.
func (o *Operator) reported(ctx context.Context, v View) (View, error) {
	if v.ID == 0 {
		e, err := o.store.Get(ctx, v.Organization, v.Workflow) // it has ended in this process, which knows it by its name
		if err != nil {
			return View{}, err
		}
		v.ID = e.ID
	}
	var changed bool
	var err error
	if v.Status, changed, err = o.control.Reported(ctx, v.Organization, v.ID); err == nil && changed {
		v.Changes, err = o.control.ProgramChanges(ctx, v.Organization, v.ID)
	}
	return v, err
}

func (o *Operator) view(ctx context.Context, e execution.Execution) (v View, err error) {
	v.Execution = e
	if !e.State.Ended() {
		if v.Waiting, err = o.store.Waiting(ctx, e.ID); err != nil {
			return View{}, err
		}
		if v.Waiting, err = o.withRest(ctx, e, v.Waiting); err != nil {
			return View{}, err
		}
	}
	if e.State == execution.Failed && e.Stack == nil {
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
func (o *Operator) find(ctx context.Context, organization int64, workflow string) (execution.Execution, error) {
	if err := execution.CheckNamed(workflow); err != nil {
		return execution.Execution{}, err
	}
	return o.store.Get(ctx, organization, workflow)
}

// Terminate ends an execution at once. One that has ended stays as it is.
func (o *Operator) Terminate(ctx context.Context, organization int64, workflow, reason string) (View, error) {
	if err := execution.CheckNamed(workflow); err != nil {
		return View{}, err
	}
	if err := execution.CheckReason(reason, 1); err != nil {
		return View{}, err
	}
	ended, err := o.control.Terminate(ctx, organization, workflow, history.Storable(reason), o.clock.Now())
	if err != nil {
		return View{}, err
	}
	if ended {
		o.changed(ctx, organization, workflow)
	}
	return o.View(ctx, organization, workflow)
}

// Retry continues a failed execution.
func (o *Operator) Retry(ctx context.Context, r RetryRequest) (View, error) {
	if err := execution.CheckNamed(r.Workflow); err != nil {
		return View{}, err
	}
	if err := execution.CheckReason(r.Reason, 0); err != nil {
		return View{}, err
	}
	if r.From < 0 {
		return View{}, fault.InvalidFields(fault.Field{
			Name:    "from_sequence",
			Problem: fmt.Sprintf("found %d, expected a number of the history, or 0", r.From),
		})
	}
	r.Reason, r.At = history.Storable(r.Reason), o.clock.Now()
	if err := o.admitAgain(ctx, r.Organization, r.Workflow, func(e execution.Execution, notFound error) bool {
		return notFound == nil && (e.State == execution.Failed || e.State == execution.Quarantined)
	}); err != nil {
		return View{}, err
	}
	if err := o.control.Retry(ctx, r); err != nil {
		return View{}, err
	}
	o.changed(ctx, r.Organization, r.Workflow)
	return o.View(ctx, r.Organization, r.Workflow)
}
