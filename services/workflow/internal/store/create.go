package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// start is a Create on its way through the group.
type start struct {
	core.NewExecution
	// modules, secrets and labels are columns, sources the programs that may have to be stored, by digest.
	modules, secrets, labels string
	sources                  map[[32]byte][]byte
	created                  core.Created
}

// Create stores a new execution, unless its id exists. Starts of the same moment share a transaction.
func (s *Store) Create(ctx context.Context, n core.NewExecution) (core.Created, error) {
	item, err := newStart(n)
	if err != nil {
		return core.Created{}, err
	}
	if err := s.starts.do(ctx, item); err != nil {
		return core.Created{}, err
	}
	return item.created, nil
}

// newStart encodes what columns hold of a start.
func newStart(n core.NewExecution) (*start, error) {
	item := &start{NewExecution: n, sources: map[[32]byte][]byte{n.Digest: n.Program.Source}}
	modules := make(map[string]string, len(n.Program.Modules))
	for name, source := range n.Program.Modules {
		sum := core.Digest(source)
		modules[name] = core.Hex(sum)
		item.sources[sum] = source
	}
	for _, field := range []struct {
		into  *string
		value map[string]string
	}{{&item.modules, modules}, {&item.secrets, n.Secrets}, {&item.labels, n.Labels}} {
		if len(field.value) == 0 { // as most are
			*field.into = "{}"
			continue
		}
		b, err := json.Marshal(field.value)
		if err != nil {
			return nil, fmt.Errorf("encode workflow %q: %w", n.Workflow, err)
		}
		*field.into = string(b)
	}
	return item, nil
}

// createAll is the transaction of many starts. Where all programs are known it is one statement, and one journey.
func (s *Store) createAll(ctx context.Context, items []*start) error {
	p := newExecutions(items)
	programs, saved := s.unsaved(items)
	var rows []query.CreateExecutionsRow
	create := func(q *query.Queries) (err error) {
		rows, err = q.CreateExecutions(ctx, p)
		return pg.Classify(err, "create %d workflows", len(items))
	}
	var err error
	if len(saved) == 0 && !traced(items) {
		err = pg.Alone(ctx, func() error { return create(s.queries) })
	} else {
		err = s.pipelined(ctx, func(_ pgx.Tx, q *query.Queries) error {
			if len(saved) > 0 {
				if err := q.SavePrograms(ctx, programs); err != nil {
					return pg.Classify(err, "save %d programs", len(saved))
				}
			}
			if err := create(q); err != nil {
				return err
			}
			return saveTraces(ctx, q, items, rows)
		})
	}
	if err != nil {
		return err
	}
	s.programs.add(saved)
	created := make(map[string]int64, len(rows))
	for _, row := range rows {
		created[row.Ref] = row.ID
	}
	var known []*start
	for _, item := range items {
		id, isNew := created[item.Ref]
		item.created = core.Created{ID: id, Ref: item.Ref, Created: isNew}
		if !isNew {
			known = append(known, item)
		}
	}
	return existing(ctx, s.queries, known)
}

// traced reports whether any start was asked for in a trace that is recorded.
func traced(items []*start) bool {
	return slices.ContainsFunc(items, func(item *start) bool { return item.Trace != "" })
}

// saveTraces keeps the traces of the new executions among items.
func saveTraces(ctx context.Context, q *query.Queries, items []*start, created []query.CreateExecutionsRow) error {
	traces := make(map[string]string, len(items))
	for _, item := range items {
		traces[item.Ref] = item.Trace
	}
	var p query.SaveTracesParams
	for _, row := range created {
		if trace := traces[row.Ref]; trace != "" {
			p.Executions, p.Parents = append(p.Executions, row.ID), append(p.Parents, trace)
		}
	}
	if len(p.Executions) == 0 {
		return nil
	}
	return pg.Classify(q.SaveTraces(ctx, p), "save traces of %d workflows", len(p.Executions))
}

