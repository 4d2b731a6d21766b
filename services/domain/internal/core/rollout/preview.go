package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

const (
	// previewsKept is how long a preview can be looked at: it describes files as they were when it was made, and is no record.
	previewsKept = 7 * 24 * time.Hour
	// forgottenAtOnce is more than one, so that those that are too old become fewer with each that is asked for.
	forgottenAtOnce = 100
)

// NewPreview asks what a rollout would change.
type NewPreview struct {
	VersionSetID int64
	// Rollback reports whether the rollout would be a rollback, which an application may have pass its gates at once (D14).
	Rollback bool
	// Strategy decides whether the rollout is to stop at weights.
	Strategy planner.Choice
	// Inputs are those that the pipeline declares, an object of JSON; empty for none.
	Inputs json.RawMessage
}

type previewInput struct {
	Preview    numbered              `json:"preview"`
	Rollout    previewedRolloutInput `json:"rollout"`
	VersionSet versionSetInput       `json:"version_set"`
}

type numbered struct {
	ID int64 `json:"id"`
}

// previewedRolloutInput is a rollout's as far as there is one: it has no number, and its deployments have those of their services.
type previewedRolloutInput struct {
	OrganizationID int64                     `json:"organization_id"`
	Application    setup.Named               `json:"application"`
	Environments   []rolloutEnvironmentInput `json:"environments"`
	PromoteFull    bool                      `json:"promote_full,omitempty"`
	Strategy       planner.Strategy          `json:"strategy,omitempty"`
	Inputs         json.RawMessage           `json:"inputs,omitempty"`
}

// PreviewRollout asks what a rollout of a version set would change. It is refused where the rollout would be, but for another
// one that is under way; the answer comes later.
func (u *UseCases) PreviewRollout(ctx context.Context, a core.Actor, n NewPreview) (core.Preview, error) {
	var made core.Preview
	err := core.Within(ctx, u.store, a, core.ActionPreviewRollout, func(ctx context.Context, tx Tx) error {
		var back *rollbackOf
		if n.Rollback {
			back = &rollbackOf{}
		}
		p, err := u.planAny(ctx, tx, a.Organization, n.VersionSetID, back, wish{strategy: n.Strategy, inputs: n.Inputs})
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionPreviewRollout, p.targets()...); err != nil {
			return err
		}
		if err := p.refuseNoPreview(); err != nil {
			return err
		}
		if err := tx.ForgetPreviews(ctx, u.clock.Now().Add(-previewsKept), forgottenAtOnce); err != nil {
			return err
		}
		if made, err = tx.AddPreview(ctx, core.Preview{ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID}); err != nil {
			return err
		}
		in := p.previewInput(a.Organization, made.ID)
		if err := p.addLast(ctx, tx, in.Rollout.Environments); err != nil {
			return err
		}
		inputs, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode inputs of preview %d: %w", made.ID, err)
		}
		return setup.SubmitCombined(ctx, tx, p.drivers, u.clock.Now(), p.driverRefs(), core.Handoff{
			WorkflowID: previewWorkflow(made.ID), Subject: core.HandoffPreview, SubjectID: made.ID, Program: core.ProgramPreview, Inputs: inputs,
		})
	})
	u.wake()
	return made, err
}

// refuseNoPreview refuses a plan that deploys nothing, and one with a driver that cannot examine its environments. One workflow examines
// all stops, as one carries the rollout through them (D25).
func (p plan) refuseNoPreview() error {
	if p.flow.Runbook {
		return fault.New(fault.Refused, "the pipeline of %q is a runbook: it deploys nothing, and cannot be previewed", p.application.Name)
	}
	refs := p.driverRefs()
	several := slices.ContainsFunc(refs, func(ref string) bool { return ref != refs[0] })
	for _, s := range p.stops {
		switch {
		case !s.driver.Previews:
			return fault.New(fault.Refused, "driver %s cannot say beforehand what a rollout changes", s.driver.Ref)
		case several && !s.driver.CombinesPreview:
			return fault.New(fault.Refused, "driver %s cannot say beforehand what a rollout changes in a pipeline of several drivers", s.driver.Ref)
		}
	}
	return nil
}

