package core

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Break-glass passes the approvals of one rollout, those that are open and those that come, for whoever is alone with a production that
// has to be taken back. It is a permission of its own, a person's alone, needs a reason, and is seen: in the journal as an action of its
// own, on the rollout for good, in the metrics lockstep_break_glass_* and their alert. A pause, an abort and a gate's soak stay what they are.

// BrokenGlass is that somebody has passed the approvals of a rollout by break-glass.
type BrokenGlass struct {
	Principal
	Reason string
	At     time.Time
}

// BreakGlass passes the approvals of a rollout that is not over.
func (d *Domain) BreakGlass(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	return d.change(ctx, a, ActionBreakGlass, rollout, func(ctx context.Context, t *tree, s Standing) error {
		if err := checkGlassReason(reason); err != nil {
			return err
		}
		if err := t.request(ctx, VerbBreakGlass, "", reason); err != nil {
			return err
		}
		for _, g := range s.Gates {
			if err := d.passByBreakGlass(ctx, t, g.GateID, reason); err != nil {
				return err
			}
		}
		return nil
	})
}

func checkGlassReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fault.InvalidFields(fault.Field{Name: "/reason", Problem: "found none; expected why the approvals are passed by break-glass: it is kept in the journal"})
	}
	return checkReason(reason)
}

// passByBreakGlass closes one gate, in the name of whoever broke the glass.
func (d *Domain) passByBreakGlass(ctx context.Context, t *tree, gate, reason string) error {
	if err := t.request(ctx, VerbBreakGlass, gate, reason); err != nil {
		return err
	}
	return d.answer(ctx, t, gate, true, because("break-glass", reason))
}

// askBroken closes a gate that was asked about after the glass was broken. The row is the person's who broke it, and says what led to it now.
func (d *Domain) askBroken(ctx context.Context, t *tree, gate string, by Transition) error {
	asked := t.cause.Actor
	t.cause.Actor = Actor{Organization: asked.Organization, Type: by.PrincipalType, ID: by.PrincipalID}
	defer func() { t.cause.Actor = asked }()
	return d.passByBreakGlass(ctx, t, gate, by.Reason)
}
