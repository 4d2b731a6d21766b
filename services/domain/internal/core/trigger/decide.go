package trigger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

const (
	// noVersionSet is why nothing begins before there is a version set.
	noVersionSet = "the application has no version set yet"
	// again is the delay before a decision that has to wait is looked at again.
	again = 30 * time.Second
	// retry is the delay before a failed decision is tried again.
	retry = time.Minute
	// signalsKept is how long decisions are kept.
	signalsKept = 90 * 24 * time.Hour
	// maxRepairs is the limit of repairs of drift within an hour.
	maxRepairs = 3
	// patience is how long an observer is waited for, and a look by deciding often; rarely is the delay after that.
	patience = time.Hour
	rarely   = 10 * time.Minute
	// Old decisions are deleted with one new one in so many, at most so many of them.
	forgetsEvery    = 16
	forgottenAtOnce = 320
)

// Decided is what a trigger decided, for the log.
type Decided struct {
	Organization int64
	Trigger      core.Trigger
	core.TriggerSignal
	// editing is the signal whose files are edited next; nil for none. stopping is why its edit is stopped instead; empty if it is not.
	editing  *core.TriggerSignal
	stopping string
	// limited is how many edits begin to wait for the limit, and returned whether an event was about an edit of the trigger.
	limited  int
	returned bool
}

// DecideDue decides the signals of the next trigger that has any due; false if none has. The outcome is empty if another process was first.
// The decision and the rollout are one transaction, which locks the trigger's row: however many processes there are, each cause is decided
// once.
func (u *UseCases) DecideDue(ctx context.Context) (Decided, bool, error) {
	organizations, err := u.store.OrganizationsWithDueSignals(ctx, u.clock.Now())
	if err != nil {
		return Decided{}, false, err
	}
	for _, organization := range u.turns(organizations) {
		d := Decided{Organization: organization}
		var worked bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			d, worked, err = u.decideNext(ctx, tx, organization)
			return err
		})
		if err != nil && d.Trigger.ID != 0 {
			u.counts.failed.Add(1)
			// A trigger whose decision fails must not block the others.
			if putOff := u.putOff(ctx, d); putOff != nil {
				return d, false, fmt.Errorf("put off trigger %d: %w, after: %w", d.Trigger.ID, putOff, err)
			}
			return d, false, fmt.Errorf("trigger %d: %w", d.Trigger.ID, err)
		}
		if err != nil || worked {
			u.served.Store(organization)
			if d.RolloutID != 0 {
				u.began()
			}
			u.counts.add(d.Outcome)
			u.edited.addDecided(d)
			if err == nil && d.editing != nil { // what fails, or finds no room, is tried again after the lease
				err = u.aside(ctx, func(ctx context.Context) error { return u.carryOut(ctx, d) })
			}
			return d, worked, err
		}
	}
	return Decided{}, false, nil
}

// turns returns organizations, beginning after the one served last, so that none waits for all signals of another.
func (u *UseCases) turns(organizations []int64) []int64 {
	slices.Sort(organizations)
	first := slices.IndexFunc(organizations, func(o int64) bool { return o > u.served.Load() })
	if first <= 0 {
		return organizations
	}
	return append(slices.Clone(organizations[first:]), organizations[:first]...)
}

// putOff delays the signals of a trigger whose decision failed.
func (u *UseCases) putOff(ctx context.Context, d Decided) error {
	now := u.clock.Now()
	return u.store.In(ctx, d.Organization, func(ctx context.Context, tx Tx) error {
		return tx.PutOffTrigger(ctx, core.TriggerSignal{
			TriggerID: d.Trigger.ID, Reason: "the decision failed because of an error in Lockstep; it is tried again", DueAt: now.Add(retry),
			DecidedAt: &now,
		})
	})
}

func (u *UseCases) decideNext(ctx context.Context, tx Tx, organization int64) (Decided, bool, error) {
	d := Decided{Organization: organization}
	now := u.clock.Now()
	t, found, err := tx.DueTrigger(ctx, now)
	if err != nil || !found {
		return d, false, err
	}
	d.Trigger = t
	all, err := tx.PendingSignals(ctx, t.ID)
	if err != nil || len(all) == 0 { // another has decided between the two statements: there may be more
		return d, err == nil, err
	}
	one := decision{u: u, tx: tx, organization: organization, trigger: t, signals: all, now: now}
	if d.TriggerSignal, err = one.take(ctx); err != nil {
		return d, false, err
	}
	d.TriggerID, d.DecidedAt, d.editing, d.stopping = t.ID, &now, one.editing, one.stopping
	d.limited, d.returned = one.limited, one.returned
	var ids []int64
	for _, s := range one.signals {
		ids = append(ids, s.ID)
	}
	if d.Outcome == core.TriggerWaits {
		return d, true, tx.PutOffSignals(ctx, ids, d.TriggerSignal)
	}
	if err := tx.DecideSignals(ctx, ids, d.TriggerSignal); err != nil {
		return d, false, err
	}
	if !slices.ContainsFunc(ids, func(id int64) bool { return id%forgetsEvery == 0 }) {
		return d, true, nil
	}
	return d, true, tx.ForgetSignals(ctx, now.Add(-signalsKept), forgottenAtOnce)
}

