package trigger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ChainReads is what is read of chains.
type ChainReads interface {
	// Chains has no key for a chain that does not exist.
	Chains(ctx context.Context, organization int64, ids []int64) (map[int64]core.Chain, error)
	// ChainsByApplication returns the latest that rollouts of applications began, the latest first.
	ChainsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Chain, error)
	// ChainsByRollout returns those that rollouts began.
	ChainsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Chain, error)
	// ChainNodes returns the applications of chains, by block.
	ChainNodes(ctx context.Context, organization int64, chains []int64) (map[int64][]core.ChainNode, error)
	// ChainOfRollout returns the chain that began a rollout; false if none did.
	ChainOfRollout(ctx context.Context, organization, rollout int64) (core.Chain, bool, error)
}

// ChainTx is the part of a transaction about chains.
type ChainTx interface {
	ChainReads
	// LockChains keeps others from saving triggers of kind chain until the transaction ends.
	LockChains(ctx context.Context) error
	AddChain(ctx context.Context, c core.Chain, nodes []core.ChainNode) (core.Chain, error)
	// LockChainOfRollout locks the chain by which a trigger follows a rollout; false if there is none yet.
	LockChainOfRollout(ctx context.Context, trigger, rollout int64) (core.Chain, bool, error)
	LockChain(ctx context.Context, id int64) (core.Chain, error)
	// KeepChain keeps a chain from ending before the transaction does.
	KeepChain(ctx context.Context, id int64) (core.Chain, error)
	ChainNode(ctx context.Context, id int64) (core.ChainNode, error)
	// ChainsUnder returns those that rollouts of a chain began.
	ChainsUnder(ctx context.Context, chain int64) ([]core.Chain, error)
	SaveChain(ctx context.Context, c core.Chain) error
	SaveChainNode(ctx context.Context, n core.ChainNode) error
	// NudgeChain has a chain decided about now.
	NudgeChain(ctx context.Context, id int64, at time.Time) error
}

// Chains returns chains by their ids; no key for one that does not exist.
func (u *UseCases) Chains(ctx context.Context, organization int64, ids []int64) (map[int64]core.Chain, error) {
	return u.store.Chains(ctx, organization, ids)
}

// ChainsByApplication returns the latest that rollouts of applications began, the latest first.
func (u *UseCases) ChainsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Chain, error) {
	return u.store.ChainsByApplication(ctx, organization, applications)
}

// ChainsByRollout returns those that rollouts began.
func (u *UseCases) ChainsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Chain, error) {
	return u.store.ChainsByRollout(ctx, organization, rollouts)
}

// ChainNodes returns the applications of chains, by block.
func (u *UseCases) ChainNodes(ctx context.Context, organization int64, chains []int64) (map[int64][]core.ChainNode, error) {
	return u.store.ChainNodes(ctx, organization, chains)
}

// checkChain checks the members of a configuration that only triggers of kind chain have.
func (c config) checkChain() (found []fault.Field) {
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: "/config/" + field, Problem: fmt.Sprintf(format, args...)})
	}
	if len(c.Blocks) == 0 && len(c.Follows) == 0 {
		wrong("blocks", "found neither blocks nor follows; expected the applications that follow this one, or those that this one follows")
	}
	if len(c.Blocks) > maxBlocks {
		wrong("blocks", "found %d; expected at most %d", len(c.Blocks), maxBlocks)
	}
	if c.Environment != "" {
		found = append(found, core.CheckName("/config/environment", c.Environment)...)
		if len(c.Blocks) == 0 {
			wrong("environment", "found one without blocks; expected the blocks that begin after it")
		}
	}
	if c.Until != "" && len(c.Follows) == 0 {
		wrong("until", "found one without follows; expected the applications whose chains it is for")
	}
	for i, b := range c.Blocks {
		if len(b.Applications) == 0 && len(b.Labels) == 0 && len(b.Drivers) == 0 {
			wrong(fmt.Sprintf("blocks/%d", i), "found neither applications, nor labels, nor drivers; expected one of them")
		}
		found = append(found, core.CheckLabels(fmt.Sprintf("/config/blocks/%d/labels", i), b.Labels)...)
		list := func(field string, patterns []string) {
			at := fmt.Sprintf("blocks/%d/%s", i, field)
			if len(patterns) > maxPatterns {
				wrong(at, "found %d; expected at most %d", len(patterns), maxPatterns)
			}
			for j, one := range patterns {
				if one == "" || len(one) > maxPattern {
					wrong(fmt.Sprintf("%s/%d", at, j), "found %d bytes; expected 1 to %d", len(one), maxPattern)
				}
			}
		}
		list("applications", b.Applications)
		list("drivers", b.Drivers)
	}
	return found
}

