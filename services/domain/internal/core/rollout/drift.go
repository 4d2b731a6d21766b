package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Drivers whose objects nobody observes look from time to time whether what runs is still what was deployed (R4-11): the program that lists
// before a rollout what it would change lists it for what is live. Nobody looks while a rollout is under way, and what is found out about
// something that a rollout has replaced since counts for nothing, so that drift is never what we have caused ourselves.

const (
	// driftSettles is how long after it is complete in an environment a rollout that waits for what differs there has it looked at.
	driftSettles = time.Minute
	// driftAgain is the pause before the next try while a rollout is under way.
	driftAgain = time.Minute
	// driftKept is how long the answers of drivers can be looked at.
	driftKept = time.Hour
)

// DriftPace is how often drivers look for drift where they can: again after Every, and not before Window has passed since the last rollout.
type DriftPace struct{ Every, Window time.Duration }

// driftCounts count what came of looks for drift in this process.
type driftCounts struct{ same, drift, unknown, late atomic.Int64 }

// DriftLooks are those whose answers came in this process, by outcome.
func (u *UseCases) DriftLooks() map[string]int64 {
	c := &u.drifts
	return map[string]int64{"same": c.same.Load(), "drift": c.drift.Load(), "unknown": c.unknown.Load(), "late": c.late.Load()}
}

// LookForDriftDue has the driver of the next application environment look that is due; false if none is. Those that can be looked at
// are due again after a time. Organizations take turns.
func (u *UseCases) LookForDriftDue(ctx context.Context, pace DriftPace) (bool, error) {
	now := u.clock.Now()
	organizations, err := u.store.OrganizationsWithDueDriftLooks(ctx, now)
	if err != nil {
		return false, err
	}
	slices.Sort(organizations)
	if first := slices.IndexFunc(organizations, func(o int64) bool { return o > u.driftServed.Load() }); first > 0 {
		organizations = append(slices.Clone(organizations[first:]), organizations[:first]...)
	}
	for _, organization := range organizations {
		var look core.DriftLook
		var found bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			if look, found, err = tx.DueDriftLook(ctx, now); err != nil || !found {
				return err
			}
			_, locked, _, err := lockLook(ctx, tx, organization, look.ApplicationEnvironmentID)
			if err != nil || locked.DueAt == nil || locked.DueAt.After(now) { // another process has looked meanwhile
				return err
			}
			return u.lookNow(ctx, tx, organization, locked, pace)
		})
		if err != nil || found {
			u.driftServed.Store(organization)
			u.wake()
		}
		if err == nil && !found {
			continue
		}
		if err != nil && found { // one that fails must not keep the others from having their turn
			if putOff := u.putOffLook(ctx, organization, look, now.Add(max(pace.Every, driftAgain))); putOff != nil {
				err = fmt.Errorf("put off the look for drift: %w, after: %w", putOff, err)
			}
			err = fmt.Errorf("application environment %d: %w", look.ApplicationEnvironmentID, err)
		}
		return found, err
	}
	return false, nil
}

// lookNow has a driver look, and stores when to look next.
func (u *UseCases) lookNow(ctx context.Context, tx Tx, organization int64, look core.DriftLook, pace DriftPace) error {
	now := u.clock.Now()
	next := now.Add(pace.Every)
	known, err := tx.PreviewsByID(ctx, organization, []int64{look.PreviewID})
	if err != nil {
		return err
	}
	if known[look.PreviewID].State == core.PreviewPending {
		look = look.Failed(now, "the driver has not answered")
	}
	due, err := u.look(ctx, tx, organization, &look, pace)
	if forPeople(err) { // such as a version set that is vetoed
		look, due, err = look.Failed(now, fault.Public(err)), next, nil
	}
	if err != nil {
		return err
	}
	look.DueAt = nil
	if !due.IsZero() {
		look.DueAt = &due
	}
	return tx.SaveDriftLook(ctx, look)
}

