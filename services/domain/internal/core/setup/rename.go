package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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
	// Everywhere, as for the name of a new application and for policies (D51): what policies, also those that rollouts have pinned, say of
	// names cannot be concluded from their text, and a name may be a former one of another application.
	err := core.By(ctx, u.store, a, core.ActionRenameApplication, func(ctx context.Context, tx Tx) error {
		app, err := tx.LockApplication(ctx, n.ID)
		if err != nil {
			return err
		}
		renamed = app
		if app.Name == n.Name {
			return nil
		}
		if err := boundNames(ctx, tx, a, app, n.Name); err != nil {
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
		if err := endAlias(ctx, tx, a, app.ID, n.Name, n.Reason); err != nil {
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
		if u.chains != nil {
			if err := u.chains(ctx, tx, a.Organization, app.ID); err != nil {
				return err
			}
		}
		return tx.ReviewStopped(ctx, core.StopPolicy, 0, u.clock.Now())
	})
	u.wake()
	return renamed, err
}

// boundNames refuses another name for an application that has had many, unless it is one of them.
func boundNames(ctx context.Context, tx Tx, a core.Actor, app core.Application, name string) error {
	former, err := tx.FormerNames(ctx, a.Organization, []int64{app.ID})
	if err != nil {
		return err
	}
	if own := former[app.ID]; len(own) >= maxFormerNames && !slices.Contains(own, name) {
		return fault.New(fault.Refused, "application %q has had %d other names, which is the most", app.Name, maxFormerNames)
	}
	return nil
}

// endAlias writes to the journal of an application that a name which it had finds another one from now on.
func endAlias(ctx context.Context, tx Tx, a core.Actor, to int64, name, reason string) error {
	other, err := tx.ApplicationByName(ctx, a.Organization, name)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil || other.ID == to || other.Name == name {
		return err
	}
	before, err := json.Marshal(map[string]any{"former_name": name})
	if err != nil {
		return fmt.Errorf("encode a former name: %w", err)
	}
	return tx.AddChange(ctx, core.Change{
		Principal: a.Principal(), PrincipalName: a.DisplayName(), Action: core.ActionRenameApplication, ApplicationID: other.ID, Reason: reason,
		Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: other.ID, Name: other.Name}, Before: before,
		Detail: fmt.Sprintf("the former name %q finds another application from now on", name),
	})
}
