package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// maxDegradedAfter bounds the wait: after a week it is no longer expected.
const maxDegradedAfter = 7 * 24 * time.Hour

// SetRollbackPolicy gives an application its policy. It counts for what fails or degrades from now on; a clock
// that runs already may only be lengthened or stopped by it.
func (u *UseCases) SetRollbackPolicy(ctx context.Context, a core.Actor, p core.RollbackPolicy) (core.Application, error) {
	if p.DegradedAfter < 0 || p.DegradedAfter > maxDegradedAfter {
		return core.Application{}, fault.InvalidFields(fault.Field{
			Name: "/degradedAfterSeconds", Problem: fmt.Sprintf(
				"found %.0f; expected 0 to %.0f", p.DegradedAfter.Seconds(), maxDegradedAfter.Seconds(),
			),
		})
	}
	a = a.Proposing(p)
	var application core.Application
	err := core.Within(ctx, u.store, a, core.ActionSetRollbackPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionSetRollbackPolicy, p.ApplicationID); err != nil {
			return err
		}
		all, err := tx.RollbackPolicies(ctx, a.Organization, []int64{p.ApplicationID})
		if err != nil {
			return err
		}
		before, own := all[p.ApplicationID]
		if !own {
			before = core.DefaultRollbackPolicy(p.ApplicationID)
		}
		if err := tx.SaveRollbackPolicy(ctx, p); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, policyChange(core.ActionSetRollbackPolicy, application), rollbackState(before), rollbackState(p))
	})
	return application, err
}

// SetRolloutPolicy gives an application its policy. It counts for rollouts that are made from now on.
func (u *UseCases) SetRolloutPolicy(ctx context.Context, a core.Actor, p core.RolloutPolicy) (core.Application, error) {
	a = a.Proposing(p)
	var application core.Application
	err := core.Within(ctx, u.store, a, core.ActionSetRolloutPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionSetRolloutPolicy, p.ApplicationID); err != nil {
			return err
		}
		all, err := tx.RolloutPolicies(ctx, a.Organization, []int64{p.ApplicationID})
		if err != nil {
			return err
		}
		before, own := all[p.ApplicationID]
		if !own {
			before = core.DefaultRolloutPolicy(p.ApplicationID)
		}
		if err := tx.SaveRolloutPolicy(ctx, p); err != nil {
			return err
		}
		state := func(p core.RolloutPolicy) map[string]any {
			return map[string]any{"on_failure": p.OnFailure, "on_newer": p.OnNewer}
		}
		return core.Record(ctx, tx, a, policyChange(core.ActionSetRolloutPolicy, application), state(before), state(p))
	})
	return application, err
}

// mayConfigure is nil when an actor may do something with an application wherever it goes.
func mayConfigure(ctx context.Context, tx Tx, a core.Actor, action core.Action, application int64) error {
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application)
	if err != nil {
		return err
	}
	return a.MayIn(action, targets...)
}

// policyChange is a row of the journal of changes about a policy of an application.
func policyChange(action core.Action, of core.Application) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: of.ID, Name: of.Name}, ApplicationID: of.ID,
	}
}

func rollbackState(p core.RollbackPolicy) map[string]any {
	return map[string]any{
		"on_failed": p.OnFailed, "on_degraded": p.OnDegraded, "degraded_after": int(p.DegradedAfter.Seconds()), "in_full": p.InFull,
	}
}

// Policies decide about the end of a rollout and about what lets it past a freeze only where one of them names that (D51).

// mayMention reports whether one of some policies may be about an action.
func mayMention(all []core.ConcerningPolicy, action policy.Action) bool {
	return slices.ContainsFunc(all, func(s core.ConcerningPolicy) bool { return policy.Mentions(s.Text, action) })
}

// policyReview is how often a passage is evaluated again that policies keep closed: what they see of the time changes by itself.
const policyReview = 5 * time.Minute

// textsOf are the texts of policies.
func textsOf(all []core.ConcerningPolicy) []string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = s.Text
	}
	return texts
}

