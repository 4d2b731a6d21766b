package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// ArchiveApplication implements setup.Tx.
func (t *tx) ArchiveApplication(ctx context.Context, id int64, at *time.Time) error {
	return pg.Classify(t.q.ArchiveApplication(ctx, at, t.organization, id), "archive application %d", id)
}

// ArchiveEnvironment implements setup.Tx.
func (t *tx) ArchiveEnvironment(ctx context.Context, id int64, at *time.Time) error {
	return pg.Classify(t.q.ArchiveEnvironment(ctx, at, t.organization, id), "archive environment %d", id)
}

// DropSetups implements setup.Tx.
func (t *tx) DropSetups(ctx context.Context, application int64, kept []int64) error {
	return pg.Classify(t.q.DropSetups(ctx, t.organization, application, kept), "drop setups of application %d", application)
}

// AddArchiving implements setup.Tx.
func (t *tx) AddArchiving(ctx context.Context, one core.Archiving) error {
	err := t.q.InsertArchiving(ctx, query.InsertArchivingParams{
		OrganizationID: t.organization, ApplicationID: orNull(one.ApplicationID), EnvironmentID: orNull(one.EnvironmentID),
		Archived:      one.Archived,
		PrincipalType: string(one.Type), PrincipalID: one.Principal.ID, Reason: one.Reason,
	})
	return pg.Classify(err, "log that something was archived or restored")
}

func archiving(r query.Archiving) core.Archiving {
	return core.Archiving{
		ID: r.ID, ApplicationID: orZero(r.ApplicationID), EnvironmentID: orZero(r.EnvironmentID), Archived: r.Archived,
		Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Reason: r.Reason, CreatedAt: r.CreatedAt,
	}
}

// ArchivingsByApplication implements view.Reads.
func (r reader) ArchivingsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Archiving, error) {
	return under(ctx, r, organization, applications, "archivings", (*query.Queries).ArchivingsByApplication,
		keyed(archiving, func(one core.Archiving) int64 { return one.ApplicationID }))
}

// ArchivingsByEnvironment implements view.Reads.
func (r reader) ArchivingsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]core.Archiving, error) {
	return under(ctx, r, organization, environments, "archivings", (*query.Queries).ArchivingsByEnvironment,
		keyed(archiving, func(one core.Archiving) int64 { return one.EnvironmentID }))
}
