package core

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// CreateRollout pins everything a rollout needs and hands it over to be run (R45). Rolling back is this too, with an
// earlier set (E12). While another is active, the application's policy decides.
func (d *Domain) CreateRollout(ctx context.Context, a Actor, n NewRollout) (Promotion, error) {
	if err := checkReason(n.Reason); err != nil {
		return Promotion{}, err
	}
	var made Promotion
	err := d.by(ctx, a, ActionCreateRollout, func(ctx context.Context, tx Tx) error {
		c := cause{Actor: a, at: d.clock.Now()}
		var err error
		if made.Queued, err = d.makeRoom(ctx, tx, c, n); err != nil || made.Queued != nil {
			return err
		}
		p, err := d.planRollout(ctx, tx, a.Organization, n.VersionSetID, nil)
		if err != nil {
			return err
		}
		if !n.Again && p.liveEverywhere() {
			return fault.New(fault.Refused, "%s is live already in every environment of %q; ask for it again to deploy it once more", p.versionSet.Name, p.application.Name)
		}
		r, err := d.createPlanned(ctx, tx, c, p, n.Reason)
		made.Rollout = &r
		return err
	})
	d.wake()
	if err != nil {
		return Promotion{}, err
	}
	return made, nil
}

// plan is everything a rollout will pin.
type plan struct {
	// drivers are those that it was checked against, and that the rollout pins.
	drivers DriverSet
	// application is locked from here to the commit, so what was found out about it stays true.
	application Application
	versionSet  VersionSet
	entries     []VersionSetEntry
	// versions are those of entries, by id.
	versions   map[int64]Version
	services   []Service
	definition FlowDefinition
	// approvals are the steps between the stops that ask people.
	approvals []ApprovalStep
	// stops are in the order of promotion; there is at least one, because a pipeline without a deploy step is refused.
	stops []stop
	// live is the version set of the last completed stop, by environment; no key where nothing was (R15).
	live map[int64]int64
	// touched are the environments in which something may have changed since.
	touched map[int64]bool
	// onFailure and inFull are the application's policies; inFull holds for a way back to what was live before.
	onFailure FailurePolicy
	inFull    bool
	// retry is that the rollout is made to bring another one to its end, and back that it is a way back; nil for none.
	retry bool
	back  *wayBack
	// skipped are the environments of the pipeline that are left out, and program is the pipeline without them.
	skipped []namedSkip
	program json.RawMessage
}

// stop is one environment of a plan.
type stop struct {
	step        DeployStep
	environment BoundEnvironment
	application ApplicationEnvironment
	driver      Driver
	// approval is what the environment asks by itself; nil for nothing.
	approval *EnvironmentApproval
}

// planRollout looks everything up, under the lock of the application, and refuses what must not start.
func (d *Domain) planRollout(ctx context.Context, tx Tx, organization, versionSet int64, back *wayBack) (plan, error) {
	p, err := d.planAny(ctx, tx, organization, versionSet, back)
	if err != nil {
		return p, err
	}
	active, err := tx.ActiveRollouts(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return p, err
	}
	if r, busy := active[p.application.ID]; busy {
		return p, refuseBusy(p.application, r)
	}
	return p, nil
}

// planAny is planRollout whether or not another rollout is under way.
func (d *Domain) planAny(ctx context.Context, tx Tx, organization, versionSet int64, back *wayBack) (plan, error) {
	p := plan{drivers: d.drivers.Now(), back: back}
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
	if err := refuseArchived(p.application); err != nil {
		return p, err
	}
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return p, err
	}
	if p.definition, ok = latest[p.application.ID]; !ok {
		return p, refuseNoPipeline(p.application)
	}
	if err := p.readVersions(ctx, tx, organization); err != nil {
		return p, err
	}
	if p.live, err = tx.LiveVersionSets(ctx, p.application.ID); err != nil {
		return p, err
	}
	if p.touched, err = tx.TouchedEnvironments(ctx, p.application.ID); err != nil {
		return p, err
	}
	if err := p.readPolicies(ctx, tx, organization); err != nil {
		return p, err
	}
	if err := d.planStops(ctx, tx, organization, &p); err != nil {
		return p, err
	}
	return p, p.readRan(ctx, tx)
}

// readRan finds out whether gates by weight may be passed at once: what they would show is known only of a version set that has been live wherever
// it goes back to.
func (p *plan) readRan(ctx context.Context, tx Tx) error {
	if p.inFull = p.inFull && p.back != nil; !p.inFull {
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
		own = DefaultRolloutPolicy(p.application.ID)
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
	p.entries = entries[p.versionSet.ID]
	ids := make([]int64, len(p.entries))
	for i, e := range p.entries {
		ids[i] = e.VersionID
	}
	if p.versions, err = tx.VersionsByID(ctx, organization, ids); err != nil {
		return err
	}
	services, err := tx.ServicesByApplication(ctx, organization, []int64{p.application.ID})
	p.services = services[p.application.ID]
	return err
}

// planStops checks that the pipeline can be driven, again (R20), and that every environment is ready (E59).
func (d *Domain) planStops(ctx context.Context, tx Tx, organization int64, p *plan) error {
	// The rows stay share-locked: no environment becomes unready between this check and the commit (E59).
	environments, err := tx.AllEnvironments(ctx)
	if err != nil {
		return err
	}
	known, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return err
	}
	byEnvironment := map[int64]ApplicationEnvironment{}
	for _, ae := range known[p.application.ID] {
		byEnvironment[ae.EnvironmentID] = ae
	}
	// The pipeline was good when it was authored. Since then an environment may have been bound to another driver, or
	// this installation may carry another version of it.
	flow, err := d.flows.Read(p.definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", p.definition.ID, err)
	}
	if err := checkFlow(p.drivers, flow, environments, nil); err != nil {
		return fault.Because(err, fault.Refused, "the pipeline of %q (version %d) cannot be driven as it is: %s", p.application.Name, p.definition.Version, fault.Public(err))
	}
	p.approvals = flow.Approvals
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
			p.skipped = append(p.skipped, namedSkip{SkippedEnvironment{EnvironmentID: e.ID, Cause: cause}, e.Name})
			continue
		}
		ae := byEnvironment[e.ID]
		if err := refuseUnready(p.application, e.Environment, ae); err != nil {
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
		p.stops = append(p.stops, s)
	}
	return nil
}