// decideOwn decides by the latest policies and by those that the rollout was created with: the stricter verdict holds. Environments are
// those whose policies count, by number.
func (u *UseCases) decideOwn(all []core.ConcerningPolicy, environments map[int64]string, r policy.Request) policy.Decision {
	var latest, pinned []core.PolicySet
	for _, s := range all {
		if s.Latest {
			latest = append(latest, s.PolicySet)
		}
		if s.Pinned {
			pinned = append(pinned, s.PolicySet)
		}
	}
	d := u.policies.DecideOwn(latest, environments, r)
	if len(pinned) == 0 {
		return d
	}
	return d.With(u.policies.DecideOwn(pinned, environments, r))
}

// ownRequest is what policies see of a rollout as a whole, with the environments that it goes to.
func (t *tree) ownRequest(ctx context.Context, action policy.Action) (policy.Request, map[int64]string, error) {
	r := policy.Request{
		Action: action, At: t.cause.at, Strategy: string(t.rollout.Plan.Strategy), Inputs: t.rollout.Inputs,
		Rollback: t.rollout.RollbackOf != 0,
	}
	names := map[int64]string{}
	places, err := t.tx.PolicyPlaces(ctx, t.rollout.ID, t.environmentIDs())
	if err != nil {
		return r, names, err
	}
	requester, err := t.tx.PolicyRequester(ctx, t.rollout.ID)
	if err != nil {
		return r, names, err
	}
	r.Rollout = t.policyRollout(requester)
	for _, b := range t.environments {
		e := places[b.EnvironmentID]
		names[b.EnvironmentID] = e.Name
		r.Environments = append(r.Environments, e)
		if b.State == core.RolloutCompleted {
			r.Completed = append(r.Completed, e)
		}
	}
	return r, names, describeSet(ctx, t.tx, t.cause, t.rollout.ApplicationID, t.rollout.VersionSetID, t.environmentIDs(), 0, &r)
}

// environmentIDs are the environments of a rollout.
func (t *tree) environmentIDs() []int64 {
	ids := make([]int64, len(t.environments))
	for i, b := range t.environments {
		ids[i] = b.EnvironmentID
	}
	return ids
}

// stopIDs are the environments of a plan.
func (p plan) stopIDs() []int64 {
	ids := make([]int64, len(p.stops))
	for i, s := range p.stops {
		ids[i] = s.environment.ID
	}
	return ids
}

// policyPlaces are the environments of a plan as policies see them: a fleet with the targets that the rollout would pin.
func (p plan) policyPlaces(ctx context.Context, tx Tx) (map[int64]core.PolicyPlace, error) {
	places, err := tx.PolicyPlaces(ctx, 0, p.stopIDs())
	for _, s := range p.stops {
		e, known := places[s.environment.ID]
		if s.fleet == nil || !known {
			continue
		}
		e.Agents = nil
		for _, target := range slices.Concat(s.fleet.waves...) {
			e.Agents = append(e.Agents, core.PolicyAgent{Name: target.Name, Labels: target.Labels})
		}
		places[s.environment.ID] = e
	}
	return places, err
}

// policyRollout is the rollout as policies see it.
func (t *tree) policyRollout(requester core.Actor) *policy.Rollout {
	return &policy.Rollout{
		ID: t.rollout.ID, Rollback: t.rollout.RollbackOf != 0, Automatic: requester.Type.Automatic(),
		MinutesOld: max(0, int(t.cause.at.Sub(t.rollout.CreatedAt).Minutes())),
	}
}

// describeRecord adds to a request the details of an application, and the environments in which a version set has been completed.
func describeRecord(ctx context.Context, tx Tx, organization, application, set int64, r *policy.Request) error {
	of := core.Detailed{Kind: core.ChangedApplication, ID: application}
	details, err := tx.Details(ctx, organization, []core.Detailed{of})
	if err != nil {
		return err
	}
	r.Labels, r.Owner = details[of].Labels, details[of].Owner
	ran, err := tx.EnvironmentsThatRan(ctx, set)
	if err != nil {
		return err
	}
	places, err := tx.PolicyPlaces(ctx, 0, slices.Collect(maps.Keys(ran)))
	r.Passed = slices.Collect(maps.Values(places))
	slices.SortFunc(r.Passed, func(a, b policy.Environment) int { return strings.Compare(a.Name, b.Name) })
	return err
}

