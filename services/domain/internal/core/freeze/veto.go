package freeze

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// NewVeto asks for a veto on a version or on a version set; the other one is 0.
type NewVeto struct {
	VersionID, VersionSetID int64
	Reason                  string
}

// VetoVersion sets a veto: what it is about is never deployed until it is lifted, also by rollouts under way.
func (u *UseCases) VetoVersion(ctx context.Context, a core.Actor, n NewVeto) (core.Veto, error) {
	found := checkReason(n.Reason)
	if (n.VersionID == 0) == (n.VersionSetID == 0) {
		found = append(found, fault.Field{Name: "/versionId", Problem: "expected a version or a version set, and not both"})
	}
	if len(found) > 0 {
		return core.Veto{}, fault.InvalidFields(found...)
	}
	var made core.Veto
	err := core.By(ctx, u.store, a, core.ActionVetoVersion, func(ctx context.Context, tx Tx) error {
		if err := tx.LockControls(ctx); err != nil {
			return err
		}
		name, application, err := subject(ctx, tx, a.Organization, n.VersionID, n.VersionSetID)
		if err != nil {
			return err
		}
		made, err = tx.AddVeto(ctx, core.Veto{
			VersionID: n.VersionID, VersionSetID: n.VersionSetID, Reason: n.Reason, Author: core.AuthorOf(a), CreatedAt: u.clock.Now(),
		})
		if err != nil {
			return err
		}
		return core.Record(ctx, tx, a, vetoChange(core.ActionVetoVersion, made, application, n.Reason, name), nil, vetoState(made))
	})
	return made, err
}

// LiftVeto ends a veto. What it has stopped is evaluated again at once.
func (u *UseCases) LiftVeto(ctx context.Context, a core.Actor, id int64, reason string) (core.Veto, error) {
	if found := checkReason(reason); len(found) > 0 {
		return core.Veto{}, fault.InvalidFields(found...)
	}
	var after core.Veto
	err := core.By(ctx, u.store, a, core.ActionLiftVeto, func(ctx context.Context, tx Tx) error {
		if err := tx.LockControls(ctx); err != nil {
			return err
		}
		now := u.clock.Now()
		before, err := tx.LockVeto(ctx, id)
		if err != nil {
			return err
		}
		if before.LiftedAt != nil {
			return fault.New(fault.Refused, "%s was lifted at %s", before.Name(), instant(*before.LiftedAt))
		}
		name, application, err := subject(ctx, tx, a.Organization, before.VersionID, before.VersionSetID)
		if err != nil {
			return err
		}
		after = before
		after.LiftedAt = &now
		if err := tx.LiftVeto(ctx, id, now); err != nil {
			return err
		}
		if err := tx.ReviewStopped(ctx, core.StopVeto, id, now); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, vetoChange(core.ActionLiftVeto, after, application, reason, name), vetoState(before), nil)
	})
	u.wake()
	return after, err
}

// subject is what a veto is about: its name, and the application of a version set.
func subject(ctx context.Context, tx Tx, organization, version, set int64) (name string, application int64, err error) {
	if version != 0 {
		versions, err := tx.VersionsByID(ctx, organization, []int64{version})
		v, ok := versions[version]
		if err == nil && !ok {
			err = fault.New(fault.NotFound, "version %d does not exist", version)
		}
		return v.Name + " " + v.Digest, 0, err
	}
	sets, err := tx.VersionSetsByID(ctx, organization, []int64{set})
	s, ok := sets[set]
	if err == nil && !ok {
		err = fault.New(fault.NotFound, "version set %d does not exist", set)
	}
	return s.Name, s.ApplicationID, err
}

func vetoChange(action core.Action, v core.Veto, application int64, reason, detail string) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedVeto, ID: v.ID, Name: v.Name()}, ApplicationID: application, Reason: reason,
		Detail: detail,
	}
}

func vetoState(v core.Veto) map[string]any {
	return map[string]any{"version": v.VersionID, "version_set": v.VersionSetID, "reason": v.Reason}
}

// PinEnvironment keeps automation from changing what runs in an environment: policies, schedules, and machines with tokens.
func (u *UseCases) PinEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error) {
	if found := checkReason(reason); len(found) > 0 {
		return core.Environment{}, fault.InvalidFields(found...)
	}
	return u.pin(ctx, a, core.ActionPinEnvironment, environment, true, reason)
}

// UnpinInput is what UnpinEnvironment is called with.
type UnpinInput struct {
	Environment int64
	Reason      string
}

// UnpinEnvironment ends that. What the pin has stopped is evaluated again at once.
func (u *UseCases) UnpinEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Environment{}, err
	}
	a = a.Proposing(UnpinInput{Environment: environment, Reason: reason})
	return u.pin(ctx, a, core.ActionUnpinEnvironment, environment, false, reason)
}

func (u *UseCases) pin(
	ctx context.Context, a core.Actor, action core.Action, environment int64, pinned bool, reason string,
) (core.Environment, error) {
	var e core.Environment
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		if err := tx.LockControls(ctx); err != nil {
			return err
		}
		now := u.clock.Now()
		known, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		var ok bool
		if e, ok = known[environment]; !ok {
			return fault.New(fault.NotFound, "environment %d does not exist", environment)
		}
		if err := a.MayIn(action, e.Target(0)); err != nil {
			return err
		}
		was, before, err := tx.LockPin(ctx, environment)
		if err != nil {
			return err
		}
		if before == pinned {
			return fault.New(fault.Refused, "environment %q is %s already", e.Name, map[bool]string{true: "pinned", false: "not pinned"}[pinned])
		}
		var from, to any
		if before {
			from = map[string]any{"reason": was.Reason}
		}
		if pinned {
			to = map[string]any{"reason": reason}
		}
		next := core.Pin{EnvironmentID: environment, Reason: reason, Since: now, Author: core.AuthorOf(a)}
		if err := tx.SavePin(ctx, next, pinned); err != nil {
			return err
		}
		if err := tx.ReviewStopped(ctx, core.StopPin, environment, now); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: action, Subject: core.AccessSubject{Kind: core.ChangedEnvironment, ID: e.ID, Name: e.Name}, EnvironmentID: e.ID, Reason: reason,
		}, from, to)
	})
	u.wake()
	return e, err
}
