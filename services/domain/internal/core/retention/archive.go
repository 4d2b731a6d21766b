package retention

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Row is a settled row.
type Row struct {
	ID int64
	// Content is all of the row, as JSON.
	Content string
}

// Batch is what the archive keeps at once.
type Batch struct {
	// Installation is the random id of this installation.
	Installation string
	Organization int64
	Kind         Kind
	Rows         []Row
}

// Object is an object of the archive.
type Object struct {
	Name string
	// Digest is the SHA-256 of the lines of its rows.
	Digest []byte
	Rows   int
	// Kept are the rows that it has and that were not deleted with the others: a later object may have them, too.
	Kept []int64
	// DeletedAt is when its rows were deleted from the database.
	DeletedAt time.Time
}

// Deleted is how many rows were deleted with it.
func (o Object) Deleted() int { return o.Rows - len(o.Kept) }

// Archive keeps rows that are deleted from the database.
type Archive interface {
	// Keep stores rows of a kind; once it has returned, it has read back what it stored, and the rows may be deleted. Repeated with the
	// same rows, it has no further effect.
	Keep(ctx context.Context, b Batch) (Object, error)
	// Read writes the rows of objects as JSON lines. An object that is missing, or is not what was stored, is passed to found, and the
	// others are read; the error is Terminal then.
	Read(ctx context.Context, w Wanted, out io.Writer, found func(error)) error
}

// Wanted is what is read of the archive.
type Wanted struct {
	Organization int64
	Kind         Kind
	// Installation is the one that the objects have to be of.
	Installation string
	// Recorded are the objects whose rows were deleted, as the database has them. With none, such as of a database that is lost, all objects
	// are read.
	Recorded []Object
}

// Archived reports whether rows of a kind go to the archive, where there is one. Answers to requests are of no use to anybody later, and
// what is left of a session is the digest of a secret.
func (k Kind) Archived() bool { return k != Requests && k != SignIns }

// Archiving has what DeleteDue deletes kept in an archive; counted is called with how many rows were archived and deleted, or failed to be
// archived.
func (u *UseCases) Archiving(a Archive, counted func(outcome string, rows int)) *UseCases {
	u.archive, u.counted = a, counted
	return u
}

// mostBytes bounds the rows that are archived at once, unless the first is larger.
const mostBytes = 8 << 20

// archiveSome archives due rows of a kind, and deletes those that are still due. What comes into use in between stays. It reports whether
// there may be others.
func (u *UseCases) archiveSome(ctx context.Context, t *Deleted, r *run) (more bool) {
	b := Batch{Organization: t.Organization, Kind: t.Kind}
	err := u.store.In(ctx, t.Organization, func(ctx context.Context, tx Tx) (err error) {
		if b.Rows, err = tx.SettledRows(ctx, t.Kind, atOnce, mostBytes); err != nil || len(b.Rows) == 0 {
			return err
		}
		b.Installation, err = tx.Installation(ctx)
		return err
	})
	if err != nil {
		r.inARow++
		r.failed(err)
		return false
	}
	if r.inARow = 0; len(b.Rows) == 0 {
		return false
	}
	kept, err := u.archive.Keep(ctx, b)
	if err != nil {
		if r.notArchived++; ctx.Err() == nil {
			u.counted("failed", len(b.Rows))
		}
		r.failed(fmt.Errorf("archive %s of organization %d: %w", t.Kind, t.Organization, err))
		return false
	}
	r.notArchived = 0
	ids := make([]int64, len(b.Rows))
	for i, row := range b.Rows {
		ids[i] = row.ID
	}
	deleted := 0
	err = u.store.In(ctx, t.Organization, func(ctx context.Context, tx Tx) (err error) {
		deleted, err = tx.DeleteSettledRows(ctx, t.Kind, ids, kept)
		return err
	})
	if err != nil {
		r.inARow++
		r.failed(err)
		return false
	}
	u.counted("archived", deleted)
	t.Rows += deleted
	return deleted > 0 // also if some were in use, or others have become due before them
}
