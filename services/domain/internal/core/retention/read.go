package retention

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// mostObjects is how many objects of the archive a page has.
const mostObjects = 1000

const (
	// mostReaders is how many read the archive at once, each of another organization: it bounds the memory that it takes.
	mostReaders = 8
	// readerWaits is how long one waits for others who read.
	readerWaits = 10 * time.Second
)

// ArchivedPage is a page of the objects of the archive.
type ArchivedPage struct {
	Objects []Object
	// Next is the page behind it; empty for none.
	Next string
}

// ArchivedKinds are the kinds that go to the archive.
func ArchivedKinds() []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool { return !k.Archived() })
}

// mayRead checks who asks, and for which kind.
func mayRead(a core.Actor, kind Kind) error {
	if err := a.May(core.ActionAccessChanges); err != nil {
		return err
	}
	if !slices.Contains(ArchivedKinds(), kind) {
		return fault.InvalidFields(fault.Field{Name: "/kind", Problem: fmt.Sprintf("found %.40q, expected one of %v", kind, ArchivedKinds())})
	}
	return nil
}

// Archived returns a page of the objects whose rows of a kind were deleted from the database, as the database has recorded them.
func (u *UseCases) Archived(ctx context.Context, a core.Actor, kind Kind, after string) (p ArchivedPage, err error) {
	if err := mayRead(a, kind); err != nil {
		return p, err
	}
	p.Objects, err = u.store.ArchivedObjects(ctx, a.Organization, kind, after, mostObjects+1)
	if err == nil && len(p.Objects) > mostObjects {
		p.Objects = p.Objects[:mostObjects]
		p.Next = p.Objects[mostObjects-1].Name
	}
	return p, err
}

// ReadArchived writes the archived rows of a kind as JSON lines: those that the database has recorded as deleted, each once. What is in
// the bucket and not recorded is not read: it may be another's. An object that is missing, or is not what was stored, is passed to found,
// and the others are read; the error is Terminal then. One of an organization reads at a time in this process, and a few of all
// organizations together, since objects are read whole. A caller that does not get a turn in time gets Unavailable.
func (u *UseCases) ReadArchived(ctx context.Context, a core.Actor, kind Kind, out io.Writer, found func(error)) error {
	if err := mayRead(a, kind); err != nil {
		return err
	}
	if u.archive == nil {
		return fault.New(fault.Refused, "no archive is configured; set archive.endpoint of the domain service")
	}
	installation, err := u.store.InstallationID(ctx)
	if err != nil {
		return err
	}
	leave, err := u.enter(ctx, a.Organization)
	if err != nil {
		return err
	}
	defer leave()
	w := Wanted{Organization: a.Organization, Kind: kind, Installation: installation}
	if w.Recorded, err = AllArchived(ctx, u.store, a.Organization, kind); err != nil {
		return err
	}
	if len(w.Recorded) == 0 {
		return nil
	}
	return u.archive.Read(ctx, w, out, found)
}

// enter waits until an organization may read the archive. leave ends its reading.
func (u *UseCases) enter(ctx context.Context, organization int64) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	release, err := u.readers.Acquire(ctx, organization, 1)
	if err == nil {
		if err = u.reading.Acquire(ctx, organization); err != nil {
			release()
		}
	}
	if err != nil {
		return nil, fault.Because(err, fault.Unavailable, "others are reading the archive; try again later")
	}
	return func() {
		u.reading.Release()
		release()
	}, nil
}

// AllArchived are all objects of the archive whose rows of a kind were deleted.
func AllArchived(ctx context.Context, s Store, organization int64, kind Kind) (all []Object, err error) {
	for after := ""; ; {
		page, err := s.ArchivedObjects(ctx, organization, kind, after, mostObjects)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < mostObjects {
			return all, nil
		}
		after = page[len(page)-1].Name
	}
}
