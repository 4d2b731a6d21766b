package setup

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ChangedLabels is a change of the labels of an application, an environment or a service. Those that it does not name stay, so that two who
// change labels at once lose nothing.
type ChangedLabels struct {
	Of     core.Detailed
	Set    map[string]string
	Unset  []string
	Reason string
}

// SetLabels sets and ends labels (D57). Chains, policies and notifications select by them, so that it is a change of a control. Repeating
// it is a no-op.
func (u *UseCases) SetLabels(ctx context.Context, a core.Actor, n ChangedLabels) error {
	found := core.CheckLabels("/set", n.Set)
	if len(n.Unset) > core.MaxLabels {
		found = append(found, fault.Field{Name: "/unset", Problem: "found more keys than there are labels"})
	}
	for _, key := range n.Unset {
		if _, both := n.Set[key]; both {
			found = append(found, fault.Field{Name: "/unset", Problem: "found " + key + ", which is to be set as well; expected one of them"})
		}
	}
	if len(n.Set)+len(n.Unset) == 0 {
		found = append(found, fault.Field{Name: "/set", Problem: "found no label to set, and none to end; expected one or more"})
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	if err := core.CheckReason(n.Reason); err != nil {
		return err
	}
	a = a.Proposing(n)
	err := core.Within(ctx, u.store, a, core.ActionSetLabels, func(ctx context.Context, tx Tx) error {
		if err := lockLabels(ctx, tx, n.Of); err != nil {
			return err
		}
		at, err := u.detailed(ctx, tx, a, core.ActionSetLabels, n.Of)
		if err != nil {
			return err
		}
		after := at.details
		after.Labels = changed(at.details.Labels, n.Set, n.Unset)
		if maps.Equal(after.Labels, at.details.Labels) {
			return nil
		}
		if found := core.CheckLabels("/set", after.Labels); len(found) > 0 { // as one label too many
			return fault.InvalidFields(found...)
		}
		if err := mayLeave(ctx, tx, a, n.Of, at.details.Labels, after.Labels); err != nil {
			return err
		}
		if err := mayChange(ctx, tx, a, n.Of, "labels"); err != nil {
			return err
		}
		left, err := u.leaves(ctx, tx, a, n.Of, at, after.Labels)
		if err != nil {
			return err
		}
		at.change.Reason, at.change.Detail = n.Reason, leaving(left)
		// Recorded while the former ones hold: policies that select by labels decide about it.
		err = core.Record(ctx, tx, a, at.change, map[string]any{"labels": at.details.Labels}, map[string]any{"labels": after.Labels})
		if err != nil {
			return err
		}
		if err := tx.SaveDetails(ctx, n.Of, after); err != nil {
			return err
		}
		if err := u.notifyOf(ctx, tx, a, n.Of, n.Reason); err != nil {
			return err
		}
		for _, f := range left { // what they have stopped there continues
			if err := tx.ReviewStopped(ctx, core.StopFreeze, f.ID, u.clock.Now()); err != nil {
				return err
			}
		}
		return tx.ReviewStopped(ctx, core.StopPolicy, 0, u.clock.Now())
	})
	u.wake()
	return err
}

// leaving says which freezes a change of labels leaves the scope of, so that the journal shows who let something out.
func leaving(left []core.Freeze) string {
	if len(left) == 0 {
		return ""
	}
	names := make([]string, len(left))
	for i, f := range left {
		names[i] = f.Name()
	}
	return "leaves " + strings.Join(names, ", ")
}

// lockLabels keeps passages that are being decided from seeing labels change that freezes ask of. It comes first, before any other lock.
func lockLabels(ctx context.Context, tx Tx, of core.Detailed) error {
	if of.Kind != core.ChangedApplication && of.Kind != core.ChangedEnvironment {
		return nil
	}
	return tx.LockControls(ctx)
}

// leaves are the freezes whose scope a change of labels leaves, locked. The actor may end each of them: nobody whom a freeze stops gets
// past it by a label (D49).
func (u *UseCases) leaves(
	ctx context.Context, tx Tx, a core.Actor, of core.Detailed, at present, after map[string]string,
) (left []core.Freeze, err error) {
	if of.Kind != core.ChangedApplication && of.Kind != core.ChangedEnvironment {
		return nil, nil
	}
	all, err := tx.LabelledFreezes(ctx, u.clock.Now())
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if !f.Names(of, at.tier) || !f.AsksOf(of.Kind, at.details.Labels) || f.AsksOf(of.Kind, after) {
			continue
		}
		environments, err := tx.EnvironmentsByID(ctx, a.Organization, f.EnvironmentIDs)
		if err != nil {
			return nil, err
		}
		if err := a.MayIn(core.ActionEndFreeze, f.Targets(environments)...); err != nil {
			return nil, fault.Because(err, fault.ClassOf(err), "%s would no longer stop %s, and stops %s: that takes the right to end it: %s",
				f.Name(), at.change.Subject.Name, strings.Join(f.LabelWords(), " and "), fault.Public(err))
		}
		left = append(left, f)
	}
	return left, nil
}

