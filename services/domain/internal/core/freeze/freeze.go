// Package freeze holds the use cases of what stops passages from outside of a pipeline: freezes, vetoes of versions and version sets, and
// pins of environments (D49).
//
// It does not decide about passages: package rollout does, and reads what is set here. What a control has stopped is evaluated again as
// soon as the control ends.
package freeze

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	// Details are the labels, and what else there is, of applications and environments.
	Details(ctx context.Context, organization int64, of []core.Detailed) (map[core.Detailed]core.Details, error)
	VersionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Version, error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)

	// LockControls waits for the passages that are being decided, and keeps others from being decided until the transaction ends. It comes
	// first, before any other lock.
	LockControls(ctx context.Context) error
	AddFreeze(ctx context.Context, f core.Freeze) (core.Freeze, error)
	// FreezesToCome is how many are in force at an instant, or to come.
	FreezesToCome(ctx context.Context, at time.Time) (int, error)
	LockFreeze(ctx context.Context, id int64) (core.Freeze, error)
	ExtendFreeze(ctx context.Context, f core.Freeze) error
	EndFreeze(ctx context.Context, id int64, at time.Time) error
	// AddVeto refuses a second one of the same subject.
	AddVeto(ctx context.Context, v core.Veto) (core.Veto, error)
	LockVeto(ctx context.Context, id int64) (core.Veto, error)
	LiftVeto(ctx context.Context, id int64, at time.Time) error
	// LockPin is the pin of an environment; false where it is not pinned.
	LockPin(ctx context.Context, environment int64) (core.Pin, bool, error)
	SavePin(ctx context.Context, p core.Pin, pinned bool) error
	// ReviewStopped has the rollouts evaluated again that wait for the end of a control.
	ReviewStopped(ctx context.Context, kind core.StopKind, id int64, at time.Time) error
}

// UseCases sets and ends what stops passages. It is safe for concurrent use.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Refused (not in the present state), Denied.
type UseCases struct {
	store Store
	clock clock.Clock
	wake  func()
}

// New makes the use cases. Wake is called after a change that left something to evaluate.
func New(store Store, c clock.Clock, wake func()) *UseCases { return &UseCases{store, c, wake} }

// NewFreeze asks for a freeze.
type NewFreeze struct {
	Tiers                          []core.Tier
	EnvironmentIDs, ApplicationIDs []int64
	// EnvironmentLabels and ApplicationLabels are those that environments and applications have to have; empty for any.
	EnvironmentLabels, ApplicationLabels map[string]string
	Rollbacks                            bool
	Reason                               string
	// Incident is what the incident is called that it is for; empty for none. Policies see it while the freeze is in force.
	Incident string
	// StartsAt is when it begins; the zero value for now.
	StartsAt time.Time
	// EndsAt is when it ends. It is required.
	EndsAt time.Time
}

// StartFreeze sets a freeze. Rollouts under way stop at their next passage within its scope.
func (u *UseCases) StartFreeze(ctx context.Context, a core.Actor, n NewFreeze) (core.Freeze, error) {
	asked := n
	n.beginsAt(u.clock.Now())
	if err := n.check(u.clock.Now()); err != nil {
		return core.Freeze{}, err
	}
	var made core.Freeze
	err := core.Within(ctx, u.store, a, core.ActionStartFreeze, func(ctx context.Context, tx Tx) error {
		if err := tx.LockControls(ctx); err != nil {
			return err
		}
		n, now := asked, u.clock.Now() // passages were granted until here
		n.beginsAt(now)
		if err := n.check(now); err != nil {
			return err
		}
		names, err := named(ctx, tx, a.Organization, n)
		if err != nil {
			return err
		}
		if err := mayFreeze(ctx, tx, a, core.ActionStartFreeze, core.Freeze{
			Tiers: n.Tiers, EnvironmentIDs: n.EnvironmentIDs, ApplicationIDs: n.ApplicationIDs,
		}); err != nil {
			return err
		}
		most := core.MaxFreezes
		if a.May(core.ActionStartFreeze) != nil { // by a grant with limits: it leaves room for those of everybody
			most /= 2
		}
		if many, err := tx.FreezesToCome(ctx, now); err != nil || many >= most {
			return tooMany(err, many, most)
		}
		made, err = tx.AddFreeze(ctx, core.Freeze{
			Tiers: n.Tiers, EnvironmentIDs: core.Distinct(n.EnvironmentIDs), ApplicationIDs: core.Distinct(n.ApplicationIDs), Rollbacks: n.Rollbacks,
			EnvironmentLabels: n.EnvironmentLabels, ApplicationLabels: n.ApplicationLabels,
			Reason: n.Reason, Incident: n.Incident, StartsAt: n.StartsAt, EndsAt: n.EndsAt, BoundedFrom: n.StartsAt,
			Author: core.AuthorOf(a), CreatedAt: now,
		})
		if err != nil {
			return err
		}
		if err := reviewIncident(ctx, tx, made, now); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionStartFreeze, made, n.Reason, names), nil, state(made))
	})
	u.wake()
	return made, err
}

