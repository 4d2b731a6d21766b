package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// plan is everything a rollout will pin.
type plan struct {
	// drivers are those that it was checked against, and that the rollout pins.
	drivers setup.DriverSet
	// application is locked from here to the commit, so what was found out about it stays true.
	application core.Application
	versionSet  core.VersionSet
	entries     []core.VersionSetEntry
	// versions are those of entries, by id.
	versions   map[int64]core.Version
	flows      setup.Flows
	services   []core.Service
	definition core.FlowDefinition
	// approvals are the steps between the stops that ask people.
	approvals []core.ApprovalStep
	// stops are in the order of promotion; there is at least one, because a pipeline without a deploy step is refused.
	stops []stop
	// live is the version set of the last completed stop, by environment; no key where nothing was (R15).
	live map[int64]int64
	// liveEntries are what those consist of, by number, and before their versions, by environment and service.
	liveEntries map[int64][]core.VersionSetEntry
	before      map[int64]map[int64][]versionInput
	// liveSets are those sets, by number.
	liveSets map[int64]core.VersionSet
	// same are the live version sets that consist of the same versions as this one.
	same map[int64]bool
	// touched are the environments in which something may have changed since.
	touched map[int64]bool
	// behind are the fleets in which the version set was completed last, and some targets do not have it.
	behind map[int64]bool
	// onFailure and inFull are the application's policies; inFull holds for a rollback to what was live before.
	onFailure core.FailurePolicy
	inFull    bool
	// decision reports whether the rollout stops at weights, and why.
	decision planner.Decision
	// rules and unweighted are those of the pipeline.
	rules      planner.Rules
	unweighted func(json.RawMessage) (json.RawMessage, error)
	// inputs are those of the rollout, and flow is the pipeline as it was read.
	inputs json.RawMessage
	flow   core.Flow
	// asks reports whether the strategy depends on what the drivers list as changes, which they have not been asked yet.
	asks bool
	// compared are the commits of environments that were compared, if that has made the rollout a quick sync.
	compared map[int64]string
	// fresh are the versions that are new in one of the environments at least.
	fresh []int64
	// wholeDeadline is that of a rollout, and rollbackDeadline that of a rollback; nil for none.
	wholeDeadline, rollbackDeadline *core.DeadlineRule
	// retry reports whether the rollout is made to bring another one to its end, and back is set if it is a rollback; nil if not.
	retry bool
	back  *rollbackOf
	// skipped are the environments of the pipeline that are left out, and program is the pipeline without them.
	skipped []namedSkip
	program json.RawMessage
	// left are sentences about the pauses and jobs that are left out.
	left []string
}

// stop is one environment of a plan.
type stop struct {
	step        core.DeployStep
	environment core.BoundEnvironment
	application core.ApplicationEnvironment
	driver      core.Driver
	// approval is what the environment asks by itself; nil for nothing.
	approval *core.EnvironmentApproval
	// checks are those that the environment requires by itself.
	checks core.CheckSet
	// fleet are the targets; nil for an environment of one cluster.
	fleet *stopFleet
}

// wish is what is wanted of a rollout, beside where it goes; the zero value is what a rollback by a policy wants.
type wish struct {
	strategy planner.Choice
	// triggered reports whether a trigger begins it, and again whether more may have changed than the version set says.
	triggered, again bool
	// repeats is the rollout that is begun again.
	repeats core.Rollout
	// inputs are the given ones.
	inputs json.RawMessage
	// commit is a new version that does not exist yet, in place of those of some sources; nil for none.
	commit   *planner.Commit
	replaces map[int64]bool
	// comparison is what the drivers were asked to compare; nil for nothing.
	comparison *core.Preview
}

// planRollout looks everything up, under the lock of the application, and refuses what must not start.
func (u *UseCases) planRollout(ctx context.Context, tx Tx, organization, versionSet int64, back *rollbackOf, w wish) (plan, error) {
	p, err := u.planAny(ctx, tx, organization, versionSet, back, w)
	if err != nil {
		return p, err
	}
	active, err := tx.ActiveRollouts(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return p, err
	}
	if r, busy := active[p.application.ID]; busy {
		return p, core.RefuseBusy(p.application, r)
	}
	return p, nil
}

