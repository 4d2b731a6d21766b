// Package trigger holds the use cases of triggers: saving and removing them, taking events, deciding what begins a rollout and what does
// not, and releasing the holds after rollbacks (D58).
//
// It does not create rollouts: package rollout does, in the transaction of the decision. Whatever may begin a rollout is stored as a signal
// of the trigger, in the transaction of its cause. A signal is decided once, however often its cause is reported.
package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// OrganizationsWithDueSignals returns the organizations with a trigger that has due signals.
	OrganizationsWithDueSignals(ctx context.Context, at time.Time) ([]int64, error)
}

// Reads is what the API reads.
type Reads interface {
	// Triggers returns the saved triggers of applications, ordered by name.
	Triggers(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Trigger, error)
	// TriggerDecisions returns the latest decisions of triggers, the latest first.
	TriggerDecisions(ctx context.Context, organization int64, triggers []int64) (map[int64][]core.TriggerSignal, error)
	// PromotionHolds returns those in force, by application.
	PromotionHolds(ctx context.Context, organization int64, applications []int64) (map[int64][]core.PromotionHold, error)
	ChainReads
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	rollout.Tx
	ChainTx
	core.ShownReads
	Triggers(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Trigger, error)
	// FormerNames are those by which applications are still found.
	FormerNames(ctx context.Context, organization int64, applications []int64) (map[int64][]string, error)
	// TriggersOfKind returns those of a kind that are switched on.
	TriggersOfKind(ctx context.Context, organization int64, kind core.TriggerKind) ([]core.Trigger, error)
	// TriggersOfEvent returns those of kind event that are switched on and have one of the keys of each kind, with how much each has to decide
	// about, up to a limit, in the order of their ids; see keys.
	TriggersOfEvent(ctx context.Context, organization int64, types, details []string, most int) ([]core.ReachedTrigger, error)
	// TriggerDecisions returns the latest decisions of triggers, the latest first.
	TriggerDecisions(ctx context.Context, organization int64, triggers []int64) (map[int64][]core.TriggerSignal, error)
	// SourcesOfRepository returns the sources whose key has a prefix, of applications that are not archived, by application: at most so many.
	SourcesOfRepository(ctx context.Context, organization int64, prefix string, most int) ([]core.ServiceSource, error)
	AddTrigger(ctx context.Context, t core.Trigger) (core.Trigger, error)
	// SaveTrigger stores the configuration, whether it is on, the author and the removal.
	SaveTrigger(ctx context.Context, t core.Trigger) error
	// AddSignal reports whether the cause is new to the trigger.
	AddSignal(ctx context.Context, trigger int64, cause string, at, due time.Time) (bool, error)
	// KnownCauses returns those of some causes that a trigger has, decided or not.
	KnownCauses(ctx context.Context, trigger int64, causes []string) ([]string, error)
	// AddEvents is AddSignal for events that triggers may have had already.
	AddEvents(ctx context.Context, at time.Time, all []core.ReachedTrigger) error
	// SaveSignalEdit stores how far an edit has come, unless another attempt has begun since, and when it is looked at again.
	SaveSignalEdit(ctx context.Context, signal int64, attempt int, e core.TriggerEdit, due time.Time) error
	// EditsOfCommits returns the causes of the edits of a trigger that are recorded with some commits, by commit.
	EditsOfCommits(ctx context.Context, trigger int64, commits []string) (map[string]string, error)
	// EditBegun returns when the edit of a trigger began that is the one at a place from the latest, from 1, of those that have changed
	// something and began after a time, and not later than another; false if there are fewer.
	EditBegun(ctx context.Context, trigger int64, place int, after, at time.Time) (time.Time, bool, error)
	// DueTrigger locks a trigger with due signals, skipping those that others have locked; false if there is none.
	DueTrigger(ctx context.Context, at time.Time) (core.Trigger, bool, error)
	// PendingSignals returns the undecided signals of a trigger, due or not, the oldest first; at most a thousand.
	PendingSignals(ctx context.Context, trigger int64) ([]core.TriggerSignal, error)
	DecideSignals(ctx context.Context, signals []int64, d core.TriggerSignal) error
	PutOffSignals(ctx context.Context, signals []int64, d core.TriggerSignal) error
	// PutOffTrigger delays all signals that are due before the decision's time.
	PutOffTrigger(ctx context.Context, d core.TriggerSignal) error
	// ForgetSignals deletes signals that were decided before an instant, up to a limit.
	ForgetSignals(ctx context.Context, before time.Time, most int) error
	LockPromotionHold(ctx context.Context, application, environment int64) (core.PromotionHold, bool, error)
	ReleasePromotionHold(ctx context.Context, id int64, at time.Time) error
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	// Details has no key for what has none.
	Details(ctx context.Context, organization int64, of []core.Detailed) (map[core.Detailed]core.Details, error)
	// WasRolledOut reports whether an application has a rollout, whatever became of it.
	WasRolledOut(ctx context.Context, application int64) (bool, error)
	// DriversOfApplications are the drivers that deploy applications where their pipelines go, by application.
	DriversOfApplications(ctx context.Context, organization int64, ids []int64) (map[int64][]string, error)
	// NewestVersionSets has no key for an application that has none.
	NewestVersionSets(ctx context.Context, organization int64, applications []int64) (map[int64]core.VersionSet, error)
	ServicesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Service, error)
	ArtifactSourcesByService(ctx context.Context, organization int64, services []int64) (map[int64][]core.ArtifactSource, error)
	// RequestLookup has a version looked up.
	RequestLookup(ctx context.Context, version int64, at time.Time) error
	// EnvironmentsOfCommit returns where deployments of an application have recorded a commit.
	EnvironmentsOfCommit(ctx context.Context, application int64, commit string) ([]int64, error)
	// Reconciliations returns the latest observation of application environments; no key for one that was never observed.
	Reconciliations(ctx context.Context, organization int64, applicationEnvironments []int64) (map[int64]core.Reconciliation, error)
}

