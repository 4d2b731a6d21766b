package rollout

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Opening is what the passage through a gate lets the rollout's run change (D46). The engine enforces it, so it is derived from the
// record and never from what the run has requested.
type Opening struct {
	// EnvironmentID is the environment that may be changed; 0 for a gate that opens none, as a step between environments.
	EnvironmentID int64
	// Weight is the weight that may be left in the environment; 0 for the environment's entrance.
	Weight int
	// Wave is the wave of a fleet whose targets may be changed; 0 for any other gate.
	Wave int
	// PinnedWeights are the weights that need a passage of their own, rising; only at the entrance.
	PinnedWeights []int
	// Places are what may be changed, as the rollout has pinned it; only at the entrance, and for a wave.
	Places []core.Place
}

// opening derives what a gate of the rollout opens. The names of environments contain no slash, so that of a weight gate is unambiguous.
func (t *tree) opening(ctx context.Context, gate string) (Opening, error) {
	if known, ok := t.openings[gate]; ok {
		return known, nil
	}
	name, weight, atWeight := strings.Cut(gate, "/")
	id := t.placeNamed(name)
	if id == 0 {
		return Opening{}, nil
	}
	if mayBeWave(gate) {
		return t.openingOfWave(ctx, gate)
	}
	if atWeight {
		percent, _ := strconv.Atoi(weight) // of what is no number it makes 0
		if weightGate(name, percent) != gate || percent < 1 || percent > 100 {
			return Opening{}, nil
		}
		return Opening{EnvironmentID: id, Weight: percent}, nil
	}
	o := Opening{EnvironmentID: id}
	var err error
	o.Places, o.PinnedWeights, err = t.tx.PinnedPlaces(ctx, t.rollout.ID, id)
	return o, err
}

// pinPlaces keeps what the passage of a stop will open, and at which weights the rollout stops there.
func (p plan) pinPlaces(ctx context.Context, tx Tx, rollout int64, s stop) error {
	places, err := setup.StepPlaces(p.drivers, s.environment, s.step, s.application.Discovered)
	if err != nil {
		return err
	}
	if s.fleet != nil {
		if err := s.fleet.fits(s.environment.Name, places); err != nil {
			return err
		}
	}
	var weights []int
	if p.skipsWeights(s) == "" {
		for _, g := range s.step.Gates {
			weights = append(weights, g.Weight)
		}
	}
	return tx.PinPlaces(ctx, rollout, s.environment.ID, places, weights)
}

// point is what decides which controls concern a passage.
func (p passages) point(ctx context.Context, gate string) (core.PassagePoint, error) {
	name, _, atWeight := strings.Cut(gate, "/")
	point := core.PassagePoint{ApplicationID: p.rollout.ApplicationID, Bypassed: p.hold.Bypassed}
	if b := p.entrance(name); b != nil {
		point.EnvironmentID, point.Entrance = b.EnvironmentID, !atWeight
	} else {
		point.EnvironmentID = p.rules[gate].BeforeEnvironmentID // a step guards the environment behind it
	}
	if place, goes := p.places[point.EnvironmentID]; goes || point.EnvironmentID == 0 {
		point.Tier = place.Tier
		return point, nil
	}
	environments, err := p.tx.EnvironmentsByID(ctx, p.cause.Organization, []int64{point.EnvironmentID})
	point.Tier = environments[point.EnvironmentID].Tier
	return point, err
}

// stops are the freezes, vetoes and pins that keep a passage closed now (D49). They are held, so that none of them begins or ends before
// the transaction does: no other one stops a passage that is granted, and the end of each finds what it has stopped.
func (p passages) stops(ctx context.Context, gate string) ([]core.Stop, error) {
	point, err := p.point(ctx, gate)
	if err != nil {
		return nil, err
	}
	var (
		controls core.Controls
		opens    Opening
	)
	err = p.tx.Together(ctx, func(ctx context.Context) (err error) {
		controls, err = p.tx.Controls(ctx, p.rollout.VersionSetID, []int64{point.EnvironmentID}, p.cause.at)
		return err
	}, func(ctx context.Context) (err error) {
		opens, err = p.opening(ctx, gate) // a grant needs it
		return err
	})
	if err != nil {
		return nil, err
	}
	if p.openings == nil {
		p.openings = map[string]Opening{}
	}
	p.openings[gate] = opens
	if len(controls.Freezes) > 0 && p.rollout.RollbackOf != 0 {
		// What has never run in an environment is no rollback there, whatever the rollout is called.
		ran, err := p.tx.EnvironmentsThatRan(ctx, p.rollout.VersionSetID)
		if err != nil {
			return nil, err
		}
		point.Rollback = ran[point.EnvironmentID]
	}
	if len(controls.Pins) > 0 {
		requesters, err := p.tx.RolloutRequesters(ctx, p.cause.Organization, []int64{p.rollout.ID})
		if err != nil {
			return nil, err
		}
		point.Automatic = requesters[p.rollout.ID].Automatic()
	}
	return p.stopping(ctx, &controls, point)
}

