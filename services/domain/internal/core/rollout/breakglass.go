package rollout

import (
	"context"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// BreakGlass passes the approvals of a rollout that is not over, and the checks of a rollback.
func (u *UseCases) BreakGlass(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	return u.change(ctx, a, core.ActionBreakGlass, rollout, func(ctx context.Context, t *tree, s core.Standing) error {
		if err := checkGlassReason(reason); err != nil {
			return err
		}
		if err := t.request(ctx, core.VerbBreakGlass, "", reason); err != nil {
			return err
		}
		gates := make([]string, len(s.Gates))
		for i, g := range s.Gates {
			gates[i] = g.GateID
		}
		err := core.Record(ctx, t.tx, a, core.Change{
			Action: core.ActionBreakGlass, Subject: core.AccessSubject{Kind: core.ChangedRollout, ID: rollout, Name: t.name()},
			ApplicationID: t.rollout.ApplicationID, Reason: reason,
		}, map[string]any{"open_gates": gates}, map[string]any{"open_gates": []string{}, "broken_glass": true})
		if err != nil {
			return err
		}
		for _, g := range s.Gates {
			if err := u.passByBreakGlass(ctx, t, g.GateID, reason); err != nil {
				return err
			}
		}
		return u.decide(ctx, t)
	})
}

func checkGlassReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fault.InvalidFields(
			fault.Field{
				Name: "/reason", Problem: "found none; expected why the rollout is let past its approvals, checks or freezes: it is kept in the journal",
			},
		)
	}
	return core.CheckReason(reason)
}

// passByBreakGlass closes one gate, in the name of the person who broke the glass.
func (u *UseCases) passByBreakGlass(ctx context.Context, t *tree, gate, reason string) error {
	if err := t.request(ctx, core.VerbBreakGlass, gate, reason); err != nil {
		return err
	}
	return u.answer(ctx, t, gate, true, core.Because("break-glass", reason))
}

// askBroken closes a gate that was opened for approval after the glass was broken. The row is the person's who broke it, and says what led
// to it now.
func (u *UseCases) askBroken(ctx context.Context, t *tree, gate string, by core.Transition) error {
	asked := t.cause.Actor
	t.cause.Actor = core.Actor{Organization: asked.Organization, Type: by.PrincipalType, ID: by.PrincipalID}
	defer func() { t.cause.Actor = asked }()
	return u.passByBreakGlass(ctx, t, gate, by.Reason)
}

// pastChecks are the environments whose checks are passed because the glass is broken: those that a rollback goes back to what has run in.
// What has never run somewhere is no rollback there, as for freezes (D49).
func (p passages) pastChecks(ctx context.Context) (map[int64]bool, error) {
	if p.hold.Broken == nil || p.rollout.RollbackOf == 0 {
		return nil, nil
	}
	return p.tx.EnvironmentsThatRan(ctx, p.rollout.VersionSetID)
}

// BypassFreeze lets a rollout past the freezes that keep its requested passages closed, and past no other (D49).
func (u *UseCases) BypassFreeze(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	var passed *Bypass
	bypassed, err := u.change(ctx, a, core.ActionBypassFreeze, rollout, func(ctx context.Context, t *tree, _ core.Standing) error {
		passed = nil // the transaction may run again
		if err := checkGlassReason(reason); err != nil {
			return err
		}
		p, err := u.held(ctx, t)
		if err != nil {
			return err
		}
		var freezes []core.Condition
		var names []string
		for _, gate := range p.hold.Asking {
			stops, err := p.stops(ctx, gate)
			if err != nil {
				return err
			}
			var here []string
			for _, s := range stops {
				if s.Kind == core.StopFreeze {
					here = append(here, core.Freeze{ID: s.ID}.Name())
				}
				if s.Kind == core.StopFreeze && !slices.ContainsFunc(freezes, func(c core.Condition) bool { return c.ControlID == s.ID }) {
					freezes, names = append(freezes, s.Condition()), append(names, core.Freeze{ID: s.ID}.Name())
				}
			}
			if len(here) == 0 {
				continue
			}
			if err := u.mayBypass(ctx, p, a, gate, reason, here); err != nil {
				return err
			}
		}
		if len(freezes) == 0 {
			return fault.New(fault.Refused, "no freeze stops %s now", t.name())
		}
		row := t.requestRow(core.VerbBypassFreeze, "", reason)
		row.Conditions = freezes
		if err := t.tx.Record(ctx, row); err != nil {
			return err
		}
		err = core.Record(ctx, t.tx, a, core.Change{
			Action: core.ActionBypassFreeze, Subject: core.AccessSubject{Kind: core.ChangedRollout, ID: rollout, Name: t.name()},
			ApplicationID: t.rollout.ApplicationID, Reason: reason, Detail: "past " + strings.Join(names, ", "),
		}, map[string]any{"stopped_by": names}, map[string]any{"bypassed": names})
		if err != nil {
			return err
		}
		passed = &Bypass{Organization: a.Organization, RolloutID: rollout, Freezes: names, By: a.DisplayName(), Reason: reason}
		return u.decide(ctx, t)
	})
	if err == nil && passed != nil {
		u.bypassed(ctx, *passed)
	}
	return bypassed, u.keepDeniedBypass(ctx, a.Organization, err)
}

// Bypass is a rollout that was let past freezes.
type Bypass struct {
	Organization, RolloutID int64
	// Freezes are their names.
	Freezes    []string
	By, Reason string
}

// stopping are the controls that stop a passage, by the labels of now.
func (p passages) stopping(ctx context.Context, c *core.Controls, point core.PassagePoint) ([]core.Stop, error) {
	if of := c.Labelled([]int64{point.ApplicationID}, []int64{point.EnvironmentID}); len(of) > 0 {
		var err error
		if c.Details, err = p.tx.Details(ctx, p.cause.Organization, of); err != nil {
			return nil, err
		}
	}
	return c.Stopping(point, p.cause.at), nil
}
