package guard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Guard decides about calls. It is safe for concurrent use.
type Guard struct {
	store     Store
	functions *activity.Functions
	clock     clock.Clock
	log       *slog.Logger
	forbidden atomic.Int64

	mu    sync.Mutex
	known map[int64]territories
}

// territories are those of an organization, as of a version.
type territories struct {
	version int64
	all     []Territory
}

// New makes a Guard of the calls of these Functions.
func New(store Store, functions *activity.Functions, c clock.Clock, log *slog.Logger) *Guard {
	return &Guard{store: store, functions: functions, clock: c, log: log, known: map[int64]territories{}}
}

// Forbidden is how many attempts of calls were refused since the start.
func (g *Guard) Forbidden() int64 { return g.forbidden.Load() }

// rolloutRun is the form of the ids of the runs of rollouts. Only the domain service may start a run with such an id.
var rolloutRun = regexp.MustCompile(`^rollout-[1-9][0-9]*$`)

// TakesBackFor is how long the run that stops what a cancelled rollout has left behind may take something back.
const TakesBackFor = time.Hour

// afterCancellation makes a run that stops what a cancelled rollout has left behind one that only takes back, by the passages that the
// rollout had. The problem is why it may change nothing; the error means that the end of the rollout has not arrived yet.
func (g *Guard) afterCancellation(run Run) (_ Run, problem string, err error) {
	switch {
	case !run.Revoked:
		return run, "", fmt.Errorf("the end of the rollout of %q has not arrived yet", run.Root)
	case run.CancelledAt.IsZero():
		return run, "the rollout was not cancelled", nil
	case !g.clock.Now().Before(run.CancelledAt.Add(TakesBackFor)):
		return run, fmt.Sprintf("the rollout was cancelled more than %s ago, and takes nothing back any more", TakesBackFor), nil
	}
	run.Revoked, run.AbortedAt, run.RetriedAt = false, run.CancelledAt, time.Time{}
	return run, "", nil
}

// onlyOwn is why a call after the cancellation of the rollout does not only take back; empty if it does. What ends an operation has to name
// one of the cancelled rollout: the place may be in use by the next one.
func (r Run) onlyOwn(f activity.Function, call activity.Call) string {
	if activity.EffectOf(f, call.Args) != activity.TakesBack {
		return "the rollout was cancelled; only calls that take back what it has begun are executed"
	}
	if rollout := id.RolloutRun(id.CancelledRollout(r.Root)); activity.IsEnder(f) && !endsOwn(f, call, rollout) {
		return fmt.Sprintf("the rollout was cancelled, and the call does not state an operation that begins with %s.", rollout)
	}
	return ""
}

// Admit checks an attempt at a call that a relay executes, and adds the weights that it may not leave. The error is a
// *history.FunctionError if the call is refused, with the code forbidden; any other error means that nothing could be found out now.
func (g *Guard) Admit(ctx context.Context, call *agent.OutgoingCall) error {
	f, known := g.functions.Lookup(call.Function) // relays have no others
	if known && !f.Effect().Mutates() {
		return nil
	}
	args, err := history.Arguments(call.Args)
	if err != nil {
		return history.AsFunctionError(err)
	}
	if known && !activity.EffectOf(f, args).Mutates() {
		return nil
	}
	allowed, err := g.check(ctx, f, activity.Call{
		Organization: call.Organization, Workflow: call.Workflow,
		Function: call.Function, Args: args,
	})
	call.HeldWeights = allowed.held
	if activity.IsOwned(f) {
		call.Owner = allowed.owner
	}
	return err
}

// Check checks an attempt at a call that this service executes. Its errors are those of Admit.
func (g *Guard) Check(ctx context.Context, f activity.Function, call activity.Call) error {
	if !activity.EffectOf(f, call.Args).Mutates() {
		return nil
	}
	_, err := g.check(ctx, f, call)
	return err
}

// admitted is what a relay has to respect in a call that may be executed.
type admitted struct {
	// held are the weights that the call may not leave.
	held []int
	// owner is whose objects it may change.
	owner string
}

