// Package callpolicy decides about the calls of Functions by the policies of their organization, before the first attempt (D51). The guard
// beside it decides at each attempt whether a passage opens what the call changes; neither takes the place of the other.
//
// What policies are, and how they are evaluated, is in pkg/policy. When a run asks, and what it does with the verdict, is for package
// engine.
package callpolicy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// refresh is how late a replica learns of a set that another one was sent.
const refresh = time.Second

// combinations is how many combinations of sets are kept for an organization, one for each application and its environments.
const combinations = 1000

// remembered is how many bytes are kept of earlier decisions of an organization, and of which policies may match.
const remembered = 8 << 20

// Registry are the policies about calls as this process knows them. It is safe for concurrent use.
type Registry struct {
	store Store
	clock clock.Clock
	log   *slog.Logger
	// decided counts the decisions of this process.
	allowed, asked, denied atomic.Int64
	// samples chooses the permitted calls that are reported; nil for none.
	samples *sampler
	// installation are the sets of the operator, which concern every organization; nil for none.
	installation *organization
	// read reports whether the store was read once: before that, nothing is known of any organization.
	read atomic.Bool

	mu    sync.RWMutex
	known map[int64]*organization
}

// organization are the policies of one.
type organization struct {
	versions map[string]int
	// groups are the sets of groups of applications.
	groups map[string]bool
	// sets are ready; the first ones, above of them, are the installation's.
	sets  []compiled
	above int
	// broken is why the policies cannot be evaluated, which denies every call; empty if they can.
	brokenSet, broken string

	// memo has earlier decisions by these policies.
	memo *policy.Memo

	mu       sync.RWMutex
	combined map[string]*policy.CallSet
}

// compiled is a set that is ready to be evaluated.
type compiled struct {
	Set
	policy.Member
}

// NewRegistry makes a Registry that knows nothing yet but the sets of the installation; Run reads the store.
func NewRegistry(store Store, c clock.Clock, log *slog.Logger, installation ...Set) *Registry {
	r := &Registry{store: store, clock: c, log: log, known: map[int64]*organization{}}
	if of := compile(installation, nil); len(of.sets) > 0 || of.broken != "" {
		r.installation = of
	}
	return r
}

// Counts are how many calls this process has permitted, requested an approval for and denied. Calls of organizations without policies
// about calls are not counted.
func (r *Registry) Counts() (allowed, asked, denied int64) {
	return r.allowed.Load(), r.asked.Load(), r.denied.Load()
}

// Run reads what was reported to other processes, until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.Read(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "reading policies about calls failed; will retry", "error", err)
		}
		_ = clock.Sleep(ctx, r.clock, refresh) // ends early with ctx
	}
	return nil
}

// Read reads the sets that have changed.
func (r *Registry) Read(ctx context.Context) error {
	stored, err := r.store.PolicyVersions(ctx)
	if err != nil {
		return err
	}
	versions, groups := map[int64]map[string]int{}, map[int64]map[string]bool{}
	for _, v := range stored {
		if versions[v.Organization] == nil {
			versions[v.Organization], groups[v.Organization] = map[string]int{}, map[string]bool{}
		}
		versions[v.Organization][v.Name] = v.Version
		if v.OfGroup {
			groups[v.Organization][v.Name] = true
		}
	}
	var changed []int64
	r.mu.RLock()
	for id, all := range versions {
		if known := r.known[id]; known == nil || !maps.Equal(known.versions, all) || !maps.Equal(known.groups, groups[id]) {
			changed = append(changed, id)
		}
	}
	r.mu.RUnlock()
	if len(changed) > 0 {
		slices.Sort(changed)
		sets, err := r.store.PolicySets(ctx, changed)
		if err != nil {
			return err
		}
		r.learn(sets)
	}
	r.read.Store(true)
	return nil
}

// learn takes all sets of some organizations.
func (r *Registry) learn(sets []Set) {
	of := map[int64][]Set{}
	for _, s := range sets {
		of[s.Organization] = append(of[s.Organization], s)
	}
	for id, all := range of {
		next := compile(all, r.installation)
		r.mu.Lock()
		if known := r.known[id]; known == nil || !newer(known.versions, next.versions) {
			r.known[id] = next
		}
		r.mu.Unlock()
	}
}

// newer reports whether versions that are known are later than others.
func newer(known, others map[string]int) bool {
	for name, version := range known {
		if version > others[name] {
			return true
		}
	}
	return false
}

