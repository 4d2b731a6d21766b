package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Begin stores a new execution with its first turn. Those of the same moment share a transaction, which is always strict: where it is
// refused nothing is stored, and the caller stores the execution and then the turn.
func (s *Store) Begin(ctx context.Context, n engine.NewExecution, first engine.Commit) (id int64, begun bool, err error) {
	i := &item{commit: &commit{Commit: first}}
	if i.start, err = s.newStart(n); err != nil {
		return 0, false, err
	}
	s.splitValues(i.commit)
	large := i.commit.values != nil || len(i.start.inputs.Payloads) > 0
	if err := s.encodeEmits(i.commit); err != nil || n.Owner == nil || large {
		return 0, false, nil //nolint:nilerr // the commit of the turn returns the same error, and what happens to the run then
	}
	if err := s.begins.do(ctx, i); err != nil {
		return 0, false, err
	}
	return i.start.created.ID, i.start.created.Created, nil
}

// beginAll is the transaction of many starts with their first turns. If it is refused, so are all of them; of several with
// one name, those behind the first are.
func (s *Store) beginAll(ctx context.Context, all []*item) error {
	type name struct {
		organization int64
		workflow     string
	}
	named := make(map[name]bool, len(all))
	items := make([]*item, 0, len(all))
	for _, i := range all {
		i.start.created = engine.Created{}
		if n := (name{i.start.Organization, i.start.Workflow}); !named[n] {
			named[n] = true
			items = append(items, i)
		}
	}
	err := s.commit(ctx, items, true)
	if refused(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range items {
		i.start.created.Created = true
	}
	return s.findIDs(ctx, items)
}

// findIDs reads the ids of those that continue. If that fails they are stored all the same, and are found like those of a process that
// has died.
func (s *Store) findIDs(ctx context.Context, items []*item) error {
	byRef := map[string]*start{}
	var refs []string
	for _, i := range items {
		if !i.commit.Next.Ended() {
			byRef[i.start.Ref] = i.start
			refs = append(refs, i.start.Ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	rows, err := s.queries.FindRefs(ctx, refs)
	if err != nil {
		return pg.Classify(err, "find %d workflows that were begun", len(refs))
	}
	for _, row := range rows {
		byRef[row.Ref].created.ID = row.ID
	}
	return nil
}

// saveBegins stores starts with their first turns, and the programs that this process has not seen stored, whose digests it returns.
func (s *Store) saveBegins(ctx context.Context, q *query.Queries, items []*item) (programs [][32]byte, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	starts := make([]*start, len(items))
	for n, i := range items {
		starts[n] = i.start
	}
	p, err := s.beginRows(items)
	if err != nil {
		return nil, err
	}
	sources, programs := s.unsaved(starts)
	if len(programs) > 0 {
		if err := q.SavePrograms(ctx, sources); err != nil {
			return nil, pg.Classify(err, "save %d programs", len(programs))
		}
	}
	return programs, pg.Classify(q.BeginExecutions(ctx, p), "begin %d workflows", len(items))
}

// beginRows are the rows of executions, of their entries and traces. These name an execution by its place, from 1.
func (s *Store) beginRows(items []*item) (query.BeginExecutionsParams, error) {
	starts, commits := make([]*start, len(items)), make([]*commit, len(items))
	for n, i := range items {
		starts[n], commits[n] = i.start, i.commit
		i.commit.Execution.ID = int64(n + 1)
	}
	n := s.newExecutions(starts)
	entries, err := entryRows(commits)
	if err != nil {
		return query.BeginExecutionsParams{}, err
	}
	p := query.BeginExecutionsParams{
		Refs: n.Refs, Organizations: n.Organizations, Workflows: n.Workflows, Programs: n.Programs, Modules: n.Modules,
		Inputs: n.Inputs, Secrets: n.Secrets, Labels: n.Labels, Created: n.Created, Owners: n.Owners, Epochs: n.Epochs,
		Places: entries.Executions, Seqs: entries.Seqs, Branches: entries.Branches, Ops: entries.Ops, Kinds: entries.Kinds,
		Names: entries.Names, Hashes: entries.Hashes, Vals: entries.Vals, Errors: entries.Errors, Ats: entries.Ats,
	}
	for n, i := range items {
		p.States, p.Failures = append(p.States, i.commit.Next.String()), append(p.Failures, i.commit.Error)
		p.LastSeqs, p.Turned = append(p.LastSeqs, i.commit.LastSeq), append(p.Turned, i.commit.At)
		if i.start.Trace != "" {
			p.Traced, p.Parents = append(p.Traced, int32(n+1)), append(p.Parents, i.start.Trace)
		}
	}
	return p, nil
}