// planAny is planRollout whether or not another rollout is under way.
func (u *UseCases) planAny(ctx context.Context, tx Tx, organization, versionSet int64, back *rollbackOf, w wish) (plan, error) {
	p := plan{drivers: u.drivers.Now(), flows: u.flows, back: back}
	sets, err := tx.VersionSetsByID(ctx, organization, []int64{versionSet})
	if err != nil {
		return p, err
	}
	var ok bool
	if p.versionSet, ok = sets[versionSet]; !ok {
		return p, fault.New(fault.NotFound, "version set %d does not exist", versionSet)
	}
	// The set is read before the lock, for it says which application to lock; it never changes (E8). The lock makes two
	// requests at once see each other: the second one finds the first one's rollout (R14).
	if p.application, err = tx.LockApplication(ctx, p.versionSet.ApplicationID); err != nil {
		return p, err
	}
	if err := core.RefuseArchived(p.application); err != nil {
		return p, err
	}
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return p, err
	}
	if p.definition, ok = latest[p.application.ID]; !ok {
		return p, core.RefuseNoPipeline(p.application)
	}
	if err := p.readVersions(ctx, tx, organization); err != nil {
		return p, err
	}
	vetoes, err := tx.VetoesByVersionSet(ctx, organization, []int64{versionSet})
	if err != nil {
		return p, err
	}
	if err := core.RefuseVetoed(p.versionSet, slices.DeleteFunc(vetoes[versionSet], p.sparedBy(w))); err != nil {
		return p, err
	}
	if p.live, err = tx.LiveVersionSets(ctx, p.application.ID); err != nil {
		return p, err
	}
	if p.liveSets, err = tx.VersionSetsByID(ctx, organization, core.Distinct(slices.Collect(maps.Values(p.live)))); err != nil {
		return p, err
	}
	if p.touched, err = tx.TouchedEnvironments(ctx, p.application.ID); err != nil {
		return p, err
	}
	if err := p.readPolicies(ctx, tx, organization); err != nil {
		return p, err
	}
	if err := u.planStops(ctx, tx, organization, &p); err != nil {
		return p, err
	}
	if err := p.readSame(ctx, tx, organization); err != nil {
		return p, err
	}
	if err := p.readRan(ctx, tx); err != nil {
		return p, err
	}
	if err := p.giveInputs(ctx, tx, w); err != nil {
		return p, err
	}
	if err := p.skipSteps(ctx, tx, organization, w); err != nil {
		return p, err
	}
	return p, p.decide(w)
}

// sparedBy reports which vetoes are not about the set that a change would make: it is a set of its own, without the versions that are
// replaced.
func (p *plan) sparedBy(w wish) func(core.Veto) bool {
	return func(v core.Veto) bool {
		return w.commit != nil && (v.VersionSetID != 0 || w.replaces[p.versions[v.VersionID].ArtifactSourceID])
	}
}

// decide finds out whether the rollout stops at weights (D59). The program of one that does not sees none.
func (p *plan) decide(w wish) error {
	f := planner.Facts{
		Application: p.application.Name, Repeats: w.repeats.ID, As: w.repeats.Plan.Strategy, Choice: w.strategy, PromoteFull: p.inFull,
		Weights: slices.ContainsFunc(p.stops, func(s stop) bool { return len(s.step.Gates) > 0 }), Command: !w.triggered,
		Rules: p.rules, Deployed: len(p.live) > 0, Runbook: p.flow.Runbook, Silent: w.again,
	}
	if w.repeats.FlowDefinitionID != p.definition.ID || planner.Compares(w.repeats.Plan) {
		f.Repeats = 0 // the pipeline has changed, or the manifests may have, and with them what a quick sync would leave out
	}
	for _, id := range p.fresh {
		v := p.versions[id]
		if w.replaces[v.ArtifactSourceID] {
			continue
		}
		if v.IsImage() {
			f.Silent = true
			continue
		}
		f.Commits = append(f.Commits, planner.Commit{SHA: v.Digest, Message: v.CommitMessage})
	}
	if w.commit != nil {
		f.Commits = append(f.Commits, *w.commit)
	}
	p.compare(&f, w)
	var err error
	if p.decision, err = planner.Decide(f); err != nil || p.decision.Strategy != planner.Quick {
		return err
	}
	if f.Finding != nil && p.decision.Why == f.Finding.Summary {
		p.compared = commitsOf(*w.comparison)
	}
	if p.program, err = p.unweighted(p.program); err != nil {
		return fmt.Errorf("leave the weights out of flow definition %d: %w", p.definition.ID, err)
	}
	return nil
}

