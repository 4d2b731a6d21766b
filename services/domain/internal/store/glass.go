package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// BrokenGlass is how often somebody has broken the glass in this installation, and when last; the beginning of 1970 for never.
func (s *Store) BrokenGlass(ctx context.Context) (times int64, last time.Time, err error) {
	row, err := query.New(s.deps.Pool).BrokenGlass(ctx)
	return row.Times, row.LastAt, pg.Classify(err, "read how often the glass was broken")
}

// Breaches is how many rollouts of this installation failed because they advanced beyond a passage that was not granted.
func (s *Store) Breaches(ctx context.Context) (times int64, err error) {
	times, err = query.New(s.deps.Pool).Breaches(ctx)
	return times, pg.Classify(err, "count breaches")
}
