package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// A workflow requests a passage before it enters an environment, leaves a weight, or takes a step between environments, and waits. The
// domain opens the approvals that the passage needs, and grants it once everything holds: in the transaction of whatever came last, so
// that no pause, approval or expiry can slip in between (D46).

// passages is what the passages of a locked rollout depend on.
type passages struct {
	*tree
	hold  core.Hold
	rules map[string]core.PinnedGate
	// open are the approvals that are requested and not answered.
	open map[string]bool
	// merged reports whether one of them may be approved by a merge by hand that was not counted yet.
	merged bool
	// checks are those that are pinned, with what was reported about the version set.
	checks core.Checks
	// policies are those that concern the rollout, and judged what they decided in this transaction, by gate.
	policies []core.ConcerningPolicy
	judged   map[string]*judged
	// past are the environments whose checks are passed by break-glass.
	past map[int64]bool
}

// held is passages for who decides about them: behind the locks of the rollout and of the controls, and as of an instant behind both. A
// transaction may have waited long for either, and what began meanwhile counts.
func (u *UseCases) held(ctx context.Context, t *tree) (passages, error) {
	p, err := t.passages(ctx, t.tx.HoldControls)
	if now := u.clock.Now(); now.After(t.cause.at) {
		t.cause.at = now
	}
	return p, err
}

// passages reads what the passages depend on, after other reads of the same round trip. The journal of a rollout has few rows about gates.
func (t *tree) passages(ctx context.Context, before ...func(context.Context) error) (passages, error) {
	p := passages{tree: t, open: map[string]bool{}, judged: map[string]*judged{}}
	var gates []core.Gate
	environments := make([]core.RolloutEnvironment, len(t.environments))
	var services []int64
	for i, b := range t.environments {
		environments[i] = b.RolloutEnvironment
		for _, d := range b.deployments {
			services = append(services, d.ServiceID)
		}
	}
	var followed core.HealthObservations
	err := t.tx.Together(ctx, append(before, func(ctx context.Context) (err error) {
		p.hold, gates, err = t.words(ctx)
		return err
	}, func(ctx context.Context) (err error) {
		p.rules, err = t.tx.GateRules(ctx, t.rollout.ID)
		return err
	}, func(ctx context.Context) (err error) {
		p.checks, err = t.tx.Checks(ctx, t.rollout.ID, t.rollout.VersionSetID)
		return err
	}, func(ctx context.Context) (err error) {
		p.policies, err = t.tx.PoliciesConcerning(ctx, t.rollout.ApplicationID, t.rollout.ID)
		return err
	}, func(ctx context.Context) (err error) {
		followed, err = core.FollowedIn(ctx, t.tx, t.cause.Organization, core.FollowedPlaces(environments), core.Distinct(services))
		return err
	})...)
	if err != nil {
		return p, err
	}
	for _, g := range gates {
		p.open[g.GateID] = true
		p.merged = p.merged || g.Proposal.Uncounted()
	}
	if p.past, err = p.pastChecks(ctx); err != nil {
		return p, err
	}
	declared, err := core.ObservedIn(ctx, t.tx, t.cause.Organization, core.HealthPlaces(p.checks.Pinned))
	if err != nil {
		return p, err
	}
	p.checks.Observed = declared.With(followed)
	if p.checks.InForce, err = t.inForce(ctx, p.checks.Pinned); err != nil {
		return p, err
	}
	if len(core.HealthPlaces(p.checks.Pinned))+len(core.FollowedPlaces(environments)) > 0 {
		p.checks.Retired, err = t.retired(ctx)
	}
	return p, err
}

// inForce is what is known to differ from what was deployed in the environments that have a check which asks that.
func (t *tree) inForce(ctx context.Context, pinned []core.PinnedCheck) (map[int64]core.Reconciliation, error) {
	all, err := core.InForceOf(ctx, t.tx, t.cause.Organization, map[int64][]core.PinnedCheck{t.rollout.ApplicationID: pinned})
	return all[t.rollout.ApplicationID], err
}

// retired are the services of the application that were retired.
func (t *tree) retired(ctx context.Context) (map[int64]bool, error) {
	services, err := t.tx.ServicesByApplication(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID})
	return core.RetiredOf(services[t.rollout.ApplicationID]), err
}

