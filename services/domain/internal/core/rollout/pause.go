package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// PauseRollout holds a rollout: it passes no further gate. If it waits at one it is paused at once; between gates this is a request,
// which takes effect at the next gate (D17).
func (u *UseCases) PauseRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.change(ctx, a, core.ActionPauseRollout, rollout, func(ctx context.Context, t *tree, s core.Standing) error {
		if s.Hold.Stands() {
			return t.moveRollout(ctx, core.VerbPause, reason)
		}
		return t.request(ctx, core.VerbPause, "", reason)
	})
}

// ResumeRollout ends a hold, also one that has not become true yet, and lets the rollout past the gates where it waits.
func (u *UseCases) ResumeRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.change(ctx, a, core.ActionResumeRollout, rollout, func(ctx context.Context, t *tree, _ core.Standing) error {
		// The hold had not become true yet: there is no state to leave, and nobody waits, so there is nothing to grant (D17).
		if t.rollout.State != core.RolloutPaused {
			return t.request(ctx, core.VerbResume, "", reason)
		}
		if err := t.moveRollout(ctx, core.VerbResume, reason); err != nil {
			return err
		}
		return u.decide(ctx, t)
	})
}

// GateReached reports that every deployment of an environment waits at a gate.
type GateReached struct {
	RolloutID, EnvironmentID int64
	Weight                   int
}

func (m GateReached) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil {
		return err
	}
	b, err := t.environment(m.EnvironmentID)
	if err != nil {
		return err
	}
	if ok, err := u.claimsWeights(ctx, t, b, m.Weight, fmt.Sprintf("that it waits at %d %%", m.Weight)); err != nil || !ok {
		return err
	}
	gate := t.gateName(b, m.Weight)
	h, err := t.hold(ctx)
	if err != nil || h.Reached[gate] { // a repeated event
		return err
	}
	if err := t.moveEnvironment(ctx, b, core.VerbStart, ""); err != nil {
		return err
	}
	// Also when the event is late, after the gate was passed or the rollout has ended: the journal says where it was.
	if err := t.request(ctx, core.VerbReachGate, gate, ""); err != nil || t.rollout.State.Terminal() || h.Passed[gate] {
		return err
	}
	return t.stand(ctx, h)
}

// hold reads the rollout's own journal: it has few rows about gates, and what they say is needed only here.
func (t *tree) hold(ctx context.Context) (h core.Hold, err error) {
	err = t.tx.Together(ctx, func(ctx context.Context) (err error) {
		h, _, err = t.words(ctx)
		return err
	})
	return h, err
}

// words is what the journal says about gates, and the gates that are open, to be read together.
func (t *tree) words(ctx context.Context) (core.Hold, []core.Gate, error) {
	rows, err := t.tx.GateWordsByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return core.Hold{}, nil, err
	}
	gates, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	return core.HoldOf(rows[t.rollout.ID], gates[t.rollout.ID]), gates[t.rollout.ID], err
}

// stand makes a wanted pause true, now that the rollout stands somewhere.
func (t *tree) stand(ctx context.Context, h core.Hold) error {
	if !h.Wanted || h.Aborted || t.rollout.State == core.RolloutPaused {
		return nil
	}
	return t.moveRollout(ctx, core.VerbPause, h.Why)
}

// gateName is how the journal calls a gate within an environment.
func (t *tree) gateName(b *branch, weight int) string {
	return weightGate(t.places[b.EnvironmentID].Name, weight)
}

// JobReported is an attempt at a job of the pipeline that has begun or, with a result, ended (D54).
type JobReported struct {
	RolloutID, EnvironmentID int64
	Job, When                string
	Attempt                  int
	// Result is empty for an attempt that has begun. Reason and Log are of one that has ended.
	Result, Reason, Log string
}

// apply writes the row of the journal; a report that arrives twice, or after the end of the rollout, changes nothing. Jobs run within an
// environment that the rollout has entered: a report from before that is a breach.
func (m JobReported) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil {
		return err
	}
	b, err := t.environment(m.EnvironmentID)
	if err != nil {
		return err
	}
	if t.rollout.State.Terminal() {
		return nil
	}
	if ok, err := u.claims(ctx, t, b, "that a job runs there"); err != nil || !ok {
		return err
	}
	environments, err := tx.EnvironmentsByID(ctx, c.Organization, []int64{b.EnvironmentID})
	if err != nil {
		return err
	}
	verb := core.VerbStartJob
	if m.Result != "" {
		verb = core.VerbEndJob
	}
	place := fmt.Sprintf("%s/%s/%s#%d", environments[b.EnvironmentID].Name, m.When, m.Job, m.Attempt)
	rows, err := tx.GateWordsByRollout(ctx, c.Organization, []int64{m.RolloutID})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(rows[m.RolloutID], func(r core.Transition) bool { return r.Verb == verb && r.GateID == place }) {
		return nil
	}
	return t.request(ctx, verb, place, m.reason())
}

// reason is the text of the row: the result, why, and the end of the log.
func (m JobReported) reason() string {
	text := m.Result
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	if m.Log != "" {
		text += "\n" + m.Log
	}
	return strings.TrimSpace(text)
}

func (m JobReported) rollout() int64 { return m.RolloutID }

func (m JobReported) reporter() reporter { return ofRollout(m.RolloutID) }
