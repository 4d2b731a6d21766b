package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// PinPlaces implements rollout.Tx.
func (t *tx) PinPlaces(ctx context.Context, rollout, environment int64, places []core.Place, weights []int) error {
	encoded, err := json.Marshal(append([]core.Place{}, places...))
	if err != nil {
		return fmt.Errorf("encode places of rollout %d: %w", rollout, err)
	}
	p := query.InsertRolloutPlacesParams{
		OrganizationID: t.organization, RolloutID: rollout, EnvironmentID: environment, Places: encoded,
		Weights: []int32{},
	}
	for _, w := range weights {
		p.Weights = append(p.Weights, int32(w))
	}
	return pg.Classify(t.q.InsertRolloutPlaces(ctx, p), "pin places of rollout %d", rollout)
}

// PinnedPlaces implements rollout.Tx.
func (t *tx) PinnedPlaces(ctx context.Context, rollout, environment int64) (places []core.Place, weights []int, err error) {
	row, err := t.q.RolloutPlaces(ctx, t.organization, rollout, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, pg.Classify(err, "read places of rollout %d", rollout)
	}
	for _, w := range row.Weights {
		weights = append(weights, int(w))
	}
	if err := json.Unmarshal(row.Places, &places); err != nil {
		return nil, nil, fmt.Errorf("decode places of rollout %d: %w", rollout, err)
	}
	return places, weights, nil
}

// SetDirectChanges implements setup.Tx.
func (t *tx) SetDirectChanges(ctx context.Context, environment int64, allowed bool) error {
	return pg.Classify(t.q.SetDirectChanges(ctx, t.organization, environment, allowed), "set direct changes of environment %d", environment)
}

// DirectChanges implements core.PlacesTx and view.Reads.
func (r reader) DirectChanges(ctx context.Context, organization int64, environments []int64) (map[int64]bool, error) {
	allowed := map[int64]bool{}
	err := r.run(ctx, organization, func(q *query.Queries) error {
		ids, err := q.DirectChanges(ctx, organization, environments)
		for _, one := range ids {
			allowed[one] = true
		}
		return pg.Classify(err, "read direct changes of %d environments", len(environments))
	})
	return allowed, err
}

// AnnouncePlaces implements core.PlacesTx.
func (t *tx) AnnouncePlaces(ctx context.Context, at time.Time, all ...core.Territory) error {
	if len(all) == 0 {
		return nil
	}
	sequence, err := t.q.PlacesSequence(ctx)
	if err != nil {
		return pg.Classify(err, "number the places of environment %d", all[0].EnvironmentID)
	}
	events := make([]event.Sealed, len(all))
	for i, territory := range all {
		events[i], err = event.Make(event.Header{
			ID: id.New(at), Source: Source, Organization: t.organization,
			Correlation: "environment-" + strconv.FormatInt(territory.EnvironmentID, 10), Time: at,
		}, event.EnvironmentPlacesChanged{
			EnvironmentID: territory.EnvironmentID, Name: territory.Name, ApplicationID: territory.ApplicationID, Sequence: sequence,
			Protected: territory.Protected, Archived: territory.Archived, Places: eventPlaces(territory.Places),
			Fleet: eventFleet(territory.Fleet),
		})
		if err != nil {
			return fmt.Errorf("make the event of the places of environment %d: %w", territory.EnvironmentID, err)
		}
	}
	return t.deps.Publish(ctx, outgoing{t.pgx, t.line}, events...)
}

// eventFleet are the clusters of an environment of many as events have them; nil for none.
func eventFleet(f *core.FleetClusters) *event.FleetPlaces {
	if f == nil {
		return nil
	}
	return &event.FleetPlaces{AgentIDs: append([]int64{}, f.Agents...), TargetIDs: append([]int64{}, f.Targets...)}
}

// eventPlaces are places as events have them.
func eventPlaces(places []core.Place) []event.Place {
	all := make([]event.Place, len(places))
	for i, p := range places {
		all[i] = event.Place(p)
	}
	return all
}

// EnvironmentsAfter implements setup.Store.
func (s *Store) EnvironmentsAfter(ctx context.Context, behind int64, most int) ([]setup.PlacedEnvironment, error) {
	rows, err := query.New(s.deps.Pool).EnvironmentsAfter(ctx, behind, int32(most))
	return convertAll(rows, func(r query.EnvironmentsAfterRow) setup.PlacedEnvironment { return setup.PlacedEnvironment(r) }),
		pg.Classify(err, "read environments behind %d", behind)
}

