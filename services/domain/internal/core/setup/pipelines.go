package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// NewFlowDefinition is a new version of an application's pipeline.
type NewFlowDefinition struct {
	ApplicationID int64
	Definition    json.RawMessage
}

// CreateFlowDefinition records a new version of a pipeline and submits the setups it needs (E33, E54). Setups of environments that are not
// ready wait until they are. What is in force already is answered as it is: no version is made, and nothing set up.
func (u *UseCases) CreateFlowDefinition(ctx context.Context, a core.Actor, n NewFlowDefinition) (core.FlowDefinition, error) {
	var made core.FlowDefinition
	err := core.Within(ctx, u.store, a, core.ActionCreateFlowDefinition, func(ctx context.Context, tx Tx) error {
		var err error
		if n.Definition, err = byNames(ctx, tx, a.Organization, n.Definition); err != nil {
			return err
		}
		a := a.Proposing(n) // with names: what is confirmed later does not follow a display name
		// The lock numbers the versions one after the other (R13), and keeps a rollout from starting between the new
		// pipeline and the setups that it wants.
		app, err := tx.LockApplication(ctx, n.ApplicationID)
		if err != nil {
			return err
		}
		if err := core.RefuseArchived(app); err != nil {
			return err
		}
		environments, err := tx.AllEnvironments(ctx)
		if err != nil {
			return err
		}
		flow, err := u.checkAuthored(ctx, tx, a.Organization, n.Definition, environments)
		if err != nil {
			return err
		}
		if err := mayDefine(ctx, tx, a, app.ID, flow, environments); err != nil {
			return err
		}
		latest, err := tx.LatestFlowDefinitions(ctx, a.Organization, []int64{app.ID})
		if err != nil {
			return err
		}
		if same, err := u.inForce(ctx, tx, a.Organization, latest[app.ID], n.Definition, flow, environments); err != nil || same {
			made = latest[app.ID]
			made.Unchanged = true
			return err
		}
		if err := u.refuseOtherKind(ctx, tx, app.ID, flow); err != nil {
			return err
		}
		if err := u.mayClaim(ctx, tx, a, app.ID, latest[app.ID], flow, environments); err != nil {
			return err
		}
		made, err = tx.AddFlowDefinition(
			ctx, core.FlowDefinition{ApplicationID: app.ID, Version: latest[app.ID].Version + 1, Definition: n.Definition},
		)
		if err != nil {
			return err
		}
		kept := make([]int64, len(flow.Deploys))
		for i, step := range flow.Deploys {
			kept[i] = environments[step.Environment].ID
		}
		before, err := tx.ApplicationEnvironmentsByApplication(ctx, a.Organization, []int64{app.ID})
		if err != nil {
			return err
		}
		if err := tx.DropSetups(ctx, app.ID, kept); err != nil {
			return err
		}
		for _, step := range flow.Deploys {
			e := environments[step.Environment]
			// Also where it was set up before: the new pipeline may configure it differently (E51).
			ae, err := tx.WantSetup(ctx, app.ID, e.ID, waitsFor(e.Environment))
			if err != nil {
				return err
			}
			if e.Readiness != core.ReadinessReady {
				continue
			}
			if _, err := u.setUp(ctx, tx, a.Organization, app, e, ae, step); err != nil {
				return err
			}
		}
		if err := u.announcePipeline(ctx, tx, a.Organization, app.ID, flow, environments, leaves(before[app.ID], kept)); err != nil {
			return err
		}
		concerned := slices.Clone(kept)
		for _, ae := range before[app.ID] {
			concerned = append(concerned, ae.EnvironmentID)
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionCreateFlowDefinition, ApplicationID: app.ID, Environments: concerned,
			Subject: core.AccessSubject{Kind: core.ChangedFlowDefinition, ID: made.ID, Name: fmt.Sprintf("%s version %d", app.Name, made.Version)},
		}, pipelineState(latest[app.ID]), pipelineState(made))
	})
	u.wake()
	return made, err
}

// mayDefine is nil when an actor may configure every environment that a pipeline goes to, and those that it went to before.
func mayDefine(
	ctx context.Context, tx Tx, a core.Actor, application int64, flow core.Flow, environments map[string]core.BoundEnvironment,
) error {
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application)
	if err != nil {
		return err
	}
	if len(flow.Deploys) > 0 && targets[0].EnvironmentID == 0 { // it has gone nowhere so far
		targets = nil
	}
	for _, step := range flow.Deploys {
		targets = append(targets, environments[step.Environment].Target(application))
	}
	return a.MayIn(core.ActionCreateFlowDefinition, targets...)
}