// Rollouts begins rollouts.
type Rollouts interface {
	Begin(ctx context.Context, tx rollout.Tx, organization int64, n rollout.Automatic) (rollout.Begun, error)
	Refused(ctx context.Context, tx rollout.Tx, organization int64, n rollout.Automatic) (refused string, err error)
	CheckInputs(ctx context.Context, tx rollout.Tx, organization, application int64, inputs json.RawMessage) error
	Foresee(ctx context.Context, tx rollout.Tx, a core.Actor, n rollout.Unreleased) (rollout.Foreseen, error)
	CancelWith(ctx context.Context, tx rollout.Tx, a core.Actor, rollout int64, reason string) error
	Dequeue(ctx context.Context, tx rollout.Tx, a core.Actor, q core.QueuedRollout, outcome string) (core.QueuedRollout, error)
}

// Repositories understands sources of kind git.
type Repositories interface {
	// Name is the canonical name of a repository, given its URL or that name; empty for neither.
	Name(repository string) string
	// KeyPrefix is what the keys of all sources of a repository begin with, given its name.
	KeyPrefix(name string) string
	// Filter reports which changed files make a commit on a branch count for a source; nil for one that follows something else. Sources of one
	// repository and branch whose filters are the same have the same key.
	Filter(ref string, config json.RawMessage, branch string) (key string, counts func(file string) bool)
	// SourceName is the name of the image or the repository of a source of any kind; empty if it cannot be read.
	SourceName(ref string, config json.RawMessage) string
}

// UseCases saves triggers and decides their signals. It is safe for concurrent use.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Refused, Denied.
type UseCases struct {
	store    Store
	rollouts Rollouts
	ranges   Ranges
	sources  Repositories
	engine   Engine
	clock    clock.Clock
	aside    func(context.Context, func(context.Context) error) error
	wake     func()
	began    func()
	// served is the organization whose turn was last.
	served atomic.Int64
	counts counts
	edited editCounts
	known  configs
}

