package view

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// WaitKind says what kind of thing a rollout waits for.
type WaitKind string

// The kinds.
const (
	// WaitHandOver means that the workflow engine has not taken the rollout yet.
	WaitHandOver WaitKind = "hand_over"
	// WaitApproval is an open gate.
	WaitApproval WaitKind = "approval"
	// WaitPause means that it is held.
	WaitPause WaitKind = "pause"
	// WaitSoak is the time that a gate asks for once every service has come to it.
	WaitSoak WaitKind = "soak"
	// WaitHealth is a deployment on its way to the next gate, or to its end.
	WaitHealth WaitKind = "health"
	// WaitEnvironment is an environment ahead that is not ready.
	WaitEnvironment WaitKind = "environment"
	// WaitAgent is an environment in which nobody can be reached who acts there.
	WaitAgent WaitKind = "agent"
	// WaitFreeze is a freeze that keeps a requested passage closed.
	WaitFreeze WaitKind = "freeze"
	// WaitVeto is a veto on the version set, or on one of its versions.
	WaitVeto WaitKind = "veto"
	// WaitPin means that automation requested the rollout, and the environment is pinned.
	WaitPin WaitKind = "pin"
	// WaitCheck is a check that is not green.
	WaitCheck WaitKind = "check"
	// WaitPolicy means that policies deny a requested passage.
	WaitPolicy WaitKind = "policy"
)

// AllWaitKinds is every kind.
func AllWaitKinds() []WaitKind {
	return []WaitKind{
		WaitHandOver, WaitApproval, WaitPause, WaitSoak, WaitHealth, WaitEnvironment, WaitAgent,
		WaitFreeze, WaitVeto, WaitPin, WaitCheck, WaitPolicy,
	}
}

// WaitStatus says how far a condition is from being met.
type WaitStatus string

// The statuses.
const (
	// WaitPending means that it can still be met as things are.
	WaitPending WaitStatus = "pending"
	// WaitFailed means that it was evaluated and is not met: another report, or a repair, has to come first.
	WaitFailed WaitStatus = "failed"
	// WaitStopped means that a person's decision keeps it closed, until it ends or is taken back.
	WaitStopped WaitStatus = "stopped"
	// WaitUnsatisfiable means that nobody is left who could satisfy it.
	WaitUnsatisfiable WaitStatus = "unsatisfiable"
)

// AllWaitStatuses is every status.
func AllWaitStatuses() []WaitStatus {
	return []WaitStatus{WaitPending, WaitFailed, WaitStopped, WaitUnsatisfiable}
}

// Wait is one condition that a rollout needs and does not have.
type Wait struct {
	Kind   WaitKind
	Status WaitStatus
	// Subject is what the condition is about: the gate of an approval, the key of a check, a control such as freeze_7, the name of an
	// environment or of a service; empty for the whole rollout.
	Subject string
	// Passage is the passage that is requested and needs it; empty for none.
	Passage string
	// Requirements are those of an approval, with what was given so far; nil for other kinds.
	Requirements []core.RequirementState
	// Approvers are the members who can still approve, by number; nil for other kinds. Of a rule without a group they are as many as can
	// matter.
	Approvers []int64
	// Link is where a check was reported from; empty for none.
	Link string
	// Detail says it for people.
	Detail string
	// Resolver is who or what can end it.
	Resolver string
	// Needs is the permission that ends it; 0 where no person does.
	Needs core.Permission
	// Since is when it began; nil where that is not known.
	Since *time.Time
	// Until is when it ends by itself; nil where it does not.
	Until *time.Time
	// GateID is the gate that it is at; empty for none.
	GateID string
	// EnvironmentID and ServiceID are what it is about; 0 for the whole rollout.
	EnvironmentID, ServiceID int64
}

// waitView is all that the waits of some rollouts are derived from.
type waitView struct {
	now          time.Time
	standings    map[int64]core.Standing
	flows        map[int64]core.Flow
	environments map[int64]core.Environment
	deployments  map[int64][]core.Deployment
	gates        map[int64][]core.DeploymentGate
	services     map[int64]core.Service
	contacts     map[int64]core.Contact
	// fleets and waves are those of environments of rollouts.
	fleets map[int64]core.RolloutFleet
	waves  map[int64][]core.RolloutWave
	// members are those who hold one of the rollouts, by number.
	members map[int64]core.Member
	// approvers are those of approversOf for the gates that are open.
	approvers access.Approvers
	// controls are what may stop requested passages, by rollout; no key for a rollout that has requested none.
	controls map[int64]stopView
}

