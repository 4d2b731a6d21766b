package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// readControls reads what may stop the requested passages of rollouts.
func (u *UseCases) readControls(ctx context.Context, organization int64, v *waitView) error {
	var rollouts, sets, environments []int64
	for id, s := range v.standings {
		if s.Rollout.State.Terminal() || len(s.Hold.Asking) == 0 {
			continue
		}
		rollouts, sets = append(rollouts, id), append(sets, s.Rollout.VersionSetID)
		for _, e := range s.Environments {
			environments = append(environments, e.EnvironmentID)
		}
	}
	v.controls = map[int64]stopView{}
	if len(rollouts) == 0 {
		return nil
	}
	freezes, err := u.FreezesInForce(ctx, organization, v.now)
	if err != nil {
		return err
	}
	labelled, err := u.labelled(ctx, organization, v, freezes, rollouts, environments)
	if err != nil {
		return err
	}
	vetoes, err := u.VetoesByVersionSet(ctx, organization, core.Distinct(sets))
	if err != nil {
		return err
	}
	pins, err := u.PinsByEnvironment(ctx, organization, core.Distinct(environments))
	if err != nil {
		return err
	}
	requesters, err := u.RolloutRequesters(ctx, organization, rollouts)
	if err != nil {
		return err
	}
	checks, err := u.ChecksByRollout(ctx, organization, rollouts)
	if err != nil {
		return err
	}
	var reports map[int64][]core.CheckReport
	var runs map[int64][]core.CheckRun
	if len(checks) > 0 {
		if reports, err = u.CheckReports(ctx, organization, core.Distinct(sets)); err != nil {
			return err
		}
		if runs, err = u.CheckRuns(ctx, organization, rollouts); err != nil {
			return err
		}
	}
	var places, followed, services []int64
	for _, pinned := range checks {
		places = append(places, core.HealthPlaces(pinned)...)
	}
	for _, id := range rollouts {
		followed = append(followed, core.FollowedPlaces(v.standings[id].Environments)...)
		for _, e := range v.standings[id].Environments {
			for _, d := range v.deployments[e.ID] {
				services = append(services, d.ServiceID)
			}
		}
	}
	observed, err := core.ObservedIn(ctx, u, organization, core.Distinct(places))
	if err != nil {
		return err
	}
	health, err := core.FollowedIn(ctx, u, organization, core.Distinct(followed), core.Distinct(services))
	if err != nil {
		return err
	}
	observed = observed.With(health)
	application := func(id int64) int64 { return v.standings[id].Rollout.ApplicationID }
	inForce, err := core.InForceOf(ctx, u, organization, byApplication(checks, application))
	if err != nil {
		return err
	}
	decisions, err := u.LatestPolicyDecisions(ctx, organization, rollouts)
	if err != nil {
		return err
	}
	for _, id := range rollouts {
		set := v.standings[id].Rollout.VersionSetID
		v.controls[id] = stopView{
			core.Controls{Freezes: freezes, Vetoes: vetoes[set], Pins: pins, Details: labelled},
			requesters[id].Automatic(),
			core.Checks{
				Pinned: checks[id], Reports: reports[set], Observed: observed, Services: namesOf(v.services), Runs: runs[id],
				Retired: core.RetiredOf(slices.Collect(maps.Values(v.services))),
				InForce: inForce[application(id)],
			},
			decisions[id],
		}
	}
	return nil
}

// labelled are the details that freezes by label ask of.
func (u *UseCases) labelled(
	ctx context.Context, organization int64, v *waitView, freezes []core.Freeze, rollouts, environments []int64,
) (map[core.Detailed]core.Details, error) {
	var applications []int64
	for _, id := range rollouts {
		applications = append(applications, v.standings[id].Rollout.ApplicationID)
	}
	of := core.Controls{Freezes: freezes}.Labelled(applications, environments)
	if len(of) == 0 {
		return nil, nil
	}
	return u.Details(ctx, organization, of)
}

// stops are the freezes, vetoes and pins that keep requested passages of a rollout closed.
func (v waitView) stops(s core.Standing) []Wait {
	controls := v.controls[s.Rollout.ID]
	var all []Wait
	for _, gate := range s.Hold.Asking {
		name, _, atWeight := strings.Cut(gate, "/")
		environment := v.guardedBy(s, name)
		point := core.PassagePoint{
			ApplicationID: s.Rollout.ApplicationID, EnvironmentID: environment, Tier: v.environments[environment].Tier,
			Rollback:  s.Rollout.RollbackOf != 0 && !controls.stoppedAnyway(s.Hold.Stopped[gate]),
			Automatic: controls.automatic, Entrance: !atWeight, Bypassed: s.Hold.Bypassed,
		}
		for _, stop := range controls.Stopping(point, v.now) {
			all = append(all, v.stop(gate, environment, stop))
		}
		for _, d := range controls.decisions {
			// An entrance includes the weights that are skipped.
			included := d.GateID == gate ||
				slices.ContainsFunc(s.Hold.Skips[gate], func(c core.Condition) bool { return c.GateID == d.GateID })
			if included && d.Verdict == policy.Deny {
				all = append(all, v.denials(gate, environment, d)...)
			}
		}
		if point.Entrance {
			all = append(all, v.checksOf(s, gate, controls.checks)...)
		}
	}
	return all
}