// beginsAt has it begin at an instant, unless it says when.
func (n *NewFreeze) beginsAt(now time.Time) {
	if n.StartsAt.IsZero() {
		n.StartsAt = now
	}
}

// reviewIncident has evaluated again what policies have stopped, when an incident opens or closes that they see. Where a freeze begins
// later, or ends by itself, their own review finds that.
func reviewIncident(ctx context.Context, tx Tx, f core.Freeze, now time.Time) error {
	if f.Incident == "" {
		return nil
	}
	return tx.ReviewStopped(ctx, core.StopPolicy, 0, now)
}

func tooMany(err error, many, most int) error {
	if err != nil {
		return err
	}
	return fault.New(
		fault.Refused, "found %d freezes that are in force or to come; expected fewer than %d: end some of them first", many, most,
	)
}

// check finds what is wrong with a request.
func (n NewFreeze) check(now time.Time) error {
	found := checkReason(n.Reason)
	if len(n.Incident) > core.MaxIncident || strings.TrimSpace(n.Incident) != n.Incident ||
		strings.ContainsFunc(n.Incident, unicode.IsControl) {
		found = append(found, fault.Field{Name: "/incident", Problem: fmt.Sprintf(
			"found %.120q; expected at most %d bytes of one line, such as INC-99", n.Incident, core.MaxIncident,
		)})
	}
	if n.StartsAt.Before(now.Add(-time.Minute)) || n.StartsAt.After(now.Add(core.MaxFreezeAhead)) {
		found = append(found, fault.Field{Name: "/startsAt", Problem: fmt.Sprintf(
			"found %s; expected a time from now, %s, to a year ahead", instant(n.StartsAt), instant(now),
		)})
	}
	found = append(found, checkEnd(n.EndsAt, n.StartsAt)...)
	if !n.EndsAt.IsZero() && !n.EndsAt.After(now) {
		found = append(found, fault.Field{
			Name: "/endsAt", Problem: fmt.Sprintf("found %s, which is over; it is %s", instant(n.EndsAt), instant(now)),
		})
	}
	for i, tier := range n.Tiers {
		switch tier {
		case core.TierDevelopment, core.TierQA, core.TierStaging, core.TierProduction:
		default:
			found = append(found, fault.Field{Name: fmt.Sprintf("/tiers/%d", i), Problem: fmt.Sprintf("found %.100q; expected a tier", tier)})
		}
	}
	for field, ids := range map[string][]int64{"/environments": n.EnvironmentIDs, "/applications": n.ApplicationIDs} {
		if len(ids) > core.MaxFreezeScope {
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %d; expected at most %d", len(ids), core.MaxFreezeScope)})
		}
	}
	found = append(found, checkSelector("/environmentLabels", n.EnvironmentLabels)...)
	found = append(found, checkSelector("/applicationLabels", n.ApplicationLabels)...)
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// checkSelector finds what is wrong with labels that a scope asks of. Nil asks of none; what is given, and empty, was meant to ask of some.
func checkSelector(field string, labels map[string]string) []fault.Field {
	if labels != nil && len(labels) == 0 {
		return []fault.Field{{Name: field, Problem: "found no label; expected one or more, such as tier=critical, or none of this field for all"}}
	}
	return core.CheckLabels(field, labels)
}

// checkEnd finds what is wrong with the end of a freeze that is counted from an instant.
func checkEnd(end, from time.Time) []fault.Field {
	switch {
	case end.IsZero():
		return []fault.Field{{Name: "/endsAt", Problem: "found none; expected when the freeze ends: none lasts forever"}}
	case !end.After(from):
		return []fault.Field{{Name: "/endsAt", Problem: fmt.Sprintf("found %s; expected a time after %s", instant(end), instant(from))}}
	case end.Sub(from) > core.MaxFreeze:
		return []fault.Field{{Name: "/endsAt", Problem: fmt.Sprintf(
			"found %s; expected at most 30 days after %s: a freeze can be extended before it ends", instant(end), instant(from),
		)}}
	}
	return nil
}

func checkReason(reason string) []fault.Field {
	if strings.TrimSpace(reason) == "" {
		return []fault.Field{{
			Name: "/reason", Problem: "found none; expected why: it is shown to everybody who is stopped, and kept in the journal",
		}}
	}
	if len(reason) > core.MaxReason {
		return []fault.Field{{Name: "/reason", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(reason), core.MaxReason)}}
	}
	return nil
}

