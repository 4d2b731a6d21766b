package domain

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// ofKind is a report of a kind about commit 901, at a second and with the forge's number.
type ofKind struct {
	kind, phase      string
	second, sequence int64
}

func (h hooked) ofKind(k ofKind) event.CommitStatusReported {
	s := h.status(901, "ci/e2e", k.phase, k.second, k.sequence)
	s.Kind = k.kind
	return s
}

// D48: a check run and a status of one name do not overwrite each other: both have to be green, and each is ordered as its kind is. A run
// that began earlier and reports late changes nothing, whenever it ends and however often it is delivered.
func TestARunAndAStatusOfOneNameBothCount(t *testing.T) {
	t.Parallel()
	const status, run, unknown = forge.KindStatus, forge.KindRun, ""
	for name, c := range map[string]struct {
		want string
		all  []ofKind
	}{
		"both are green":                   {want: "success", all: []ofKind{{status, "success", 1, 900}, {run, "success", 2, 7}}},
		"the run fails, the status later":  {want: "failure", all: []ofKind{{run, "failure", 1, 7}, {status, "success", 2, 900}}},
		"the status fails, the run later":  {want: "failure", all: []ofKind{{status, "failure", 1, 7}, {run, "success", 2, 900}}},
		"the run is not done":              {want: "pending", all: []ofKind{{run, "pending", 1, 7}, {status, "success", 2, 900}}},
		"an older run fails late":          {want: "success", all: []ofKind{{run, "pending", 2, 8}, {run, "success", 3, 8}, {run, "failure", 9, 7}}},
		"an older run is green late":       {want: "failure", all: []ofKind{{run, "failure", 3, 8}, {run, "success", 9, 7}, {run, "success", 9, 7}}},
		"a newer run begins":               {want: "pending", all: []ofKind{{run, "success", 5, 7}, {run, "pending", 4, 8}}},
		"one run begins again":             {want: "pending", all: []ofKind{{run, "success", 3, 7}, {run, "pending", 4, 7}, {run, "success", 3, 7}}},
		"the start of a run comes late":    {want: "success", all: []ofKind{{run, "success", 3, 7}, {run, "pending", 1, 7}}},
		"of statuses the time counts":      {want: "success", all: []ofKind{{status, "success", 3, 7}, {status, "failure", 2, 8}}},
		"the kind is not known":            {want: "success", all: []ofKind{{unknown, "pending", 1, 7}, {unknown, "success", 2, 7}}},
		"it becomes known":                 {want: "success", all: []ofKind{{unknown, "pending", 1, 7}, {run, "success", 2, 7}}},
		"it becomes known at one instant":  {want: "success", all: []ofKind{{unknown, "failure", 2, 7}, {status, "success", 2, 7}}},
		"an older release reports the end": {want: "success", all: []ofKind{{run, "pending", 1, 7}, {unknown, "success", 2, 7}}},
		"what is known is older":           {want: "failure", all: []ofKind{{unknown, "failure", 5, 7}, {status, "success", 2, 7}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := reported(t, e2e)
			r := h.rollout(h.set)
			for _, s := range c.all {
				h.receives(h.ofKind(s))
			}
			h.want(h.e2e(r)[0][:7], c.want)
		})
	}
}
