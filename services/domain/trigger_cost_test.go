package domain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// R4-01: decisions are kept for 90 days, and the latest of each trigger for ever, however much has not been decided.
func TestOldDecisionsAreForgotten(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["built"]}`)
	w.trigger(core.TriggerDrift, `{}`)
	events := 0
	send := func() {
		events++
		_, err := w.triggers.SendEvent(t.Context(), user(), trigger.Event{ID: fmt.Sprint(events), Source: "/ci", Type: "built"})
		w.ok(err)
		w.decide()
	}
	for range 16 { // one decision in so many deletes
		send()
	}
	var latest int64
	w.ok(w.pool.QueryRow(t.Context(), `SELECT max(id) FROM cd_trigger_signals`).Scan(&latest))
	w.now.Advance(89 * 24 * time.Hour)
	for range 16 {
		send()
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals`), 32)
	w.now.Advance(2 * 24 * time.Hour)
	for range 16 {
		send()
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE id <= $1`, latest), 0)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals`), 32)
	// Nothing comes after the latest of a trigger: it stays.
	w.now.Advance(365 * 24 * time.Hour)
	tx, err := w.pool.Begin(t.Context())
	w.ok(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT set_config('lockstep.organization', $1::text, true)`, fmt.Sprint(org))
	w.ok(err)
	var gone int
	w.ok(tx.QueryRow(t.Context(), `SELECT cd_forget_signals($1, 1000)`, w.now.Now()).Scan(&gone))
	w.want(gone, 31)
}

// D65: a rollout is begun although others are at work on an environment that it does not go to.
func TestARolloutLocksOnlyWhatItGoesTo(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerVersion, deployAtOnce)
	set := w.release(2)
	other, err := w.pool.Begin(t.Context())
	w.ok(err)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	w.environment("elsewhere", core.TierDevelopment)
	tag, err := other.Exec(t.Context(), `SELECT FROM cd_environments WHERE name = 'elsewhere' FOR UPDATE`)
	w.ok(err)
	w.want(tag.RowsAffected(), int64(1))
	// A plan that locks all environments would wait for the other transaction.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d, _, err := w.triggers.DecideDue(ctx); err != nil || d.Outcome != core.TriggerBegan || d.VersionSetID != set.ID {
		t.Errorf("found %q: %s, %v; want that it began", d.Outcome, d.Reason, err)
	}
}
