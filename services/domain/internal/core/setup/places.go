package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// What belongs to an environment is announced to the workflow service, which refuses calls that would go around the environment's gates
// (D46). It is announced in every transaction that changes it, and all of it from time to time: the workflow service may have lost it.

// PinnedPlaces are what the passage of an environment opens for a rollout. The driver's manifest declares it; without a declaration it is
// the clusters of the environment's agents, every repository and every server.
func PinnedPlaces(drivers DriverSet, e core.BoundEnvironment, config, discovered json.RawMessage) ([]core.Place, error) {
	places, declared, err := drivers.Places(e.Binding.DriverRef, e.Binding.DriverConfig, config, discovered)
	if err != nil || declared {
		return places, err
	}
	whole, err := wholeAgents(drivers, e)
	return append(whole, core.Place{Repository: core.AnyRepository}, core.Place{URL: core.AnyURL}), err
}

// StepPlaces are what the passage of an environment opens for a rollout by a step of its pipeline. A runbook changes nothing but the
// namespaces of its jobs, in the clusters of the environment's agents.
func StepPlaces(drivers DriverSet, e core.BoundEnvironment, step core.DeployStep, discovered json.RawMessage) ([]core.Place, error) {
	if step.RunsJobs() {
		return jobPlaces(drivers, e, step)
	}
	return PinnedPlaces(drivers, e, step.Config, discovered)
}

// JobNamespace is where jobs of a step run that name no namespace: the place of the environment that the application is deployed to; "" if
// it has none. nil means that the driver does not declare it, and that its programs find it.
func JobNamespace(drivers DriverSet, e core.BoundEnvironment, step core.DeployStep) (*string, error) {
	namespace, declared, err := drivers.JobNamespace(e.Binding.DriverRef, e.Binding.DriverConfig, step.Config)
	if err != nil || !declared || step.RunsJobs() {
		return nil, err
	}
	return &namespace, nil
}