// Deps is what UseCases needs.
type Deps struct {
	Store    Store
	Rollouts Rollouts
	Ranges   Ranges
	Sources  Repositories
	Engine   Engine
	Clock    clock.Clock
	// Aside makes calls of the engine without keeping those waiting who have triggers decide, or drops them: they are repeated. Nil makes
	// them at once.
	Aside func(context.Context, func(context.Context) error) error
	// Wake is called when a trigger has a new signal, and Began after a rollout was created; either may be nil.
	Wake, Began func()
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.Wake == nil {
		d.Wake = func() {}
	}
	if d.Began == nil {
		d.Began = func() {}
	}
	if d.Aside == nil {
		d.Aside = func(ctx context.Context, call func(context.Context) error) error { return call(ctx) }
	}
	return &UseCases{
		store: d.Store, rollouts: d.Rollouts, ranges: d.Ranges, sources: d.Sources, engine: d.Engine, clock: d.Clock, aside: d.Aside,
		wake:  d.Wake,
		began: d.Began,
	}
}

// Triggers are those of applications by name, with the manual one that each has.
func (u *UseCases) Triggers(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Trigger, error) {
	all, err := u.store.Triggers(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	for _, id := range applications {
		if !slices.ContainsFunc(all[id], func(t core.Trigger) bool { return t.Kind == core.TriggerManual }) {
			all[id] = append([]core.Trigger{core.DefaultManualTrigger(id)}, all[id]...)
		}
	}
	return all, nil
}

// TriggerDecisions returns the latest decisions of triggers, the latest first.
func (u *UseCases) TriggerDecisions(ctx context.Context, organization int64, triggers []int64) (map[int64][]core.TriggerSignal, error) {
	return u.store.TriggerDecisions(ctx, organization, triggers)
}

// PromotionHolds returns those in force, by application.
func (u *UseCases) PromotionHolds(ctx context.Context, organization int64, applications []int64) (map[int64][]core.PromotionHold, error) {
	return u.store.PromotionHolds(ctx, organization, applications)
}

// MaxTriggers is the most triggers that an application may have.
const MaxTriggers = 20

// nameForm is the form of a trigger's name.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// NewTrigger is a trigger to save.
type NewTrigger struct {
	ApplicationID int64
	// Name is unique in the application; saving again under the same name changes the trigger.
	Name string
	Kind core.TriggerKind
	// Config follows the kind's schema; empty for its defaults.
	Config  json.RawMessage
	Enabled bool
	Reason  string
}

// PutTrigger saves a trigger. Its undecided signals are decided by the new configuration.
func (u *UseCases) PutTrigger(ctx context.Context, a core.Actor, n NewTrigger) (core.Trigger, error) {
	if err := core.CheckReason(n.Reason); err != nil {
		return core.Trigger{}, err
	}
	if !nameForm.MatchString(n.Name) {
		return core.Trigger{}, invalid("/name", "found %.100q; expected 1 to 63 lower-case letters, digits and hyphens", n.Name)
	}
	c, err := u.read(n.Kind, n.Config)
	if err != nil {
		return core.Trigger{}, err
	}
	var saved core.Trigger
	err = core.Within(ctx, u.store, a, core.ActionPutTrigger, func(ctx context.Context, tx Tx) error {
		application, all, err := u.mine(ctx, tx, a, core.ActionPutTrigger, n.ApplicationID)
		if err != nil {
			return err
		}
		saved = core.Trigger{
			ApplicationID: n.ApplicationID, Name: n.Name, Kind: n.Kind, Config: n.Config, Enabled: n.Enabled, Author: core.AuthorOf(a),
			ChangedAt: u.clock.Now(),
		}
		if len(saved.Config) == 0 {
			saved.Config = json.RawMessage(`{}`)
		}
		if saved.Config, err = byNames(ctx, tx, a.Organization, saved, c); err != nil {
			return err
		}
		if c, err = u.read(saved.Kind, saved.Config); err != nil {
			return err
		}
		if err := u.checkSources(ctx, tx, a.Organization, saved, c, named(all, n.Name)); err != nil {
			return err
		}
		before, err := u.add(ctx, tx, &saved, all)
		if err != nil {
			return err
		}
		if err := u.checkChain(ctx, tx, a.Organization, application, saved, c); err != nil {
			return err
		}
		if err := u.checkInputs(ctx, tx, a.Organization, saved, c); err != nil {
			return err
		}
		// It may change any repository that the organization has a credential for.
		if c.Edit != nil && a.May(core.ActionPutTrigger) != nil {
			return fault.New(fault.Denied, "an edit of files takes a member who may configure the whole organization")
		}
		if err := u.schedule(ctx, tx, saved, c, saved.ChangedAt); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionPutTrigger, application, n.Reason, saved), before, state(saved))
	})
	u.wake()
	return saved, err
}