func rolloutFleet(r query.RolloutFleet) core.RolloutFleet {
	f := core.RolloutFleet{
		RolloutEnvironmentID: r.RolloutEnvironmentID, Waves: int(r.Waves), Targets: int(r.Targets), Healthy: int(r.Healthy),
		Failed: int(r.Failed), Agents: r.Agents,
	}
	_ = json.Unmarshal(r.Fleet, &f.Spec) // what was stored was read before
	return f
}

func rolloutWave(r query.RolloutWave) core.RolloutWave {
	return core.RolloutWave{
		RolloutEnvironmentID: r.RolloutEnvironmentID, Attempt: int(r.Attempt), StartedAt: r.StartedAt,
		Wave: fleet.Wave{
			Number: int(r.Wave), Targets: int(r.Targets), Healthy: int(r.Healthy), Failed: int(r.Failed), FinishedAt: r.FinishedAt, Paused: r.Paused,
			Begun: r.Attempt > 0,
		},
	}
}

func rolloutTarget(r query.RolloutTarget) core.RolloutTarget {
	return core.RolloutTarget{
		RolloutEnvironmentID: r.RolloutEnvironmentID, AgentID: r.AgentID, Name: r.Name, Wave: int(r.Wave), State: core.TargetState(r.State),
		Attempt: int(r.Attempt), Reason: r.Reason, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Place: r.Place,
	}
}

// LabelledAgents implements rollout.Tx and core.PlacesTx.
func (t *tx) LabelledAgents(ctx context.Context) ([]fleet.Target, error) {
	rows, err := t.q.LabelledAgents(ctx, t.organization)
	all := make([]fleet.Target, len(rows))
	for i, r := range rows {
		all[i] = fleet.Target{AgentID: r.ID, Name: r.Name}
		if err := json.Unmarshal(r.Labels, &all[i].Labels); err != nil {
			return nil, fmt.Errorf("decode labels of agent %d: %w", r.ID, err)
		}
	}
	return all, pg.Classify(err, "read agents with labels")
}

// RolloutFleetAgents implements rollout.Tx.
func (t *tx) RolloutFleetAgents(ctx context.Context, environment int64) ([]rollout.PinnedTarget, error) {
	rows, err := t.q.RolloutFleetAgents(ctx, t.organization, environment)
	return convertAll(rows, func(r query.RolloutFleetAgentsRow) rollout.PinnedTarget {
		return rollout.PinnedTarget{Target: fleet.Target{AgentID: r.AgentID, Name: r.Name}, Wave: int(r.Wave), Begun: r.Begun, Revoked: r.Revoked}
	}), pg.Classify(err, "read the targets of rollout environment %d", environment)
}

// TargetsThatRan implements rollout.Tx.
func (t *tx) TargetsThatRan(ctx context.Context, application int64, environments []int64) (map[int64]map[int64]rollout.RanTarget, error) {
	rows, err := t.q.TargetsThatRan(ctx, environments, t.organization, application)
	all := map[int64]map[int64]rollout.RanTarget{}
	for _, r := range rows {
		if all[r.EnvironmentID] == nil {
			all[r.EnvironmentID] = map[int64]rollout.RanTarget{}
		}
		all[r.EnvironmentID][r.AgentID] = rollout.RanTarget{VersionSetID: r.VersionSetID, Healthy: r.Healthy}
	}
	return all, pg.Classify(err, "read what runs in the fleets of application %d", application)
}