// refuseOtherKind refuses a runbook for an application that deploys, and the other way round, once there was a rollout: what is live in an
// environment is what the last completed one has deployed there, and a runbook deploys nothing.
func (u *UseCases) refuseOtherKind(ctx context.Context, tx Tx, application int64, flow core.Flow) error {
	last, err := tx.LastRolledOut(ctx, application)
	if err != nil || last.ID == 0 {
		return err
	}
	was, err := u.flows.Read(last.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", last.ID, err)
	}
	if was.Runbook == flow.Runbook {
		return nil
	}
	problem := "found a runbook, and the application has rollouts that deploy; expected an application of its own"
	if was.Runbook {
		problem = "found a pipeline that deploys, and the application has runs of a runbook; expected an application of its own"
	}
	return fault.InvalidFields(fault.Field{Name: "/definition/steps", Problem: problem})
}

// pipelineState is what the journal of changes keeps of a pipeline; nil for none.
func pipelineState(f core.FlowDefinition) any {
	if f.ID == 0 {
		return nil
	}
	return map[string]any{"version": f.Version, "definition": f.Definition}
}

// inForce reports whether a definition equals the latest pipeline and whatever that needs exists: an
// environment that was archived and made anew under the same name wants its setup.
func (u *UseCases) inForce(
	ctx context.Context, tx Tx, organization int64, latest core.FlowDefinition, definition json.RawMessage, flow core.Flow,
	environments map[string]core.BoundEnvironment,
) (bool, error) {
	if latest.ID == 0 || !sameJSON(latest.Definition, definition) {
		return false, nil
	}
	known, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{latest.ApplicationID})
	if err != nil {
		return false, err
	}
	for _, step := range flow.Deploys {
		if !slices.ContainsFunc(known[latest.ApplicationID], func(ae core.ApplicationEnvironment) bool {
			return ae.EnvironmentID == environments[step.Environment].ID
		}) {
			return false, nil
		}
	}
	return true, nil
}

// sameJSON reports whether two documents say the same, whatever their spaces and the order of their members.
func sameJSON(a, b json.RawMessage) bool {
	read := func(doc json.RawMessage) (value any, err error) {
		decoder := json.NewDecoder(bytes.NewReader(doc))
		decoder.UseNumber() // so that numbers beyond a float's digits are not taken for each other
		err = decoder.Decode(&value)
		return value, err
	}
	left, errLeft := read(a)
	right, errRight := read(b)
	return errLeft == nil && errRight == nil && reflect.DeepEqual(left, right)
}

// CheckFlowDefinition says what is wrong with a definition that may become an application's pipeline, as it stands: nothing is kept,
// and nothing locked. The fields are JSON pointers into the definition.
func (u *UseCases) CheckFlowDefinition(ctx context.Context, a core.Actor, definition json.RawMessage) ([]fault.Field, error) {
	bound := map[string]core.BoundEnvironment{}
	for p := (core.Page{First: mostAtOnce}); ; {
		s, err := u.store.Environments(ctx, a.Organization, core.EnvironmentFilter{}, p)
		if err != nil {
			return nil, err
		}
		ids := make([]int64, len(s.Nodes))
		for i, e := range s.Nodes {
			ids[i] = e.ID
		}
		bindings, err := u.store.DriverBindingsByEnvironment(ctx, a.Organization, ids)
		if err != nil {
			return nil, err
		}
		for _, e := range s.Nodes {
			if of := bindings[e.ID]; len(of) > 0 {
				bound[e.Name] = core.BoundEnvironment{Environment: e, Binding: of[0]}
			}
		}
		if p.After = s.EndCursor(); !s.HasNext {
			break
		}
	}
	definition, err := byNames(ctx, u.store, a.Organization, definition)
	if err != nil {
		return nil, err
	}
	_, err = u.checkAuthored(ctx, u.store, a.Organization, definition, bound)
	if fault.Is(err, fault.Refused) { // a driver that is no longer installed
		return []fault.Field{{Problem: fault.Public(err)}}, nil
	}
	fields, err := within("", err)
	for i := range fields {
		fields[i].Name = strings.TrimPrefix(fields[i].Name, "/definition")
	}
	return fields, err
}

// mostAtOnce is the largest page that the store answers.
const mostAtOnce = 500

