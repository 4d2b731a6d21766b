package trigger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// A trigger of kind chain has blocks, follows others, or both. One with blocks has a signal "rollout:<rollout>" for each rollout of its
// application that has come far enough. Deciding it begins the chain, and the signal stays pending, and is looked at again, until the chain
// has ended: a crash loses nothing. When a block begins, the trigger of each application in it gets a signal "chain:<node>", and decides it
// like any other trigger.

// maxNodes is the most applications of a chain.
const maxNodes = 200

// chain decides a signal of a trigger of kind chain: each on its own, for each is about another chain.
func (d *decision) chain(ctx context.Context) (core.TriggerSignal, error) {
	d.signals = d.signals[:1]
	what, number, _ := strings.Cut(d.signals[0].Cause, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return d.declines("the cause %q is none that the trigger knows", d.signals[0].Cause), nil //nolint:nilerr // it says so
	}
	if what == "chain" {
		return d.follow(ctx, n)
	}
	return d.lead(ctx, n)
}

// lead begins the chain of a rollout, or continues it.
func (d *decision) lead(ctx context.Context, of int64) (core.TriggerSignal, error) {
	c, begun, err := d.tx.LockChainOfRollout(ctx, d.trigger.ID, of)
	if err != nil {
		return core.TriggerSignal{}, err
	}
	if !begun {
		refused, err := d.refusesChain(ctx, of)
		if err == nil && refused == "" {
			c, refused, err = d.beginChain(ctx, of)
		}
		if err != nil || refused != "" {
			return d.declines("%s", refused), err
		}
	}
	return d.advance(ctx, c)
}

// refusesChain returns why no chain follows a rollout; empty if one does.
func (d *decision) refusesChain(ctx context.Context, of int64) (string, error) {
	found, err := d.tx.RolloutsByID(ctx, d.organization, []int64{of})
	if err != nil {
		return "", err
	}
	r := found[of]
	if r.IsRollback {
		return fmt.Sprintf("rollout_%d is a rollback, and a chain follows only rollouts that go forward", of), nil
	}
	goes, err := d.tx.RolloutEnvironmentsByRollout(ctx, d.organization, []int64{of})
	if err != nil {
		return "", err
	}
	skips, err := d.tx.SkipsByRollout(ctx, d.organization, []int64{of})
	if err != nil {
		return "", err
	}
	var ids []int64
	for _, e := range goes[of] {
		ids = append(ids, e.EnvironmentID)
	}
	for _, e := range skips[of] {
		ids = append(ids, e.EnvironmentID)
	}
	names, err := d.tx.EnvironmentsByID(ctx, d.organization, ids)
	if err != nil {
		return "", err
	}
	if len(skips[of]) > 0 && d.config.Environment == "" {
		return fmt.Sprintf("rollout_%d did not go to %q, and a chain begins when the whole pipeline is complete, unless the trigger names an environment",
			of, names[skips[of][0].EnvironmentID].Name), nil
	}
	news := slices.ContainsFunc(goes[of], func(e core.RolloutEnvironment) bool {
		return e.PreviousVersionSetID != r.VersionSetID && (d.config.Environment == "" || names[e.EnvironmentID].Name == d.config.Environment)
	})
	if !news { // drift that was repaired, or the same once more
		return fmt.Sprintf("rollout_%d brought nothing new: its version set was live already", of), nil
	}
	return "", nil
}

// follower is an application with the trigger by which it follows others.
type follower struct {
	core.Trigger
	selectable
	config config
}

// selectable is an application as blocks select it.
type selectable struct {
	application core.Application
	// former are its former names, and drivers those that its pipeline deploys with.
	former  []string
	labels  map[string]string
	drivers []string
}

// followers returns the triggers of an organization that follow others, one for each application, by its id.
func (u *UseCases) followers(ctx context.Context, tx Tx, organization int64, all []core.Trigger) (map[int64]follower, error) {
	var ids []int64
	for _, t := range all {
		ids = append(ids, t.ApplicationID)
	}
	applications, err := tx.ApplicationsByID(ctx, organization, core.Distinct(ids))
	if err != nil {
		return nil, err
	}
	former, err := tx.FormerNames(ctx, organization, core.Distinct(ids))
	if err != nil {
		return nil, err
	}
	labels, err := labelsOf(ctx, tx, organization, ids)
	if err != nil {
		return nil, err
	}
	drivers, err := tx.DriversOfApplications(ctx, organization, core.Distinct(ids))
	if err != nil {
		return nil, err
	}
	found := map[int64]follower{}
	for _, t := range all {
		c, err := u.read(t.Kind, t.Config)
		if err != nil || len(c.Follows) == 0 { // one that cannot be read follows nobody
			continue
		}
		if _, two := found[t.ApplicationID]; !two {
			id := t.ApplicationID
			found[id] = follower{t, selectable{applications[id], former[id], labels[id], drivers[id]}, c}
		}
	}
	return found, nil
}

