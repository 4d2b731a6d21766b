package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// ArchiveApplication implements core.Tx.
func (t *tx) ArchiveApplication(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(t.q.ArchiveApplication(ctx, at, t.organization, id), "archive application %d", id)
}

// ArchiveEnvironment implements core.Tx.
func (t *tx) ArchiveEnvironment(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(t.q.ArchiveEnvironment(ctx, at, t.organization, id), "archive environment %d", id)
}

// DropSetups implements core.Tx.
func (t *tx) DropSetups(ctx context.Context, application int64, kept []int64) error {
	return pg.Classify(t.q.DropSetups(ctx, t.organization, application, kept), "drop setups of application %d", application)
}