// goesBack reports whether what is live in an environment is a newer version set.
func (p *plan) goesBack(environment int64) bool {
	return p.versionSet.OlderThan(p.liveSets[p.live[environment]])
}

// readSame finds out which live version sets consist of the same versions, and which versions are new somewhere.
func (p *plan) readSame(ctx context.Context, tx Tx, organization int64) error {
	sets := slices.Collect(maps.Values(p.live))
	entries, err := tx.EntriesByVersionSet(ctx, organization, core.Distinct(sets))
	p.liveEntries, p.same = entries, map[int64]bool{}
	mine := versionIDs(p.entries)
	for set, of := range entries {
		p.same[set] = slices.Equal(mine, versionIDs(of))
	}
	for _, version := range mine {
		lives := func(s stop) bool {
			return slices.ContainsFunc(entries[p.live[s.environment.ID]], func(e core.VersionSetEntry) bool { return e.VersionID == version })
		}
		if slices.ContainsFunc(p.stops, func(s stop) bool { return !lives(s) }) {
			p.fresh = append(p.fresh, version)
		}
	}
	return err
}

// readBefore finds the versions that are live where it goes.
func (p *plan) readBefore(ctx context.Context, tx Tx, organization int64) error {
	entries := slices.Concat(slices.Collect(maps.Values(p.liveEntries))...)
	versions, err := tx.VersionsByID(ctx, organization, core.Distinct(versionIDs(entries)))
	p.before = map[int64]map[int64][]versionInput{}
	for environment, set := range p.live {
		of := map[int64][]versionInput{}
		for _, e := range p.liveEntries[set] {
			of[e.ServiceID] = append(of[e.ServiceID], describeVersion(versions[e.VersionID]))
		}
		p.before[environment] = of
	}
	return err
}

// versionIDs are the versions of a set, rising.
func versionIDs(entries []core.VersionSetEntry) []int64 {
	ids := make([]int64, len(entries))
	for i, e := range entries {
		ids[i] = e.VersionID
	}
	slices.Sort(ids)
	return ids
}

// readRan finds out whether gates by weight may be passed at once: what they would show is known only of a version set that has been live
// wherever it goes back to.
func (p *plan) readRan(ctx context.Context, tx Tx) error {
	if p.inFull = p.inFull && p.back != nil && !p.back.forward; !p.inFull {
		return nil
	}
	ran, err := tx.EnvironmentsThatRan(ctx, p.versionSet.ID)
	p.inFull = !slices.ContainsFunc(p.stops, func(s stop) bool { return !ran[s.environment.ID] })
	return err
}

// readPolicies are those of the application, or the defaults.
func (p *plan) readPolicies(ctx context.Context, tx Tx, organization int64) error {
	rollouts, err := tx.RolloutPolicies(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return err
	}
	own, ok := rollouts[p.application.ID]
	if !ok {
		own = core.DefaultRolloutPolicy(p.application.ID)
	}
	p.onFailure = own.OnFailure
	rollbacks, err := tx.RollbackPolicies(ctx, organization, []int64{p.application.ID})
	p.inFull = rollbacks[p.application.ID].InFull
	return err
}