// stopView is what decides about the controls that stop the passages of a rollout.
type stopView struct {
	core.Controls
	automatic bool
	checks    core.Checks
	// decisions are the latest of policies, of each gate.
	decisions []core.PolicyDecision
}

// Waits are what rollouts wait for, in the order of promotion. One that is over waits for nothing, and has no key.
func (u *UseCases) Waits(ctx context.Context, organization int64, rollouts []int64) (map[int64][]Wait, error) {
	v, err := u.readWaits(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	all := map[int64][]Wait{}
	for id, s := range v.standings {
		if !s.Rollout.State.Terminal() {
			all[id] = v.waits(s)
		}
	}
	return all, nil
}

// readWaits reads for all rollouts at once: as many queries as there are kinds of things.
func (u *UseCases) readWaits(ctx context.Context, organization int64, rollouts []int64) (waitView, error) {
	v := waitView{now: u.clock.Now(), flows: map[int64]core.Flow{}}
	var err error
	if v.standings, err = u.Standings(ctx, organization, rollouts); err != nil {
		return v, err
	}
	var definitions, places, stops []int64
	for _, s := range v.standings {
		if s.Rollout.State.Terminal() {
			continue
		}
		definitions = append(definitions, s.Rollout.FlowDefinitionID)
		for _, e := range s.Environments {
			places, stops = append(places, e.EnvironmentID), append(stops, e.ID)
		}
	}
	known, err := u.FlowDefinitionsByID(ctx, organization, definitions)
	if err != nil {
		return v, err
	}
	for id, f := range known {
		if v.flows[id], err = u.flows.Read(f.Definition); err != nil {
			return v, err
		}
	}
	if v.environments, err = u.EnvironmentsByID(ctx, organization, places); err != nil {
		return v, err
	}
	if v.deployments, err = u.DeploymentsByRolloutEnvironment(ctx, organization, stops); err != nil {
		return v, err
	}
	if v.contacts, err = u.Contacts(ctx, organization, places); err != nil {
		return v, err
	}
	if err := u.readWaves(ctx, organization, stops, &v); err != nil {
		return v, err
	}
	if err := u.readPeople(ctx, organization, &v); err != nil {
		return v, err
	}
	var deployments, services []int64
	for _, of := range v.deployments {
		for _, dep := range of {
			deployments, services = append(deployments, dep.ID), append(services, dep.ServiceID)
		}
	}
	if v.gates, err = u.GatesByDeployment(ctx, organization, deployments); err != nil {
		return v, err
	}
	if v.services, err = u.ServicesByID(ctx, organization, services); err != nil {
		return v, err
	}
	return v, u.readControls(ctx, organization, &v)
}

// readPeople reads whom the waits name, and who may end them.
func (u *UseCases) readPeople(ctx context.Context, organization int64, v *waitView) error {
	var holders []int64
	var groups []string
	for _, s := range v.standings {
		if s.Hold.Word.PrincipalID != 0 {
			holders = append(holders, s.Hold.Word.PrincipalID)
		}
		for _, g := range s.Gates {
			for _, one := range g.Requirements() {
				if !slices.Contains(groups, one.Group) {
					groups = append(groups, one.Group)
				}
			}
		}
	}
	var err error
	if v.members, err = u.MembersByID(ctx, organization, holders); err != nil {
		return err
	}
	v.approvers, err = access.ApproversOf(ctx, u, organization, groups)
	return err
}

// nameOf is a principal for people.
func (v waitView) nameOf(by core.PrincipalType, id int64) string {
	return core.Actor{Type: by, ID: id, Name: v.members[id].Name}.DisplayName()
}

// eligible are the members who count for a requirement of a gate: where it needs people, those of its groups.
func (v waitView) eligible(g core.Gate, one core.Requirement, approvers map[string][]int64) []int64 {
	groups := g.Groups()
	if one.Group != "" || len(groups) == 0 {
		return approvers[one.Group]
	}
	var all []int64
	for _, group := range groups {
		for _, a := range v.approvers[group] {
			if a.Type == core.PrincipalUser && slices.Contains(approvers[group], a.ID) && !slices.Contains(all, a.ID) {
				all = append(all, a.ID)
			}
		}
	}
	return all
}

// remaining are the members who can still approve an open gate, by number, and why the approvals that it lacks cannot be reached with
// them; empty while they can.
func (v waitView) remaining(s core.Standing, g core.Gate) (members []int64, stuck string) {
	approvers := v.approvers.In(s.GateTargets(g)...)
	for _, one := range g.States(g.Approvals) {
		lacks, left := one.Quorum-one.Given, 0
		for _, id := range v.eligible(g, one.Requirement, approvers) {
			requester := g.Requester.ID == id && !g.RequesterMayApprove
			answered := slices.ContainsFunc(g.Approvals, func(a core.GateApproval) bool { return a.ID == id })
			if requester || answered {
				continue
			}
			left++
			if lacks > 0 && !slices.Contains(members, id) {
				members = append(members, id)
			}
		}
		if left >= lacks || stuck != "" {
			continue
		}
		of := ""
		if len(g.Also) > 0 && one.Group != "" {
			of = fmt.Sprintf(" of the group %q", one.Group)
		}
		stuck = fmt.Sprintf(
			"nobody can answer it: it needs %d more%s, and only %d of those it is for are left who may approve; "+
				"add members who may, or cancel the rollout", lacks, of, left,
		)
	}
	slices.Sort(members)
	return members, stuck
}

// waits are those of one rollout.
func (v waitView) waits(s core.Standing) []Wait {
	var all []Wait
	if s.Rollout.State == core.RolloutPending {
		all = append(all, Wait{
			Kind: WaitHandOver, Status: WaitPending, Detail: "the workflow engine has not begun it yet", Resolver: "the workflow engine", Since: &s.Rollout.CreatedAt,
		})
	}
	if s.Rollout.State == core.RolloutPaused {
		word, done, resolver := s.Hold.Word, "paused", holders(core.MayDeploy)
		if s.Hold.Aborted {
			done, resolver = "aborted", resolver+", who may retry it, roll it back or cancel it"
		}
		all = append(all, Wait{
			Kind: WaitPause, Status: WaitStopped, Detail: core.Because(done+" by "+v.nameOf(word.PrincipalType, word.PrincipalID), word.Reason),
			Resolver: resolver, Needs: core.MayDeploy, Since: &word.CreatedAt,
		})
	}
	for _, g := range s.Gates {
		resolver := holders(core.MayApprove)
		if groups := g.Lacking(); len(groups) > 0 {
			for i, name := range groups {
				groups[i] = strconv.Quote(name)
			}
			resolver += " in the group " + strings.Join(groups, ", and in the group ")
		}
		if !g.RequesterMayApprove {
			resolver += ", but not who has asked for the rollout"
		}
		detail := core.Because(fmt.Sprintf("gate %q asks for approval, and has %s", g.GateID, g.Progress(g.Approvals)), g.Reason)
		passage := s.Hold.WaitingFor(g.GateID)
		if passage != "" {
			detail += fmt.Sprintf("; passage %q needs it", passage)
		} else if slices.Contains(s.Hold.Asking, g.GateID) {
			passage = g.GateID
		}
		if note := g.MergeNote(); note != "" {
			detail += "; " + note
		}
		status := WaitPending
		approvers, problem := v.remaining(s, g)
		if problem != "" {
			detail += "; " + problem
			status = WaitUnsatisfiable
		}
		all = append(all, Wait{
			Kind: WaitApproval, Status: status, Subject: g.GateID, Passage: passage, Requirements: g.States(g.Approvals), Approvers: approvers,
			Detail: detail, Resolver: resolver, Needs: core.MayApprove, Since: &g.RequestedAt, Until: g.ExpiresAt(), GateID: g.GateID,
			EnvironmentID: v.environmentOf(s, g.GateID),
		})
	}
	all = append(all, v.stops(s)...)
	for _, e := range s.Environments {
		all = append(all, v.waitsIn(s, e)...)
	}
	return all
}

// waitsIn are those that lie in one environment.
func (v waitView) waitsIn(s core.Standing, e core.RolloutEnvironment) []Wait {
	environment := v.environments[e.EnvironmentID]
	if e.State.Terminal() {
		return nil
	}
	var all []Wait
	if environment.Readiness != core.ReadinessReady {
		all = append(all, Wait{
			Kind: WaitEnvironment, Status: readinessStatus(environment.Readiness), Subject: environment.Name, Detail: fmt.Sprintf(
				"environment %q is not ready: %s", environment.Name, core.NotReady(environment.Readiness, environment.ReadinessReason),
			),
			Resolver: "the environment's onboarding; " + holders(core.MayConfigure) + " may begin it again", Needs: core.MayConfigure,
			EnvironmentID: e.EnvironmentID,
		})
	}
	// What was not reported yet is left out.
	if c, known := v.contacts[e.EnvironmentID]; known && !c.Reachable {
		all = append(all, Wait{
			Kind: WaitAgent, Status: WaitFailed, Subject: environment.Name, Detail: core.Because(fmt.Sprintf("nobody can be reached who acts in %q", environment.Name), c.Reason),
			Resolver: "the agent of the environment, when it is back", Since: &c.Since, EnvironmentID: e.EnvironmentID,
		})
	}
	for gate := range s.Hold.At {
		since, reached := s.Hold.Since[gate]
		weight, ok := strings.CutPrefix(gate, environment.Name+"/")
		if !ok || !reached {
			continue
		}
		if until := since.Add(v.soak(s, environment.Name, weight)); v.now.Before(until) {
			all = append(all, Wait{
				Kind: WaitSoak, Status: WaitPending, Subject: gate, Detail: fmt.Sprintf("soaks at %s %% in %q", weight, environment.Name), Resolver: "time",
				Since: &since, Until: &until, GateID: gate, EnvironmentID: e.EnvironmentID,
			})
		}
	}
	slices.SortFunc(all, func(a, b Wait) int { return strings.Compare(a.GateID, b.GateID) })
	if w, waits := v.wave(e, environment); waits {
		all = append(all, w)
	}
	for _, dep := range v.deployments[e.ID] {
		if s.Hold.Aborted && s.Rollout.State == core.RolloutPaused {
			break // taken back: nothing moves
		}
		if w, ok := v.moving(dep, environment); ok {
			if s.Hold.Aborted {
				w.Detail = fmt.Sprintf("%s is being taken back in %q", v.services[dep.ServiceID].Name, environment.Name)
			}
			all = append(all, w)
		}
	}
	return all
}

// moving is the wait for a deployment that is at no gate.
func (v waitView) moving(dep core.Deployment, e core.Environment) (Wait, bool) {
	if dep.State != core.DeploymentDeploying {
		return Wait{}, false
	}
	since := dep.StartedAt
	for _, g := range v.gates[dep.ID] {
		if g.PassedAt == nil {
			return Wait{}, false // it stands there, and waits with the others
		}
		since = g.PassedAt
	}
	return Wait{
		Kind: WaitHealth, Status: WaitPending, Subject: v.services[dep.ServiceID].Name, Detail: fmt.Sprintf("%s is being deployed to %q", v.services[dep.ServiceID].Name, e.Name), Resolver: "the cluster",
		Since: since, EnvironmentID: e.ID, ServiceID: dep.ServiceID,
	}, true
}

// readinessStatus is that of waiting for an environment which is not ready.
func readinessStatus(r core.Readiness) WaitStatus {
	if r == core.ReadinessNot {
		return WaitFailed
	}
	return WaitPending
}

// soak is how long the pipeline wants a gate of an environment to last.
func (v waitView) soak(s core.Standing, environment, weight string) time.Duration {
	for _, step := range v.flows[s.Rollout.FlowDefinitionID].Deploys {
		if step.Environment != environment {
			continue
		}
		for _, g := range step.Gates {
			if strconv.Itoa(g.Weight) == weight {
				return time.Duration(g.SoakDuration) * time.Second
			}
		}
	}
	return 0
}

// environmentOf is whose gate it is; 0 for one that is not an environment's. Gates are named for their environments:
// <environment>, or <environment>/<weight>.
func (v waitView) environmentOf(s core.Standing, gate string) int64 {
	name, _, _ := strings.Cut(gate, "/")
	for _, e := range s.Environments {
		if v.environments[e.EnvironmentID].Name == name {
			return e.EnvironmentID
		}
	}
	return 0
}

// holders says for people who has a permission.
func holders(p core.Permission) string { return "members with the permission " + p.String() }
