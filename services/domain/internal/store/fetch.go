package store

import (
	"context"
	"encoding/base64"
	"math"
	"strconv"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/sqlc"
)

// reader is core.Reads. How a read runs differs: a store makes a transaction of its own, a use case has one.
type reader struct {
	run func(ctx context.Context, organization int64, fn func(*sqlc.Queries) error) error
}

// batch is a generated query that reads rows by a list of identifiers.
type batch[R any] func(*sqlc.Queries, context.Context, int64, []int64) ([]R, error)

// fetch runs a batch; no identifiers, no query.
func fetch[R any](ctx context.Context, r reader, organization int64, ids []int64, what string, query batch[R]) (rows []R, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		// Assigned, not appended to: the transaction may run again.
		rows, err = query(q, ctx, organization, ids)
		return pg.Classify(err, "read %s", what)
	})
	return rows, err
}

// byKey reads at most one thing for each key.
func byKey[R, T any](ctx context.Context, r reader, organization int64, ids []int64, what string, query batch[R], convert func(R) (int64, T)) (map[int64]T, error) {
	rows, err := fetch(ctx, r, organization, ids, what, query)
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
func under[R, T any](ctx context.Context, r reader, organization int64, parents []int64, what string, query batch[R], convert func(R) (int64, T)) (map[int64][]T, error) {
	rows, err := fetch(ctx, r, organization, parents, what, query)
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

const (
	defaultPage = 50
	maxPage     = 500
)

// window is a Page, read: where it begins, and how many rows to ask for (one more than are shown, to see whether there
// are more).
type window struct {
	// after is the identifier of the last item shown; the list goes on above it, or below it where the newest is first.
	after int64
	shown int
}

// open reads a page. Lists that begin with the newest begin below a number, all others above one.
func open(p core.Page, start int64) (window, error) {
	w := window{after: start, shown: min(p.First, maxPage)}
	if w.shown < 1 {
		w.shown = defaultPage
	}
	if p.After == "" {
		return w, nil
	}
	// A cursor is an identifier in wrapping: what is shown does not shift when items are added in front, and a page
	// costs the same however deep it is.
	text, err := base64.RawURLEncoding.DecodeString(p.After)
	if err == nil {
		w.after, err = strconv.ParseInt(string(text), 10, 64)
	}
	if err != nil {
		return w, fault.InvalidFields(fault.Field{Name: "/after", Problem: "found a cursor that is none of ours; expected an endCursor of this list"})
	}
	return w, nil
}

// newest is where a list begins that shows the newest first.
const newest = math.MaxInt64

func (w window) limit() int32 { return int32(w.shown) + 1 }

// slice makes a page of rows that were read with limit.
func slice[T any](w window, all []T, key func(T) int64) core.Slice[T] {
	s := core.Slice[T]{Nodes: all}
	if len(all) > w.shown {
		s.Nodes, s.HasNext = all[:w.shown], true
	}
	if n := len(s.Nodes); n > 0 {
		s.EndCursor = base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(key(s.Nodes[n-1]), 10)))
	}
	return s
}

// slices makes a page of each group.
func slices[T any](w window, all map[int64][]T, key func(T) int64) map[int64]core.Slice[T] {
	found := make(map[int64]core.Slice[T], len(all))
	for parent, of := range all {
		found[parent] = slice(w, of, key)
	}
	return found
}

// convertAll converts every row.
func convertAll[R, T any](rows []R, convert func(R) T) []T {
	all := make([]T, len(rows))
	for i, row := range rows {
		all[i] = convert(row)
	}
	return all
}