// checkAuthored is checkFlow for a definition that is new: those who are to approve must exist, too. A rollout does not check that
// again: a valid pipeline is not refused because a member has left a group.
func (u *UseCases) checkAuthored(
	ctx context.Context, r Reads, organization int64, definition json.RawMessage, environments map[string]core.BoundEnvironment,
) (core.Flow, error) {
	flow, err := u.flows.Read(definition)
	if err != nil {
		return core.Flow{}, inDefinition(err)
	}
	approvers, err := access.ApproversOf(ctx, r, organization, groupsOf(flow))
	if err != nil {
		return core.Flow{}, err
	}
	somewhere := approvers.In()
	err = CheckFlow(
		u.drivers.Now(), flow, environments, func(a core.Approval) []fault.Field { return access.Unanswerable(a.Group, a.Quorum, somewhere) },
	)
	if err == nil {
		err = inDefinition(checkEntries(ctx, r, organization, flow, environments))
	}
	return flow, err
}

// checkEntries refuses approvals that could be answered by themselves, and cannot be with what their environments ask beside them: the
// pipeline's quorum may be more than the environment's group has, or the other way round.
func checkEntries(ctx context.Context, r Reads, organization int64, flow core.Flow, environments map[string]core.BoundEnvironment) error {
	var ids []int64
	for _, step := range flow.Deploys {
		if step.Approval != nil {
			ids = append(ids, environments[step.Environment].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	asked, err := r.EnvironmentApprovals(ctx, organization, ids)
	if err != nil {
		return err
	}
	var found []fault.Field
	for _, step := range flow.Deploys {
		e := environments[step.Environment]
		own, asks := asked[e.ID]
		if step.Approval == nil || !asks {
			continue
		}
		wrong, err := unanswerableTogether(ctx, r, organization, step, e.Environment, own)
		if err != nil {
			return err
		}
		for _, f := range wrong {
			found = append(
				found, fault.Field{Name: step.At + "/approval" + f.Name, Problem: fmt.Sprintf("with what environment %q asks: %s", e.Name, f.Problem)},
			)
		}
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// unanswerableTogether finds why nobody could answer what a step and its environment ask together, where what the environment asks alone
// can be answered: of that, no pipeline is the cause.
func unanswerableTogether(
	ctx context.Context, r Reads, organization int64, step core.DeployStep, e core.Environment, own core.EnvironmentApproval,
) ([]fault.Field, error) {
	_, rule := core.EntryRule(step.Approval, e.Tier, &own)
	approvers, err := access.ApproversOf(ctx, r, organization, append(rule.Groups(), rule.Group, own.Group))
	if err != nil || len(access.UnanswerableRule(own.GateRule, approvers.Of(e))) > 0 {
		return nil, err
	}
	return access.UnanswerableRule(rule, approvers.Of(e)), nil
}

// groupsOf are those that the pipeline wants an approval of; anybody is among them where it takes more than one of all members.
func groupsOf(f core.Flow) []string {
	var all []string
	add := func(a *core.Approval) {
		if a != nil && (a.Group != access.Anybody || a.Quorum > 1) && !slices.Contains(all, a.Group) {
			all = append(all, a.Group)
		}
	}
	for _, step := range f.Deploys {
		add(step.Approval)
		for _, g := range step.Gates {
			add(g.Approval)
		}
	}
	for _, step := range f.Approvals {
		add(&step.Approval)
	}
	return all
}

// CheckFlow checks a pipeline against environments and their drivers: that of an environment has to support the steps and jobs in it, and
// every one those between environments. One rollout is one workflow (D25), so different drivers have to be combinable (D53).
func CheckFlow(
	drivers DriverSet, flow core.Flow, environments map[string]core.BoundEnvironment, rules func(core.Approval) []fault.Field,
) error {
	// Without rules to check, the pipeline is one that was accepted earlier.
	known := core.KnownToFlow{Environments: slices.Sorted(maps.Keys(environments)), CheckRules: rules, Stored: rules == nil}
	bound, err := driversOf(drivers, flow, environments)
	if err != nil {
		return err
	}
	if len(bound) == 0 { // no environment exists: the finding is about environments, so no step is refused
		known.Steps = []string{"deploy", "pause", "approval", "analysis", "job"}
	} else {
		known.Steps, known.StepsIn = stepsOfAll(bound), map[string][]string{}
		for _, d := range bound {
			known.StepsIn[d.environment] = d.SupportedSteps
		}
	}
	known.ValidateCheck = drivers.ValidateCheck
	known.ValidateConfig = func(environment string, config json.RawMessage) error {
		binding := environments[environment].Binding
		if err := drivers.ValidateApplicationEnvironment(binding.DriverRef, config); err != nil {
			return err
		}
		return drivers.CheckAllowed(binding.DriverRef, binding.DriverConfig, config)
	}
	if err := inDefinition(flow.Check(known)); err != nil {
		return err
	}
	if err := checkJobPlaces(drivers, flow, environments); err != nil || known.Stored {
		return err
	}
	return checkJobsBeside(drivers, flow, environments)
}

// checkJobPlaces refuses a runbook where its jobs may not run, or cannot.
func checkJobPlaces(drivers DriverSet, flow core.Flow, environments map[string]core.BoundEnvironment) error {
	for _, step := range flow.Deploys {
		if !step.RunsJobs() {
			continue
		}
		if problem := noPlace(drivers, environments[step.Environment], step); problem != "" {
			return fault.InvalidFields(fault.Field{Name: "/definition" + step.At + "/environment", Problem: problem})
		}
	}
	return nil
}

// boundDriver is the driver of an environment of a pipeline.
type boundDriver struct {
	environment string
	core.Driver
}

// driversOf are the drivers of a pipeline's environments, in its order. It refuses drivers that cannot be in one pipeline.
func driversOf(drivers DriverSet, flow core.Flow, environments map[string]core.BoundEnvironment) ([]boundDriver, error) {
	var all []boundDriver
	for _, step := range flow.Deploys {
		e, ok := environments[step.Environment]
		if !ok {
			continue // the check of the environments says so
		}
		driver, err := drivers.Lookup(e.Binding.DriverRef)
		if err != nil {
			return nil, fault.Because(err, fault.Refused, "environment %q: %s", e.Name, fault.Public(err))
		}
		all = append(all, boundDriver{e.Name, driver})
	}
	other := slices.IndexFunc(all, func(d boundDriver) bool { return d.Ref != all[0].Ref })
	if other < 0 {
		return all, nil
	}
	for _, d := range all {
		if d.Combines {
			continue
		}
		beside := all[other]
		if d.Ref == beside.Ref {
			beside = all[0]
		}
		return nil, fault.InvalidFields(fault.Field{Name: "/definition/steps", Problem: fmt.Sprintf(
			"found environment %q with driver %s beside %q with driver %s; expected drivers whose manifests have parts.deploy, or one driver "+
				"in the pipeline: %s has none", d.environment, d.Ref, beside.environment, beside.Ref, d.Ref,
		)})
	}
	return all, nil
}

// stepsOfAll are the steps that every one of the drivers supports.
func stepsOfAll(all []boundDriver) []string {
	steps := slices.Clone(all[0].SupportedSteps)
	for _, d := range all[1:] {
		steps = slices.DeleteFunc(steps, func(step string) bool { return !slices.Contains(d.SupportedSteps, step) })
	}
	return steps
}

// inDefinition locates findings in the input of the use case.
func inDefinition(err error) error {
	fields, err := within("/definition", err)
	if err != nil || len(fields) == 0 {
		return err
	}
	return fault.InvalidFields(fields...)
}

func waitsFor(e core.Environment) string {
	if e.Readiness == core.ReadinessReady {
		return "being set up"
	}
	return fmt.Sprintf("waits for environment %q to be ready", e.Name)
}

// RetrySetup submits the setup of an application environment again (E29), whatever the outcome of the attempt before.
func (u *UseCases) RetrySetup(ctx context.Context, a core.Actor, applicationEnvironment int64) (core.ApplicationEnvironment, error) {
	var made core.ApplicationEnvironment
	err := core.Within(ctx, u.store, a, core.ActionRetrySetup, func(ctx context.Context, tx Tx) error {
		found, err := tx.ApplicationEnvironmentsByID(ctx, a.Organization, []int64{applicationEnvironment})
		if err != nil {
			return err
		}
		ae, ok := found[applicationEnvironment]
		if !ok {
			return fault.New(fault.NotFound, "application environment %d does not exist", applicationEnvironment)
		}
		app, err := tx.LockApplication(ctx, ae.ApplicationID)
		if err != nil {
			return err
		}
		e, err := tx.LockEnvironment(ctx, ae.EnvironmentID)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionRetrySetup, e.Target(app.ID)); err != nil {
			return err
		}
		if e.Readiness != core.ReadinessReady {
			return fault.New(fault.Refused, "environment %q is not ready: %s", e.Name, core.NotReady(e.Readiness, e.ReadinessReason))
		}
		if ae, err = tx.LockApplicationEnvironment(ctx, ae.ID); err != nil {
			return err
		}
		step, ok, err := u.latestStep(ctx, tx, a.Organization, app.ID, e.Name)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Refused, "the pipeline of %q does not deploy to %q", app.Name, e.Name)
		}
		before := setupState(ae)
		if made, err = u.setUp(ctx, tx, a.Organization, app, e, ae, step); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionRetrySetup, ApplicationID: app.ID, EnvironmentID: e.ID,
			Subject: core.AccessSubject{Kind: core.ChangedApplicationEnvironment, ID: ae.ID, Name: app.Name + " in " + e.Name},
		}, before, setupState(made))
	})
	u.wake()
	return made, err
}