func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// named finds what the scope names, and describes it.
func named(ctx context.Context, tx Tx, organization int64, n NewFreeze) (string, error) {
	environments, err := tx.EnvironmentsByID(ctx, organization, n.EnvironmentIDs)
	if err != nil {
		return "", err
	}
	applications, err := tx.ApplicationsByID(ctx, organization, n.ApplicationIDs)
	if err != nil {
		return "", err
	}
	var parts []string
	var found []fault.Field
	for _, tier := range n.Tiers {
		parts = append(parts, "tier "+string(tier))
	}
	for i, id := range n.EnvironmentIDs {
		e, ok := environments[id]
		if !ok {
			found = append(found, fault.Field{Name: fmt.Sprintf("/environments/%d", i), Problem: "found no such environment"})
		}
		parts = append(parts, "environment "+e.Name)
	}
	for i, id := range n.ApplicationIDs {
		app, ok := applications[id]
		if !ok {
			found = append(found, fault.Field{Name: fmt.Sprintf("/applications/%d", i), Problem: "found no such application"})
		}
		parts = append(parts, "application "+app.Name)
	}
	if len(found) > 0 {
		return "", fault.InvalidFields(found...)
	}
	parts = append(parts, core.Freeze{EnvironmentLabels: n.EnvironmentLabels, ApplicationLabels: n.ApplicationLabels}.LabelWords()...)
	if len(parts) == 0 {
		return "the organization", nil
	}
	return strings.Join(parts, ", "), nil
}

// ExtendFreeze chooses a later end for a freeze that is not over: at most 30 days from now.
func (u *UseCases) ExtendFreeze(ctx context.Context, a core.Actor, id int64, end time.Time, reason string) (core.Freeze, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Freeze{}, err
	}
	var after core.Freeze
	err := core.Within(ctx, u.store, a, core.ActionExtendFreeze, func(ctx context.Context, tx Tx) error {
		if err := tx.LockControls(ctx); err != nil {
			return err
		}
		now := u.clock.Now()
		before, err := lockFreeze(ctx, tx, a, core.ActionExtendFreeze, id, now)
		if err != nil {
			return err
		}
		after = before
		after.BoundedFrom = now
		if before.StartsAt.After(now) {
			after.BoundedFrom = before.StartsAt
		}
		found := checkEnd(end, after.BoundedFrom)
		if len(found) == 0 && !end.After(before.EndsAt) {
			found = []fault.Field{{Name: "/endsAt", Problem: fmt.Sprintf(
				"found %s; expected a time after the present end, %s", instant(end), instant(before.EndsAt),
			)}}
		}
		if len(found) > 0 {
			return fault.InvalidFields(found...)
		}
		after.EndsAt = end
		if err := tx.ExtendFreeze(ctx, after); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionExtendFreeze, after, reason, "until "+instant(end)), state(before), state(after))
	})
	return after, err
}

// EndInput is what EndFreeze is called with.
type EndInput struct {
	Freeze int64
	Reason string
}

