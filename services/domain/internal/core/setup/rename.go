package setup

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// maxFormerNames bounds the names by which an application is still found.
const maxFormerNames = 20

// Renaming gives an application another name.
type Renaming struct {
	ID     int64
	Name   string
	Reason string
}

// RenameApplication gives an application another name; by those that it had it is still found until another one is given them (D57). What
// is under way keeps the name that it began with. Repeating it is a no-op.
func (u *UseCases) RenameApplication(ctx context.Context, a core.Actor, n Renaming) (core.Application, error) {
	if found := core.CheckName("/name", n.Name); len(found) > 0 {
		return core.Application{}, fault.InvalidFields(found...)
	}
	if err := core.CheckReason(n.Reason); err != nil {
		return core.Application{}, err
	}
	a = a.Proposing(n)
	var renamed core.Application
	err := core.Within(ctx, u.store, a, core.ActionRenameApplication, func(ctx context.Context, tx Tx) error {
		app, err := tx.LockApplication(ctx, n.ID)
		if err != nil {
			return err
		}
		renamed = app
		if err := mayConfigure(ctx, tx, a, core.ActionRenameApplication, app.ID); err != nil {
			return err
		}
		if app.Name == n.Name {
			return nil
		}
		if err := mayBeCalled(ctx, tx, a, app, n.Name); err != nil {
			return err
		}
		// Recorded under the former name: policies that name it decide about the change.
		err = core.Record(ctx, tx, a, core.Change{
			Action: core.ActionRenameApplication, ApplicationID: app.ID, Reason: n.Reason,
			Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: app.ID, Name: app.Name},
		}, map[string]any{"name": app.Name}, map[string]any{"name": n.Name})
		if err != nil {
			return err
		}
		err = tx.RenameApplication(ctx, app.ID, n.Name)
		if fault.Is(err, fault.Conflict) {
			return fault.WithFields(fault.Conflict, fmt.Sprintf("an application named %q exists already", n.Name), fault.Field{
				Name: "/name", Problem: fmt.Sprintf("%q is taken", n.Name),
			})
		}
		if err != nil {
			return err
		}
		renamed.Name = n.Name
		return tx.ReviewStopped(ctx, core.StopPolicy, 0, u.clock.Now())
	})
	u.wake()
	return renamed, err
}

// mayBeCalled is nil where no policy set that is not off names what an application is called or is to be called, or the actor may configure
// policies everywhere: who configures one application neither takes it past a policy by its name, nor gives it what another name permits
// (D51).
func mayBeCalled(ctx context.Context, tx Tx, a core.Actor, app core.Application, name string) error {
	former, err := tx.FormerNames(ctx, a.Organization, []int64{app.ID})
	if err != nil {
		return err
	}
	if len(former[app.ID]) >= maxFormerNames {
		return fault.New(fault.Refused, "application %q has had %d other names, which is the most", app.Name, maxFormerNames)
	}
	denied := a.MayIn(core.ActionPutPolicySet)
	if denied == nil {
		return nil
	}
	sets, err := tx.PolicySets(ctx, a.Organization)
	if err != nil {
		return err
	}
	for _, s := range append(sets, tx.InstallationPolicies()...) {
		for _, one := range []string{app.Name, name} {
			// In quotes, or with an escape that may write any letter.
			if s.Mode != core.PolicyOff && (strings.Contains(s.Text, `"`+one+`"`) || strings.Contains(s.Text, `\`)) {
				return fault.Because(denied, fault.ClassOf(denied), "the policy set %q may name %q, so that the name takes the right to configure "+
					"policies of the organization: %s", s.Name, one, fault.Public(denied))
			}
		}
	}
	return nil
}
