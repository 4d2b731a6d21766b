package trigger

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func chain(r query.Chain) core.Chain {
	return core.Chain{
		ID: r.ID, TriggerID: r.TriggerID, ApplicationID: r.ApplicationID, RolloutID: r.RolloutID, ParentID: orZero(r.ParentID),
		State: core.ChainState(r.State), Block: int(r.Block), Blocks: int(r.Blocks), Reason: r.Reason, BeganAt: r.BeganAt, EndedAt: r.EndedAt,
	}
}

func node(r query.ChainNodesRow) core.ChainNode {
	return core.ChainNode{
		ID: r.ID, ChainID: r.ChainID, Block: int(r.Block), ApplicationID: r.ApplicationID, TriggerID: orZero(r.TriggerID),
		State: core.ChainNodeState(r.State), Reason: r.Reason, RolloutID: r.RolloutID, Outcome: core.TriggerOutcome(r.Outcome),
		Decision:     r.Decision,
		RolloutState: core.RolloutState(r.RolloutState),
	}
}

// Chains implements trigger.ChainReads.
func (r Reads) Chains(ctx context.Context, organization int64, ids []int64) (map[int64]core.Chain, error) {
	all, err := read(ctx, r, organization, "chains", func(q *query.Queries) ([]query.Chain, error) {
		return q.ChainsByID(ctx, organization, ids)
	}, chain)
	found := map[int64]core.Chain{}
	for _, c := range all {
		found[c.ID] = c
	}
	return found, err
}

// chainsShown is how many chains of an application are read.
const chainsShown = 20

// ChainsByApplication implements trigger.ChainReads.
func (r Reads) ChainsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Chain, error) {
	all, err := read(ctx, r, organization, "chains", func(q *query.Queries) ([]query.Chain, error) {
		return q.ChainsByApplication(ctx, applications, organization, chainsShown)
	}, chain)
	return by(all, err, func(c core.Chain) int64 { return c.ApplicationID })
}

// ChainsByRollout implements trigger.ChainReads.
func (r Reads) ChainsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Chain, error) {
	all, err := read(ctx, r, organization, "chains", func(q *query.Queries) ([]query.Chain, error) {
		return q.ChainsByRollout(ctx, organization, rollouts)
	}, chain)
	return by(all, err, func(c core.Chain) int64 { return c.RolloutID })
}

// ChainNodes implements trigger.ChainReads.
func (r Reads) ChainNodes(ctx context.Context, organization int64, chains []int64) (map[int64][]core.ChainNode, error) {
	all, err := read(ctx, r, organization, "applications of chains", func(q *query.Queries) ([]query.ChainNodesRow, error) {
		return q.ChainNodes(ctx, organization, chains)
	}, node)
	return by(all, err, func(n core.ChainNode) int64 { return n.ChainID })
}

// ChainOfRollout implements trigger.ChainReads.
func (r Reads) ChainOfRollout(ctx context.Context, organization, rollout int64) (core.Chain, bool, error) {
	all, err := read(ctx, r, organization, "chain of a rollout", func(q *query.Queries) ([]query.Chain, error) {
		return q.ChainOfRollout(ctx, organization, &rollout)
	}, chain)
	if err != nil || len(all) == 0 {
		return core.Chain{}, false, err
	}
	return all[0], true, nil
}

// SignalChains implements rollout.Tx.
func (w Writes) SignalChains(ctx context.Context, rollout, environment int64, at time.Time) error {
	err := w.Q.SignalChains(ctx, query.SignalChainsParams{
		OrganizationID: w.Entered, RolloutID: rollout, EnvironmentID: orNull(environment), At: at,
	})
	return pg.Classify(err, "signal chains of rollout %d", rollout)
}

// NudgeChainsOfRollout implements rollout.Tx.
func (w Writes) NudgeChainsOfRollout(ctx context.Context, rollout int64, at time.Time) error {
	err := w.Q.NudgeChainsOfRollout(ctx, at, w.Entered, &rollout)
	return pg.Classify(err, "nudge chains of rollout %d", rollout)
}

// NudgeChain implements trigger.Tx.
func (w Writes) NudgeChain(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.NudgeChain(ctx, at, w.Entered, id), "nudge chain %d", id)
}

// LockChains implements trigger.Tx.
func (w Writes) LockChains(ctx context.Context) error {
	return pg.Classify(w.Q.LockChains(ctx, w.Entered), "lock chains of organization %d", w.Entered)
}