// createPlanned writes the rollout, everything under it, their first journal rows, and the hand-over.
func (d *Domain) createPlanned(ctx context.Context, tx Tx, c cause, p plan, reason string) (Rollout, error) {
	n := Rollout{ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID, FlowDefinitionID: p.definition.ID}
	if p.back != nil {
		n.RollbackOf = p.back.of
	}
	r, err := tx.AddRollout(ctx, n)
	if fault.Is(err, fault.Conflict) { // the database's own guard, should the lock ever be forgotten
		return r, fault.Because(err, fault.Refused, "application %q has an active rollout already; one at a time", p.application.Name)
	}
	if err != nil {
		return r, err
	}
	t := &tree{tx: tx, cause: c, rollout: r}
	if err := t.created(ctx, Subject{SubjectRollout, r.ID}, reason); err != nil {
		return r, err
	}
	if err := p.recordSkips(ctx, t); err != nil {
		return r, err
	}
	// Apart from events, this is all that the program ever sees of the domain: it cannot ask back, so that a replay
	// reads the same (R3, E23).
	in := deployInput{
		Rollout: rolloutInput{
			ID: r.ID, OrganizationID: c.Organization, Application: named{p.application.ID, p.application.Name},
			Retry: p.retry, OnFailure: p.onFailure, PromoteFull: p.inFull,
		},
		VersionSet: versionSetInput{p.versionSet.ID, p.versionSet.Name, p.versionsOf(0)},
		Pipeline:   p.program,
	}
	for i, s := range p.stops {
		// Another release may carry other bytes under the same name@major; what this rollout runs has to be had again
		// to the byte (D7, R22).
		content, err := p.drivers.Export(s.driver.Ref)
		if err != nil {
			return r, err
		}
		if err := tx.KeepBundle(ctx, s.driver.Digest, s.driver.Ref, content); err != nil {
			return r, err
		}
		e, err := d.createStop(ctx, t, p, s, i+1)
		if err != nil {
			return r, err
		}
		in.Rollout.Environments = append(in.Rollout.Environments, e)
	}
	if err := p.pinGates(ctx, tx, r.ID); err != nil {
		return r, err
	}
	inputs, err := json.Marshal(in)
	if err != nil {
		return r, fmt.Errorf("encode inputs of rollout %d: %w", r.ID, err)
	}
	// One workflow runs all stops (D25), so the first one's driver is everybody's; checkFlow has seen to that.
	return r, d.submit(ctx, tx, p.drivers, p.stops[0].driver.Ref, Handoff{
		WorkflowID: rolloutWorkflow(r.ID), Subject: HandoffRollout, SubjectID: r.ID, Program: ProgramDeploy, Inputs: inputs,
	})
}

func (d *Domain) createStop(ctx context.Context, t *tree, p plan, s stop, position int) (rolloutEnvironmentInput, error) {
	in := s.input(position)
	e, err := t.tx.AddRolloutEnvironment(ctx, RolloutEnvironment{
		RolloutID: t.rollout.ID, EnvironmentID: s.environment.ID, Position: position, DriverBindingID: s.environment.Binding.ID,
		DriverDigest: s.driver.Digest, PreviousVersionSetID: p.live[s.environment.ID],
	})
	if err != nil {
		return in, err
	}
	if err := t.created(ctx, Subject{SubjectRolloutEnvironment, e.ID}, ""); err != nil {
		return in, err
	}
	for _, svc := range p.services {
		versions := p.versionsOf(svc.ID)
		if len(versions) == 0 {
			continue // a service that came after the set was made
		}
		dep, err := t.tx.AddDeployment(ctx, Deployment{RolloutEnvironmentID: e.ID, ServiceID: svc.ID})
		if err != nil {
			return in, err
		}
		if err := t.created(ctx, Subject{SubjectDeployment, dep.ID}, ""); err != nil {
			return in, err
		}
		in.Deployments = append(in.Deployments, deploymentInput{dep.ID, named{svc.ID, svc.Name}, versions})
	}
	return in, nil
}

// input is what a program is told of a stop, without its deployments.
func (s stop) input(position int) rolloutEnvironmentInput {
	asked, _ := s.entry()
	in := rolloutEnvironmentInput{
		environmentInput: describeEnvironment(s.environment), Position: position, Approval: asked, Gates: s.step.Gates,
		ApplicationEnvironment: applicationEnvironmentInput{s.application.ID, s.step.Config, s.application.Discovered},
	}
	// Always a list: a program of a driver that iterates over it without asking must not end on a null.
	if in.Gates == nil {
		in.Gates = []FlowGate{}
	}
	return in
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

func rolloutWorkflow(rollout int64) string { return fmt.Sprintf("rollout-%d", rollout) }
