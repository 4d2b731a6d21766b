package retention

import (
	"context"
	"fmt"
)

// Row is a settled row.
type Row struct {
	ID int64
	// Content is all of the row, as JSON.
	Content string
}

// Archive keeps rows that are deleted from the database.
type Archive interface {
	// Keep stores rows of a kind; once it has returned, it has read back what it stored, and the rows may be deleted. Repeated with the
	// same rows, it has no further effect.
	Keep(ctx context.Context, organization int64, kind Kind, rows []Row) error
}

// Archived reports whether rows of a kind go to the archive, where there is one. Answers to requests are of no use to anybody later, and what
// is left of a session is the digest of a secret.
func (k Kind) Archived() bool { return k != Requests && k != SignIns }

// Archiving has what DeleteDue deletes kept in an archive; counted is called with how many rows were archived, or failed to be.
func (u *UseCases) Archiving(a Archive, counted func(outcome string, rows int)) *UseCases {
	u.archive, u.counted = a, counted
	return u
}

// archiveOf archives the due rows of a kind and deletes those that are archived, a thousand at a time. What becomes due or is no longer due
// in between is left for the next time.
func (u *UseCases) archiveOf(ctx context.Context, organization int64, kind Kind) (total int, err error) {
	for {
		var rows []Row
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
			rows, err = tx.SettledRows(ctx, kind, atOnce)
			return err
		})
		if err != nil || len(rows) == 0 {
			return total, err
		}
		if err := u.archive.Keep(ctx, organization, kind, rows); err != nil {
			u.counted("failed", len(rows))
			return total, fmt.Errorf("archive %s of organization %d: %w", kind, organization, err)
		}
		u.counted("archived", len(rows))
		ids := make([]int64, len(rows))
		for i, row := range rows {
			ids[i] = row.ID
		}
		deleted := 0
		err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
			deleted, err = tx.DeleteSettledRows(ctx, kind, ids)
			return err
		})
		if err != nil {
			return total, err
		}
		if total += deleted; deleted < atOnce {
			return total, nil
		}
	}
}