// Follow gives an application with its first source of commits the trigger that reacts to them (R4-06), if nothing was rolled out yet and
// no trigger begins its rollouts: what was set up before begins nothing that it did not. It is a change of the actor like any other: where
// a policy keeps the actor from it, the application goes without, and the decision is kept. The application is locked.
func (u *UseCases) Follow(ctx context.Context, tx Tx, a core.Actor, of core.Application, reason string) error {
	all, err := tx.Triggers(ctx, a.Organization, []int64{of.ID})
	begins := func(t core.Trigger) bool { return t.Kind != core.TriggerManual }
	if err != nil || of.ArchivedAt != nil || slices.ContainsFunc(all[of.ID], begins) {
		return err
	}
	if rolled, err := tx.WasRolledOut(ctx, of.ID); err != nil || rolled || named(all[of.ID], core.GitTriggerName) != nil {
		return err
	}
	t := core.Trigger{
		ApplicationID: of.ID, Name: core.GitTriggerName, Kind: core.TriggerGit, Config: json.RawMessage(`{}`), Enabled: true,
		Author: core.AuthorOf(a), ChangedAt: u.clock.Now(),
	}
	c := change(core.ActionPutTrigger, of, reason, t)
	c.Detail += ", with the first source of commits"
	if allowed, err := core.RecordIfAllowed(ctx, tx, a, c, nil, state(t)); err != nil || !allowed {
		return err
	}
	_, err = tx.AddTrigger(ctx, t)
	return err
}

// named is the trigger with a name; nil without one.
func named(all []core.Trigger, name string) *core.Trigger {
	if i := slices.IndexFunc(all, func(t core.Trigger) bool { return t.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// checkInputs checks the inputs that a trigger gives against the pipeline. A pipeline that is saved later may refuse them: then the trigger
// declines, and says so.
func (u *UseCases) checkInputs(ctx context.Context, tx Tx, organization int64, saved core.Trigger, c config) error {
	if len(c.Inputs) == 0 {
		return nil
	}
	err := u.rollouts.CheckInputs(ctx, tx, organization, saved.ApplicationID, c.Inputs)
	if !fault.Is(err, fault.Invalid) {
		return err
	}
	fields := slices.Clone(fault.FieldsOf(err))
	for i := range fields {
		fields[i].Name = "/config" + fields[i].Name
	}
	return fault.InvalidFields(fields...)
}

// add saves a trigger of an application, and returns its previous version; nil for a new one.
func (u *UseCases) add(ctx context.Context, tx Tx, saved *core.Trigger, all []core.Trigger) (before any, err error) {
	for _, other := range all {
		switch {
		case other.Name == saved.Name && other.Kind != saved.Kind:
			return nil, fault.New(fault.Refused, "%q is a trigger of kind %s; remove it first, or choose another name", saved.Name, other.Kind)
		case other.Name == saved.Name:
			saved.ID = other.ID
			return state(other), tx.SaveTrigger(ctx, *saved)
		case other.Kind == core.TriggerManual && saved.Kind == core.TriggerManual:
			return nil, fault.New(fault.Refused, "the application has the manual trigger %q already; expected one", other.Name)
		}
	}
	if len(all) >= MaxTriggers {
		return nil, fault.New(fault.Refused, "found %d triggers; expected at most %d: remove some of them first", len(all), MaxTriggers)
	}
	*saved, err = tx.AddTrigger(ctx, *saved)
	return nil, err
}

// schedule gives a schedule its next time.
func (u *UseCases) schedule(ctx context.Context, tx Tx, t core.Trigger, c config, after time.Time) error {
	if t.Kind != core.TriggerSchedule || !t.Enabled || t.Removed {
		return nil
	}
	next, err := c.next(after)
	if err != nil || next.IsZero() {
		return err
	}
	_, err = tx.AddSignal(ctx, t.ID, scheduleCause(next), next, next)
	return err
}

// scheduleCause identifies a time of a schedule.
func scheduleCause(at time.Time) string { return "schedule:" + at.UTC().Format(time.RFC3339) }

// mine is an application with its triggers, locked, if the actor may change them wherever it goes.
func (u *UseCases) mine(
	ctx context.Context, tx Tx, a core.Actor, action core.Action, id int64,
) (core.Application, []core.Trigger, error) {
	application, err := tx.LockApplication(ctx, id)
	if err != nil {
		return application, nil, err
	}
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, id)
	if err != nil {
		return application, nil, err
	}
	if err := a.MayIn(action, targets...); err != nil {
		return application, nil, err
	}
	if err := core.RefuseArchived(application); err != nil {
		return application, nil, err
	}
	all, err := tx.Triggers(ctx, a.Organization, []int64{id})
	return application, all[id], err
}

// RemoveTrigger removes a trigger. Its undecided signals are declined; a rollout that it has queued stays in the queue.
func (u *UseCases) RemoveTrigger(ctx context.Context, a core.Actor, application int64, name, reason string) (core.Trigger, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Trigger{}, err
	}
	var removed core.Trigger
	err := core.Within(ctx, u.store, a, core.ActionRemoveTrigger, func(ctx context.Context, tx Tx) error {
		of, all, err := u.mine(ctx, tx, a, core.ActionRemoveTrigger, application)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(t core.Trigger) bool { return t.Name == name })
		if i < 0 {
			return fault.New(fault.NotFound, "application %q has saved no trigger %.100q", of.Name, name)
		}
		removed = all[i]
		before := state(removed)
		removed.Removed, removed.Enabled, removed.ChangedAt, removed.Author = true, false, u.clock.Now(), core.AuthorOf(a)
		if err := tx.SaveTrigger(ctx, removed); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionRemoveTrigger, of, reason, removed), before, nil)
	})
	u.wake()
	return removed, err
}