func (p plan) previewInput(organization, preview int64) previewInput {
	in := previewInput{
		Preview: numbered{preview},
		Rollout: previewedRolloutInput{
			OrganizationID: organization, Application: setup.Named{ID: p.application.ID, Name: p.application.Name}, PromoteFull: p.inFull,
			Strategy: p.decision.Strategy, Inputs: p.inputs,
		},
		VersionSet: versionSetInput{p.versionSet.ID, p.versionSet.Name, p.versionsOf(0)},
	}
	for i, s := range p.stops {
		e := p.input(s, i+1)
		for _, svc := range p.services {
			if versions := p.versionsOf(svc.ID); len(versions) > 0 {
				e.Deployments = append(e.Deployments, deploymentInput{ID: svc.ID, Service: setup.Named{ID: svc.ID, Name: svc.Name}, Versions: versions})
			}
		}
		in.Rollout.Environments = append(in.Rollout.Environments, e)
	}
	return in
}

// mostLast bounds the parameters of the last deployments that one preview is given, in bytes: inputs have at most 4 MiB.
const mostLast = 2 << 20

// addLast adds to the environments of a preview with what was deployed that is live there: a driver whose desired state is in no repository
// compares with it (R2-35).
func (p plan) addLast(ctx context.Context, tx Tx, environments []rolloutEnvironmentInput) error {
	left := mostLast
	for i, s := range p.stops {
		if s.fleet != nil { // each of its targets has its own
			continue
		}
		live, err := tx.LiveSnapshots(ctx, p.application.ID, s.environment.ID)
		if err != nil {
			return err
		}
		for _, one := range live {
			at := slices.IndexFunc(environments[i].Deployments, func(d deploymentInput) bool { return d.ID == one.ServiceID })
			if at < 0 {
				continue
			}
			last := &lastInput{DeploymentID: one.DeploymentID, RolloutID: one.RolloutID, ManifestDigest: one.ManifestDigest}
			if len(one.Parameters) <= left {
				last.Parameters = one.Parameters
				left -= len(one.Parameters)
			}
			environments[i].Deployments[at].Last = last
		}
	}
	return nil
}

// Previewed is what a program has found out.
type Previewed struct {
	PreviewID    int64
	Environments []core.PreviewedEnvironment
}

func (m Previewed) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	known, err := tx.PreviewsByID(ctx, c.Organization, []int64{m.PreviewID})
	if err != nil {
		return err
	}
	p, ok := known[m.PreviewID]
	if !ok {
		return fault.New(fault.NotFound, "preview %d does not exist", m.PreviewID)
	}
	ids := make([]int64, len(m.Environments))
	for i, e := range m.Environments {
		ids[i] = e.EnvironmentID
	}
	environments, err := tx.EnvironmentsByID(ctx, c.Organization, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, ok := environments[id]; !ok {
			return fault.New(fault.NotFound, "preview %d names environment %d, which does not exist", m.PreviewID, id)
		}
	}
	made := p.State == core.PreviewMade
	p.State, p.Reason, p.Environments = core.PreviewMade, "", m.Environments
	if err := tx.SettlePreview(ctx, p); err != nil || made || p.DriftOf == 0 {
		return err
	}
	return u.foundDrift(ctx, tx, c, p)
}

// failPreview records that a program has ended without an answer. A look for drift has then found out nothing.
func (u *UseCases) failPreview(ctx context.Context, tx Tx, c cause, failed core.Preview) error {
	known, err := tx.PreviewsByID(ctx, c.Organization, []int64{failed.ID})
	if err != nil {
		return err
	}
	if p := known[failed.ID]; p.DriftOf != 0 && p.State != core.PreviewMade && p.State != core.PreviewFailed {
		if err := u.lookFailed(ctx, tx, c, p, failed.Reason); err != nil {
			return err
		}
	}
	return tx.SettlePreview(ctx, failed)
}