// follows reports whether the application follows another one, which has some former names.
func (f follower) follows(head core.Application, former []string) bool {
	return f.application.ID != head.ID && isNamed(f.config.Follows, head, former)
}

// isNamed reports whether one of some patterns is about an application: by its present name, or as a whole by a former one (D57).
func isNamed(patterns []string, a core.Application, former []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return pattern.Match(p, a.Name) || slices.Contains(former, p) })
}

// labelsOf are the labels of applications, by number.
func labelsOf(ctx context.Context, tx Tx, organization int64, applications []int64) (map[int64]map[string]string, error) {
	of := make([]core.Detailed, 0, len(applications))
	for _, id := range core.Distinct(applications) {
		of = append(of, core.Detailed{Kind: core.ChangedApplication, ID: id})
	}
	all, err := tx.Details(ctx, organization, of)
	found := map[int64]map[string]string{}
	for one, d := range all {
		found[one.ID] = d.Labels
	}
	return found, err
}

// selects reports whether a block selects an application: by all of name, labels and driver that it has (R4-12).
func (b block) selects(a selectable) bool {
	byDriver := func(p string) bool {
		return slices.ContainsFunc(a.drivers, func(ref string) bool { return pattern.Match(p, ref) })
	}
	return (len(b.Applications) == 0 || isNamed(b.Applications, a.application, a.former)) &&
		(len(b.Labels) == 0 || core.HasLabels(a.labels, b.Labels)) &&
		(len(b.Drivers) == 0 || slices.ContainsFunc(b.Drivers, byDriver))
}

// named returns the applications that a block names without a pattern.
func (b block) named() []string {
	return slices.DeleteFunc(slices.Clone(b.Applications), func(p string) bool { return strings.Contains(p, "*") })
}

// beginChain pins the applications of a new chain. The text is why there is none; empty if it has begun.
func (d *decision) beginChain(ctx context.Context, of int64) (core.Chain, string, error) {
	c := core.Chain{
		TriggerID: d.trigger.ID, ApplicationID: d.trigger.ApplicationID, RolloutID: of, State: core.ChainRunning, Blocks: len(d.config.Blocks),
		BeganAt: d.now,
	}
	heads, parent, err := d.ancestors(ctx, of)
	if err != nil {
		return c, "", err
	}
	c.ParentID = parent
	nodes, head, err := d.members(ctx, heads)
	if err != nil {
		return c, "", err
	}
	switch {
	case len(nodes) > maxNodes:
		return c, fmt.Sprintf("the blocks select %d applications; expected at most %d", len(nodes), maxNodes), nil
	case !slices.ContainsFunc(nodes, func(n core.ChainNode) bool { return n.State == core.NodeWaiting }):
		return c, fmt.Sprintf("no application that the blocks select follows %q", head.Name), nil
	}
	c, err = d.tx.AddChain(ctx, c, nodes)
	return c, "", err
}

// ancestors returns the chain that began a rollout, 0 for none, and the applications of it and of the chains that led to it.
func (d *decision) ancestors(ctx context.Context, of int64) (heads []int64, parent int64, err error) {
	c, exists, err := d.tx.ChainOfRollout(ctx, d.organization, of)
	if err != nil || !exists {
		return nil, 0, err
	}
	parent = c.ID
	for {
		heads = append(heads, c.ApplicationID)
		if c.ParentID == 0 {
			return heads, parent, nil
		}
		found, err := d.tx.Chains(ctx, d.organization, []int64{c.ParentID})
		if err != nil {
			return nil, 0, err
		}
		c = found[c.ParentID]
	}
}