// entering are the checks that guard a passage: those of an environment's entrance.
func (p passages) entering(gate string) []core.CheckState {
	places := make([]core.CheckPlace, len(p.environments))
	for i, b := range p.environments {
		places[i] = core.CheckPlace{EnvironmentID: b.EnvironmentID, Follows: b.Follows, NeedsHealth: b.NeedsHealth}
		if b.State == core.RolloutCompleted {
			places[i].Completed = b.FinishedAt
		}
		for _, d := range b.deployments {
			places[i].Deployments = append(places[i].Deployments, *d)
		}
	}
	for i, b := range p.environments {
		if p.places[b.EnvironmentID].Name == gate {
			return p.checks.Entering(places, i, p.cause.at)
		}
	}
	return nil
}

// entrance is the environment that a gate is the entrance of; nil for any other gate.
func (p passages) entrance(gate string) *branch {
	for _, b := range p.environments {
		if p.places[b.EnvironmentID].Name == gate {
			return b
		}
	}
	return nil
}

// skips are the weights that the rollout will not stop at once it has entered an environment.
func (p passages) skips(b *branch, requested []core.Condition) []core.Condition {
	var all []core.Condition
	name := p.places[b.EnvironmentID].Name
	for _, w := range b.Weights {
		skip := core.Condition{
			Kind: core.ConditionSkippedWeight, GateID: weightGate(name, w.Weight), SoakSeconds: w.SoakSeconds,
			Cause: b.SkipsWeights,
		}
		byProgram := slices.ContainsFunc(requested, func(c core.Condition) bool { return c.GateID == skip.GateID })
		switch {
		case skip.Cause != "":
			all = append(all, skip)
		case byProgram:
			skip.Cause = core.SkipsProgram
			all = append(all, skip)
		}
	}
	return all
}

// needs are the approvals that a passage needs, in the order in which the rollout would come to them, and the weights that are skipped
// behind it. An entrance also needs what stands before it between the environments, unless that was passed: a program cannot leave it out.
func (p passages) needs(gate string, requested []core.Condition) (approvals []string, skipped []core.Condition) {
	add := func(id string) {
		if rule, pinned := p.rules[id]; pinned && (!rule.Own || p.hold.Answers[id] != nil) && !slices.Contains(approvals, id) {
			approvals = append(approvals, id)
		}
	}
	b := p.entrance(gate)
	if b == nil || !p.rollout.Passages {
		add(gate)
		return approvals, nil
	}
	for _, id := range p.steps() {
		if p.rules[id].BeforeEnvironmentID == b.EnvironmentID && !p.hold.Granted[id] {
			add(id)
		}
	}
	add(gate)
	skipped = p.skips(b, requested)
	for _, w := range skipped {
		add(w.GateID)
	}
	return approvals, skipped
}

// includes are the passages that one opens with itself: an entrance those of the weights that are skipped, and of the steps before it that
// were not requested.
func (p passages) includes(gate string, requested []core.Condition) []string {
	all := []string{gate}
	b := p.entrance(gate)
	if b == nil || !p.rollout.Passages {
		return all
	}
	for _, id := range p.steps() {
		if p.rules[id].BeforeEnvironmentID == b.EnvironmentID && !p.rules[id].Own && !p.hold.Granted[id] {
			all = append(all, id)
		}
	}
	for _, w := range p.skips(b, requested) {
		all = append(all, w.GateID)
	}
	return all
}

// skipped are the weights behind a granted entrance that no longer need a passage.
func (p passages) skipped(gate string) []core.Condition {
	b := p.entrance(gate)
	if b == nil {
		return nil
	}
	var all []core.Condition
	for _, w := range b.Weights {
		if id := weightGate(gate, w.Weight); p.hold.Granted[id] {
			all = append(all, core.Condition{Kind: core.ConditionSkippedWeight, GateID: id})
		}
	}
	return all
}