// mayChange is nil where no policy set that is not off asks of an attribute of applications and environments, or the actor may configure
// policies everywhere: who configures one of them is not let past a policy by what they set themselves (D51).
func mayChange(ctx context.Context, tx Tx, a core.Actor, of core.Detailed, attribute string) error {
	if of.Kind != core.ChangedApplication && of.Kind != core.ChangedEnvironment {
		return nil // policies see nothing of a service but its name
	}
	err := a.MayIn(core.ActionPutPolicySet)
	if err == nil {
		return nil
	}
	sets, failed := tx.PolicySets(ctx, a.Organization)
	if failed != nil {
		return failed
	}
	for _, s := range append(sets, tx.InstallationPolicies()...) {
		if s.Mode != core.PolicyOff && core.MentionsAttribute(s.Text, attribute) {
			return fault.Because(err, fault.ClassOf(err), "the policy set %q asks of %s, which so takes the right to configure policies of the "+
				"organization to change: %s", s.Name, attribute, fault.Public(err))
		}
	}
	return nil
}

// mayLeave is nil where a change of labels takes an application out of no policy set of a group, or the actor may configure policies
// everywhere: who configures one application makes no policy of a group weaker by leaving it (D51).
func mayLeave(ctx context.Context, tx Tx, a core.Actor, of core.Detailed, before, after map[string]string) error {
	if of.Kind != core.ChangedApplication {
		return nil
	}
	sets, err := tx.PolicySets(ctx, a.Organization)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if s.Labels == nil || s.Mode == core.PolicyOff || !core.HasLabels(before, s.Labels) || core.HasLabels(after, s.Labels) {
			continue
		}
		if err := a.MayIn(core.ActionPutPolicySet); err != nil {
			return fault.Because(err, fault.ClassOf(err), "the policy set %q would no longer concern the application, which has the labels %s: %s",
				s.Name, core.Selector(s.Labels), fault.Public(err))
		}
	}
	return nil
}

// ChangedDetails is a change of what people read about an application, an environment or a service. What is nil, and links that it does not
// name, stay.
type ChangedDetails struct {
	Of                 core.Detailed
	Description, Owner *string
	SetLinks           map[string]string
	UnsetLinks         []string
	Reason             string
}