// checkJobsBeside refuses jobs of an environment that is deployed to where its passage would not open their namespaces, or no agent can run
// them. A pipeline that was saved before is not refused for it: such a job fails when its turn comes. What the setup has discovered does
// not count here: a pipeline is saved before it, so a job may only be refused for it, never accepted. What is discovered for others does,
// where places are claimed (placesIn), and again when the job asks for its passage (PinnedPlaces).
func checkJobsBeside(drivers DriverSet, flow core.Flow, environments map[string]core.BoundEnvironment) error {
	var found []fault.Field
	for _, step := range flow.Deploys {
		if len(step.Jobs) == 0 {
			continue
		}
		e := environments[step.Environment]
		agents, err := wholeAgents(drivers, e)
		if err != nil {
			return err
		}
		places, err := PinnedPlaces(drivers, e, step.Config, nil)
		if err != nil {
			return err
		}
		usual, err := JobNamespace(drivers, e, step)
		if err != nil {
			return err
		}
		for _, job := range step.Jobs {
			if problem := jobProblem(e, job, usual, agents, places); problem != "" {
				found = append(found, fault.Field{Name: "/definition" + job.At + "/namespace", Problem: problem})
			}
		}
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// jobProblem is why a job cannot run in an environment; "" if it can.
func jobProblem(e core.BoundEnvironment, job core.FlowJob, usual *string, agents, places []core.Place) string {
	namespace := job.Namespace
	if namespace == "" && usual != nil {
		namespace = *usual
	}
	opened := func(cluster core.Place) bool {
		cluster.Namespace = namespace
		return slices.ContainsFunc(places, cluster.Within)
	}
	switch {
	case len(agents) == 0:
		return fmt.Sprintf("found environment %q, which has no agent; expected one in whose cluster jobs can run", e.Name)
	case namespace == "" && usual == nil: // the driver declares no places, so its passages open all of them
		return ""
	case namespace == "":
		return fmt.Sprintf("found none, and the configuration of environment %q names none that the application is deployed to; expected that it does",
			e.Name)
	case !slices.ContainsFunc(agents, opened):
		return fmt.Sprintf("found %q, which the passage of environment %q does not open; expected a namespace that the application is deployed to",
			namespace, e.Name)
	}
	return ""
}

// jobPlaces are the places of the jobs of a runbook.
func jobPlaces(drivers DriverSet, e core.BoundEnvironment, step core.DeployStep) ([]core.Place, error) {
	whole, err := wholeAgents(drivers, e)
	var places []core.Place
	for _, cluster := range whole {
		for _, namespace := range slices.Compact(slices.Sorted(slices.Values(step.Namespaces))) {
			places = append(places, core.Place{AgentID: cluster.AgentID, Namespace: namespace})
		}
	}
	return places, err
}

// wholeAgents are the clusters of an environment's agents.
func wholeAgents(drivers DriverSet, e core.BoundEnvironment) ([]core.Place, error) {
	named, err := drivers.Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	var places []core.Place
	for _, n := range named {
		places = append(places, core.Place{AgentID: n.Number})
	}
	return places, err
}

// ownClusters are the clusters that belong to an environment as a whole: with a driver that declares no places, those of its agents. A
// driver that is no longer installed deploys nothing.
func (u *UseCases) ownClusters(e core.BoundEnvironment) ([]core.Place, error) {
	drivers := u.drivers.Now()
	_, declared, err := drivers.Places(e.Binding.DriverRef, e.Binding.DriverConfig, nil, nil)
	var whole []core.Place
	if err == nil && !declared {
		whole, err = wholeAgents(drivers, e)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, fmt.Errorf("places of environment %d: %w", e.ID, err)
	}
	return whole, nil
}

// announceEnvironment announces what an environment is, and what it has by itself: with a driver that declares no places, all of its
// agents' clusters.
func (u *UseCases) announceEnvironment(ctx context.Context, tx core.PlacesTx, organization int64, e core.BoundEnvironment) error {
	asked, err := tx.EnvironmentApprovals(ctx, organization, []int64{e.ID})
	if err != nil {
		return err
	}
	direct, err := tx.DirectChanges(ctx, organization, []int64{e.ID})
	if err != nil {
		return err
	}
	checks, err := tx.EnvironmentChecks(ctx, organization, []int64{e.ID})
	if err != nil {
		return err
	}
	_, asks := asked[e.ID]
	_, checked := checks[e.ID]
	t := core.Territory{
		EnvironmentID: e.ID, Name: e.Name, Archived: e.ArchivedAt != nil,
		Protected: protected(e.Environment, asks, checked, direct[e.ID]),
	}
	if t.Places, err = u.ownClusters(e); err != nil {
		return err
	}
	if t.Fleet, err = u.clustersOf(ctx, tx, e); err != nil {
		return err
	}
	return tx.AnnouncePlaces(ctx, u.clock.Now(), t)
}

// protected reports whether only its own rollouts change an environment.
func protected(e core.Environment, asks, checked, direct bool) bool {
	return (e.Tier == core.TierProduction || asks || checked) && !direct
}

// announceApplication announces what belongs to an application in an environment; nothing without a step.
func (u *UseCases) announceApplication(
	ctx context.Context, tx core.PlacesTx, e core.BoundEnvironment, application int64, step *core.DeployStep, discovered json.RawMessage,
) error {
	t, err := u.territory(e, application, step, discovered)
	if err != nil {
		return err
	}
	return tx.AnnouncePlaces(ctx, u.clock.Now(), t)
}

// territory is what belongs to an application in an environment; nothing without a step.
func (u *UseCases) territory(
	e core.BoundEnvironment, application int64, step *core.DeployStep, discovered json.RawMessage,
) (core.Territory, error) {
	t := core.Territory{EnvironmentID: e.ID, Name: e.Name, ApplicationID: application}
	if step == nil {
		return t, nil
	}
	places, err := u.ownPlaces(e, *step, discovered)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return t, fmt.Errorf("places of application %d in environment %d: %w", application, e.ID, err)
	}
	t.Places = places
	return t, nil
}

// ownPlaces are the places of an application in an environment, as far as the driver declares them.
func (u *UseCases) ownPlaces(e core.BoundEnvironment, step core.DeployStep, discovered json.RawMessage) ([]core.Place, error) {
	drivers := u.drivers.Now()
	if step.RunsJobs() {
		return jobPlaces(drivers, e, step)
	}
	places, _, err := drivers.Places(e.Binding.DriverRef, e.Binding.DriverConfig, step.Config, discovered)
	return places, err
}

// boundEnvironment reads an environment with its binding, without a lock.
func boundEnvironment(ctx context.Context, tx core.PlacesTx, organization, environment int64) (core.BoundEnvironment, error) {
	known, err := tx.EnvironmentsByID(ctx, organization, []int64{environment})
	if err != nil {
		return core.BoundEnvironment{}, err
	}
	bindings, err := tx.DriverBindingsByEnvironment(ctx, organization, []int64{environment})
	if err != nil {
		return core.BoundEnvironment{}, err
	}
	e := core.BoundEnvironment{Environment: known[environment]}
	if of := bindings[environment]; len(of) > 0 {
		e.Binding = of[0]
	}
	return e, nil
}

// announcePipeline announces what belongs to an application in the environments of its new pipeline, and that nothing does in those that
// it leaves.
func (u *UseCases) announcePipeline(
	ctx context.Context, tx Tx, organization, application int64, flow core.Flow, environments map[string]core.BoundEnvironment,
	left map[int64]bool,
) error {
	known, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{application})
	if err != nil {
		return err
	}
	discovered := map[int64]json.RawMessage{}
	for _, ae := range known[application] {
		discovered[ae.EnvironmentID] = ae.Discovered
	}
	for _, step := range flow.Deploys {
		e := environments[step.Environment]
		if err := u.announceApplication(ctx, tx, e, application, &step, discovered[e.ID]); err != nil {
			return err
		}
	}
	for environment := range left {
		e, err := boundEnvironment(ctx, tx, organization, environment)
		if err != nil {
			return err
		}
		if e.ArchivedAt != nil {
			continue // what is deployed there is protected for as long as the environment is
		}
		if err := u.announceApplication(ctx, tx, e, application, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// leaves are the environments of an application that a pipeline no longer goes to.
func leaves(before []core.ApplicationEnvironment, kept []int64) map[int64]bool {
	left := map[int64]bool{}
	for _, ae := range before {
		left[ae.EnvironmentID] = true
	}
	for _, environment := range kept {
		delete(left, environment)
	}
	return left
}

// announceSetup announces what belongs to an application in an environment now that its setup has found where it is.
func (u *UseCases) announceSetup(ctx context.Context, tx ReadinessTx, organization int64, ae core.ApplicationEnvironment) error {
	e, err := boundEnvironment(ctx, tx, organization, ae.EnvironmentID)
	if err != nil {
		return err
	}
	step, goes, err := u.latestStep(ctx, tx, organization, ae.ApplicationID, e.Name)
	if err != nil || !goes {
		return err
	}
	return u.announceApplication(ctx, tx, e, ae.ApplicationID, &step, ae.Discovered)
}

// SwitchInput is what SetDirectChanges and SetChangeControl are called with.
type SwitchInput struct {
	Environment int64
	On          bool
	Reason      string
}

// SetChangeControl decides whether the controls of an environment take a second person to change (D50). To begin with it takes one person;
// to end it is itself a change that a second person confirms.
func (u *UseCases) SetChangeControl(
	ctx context.Context, a core.Actor, environment int64, on bool, reason string,
) (core.Environment, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Environment{}, err
	}
	a = a.Proposing(SwitchInput{Environment: environment, On: on, Reason: reason})
	var changed core.Environment
	err := core.Within(ctx, u.store, a, core.ActionSetChangeControl, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		changed = e.Environment
		if err := a.MayIn(core.ActionSetChangeControl, e.Target(0)); err != nil {
			return err
		}
		controlled, err := tx.ControlledEnvironments(ctx)
		if err != nil {
			return err
		}
		if _, is := controlled[environment]; is == on {
			return nil
		}
		if on {
			if err := access.Confirmable(ctx, tx, a.Organization, e.Environment); err != nil {
				return err
			}
		}
		change := environmentChange(core.ActionSetChangeControl, e.Environment)
		change.Reason, change.Stricter = reason, on
		// Recorded while it still holds: that it ends is guarded by it.
		if err := core.Record(ctx, tx, a, change, map[string]any{"change_control": !on}, map[string]any{"change_control": on}); err != nil {
			return err
		}
		return tx.SetChangeControl(ctx, environment, on)
	})
	return changed, err
}

// SetDirectChanges decides whether workflows that belong to no rollout may change an environment that is protected otherwise. It is a
// control: it takes a reason, and the journal of changes has it.
func (u *UseCases) SetDirectChanges(
	ctx context.Context, a core.Actor, environment int64, allowed bool, reason string,
) (core.Environment, error) {
	a = a.Proposing(SwitchInput{Environment: environment, On: allowed, Reason: reason})
	if err := core.CheckReason(reason); err != nil {
		return core.Environment{}, err
	}
	if allowed && reason == "" {
		return core.Environment{}, fault.InvalidFields(fault.Field{
			Name:    "/reason",
			Problem: "found none; expected why the environment is not to be protected",
		})
	}
	var changed core.Environment
	err := core.By(ctx, u.store, a, core.ActionSetDirectChanges, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		changed = e.Environment
		before, err := tx.DirectChanges(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		if err := tx.SetDirectChanges(ctx, environment, allowed); err != nil {
			return err
		}
		change := environmentChange(core.ActionSetDirectChanges, e.Environment)
		change.Reason = reason
		err = core.Record(ctx, tx, a, change, map[string]any{"direct_changes": before[environment]}, map[string]any{"direct_changes": allowed})
		if err != nil {
			return err
		}
		return u.announceEnvironment(ctx, tx, a.Organization, e)
	})
	u.wake()
	return changed, err
}

// PlacedEnvironment is an environment and its organization.
type PlacedEnvironment struct{ ID, OrganizationID int64 }

// AnnouncePlaces announces everything that belongs to the environments of all organizations.
func (u *UseCases) AnnouncePlaces(ctx context.Context) (failed error) {
	for behind := int64(0); ; {
		page, err := u.store.EnvironmentsAfter(ctx, behind, mostAtOnce)
		if err != nil {
			return err
		}
		for _, e := range page {
			behind = e.ID
			// One that cannot be announced, as of a pipeline that this release cannot read, keeps no other from it.
			if err := u.announceAgain(ctx, e); err != nil {
				failed = errors.Join(failed, fmt.Errorf("announce the places of environment %d: %w", e.ID, err))
			}
			if ctx.Err() != nil {
				return failed
			}
		}
		if len(page) < mostAtOnce {
			return failed
		}
	}
}

// announceAgain announces an environment, and then its applications, page by page, each in a transaction under the locks that order it with
// changes.
func (u *UseCases) announceAgain(ctx context.Context, placed PlacedEnvironment) error {
	var archived bool
	err := u.store.In(ctx, placed.OrganizationID, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, placed.ID)
		if err != nil {
			return err
		}
		archived = e.ArchivedAt != nil
		return u.announceEnvironment(ctx, tx, placed.OrganizationID, e)
	})
	if err != nil || archived {
		return err
	}
	for after, more := int64(0), true; more; {
		began := u.clock.Now()
		var locked []core.ApplicationEnvironment
		err := u.store.In(ctx, placed.OrganizationID, func(ctx context.Context, tx Tx) (err error) {
			if locked, err = tx.LockApplicationsIn(ctx, placed.ID, after, pipelinesAtOnce); err != nil || len(locked) == 0 {
				return err
			}
			return u.announceSetups(ctx, tx, placed, locked)
		})
		if err != nil {
			return err
		}
		if more = len(locked) == pipelinesAtOnce; more {
			after = locked[len(locked)-1].ID
		}
		if err := clock.Rest(ctx, u.clock, began); err != nil {
			return err
		}
	}
	return nil
}

// announceSetups announces what belongs to several applications in an environment, which are locked: pipelines change under these locks.
func (u *UseCases) announceSetups(ctx context.Context, tx Tx, placed PlacedEnvironment, locked []core.ApplicationEnvironment) error {
	e, err := boundEnvironment(ctx, tx, placed.OrganizationID, placed.ID)
	if err != nil {
		return err
	}
	applications := make([]int64, len(locked))
	for i, ae := range locked {
		applications[i] = ae.ApplicationID
	}
	latest, err := tx.LatestFlowDefinitions(ctx, placed.OrganizationID, applications)
	if err != nil {
		return err
	}
	var all []core.Territory
	for _, ae := range locked {
		definition, has := latest[ae.ApplicationID]
		if !has {
			continue
		}
		step, err := u.stepIn(definition, e.Name)
		if err != nil {
			return err
		}
		if step == nil {
			continue
		}
		t, err := u.territory(e, ae.ApplicationID, step, ae.Discovered)
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	return tx.AnnouncePlaces(ctx, u.clock.Now(), all...)
}