// stop notes what keeps a passage closed that has everything else: in the journal, unless its last row says the same, and where the end of
// each control finds it.
func (p passages) stop(ctx context.Context, gate string, stops []core.Stop) error {
	conditions := make([]core.Condition, len(stops))
	for i, s := range stops {
		conditions[i] = s.Condition()
		if err := p.tx.AddPassageStop(ctx, p.rollout.ID, gate, s); err != nil {
			return err
		}
		if s.Until == nil {
			continue
		}
		if err := p.tx.ScheduleReview(ctx, p.rollout.ID, *s.Until); err != nil {
			return err
		}
	}
	same := slices.EqualFunc(p.hold.Stopped[gate], conditions, func(a, b core.Condition) bool {
		same := a.Policies == nil || b.Policies == nil || a.Policies.Same(*b.Policies)
		return a.Kind == b.Kind && a.ControlID == b.ControlID && same
	})
	if same {
		return nil
	}
	row := p.requestRow(core.VerbStopPassage, gate, core.DescribeStops(stops))
	row.Conditions = conditions
	return p.tx.Record(ctx, row)
}

// refusePinned is why automation does not begin a rollout: it would enter a pinned environment (D49).
func (p plan) refusePinned(ctx context.Context, tx Tx, c cause) error {
	if !c.Type.Automatic() {
		return nil
	}
	names, ids := map[int64]string{}, make([]int64, len(p.stops))
	for i, s := range p.stops {
		ids[i], names[s.environment.ID] = s.environment.ID, s.environment.Name
	}
	pins, err := tx.PinsByEnvironment(ctx, c.Organization, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if pin, pinned := pins[id]; pinned {
			return core.RefusePinned(names[id], pin)
		}
	}
	return nil
}

// judged is what policies decided about a passage in the present transaction.
type judged struct {
	policy.Decision
	// id is the recorded decision.
	id int64
}

// condition is the decision as the journal has it: with the policies that brought it about, and no others.
func (j *judged) condition() core.Condition {
	d := j.Decision
	d.Rulings = d.Deciding()
	return core.Condition{Kind: core.ConditionPolicy, ControlID: j.id, Outcome: string(j.Verdict), Policies: &d}
}

// verdicts are what policies decide about a passage and those that it includes.
type verdicts []*judged

// allow reports whether policies let a passage through; also where none concern it.
func (v verdicts) allow() bool {
	return !slices.ContainsFunc(v, func(j *judged) bool { return j.Verdict != policy.Allow })
}

// added are the conditions of a passage with the decisions.
func (v verdicts) added(conditions []core.Condition) []core.Condition {
	for _, j := range v {
		conditions = append(conditions, j.condition())
	}
	return conditions
}

// denials are what policies have against a passage, as stops; none where they allow it or require an approval.
func (v verdicts) denials() (stops []core.Stop) {
	for _, j := range v {
		if j.Verdict == policy.Deny {
			stops = append(stops, core.Stop{Kind: core.StopPolicy, Policies: j.condition().Policies, Decision: j.id})
		}
	}
	return stops
}

// judgeAll is judge for a passage and those that it includes: an entrance includes the weights that the program will not stop at, and the
// steps before it that it has left out, so that no program leaves out what policies decide about them (D46).
func (u *UseCases) judgeAll(ctx context.Context, p passages, gate string, requested []core.Condition) (verdicts, error) {
	var all verdicts
	for _, id := range p.includes(gate, requested) {
		j, err := u.judge(ctx, p, id)
		if err != nil {
			return nil, err
		}
		if j != nil {
			all = append(all, j)
		}
	}
	return all, nil
}