func previewWorkflow(preview int64) string { return id.PreviewRun(preview) }

// Unreleased is a change of a repository that is no version yet, as far as a plan depends on it.
type Unreleased struct {
	// VersionSetID is the newest set of the application, and Sources are those whose version the change replaces.
	VersionSetID int64
	Sources      []int64
	// SHA and Message are those of its last commit.
	SHA, Message string
	// Triggered reports whether a trigger would begin the rollout, to Until at most and with Inputs.
	Triggered bool
	Until     string
	Inputs    json.RawMessage
}

// Foreseen is what a rollout would be and would have to pass, as things are now.
type Foreseen struct {
	Plan planner.Decision
	// Refused is why no rollout would begin; empty if one would.
	Refused      string
	Environments []ForeseenEnvironment
}

// ForeseenEnvironment is an environment that a rollout would enter.
type ForeseenEnvironment struct {
	Environment core.Environment
	Needs       []Need
	// Deadline is how long the rollout may take there; nil for any time.
	Deadline *core.DeadlineRule
}

// NeedKind is what kind of condition a rollout would have to meet.
type NeedKind string

// The kinds.
const (
	NeedApproval NeedKind = "approval"
	NeedCheck    NeedKind = "check"
	NeedControl  NeedKind = "control"
	NeedPolicy   NeedKind = "policy"
)

// Need is a condition that a rollout would have to meet before it enters an environment, or leaves a weight in it.
type Need struct {
	Kind NeedKind
	// Subject is the gate of an approval, the key of a check or the control; empty for policies.
	Subject string
	// Detail says what it takes, in one sentence.
	Detail string
	// Requirements are those of an approval, and Approvers the first of the members who may give it, by name.
	Requirements []core.Requirement
	Approvers    []string
}

// shownApprovers is how many members a need names.
const shownApprovers = 10

// Foresee plans the rollout of a change that is no version yet, and writes nothing. An actor stands for who would request it.
func (u *UseCases) Foresee(ctx context.Context, tx Tx, a core.Actor, n Unreleased) (Foreseen, error) {
	c := cause{Actor: a, at: u.clock.Now()}
	if n.Triggered {
		c.Actor = core.Actor{Organization: a.Organization, Type: core.PrincipalPolicy}
	}
	w := wish{triggered: n.Triggered, inputs: n.Inputs, commit: &planner.Commit{SHA: n.SHA, Message: n.Message}, replaces: map[int64]bool{}}
	for _, source := range n.Sources {
		w.replaces[source] = true
	}
	tx = reading{tx, a.Organization}
	part, err := u.automaticPart(ctx, tx, a.Organization, Automatic{VersionSetID: n.VersionSetID, Until: n.Until})
	var p plan
	if err == nil {
		p, err = u.planAny(ctx, tx, a.Organization, n.VersionSetID, part, w)
	}
	if forPeople(err) {
		return Foreseen{Refused: fault.Public(err)}, nil
	}
	if err != nil {
		return Foreseen{}, err
	}
	f := Foreseen{Plan: p.decision}
	if n.Triggered {
		err = p.refuseHeld(ctx, tx, a.Organization)
	}
	if err == nil {
		err = u.refuses(ctx, tx, c, p)
	}
	if forPeople(err) {
		f.Refused, err = fault.Public(err), nil
	}
	if err != nil {
		return f, err
	}
	f.Environments, err = u.needs(ctx, tx, c, p)
	return f, err
}

// reading is a transaction in which a plan locks neither its application nor environments: nothing is decided by it.
type reading struct {
	Tx
	organization int64
}

