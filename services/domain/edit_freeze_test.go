package domain

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
)

// R4-28, R4-03, D58: what an event asks for during a freeze is not lost: its edit is made, its rollout says that the freeze stops it, a
// later event waits in the queue, and both proceed once the freeze has ended.
func TestAnEventDuringAFreezeWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	w, e := frozen(t), &editor{inputs: map[string]string{}}
	w.triggers = w.editing(w.service, e)
	w.trigger(core.TriggerEvent, editing)
	e.answers = []map[string]string{{"outcome": "committed", "commit": shaOf(77)}, {"outcome": "committed", "commit": shaOf(78)}}
	f := w.freeze(freeze.NewFreeze{})

	w.built("1", built)
	if last := w.after(time.Minute, 2); !strings.HasPrefix(last, "began: ") {
		t.Errorf("the first event: found %q; want that its rollout began", last)
	}
	r := w.active()
	w.enter(r, "staging")
	waits := w.waits(r, "freeze")
	if len(waits) != 1 || !strings.Contains(waits[0], "Black Friday") {
		t.Errorf("the rollout waits for %q; want the freeze with its reason", waits)
	}
	w.built("2", built)
	if last := w.after(time.Minute, 2); !strings.HasPrefix(last, "queued: ") {
		t.Errorf("the second event: found %q; want that it waits in the queue", last)
	}
	w.want(len(e.order), 2)
	w.review()
	w.want(w.granted(), []string{})

	_, err := w.freezes.EndFreeze(t.Context(), user(), f.ID, "over")
	w.ok(err)
	w.review()
	w.want(w.granted(), []string{"staging"})
	w.succeed(r)
	_, begun, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	w.want([]any{begun, w.rolloutCount()}, []any{true, 2})
	w.verifyJournal(w.active())
}
