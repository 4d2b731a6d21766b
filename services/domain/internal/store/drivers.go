package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Now is the database's clock, which all replicas share.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := query.New(s.deps.Pool).DatabaseClock(ctx)
	return now, pg.Classify(err, "ask the database's clock")
}

// HasDriverArtifact reports whether the artifact of a digest is kept.
func (s *Store) HasDriverArtifact(ctx context.Context, digest string) (bool, error) {
	has, err := query.New(s.deps.Pool).HasDriverArtifact(ctx, digest)
	return has, pg.Classify(err, "look for driver artifact %s", digest)
}

// KeepDriverArtifact keeps an artifact, unless its content is kept already, and that its reference named it.
func (s *Store) KeepDriverArtifact(ctx context.Context, a core.DriverArtifact) error {
	return pg.InTx(ctx, s.deps.Pool, func(t pgx.Tx) error {
		q := query.New(t)
		if a.Content != nil {
			if err := q.KeepDriverArtifact(ctx, a.Digest, a.Drivers, a.Content); err != nil {
				return pg.Classify(err, "keep driver artifact %s", a.Digest)
			}
		}
		return pg.Classify(q.NameDriverArtifact(ctx, a.Reference, a.Digest, a.AskedAt), "keep that %s names driver artifact %s",
			a.Reference, a.Digest)
	})
}

// DriverArtifacts are those that a reference has named, without their content, the one of the latest question first.
func (s *Store) DriverArtifacts(ctx context.Context, reference string) ([]core.DriverArtifact, error) {
	rows, err := query.New(s.deps.Pool).DriverArtifacts(ctx, reference)
	if err != nil {
		return nil, pg.Classify(err, "read the driver artifacts of %s", reference)
	}
	all := make([]core.DriverArtifact, len(rows))
	for i, r := range rows {
		all[i] = core.DriverArtifact{Reference: reference, Digest: r.Digest, Drivers: r.Drivers, AskedAt: r.AskedAt}
	}
	return all, nil
}

// DriverArtifactContent is the content of one.
func (s *Store) DriverArtifactContent(ctx context.Context, digest string) ([]byte, error) {
	content, err := query.New(s.deps.Pool).DriverArtifactContent(ctx, digest)
	return content, pg.Classify(missing(err, "driver artifact", digest), "read driver artifact %s", digest)
}