// AddChain implements trigger.Tx.
func (w Writes) AddChain(ctx context.Context, c core.Chain, nodes []core.ChainNode) (core.Chain, error) {
	row, err := w.Q.InsertChain(ctx, query.InsertChainParams{
		OrganizationID: w.Entered, TriggerID: c.TriggerID, ApplicationID: c.ApplicationID, RolloutID: c.RolloutID, ParentID: orNull(c.ParentID),
		Blocks: int32(c.Blocks), BeganAt: c.BeganAt,
	})
	if err != nil {
		return c, pg.Classify(err, "add a chain after rollout %d", c.RolloutID)
	}
	p := query.InsertChainNodesParams{OrganizationID: w.Entered, ChainID: row.ID}
	for _, n := range nodes {
		p.Blocks, p.Applications = append(p.Blocks, int32(n.Block)), append(p.Applications, n.ApplicationID)
		p.Triggers = append(p.Triggers, n.TriggerID)
		p.States, p.Reasons = append(p.States, string(n.State)), append(p.Reasons, n.Reason)
	}
	return chain(row), pg.Classify(w.Q.InsertChainNodes(ctx, p), "add applications to chain %d", row.ID)
}

// LockChainOfRollout implements trigger.Tx.
func (w Writes) LockChainOfRollout(ctx context.Context, trigger, rollout int64) (core.Chain, bool, error) {
	row, err := w.Q.LockChainOfRollout(ctx, w.Entered, trigger, rollout)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Chain{}, false, nil
	}
	return chain(row), err == nil, pg.Classify(err, "lock the chain after rollout %d", rollout)
}

// LockChain implements trigger.Tx.
func (w Writes) LockChain(ctx context.Context, id int64) (core.Chain, error) {
	row, err := w.Q.LockChain(ctx, w.Entered, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Chain{}, fault.New(fault.NotFound, "chain %d does not exist", id)
	}
	return chain(row), pg.Classify(err, "lock chain %d", id)
}

// KeepChain implements trigger.Tx.
func (w Writes) KeepChain(ctx context.Context, id int64) (core.Chain, error) {
	row, err := w.Q.KeepChain(ctx, w.Entered, id)
	return chain(row), pg.Classify(err, "keep chain %d", id)
}

// ChainNode implements trigger.Tx.
func (w Writes) ChainNode(ctx context.Context, id int64) (core.ChainNode, error) {
	r, err := w.Q.ChainNodeByID(ctx, w.Entered, id)
	return core.ChainNode{
		ID: r.ID, ChainID: r.ChainID, Block: int(r.Block), ApplicationID: r.ApplicationID, TriggerID: orZero(r.TriggerID),
		State: core.ChainNodeState(r.State), Reason: r.Reason, RolloutID: orZero(r.RolloutID),
	}, pg.Classify(err, "read application %d of a chain", id)
}

// ChainsUnder implements trigger.Tx.
func (w Writes) ChainsUnder(ctx context.Context, of int64) ([]core.Chain, error) {
	rows, err := w.Q.ChainsUnder(ctx, w.Entered, []int64{of})
	all := make([]core.Chain, len(rows))
	for i, row := range rows {
		all[i] = chain(row)
	}
	return all, pg.Classify(err, "read the chains under chain %d", of)
}

// SaveChain implements trigger.Tx.
func (w Writes) SaveChain(ctx context.Context, c core.Chain) error {
	err := w.Q.SaveChain(ctx, query.SaveChainParams{
		OrganizationID: w.Entered, ID: c.ID, State: string(c.State), Block: int32(c.Block), Reason: c.Reason, EndedAt: c.EndedAt,
	})
	return pg.Classify(err, "save chain %d", c.ID)
}

// SaveChainNode implements trigger.Tx.
func (w Writes) SaveChainNode(ctx context.Context, n core.ChainNode) error {
	err := w.Q.SaveChainNode(ctx, query.SaveChainNodeParams{
		OrganizationID: w.Entered, ID: n.ID, State: string(n.State), Reason: n.Reason, RolloutID: orNull(n.RolloutID),
	})
	return pg.Classify(err, "save application %d of chain %d", n.ApplicationID, n.ChainID)
}

// DriversOfApplications implements trigger.Tx.
func (r Reads) DriversOfApplications(ctx context.Context, organization int64, ids []int64) (map[int64][]string, error) {
	all, err := read(ctx, r, organization, "drivers of applications", func(q *query.Queries) ([]query.DriversOfApplicationsRow, error) {
		return q.DriversOfApplications(ctx, organization, ids)
	}, func(row query.DriversOfApplicationsRow) query.DriversOfApplicationsRow { return row })
	found := map[int64][]string{}
	for _, row := range all {
		found[row.ApplicationID] = append(found[row.ApplicationID], row.DriverRef)
	}
	return found, err
}