// check decides about a call that changes something.
func (g *Guard) check(ctx context.Context, f activity.Function, call activity.Call) (admitted, error) {
	if f != nil && activity.EffectOf(f, call.Args) == activity.Publishes {
		return admitted{}, g.checkPublication(ctx, call)
	}
	toucher, states := f.(activity.Toucher)
	var touched []activity.Place
	if states {
		touched = toucher.Touches(call.Args)
	}
	run, err := g.store.Guarded(ctx, call.Organization, call.Workflow, agentsOf(touched)...)
	if err != nil {
		return admitted{}, fmt.Errorf("read the passages of %q: %w", call.Workflow, err)
	}
	// Runs that belong to no rollout share what they create: it belongs to no environment.
	direct := admitted{owner: fmt.Sprintf("o%d.direct", call.Organization)}
	if run.Root == "" {
		run.Root = call.Workflow
	}
	// A domain service of an earlier release has created the rollout: it grants nothing that could be checked. Other rollouts bring what
	// they may change with their grants, so they are checked even if no places of environments were ever reported.
	ofRollout := rolloutRun.MatchString(run.Root) || id.CancelledRollout(run.Root) != 0
	if e, some := f.(activity.Entering); some && e.Entered(call.Args) && (run.Exempt || !ofRollout) {
		return admitted{}, g.refuse(ctx, call, "only the run of a rollout does this, behind the passage of the environment that it changes")
	}
	if run.Exempt || run.Version == 0 && !ofRollout {
		return direct, nil
	}
	all, err := g.territories(ctx, call.Organization, run.Version)
	if err != nil {
		return admitted{}, fmt.Errorf("read the places of environments: %w", err)
	}
	if !states {
		return admitted{}, g.refuse(ctx, call, "the function does not state what it changes")
	}
	if activity.EffectOf(f, call.Args) == activity.Proposes {
		return direct, g.checkProposal(ctx, f, call, run, all, touched)
	}
	if !ofRollout {
		// The places of a worker's Function are its own declaration, so a call without any could be about a protected environment.
		if len(touched) == 0 && (f.Location() == activity.Worker || activity.IsOwned(f)) &&
			slices.ContainsFunc(all, func(t Territory) bool { return t.Protected }) {
			return admitted{}, g.refuse(ctx, call, "its arguments do not name what it changes, and the organization has protected environments")
		}
		closed := protected(all)
		for _, place := range touched {
			if problem := cmp.Or(changesDirectly(all, place), place.Ambiguous(closed)); problem != "" {
				return admitted{}, g.refuse(ctx, call, problem)
			}
		}
		return direct, nil
	}
	if run.Revoked && endsOwn(f, call, run.Root) {
		return direct, nil
	}
	overtaken := false
	if id.CancelledRollout(run.Root) != 0 {
		after, problem, err := g.afterCancellation(run)
		if err != nil {
			return admitted{}, err
		}
		if problem = cmp.Or(problem, after.onlyOwn(f, call)); problem != "" {
			return admitted{}, g.refuse(ctx, call, problem)
		}
		if !activity.IsEnder(f) { // it names no operation, so it could be about what the next rollout does there
			before := len(after.Passages)
			after.Passages = slices.DeleteFunc(slices.Clone(after.Passages), func(p Passage) bool { return p.Overtaken })
			overtaken = len(after.Passages) < before
		}
		run = after
	}
	switch {
	case run.Revoked:
		return admitted{}, g.refuse(ctx, call, "the rollout has ended, and its passages with it")
	case run.Suspended() && activity.EffectOf(f, call.Args) != activity.TakesBack:
		return admitted{}, g.refuse(ctx, call,
			"the rollout is being aborted; until it is retried, only calls that take back what it has begun are executed")
	case len(touched) == 0:
		return admitted{}, g.refuse(ctx, call, "its arguments do not name what it changes")
	}
	held, environments, problem := run.opensAll(all, touched)
	if problem != "" && overtaken {
		problem = "another rollout has entered the environment since the cancellation: " + problem
	}
	if problem == "" && activity.IsOwned(f) {
		environments, problem = meant(environments, call.Args)
	}
	if problem != "" {
		return admitted{}, g.refuse(ctx, call, problem)
	}
	if place, other := run.takesBackElsewhere(f, all, touched); other {
		return admitted{}, g.refuse(ctx, call, fmt.Sprintf(
			"the rollout is being aborted, and the driver's manifest does not declare %s as a place where %s takes something back", place, call.Function))
	}
	a := admitted{held: held}
	if len(environments) == 1 {
		a.owner = fmt.Sprintf("o%d.e%d.a%d", call.Organization, environments[0], run.Application)
	}
	return a, nil
}

// takesBackElsewhere returns a place that a call touches although the rollout is being aborted, where no passage says that the call takes
// something back.
func (r Run) takesBackElsewhere(f activity.Function, all []Territory, touched []activity.Place) (activity.Place, bool) {
	confined, is := f.(activity.Confined)
	if !is || !r.Suspended() {
		return activity.Place{}, false
	}
	for _, place := range touched {
		if !slices.ContainsFunc(r.Passages, func(p Passage) bool {
			return slices.ContainsFunc(r.places(all, p), func(of activity.Place) bool { return confined.TakesBackAt(of, place) })
		}) {
			return place, true
		}
	}
	return activity.Place{}, false
}