// LockApplication reads the application.
func (r reading) LockApplication(ctx context.Context, id int64) (core.Application, error) {
	found, err := r.ApplicationsByID(ctx, r.organization, []int64{id})
	if err != nil {
		return core.Application{}, err
	}
	a, exists := found[id]
	if !exists {
		return a, fault.New(fault.NotFound, "application %d does not exist", id)
	}
	return a, nil
}

// EnvironmentsNamed reads the environments.
func (r reading) EnvironmentsNamed(ctx context.Context, names []string) (map[string]core.BoundEnvironment, error) {
	found, err := r.ClaimingEnvironments(ctx)
	some := map[string]core.BoundEnvironment{}
	for _, e := range found {
		if e.ArchivedAt == nil && slices.Contains(names, e.Name) {
			some[e.Name] = e
		}
	}
	return some, err
}

// needs are the environments of a plan in order, each with what the rollout would have to meet there.
func (u *UseCases) needs(ctx context.Context, tx Tx, c cause, p plan) ([]ForeseenEnvironment, error) {
	concerning, err := tx.PoliciesConcerning(ctx, p.application.ID, 0)
	if err != nil {
		return nil, err
	}
	all := make([]ForeseenEnvironment, len(p.stops))
	for i, s := range p.stops {
		e := ForeseenEnvironment{
			Environment: s.environment.Environment, Needs: append(p.approvalsAt(i), p.checksAt(i)...), Deadline: p.environmentDeadline(s),
		}
		controls, err := tx.Controls(ctx, p.versionSet.ID, []int64{s.environment.ID}, c.at)
		if err != nil {
			return nil, err
		}
		point := core.PassagePoint{
			ApplicationID: p.application.ID, EnvironmentID: s.environment.ID, Tier: s.environment.Tier, Automatic: c.Type.Automatic(),
			Entrance: true,
		}
		if of := controls.Labelled([]int64{p.application.ID}, []int64{s.environment.ID}); len(of) > 0 {
			if controls.Details, err = tx.Details(ctx, c.Organization, of); err != nil {
				return nil, err
			}
		}
		controls.Vetoes = nil // they are about versions, and the change is none yet
		for _, stop := range controls.Stopping(point, c.at) {
			e.Needs = append(e.Needs, Need{Kind: NeedControl, Subject: stop.Subject(), Detail: stop.Sentence()})
		}
		more, err := u.policiesAt(ctx, tx, c, p, i, concerning)
		if err != nil {
			return nil, err
		}
		e.Needs = append(e.Needs, more...)
		if err := nameApprovers(ctx, tx, c.Organization, e); err != nil {
			return nil, err
		}
		all[i] = e
	}
	return all, nil
}

// approvalsAt are the approvals of a plan's stop: those of the steps before it, of its entrance and of its weights.
func (p plan) approvalsAt(i int) []Need {
	s, rules := p.stops[i], p.gateRules()
	entering := "before it enters " + s.environment.Name
	var all []Need
	add := func(gate, where string) {
		rule, asks := rules[gate]
		if !asks {
			return
		}
		all = append(all, Need{
			Kind: NeedApproval, Subject: gate, Detail: core.Because("an approval "+where, rule.Reason), Requirements: rule.Requirements(),
		})
	}
	for _, step := range p.approvals {
		switch {
		case step.Before == s.environment.Name:
			add(step.GateID, entering)
		case step.Before == "" && i == len(p.stops)-1:
			add(step.GateID, "after "+s.environment.Name)
		}
	}
	add(s.environment.Name, entering)
	for _, g := range s.step.Gates {
		at := fmt.Sprintf("at %d %% in %s", g.Weight, s.environment.Name)
		if p.decision.Strategy == planner.Quick {
			at = fmt.Sprintf("of the weight %d %%, before it enters %s", g.Weight, s.environment.Name)
		}
		add(weightGate(s.environment.Name, g.Weight), at)
	}
	return all
}

