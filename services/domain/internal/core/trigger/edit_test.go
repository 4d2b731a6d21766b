package trigger

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// R4-28: edits are made one at a time and in their order; an event whose edit has ended is decided about, whatever comes after it.
func TestEditsAreMadeInOrder(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	signal := func(id int64, state core.EditState, due time.Duration) core.TriggerSignal {
		return core.TriggerSignal{ID: id, DueAt: now.Add(due), Edit: &core.TriggerEdit{State: state}}
	}
	for name, c := range map[string]struct {
		all     []core.TriggerSignal
		editing int64
		waits   bool
		decides []int64
	}{
		"the first": {
			all: []core.TriggerSignal{signal(1, core.EditPending, 0), signal(2, core.EditPending, 0)}, editing: 1, waits: true,
			decides: []int64{1, 2},
		},
		"one is under way":    {all: []core.TriggerSignal{signal(1, core.EditPending, 1), signal(2, core.EditPending, 0)}, waits: true, decides: []int64{2}},
		"the first has ended": {all: []core.TriggerSignal{signal(1, core.EditCommitted, 0), signal(2, core.EditPending, 1)}, decides: []int64{1}},
		"both are due":        {all: []core.TriggerSignal{signal(1, core.EditFailed, 0), signal(2, core.EditPending, 0)}, decides: []int64{1}},
		"all have ended": {
			all: []core.TriggerSignal{signal(1, core.EditCommitted, 0), signal(2, core.EditUnchanged, 0)}, decides: []int64{1, 2},
		},
	} {
		d := decision{signals: append([]core.TriggerSignal{}, c.all...), now: now, trigger: core.Trigger{Kind: core.TriggerEvent}}
		d.onlyDue()
		s, waits, err := d.edits(t.Context(), c.all)
		editing := int64(0)
		if d.editing != nil {
			editing = d.editing.ID
		}
		var decides []int64
		for _, one := range d.signals {
			decides = append(decides, one.ID)
		}
		if err != nil || waits != c.waits || editing != c.editing || len(decides) != len(c.decides) || decides[0] != c.decides[0] {
			t.Errorf("%s: found %v (%s), edits %d, decides %v", name, waits, s.Reason, editing, decides)
		}
	}
}