// checkChain refuses a trigger of kind chain that names what does not exist, or with which chains would come back to where they began.
// Authors are checked one after the other, over all triggers of the organization.
func (u *UseCases) checkChain(ctx context.Context, tx Tx, organization int64, of core.Application, saved core.Trigger, c config) error {
	if saved.Kind != core.TriggerChain || !saved.Enabled {
		return nil
	}
	for i, b := range c.Blocks {
		for _, name := range b.named() {
			field := fmt.Sprintf("/config/blocks/%d/applications", i)
			found, err := tx.ApplicationByName(ctx, organization, name)
			if fault.Is(err, fault.NotFound) {
				return invalid(field, "found %.100q, which does not exist; expected names of applications, or patterns with *", name)
			}
			if err != nil {
				return err
			}
			if found.ID == of.ID {
				return invalid(field, "found %q, the application of the trigger; expected others", name)
			}
		}
	}
	return u.RefuseCircles(ctx, tx, organization, of.ID)
}

// RefuseCircles refuses what would have chains come back to an application, for as long as the transaction lasts.
func (u *UseCases) RefuseCircles(ctx context.Context, tx Tx, organization, application int64) error {
	if err := tx.LockChains(ctx); err != nil {
		return err
	}
	g, err := u.chainGraph(ctx, tx, organization)
	if err != nil {
		return err
	}
	if circle := g.circle(application); len(circle) > 0 {
		return fault.New(fault.Refused, "chains would come back to where they began: %s; take one of them out of the blocks, or out of follows",
			strings.Join(circle, " → "))
	}
	return nil
}

// chainGraph is which applications follow which, by the triggers that are on.
type chainGraph struct {
	followers map[int64]follower
	// blocks are those of all triggers of an application.
	blocks map[int64][]block
	names  map[int64]core.Application
	former map[int64][]string
}

func (u *UseCases) chainGraph(ctx context.Context, tx Tx, organization int64) (chainGraph, error) {
	g := chainGraph{blocks: map[int64][]block{}}
	all, err := tx.TriggersOfKind(ctx, organization, core.TriggerChain)
	if err != nil {
		return g, err
	}
	if g.followers, err = u.followers(ctx, tx, organization, all); err != nil {
		return g, err
	}
	var ids []int64
	for _, t := range all {
		ids = append(ids, t.ApplicationID)
		if c, err := u.read(t.Kind, t.Config); err == nil {
			g.blocks[t.ApplicationID] = append(g.blocks[t.ApplicationID], c.Blocks...)
		}
	}
	if g.former, err = tx.FormerNames(ctx, organization, core.Distinct(ids)); err != nil {
		return g, err
	}
	g.names, err = tx.ApplicationsByID(ctx, organization, core.Distinct(ids))
	return g, err
}

// after returns the applications that follow one directly.
func (g chainGraph) after(id int64) []int64 {
	var found []int64
	for other, f := range g.followers {
		if f.follows(g.names[id], g.former[id]) &&
			slices.ContainsFunc(g.blocks[id], func(b block) bool { return b.selects(f.selectable) }) {
			found = append(found, other)
		}
	}
	slices.Sort(found)
	return found
}

// circle returns the names on a way from an application back to it; nil if there is none.
func (g chainGraph) circle(from int64) []string {
	before, todo := map[int64]int64{}, []int64{from}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		for _, next := range g.after(at) {
			if next == from {
				way := []string{g.names[from].Name}
				for ; at != from; at = before[at] {
					way = append(way, g.names[at].Name)
				}
				way = append(way, g.names[from].Name)
				slices.Reverse(way)
				return way
			}
			if _, seen := before[next]; !seen {
				before[next], todo = at, append(todo, next)
			}
		}
	}
	return nil
}

// ended is how a chain ends, and what becomes of the applications in it that have not.
type ended struct {
	chain  core.ChainState
	node   core.ChainNodeState
	reason string
	at     time.Time
}

// endChain ends a chain that is locked.
func (u *UseCases) endChain(ctx context.Context, tx Tx, organization int64, c core.Chain, e ended) (core.Chain, error) {
	all, err := tx.ChainNodes(ctx, organization, []int64{c.ID})
	if err != nil {
		return c, err
	}
	for _, n := range all[c.ID] {
		state, why := n.Standing()
		if !state.Ended() {
			state, why = e.node, e.reason
		}
		if state == n.State {
			continue
		}
		n.State, n.Reason = state, why
		if err := tx.SaveChainNode(ctx, n); err != nil {
			return c, err
		}
	}
	c.State, c.Reason, c.EndedAt = e.chain, e.reason, &e.at
	return c, tx.SaveChain(ctx, c)
}

