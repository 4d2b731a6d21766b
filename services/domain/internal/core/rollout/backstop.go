package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The backstop in the record (D46): what a program reports about a place advances nothing if the passage to that place was never granted.
// An honest program cannot do that, in whatever order its events arrive: it acts only after the grant, which is in the record by then. So
// the rollout fails as a breach and its workflow is stopped. Two early reports are not breaches, since older drivers
// send them before requesting the passage: environment started (ignored until the grant), and environment or deployment
// failed.

// entered reports whether the rollout was let into an environment; true for a rollout of an earlier release, whose
// program decides that itself.
func (t *tree) entered(ctx context.Context, b *branch) (bool, error) {
	// Nothing starts in an environment that was not entered.
	if !t.rollout.Passages || b.StartedAt != nil || b.State == core.RolloutInProgress {
		return true, nil
	}
	p, err := t.passages(ctx)
	return p.hold.Granted[p.places[b.EnvironmentID].Name], err
}

// claims reports whether a report about an environment may be applied. If the environment was not entered, it fails the
// rollout as a breach.
func (u *UseCases) claims(ctx context.Context, t *tree, b *branch, report string) (bool, error) {
	entered, err := t.entered(ctx, b)
	if err != nil || entered {
		return entered, err
	}
	return false, u.breach(ctx, t, report, t.places[b.EnvironmentID].Name)
}

// claimsWeights also requires that every gated weight below was passed or skipped.
func (u *UseCases) claimsWeights(ctx context.Context, t *tree, b *branch, below int, report string) (bool, error) {
	if ok, err := u.claims(ctx, t, b, report); err != nil || !ok || !t.rollout.Passages || len(b.Weights) == 0 {
		return ok, err
	}
	p, err := t.passages(ctx)
	if err != nil {
		return false, err
	}
	if gate := p.left(b, below); gate != "" {
		return false, u.breach(ctx, t, report, gate)
	}
	return true, nil
}

// left is the first weight below another one that has a condition and that the rollout may not leave; empty for none.
func (p passages) left(b *branch, below int) string {
	for _, w := range b.Weights {
		gate := weightGate(p.places[b.EnvironmentID].Name, w.Weight)
		if rule, pinned := p.rules[gate]; pinned && !rule.Own && w.Weight < below && !p.hold.Granted[gate] {
			return gate
		}
	}
	return ""
}

// aboveAll is above every weight.
const aboveAll = 101

// claimsEnd reports whether the rollout may report that it is healthy: it was let into every environment and past
// everything in it that has a condition, and steps behind the last environment were approved.
func (u *UseCases) claimsEnd(ctx context.Context, t *tree) (bool, error) {
	if !t.rollout.Passages {
		return true, nil
	}
	p, err := t.passages(ctx)
	if err != nil {
		return false, err
	}
	for _, b := range t.environments {
		missing := p.places[b.EnvironmentID].Name
		if p.hold.Granted[missing] {
			missing = p.left(b, aboveAll)
		}
		if missing == "" {
			if missing, err = p.leftWaves(ctx, b); err != nil {
				return false, err
			}
		}
		if missing != "" {
			return false, u.breach(ctx, t, "its end", missing)
		}
	}
	for _, id := range p.steps() {
		rule := p.rules[id]
		if _, approved := p.hold.Answers[id].Satisfies(id, rule.GateRule); rule.BeforeEnvironmentID == 0 && !approved && !p.hold.Granted[id] {
			return false, u.breach(ctx, t, "its end", id)
		}
	}
	return true, nil
}

// breach fails a rollout that has reported to be where it was never let, and has its workflow stopped. A rollout that is over absorbs it.
func (u *UseCases) breach(ctx context.Context, t *tree, report, gate string) error {
	if t.rollout.State.Terminal() {
		return nil
	}
	reason := fmt.Sprintf("breach: its program reported %s, but the passage %q was never granted", report, gate)
	t.breach = gate
	if err := t.moveRollout(ctx, core.VerbFail, reason); err != nil {
		return err
	}
	u.breached(ctx, Breach{Organization: t.cause.Organization, RolloutID: t.rollout.ID, GateID: gate, Reason: reason})
	return u.stopWorkflow(ctx, t, reason)
}

