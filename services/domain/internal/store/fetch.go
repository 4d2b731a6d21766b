package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/trigger"
)

// triggerReads has a name of its own, since an embedded field is called like its type.
type triggerReads = trigger.Reads

// notifyReads has a name of its own, too.
type notifyReads = notify.Reads

// forgeReads has a name of its own, too.
type forgeReads = forge.Reads

// credentialReads has a name of its own, too.
type credentialReads = credential.Reads

// chatReads has a name of its own, too.
type chatReads = chat.Reads

// reader is view.Reads. How a read runs differs: a store makes a transaction of its own, a use case has one.
type reader struct {
	control.Reads
	triggerReads
	notifyReads
	forgeReads
	credentialReads
	chatReads
	run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

// reading is a reader over what runs its reads.
func reading(run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error) reader {
	return reader{
		Reads: control.Reads{Run: run}, triggerReads: triggerReads{Run: run}, notifyReads: notifyReads{Run: run},
		credentialReads: credentialReads{Run: run}, forgeReads: forgeReads{Run: run}, chatReads: chatReads{Run: run}, run: run,
	}
}

// together runs reads in one transaction: they show one state, and travel with one begin and one end.
func (r reader) together(ctx context.Context, organization int64, fn func(reader) error) error {
	return r.run(ctx, organization, func(q *query.Queries) error { return fn(within(q, organization)) })
}

// within are the reads of a transaction. Only its own organization may be asked for: the transaction has entered that one,
// and a slip in the core must not become a look into another's rows (R5).
func within(q *query.Queries, organization int64) reader {
	return reading(func(_ context.Context, asked int64, fn func(*query.Queries) error) error {
		if asked != organization {
			return fault.New(fault.Denied, "organization %d is not the one of this transaction", asked)
		}
		return fn(q)
	})
}

// batch is a generated query that reads rows by a list of identifiers.
type batch[R any] func(*query.Queries, context.Context, int64, []int64) ([]R, error)

// fetch runs a batch; no identifiers, no query.
func fetch[R any](ctx context.Context, r reader, organization int64, ids []int64, what string, read batch[R]) (rows []R, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	err = r.run(ctx, organization, func(q *query.Queries) error {
		// Assigned, not appended to: the transaction may run again.
		rows, err = read(q, ctx, organization, ids)
		return pg.Classify(err, "read %s", what)
	})
	return rows, err
}

// byKey reads at most one thing for each key.
func byKey[R, T any](
	ctx context.Context, r reader, organization int64, ids []int64, what string, read batch[R], convert func(R) (int64, T),
) (map[int64]T, error) {
	rows, err := fetch(ctx, r, organization, ids, what, read)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]T, len(rows))
	for _, row := range rows {
		key, one := convert(row)
		found[key] = one
	}
	return found, nil
}

// under reads any number of things for each parent, in the order of the query.
func under[R, T any](
	ctx context.Context, r reader, organization int64, parents []int64, what string, read batch[R], convert func(R) (int64, T),
) (map[int64][]T, error) {
	rows, err := fetch(ctx, r, organization, parents, what, read)
	if err != nil {
		return nil, err
	}
	found := make(map[int64][]T, len(parents))
	for _, row := range rows {
		parent, one := convert(row)
		found[parent] = append(found[parent], one)
	}
	return found, nil
}

// keyed gives a converter of things that are found by their own identifier.
func keyed[R, T any](convert func(R) T, key func(T) int64) func(R) (int64, T) {
	return func(row R) (int64, T) {
		one := convert(row)
		return key(one), one
	}
}

// list reads one page of a list that goes by usual where nothing else is asked for. What it is called is in its cursors.
func list[R, T any](
	ctx context.Context, r reader, organization int64, p core.Page, usual core.Order, what string,
	read func(*query.Queries, core.Window) ([]R, error), convert func(R) T, position func(T) core.Position,
) (s core.Slice[T], err error) {
	w, err := p.Open(what, usual)
	if err != nil {
		return s, err
	}
	err = r.run(ctx, organization, func(q *query.Queries) error {
		// Ways and keys are values of the queries: see queries/lists.sql.
		if err := q.PlanForValues(ctx); err != nil {
			return pg.Classify(err, "plan for values")
		}
		rows, err := read(q, w)
		s = core.Cut(w, convertAll(rows, convert), position)
		return pg.Classify(err, "list %s", what)
	})
	return s, err
}

// pages reads the same page of what belongs to each parent. What it is called is in its cursors.
func pages[R, T any](
	ctx context.Context, r reader, organization int64, parents []int64, p core.Page, usual core.Order, what string,
	read func(*query.Queries, []int64, core.Window) ([]R, error), convert func(R) (int64, T), number func(T) int64,
) (map[int64]core.Slice[T], error) {
	w, err := p.Open(what, usual)
	if err != nil {
		return nil, err
	}
	all, err := under(ctx, r, organization, parents, what, func(q *query.Queries, ctx context.Context, _ int64, ids []int64) ([]R, error) {
		if err := q.PlanForValues(ctx); err != nil {
			return nil, err
		}
		return read(q, ids, w)
	}, convert)
	return cut(w, parents, all, number), err
}

// cut makes a page for each parent, also for one that has no item there: that its list continues elsewhere has to be reported, too.
func cut[T any](w core.Window, parents []int64, all map[int64][]T, number func(T) int64) map[int64]core.Slice[T] {
	found := make(map[int64]core.Slice[T], len(parents))
	for _, parent := range parents {
		found[parent] = core.Cut(w, all[parent], numbered(number))
	}
	return found
}

// numbered is where an item stands in a list by creation.
func numbered[T any](number func(T) int64) func(T) core.Position {
	return func(item T) core.Position { return core.Position{Number: number(item)} }
}

// limit is how many rows a window needs.
func limit(w core.Window) int32 { return int32(w.Limit()) }

// count runs a query that counts.
func count(ctx context.Context, r reader, organization int64, what string, read func(*query.Queries) (int64, error)) (n int, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		counted, err := read(q)
		n = int(counted)
		return pg.Classify(err, "count %s", what)
	})
	return n, err
}

// convertAll converts every row.
func convertAll[R, T any](rows []R, convert func(R) T) []T {
	all := make([]T, len(rows))
	for i, row := range rows {
		all[i] = convert(row)
	}
	return all
}