func (p *plan) readVersions(ctx context.Context, tx Tx, organization int64) error {
	entries, err := tx.EntriesByVersionSet(ctx, organization, []int64{p.versionSet.ID})
	if err != nil {
		return err
	}
	services, err := tx.ServicesByApplication(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return err
	}
	// No new rollout deploys a service that is retired, whatever its version set has (D57).
	p.services = slices.DeleteFunc(services[p.application.ID], func(s core.Service) bool { return s.RetiredAt != nil })
	p.entries = slices.DeleteFunc(entries[p.versionSet.ID], func(e core.VersionSetEntry) bool {
		return !slices.ContainsFunc(p.services, func(s core.Service) bool { return s.ID == e.ServiceID })
	})
	if len(p.entries) == 0 {
		return fault.New(fault.Refused, "every service of %q is retired, so it deploys nothing", p.versionSet.Name)
	}
	p.versions, err = tx.VersionsByID(ctx, organization, versionIDs(p.entries))
	return err
}

// planStops checks that the pipeline can be driven, again (R20), and that every environment is ready (E59).
func (u *UseCases) planStops(ctx context.Context, tx Tx, organization int64, p *plan) error {
	// The pipeline was good when it was authored. Since then an environment may have been bound to another driver, or
	// this installation may carry another version of it.
	flow, err := u.flows.Read(p.definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", p.definition.ID, err)
	}
	names := make([]string, len(flow.Deploys))
	for i, step := range flow.Deploys {
		names[i] = step.Environment
	}
	// The rows stay share-locked: no environment becomes unready between this check and the commit (E59).
	environments, err := tx.EnvironmentsNamed(ctx, names)
	if err != nil {
		return err
	}
	known, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return err
	}
	byEnvironment := map[int64]core.ApplicationEnvironment{}
	for _, ae := range known[p.application.ID] {
		byEnvironment[ae.EnvironmentID] = ae
	}
	if err := setup.CheckFlow(p.drivers, flow, environments, nil); err != nil {
		return fault.Because(
			err, fault.Refused, "the pipeline of %q (version %d) cannot be driven as it is: %s", p.application.Name, p.definition.Version,
			fault.Public(err),
		)
	}
	p.approvals, p.wholeDeadline, p.rollbackDeadline = flow.Approvals, flow.Deadline, flow.RollbackDeadline
	p.rules, p.unweighted, p.flow = flow.Rules, flow.Unweighted, flow
	if flow.Runbook && p.back != nil && !p.back.forward {
		return fault.New(fault.Refused, "the pipeline of %q is a runbook: it deploys nothing, so there is nothing to roll back", p.application.Name)
	}
	if err := p.readBehind(ctx, tx, organization, flow, environments); err != nil {
		return err
	}
	skipped, err := p.skips(flow, environments)
	if err != nil {
		return err
	}
	if err := p.narrow(flow, skipped); err != nil {
		return err
	}
	for _, step := range flow.Deploys {
		e := environments[step.Environment]
		if cause, skips := skipped[step.Environment]; skips {
			p.skipped = append(p.skipped, namedSkip{core.SkippedEnvironment{EnvironmentID: e.ID, Cause: cause}, e.Name})
			continue
		}
		ae := byEnvironment[e.ID]
		if err := core.RefuseUnready(p.application, e.Environment, ae); err != nil {
			return err
		}
		driver, err := p.drivers.Lookup(e.Binding.DriverRef)
		if err != nil {
			return fault.Because(err, fault.Refused, "environment %q: %s", e.Name, fault.Public(err))
		}
		s := stop{step: step, environment: e, application: ae, driver: driver}
		asked, err := tx.EnvironmentApprovals(ctx, organization, []int64{e.ID})
		if err != nil {
			return err
		}
		if own, ok := asked[e.ID]; ok {
			s.approval = &own
		}
		if s.checks, err = p.checksOf(ctx, tx, organization, e.Environment); err != nil {
			return err
		}
		if err := p.planFleet(ctx, tx, organization, &s); err != nil {
			return err
		}
		p.stops = append(p.stops, s)
	}
	return nil
}

// versionsOf are the versions of a service in the set; of all services for 0.
func (p plan) versionsOf(service int64) []versionInput {
	var out []versionInput
	for _, e := range p.entries {
		if service == 0 || e.ServiceID == service {
			out = append(out, describeVersion(p.versions[e.VersionID]))
		}
	}
	return out
}