// AddRolloutFleet implements rollout.Tx.
func (t *tx) AddRolloutFleet(
	ctx context.Context, rolloutEnvironment int64, spec json.RawMessage, agents []int64, waves [][]fleet.Target,
) error {
	w := query.InsertRolloutWavesParams{OrganizationID: t.organization, RolloutEnvironmentID: rolloutEnvironment}
	all := query.InsertRolloutTargetsParams{OrganizationID: t.organization, RolloutEnvironmentID: rolloutEnvironment}
	for i, targets := range waves {
		w.Waves, w.Targets = append(w.Waves, int32(i+1)), append(w.Targets, int32(len(targets)))
		for _, target := range targets {
			all.Agents, all.Names, all.Waves = append(all.Agents, target.AgentID), append(all.Names, target.Name), append(all.Waves, int32(i+1))
		}
	}
	err := t.q.InsertRolloutFleet(ctx, query.InsertRolloutFleetParams{
		OrganizationID: t.organization, RolloutEnvironmentID: rolloutEnvironment, Fleet: spec, Agents: append([]int64{}, agents...),
		Waves: int32(len(waves)), Targets: int32(len(all.Agents)),
	})
	if err == nil {
		err = t.q.InsertRolloutWaves(ctx, w)
	}
	if err == nil {
		err = t.q.InsertRolloutTargets(ctx, all)
	}
	return pg.Classify(err, "add the fleet of rollout environment %d", rolloutEnvironment)
}

// RolloutFleets implements rollout.Tx and view.Reads.
func (r reader) RolloutFleets(ctx context.Context, organization int64, environments []int64) (map[int64]core.RolloutFleet, error) {
	return byKey(ctx, r, organization, environments, "fleets of rollouts", (*query.Queries).RolloutFleets,
		keyed(rolloutFleet, func(f core.RolloutFleet) int64 { return f.RolloutEnvironmentID }))
}

// RolloutWaves implements rollout.Tx and view.Reads.
func (r reader) RolloutWaves(ctx context.Context, organization int64, environments []int64) (map[int64][]core.RolloutWave, error) {
	return under(ctx, r, organization, environments, "waves of rollouts", (*query.Queries).RolloutWaves,
		func(row query.RolloutWave) (int64, core.RolloutWave) {
			return row.RolloutEnvironmentID, rolloutWave(row)
		})
}

// RolloutTargets implements view.Reads.
func (r reader) RolloutTargets(
	ctx context.Context, organization, environment int64, f core.TargetFilter, p core.Page,
) (core.Slice[core.RolloutTarget], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "targets of rollouts",
		func(q *query.Queries, w core.Window) ([]query.RolloutTarget, error) {
			return q.ListRolloutTargets(ctx, query.ListRolloutTargetsParams{
				OrganizationID: organization, RolloutEnvironmentID: environment, Wave: int32(f.Wave), State: string(f.State),
				Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, AtMost: limit(w),
			})
		}, rolloutTarget, numbered(func(t core.RolloutTarget) int64 { return t.Place }))
}

// CountRolloutTargets implements view.Counts.
func (r reader) CountRolloutTargets(ctx context.Context, organization, environment int64, f core.TargetFilter) (int, error) {
	return count(ctx, r, organization, "targets of rollouts", func(q *query.Queries) (int64, error) {
		return q.CountRolloutTargets(ctx, query.CountRolloutTargetsParams{
			OrganizationID: organization, RolloutEnvironmentID: environment, Wave: int32(f.Wave), State: string(f.State),
		})
	})
}

// BeginRolloutWave implements rollout.Tx.
func (t *tx) BeginRolloutWave(ctx context.Context, environment int64, wave int, at time.Time) error {
	_, err := t.q.BeginRolloutWave(ctx, query.BeginRolloutWaveParams{
		At: at, OrganizationID: t.organization, RolloutEnvironmentID: environment, Wave: int32(wave),
	})
	return pg.Classify(err, "begin wave %d of rollout environment %d", wave, environment)
}

// EndRolloutTarget implements rollout.Tx.
func (t *tx) EndRolloutTarget(ctx context.Context, e core.RolloutTarget) (waveEnded bool, err error) {
	ended, err := t.q.EndRolloutTarget(ctx, query.EndRolloutTargetParams{
		At: e.FinishedAt, OrganizationID: t.organization, RolloutEnvironmentID: e.RolloutEnvironmentID, State: string(e.State), Reason: e.Reason,
		AgentID: e.AgentID, Attempt: int32(e.Attempt),
	})
	if err != nil || len(ended) > 0 {
		return len(ended) > 0 && ended[0], pg.Classify(err, "end target %d of rollout environment %d", e.AgentID, e.RolloutEnvironmentID)
	}
	known, err := t.q.RolloutTarget(ctx, t.organization, e.RolloutEnvironmentID, e.AgentID)
	if err == nil && len(known) == 0 {
		return false, fault.New(fault.NotFound, "agent %d is no target of rollout environment %d", e.AgentID, e.RolloutEnvironmentID)
	}
	return false, pg.Classify(err, "read target %d of rollout environment %d", e.AgentID, e.RolloutEnvironmentID)
}