// Breach is a rollout that failed because it reported to be beyond a passage that was never granted.
type Breach struct {
	Organization, RolloutID int64
	GateID, Reason          string
}

// breaches finds where a journal has something beyond a passage that had not been granted by then, and passages that were granted while
// an approval was missing, or without a check that guards them (D46). Journals of earlier releases are read the same way, except that their
// rollouts needed no passage for weights at which nothing waited. A rollout that was failed as a breach is among them: the program got that
// far.
func (t *tree) breaches(ctx context.Context, rows []core.Transition) ([]JournalDifference, error) {
	p, err := t.passages(ctx)
	if err != nil {
		return nil, err
	}
	p.hold = core.HoldOf(nil, nil)
	var found []JournalDifference
	report := func(row core.Transition, format string, args ...any) {
		found = append(found, JournalDifference{
			Subject: row.Subject, Problem: fmt.Sprintf("row %d, %s: ", row.ID, row.Verb) + fmt.Sprintf(format, args...), Breach: true,
		})
	}
	for _, row := range rows {
		if row.Breach {
			report(row, "%s", row.Reason)
		}
		if row.Verb == core.VerbPassGate && row.Subject.Kind == core.SubjectRollout {
			if id := p.unsatisfied(row); id != "" {
				report(row, "found passage %q granted while approval %q was missing", row.GateID, id)
			}
			if key := p.unchecked(row); key != "" {
				report(row, "found passage %q granted without check %q, which guards it", row.GateID, key)
			}
		}
		if gate := p.beyond(row); gate != "" {
			report(row, "found it beyond passage %q, which had not been granted", gate)
		}
		if row.Subject.Kind == core.SubjectRollout {
			p.hold.Read(row)
		}
	}
	return found, nil
}

// unsatisfied is an approval that a passage needed and that had not been given when it was granted; empty for none.
func (p passages) unsatisfied(row core.Transition) string {
	var skips []core.Condition
	for _, c := range row.Conditions {
		if c.Kind == core.ConditionSkippedWeight {
			skips = append(skips, c)
		}
	}
	approvals, _ := p.needs(row.GateID, skips)
	for _, id := range approvals {
		if _, ok := p.hold.Answers[id].Satisfies(id, p.rules[id].GateRule); !ok && !p.rules[id].Own {
			return id
		}
	}
	return ""
}

// unchecked is the key of a pinned check that guards a granted passage and that the row does not name; empty for none. What a check was
// at that time is only in the row.
func (p passages) unchecked(row core.Transition) string {
	if !p.rollout.Passages {
		return ""
	}
	for _, s := range p.entering(row.GateID) {
		named := slices.ContainsFunc(row.Conditions, func(c core.Condition) bool {
			return c.Kind == core.ConditionCheck && c.GateID == s.Key && c.ControlID == s.EnvironmentID
		})
		if !named {
			return s.Key
		}
	}
	return ""
}

// beyond is the passage that a change of state is beyond without a grant; empty for none.
func (p passages) beyond(row core.Transition) string {
	if row.From == "" || row.From == row.To {
		return ""
	}
	for _, b := range p.environments {
		name := p.places[b.EnvironmentID].Name
		if p.subjectIn(b, row) && !p.hold.Granted[name] {
			return name
		}
		healthy := row.Verb == core.VerbComplete && row.Subject == core.Subject{Kind: core.SubjectRolloutEnvironment, ID: b.ID}
		if gate := p.left(b, aboveAll); healthy && p.rollout.Passages && gate != "" {
			return gate
		}
	}
	return ""
}

// subjectIn reports whether a row is about progress of an environment or of a deployment in it. In earlier releases an
// environment started before its passage.
func (p passages) subjectIn(b *branch, row core.Transition) bool {
	if row.Verb != core.VerbStart && row.Verb != core.VerbComplete && row.Verb != core.VerbDegrade {
		return false
	}
	if row.Subject == (core.Subject{Kind: core.SubjectRolloutEnvironment, ID: b.ID}) {
		return p.rollout.Passages || row.Verb == core.VerbComplete
	}
	for _, d := range b.deployments {
		if row.Subject == (core.Subject{Kind: core.SubjectDeployment, ID: d.ID}) {
			return true
		}
	}
	return false
}