// checksAt are the checks that guard the entrance of a plan's stop: those about what would enter, and those about what is in the stop
// before.
func (p plan) checksAt(i int) []Need {
	var all []Need
	add := func(checks []core.Check, about string) {
		for _, one := range checks {
			kind := strings.TrimSuffix(string(one.Kind), "@1")
			all = append(all, Need{Kind: NeedCheck, Subject: one.Key, Detail: fmt.Sprintf("a check of kind %s about what %s", kind, about)})
		}
	}
	s := p.stops[i]
	add(append(slices.Clone(s.step.Proposed), s.checks.Proposed...), "would enter "+s.environment.Name)
	followed := p.follows(i)
	for n, before := range p.stops[:i] {
		about := "is in " + before.environment.Name
		if slices.Contains(followed, before.environment.ID) {
			add(append(slices.Clone(before.step.Active), before.checks.Active...), about)
		} else if n == i-1 { // what it requires by itself, no pipeline weakens
			add(before.checks.Active, about)
		}
	}
	return all
}

// policiesAt are what policies would deny or require at the entrance of a plan's stop now, once the stops before it are complete.
func (u *UseCases) policiesAt(
	ctx context.Context, tx Tx, c cause, p plan, i int, concerning []core.ConcerningPolicy,
) ([]Need, error) {
	if len(concerning) == 0 {
		return nil, nil
	}
	places, err := p.policyPlaces(ctx, tx)
	if err != nil {
		return nil, err
	}
	named := func(s stop) policy.Environment { return places[s.environment.ID] }
	at := named(p.stops[i])
	r := policy.Request{
		Action: policy.EnterEnvironment, Principal: core.PolicyPrincipal(c.Actor), Automatic: c.Type.Automatic(), At: c.at, Gate: at.Name,
		Environment: &at,
		Strategy:    string(p.decision.Strategy), Inputs: p.inputs,
	}
	for _, s := range p.stops[:i] {
		r.Completed = append(r.Completed, named(s))
	}
	if i > 0 {
		r.Previous = &policy.Previous{Environment: named(p.stops[i-1])}
	}
	if err := describeSet(ctx, tx, c, p.application.ID, p.versionSet.ID, []int64{p.stops[i].environment.ID}, 1, &r); err != nil {
		return nil, err
	}
	d := u.policies.Decide(concerning, p.stops[i].environment.ID, r.Short(textsOf(concerning)...))
	switch d.Verdict {
	case policy.Deny:
		return []Need{{Kind: NeedPolicy, Detail: d.Sentence()}}, nil
	case policy.NeedsApproval:
		var all []Need
		for _, ruling := range d.Deciding() {
			all = append(all, Need{
				Kind: NeedApproval, Subject: core.PolicyGate(at.Name, ruling.Name(), 0), Detail: ruling.Sentence(),
				Requirements: ruleOf(ruling).Requirements(),
			})
		}
		return all, nil
	case policy.Allow:
	}
	return nil, nil
}

// nameApprovers adds to approvals who may give them.
func nameApprovers(ctx context.Context, tx Tx, organization int64, e ForeseenEnvironment) error {
	var groups []string
	for _, n := range e.Needs {
		for _, r := range n.Requirements {
			groups = append(groups, r.Group)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	approvers, err := access.ApproversOf(ctx, tx, organization, slices.Compact(slices.Sorted(slices.Values(groups))))
	if err != nil {
		return err
	}
	here := approvers.Of(e.Environment)
	for i, n := range e.Needs {
		for _, r := range n.Requirements {
			for _, one := range here[r.Group] {
				if !slices.Contains(e.Needs[i].Approvers, one.Name) && len(e.Needs[i].Approvers) < shownApprovers {
					e.Needs[i].Approvers = append(e.Needs[i].Approvers, one.Name)
				}
			}
		}
		slices.Sort(e.Needs[i].Approvers)
	}
	return nil
}