// EndRolloutTargets implements rollout.Tx.
func (t *tx) EndRolloutTargets(ctx context.Context, environment int64, reason string, at time.Time) error {
	err := t.q.EndRolloutTargets(ctx, query.EndRolloutTargetsParams{
		At: &at, OrganizationID: t.organization, RolloutEnvironmentID: environment, Reason: reason,
	})
	return pg.Classify(err, "end the targets of rollout environment %d", environment)
}

// WaveAgents implements rollout.Tx.
func (t *tx) WaveAgents(ctx context.Context, environment int64, wave int) ([]int64, error) {
	agents, err := t.q.WaveAgents(ctx, t.organization, environment, int32(wave))
	return agents, pg.Classify(err, "read the agents of wave %d of rollout environment %d", wave, environment)
}

// PauseRolloutWave implements rollout.Tx.
func (t *tx) PauseRolloutWave(ctx context.Context, environment int64, wave int, paused bool) error {
	err := t.q.PauseRolloutWave(ctx, query.PauseRolloutWaveParams{
		Paused: paused, OrganizationID: t.organization, RolloutEnvironmentID: environment, Wave: int32(wave),
	})
	return pg.Classify(err, "pause wave %d of rollout environment %d", wave, environment)
}

// Proposal implements rollout.Tx.
func (t *tx) Proposal(ctx context.Context, rollout, environment int64) (core.ForgeProposal, bool, error) {
	row, err := t.q.RolloutProposal(ctx, t.organization, rollout, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.ForgeProposal{}, false, nil
	}
	if err != nil {
		return core.ForgeProposal{}, false, pg.Classify(err, "read proposal of rollout %d", rollout)
	}
	return core.ForgeProposal{
		Repository: row.Repository, Branch: row.Branch, Number: row.Number, Head: row.Head, Status: core.ProposedStatus(row.State),
		EndedHead: row.EndedHead, EndedBranch: row.EndedBranch, By: row.EndedBy, ByID: row.EndedByID, Unshown: row.Unshown,
		ReportedAt: row.ReportedAt,
	}, true, nil
}

// AnswerProposal implements rollout.Tx. The answer names what was merged: another merge, also one that a replica of an earlier release
// writes beside it, has none yet.
func (t *tx) AnswerProposal(ctx context.Context, rollout, environment int64, ended, answer string) error {
	err := t.q.AnswerRolloutProposal(ctx, query.AnswerRolloutProposalParams{
		AnsweredHead: cmp.Or(ended, "unknown"), Answer: answer, OrganizationID: t.organization, RolloutID: rollout, EnvironmentID: environment,
	})
	return pg.Classify(err, "answer the merge of the proposal of rollout %d", rollout)
}

// SaveProposal implements rollout.Tx.
func (t *tx) SaveProposal(ctx context.Context, rollout, environment int64, p core.ForgeProposal) error {
	err := t.q.SaveRolloutProposal(ctx, query.SaveRolloutProposalParams{
		OrganizationID: t.organization, RolloutID: rollout, EnvironmentID: environment, Repository: p.Repository, Branch: p.Branch,
		Number: p.Number,
		Head:   p.Head, State: string(p.Status), EndedHead: p.EndedHead, EndedBranch: p.EndedBranch, EndedBy: p.By, EndedByID: p.ByID,
		Unshown: p.Unshown, ReportedAt: p.ReportedAt,
	})
	return pg.Classify(err, "save proposal of rollout %d", rollout)
}

// GateAnsweredBefore implements rollout.Tx.
func (t *tx) GateAnsweredBefore(ctx context.Context, rollout int64, gate string, request int64) (bool, error) {
	answered, err := t.q.GateAnsweredBefore(ctx, query.GateAnsweredBeforeParams{
		OrganizationID: t.organization, RolloutID: rollout, GateID: &gate, RequestID: request,
	})
	return answered, pg.Classify(err, "read the answers of gate %s of rollout %d", gate, rollout)
}

// MemberAtForge implements rollout.Tx.
func (t *tx) MemberAtForge(ctx context.Context, repository string, user int64) (core.Actor, string, error) {
	return chat.MemberAtForge(ctx, t, t.organization, repository, user)
}