// members returns the applications that the blocks select, each in the first block that does, and the application of the trigger.
func (d *decision) members(ctx context.Context, heads []int64) ([]core.ChainNode, core.Application, error) {
	all, err := d.tx.TriggersOfKind(ctx, d.organization, core.TriggerChain)
	if err != nil {
		return nil, core.Application{}, err
	}
	follow, err := d.u.followers(ctx, d.tx, d.organization, all)
	if err != nil {
		return nil, core.Application{}, err
	}
	found, err := d.tx.ApplicationsByID(ctx, d.organization, []int64{d.trigger.ApplicationID})
	if err != nil {
		return nil, core.Application{}, err
	}
	head := found[d.trigger.ApplicationID]
	formerly, err := d.tx.FormerNames(ctx, d.organization, []int64{head.ID})
	if err != nil {
		return nil, head, err
	}
	var nodes []core.ChainNode
	taken := map[int64]bool{head.ID: true}
	add := func(block int, application, trigger int64, skipped string) {
		n := core.ChainNode{Block: block, ApplicationID: application, TriggerID: trigger, State: core.NodeWaiting}
		if skipped != "" {
			n.State, n.TriggerID, n.Reason = core.NodeSkipped, 0, skipped
		}
		nodes, taken[application] = append(nodes, n), true
	}
	for i, b := range d.config.Blocks {
		for _, id := range slices.Sorted(maps.Keys(follow)) {
			f := follow[id]
			if taken[id] || !b.selects(f.selectable) || !f.follows(head, formerly[head.ID]) {
				continue
			}
			skipped := ""
			switch {
			case f.application.ArchivedAt != nil:
				skipped = fmt.Sprintf("%q is archived", f.application.Name)
			case slices.Contains(heads, id): // authors cannot write such a chain, but labels and drivers may change later
				skipped = fmt.Sprintf("the chain began with %q, and does not come back to it", f.application.Name)
			}
			add(i+1, id, f.ID, skipped)
		}
		for _, name := range b.named() {
			a, err := d.tx.ApplicationByName(ctx, d.organization, name)
			if fault.Is(err, fault.NotFound) || err == nil && taken[a.ID] {
				continue
			}
			if err != nil {
				return nil, head, err
			}
			why := fmt.Sprintf("%q does not follow %q: none of its triggers of kind chain that are on says so", a.Name, head.Name)
			if f, follows := follow[a.ID]; follows && f.follows(head, formerly[head.ID]) {
				why = fmt.Sprintf("no environment of %q has one of the drivers of the block", a.Name)
				if len(b.Labels) > 0 && !core.HasLabels(f.labels, b.Labels) {
					why = fmt.Sprintf("%q does not have the labels of the block", a.Name)
				}
			}
			add(i+1, a.ID, 0, why)
		}
	}
	return nodes, head, nil
}

// advance records what came of the block that has begun last, and begins the next one once it has ended.
func (d *decision) advance(ctx context.Context, c core.Chain) (core.TriggerSignal, error) {
	for {
		switch c.State {
		case core.ChainCompleted:
			s := d.declines("%s", c.Reason)
			s.Outcome = core.TriggerDone
			return s, nil
		case core.ChainStopped, core.ChainCancelled:
			return d.declines("%s: %s", c.Name(), c.Reason), nil
		case core.ChainRunning:
		}
		open, failed, err := d.settleBlock(ctx, c)
		if err != nil {
			return core.TriggerSignal{}, err
		}
		if len(open) > 0 {
			text := fmt.Sprintf("%s follows rollout_%d: block %d of %d waits for %s", c.Name(), c.RolloutID, c.Block, c.Blocks, listed(open))
			if len(failed) > 0 {
				text += "; no later block begins, for " + listed(failed)
			}
			return d.waits(d.now.Add(again), "%s", text), nil
		}
		if c, err = d.nextBlock(ctx, c, failed); err != nil {
			return core.TriggerSignal{}, err
		}
	}
}

