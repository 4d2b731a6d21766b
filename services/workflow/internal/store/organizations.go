package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// Installation is what distinguishes this installation from others: 16 hexadecimal digits, which never change.
func (s *Store) Installation(ctx context.Context) (string, error) {
	if known := s.installation.Load(); known != nil {
		return *known, nil
	}
	id, err := s.queries.Installation(ctx)
	if err != nil {
		return "", pg.Classify(err, "read the installation")
	}
	s.installation.Store(&id)
	return id, nil
}

// SeveralOrganizations reports whether this service knows more than one organization. It counts the caller of a Function, whose run is
// stored before. Once true, it stays true.
func (s *Store) SeveralOrganizations(ctx context.Context) (bool, error) {
	several, err := s.queries.SeveralOrganizations(ctx)
	if err != nil {
		return false, pg.Classify(err, "count organizations")
	}
	return several, nil
}