// putOffLook postpones a look that failed.
func (u *UseCases) putOffLook(ctx context.Context, organization int64, failed core.DriftLook, due time.Time) error {
	return u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		look, exists, err := tx.DriftLook(ctx, failed.ApplicationEnvironmentID)
		if err != nil || !exists {
			return err
		}
		look = look.Failed(u.clock.Now(), "an error in Lockstep")
		look.DueAt = &due
		return tx.SaveDriftLook(ctx, look)
	})
}

// look has a driver look, and returns when to look next; zero for not until another rollout has arrived there.
func (u *UseCases) look(ctx context.Context, tx Tx, organization int64, look *core.DriftLook, pace DriftPace) (time.Time, error) {
	now := u.clock.Now()
	next := now.Add(pace.Every)
	places, err := tx.ApplicationEnvironmentsByID(ctx, organization, []int64{look.ApplicationEnvironmentID})
	if err != nil {
		return next, err
	}
	place := places[look.ApplicationEnvironmentID]
	if until, err := undisturbed(ctx, tx, organization, place, now, pace.Window); err != nil || until.After(now) {
		return until, err
	}
	live, err := tx.LiveVersionSets(ctx, place.ApplicationID)
	if err != nil || live[place.EnvironmentID] == 0 {
		return time.Time{}, err
	}
	environments, err := tx.EnvironmentsByID(ctx, organization, []int64{place.EnvironmentID})
	if err != nil {
		return next, err
	}
	part := &rollbackOf{forward: true, repair: true, scope: Scope{Only: []string{environments[place.EnvironmentID].Name}}}
	p, err := u.planAny(ctx, tx, organization, live[place.EnvironmentID], part, wish{triggered: true, again: true})
	if err != nil {
		return next, err
	}
	at := slices.IndexFunc(p.stops, func(s stop) bool { return s.environment.ID == place.EnvironmentID })
	if at < 0 || !p.stops[at].driver.FindsDrift || p.stops[at].fleet != nil || p.stops[at].step.RunsJobs() {
		// What a look has found stays shown, as of then; what an observer reports is not concerned.
		*look = look.Answered()
		seen, err := tx.Reconciliations(ctx, organization, []int64{place.ID})
		if found, exists := seen[place.ID]; exists && look.AskedAt != nil && !found.ObservedAt.After(*look.AskedAt) {
			*look = look.Failed(now, core.NobodyLooks)
		}
		return time.Time{}, err
	}
	deployed, why, err := p.asDeployed(ctx, tx, p.stops[at])
	if err != nil {
		return next, err
	}
	if why == "" && deployed.Commit == "" {
		why = "no commit was recorded of what is live"
	}
	if why != "" { // nothing says what it would have to be compared with
		u.drifts.unknown.Add(1)
		*look = look.Failed(now, why)
		return next, nil
	}
	p.stops = p.stops[at : at+1]
	p.compared = map[int64]string{place.EnvironmentID: deployed.Commit}
	if err := tx.ForgetDriftPreviews(ctx, now.Add(-driftKept), forgottenAtOnce); err != nil {
		return next, err
	}
	made, err := tx.AddPreview(ctx, core.Preview{ApplicationID: place.ApplicationID, VersionSetID: p.versionSet.ID, DriftOf: place.ID})
	if err != nil {
		return next, err
	}
	inputs, err := json.Marshal(p.previewInput(organization, made.ID))
	if err != nil {
		return next, fmt.Errorf("encode inputs of a look for drift in application environment %d: %w", place.ID, err)
	}
	look.PreviewID, look.AskedAt = made.ID, &now
	return next, setup.SubmitCombined(ctx, tx, p.drivers, now, p.driverRefs(), core.Handoff{
		WorkflowID: previewWorkflow(made.ID), Subject: core.HandoffPreview, SubjectID: made.ID, Program: core.ProgramPlan, Inputs: inputs,
	})
}

