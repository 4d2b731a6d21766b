package control

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The labels of an execution that another one was reset to: which one, the entry, 0 for the step that failed, and why.
const (
	LabelResetOf     = "lockstep.reset_of"
	LabelResetTo     = "lockstep.reset_to"
	LabelResetReason = "lockstep.reset_reason"
)

// ResetRequest asks for a new execution that continues from an entry of one that has ended.
//
// What the new one does has other activity ids, because its handle is another one. What the other one has received is spent, as after a
// retry: an approval that was given to it does not count for the new one.
type ResetRequest struct {
	Organization int64
	// Workflow is the one that has ended, New the new one.
	Workflow, New, Reason string
	// To is the first entry that is not kept; 0 is the step that failed.
	To int64
	// Ref, Labels and At are set by Reset.
	Ref    string
	Labels map[string]string
	At     time.Time
}

// Reset has a new execution continue from an entry of one that has ended. The same again is the same execution.
func (o *Operator) Reset(ctx context.Context, r ResetRequest) (View, bool, error) {
	if err := execution.CheckNamed(r.Workflow); err != nil {
		return View{}, false, err
	}
	if err := execution.CheckNamed(r.New); err != nil {
		return View{}, false, fault.InvalidFields(fault.Field{Name: "new_workflow_id", Problem: fault.FieldsOf(err)[0].Problem})
	}
	if err := execution.CheckReason(r.Reason, 0); err != nil {
		return View{}, false, err
	}
	if r.To < 0 {
		return View{}, false, fault.InvalidFields(fault.Field{
			Name: "to_sequence", Problem: fmt.Sprintf("found %d, expected a number of the history, or 0", r.To),
		})
	}
	if err := checkOwn(r.Workflow); err != nil {
		return View{}, false, err
	}
	begins := func(_ execution.Execution, notFound error) bool { return notFound != nil }
	if err := o.admitAgain(ctx, r.Organization, r.New, begins); err != nil {
		return View{}, false, err
	}
	r.At = o.clock.Now()
	r.Ref = id.New(r.At)
	r.Labels = map[string]string{LabelResetOf: label(r.Workflow), LabelResetTo: strconv.FormatInt(r.To, 10)}
	if r.Reason != "" {
		r.Labels[LabelResetReason] = label(history.Storable(r.Reason))
	}
	created, err := o.control.Reset(ctx, r)
	if err != nil {
		return View{}, false, err
	}
	v, err := o.View(ctx, r.Organization, r.New)
	return v, created, err
}

// checkOwn refuses executions that are not for callers to continue elsewhere, or with another program: those of the domain service, whose
// rights depend on their ids, and children, whose ends their parents wait for.
func checkOwn(workflow string) error {
	switch {
	case id.ReservedRun(workflow):
		return fault.New(fault.Refused, "workflow %q is the domain service's; retry it, or what it was started for", workflow)
	case id.IsChildRun(workflow):
		return fault.New(fault.Refused, "workflow %q is a child; its parent may be reset, or given another program", workflow)
	}
	return nil
}

// label is a text cut to what a label may have.
func label(text string) string {
	const most = 255
	for len(text) > most {
		runes := []rune(text)
		text = string(runes[:len(runes)-1])
	}
	return text
}