// stoppedAnyway reports whether the journal says that a freeze has stopped a rollback although it lets rollbacks pass:
// what the rollout goes back to has never run there.
func (v stopView) stoppedAnyway(stops []core.Condition) bool {
	return slices.ContainsFunc(stops, func(c core.Condition) bool {
		return c.Kind == core.ConditionFreeze &&
			slices.ContainsFunc(v.Freezes, func(f core.Freeze) bool { return f.ID == c.ControlID && !f.Rollbacks })
	})
}

func (v waitView) stop(gate string, environment int64, s core.Stop) Wait {
	w := Wait{
		Status: WaitStopped, Subject: s.Subject(), Passage: gate, GateID: gate, EnvironmentID: environment,
		Since: &s.Since, Until: s.Until, Needs: core.MayFreeze,
	}
	switch s.Kind {
	case core.StopFreeze:
		w.Kind, w.Resolver = WaitFreeze, fmt.Sprintf(
			"time; %s may end the freeze, and %s may bypass it for this rollout", holders(core.MayFreeze), holders(core.MayBypass),
		)
	case core.StopVeto:
		w.Kind, w.Resolver = WaitVeto, holders(core.MayFreeze)+", who may lift the veto"
	case core.StopPin:
		w.Kind, w.Resolver = WaitPin, holders(core.MayFreeze)+", who may unpin the environment"
	case core.StopPolicy: // denials lists these
	}
	w.Detail = fmt.Sprintf("passage %q: %s", gate, s.Sentence())
	return w
}

// denials are the policies that deny a passage, each with what it says.
func (v waitView) denials(gate string, environment int64, d core.PolicyDecision) []Wait {
	var all []Wait
	for _, r := range d.Deciding() {
		all = append(all, Wait{
			Kind: WaitPolicy, Status: WaitStopped, Subject: r.Name(), Passage: gate, GateID: gate, EnvironmentID: environment, Since: &d.CreatedAt,
			Needs: core.MayConfigure, Detail: fmt.Sprintf("passage %q: %s (%s)", gate, r.Sentence(), d.Name()),
			Resolver: "a change of what the policy asks about, which is evaluated every 5 minutes; " + holders(core.MayConfigure) +
				" change policies for new rollouts",
		})
	}
	return all
}

// guardedBy is the environment that a gate enters or is in, and for a step between environments the one behind it; 0 for none.
func (v waitView) guardedBy(s core.Standing, gate string) int64 {
	for _, e := range s.Environments {
		if v.environments[e.EnvironmentID].Name == gate {
			return e.EnvironmentID
		}
	}
	for _, step := range v.flows[s.Rollout.FlowDefinitionID].Approvals {
		if step.GateID == gate {
			return v.environmentOf(s, step.Before)
		}
	}
	return 0
}

// checksOf are the checks that keep an entrance closed.
func (v waitView) checksOf(s core.Standing, gate string, checks core.Checks) []Wait {
	places, index := checkPlaces(s.Environments, v.deployments), -1
	for i, e := range s.Environments {
		if v.environments[e.EnvironmentID].Name == gate {
			index = i
		}
	}
	if index < 0 {
		return nil
	}
	var all []Wait
	for _, state := range checks.Entering(places, index, v.now) {
		if state.Phase == core.CheckSuccess {
			continue
		}
		w := Wait{
			Kind: WaitCheck, Status: WaitPending, Subject: state.Key, Passage: gate, Link: state.Link, Detail: fmt.Sprintf(
				"passage %q needs check %q of %q, which is %s: %s", gate, state.Key, v.environments[state.EnvironmentID].Name, state.Phase,
				state.Detail,
			),
			Resolver: "a report of success by every reporter; " + holders(core.MayReport), Needs: core.MayReport, Since: state.Since,
			Until: state.Next, GateID: gate, EnvironmentID: state.EnvironmentID,
		}
		if state.Phase == core.CheckFailure {
			w.Status = WaitFailed
		}
		if state.Kind == core.CheckTimer || state.Kind == core.CheckSchedule {
			w.Resolver, w.Needs = "time", 0
		}
		if state.Kind == core.CheckHealth || state.Kind == core.CheckPrevious {
			w.Resolver, w.Needs = "the health of what was deployed", 0
		}
		if state.InSync {
			w.Resolver = "the health of what was deployed, and a look that finds nothing that differs from it"
		}
		if state.Kind.Program() {
			w.Resolver, w.Needs = "the program of its kind, "+string(state.Kind), 0
		}
		if s.Rollout.RollbackOf != 0 && s.Hold.Broken == nil {
			w.Resolver += "; in a rollback to what has run there also break-glass by " + holders(core.MayBreakGlass)
		}
		all = append(all, w)
	}
	return all
}