// settleBlock keeps how the applications of a chain's present block ended; open are those that have not, and failed says what failed.
func (d *decision) settleBlock(ctx context.Context, c core.Chain) (open, failed []string, err error) {
	all, err := d.tx.ChainNodes(ctx, d.organization, []int64{c.ID})
	if err != nil {
		return nil, nil, err
	}
	var ids []int64
	for _, n := range all[c.ID] {
		ids = append(ids, n.ApplicationID)
	}
	names, err := d.tx.ApplicationsByID(ctx, d.organization, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range all[c.ID] {
		if n.Block != c.Block {
			continue
		}
		name := names[n.ApplicationID].Name
		state, why := n.Standing()
		switch {
		case !state.Ended():
			open = append(open, name)
			continue
		case state == core.NodeFailed:
			failed = append(failed, fmt.Sprintf("%q failed (%s)", name, why))
		}
		if n.State != state {
			n.State, n.Reason = state, why
			if err := d.tx.SaveChainNode(ctx, n); err != nil {
				return nil, nil, err
			}
		}
	}
	return open, failed, nil
}

// nextBlock begins the next block of a chain, or ends the chain.
func (d *decision) nextBlock(ctx context.Context, c core.Chain, failed []string) (core.Chain, error) {
	if len(failed) > 0 {
		return d.u.endChain(ctx, d.tx, d.organization, c, ended{
			core.ChainStopped, core.NodeStopped,
			fmt.Sprintf("after block %d of %d no block begins, for %s", c.Block, c.Blocks, listed(failed)), d.now,
		})
	}
	if c.Block == c.Blocks {
		return d.u.endChain(ctx, d.tx, d.organization, c, ended{
			core.ChainCompleted, core.NodeStopped,
			fmt.Sprintf("%s, which follows rollout_%d, is complete", c.Name(), c.RolloutID), d.now,
		})
	}
	c.Block++
	all, err := d.tx.ChainNodes(ctx, d.organization, []int64{c.ID})
	if err != nil {
		return c, err
	}
	for _, n := range all[c.ID] {
		if n.Block != c.Block || n.State != core.NodeWaiting {
			continue
		}
		n.State = core.NodeBegun
		if err := d.tx.SaveChainNode(ctx, n); err != nil {
			return c, err
		}
		if _, err := d.tx.AddSignal(ctx, n.TriggerID, fmt.Sprintf("chain:%d", n.ID), d.now, d.now); err != nil {
			return c, err
		}
	}
	return c, d.tx.SaveChain(ctx, c)
}

// follow begins the rollout of an application in a chain.
func (d *decision) follow(ctx context.Context, node int64) (core.TriggerSignal, error) {
	n, err := d.tx.ChainNode(ctx, node)
	if err != nil {
		return core.TriggerSignal{}, err
	}
	c, err := d.tx.KeepChain(ctx, n.ChainID)
	if err != nil {
		return core.TriggerSignal{}, err
	}
	if c.State != core.ChainRunning || n.State != core.NodeBegun {
		return d.declines("%s has ended: %s", c.Name(), c.Reason), nil
	}
	s, err := d.followIn(ctx, c)
	if err != nil || s.Outcome == core.TriggerWaits {
		return s, err
	}
	return s, d.tx.NudgeChain(ctx, c.ID, d.now)
}

// followIn rolls out the newest version set of the application, unless one that carries it is under way already.
func (d *decision) followIn(ctx context.Context, c core.Chain) (core.TriggerSignal, error) {
	application := d.trigger.ApplicationID
	newest, err := d.tx.NewestVersionSets(ctx, d.organization, []int64{application})
	if err != nil {
		return core.TriggerSignal{}, err
	}
	var exists bool
	if d.set, exists = newest[application]; !exists {
		return d.declines("the application has no version set yet"), nil
	}
	active, err := d.tx.ActiveRollouts(ctx, d.organization, []int64{application})
	if err != nil {
		return core.TriggerSignal{}, err
	}
	if r, busy := active[application]; busy && r.VersionSetID == d.set.ID {
		return d.waits(d.now.Add(again), "rollout_%d, which is %s, carries %s already; it is looked at again when it has ended", r.ID, r.State.Words(),
			d.set.Name), nil
	}
	waiting, err := d.tx.QueuedRollouts(ctx, d.organization, []int64{application})
	if err != nil {
		return core.TriggerSignal{}, err
	}
	if q, queued := waiting[application]; queued && q.VersionSetID == d.set.ID {
		return d.waits(d.now.Add(again), "%s is in the queue of the application already", d.set.Name), nil
	}
	d.in = c
	return d.begin(ctx, rollout.Automatic{Until: d.config.Until, Inputs: d.config.Inputs})
}

// endChains ends the chains of signals that are declined, because their trigger was switched off or removed.
func (d *decision) endChains(ctx context.Context, why string) error {
	if d.trigger.Kind != core.TriggerChain {
		return nil
	}
	for _, s := range d.signals {
		number, leads := strings.CutPrefix(s.Cause, "rollout:")
		of, err := strconv.ParseInt(number, 10, 64)
		if !leads || err != nil {
			continue
		}
		c, begun, err := d.tx.LockChainOfRollout(ctx, d.trigger.ID, of)
		if err != nil {
			return err
		}
		if !begun || c.State != core.ChainRunning {
			continue
		}
		if _, err := d.u.endChain(ctx, d.tx, d.organization, c, ended{core.ChainStopped, core.NodeStopped, why, d.now}); err != nil {
			return err
		}
	}
	return nil
}

func listed(all []string) string { return strings.Join(all, ", ") }