// decision is the state of deciding the signals of one trigger, in one transaction.
type decision struct {
	u            *UseCases
	tx           Tx
	organization int64
	trigger      core.Trigger
	config       config
	// all lists those that are undecided, and signals those that are decided together.
	all, signals []core.TriggerSignal
	now          time.Time
	// set is the version set to roll out.
	set core.VersionSet
	// in is the chain that it is part of.
	in core.Chain
	// editing is the signal whose files are to be edited; nil for none. stopping is why its edit is stopped instead.
	editing  *core.TriggerSignal
	stopping string
	// limited and returned are those of Decided.
	limited  int
	returned bool
	// again reports whether files were edited: the version set is rolled out also where it is live.
	again bool
	// lacks reports whether labels or facts are missing, or do not fit.
	lacks bool
	// commit is the new one that a git trigger reacts to, with its repository.
	commit string
}

func (d *decision) declines(format string, args ...any) core.TriggerSignal {
	return core.TriggerSignal{Outcome: core.TriggerDeclined, Reason: fmt.Sprintf(format, args...), VersionSetID: d.set.ID}
}

func (d *decision) waits(until time.Time, format string, args ...any) core.TriggerSignal {
	return core.TriggerSignal{Outcome: core.TriggerWaits, Reason: fmt.Sprintf(format, args...), DueAt: until, VersionSetID: d.set.ID}
}

// take decides.
func (d *decision) take(ctx context.Context) (core.TriggerSignal, error) {
	t := d.trigger
	d.all = slices.Clone(d.signals)
	switch {
	case t.Removed:
		return d.ends(ctx, "the trigger was removed by %s", t.Author.Name)
	case !t.Enabled:
		return d.ends(ctx, "the trigger was switched off by %s", t.Author.Name)
	}
	var err error
	if d.config, err = d.u.read(t.Kind, t.Config); err != nil {
		return d.ends(ctx, "the configuration cannot be read: %s", fault.Public(err))
	}
	d.onlyDue()
	if t.Kind == core.TriggerSchedule {
		if err := d.u.schedule(ctx, d.tx, t, d.config, d.now); err != nil {
			return core.TriggerSignal{}, err
		}
		if !slices.ContainsFunc(d.signals, func(s core.TriggerSignal) bool { return d.config.due(s.At) }) {
			return d.declines("the schedule was changed by %s, and is not due at that time any more", t.Author.Name), nil
		}
	}
	applications, err := d.tx.ApplicationsByID(ctx, d.organization, []int64{t.ApplicationID})
	if err != nil {
		return core.TriggerSignal{}, err
	}
	if err := core.RefuseArchived(applications[t.ApplicationID]); err != nil {
		return d.ends(ctx, "%s", fault.Public(err))
	}
	if s, decided, err := d.edits(ctx, d.all); err != nil || decided {
		return s, err
	}
	switch t.Kind {
	case core.TriggerDrift:
		return d.drift(ctx)
	case core.TriggerChain:
		return d.chain(ctx)
	case core.TriggerVersion, core.TriggerGit, core.TriggerManual, core.TriggerSchedule, core.TriggerEvent: // see below
	}
	if why := d.edited(); why != "" {
		return d.declines("%s", why), nil
	}
	if until, reason := d.quiet(); reason != "" {
		return d.waits(until, "%s", reason), nil
	}
	if exists, err := d.newest(ctx); err != nil || !exists {
		return d.declines(noVersionSet), err
	}
	check := map[core.TriggerKind]func(context.Context) (string, time.Time, error){
		core.TriggerVersion: d.filter, core.TriggerGit: d.commits,
	}[t.Kind]
	if check != nil {
		refused, until, err := check(ctx)
		switch {
		case err != nil:
			return core.TriggerSignal{}, err
		case !until.IsZero():
			return d.waits(until, "%s", refused), nil
		case refused != "":
			s := d.declines("%s", refused)
			s.LacksFacts = d.lacks
			return s, nil
		}
	}
	return d.begin(ctx, rollout.Automatic{Until: d.config.Until, Inputs: d.config.Inputs, Again: d.again})
}