// compile makes the sets of an organization ready. What cannot be read here denies every call of the organization: it was valid where it
// was written. The sets of the installation come first, as their own level.
func compile(all []Set, installation *organization) *organization {
	o := &organization{
		versions: map[string]int{}, groups: map[string]bool{}, combined: map[string]*policy.CallSet{},
		memo: policy.NewMemo(remembered),
	}
	if installation != nil {
		o.sets, o.above = slices.Clone(installation.sets), len(installation.sets)
		o.brokenSet, o.broken = installation.brokenSet, installation.broken
	}
	slices.SortFunc(all, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range all {
		if o.versions[s.Name] = s.Version; s.Labels != nil {
			o.groups[s.Name] = true
		}
		if s.Text == "" || s.Mode == "off" {
			continue
		}
		document, problems := policy.Parse(s.Text)
		zone, err := time.LoadLocation(s.TimeZone)
		switch {
		case len(problems) > 0:
			o.brokenSet, o.broken = s.Name, "the set cannot be read: "+problems[0].String()
		case err != nil || s.TimeZone == "Local":
			o.brokenSet, o.broken = s.Name, fmt.Sprintf("the time zone %q is not known here", s.TimeZone)
		case s.Mode != "enforce" && s.Mode != "dry_run":
			o.brokenSet, o.broken = s.Name, fmt.Sprintf("the mode %q is not known here", s.Mode)
		case document.Calls():
			o.sets = append(o.sets, compiled{s, policy.Member{Name: s.Name, Document: document, Zone: zone, DryRun: s.Mode == "dry_run"}})
		}
	}
	return o
}

// Concerned reports whether calls of an organization are decided by policies. It is asked before every call, and says no at once for
// organizations without any.
func (r *Registry) Concerned(organization int64) bool {
	if !r.read.Load() {
		return true // nothing is known yet
	}
	r.mu.RLock()
	o := r.known[organization]
	r.mu.RUnlock()
	return r.installation != nil || o != nil && (len(o.sets) > 0 || o.broken != "")
}

// Decide decides about a call of a run by the latest policies. An error means that nothing could be found out now.
func (r *Registry) Decide(
	ctx context.Context, run Run, function string, args json.RawMessage, given []string,
) (policy.Decision, Asked, error) {
	asked := Asked{run, function, args, r.clock.Now(), given}
	if err := r.current(ctx, run); err != nil {
		return policy.Decision{}, asked, err
	}
	d := r.organization(run.Organization).decide(asked)
	if d.Digest == "" && d.Verdict == policy.Allow {
		return d, asked, nil // no policies concern it
	}
	switch d.Verdict {
	case policy.Allow:
		r.allowed.Add(1)
	case policy.NeedsApproval:
		r.asked.Add(1)
	case policy.Deny:
		r.denied.Add(1)
	}
	return d, asked, nil
}

// Asked is the call that a decision is about.
type Asked struct {
	run      Run
	function string
	args     json.RawMessage
	at       time.Time
	given    []string
}

// Call is the call as policies have seen it, without secrets. The zero Asked has none.
func (a Asked) Call() policy.Call {
	if a.run.caller == nil {
		return policy.Call{}
	}
	return a.run.caller.Call(a.function, a.args, a.at, a.given)
}

// organization are the policies of an organization; those of the installation alone where nothing was reported of it, nil for none.
func (r *Registry) organization(id int64) *organization {
	r.mu.RLock()
	o := r.known[id]
	r.mu.RUnlock()
	if o != nil || r.installation == nil {
		return o
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[id] == nil {
		r.known[id] = compile(nil, r.installation)
	}
	return r.known[id]
}

// current makes sure that the policies are at least those that the run was created under.
func (r *Registry) current(ctx context.Context, run Run) error {
	if r.read.Load() && r.missing(run) == "" {
		return nil
	}
	if err := r.Read(ctx); err != nil {
		return err
	}
	if name := r.missing(run); name != "" {
		return fault.New(
			fault.Unavailable, "policy set %q of organization %d is not here yet in the version that run %q needs", name, run.Organization,
			run.Workflow,
		)
	}
	return nil
}

// missing is a set that is older than the run needs; empty for none.
func (r *Registry) missing(run Run) string {
	if len(run.Needs) == 0 {
		return ""
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(run.Needs)) {
		if o := r.known[run.Organization]; o == nil || o.versions[name] < run.Needs[name] {
			return name
		}
	}
	return ""
}

// decide decides by the sets that concern a run.
func (o *organization) decide(a Asked) policy.Decision {
	if o == nil {
		return policy.Decision{Verdict: policy.Allow}
	}
	if o.broken != "" {
		return policy.Failed(o.brokenSet, o.broken)
	}
	set, err := o.of(a.run)
	if err != nil {
		return policy.Failed("all", err.Error())
	}
	return set.DecideFor(a.run.caller, a.function, a.args, a.at, a.given)
}

// of are the sets that concern a run, ready to decide.
func (o *organization) of(run Run) (*policy.CallSet, error) {
	o.mu.RLock()
	known := o.combined[run.scope]
	o.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	environments := slices.Sorted(maps.Keys(run.Environments))
	levels := []policy.Level{{Name: "the installation"}, {Name: "the organization"}}
	groups := map[string]int{}
	for _, s := range o.sets {
		if s.Labels != nil && run.has(s.Labels) {
			groups[selector(s.Labels)] = 0
		}
	}
	for _, one := range slices.Sorted(maps.Keys(groups)) {
		groups[one] = len(levels)
		levels = append(levels, policy.Level{Name: "applications with " + one})
	}
	application := len(levels)
	levels = append(levels, policy.Level{Name: fmt.Sprintf("application %q", run.Name)})
	of := map[int64]int{}
	for _, id := range environments {
		of[id] = len(levels)
		levels = append(levels, policy.Level{Name: fmt.Sprintf("environment %q", cmp.Or(run.Environments[id].Name, "?"))})
	}
	for i, s := range o.sets {
		at := 1
		switch {
		case i < o.above:
			at = 0
		case s.Labels != nil && run.has(s.Labels):
			at = groups[selector(s.Labels)]
		case s.Application != 0 && s.Application == run.Application:
			at = application
		case s.Environment != 0 && of[s.Environment] != 0:
			at = of[s.Environment]
		case s.Application != 0 || s.Environment != 0 || s.Labels != nil:
			continue // of others
		}
		levels[at].Members = append(levels[at].Members, s.Member)
	}
	set, err := policy.CombineCalls(levels...)
	if err != nil {
		return nil, fmt.Errorf("combine the policies: %w", err)
	}
	set = set.Remember(o.memo)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.combined) >= combinations {
		o.combined = map[string]*policy.CallSet{}
	}
	o.combined[run.scope] = set
	return set, nil
}