// judge is what policies decide about a requested passage (D51); nil where none concern it. The latest policies decide, and those that the
// rollout was created with: the stricter verdict holds. A decision that differs from the one before it is recorded.
func (u *UseCases) judge(ctx context.Context, p passages, gate string) (*judged, error) {
	if len(p.policies) == 0 {
		return nil, nil //nolint:nilnil // no policies, no decision
	}
	if known, ok := p.judged[gate]; ok {
		return known, nil
	}
	point, err := p.point(ctx, gate)
	if err != nil || point.EnvironmentID == 0 { // a step behind the last environment opens nothing
		return nil, err
	}
	request, err := u.passageRequest(ctx, p, gate, point)
	if err != nil {
		return nil, err
	}
	request = request.Short(textsOf(p.policies)...)
	d := u.policies.Decide(p.policies, point.EnvironmentID, request)
	if request.Given = p.given(gate, d); len(request.Given) > 0 {
		d = u.policies.Decide(p.policies, point.EnvironmentID, request)
	}
	if len(d.Rulings) == 0 && d.Verdict == policy.Allow { // there are only those of other environments
		p.judged[gate] = nil
		return nil, nil //nolint:nilnil // as above
	}
	j := &judged{Decision: d}
	p.judged[gate] = j
	latest, err := p.tx.LatestPolicyDecisions(ctx, p.cause.Organization, []int64{p.rollout.ID})
	if err != nil {
		return nil, err
	}
	for _, before := range latest[p.rollout.ID] {
		if before.GateID == gate && before.Same(d) {
			j.id = before.ID
			return j, nil
		}
	}
	j.id, err = p.tx.AddPolicyDecision(ctx, core.PolicyDecision{
		RolloutID: p.rollout.ID, GateID: gate, Decision: d, Request: request, CreatedAt: p.cause.at,
	})
	return j, err
}

// passageRequest is the request of a passage as policies evaluate it.
func (u *UseCases) passageRequest(ctx context.Context, p passages, gate string, point core.PassagePoint) (policy.Request, error) {
	r := policy.Request{
		Action: policy.PassGate, Gate: gate, At: p.cause.at, Strategy: string(p.rollout.Plan.Strategy), Inputs: p.rollout.Inputs,
	}
	requester, err := p.tx.PolicyRequester(ctx, p.rollout.ID)
	if err != nil {
		return r, err
	}
	r.Principal, r.Automatic = core.PolicyPrincipal(requester), requester.Type.Automatic()
	places, err := p.tx.PolicyPlaces(ctx, p.rollout.ID, p.environmentIDs())
	if err != nil {
		return r, err
	}
	at := places[point.EnvironmentID]
	r.Environment, r.Rollout = &at, p.policyRollout(requester)
	_, weight, atWeight := strings.Cut(gate, "/")
	switch {
	case atWeight:
		r.Weight, _ = strconv.Atoi(weight)
	case point.Entrance:
		r.Action = policy.EnterEnvironment
	}
	for i, b := range p.environments {
		if b.State == core.RolloutCompleted {
			r.Completed = append(r.Completed, places[b.EnvironmentID])
		}
		if b.EnvironmentID == point.EnvironmentID {
			if r.Change, err = changeOf(ctx, p.tx, p.cause.Organization, p.rollout, b.PreviousVersionSetID); err != nil {
				return r, err
			}
			if asksOfSize(p.policies) {
				if err := p.measure(ctx, b, r.Change); err != nil {
					return r, err
				}
			}
		}
		before := i - 1
		if b.EnvironmentID != point.EnvironmentID || before < 0 || p.environments[before].FinishedAt == nil ||
			p.environments[before].State != core.RolloutCompleted {
			continue
		}
		_, degraded, err := p.tx.DegradedSince(ctx, p.rollout.ID)
		if err != nil {
			return r, err
		}
		failure, err := p.tx.LastFailureIn(ctx, p.environments[before].ID)
		if err != nil {
			return r, err
		}
		r.Previous = &policy.Previous{
			Environment: places[p.environments[before].EnvironmentID], Degraded: degraded, Error: failure,
			MinutesLive: int(p.cause.at.Sub(*p.environments[before].FinishedAt).Minutes()),
		}
	}
	if p.rollout.RollbackOf != 0 {
		ran, err := p.tx.EnvironmentsThatRan(ctx, p.rollout.VersionSetID)
		if err != nil {
			return r, err
		}
		r.Rollback = ran[point.EnvironmentID]
	}
	r.Approvals = p.approvals(gate)
	return r, describeSet(ctx, p.tx, p.cause, p.rollout.ApplicationID, p.rollout.VersionSetID, []int64{point.EnvironmentID}, 0, &r)
}