// changeOf is what a rollout would change where a version set is live; 0 for nothing.
func changeOf(ctx context.Context, tx Tx, organization int64, r core.Rollout, live int64) (*policy.Change, error) {
	sets := []int64{r.VersionSetID}
	if live != 0 {
		sets = append(sets, live)
	}
	entries, err := tx.EntriesByVersionSet(ctx, organization, core.Distinct(sets))
	if err != nil {
		return nil, err
	}
	services, err := tx.ServicesByApplication(ctx, organization, []int64{r.ApplicationID})
	change := &policy.Change{First: live == 0}
	for _, s := range services[r.ApplicationID] {
		differs := func(of, in int64) bool {
			return slices.ContainsFunc(entries[of], func(e core.VersionSetEntry) bool {
				return e.ServiceID == s.ID && !slices.ContainsFunc(entries[in], func(o core.VersionSetEntry) bool { return o.VersionID == e.VersionID })
			})
		}
		if s.RetiredAt == nil && (differs(r.VersionSetID, live) || live != 0 && differs(live, r.VersionSetID)) {
			change.Services = append(change.Services, s.Name)
		}
	}
	slices.Sort(change.Services)
	return change, err
}

// asksOfSize reports whether some policies may ask how large a change is.
func asksOfSize(all []core.ConcerningPolicy) bool {
	return slices.ContainsFunc(all, func(s core.ConcerningPolicy) bool {
		return policy.MentionsAttribute(s.Text, "files") || policy.MentionsAttribute(s.Text, "lines")
	})
}

// measure adds to a change how large it is in an environment, by the latest preview of the version set, if that is not outdated. Only sizes
// count that a driver has found from what is live: those from a branch do not have what authors have pushed. Nothing is added where that is
// not known, so at weights, where something has been committed since.
func (p passages) measure(ctx context.Context, b *branch, change *policy.Change) error {
	preview, found, err := p.tx.LatestPreview(ctx, p.rollout)
	if err != nil || !found || preview.State != core.PreviewMade {
		return err
	}
	for _, e := range preview.Environments {
		// Without changes it is not known whether there are none, or they could not be listed.
		if e.EnvironmentID == b.EnvironmentID && e.FromLive && e.Reason == "" && len(e.Changes) > 0 {
			change.Files, change.Lines = core.SizeOf(e.Changes)
		}
	}
	return nil
}

// mayComplete is what policies decide about the end of a rollout whose run has reported that everything is done; the zero value where
// none is about it. It is recorded.
func (u *UseCases) mayComplete(ctx context.Context, t *tree) (policy.Decision, error) {
	all, err := t.tx.PoliciesConcerning(ctx, t.rollout.ApplicationID, t.rollout.ID)
	if err != nil || !mayMention(all, policy.CompleteRollout) {
		return policy.Decision{Verdict: policy.Allow}, err
	}
	r, names, err := t.ownRequest(ctx, policy.CompleteRollout)
	if err != nil {
		return policy.Decision{}, err
	}
	requester, err := t.tx.PolicyRequester(ctx, t.rollout.ID)
	if err != nil {
		return policy.Decision{}, err
	}
	r.Principal, r.Automatic = core.PolicyPrincipal(requester), requester.Type.Automatic()
	if _, r.Degraded, err = t.tx.DegradedSince(ctx, t.rollout.ID); err != nil {
		return policy.Decision{}, err
	}
	r = r.Short(textsOf(all)...)
	d := u.decideOwn(all, names, r)
	if len(d.Rulings) == 0 {
		return d, nil
	}
	_, err = t.tx.AddPolicyDecision(ctx, core.PolicyDecision{
		RolloutID: t.rollout.ID, GateID: string(policy.CompleteRollout), Decision: d, Request: r, CreatedAt: t.cause.at,
	})
	return d, err
}

// complete moves a rollout whose run has reported that everything is done. If policies deny it, the rollout fails, and what follows is as
// after any other failure.
func (u *UseCases) complete(ctx context.Context, t *tree, reason string) error {
	d, err := u.mayComplete(ctx, t)
	if err != nil {
		return err
	}
	if d.Verdict == policy.Allow {
		return t.moveRollout(ctx, core.VerbComplete, reason)
	}
	return t.moveRollout(ctx, core.VerbFail, "policies do not allow the rollout to be completed: "+d.Sentence())
}