func setupState(ae core.ApplicationEnvironment) map[string]any {
	return map[string]any{"readiness": ae.Readiness, "reason": ae.ReadinessReason, "attempt": ae.SetupAttempt}
}

// latestStep is what the latest pipeline of an application says about an environment; false when it does not go there.
func (u *UseCases) latestStep(
	ctx context.Context, tx ReadinessTx, organization, application int64, environment string,
) (core.DeployStep, bool, error) {
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{application})
	if err != nil {
		return core.DeployStep{}, false, err
	}
	definition, ok := latest[application]
	if !ok {
		return core.DeployStep{}, false, nil
	}
	step, err := u.stepIn(definition, environment)
	if err != nil || step == nil {
		return core.DeployStep{}, false, err
	}
	return *step, true, nil
}

// setUp submits the next setup of an application in an environment; until it has ended nothing is deployed (E59). A runbook needs none.
func (u *UseCases) setUp(
	ctx context.Context, tx ReadinessTx, organization int64, app core.Application, e core.BoundEnvironment, ae core.ApplicationEnvironment,
	step core.DeployStep,
) (core.ApplicationEnvironment, error) {
	return u.setUpAs(ctx, tx, organization, app, e, ae, step, core.ReadinessPending)
}

// setUpAs is setUp with the readiness that the application has there until the setup has ended.
func (u *UseCases) setUpAs(
	ctx context.Context, tx ReadinessTx, organization int64, app core.Application, e core.BoundEnvironment, ae core.ApplicationEnvironment,
	step core.DeployStep, meanwhile core.Readiness,
) (core.ApplicationEnvironment, error) {
	if problem := u.misfit(e, step); problem != "" {
		ae.SetupWanted, ae.Readiness, ae.ReadinessReason = false, core.ReadinessNot, problem
		return ae, tx.SaveApplicationEnvironment(ctx, ae)
	}
	ae.SetupAttempt++
	if step.RunsJobs() { // nothing is deployed there, so there is nothing to set up
		ae.SetupWanted, ae.Readiness, ae.ReadinessReason, ae.Discovered = false, core.ReadinessReady, "", nil
		return ae, tx.SaveApplicationEnvironment(ctx, ae)
	}
	if ae.SetupWanted, ae.Readiness = false, meanwhile; meanwhile != core.ReadinessReady {
		ae.ReadinessReason = "being set up"
	}
	if err := tx.SaveApplicationEnvironment(ctx, ae); err != nil {
		return ae, err
	}
	services, err := tx.ServicesByApplication(ctx, organization, []int64{app.ID})
	if err != nil {
		return ae, err
	}
	in := setupInput{Environment: DescribeEnvironment(e)}
	in.ApplicationEnvironment.ID, in.ApplicationEnvironment.Config = ae.ID, step.Config
	in.ApplicationEnvironment.Application = Named{app.ID, app.Name}
	for _, s := range services[app.ID] {
		if s.RetiredAt == nil {
			in.ApplicationEnvironment.Services = append(in.ApplicationEnvironment.Services, Named{s.ID, s.Name})
		}
	}
	inputs, err := json.Marshal(in)
	if err != nil {
		return ae, fmt.Errorf("encode inputs of application environment %d: %w", ae.ID, err)
	}
	return ae, Submit(ctx, tx, u.drivers.Now(), u.clock.Now(), e.Binding.DriverRef, core.Handoff{
		WorkflowID: id.SetupRun(ae.ID, ae.SetupAttempt),
		Subject:    core.HandoffApplicationEnvironment, SubjectID: ae.ID, Program: core.ProgramSetup, Inputs: inputs,
	})
}
