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
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// start is a engine.NewExecution on its way through the group.
type start struct {
	engine.NewExecution
	// modules, secrets and labels are columns, sources the programs that may have to be stored, by digest.
	modules, secrets, labels string
	sources                  map[[32]byte][]byte
	// inputs are the column.
	inputs  payloads.Stored
	created engine.Created
}

// Create stores a new execution, unless its id exists. Starts of the same moment share a transaction.
func (s *Store) Create(ctx context.Context, n engine.NewExecution) (engine.Created, error) {
	item, err := s.newStart(n)
	if err != nil {
		return engine.Created{}, err
	}
	if n.Message != nil {
		err = s.createWithMessage(ctx, item)
	} else {
		err = s.starts.do(ctx, item)
	}
	if err != nil {
		return engine.Created{}, err
	}
	return item.created, nil
}

// newStart encodes what columns hold of a start.
func (s *Store) newStart(n engine.NewExecution) (*start, error) {
	item := &start{NewExecution: n, sources: map[[32]byte][]byte{n.Digest: n.Program.Source}}
	switch {
	case len(n.Inputs) == 0:
		item.inputs.Text = "{}"
	case s.byDigest.Load():
		item.inputs = payloads.Split(n.Organization, n.Inputs, s.Large)
	default:
		item.inputs.Text = string(n.Inputs)
	}
	modules := make(map[string]string, len(n.Program.Modules))
	for name, source := range n.Program.Modules {
		sum := program.Digest(source)
		modules[name] = program.Hex(sum)
		item.sources[sum] = source
	}
	for _, field := range []struct {
		into  *string
		value map[string]string
	}{{&item.modules, modules}, {&item.secrets, n.Secrets}, {&item.labels, n.Labels}} {
		if len(field.value) == 0 { // the usual case
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

// createAll is the transaction of many starts. If all programs are stored already, it is one statement, and one round trip.
func (s *Store) createAll(ctx context.Context, items []*start) error {
	programs, saved := s.unsaved(items)
	var rows []query.CreateExecutionsRow
	large := new(payloads.Rows)
	for _, item := range items {
		large.Add(item.inputs, payloads.Start(item.Ref))
	}
	create := func(q *query.Queries) (err error) {
		rows, err = q.CreateExecutions(ctx, s.newExecutions(items))
		return pg.Classify(err, "create %d workflows", len(items))
	}
	var err error
	if len(saved) == 0 && large.Empty() && !traced(items) {
		defer s.owning.leave(s.owning.enter())
		err = pg.Alone(ctx, func() error { return create(s.queries) })
	} else {
		err = s.pipelined(ctx, func(_ pgx.Tx, q *query.Queries) error {
			if len(saved) > 0 {
				if err := q.SavePrograms(ctx, programs); err != nil {
					return pg.Classify(err, "save %d programs", len(saved))
				}
			}
			if err := large.Save(ctx, q, s.Clock.Now()); err != nil {
				return err
			}
			if err := create(q); err != nil {
				return err
			}
			return errors.Join(saveTraces(ctx, q, items, rows), large.Use(ctx, q))
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
		item.created = engine.Created{ID: id, Ref: item.Ref, Created: isNew}
		if !isNew {
			known = append(known, item)
			continue
		}
		s.Tally(item.Organization, 1)
	}
	return existing(ctx, s.queries, known)
}

// traced reports whether any start belongs to a trace that is recorded.
func traced(items []*start) bool {
	return slices.ContainsFunc(items, func(item *start) bool { return item.Trace != "" })
}

// saveTraces stores the traces of the new executions among items.
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

// existing reads the executions whose ids existed before. The insertion has waited for a concurrent start of the same id, so
// its row is visible now (E19); it may belong to this transaction, which has been committed. If the read
// fails, so do all starts of the transaction, although some are stored: their callers retry, and find them.
func existing(ctx context.Context, q *query.Queries, items []*start) error {
	if len(items) == 0 {
		return nil
	}
	var p query.FindStartsParams
	for _, item := range items {
		p.Organizations = append(p.Organizations, item.Organization)
		p.Workflows = append(p.Workflows, item.Workflow)
	}
	found, err := findStarts(ctx, q, p)
	if err != nil {
		return err
	}
	for _, item := range items {
		created, ok := found[startName{item.Organization, item.Workflow}]
		if !ok {
			return fault.New(fault.Unavailable, "workflow %q existed and is gone", item.Workflow)
		}
		item.created = created
	}
	return nil
}

// startName identifies a start.
type startName struct {
	organization int64
	workflow     string
}

// findStarts reads what workflows were started with. Those that do not exist are left out.
func findStarts(ctx context.Context, q *query.Queries, p query.FindStartsParams) (map[startName]engine.Created, error) {
	rows, err := q.FindStarts(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "find %d workflows", len(p.Workflows))
	}
	var large payloads.Columns
	var missing error
	for i := range rows {
		large.Add(rows[i].Inputs, func(whole []byte) { rows[i].Inputs = whole }, func(err error) {
			missing = fmt.Errorf("what workflow %q was started with: %w", rows[i].Workflow, err)
		})
	}
	if err := large.Read(ctx, q); err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, missing
	}
	found := make(map[startName]engine.Created, len(rows))
	for _, row := range rows {
		var modules, secrets map[string]string
		if err := errors.Join(json.Unmarshal(row.Modules, &modules), json.Unmarshal(row.Secrets, &secrets)); err != nil {
			return nil, fmt.Errorf("what workflow %q was started with: %w", row.Workflow, err)
		}
		digests, err := execution.Fingerprint(digest(row.Program), modules, row.Inputs, secrets)
		if err != nil {
			return nil, fmt.Errorf("what workflow %q was started with: %w", row.Workflow, err)
		}
		found[startName{row.Organization, row.Workflow}] = engine.Created{ID: row.ID, Ref: row.Ref, Existing: digests}
	}
	return found, nil
}

// FindStart reads what a workflow was started with.
func (s *Store) FindStart(ctx context.Context, organization int64, workflow string) (engine.Created, error) {
	found, err := findStarts(ctx, s.queries, query.FindStartsParams{Organizations: []int64{organization}, Workflows: []string{workflow}})
	if err != nil {
		return engine.Created{}, err
	}
	c, exists := found[startName{organization, workflow}]
	if !exists {
		return engine.Created{}, fault.New(fault.NotFound, "there is no workflow %q in organization %d", workflow, organization)
	}
	return c, nil
}

// unsaved returns the sources that this process does not know to be stored. Most starts have none.
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

// newExecutions are the rows of executions. They name sources by digest.
func (s *Store) newExecutions(items []*start) query.CreateExecutionsParams {
	var p query.CreateExecutionsParams
	for _, n := range items {
		owner, epoch := s.owning.ofStart(n.Owner)
		p.Refs, p.Organizations, p.Workflows = append(p.Refs, n.Ref), append(p.Organizations, n.Organization), append(p.Workflows, n.Workflow)
		p.Programs = append(p.Programs, n.Digest[:])
		p.Modules, p.Inputs, p.Secrets = append(p.Modules, n.modules), append(p.Inputs, n.inputs.Text), append(p.Secrets, n.secrets)
		p.Labels, p.Created = append(p.Labels, n.labels), append(p.Created, n.At)
		p.Owners, p.Epochs = append(p.Owners, owner), append(p.Epochs, epoch)
	}
	return p
}

// digests remembers which programs are stored. Programs are never deleted, so it is never out of date.
type digests struct {
	mu    sync.Mutex
	known map[[32]byte]struct{}
}

// digestsMost bounds it. At the bound it is emptied, which is rare, since programs are few.
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