// asDeployed is with what a stop was deployed that is live there, and why a plan of today would deploy something else even if nobody had
// changed anything there: a rollout has touched it since, or the pipeline, the binding or the services are others. Empty if it would not.
func (p *plan) asDeployed(ctx context.Context, tx Tx, s stop) (core.DeployedLast, string, error) {
	name := s.environment.Name
	last, exists, err := tx.DeployedLast(ctx, p.application.ID, s.environment.ID)
	var services []int64
	for _, service := range p.services {
		if len(p.versionsOf(service.ID)) > 0 {
			services = append(services, service.ID)
		}
	}
	slices.Sort(services)
	why := ""
	switch {
	case err != nil:
	case !exists:
		why = fmt.Sprintf("nothing was deployed to %q", name)
	case p.touched[s.environment.ID]:
		why = fmt.Sprintf("a rollout that was not completed in %q may have changed something there", name)
	case last.FlowDefinitionID != p.definition.ID:
		why = fmt.Sprintf("the pipeline was changed after the last rollout to %q", name)
	case last.DriverBindingID != s.environment.Binding.ID:
		why = fmt.Sprintf("the driver or the configuration of %q was changed after the last rollout to it", name)
	case !slices.Equal(last.ServiceIDs, services):
		why = fmt.Sprintf("the services are others than those of the last rollout to %q", name)
	}
	return last, why, err
}

// undisturbed is until when drift of an application in an environment does not count: while a rollout is under way, and some time after
// it. A rollout that is complete there and waits for what differs has it looked at.
func undisturbed(
	ctx context.Context, tx Tx, organization int64, place core.ApplicationEnvironment, now time.Time, window time.Duration,
) (time.Time, error) {
	newest, err := tx.RolloutsByApplication(ctx, organization, []int64{place.ApplicationID}, core.Page{First: 1})
	if err != nil {
		return now, err
	}
	for _, r := range newest[place.ApplicationID].Nodes {
		if r.FinishedAt == nil {
			done, err := completedWhereItLooks(ctx, tx, organization, r, place.EnvironmentID)
			if err != nil || done == nil {
				return now.Add(driftAgain), err
			}
			return done.Add(driftSettles), nil
		}
		if end := r.FinishedAt.Add(window); end.After(now) {
			return end, nil
		}
	}
	return now, nil
}

// completedWhereItLooks is when a rollout that is under way was completed in an environment about which a check of its waits for what
// differs: it changes nothing there any more. Nil if it has no such check, or is not complete there.
func completedWhereItLooks(ctx context.Context, tx Tx, organization int64, r core.Rollout, environment int64) (*time.Time, error) {
	checks, err := tx.Checks(ctx, r.ID, r.VersionSetID)
	if err != nil {
		return nil, err
	}
	looks := func(p core.PinnedCheck) bool { return p.InSync && p.EnvironmentID == environment }
	if !slices.ContainsFunc(checks.Pinned, looks) {
		return nil, nil //nolint:nilnil // nobody waits for it
	}
	all, err := tx.RolloutEnvironmentsByRollout(ctx, organization, []int64{r.ID})
	for _, e := range all[r.ID] {
		if e.EnvironmentID == environment && e.State == core.RolloutCompleted {
			return e.FinishedAt, err
		}
	}
	return nil, err
}