// EndFreeze ends a freeze before its time. What it has stopped is evaluated again at once.
func (u *UseCases) EndFreeze(ctx context.Context, a core.Actor, id int64, reason string) (core.Freeze, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Freeze{}, err
	}
	a = a.Proposing(EndInput{Freeze: id, Reason: reason})
	var after core.Freeze
	err := core.Within(ctx, u.store, a, core.ActionEndFreeze, func(ctx context.Context, tx Tx) error {
		if err := tx.LockControls(ctx); err != nil {
			return err
		}
		now := u.clock.Now()
		before, err := lockFreeze(ctx, tx, a, core.ActionEndFreeze, id, now)
		if err != nil {
			return err
		}
		after = before
		after.EndedAt = &now
		if err := tx.EndFreeze(ctx, id, now); err != nil {
			return err
		}
		if err := tx.ReviewStopped(ctx, core.StopFreeze, id, now); err != nil {
			return err
		}
		if err := reviewIncident(ctx, tx, after, now); err != nil {
			return err
		}
		c := change(core.ActionEndFreeze, after, reason, "")
		if c.Environments, err = scope(ctx, tx, a.Organization, before); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, c, state(before), state(after))
	})
	u.wake()
	return after, err
}

// scope are the environments under change control in which a freeze stops rollouts: to end it there takes a second person.
func scope(ctx context.Context, tx Tx, organization int64, f core.Freeze) ([]int64, error) {
	ids, err := unlabelled(ctx, tx, f)
	if err != nil || len(f.EnvironmentLabels) == 0 {
		return ids, err
	}
	of := make([]core.Detailed, len(ids))
	for i, id := range ids {
		of[i] = core.Detailed{Kind: core.ChangedEnvironment, ID: id}
	}
	details, err := tx.Details(ctx, organization, of)
	return slices.DeleteFunc(ids, func(id int64) bool {
		return !core.HasLabels(details[core.Detailed{Kind: core.ChangedEnvironment, ID: id}].Labels, f.EnvironmentLabels)
	}), err
}

// unlabelled is the same whatever labels the freeze asks of.
func unlabelled(ctx context.Context, tx Tx, f core.Freeze) (ids []int64, err error) {
	if len(f.EnvironmentIDs)+len(f.Tiers) == 0 && len(f.ApplicationIDs) > 0 {
		for _, application := range f.ApplicationIDs {
			of, err := tx.EnvironmentsConcerned(ctx, application, 0, "")
			if err != nil {
				return nil, err
			}
			ids = append(ids, of...)
		}
		return ids, nil
	}
	controlled, err := tx.ControlledEnvironments(ctx)
	if err != nil {
		return nil, err
	}
	for id, e := range controlled {
		if (len(f.EnvironmentIDs) == 0 || slices.Contains(f.EnvironmentIDs, id)) && (len(f.Tiers) == 0 || slices.Contains(f.Tiers, e.Tier)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// mayFreeze is nil when an actor may do something with a freeze wherever it stops rollouts.
func mayFreeze(ctx context.Context, tx Tx, a core.Actor, action core.Action, f core.Freeze) error {
	environments, err := tx.EnvironmentsByID(ctx, a.Organization, f.EnvironmentIDs)
	if err != nil {
		return err
	}
	return a.MayIn(action, f.Targets(environments)...)
}

// lockFreeze locks one that is not over, for an actor who may do something with it.
func lockFreeze(ctx context.Context, tx Tx, a core.Actor, action core.Action, id int64, now time.Time) (core.Freeze, error) {
	f, err := tx.LockFreeze(ctx, id)
	if err == nil {
		err = mayFreeze(ctx, tx, a, action, f)
	}
	if err == nil && f.Over(now) {
		at := f.EndsAt
		if f.EndedAt != nil {
			at = *f.EndedAt
		}
		err = fault.New(fault.Refused, "%s is over since %s", f.Name(), instant(at))
	}
	return f, err
}

func change(action core.Action, f core.Freeze, reason, detail string) core.Change {
	c := core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedFreeze, ID: f.ID, Name: f.Name()}, Reason: reason, Detail: detail,
	}
	if len(f.EnvironmentIDs) == 1 {
		c.EnvironmentID = f.EnvironmentIDs[0]
	}
	if len(f.ApplicationIDs) == 1 {
		c.ApplicationID = f.ApplicationIDs[0]
	}
	return c
}

// state is what the journal of changes keeps of a freeze.
func state(f core.Freeze) map[string]any {
	return map[string]any{
		"tiers": f.Tiers, "environments": f.EnvironmentIDs, "applications": f.ApplicationIDs, "rollbacks": f.Rollbacks, "reason": f.Reason,
		"incident":           f.Incident,
		"environment_labels": f.EnvironmentLabels, "application_labels": f.ApplicationLabels,
		"starts_at": f.StartsAt, "ends_at": f.EndsAt, "ended": f.EndedAt != nil,
	}
}