// steps are the pinned gates that belong to no environment, by name.
func (p passages) steps() []string {
	var all []string
	for id, rule := range p.rules {
		name, _, within := strings.Cut(id, "/")
		if !rule.Own && p.entrance(name) == nil && !within { // what policies require at a step belongs to the step
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

// complete is what satisfies the conditions of a passage; false while one is missing. The hold is not among them.
func (p passages) complete(gate string, requested []core.Condition) ([]core.Condition, bool) {
	for id := range p.open {
		if p.rules[id].Own { // what the program has requested on its own account is one more condition
			return nil, false
		}
	}
	approvals, skipped := p.needs(gate, requested)
	var all []core.Condition
	for _, id := range approvals {
		c, ok := p.hold.Answers[id].Satisfies(id, p.rules[id].GateRule)
		if !ok {
			return nil, false
		}
		all = append(all, c)
	}
	for _, s := range p.entering(gate) {
		switch {
		case s.Phase == core.CheckSuccess:
			all = append(all, s.Condition())
		case p.past[p.entrance(gate).EnvironmentID]:
			all = append(all, s.PassedBy(*p.hold.Broken))
		default:
			return nil, false
		}
	}
	if all = append(all, skipped...); len(approvals) == 0 {
		all = append([]core.Condition{{Kind: core.ConditionNone}}, all...)
	}
	return all, true
}

// PassageRequested is a workflow that requests to enter an environment, to leave a weight, or to take a step between environments.
type PassageRequested struct {
	RolloutID int64
	GateID    string
	// SkipsWeights are the weights of the environment that the program will not stop at this time; only for an entrance.
	SkipsWeights []int
}

func (m PassageRequested) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil || t.rollout.State.Terminal() { // its workflow is being stopped: nobody waits for the answer
		return err
	}
	if err := t.moveRollout(ctx, core.VerbStart, ""); err != nil {
		return err
	}
	p, err := u.held(ctx, t)
	if err != nil || p.hold.Aborted { // after a retry the program requests it again
		return err
	}
	if p.hold.Passed[m.GateID] {
		// Requested twice: granted once, and announced again as it was, also during a hold, which is about passages that are still closed.
		return t.grant(ctx, m.GateID, p.skipped(m.GateID))
	}
	if slices.Contains(p.hold.Asking, m.GateID) {
		return nil
	}
	var requested []core.Condition
	for _, weight := range m.SkipsWeights {
		requested = append(requested, core.Condition{
			Kind: core.ConditionSkippedWeight, GateID: weightGate(m.GateID, weight), Cause: core.SkipsProgram,
		})
	}
	if conditions, ok := p.complete(m.GateID, requested); ok && !p.hold.Wanted && !mayBeWave(m.GateID) {
		stops, err := p.stops(ctx, m.GateID)
		if err != nil {
			return err
		}
		decision, err := u.judgeAll(ctx, p, m.GateID, requested)
		if err != nil {
			return err
		}
		if len(stops) == 0 && decision.allow() {
			return p.pass(ctx, m.GateID, decision.added(conditions))
		}
	}
	row := t.requestRow(core.VerbRequestPassage, m.GateID, "")
	row.Conditions = requested
	if err := t.tx.Record(ctx, row); err != nil {
		return err
	}
	return u.decide(ctx, t)
}

// decide opens what requested passages need, makes a wanted pause effective, and grants the passages that have everything. It follows every
// change of what they depend on.
func (u *UseCases) decide(ctx context.Context, t *tree) error {
	if t.rollout.State.Terminal() {
		return nil
	}
	p, err := u.held(ctx, t)
	if err != nil || p.hold.Aborted || len(p.hold.Asking) == 0 {
		return err
	}
	opened, err := u.openMissing(ctx, p)
	if err != nil {
		return err
	}
	counted := false
	if opened || p.merged {
		if counted, err = u.countMerges(ctx, t); err != nil {
			return err
		}
	}
	if opened || counted {
		if p, err = u.held(ctx, t); err != nil {
			return err
		}
	}
	if p.hold.Wanted {
		return t.stand(ctx, p.hold)
	}
	var stopped []string
	for _, gate := range p.hold.Asking {
		waits, err := u.decideOne(ctx, p, gate)
		if err != nil {
			return err
		}
		if waits {
			stopped = append(stopped, gate)
		}
	}
	if len(p.hold.Stopped) == 0 {
		return nil
	}
	return t.tx.ForgetPassageStops(ctx, t.rollout.ID, stopped)
}

// decideOne grants a requested passage that has everything. It answers whether a control or policies keep it closed; the end of that finds
// it again.
func (u *UseCases) decideOne(ctx context.Context, p passages, gate string) (stopped bool, err error) {
	conditions, ok := p.complete(gate, p.hold.Skips[gate])
	wave, err := p.wave(ctx, gate)
	if err != nil {
		return false, err
	}
	if wave != nil {
		goes, err := u.decideWave(ctx, p, gate, *wave)
		if err != nil || !goes {
			return false, err
		}
		conditions = append(conditions, wave.condition())
	}
	decision, err := u.judgeAll(ctx, p, gate, p.hold.Skips[gate])
	if err != nil {
		return false, err
	}
	if !ok {
		if err := p.scheduleChecks(ctx, gate); err != nil {
			return false, err
		}
		if err := p.openCheckRuns(ctx, gate); err != nil {
			return false, err
		}
	}
	stops := decision.denials()
	if !decision.allow() {
		if err := p.tx.ScheduleReview(ctx, p.rollout.ID, p.cause.at.Truncate(policyReview).Add(policyReview)); err != nil {
			return false, err
		}
	}
	if ok {
		more, err := p.stops(ctx, gate)
		if err != nil {
			return false, err
		}
		stops = append(more, stops...)
	}
	switch {
	case len(stops) > 0:
		return true, p.stop(ctx, gate, stops)
	case !ok || !decision.allow():
		return false, nil
	default:
		return false, p.pass(ctx, gate, decision.added(conditions))
	}
}

// scheduleChecks has a passage evaluated again when one of its checks may change by itself.
func (p passages) scheduleChecks(ctx context.Context, gate string) error {
	for _, s := range p.entering(gate) {
		if s.Next == nil {
			continue
		}
		if err := p.tx.ScheduleReview(ctx, p.rollout.ID, *s.Next); err != nil {
			return err
		}
	}
	return nil
}

// openMissing requests the approvals that requested passages need and that are neither requested nor given.
func (u *UseCases) openMissing(ctx context.Context, p passages) (opened bool, err error) {
	asked := map[string]bool{}
	for _, gate := range p.hold.Asking {
		approvals, _ := p.needs(gate, p.hold.Skips[gate])
		for _, id := range approvals {
			if _, satisfied := p.hold.Answers[id].Satisfies(id, p.rules[id].GateRule); satisfied || p.open[id] || asked[id] {
				continue
			}
			asked[id], opened = true, true
			if err := u.ask(ctx, p.tree, id, p.rules[id], p.hold); err != nil {
				return opened, err
			}
		}
		more, err := u.openRequired(ctx, p, gate)
		if err != nil {
			return opened, err
		}
		opened = opened || more
	}
	return opened, nil
}

// ask requests an approval of people.
func (u *UseCases) ask(ctx context.Context, t *tree, gate string, rule core.PinnedGate, h core.Hold) error {
	if err := t.request(ctx, core.VerbRequestApproval, gate, rule.Reason); err != nil {
		return err
	}
	if h.Broken != nil {
		return u.askBroken(ctx, t, gate, *h.Broken)
	}
	if rule.ExpiresAfter == 0 {
		return nil
	}
	expiry := core.GateExpiry{RolloutID: t.rollout.ID, GateID: gate, AskedAt: t.cause.at}
	return t.tx.ScheduleGateExpiry(ctx, expiry, t.cause.at.Add(rule.ExpiresAfter))
}

// pass grants a passage: the row that names what satisfied its conditions, and the event that the workflow waits for. The checks of the
// passage are no longer required.
func (p passages) pass(ctx context.Context, gate string, conditions []core.Condition) error {
	row := p.requestRow(core.VerbPassGate, gate, core.DescribeConditions(conditions))
	row.Conditions = conditions
	if err := p.tx.Record(ctx, row); err != nil {
		return err
	}
	if err := p.endCheckRuns(ctx, gate); err != nil {
		return err
	}
	if err := p.beginWave(ctx, gate); err != nil {
		return err
	}
	return p.grant(ctx, gate, conditions)
}

// grant publishes that a passage has been granted. Weights that are skipped behind it need no passage of their own.
func (t *tree) grant(ctx context.Context, gate string, conditions []core.Condition) error {
	opens, err := t.opening(ctx, gate)
	if err != nil {
		return fmt.Errorf("find out what gate %s opens: %w", gate, err)
	}
	opens.PinnedWeights = slices.DeleteFunc(slices.Clone(opens.PinnedWeights), func(weight int) bool {
		return slices.ContainsFunc(conditions, func(c core.Condition) bool {
			return c.Kind == core.ConditionSkippedWeight && c.GateID == weightGate(gate, weight)
		})
	})
	attempt, err := t.attemptOf(ctx, gate)
	if err != nil {
		return err
	}
	return t.tx.Grant(ctx, Passage{
		Organization: t.cause.Organization, RolloutID: t.rollout.ID, ApplicationID: t.rollout.ApplicationID, GateID: gate, Opening: opens,
		Attempt: attempt, At: t.cause.at,
	})
}