// approvals are those that a passage has so far.
func (p passages) approvals(gate string) policy.Approvals {
	var all policy.Approvals
	var people []core.Principal
	for id, answers := range p.hold.Answers {
		// The gates of a program may have any name. Their approvals answer its question, and count for no policy.
		if id != gate && (p.rules[id].Own || !strings.HasPrefix(id, core.PolicyGate(gate, "", 0))) {
			continue
		}
		for _, row := range answers.Approved {
			by := core.Principal{Type: row.PrincipalType, ID: row.PrincipalID}
			if by.Type == core.PrincipalUser && !slices.Contains(people, by) {
				people = append(people, by)
			}
		}
		if _, ok := answers.Satisfies(id, p.rules[id].GateRule); ok {
			all.Groups = append(all.Groups, p.rules[id].Groups()...)
		}
	}
	slices.Sort(all.Groups)
	all.People, all.Groups = len(people), slices.Compact(all.Groups)
	return all
}

// maxCounted is how many rollouts of the last day are counted for policies.
const maxCounted = 100

// describeSet adds what would be deployed to a request, the application, the incidents that are open for it in some environments, and how
// often it was deployed: more are rollouts that do not exist yet.
func describeSet(ctx context.Context, tx Tx, c cause, application, set int64, environments []int64, more int, r *policy.Request) error {
	applications, err := tx.ApplicationsByID(ctx, c.Organization, []int64{application})
	if err != nil {
		return err
	}
	r.Application = applications[application].Name
	if err := describeRecord(ctx, tx, c.Organization, application, set, r); err != nil {
		return err
	}
	if r.Incidents, err = tx.OpenIncidents(ctx, application, environments, c.at); err != nil {
		return err
	}
	sets, err := tx.VersionSetsByID(ctx, c.Organization, []int64{set})
	if err != nil {
		return err
	}
	r.VersionSet = policy.VersionSet{Name: sets[set].Name, MinutesOld: max(0, int(c.at.Sub(sets[set].CreatedAt).Minutes()))}
	entries, err := tx.EntriesByVersionSet(ctx, c.Organization, []int64{set})
	if err != nil {
		return err
	}
	versions, err := tx.VersionsByID(ctx, c.Organization, versionIDs(entries[set]))
	if err != nil {
		return err
	}
	services, err := tx.ServicesByApplication(ctx, c.Organization, []int64{application})
	if err != nil {
		return err
	}
	origins, err := tx.Origins(ctx, c.Organization, versionIDs(entries[set]))
	if err != nil {
		return err
	}
	var reports []*provenance.Report
	for _, v := range versions {
		if v.IsImage() {
			reports = append(reports, origins[v.ID].Report)
		}
	}
	r.Facts = provenance.Sum(reports)
	for _, e := range entries[set] {
		repository, _, _ := strings.Cut(versions[e.VersionID].Reference, "@")
		r.VersionSet.Versions = append(r.VersionSet.Versions, versions[e.VersionID].Name)
		r.VersionSet.Repositories = append(r.VersionSet.Repositories, repository)
		r.VersionSet.Artifacts = append(r.VersionSet.Artifacts, versions[e.VersionID].Digest)
		for _, s := range services[application] {
			if s.ID == e.ServiceID {
				r.VersionSet.Services = append(r.VersionSet.Services, s.Name)
			}
		}
	}
	for _, names := range []*[]string{
		&r.VersionSet.Versions, &r.VersionSet.Repositories, &r.VersionSet.Services, &r.VersionSet.Artifacts,
	} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	recent, err := tx.RolloutsByApplication(ctx, c.Organization, []int64{application}, core.Page{First: maxCounted})
	for _, one := range recent[application].Nodes {
		if c.at.Sub(one.CreatedAt) < 24*time.Hour {
			r.RolloutsLastDay++
		}
	}
	r.RolloutsLastDay = min(r.RolloutsLastDay+more, maxCounted)
	return err
}

// ruleOf is the rule of the gate at which an approval is requested that a policy requires.
func ruleOf(r policy.Ruling) core.GateRule {
	return core.GateRule{
		Quorum: r.Requires.Quorum, Group: r.Requires.Group, RequesterMayApprove: r.Requires.RequesterMay,
		ExpiresAfter: time.Duration(r.Requires.ExpiresSeconds) * time.Second, OnExpiry: core.ExpiryRejects,
	}
}

