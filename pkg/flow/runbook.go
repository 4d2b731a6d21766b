package flow

import (
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Runbook reports whether the pipeline is a runbook: it deploys nothing, and its jobs enter their environments themselves.
func (d Definition) Runbook() bool {
	is := func(t StepType) func(Step) bool { return func(s Step) bool { return s.Type == t } }
	return !slices.ContainsFunc(d.Steps, is(Deploy)) && slices.ContainsFunc(d.Steps, is(RunJob))
}

// enters reports whether a step of the pipeline enters its environment, or is in one that a step like it has entered.
func (d Definition) enters(s Step) bool { return s.Type == Deploy || s.Type == RunJob && d.Runbook() }

// runbook is what was seen of the jobs of a runbook.
type runbook struct {
	// environments are those that were entered, in order.
	environments []string
	// asked is the place of the approval since the last job; empty for none.
	asked string
}

// runbookOf is nil for a pipeline that deploys.
func runbookOf(d Definition) *runbook {
	if !d.Runbook() {
		return nil
	}
	return &runbook{}
}

// add finds what is wrong with where a job of a runbook stands.
func (r *runbook) add(s Step, at string) (found []fault.Field) {
	last, asked := len(r.environments)-1, r.asked
	r.asked = ""
	switch i := slices.Index(r.environments, s.Environment); {
	case i < 0:
		r.environments = append(r.environments, s.Environment)
	case i < last:
		found = append(found, fault.Field{Name: at + "/environment", Problem: fmt.Sprintf(
			"found %q, which the runbook has left for %q; expected all jobs of an environment before those of the next one", s.Environment,
			r.environments[last],
		)})
	case asked != "":
		found = append(found, fault.Field{Name: asked, Problem: fmt.Sprintf(
			"found an approval between jobs in %q; expected it before the first one: an approval guards the entrance of an environment", s.Environment,
		)})
	}
	if s.Job.Namespace == "" {
		found = append(found, fault.Field{
			Name: at + "/job/namespace", Problem: "found nothing; expected a namespace: a runbook deploys to none that the job could have by default",
		})
	}
	return found
}