// deniedBypass is the error of a bypass that policies do not allow, with the decision, which is recorded after the transaction was rolled
// back.
type deniedBypass struct{ decision core.PolicyDecision }

// Error implements error.
func (d *deniedBypass) Error() string {
	text := "policies do not allow to bypass the freeze: " + d.decision.Sentence()
	if d.decision.ID != 0 {
		text += fmt.Sprintf(" (%s)", d.decision.Name())
	}
	return text
}

// Unwrap makes it a Refused.
func (d *deniedBypass) Unwrap() error { return fault.New(fault.Refused, "%s", d.Error()) }

// mayBypass is nil where policies allow an actor to let a passage past freezes, or none is about that. What they decided is recorded.
func (u *UseCases) mayBypass(ctx context.Context, p passages, a core.Actor, gate, reason string, freezes []string) error {
	if !mayMention(p.policies, policy.BypassFreeze) {
		return nil
	}
	r, _, err := p.ownRequest(ctx, policy.BypassFreeze)
	if err != nil {
		return err
	}
	point, err := p.point(ctx, gate)
	if err != nil {
		return err
	}
	names := map[int64]string{}
	at := slices.IndexFunc(r.Environments, func(e policy.Environment) bool { return e.Name == p.places[point.EnvironmentID].Name })
	if place, goes := p.places[point.EnvironmentID]; goes && at >= 0 {
		r.Environment = &r.Environments[at]
		names[point.EnvironmentID] = place.Name
	}
	r.Environments, r.Completed = nil, nil
	if r.Incidents, err = p.tx.OpenIncidents(ctx, p.rollout.ApplicationID, []int64{point.EnvironmentID}, p.cause.at); err != nil {
		return err
	}
	if a.Groups, err = p.tx.MemberGroups(ctx, a.ID); err != nil {
		return err
	}
	requester, err := p.tx.PolicyRequester(ctx, p.rollout.ID)
	if err != nil {
		return err
	}
	r.Principal, r.OwnRollout = core.PolicyPrincipal(a), requester.Principal() == a.Principal()
	r.Gate, r.Reason, r.Freezes = gate, reason, freezes
	r = r.Short(textsOf(p.policies)...)
	d := core.PolicyDecision{
		RolloutID: p.rollout.ID, GateID: gate + "/" + string(policy.BypassFreeze), Request: r, CreatedAt: p.cause.at,
		Decision: u.decideOwn(p.policies, names, r),
	}
	switch {
	case d.Verdict != policy.Allow:
		return &deniedBypass{d}
	case len(d.Rulings) == 0:
		return nil
	}
	_, err = p.tx.AddPolicyDecision(ctx, d)
	return err
}

// keepDeniedBypass records what was decided about a bypass that was rolled back, and answers the error for people.
func (u *UseCases) keepDeniedBypass(ctx context.Context, organization int64, err error) error {
	var denied *deniedBypass
	if !errors.As(err, &denied) {
		return err
	}
	kept := *denied
	failed := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		kept.decision.ID, err = tx.AddPolicyDecision(ctx, denied.decision)
		return err
	})
	if failed != nil {
		return failed
	}
	return &kept
}

// pinPolicies keeps the versions of the policies that a new rollout is created with, and what they decided.
func (u *UseCases) pinPolicies(ctx context.Context, tx Tx, c cause, p plan, rollout int64) error {
	concerning, err := tx.PoliciesConcerning(ctx, p.application.ID, 0)
	if err != nil || len(concerning) == 0 {
		return err
	}
	for _, s := range concerning {
		enters := slices.ContainsFunc(p.stops, func(one stop) bool { return one.environment.ID == s.EnvironmentID })
		if s.Installation || s.EnvironmentID != 0 && !enters {
			continue
		}
		if err := tx.PinPolicy(ctx, rollout, s.PolicySet); err != nil {
			return err
		}
	}
	d, r, err := u.judgePlan(ctx, tx, c, p, concerning, 0)
	if err != nil || len(d.Rulings) == 0 {
		return err
	}
	_, err = tx.AddPolicyDecision(ctx, core.PolicyDecision{RolloutID: rollout, Decision: d, Request: r, CreatedAt: c.at})
	return err
}