// ReleasePromotionHold lets automation begin rollouts in an environment again; the version and git triggers of the application decide anew.
func (u *UseCases) ReleasePromotionHold(
	ctx context.Context, a core.Actor, application, environment int64, reason string,
) (core.Application, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Application{}, err
	}
	var of core.Application
	err := core.Within(ctx, u.store, a, core.ActionReleasePromotionHold, func(ctx context.Context, tx Tx) error {
		environments, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		if of, err = tx.LockApplication(ctx, application); err != nil {
			return err
		}
		if err := a.MayIn(core.ActionReleasePromotionHold, core.TargetsIn(application, []int64{environment}, environments)...); err != nil {
			return err
		}
		h, held, err := tx.LockPromotionHold(ctx, application, environment)
		if err != nil {
			return err
		}
		if !held {
			return fault.New(fault.Refused, "automation is not held in %q: nothing was rolled back there since the last release", environments[environment].Name)
		}
		now := u.clock.Now()
		if err := tx.ReleasePromotionHold(ctx, h.ID, now); err != nil {
			return err
		}
		causes := map[int64]string{application: fmt.Sprintf("release:%d", h.ID)}
		for _, kind := range []core.TriggerKind{core.TriggerVersion, core.TriggerGit} {
			if err := tx.SignalTriggers(ctx, kind, causes, now); err != nil {
				return err
			}
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionReleasePromotionHold, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: of.ID, Name: of.Name},
			ApplicationID: of.ID, EnvironmentID: environment, Reason: reason, Detail: fmt.Sprintf("held since rollout_%d", h.RolloutID),
		}, map[string]any{"held": true}, map[string]any{"held": false})
	})
	u.wake()
	return of, err
}

// change is a row of the journal of changes about a trigger.
func change(action core.Action, of core.Application, reason string, t core.Trigger) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: of.ID, Name: of.Name}, ApplicationID: of.ID,
		Reason: reason, Detail: fmt.Sprintf("trigger %s (%s)", t.Name, t.Kind),
	}
}

func state(t core.Trigger) map[string]any {
	return map[string]any{"name": t.Name, "kind": t.Kind, "config": t.Config, "enabled": t.Enabled}
}