// agentsOf are the agents of the clusters in which something is changed.
func agentsOf(touched []activity.Place) (agents []int64) {
	for _, place := range touched {
		if place.Agent != 0 && !slices.Contains(agents, place.Agent) {
			agents = append(agents, place.Agent)
		}
	}
	return agents
}

// checkProposal decides about a call that changes nothing but the branch of a proposal: it needs no passage, unless an environment is
// deployed from such a branch.
func (g *Guard) checkProposal(
	ctx context.Context, f activity.Function, call activity.Call, run Run, all []Territory, touched []activity.Place,
) error {
	ender, can := f.(activity.Ender)
	withdraws := can && ender.Ends(call.Args) != "" // what a rollout leaves behind is closed when it is cancelled, too
	switch {
	case run.Revoked && !withdraws:
		return g.refuse(ctx, call, "the rollout has ended, and it proposes nothing more")
	case len(touched) == 0:
		return g.refuse(ctx, call, "its arguments do not name what it changes")
	}
	for _, place := range touched {
		for _, of := range run.known(all) {
			if of.HasProposals(place) {
				return g.refuse(ctx, call, fmt.Sprintf("an environment is deployed from branch %s, where proposals are made; expected a branch that does not begin with %s",
					of.Branch, activity.ProposalPrefix))
			}
		}
	}
	return nil
}

// checkPublication decides about a call that publishes a status of a commit, or comments on a pull request. A forge may require the status
// for a merge, and people believe the comment, so it has to be what the domain service has recorded: only its own run may publish it,
// whose id nobody else may start, and no child of that run.
func (g *Guard) checkPublication(ctx context.Context, call activity.Call) error {
	status, _ := id.ForgeStatus(call.Workflow)
	if pull, _ := id.ForgePull(call.Workflow); status != 0 || pull != 0 {
		return nil
	}
	return g.refuse(ctx, call, "only the domain service publishes statuses of commits and comments, and only what it has recorded")
}

// endsOwn reports whether a call only ends what the run itself has started: what a rollout leaves behind in a cluster has to be stopped
// when it is cancelled, too. The operation says whose it is, and the relay refuses an object of another operation.
func endsOwn(f activity.Function, call activity.Call, root string) bool {
	ender, can := f.(activity.Ender)
	return can && activity.EffectOf(f, call.Args) == activity.TakesBack && strings.HasPrefix(ender.Ends(call.Args), root+".")
}

// protected are the places of protected environments.
func protected(all []Territory) (places []activity.Place) {
	for _, t := range all {
		if t.Protected {
			places = append(places, t.Places...)
		}
	}
	return places
}

// known are the places of all environments, and those that the rollout has pinned.
func (r Run) known(all []Territory) (places []activity.Place) {
	for _, t := range all {
		places = append(places, t.Places...)
	}
	for _, p := range r.Passages {
		places = append(places, p.Places...)
	}
	return places
}

// opensAll returns the weights that a rollout's run may not leave at some places, and the environments whose passages open all of them, or
// why it may not change one.
func (r Run) opensAll(all []Territory, touched []activity.Place) (held []int, environments []int64, problem string) {
	known := r.known(all)
	for i, place := range touched {
		of, problem := r.opens(all, place)
		if problem = cmp.Or(problem, place.Ambiguous(known)); problem != "" {
			return nil, nil, problem
		}
		var found []int64
		for _, p := range of {
			held = append(held, r.held(p)...)
			found = append(found, p.Environment)
		}
		if i == 0 {
			environments = found
		}
		environments = slices.DeleteFunc(environments, func(e int64) bool { return !slices.Contains(found, e) })
	}
	slices.Sort(held)
	return slices.Compact(held), environments, ""
}

// meant returns the one environment whose objects a call changes, or why it is not known.
func meant(environments []int64, args map[string]any) (one []int64, problem string) {
	named, given := activity.EnvironmentOf(args)
	switch {
	case len(environments) == 0:
		return nil, "it changes places of several environments; expected one call for each"
	case given && !slices.Contains(environments, named):
		return nil, fmt.Sprintf("no passage of environment %d opens what it changes", named)
	case given:
		return []int64{named}, ""
	case len(environments) > 1:
		return nil, "several environments of the rollout have what it changes; expected environment_id"
	}
	return environments, ""
}

// changesDirectly returns why a run that belongs to no rollout may not change a place; empty if it may. If several environments have the
// place, those decide whose places are the narrowest.
func changesDirectly(all []Territory, touched activity.Place) string {
	narrowest := 0
	var protected []Territory
	for _, t := range all {
		precise := t.covers(touched)
		// What an Application deploys to is not known here, and what depends on an object of the whole cluster neither, so one that belongs to no
		// environment counts as part of all on its cluster.
		if precise == 0 && (touched.Application != "" || touched.WholeCluster()) && t.uses(touched.Agent) {
			precise = 1
		}
		if precise == 0 || precise < narrowest {
			continue
		}
		if precise > narrowest {
			narrowest, protected = precise, nil
		}
		if t.Protected {
			protected = append(protected, t)
		}
	}
	switch {
	case len(protected) == 0:
		return ""
	case protected[0].Archived:
		return protected[0].archived(touched)
	default:
		return fmt.Sprintf("environment %s is protected: only its own rollouts change %s", protected[0].Name, touched)
	}
}