// requiredGate is the gate of an approval that a policy requires at a passage, and whether it is pinned yet. A policy that came to require
// another approval asks at another gate.
func (p passages) requiredGate(gate string, r policy.Ruling) (id string, pinned bool) {
	rule := ruleOf(r)
	for variant := 0; ; variant++ {
		id = core.PolicyGate(gate, r.Name(), variant)
		known, taken := p.rules[id]
		if !taken {
			return id, false
		}
		if known.Quorum == rule.Quorum && known.Group == rule.Group && known.RequesterMayApprove == rule.RequesterMayApprove &&
			known.ExpiresAfter == rule.ExpiresAfter && !known.Own {
			return id, true
		}
	}
}

// given are the approvals that policies require and that were given.
func (p passages) given(gate string, d policy.Decision) []string {
	var all []string
	for _, r := range d.Rulings {
		if r.Requires == nil {
			continue
		}
		id, pinned := p.requiredGate(gate, r)
		if !pinned {
			continue
		}
		if _, ok := p.hold.Answers[id].Satisfies(id, p.rules[id].GateRule); ok {
			all = append(all, r.Approval())
		}
	}
	return all
}

// openRequired requests the approvals that policies require at a passage and at those that it includes.
func (u *UseCases) openRequired(ctx context.Context, p passages, gate string) (opened bool, err error) {
	for _, id := range p.includes(gate, p.hold.Skips[gate]) {
		more, err := u.openRequiredAt(ctx, p, id)
		if opened = opened || more; err != nil {
			return opened, err
		}
	}
	return opened, nil
}

func (u *UseCases) openRequiredAt(ctx context.Context, p passages, gate string) (opened bool, err error) {
	j, err := u.judge(ctx, p, gate)
	if err != nil || j == nil || j.Verdict != policy.NeedsApproval {
		return false, err
	}
	for _, r := range j.Deciding() {
		id, pinned := p.requiredGate(gate, r)
		if !pinned {
			point, err := p.point(ctx, gate)
			if err != nil {
				return opened, err
			}
			p.rules[id] = core.PinnedGate{GateRule: ruleOf(r), Reason: r.Sentence(), BeforeEnvironmentID: point.EnvironmentID}
			if err := p.tx.AddGateRule(ctx, p.rollout.ID, id, p.rules[id]); err != nil {
				return opened, err
			}
		}
		if p.open[id] {
			continue
		}
		p.open[id], opened = true, true
		if err := u.ask(ctx, p.tree, id, p.rules[id], p.hold); err != nil {
			return opened, err
		}
	}
	return opened, nil
}

// refuses is why a plan may not become a rollout: automation would enter a pinned environment, or policies deny it.
func (u *UseCases) refuses(ctx context.Context, tx Tx, c cause, p plan) error {
	if err := p.refusePinned(ctx, tx, c); err != nil {
		return err
	}
	concerning, err := tx.PoliciesConcerning(ctx, p.application.ID, 0)
	if err != nil || len(concerning) == 0 {
		return err
	}
	d, _, err := u.judgePlan(ctx, tx, c, p, concerning, 1)
	if err != nil || d.Verdict == policy.Allow {
		return err
	}
	return fault.New(fault.Refused, "policies do not allow the rollout: %s", d.Sentence())
}

// judgePlan is what policies decide about the creation of a rollout. More is 1 while the rollout does not exist.
func (u *UseCases) judgePlan(
	ctx context.Context, tx Tx, c cause, p plan, concerning []core.ConcerningPolicy, more int,
) (policy.Decision, policy.Request, error) {
	r := policy.Request{
		Action: policy.CreateRollout, Automatic: c.Type.Automatic(), At: c.at, Strategy: string(p.decision.Strategy),
		Inputs: p.inputs,
	}
	if p.back != nil && !p.back.forward { // a rollout to a part of the pipeline is no rollback
		r.Action = policy.Rollback
	}
	requester := c.Actor
	if c.ID != 0 {
		var err error
		if requester.Groups, err = tx.MemberGroups(ctx, c.ID); err != nil {
			return policy.Decision{}, r, err
		}
	}
	r.Principal = core.PolicyPrincipal(requester)
	places, err := p.policyPlaces(ctx, tx)
	if err != nil {
		return policy.Decision{}, r, err
	}
	for _, s := range p.stops {
		r.Environments = append(r.Environments, places[s.environment.ID])
	}
	if err := describeSet(ctx, tx, c, p.application.ID, p.versionSet.ID, p.stopIDs(), more, &r); err != nil {
		return policy.Decision{}, r, err
	}
	r = r.Short(textsOf(concerning)...)
	return u.policies.Decide(concerning, 0, r), r, nil
}