// newest takes the newest version set of the application; false if it has none.
func (d *decision) newest(ctx context.Context) (exists bool, err error) {
	newest, err := d.tx.NewestVersionSets(ctx, d.organization, []int64{d.trigger.ApplicationID})
	if err == nil {
		d.set, exists = newest[d.trigger.ApplicationID]
	}
	return exists, err
}

// ofSets is whether the trigger decides about new version sets.
func (d *decision) ofSets() bool {
	return d.trigger.Kind == core.TriggerVersion || d.trigger.Kind == core.TriggerGit
}

// onlyDue drops the signals that are not due yet. New version sets are kept: they are decided together.
func (d *decision) onlyDue() {
	if d.ofSets() {
		return
	}
	d.signals = slices.DeleteFunc(d.signals, func(s core.TriggerSignal) bool { return s.DueAt.After(d.now) })
}

// quiet returns until when the trigger waits for more version sets, and why; an empty reason if it does not wait.
func (d *decision) quiet() (time.Time, string) {
	if !d.ofSets() {
		return time.Time{}, ""
	}
	first, last := time.Time{}, time.Time{}
	for _, s := range d.signals {
		if !strings.HasPrefix(s.Cause, "set:") {
			continue // a release is no new version set
		}
		if first.IsZero() || s.At.Before(first) {
			first = s.At
		}
		if s.At.After(last) {
			last = s.At
		}
	}
	if first.IsZero() {
		return first, ""
	}
	pause, most := d.config.quiet(d.trigger.Kind), seconds(d.config.AtMostSeconds, defaultAtMost)
	until := last.Add(pause)
	if end := first.Add(most); end.Before(until) {
		until = end
	}
	if !until.After(d.now) {
		return until, ""
	}
	return until, fmt.Sprintf("a version set arrived at %s; it waits until none has for %s, at the latest until %s",
		stamp(last), pause, stamp(first.Add(most)))
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// fresh returns the versions of the set that are live nowhere, each with its service.
func (d *decision) fresh(ctx context.Context) (services, versions []int64, err error) {
	live, err := d.tx.LiveVersionSets(ctx, d.trigger.ApplicationID)
	if err != nil {
		return nil, nil, err
	}
	sets := []int64{d.set.ID}
	for _, id := range live {
		sets = append(sets, id)
	}
	entries, err := d.tx.EntriesByVersionSet(ctx, d.organization, core.Distinct(sets))
	if err != nil {
		return nil, nil, err
	}
	deployed := map[int64]bool{}
	for _, id := range live {
		if id == d.set.ID {
			continue
		}
		for _, e := range entries[id] {
			deployed[e.VersionID] = true
		}
	}
	for _, e := range entries[d.set.ID] {
		if !deployed[e.VersionID] {
			services, versions = append(services, e.ServiceID), append(versions, e.VersionID)
		}
	}
	return services, versions, nil
}

// drift deploys the live version set again where the cluster differs from it, if all conditions hold (R4-10): the trigger is on, something
// differs, nothing is being deployed, and the last rollout ended long enough ago.
func (d *decision) drift(ctx context.Context) (core.TriggerSignal, error) {
	places, err := d.tx.ApplicationEnvironmentsByApplication(ctx, d.organization, []int64{d.trigger.ApplicationID})
	if err != nil {
		return core.TriggerSignal{}, err
	}
	var ids, environments []int64
	for _, p := range places[d.trigger.ApplicationID] {
		ids, environments = append(ids, p.ID), append(environments, p.EnvironmentID)
	}
	seen, err := d.tx.Reconciliations(ctx, d.organization, ids)
	if err != nil {
		return core.TriggerSignal{}, err
	}
	names, err := d.tx.EnvironmentsByID(ctx, d.organization, environments)
	if err != nil {
		return core.TriggerSignal{}, err
	}
	live, err := d.tx.LiveVersionSets(ctx, d.trigger.ApplicationID)
	if err != nil {
		return core.TriggerSignal{}, err
	}
	// Each place is decided about by itself: what cannot be repaired in one keeps nothing from being repaired in another.
	of := placeOf(d.signals[0].Cause)
	d.signals = slices.DeleteFunc(d.signals, func(s core.TriggerSignal) bool { return placeOf(s.Cause) != of })
	only := d.config.Environments
	for i, id := range ids {
		if of != 0 && id != of {
			continue
		}
		name := names[environments[i]].Name
		chosen := len(only) == 0 || slices.ContainsFunc(only, func(p string) bool { return pattern.Match(p, name) })
		if len(seen[id].Objects) == 0 || live[environments[i]] == 0 || !chosen {
			continue
		}
		return d.repair(ctx, name, live[environments[i]], seen[id])
	}
	return d.declines("nothing differs any more from what was deployed"), nil
}

// placeOf is the application environment whose drift a cause is; 0 for another cause.
func placeOf(cause string) (id int64) {
	if rest, is := strings.CutPrefix(cause, "drift:"); is {
		text, _, _ := strings.Cut(rest, ":")
		id, _ = strconv.ParseInt(text, 10, 64)
	}
	return id
}

// later is when to look again for an observation that is missing: soon at first.
func (d *decision) later() time.Time {
	if d.now.Sub(d.signals[0].At) > patience {
		return d.now.Add(rarely)
	}
	return d.now.Add(again)
}

// repair deploys a set again in one environment.
func (d *decision) repair(ctx context.Context, environment string, set int64, seen core.Reconciliation) (core.TriggerSignal, error) {
	d.set.ID = set
	latest, err := d.tx.RolloutsByApplication(ctx, d.organization, []int64{d.trigger.ApplicationID}, core.Page{First: 1})
	if err != nil {
		return core.TriggerSignal{}, err
	}
	window := seconds(d.config.WindowSeconds, defaultWindow)
	for _, r := range latest[d.trigger.ApplicationID].Nodes {
		if r.FinishedAt == nil {
			return d.waits(d.now.Add(again), "%q differs, and rollout_%d is %s: drift counts once it has ended", environment, r.ID, r.State.Words()), nil
		}
		end := r.FinishedAt.Add(window)
		if end.After(d.now) {
			return d.waits(end, "%q differs, and rollout_%d ended %s ago: drift counts from %s after a rollout", environment, r.ID,
				d.now.Sub(*r.FinishedAt).Round(time.Second), window), nil
		}
	}
	// What nobody can look at any more may not differ any more. It waits as long as looks are made: the same drift would not be signalled
	// again. An observer may never report again, so the wait for one ends.
	if why := seen.StaleReason(); why != "" {
		if why == core.NobodyLooks || !seen.Looked() && d.now.Sub(d.signals[0].At) > patience {
			return d.declines("what differs in %q was observed at %s, and not since: %s", environment, stamp(seen.ObservedAt), why), nil
		}
		return d.waits(d.later(), "what differs in %q was observed at %s: %s", environment, stamp(seen.ObservedAt), why), nil
	}
	if seen.Objects.TakenOver() {
		who := "others manage"
		if known := seen.Objects.Managers(); len(known) > 0 {
			who = "others (" + strings.Join(known, ", ") + ") manage"
		}
		return d.declines("%s fields of what differs in %q, and a deploy takes nothing from them", who, environment), nil
	}
	many, still, err := d.repairs(ctx, seen)
	switch {
	case err != nil:
		return core.TriggerSignal{}, err
	case many >= maxRepairs:
		return d.declines("it was deployed again %d times within an hour, and %q differs still: something else changes it", many, environment), nil
	case still >= maxRepairs:
		return d.declines("it was deployed again %d times, and %q was never as deployed in between: something else changes it", still, environment), nil
	}
	return d.begin(ctx, rollout.Automatic{Repair: []string{environment}})
}

// repairs counts the rollouts that the trigger has begun within an hour, and those that it has begun for a place since something differs
// there: without a limit, repairing what another actor keeps changing would never end.
func (d *decision) repairs(ctx context.Context, seen core.Reconciliation) (many, still int, err error) {
	all, err := d.tx.TriggerDecisions(ctx, d.organization, []int64{d.trigger.ID})
	lately, here := map[int64]bool{}, map[int64]bool{}
	for _, s := range all[d.trigger.ID] {
		if s.Outcome != core.TriggerBegan || s.DecidedAt == nil {
			continue
		}
		if d.now.Sub(*s.DecidedAt) < time.Hour {
			lately[s.RolloutID] = true
		}
		if placeOf(s.Cause) == seen.ApplicationEnvironmentID && !s.DecidedAt.Before(seen.Since) {
			here[s.RolloutID] = true
		}
	}
	return len(lately), len(here), err
}

// begin begins a rollout of the set.
func (d *decision) begin(ctx context.Context, n rollout.Automatic) (core.TriggerSignal, error) {
	n = d.automatic(n, d.signals[len(d.signals)-1])
	n.Reason = d.why(n)
	made, err := d.u.rollouts.Begin(ctx, d.tx, d.organization, n)
	switch {
	case err != nil:
		return core.TriggerSignal{}, err
	case made.Live && d.in.ID != 0:
		s := d.declines("%s", made.Declined)
		s.Outcome = core.TriggerDone
		return s, nil
	case made.Declined != "":
		return d.declines("%s", made.Declined), nil
	case made.Waits != "":
		return d.waits(d.now.Add(again), "%s", made.Waits), nil
	case made.Queued != nil:
		return core.TriggerSignal{
			Outcome: core.TriggerQueued, Reason: n.Reason + "; it is in the queue of the application", VersionSetID: d.set.ID,
		}, nil
	default:
		return core.TriggerSignal{Outcome: core.TriggerBegan, Reason: n.Reason, VersionSetID: d.set.ID, RolloutID: made.Rollout.ID}, nil
	}
}

// sender is who has sent an event, in words.
func sender(by core.Author) string {
	one := fmt.Sprintf("%s %d", by.Type, by.ID)
	if by.Name == "" || by.Name == one {
		return one
	}
	return fmt.Sprintf("%s (%.100s)", one, by.Name)
}

// automatic completes what is wanted of a rollout by who wants it, and because of which signal.
func (d *decision) automatic(n rollout.Automatic, of core.TriggerSignal) rollout.Automatic {
	n.TriggerID, n.VersionSetID, n.Type = d.trigger.ID, d.set.ID, core.PrincipalPolicy
	if d.trigger.Kind == core.TriggerSchedule {
		n.Type = core.PrincipalSchedule
	}
	cause := of.Cause
	if of.Sender.Type != "" { // before the cause, whose words are chosen by the sender
		cause = fmt.Sprintf("sent by %s: %s", sender(of.Sender), cause)
	}
	if d.in.ID != 0 {
		cause = fmt.Sprintf("block %d of %s, which follows rollout_%d", d.in.Block, d.in.Name(), d.in.RolloutID)
	}
	n.Cause = fmt.Sprintf("trigger %s (%s): %s", d.trigger.Name, d.trigger.Kind, cause)
	return n
}

// why returns the reason of a rollout, for its first journal row.
func (d *decision) why(n rollout.Automatic) string {
	last := d.signals[len(d.signals)-1]
	what, rest, _ := strings.Cut(last.Cause, ":")
	switch what {
	case "facts":
		return d.set.Name + " has what the trigger requires since more is known of it"
	case "release":
		return d.set.Name + " has not been deployed, and automation was released"
	case "schedule":
		return fmt.Sprintf("%s is the newest version set at %s", d.set.Name, rest)
	case "event":
		text := fmt.Sprintf("%s is the newest version set when event %s arrived", d.set.Name, rest)
		if last.Edit != nil && last.Edit.Commit != "" {
			text += fmt.Sprintf(", which was committed as %.12s", last.Edit.Commit)
		}
		return text
	case "chain":
		return fmt.Sprintf("%s is the newest version set when block %d of %s began, which follows rollout_%d", d.set.Name, d.in.Block, d.in.Name(), d.in.RolloutID)
	case "drift":
		return n.Repair[0] + " differs from what was deployed"
	default:
		if d.commit != "" {
			return d.commit + " is new in " + d.set.Name
		}
		return d.set.Name + " is new"
	}
}

// counts counts the decisions of this process, for the metrics.
type counts struct{ began, queued, declined, waiting, done, failed atomic.Int64 }

func (c *counts) add(o core.TriggerOutcome) {
	switch o {
	case core.TriggerBegan:
		c.began.Add(1)
	case core.TriggerQueued:
		c.queued.Add(1)
	case core.TriggerDeclined:
		c.declined.Add(1)
	case core.TriggerWaits:
		c.waiting.Add(1)
	case core.TriggerDone:
		c.done.Add(1)
	case core.TriggerPending: // it was not decided
	}
}

// Decisions returns the number of decisions that this process has made, by outcome.
func (u *UseCases) Decisions() map[string]int64 {
	return map[string]int64{
		"began": u.counts.began.Load(), "queued": u.counts.queued.Load(), "declined": u.counts.declined.Load(),
		"waiting": u.counts.waiting.Load(), "done": u.counts.done.Load(), "failed": u.counts.failed.Load(),
	}
}