// archived is why an archived environment's place is not changed.
func (t Territory) archived(touched activity.Place) string {
	return fmt.Sprintf("environment %s is protected and archived: nothing changes %s until it is restored, or accepts direct changes", t.Name,
		touched)
}

// succeeded reports whether the environment was archived, and one that was made under its name since has its passage.
func (t Territory) succeeded(all []Territory, granted map[int64]bool) bool {
	return t.Archived && slices.ContainsFunc(all, func(o Territory) bool { return o.Name == t.Name && granted[o.Environment] })
}

// opens returns the passages that let a rollout's run change a place, or why it may not change it.
func (r Run) opens(all []Territory, touched activity.Place) (of []Passage, problem string) {
	narrowest := 0
	granted := map[int64]bool{}
	for _, p := range r.Passages {
		if p.Weight != 0 {
			continue
		}
		granted[p.Environment] = true
		precise := widest(r.places(all, p), touched)
		if precise == 0 || precise < narrowest {
			continue
		}
		if precise > narrowest {
			of = nil
		}
		narrowest, of = precise, append(of, p)
	}
	// Another environment may have a narrower place within what was granted.
	closed, missing := narrowest, ""
	for _, t := range all {
		if precise := t.covers(touched); !granted[t.Environment] && precise > closed && !t.succeeded(all, granted) {
			closed, missing = precise, fmt.Sprintf("passage %s has not been granted", t.Name)
			if t.Archived {
				missing = t.archived(touched)
			}
		}
	}
	if missing != "" {
		return nil, missing
	}
	if len(of) == 0 {
		return nil, fmt.Sprintf("no passage of the rollout opens %s", touched)
	}
	return of, ""
}

// held returns the weights of a passage that the run may not leave.
func (r Run) held(p Passage) (held []int) {
	for _, weight := range p.Pinned {
		if !r.leaves(p.Environment, weight) {
			held = append(held, weight)
		}
	}
	return held
}

// places are what a passage opens: what the rollout has pinned, and else what the environment has now.
func (Run) places(all []Territory, p Passage) []activity.Place {
	if len(p.Places) > 0 {
		return p.Places
	}
	for _, t := range all {
		if t.Environment == p.Environment {
			return t.Places
		}
	}
	return nil
}

// leaves reports whether a weight may be left. A retry begins at the first gate again, so what was granted before the abort has ended.
func (r Run) leaves(environment int64, weight int) bool {
	return slices.ContainsFunc(r.Passages, func(p Passage) bool {
		return p.Environment == environment && p.Weight == weight && (r.AbortedAt.IsZero() || p.At.After(r.AbortedAt))
	})
}

// covers returns how precisely the environment has a place; 0 if it has not.
func (t Territory) covers(touched activity.Place) int {
	most := widest(t.Places, touched)
	if t.Fleet.has(touched.Agent) {
		for _, agent := range t.Fleet.Agents { // as if it was in one of the environment's own clusters
			touched.Agent = agent
			most = max(most, widest(t.Places, touched))
		}
	}
	return most
}

// uses reports whether the environment has anything in the cluster of an agent.
func (t Territory) uses(agent int64) bool {
	return slices.ContainsFunc(t.Places, func(p activity.Place) bool {
		return p.Agent == agent || t.Fleet.has(agent) && slices.Contains(t.Fleet.Agents, p.Agent)
	})
}

func widest(places []activity.Place, touched activity.Place) int {
	most := 0
	for _, p := range places {
		most = max(most, p.Covers(touched))
	}
	return most
}

// territories returns those of an organization, read again if they have changed.
func (g *Guard) territories(ctx context.Context, organization, version int64) ([]Territory, error) {
	g.mu.Lock()
	known := g.known[organization]
	g.mu.Unlock()
	if known.version >= version {
		return known.all, nil
	}
	version, all, err := g.store.Territories(ctx, organization)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known[organization].version < version {
		g.known[organization] = territories{version: version, all: all}
	}
	return all, nil
}

func (g *Guard) refuse(ctx context.Context, call activity.Call, problem string) error {
	g.forbidden.Add(1)
	g.log.WarnContext(ctx, "call forbidden", "function", call.Function, "workflow", call.Workflow, "organization",
		call.Organization, "reason", problem)
	return &history.FunctionError{Code: history.CodeForbidden, Message: problem}
}
