package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// SeveralOrganizations reports whether this service knows more than one organization. It counts the caller of a Function, whose run is
// stored before. Once true, it stays true.
func (s *Store) SeveralOrganizations(ctx context.Context) (bool, error) {
	several, err := s.queries.SeveralOrganizations(ctx)
	if err != nil {
		return false, pg.Classify(err, "count organizations")
	}
	return several, nil
}
