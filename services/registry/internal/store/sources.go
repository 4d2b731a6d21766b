package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store/query"
)

// Sources stores the domain's artifact sources, their polling schedule, and the outcome of the last poll. Found artifacts are published
// through Hooks.
type Sources struct {
	pool  *pgxpool.Pool
	hooks *Hooks
	wake  func()
}

var _ core.SourceQueue = (*Sources)(nil)

// NewSources returns a store of sources. It calls wake when something may have become due.
func NewSources(pool *pgxpool.Pool, hooks *Hooks, wake func()) *Sources {
	return &Sources{pool: pool, hooks: hooks, wake: wake}
}

// Put stores some of the domain's sources, as of a pull. A new or changed source is due at the time that next returns.
func (s *Sources) Put(ctx context.Context, pulled time.Time, all []core.Source, next func(core.Source) *time.Time) error {
	params := make([]query.PutSourceParams, len(all))
	for i, src := range all {
		params[i] = query.PutSourceParams{
			ID: src.ID, OrganizationID: src.Organization, SourceRef: src.Ref, SourceConfig: src.Config, Revision: src.Revision,
			Name: src.Name, Place: src.Place, IntervalSeconds: int32(src.Interval / time.Second), PulledAt: pulled, NextAt: next(src),
		}
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var failed error
		query.New(tx).PutSource(ctx, params).Exec(func(i int, err error) {
			if err != nil && failed == nil {
				failed = pg.Classify(err, "store source %d", all[i].ID)
			}
		})
		return failed
	})
	if err != nil {
		return fmt.Errorf("store %d sources: %w", len(all), err)
	}
	s.wake()
	return nil
}

// Organizations returns the organizations that had sources at the last pull.
func Organizations(ctx context.Context, pool *pgxpool.Pool) ([]int64, error) {
	all, err := query.New(pool).Organizations(ctx)
	return all, pg.Classify(err, "list the organizations with sources")
}

// Drop removes sources that the domain no longer has: those that the pull has not stored again.
func (s *Sources) Drop(ctx context.Context, pulled time.Time) error {
	return pg.Classify(query.New(s.pool).DropSources(ctx, pulled), "remove sources that no longer exist")
}

// ClaimSources implements core.SourceQueue.
func (s *Sources) ClaimSources(ctx context.Context, now, until time.Time, most int) ([]core.Source, error) {
	rows, err := query.New(s.pool).ClaimSources(ctx, query.ClaimSourcesParams{Now: now, Until: until, Most: int32(most)})
	if err != nil {
		return nil, pg.Classify(err, "claim %d sources", most)
	}
	all := make([]core.Source, len(rows))
	for i, r := range rows {
		all[i] = convert(r)
	}
	return all, nil
}

// TakeSource implements core.SourceQueue.
func (s *Sources) TakeSource(ctx context.Context, organization, id int64, until time.Time) (core.Source, error) {
	row, err := query.New(s.pool).TakeSource(ctx, query.TakeSourceParams{ID: id, OrganizationID: organization, Until: until})
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Source{}, fault.New(fault.NotFound, "organization %d has no source %d here", organization, id)
	}
	return convert(row), pg.Classify(err, "take source %d", id)
}

func convert(r query.Source) core.Source {
	return core.Source{
		ID: r.ID, Organization: r.OrganizationID, Ref: r.SourceRef, Config: r.SourceConfig, Revision: r.Revision, Name: r.Name, Place: r.Place,
		Interval: time.Duration(r.IntervalSeconds) * time.Second, Memory: r.Memory, Failures: int(r.Failures), Nudges: int(r.Nudges),
		LastArtifact: r.LastArtifact,
	}
}

// Postpone implements core.SourceQueue.
func (s *Sources) Postpone(ctx context.Context, src core.Source, until time.Time) error {
	err := query.New(s.pool).PostponeSource(ctx, query.PostponeSourceParams{ID: src.ID, Revision: src.Revision, Until: until})
	return pg.Classify(err, "postpone source %d", src.ID)
}

// SaveOutcome implements core.SourceQueue. If the configuration has been replaced meanwhile, nothing is stored or published. The first
// artifact of a source is published also if another source, or this one before it was disabled, has reported it: the domain gives an
// artifact to the sources that take versions when it arrives.
func (s *Sources) SaveOutcome(ctx context.Context, src core.Source, o core.Outcome) error {
	p := query.SaveOutcomeParams{
		ID: src.ID, Revision: src.Revision, Nudges: int32(src.Nudges), LookedAt: o.At, NextAt: o.Next, Memory: o.Memory,
		Failures: int32(o.Failures), LastError: bounded(o.Problem),
	}
	if o.Artifact != nil {
		p.LastArtifact = Reference(*o.Artifact)
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		n, err := query.New(tx).SaveOutcome(ctx, p)
		if err != nil {
			return pg.Classify(err, "store the outcome of a poll")
		}
		if n == 0 {
			return nil
		}
		for _, a := range []*core.Artifact{o.Gone, o.Artifact} {
			if a == nil {
				continue
			}
			if err := s.hooks.confirmed(ctx, tx, fmt.Sprintf("source %d", src.ID), *a, src.LastArtifact == "" && a == o.Artifact); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("source %d: %w", src.ID, err)
	}
	if o.Artifact != nil || o.Gone != nil {
		s.hooks.wake()
	}
	return nil
}

// Nudge makes the sources of a kind with one of the names due.
func (s *Sources) Nudge(ctx context.Context, ref string, names []string, now time.Time) (int, error) {
	n, err := query.New(s.pool).NudgeSources(ctx, query.NudgeSourcesParams{SourceRef: ref, Names: names, Now: now})
	if err != nil {
		return 0, pg.Classify(err, "nudge sources of %q", names)
	}
	if n > 0 {
		s.wake()
	}
	return int(n), nil
}

// States returns the states of an organization's sources, as far as known here.
func (s *Sources) States(ctx context.Context, organization int64, ids []int64) ([]core.SourceState, error) {
	rows, err := query.New(s.pool).SourceStates(ctx, query.SourceStatesParams{OrganizationID: organization, Ids: ids})
	if err != nil {
		return nil, pg.Classify(err, "read the state of %d sources", len(ids))
	}
	all := make([]core.SourceState, len(rows))
	for i, r := range rows {
		all[i] = core.SourceState{
			ID: r.ID, Polled: r.IntervalSeconds > 0, Next: r.NextAt, Looked: r.LookedAt, Failures: int(r.Failures), LastError: r.LastError,
			LastArtifact: r.LastArtifact, LastArtifactAt: r.LastArtifactAt,
		}
	}
	return all, nil
}
