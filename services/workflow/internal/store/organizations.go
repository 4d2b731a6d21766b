package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// SeveralOrganizations reports whether this service knows of more than one organization. The caller of a Function is known before it is called,
// because its run is stored; that there are several never becomes untrue.
func (s *Store) SeveralOrganizations(ctx context.Context) (bool, error) {
	several, err := s.queries.SeveralOrganizations(ctx)
	if err != nil {
		return false, pg.Classify(err, "count organizations")
	}
	return several, nil
}