// SetDetails changes the description, the owner and the links (D57). Policies ask of the owner, so that it is a control. Repeating it is a
// no-op.
func (u *UseCases) SetDetails(ctx context.Context, a core.Actor, n ChangedDetails) error {
	found := core.CheckLinks("/setLinks", n.SetLinks)
	if n.Owner != nil {
		found = append(found, core.CheckOwner("/owner", *n.Owner)...)
	}
	if n.Description != nil {
		found = append(found, core.CheckDescription("/description", *n.Description)...)
	}
	if n.Owner == nil && n.Description == nil && len(n.SetLinks)+len(n.UnsetLinks) == 0 {
		found = append(found, fault.Field{Name: "/description", Problem: "found nothing to change; expected a description, an owner or links"})
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	if err := core.CheckReason(n.Reason); err != nil {
		return err
	}
	a = a.Proposing(n)
	err := core.Within(ctx, u.store, a, core.ActionSetDetails, func(ctx context.Context, tx Tx) error {
		at, err := u.detailed(ctx, tx, a, core.ActionSetDetails, n.Of)
		if err != nil {
			return err
		}
		after, described := at.details, at.description
		after.Links = changed(at.details.Links, n.SetLinks, n.UnsetLinks)
		if n.Owner != nil {
			after.Owner = *n.Owner
		}
		if n.Description != nil {
			described = *n.Description
		}
		if found := core.CheckLinks("/setLinks", after.Links); len(found) > 0 {
			return fault.InvalidFields(found...)
		}
		owned := after.Owner != at.details.Owner
		moved := owned || !maps.Equal(after.Links, at.details.Links)
		if !moved && described == at.description {
			return nil
		}
		if owned {
			if err := mayChange(ctx, tx, a, n.Of, "owner"); err != nil {
				return err
			}
		}
		// Recorded while the former owner holds: policies that ask of it decide about the change. Descriptions and links are no control.
		at.change.Reason, at.change.Stricter = n.Reason, !owned
		err = core.Record(ctx, tx, a, at.change, detailState(at.description, at.details), detailState(described, after))
		if err != nil {
			return err
		}
		if err := u.notifyOf(ctx, tx, a, n.Of, n.Reason); err != nil {
			return err
		}
		if moved {
			if err := tx.SaveDetails(ctx, n.Of, after); err != nil {
				return err
			}
		}
		if described != at.description {
			if err := describe(ctx, tx, n.Of, described); err != nil {
				return err
			}
		}
		if !owned {
			return nil
		}
		return tx.ReviewStopped(ctx, core.StopPolicy, 0, u.clock.Now())
	})
	u.wake()
	return err
}

// notifyOf is notify for details that have changed; nothing for those of anything but an environment.
func (u *UseCases) notifyOf(ctx context.Context, tx Tx, a core.Actor, of core.Detailed, reason string) error {
	if of.Kind != core.ChangedEnvironment {
		return nil
	}
	return u.notify(ctx, tx, a, of.ID, core.MomentEnvironmentChanged, reason)
}

// changed are values with some set and others ended.
func changed(before, set map[string]string, unset []string) map[string]string {
	after := map[string]string{}
	maps.Copy(after, before)
	maps.Copy(after, set)
	maps.DeleteFunc(after, func(key, _ string) bool { return slices.Contains(unset, key) })
	return after
}

// present is something with its details, locked against other changes.
type present struct {
	description string
	details     core.Details
	// tier is that of an environment.
	tier   core.Tier
	change core.Change
}

// detailed locks what is to be changed, checks that the actor may change it wherever it counts, and begins the row of the journal.
func (u *UseCases) detailed(ctx context.Context, tx Tx, a core.Actor, action core.Action, of core.Detailed) (present, error) {
	at := present{change: core.Change{Action: action, Subject: core.AccessSubject{Kind: of.Kind, ID: of.ID}}}
	application := of.ID
	switch of.Kind {
	case core.ChangedEnvironment:
		e, err := tx.LockEnvironment(ctx, of.ID)
		if err != nil {
			return at, err
		}
		if err := a.MayIn(action, e.Target(0)); err != nil {
			return at, err
		}
		at.tier = e.Tier
		at.description, at.change.EnvironmentID, at.change.Subject.Name, application = e.Description, e.ID, e.Name, 0
	case core.ChangedService:
		s, err := serviceOf(ctx, tx, a.Organization, of.ID)
		if err != nil {
			return at, err
		}
		at.change.Subject.Name, application = s.Name, s.ApplicationID
	case core.ChangedApplication:
	default:
		return at, fault.New(fault.Invalid, "found %q; expected an application, an environment or a service", of.Kind)
	}
	if application != 0 {
		app, err := tx.LockApplication(ctx, application)
		if err != nil {
			return at, err
		}
		if err := mayConfigure(ctx, tx, a, action, application); err != nil {
			return at, err
		}
		at.change.ApplicationID = application
		if of.Kind == core.ChangedApplication {
			at.description, at.change.Subject.Name = app.Description, app.Name
		} else {
			s, err := serviceOf(ctx, tx, a.Organization, of.ID) // as it is behind the lock
			if err != nil {
				return at, err
			}
			at.description = s.Description
		}
	}
	all, err := tx.Details(ctx, a.Organization, []core.Detailed{of})
	at.details = all[of]
	return at, err
}

func describe(ctx context.Context, tx Tx, of core.Detailed, description string) error {
	switch of.Kind {
	case core.ChangedEnvironment:
		return tx.DescribeEnvironment(ctx, of.ID, description)
	case core.ChangedService:
		return tx.DescribeService(ctx, of.ID, description)
	default:
		return tx.DescribeApplication(ctx, of.ID, description)
	}
}

// detailState is what the journal of changes keeps of details.
func detailState(description string, d core.Details) map[string]any {
	return map[string]any{"description": description, "owner": d.Owner, "links": d.Links}
}