// CancelChain ends a chain with everything in it: blocks that have not begun do not begin, rollouts in queues are taken out, those under
// way are cancelled, and so are the chains that they have begun. What was deployed stays.
func (u *UseCases) CancelChain(ctx context.Context, a core.Actor, id int64, reason string) (core.Chain, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Chain{}, err
	}
	var cancelled core.Chain
	err := core.Within(ctx, u.store, a, core.ActionCancelChain, func(ctx context.Context, tx Tx) error {
		c, err := tx.LockChain(ctx, id)
		if err != nil {
			return err
		}
		found, err := tx.ApplicationsByID(ctx, a.Organization, []int64{c.ApplicationID})
		if err != nil {
			return err
		}
		targets, err := core.ApplicationTargets(ctx, tx, a.Organization, c.ApplicationID)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionCancelChain, targets...); err != nil {
			return err
		}
		if c.State != core.ChainRunning {
			return fault.New(fault.Refused, "%s has ended: %s", c.Name(), c.Reason)
		}
		if cancelled, err = u.cancelAll(ctx, tx, a, c, core.Because("cancelled by "+a.DisplayName(), reason)); err != nil {
			return err
		}
		of := found[c.ApplicationID]
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionCancelChain, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: of.ID, Name: of.Name},
			ApplicationID: of.ID, Reason: reason, Detail: fmt.Sprintf("%s, which follows rollout_%d", c.Name(), c.RolloutID), Stricter: true,
		}, map[string]any{"state": c.State}, map[string]any{"state": cancelled.State})
	})
	u.wake()
	u.began()
	return cancelled, err
}

// cancelAll cancels a chain and those that its rollouts have begun. All are locked before any rollout, so that none begins meanwhile.
func (u *UseCases) cancelAll(ctx context.Context, tx Tx, a core.Actor, c core.Chain, why string) (core.Chain, error) {
	all := []core.Chain{c}
	for i := 0; i < len(all); i++ {
		under, err := tx.ChainsUnder(ctx, all[i].ID)
		if err != nil {
			return c, err
		}
		for _, one := range under {
			if one, err = tx.LockChain(ctx, one.ID); err != nil {
				return c, err
			}
			all = append(all, one)
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].State != core.ChainRunning {
			continue
		}
		text := why
		if i > 0 {
			text = fmt.Sprintf("%s, which began it, was %s", c.Name(), why)
		}
		var err error
		if all[i], err = u.cancelOne(ctx, tx, a, all[i], text); err != nil {
			return c, err
		}
	}
	return all[0], nil
}

func (u *UseCases) cancelOne(ctx context.Context, tx Tx, a core.Actor, c core.Chain, why string) (core.Chain, error) {
	all, err := tx.ChainNodes(ctx, a.Organization, []int64{c.ID})
	if err != nil {
		return c, err
	}
	queues := map[int64]bool{}
	for _, n := range all[c.ID] {
		if state, _ := n.Standing(); state != core.NodeQueued {
			continue
		}
		waiting, err := tx.QueuedRollouts(ctx, a.Organization, []int64{n.ApplicationID})
		if err != nil {
			return c, err
		}
		q, queued := waiting[n.ApplicationID]
		if !queued || q.TriggerID != n.TriggerID {
			continue
		}
		queues[n.ID] = true
		if _, err := u.rollouts.Dequeue(ctx, tx, a, q, fmt.Sprintf("%s, which it is part of, was %s", c.Name(), why)); err != nil {
			return c, err
		}
	}
	// Again: one may have left the queue and begun.
	if all, err = tx.ChainNodes(ctx, a.Organization, []int64{c.ID}); err != nil {
		return c, err
	}
	for _, n := range all[c.ID] {
		state, _ := n.Standing()
		if !queues[n.ID] && state != core.NodeRunning || state == core.NodeCompleted {
			continue
		}
		if n.RolloutID == 0 {
			n.State, n.Reason = core.NodeCancelled, why
			if err := tx.SaveChainNode(ctx, n); err != nil {
				return c, err
			}
			continue
		}
		if err := u.rollouts.CancelWith(ctx, tx, a, n.RolloutID, fmt.Sprintf("%s, which began it, was %s", c.Name(), why)); err != nil {
			return c, err
		}
		n.State, n.Reason = core.NodeCancelled, why
		if err := tx.SaveChainNode(ctx, n); err != nil {
			return c, err
		}
	}
	now := u.clock.Now()
	if c, err = u.endChain(ctx, tx, a.Organization, c, ended{core.ChainCancelled, core.NodeCancelled, why, now}); err != nil {
		return c, err
	}
	return c, tx.NudgeChain(ctx, c.ID, now)
}