// foundDrift records what a driver has found when it examined drift.
func (u *UseCases) foundDrift(ctx context.Context, tx Tx, c cause, p core.Preview) error {
	place, look, newest, err := lockLook(ctx, tx, c.Organization, p.DriftOf)
	if err != nil {
		return err
	}
	late := look.PreviewID != p.ID || look.AskedAt == nil
	for _, r := range newest {
		end := r.FinishedAt
		if end == nil {
			if end, err = completedWhereItLooks(ctx, tx, c.Organization, r, place.EnvironmentID); err != nil {
				return err
			}
		}
		late = late || end == nil || !end.Before(*look.AskedAt)
	}
	if late {
		u.drifts.late.Add(1)
		return nil
	}
	found, why := comparedIn(p, place.EnvironmentID)
	if why != "" { // what was known before stays, as of when it was found
		u.drifts.unknown.Add(1)
		return tx.SaveDriftLook(ctx, look.Failed(c.at, why))
	}
	objects := differing(*found)
	if len(objects) == 0 {
		u.drifts.same.Add(1)
	} else {
		u.drifts.drift.Add(1)
	}
	if err := tx.SaveDriftLook(ctx, look.Answered()); err != nil {
		return err
	}
	commit, _, _ := strings.Cut(found.Commit, "@")
	return Reconciled{core.Reconciliation{
		ApplicationEnvironmentID: p.DriftOf, Revision: commit, ExpectedRevision: commit, Objects: objects, ObservedAt: *look.AskedAt,
	}}.apply(ctx, u, tx, c, core.Inbound{})
}

// comparedIn is what a driver has compared in an environment, or why it has not.
func comparedIn(p core.Preview, environment int64) (*core.Comparison, string) {
	at := slices.IndexFunc(p.Environments, func(e core.PreviewedEnvironment) bool { return e.EnvironmentID == environment })
	switch {
	case at < 0 || p.Environments[at].Compared == nil && p.Environments[at].Reason == "":
		return nil, "the driver has not compared the environment"
	case p.Environments[at].Reason != "":
		return nil, p.Environments[at].Reason
	default:
		return p.Environments[at].Compared, p.Environments[at].Compared.Reason
	}
}

// lockLook locks, in the order of everything that deploys, the newest rollout of an application, the application, and the look for drift in
// one of its environments. A rollout that begins or ends meanwhile waits; what it changes is found by a later look.
func lockLook(
	ctx context.Context, tx Tx, organization, applicationEnvironment int64,
) (place core.ApplicationEnvironment, look core.DriftLook, newest []core.Rollout, err error) {
	places, err := tx.ApplicationEnvironmentsByID(ctx, organization, []int64{applicationEnvironment})
	if err != nil {
		return place, look, nil, err
	}
	place = places[applicationEnvironment]
	read := func() error {
		all, err := tx.RolloutsByApplication(ctx, organization, []int64{place.ApplicationID}, core.Page{First: 1})
		newest = all[place.ApplicationID].Nodes
		return err
	}
	if err := read(); err != nil {
		return place, look, nil, err
	}
	for _, r := range newest {
		if _, err := tx.LockRollout(ctx, r.ID); err != nil {
			return place, look, nil, err
		}
	}
	if _, err := tx.LockApplication(ctx, place.ApplicationID); err != nil {
		return place, look, nil, err
	}
	if err := read(); err != nil { // one may have begun or ended before the locks
		return place, look, nil, err
	}
	look, _, err = tx.DriftLook(ctx, applicationEnvironment)
	return place, look, newest, err
}

// lookFailed records that a driver has ended without an answer.
func (u *UseCases) lookFailed(ctx context.Context, tx Tx, c cause, p core.Preview, why string) error {
	u.drifts.unknown.Add(1)
	look, exists, err := tx.DriftLook(ctx, p.DriftOf)
	if err != nil || !exists || look.PreviewID != p.ID {
		return err
	}
	return tx.SaveDriftLook(ctx, look.Failed(c.at, why))
}

// differing is what a driver has found to differ, by object. What a deploy would add is missing, and what it would remove is extra.
func differing(c core.Comparison) (all drift.List) {
	for _, t := range c.Things {
		o := drift.Named(t.Object)
		o.Namespace, o.How, o.Held = t.Namespace, drift.Different, t.Held
		switch t.Action {
		case "added":
			o.How = drift.Missing
		case "removed":
			o.How = drift.Extra
		}
		switch {
		case t.Detail == "":
		case t.Kind == planner.Image || t.Kind == planner.Replicas:
			o.Differs = []string{t.Kind.Words() + " " + t.Detail}
		default:
			o.Differs = []string{t.Detail}
		}
		all = all.Add(o)
	}
	return all
}