// existing answers those whose id was there. The insertion has waited for a start of the same id that was under way, so
// its row is there to be seen (E19); it may be one of this very transaction, which has been committed. Where the question
// fails, so do all starts of the transaction, although some are stored: their callers ask again, and find them.
func existing(ctx context.Context, q *query.Queries, items []*start) error {
	if len(items) == 0 {
		return nil
	}
	var p query.FindStartsParams
	for _, item := range items {
		p.Organizations = append(p.Organizations, item.Organization)
		p.Workflows = append(p.Workflows, item.Workflow)
	}
	rows, err := q.FindStarts(ctx, p)
	if err != nil {
		return pg.Classify(err, "find %d workflows", len(items))
	}
	type name struct {
		organization int64
		workflow     string
	}
	found := make(map[name]core.Created, len(rows))
	for _, row := range rows {
		var modules, secrets map[string]string
		if err := errors.Join(json.Unmarshal(row.Modules, &modules), json.Unmarshal(row.Secrets, &secrets)); err != nil {
			return fmt.Errorf("what workflow %q was started with: %w", row.Workflow, err)
		}
		digests, err := core.Fingerprint(digest(row.Program), modules, row.Inputs, secrets)
		if err != nil {
			return fmt.Errorf("what workflow %q was started with: %w", row.Workflow, err)
		}
		found[name{row.Organization, row.Workflow}] = core.Created{ID: row.ID, Ref: row.Ref, Existing: digests}
	}
	for _, item := range items {
		there, ok := found[name{item.Organization, item.Workflow}]
		if !ok {
			return fault.New(fault.Unavailable, "workflow %q was there and is gone", item.Workflow)
		}
		item.created = there
	}
	return nil
}

// unsaved are the sources that this process has not stored or seen before. Most starts bring none.
func (s *Store) unsaved(items []*start) (p query.SaveProgramsParams, sums [][32]byte) {
	added := map[[32]byte]bool{}
	for _, item := range items {
		for sum, source := range item.sources {
			if added[sum] || s.programs.has(sum) {
				continue
			}
			added[sum] = true
			sums = append(sums, sum)
			p.Digests = append(p.Digests, sum[:])
			p.Sources = append(p.Sources, source)
		}
	}
	return p, sums
}

// newExecutions are the rows of runs. Sources are not in them: they name them by digest.
func newExecutions(items []*start) query.CreateExecutionsParams {
	var p query.CreateExecutionsParams
	for _, n := range items {
		inputs, owner, epoch := string(n.Inputs), "", int64(0)
		if inputs == "" {
			inputs = "{}"
		}
		if n.Owner != nil {
			owner, epoch = n.Owner.Instance, n.Owner.Epoch
		}
		p.Refs, p.Organizations, p.Workflows = append(p.Refs, n.Ref), append(p.Organizations, n.Organization), append(p.Workflows, n.Workflow)
		p.Programs = append(p.Programs, n.Digest[:])
		p.Modules, p.Inputs, p.Secrets = append(p.Modules, n.modules), append(p.Inputs, inputs), append(p.Secrets, n.secrets)
		p.Labels, p.Created = append(p.Labels, n.labels), append(p.Created, n.At)
		p.Owners, p.Epochs = append(p.Owners, owner), append(p.Epochs, epoch)
	}
	return p
}

// digests remembers what is known to be stored. Programs are never deleted, so what it knows stays true.
type digests struct {
	mu    sync.Mutex
	known map[[32]byte]struct{}
}

// digestsMost bounds it; beyond it begins anew, since programs are few.
const digestsMost = 10_000

func (d *digests) has(sum [32]byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.known[sum]
	return known
}

func (d *digests) add(sums [][32]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) > digestsMost {
		d.known = map[[32]byte]struct{}{}
	}
	for _, sum := range sums {
		d.known[sum] = struct{}{}
	}
}
