package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// addPoll adds the row of a poll, and, while a round is in progress, that of its call.
func addPoll(p *query.OpenPollsParams, calls *query.OpenCallsParams, c *commit, o engine.Opening, row opRow) error {
	refusal, err := encodeError(o.Poll.Error)
	if err != nil {
		return err
	}
	p.Executions, p.Branches, p.Ops = append(p.Executions, row.execution), append(p.Branches, row.branch), append(p.Ops, row.op)
	p.Functions, p.Rounds = append(p.Functions, o.Poll.Function), append(p.Rounds, int32(o.Poll.Round))
	p.Calling, p.Deadlines = append(p.Calling, o.Poll.Calling), append(p.Deadlines, o.Poll.Deadline)
	p.Vals, p.Errors = append(p.Vals, string(o.Poll.Value)), append(p.Errors, string(refusal))
	if !o.Poll.Calling {
		return nil
	}
	return addCall(calls, c, o, row)
}

// decodeRetry and encodeRetry convert the column retry of calls; NULL, passed as the empty text, is the engine's default
// policy.
func decodeRetry(data []byte) (*history.RetryPolicy, error) {
	if data == nil {
		return nil, nil //nolint:nilnil // most calls have none
	}
	r := new(history.RetryPolicy)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decode retry: %w", err)
	}
	return r, nil
}

func encodeRetry(r *history.RetryPolicy) (string, error) {
	if r == nil {
		return "", nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode retry: %w", err)
	}
	return string(b), nil
}

// encodeTries are failed attempts as they are stored; nil where there are none.
func encodeTries(t *history.Tries) (json.RawMessage, error) {
	if t == nil {
		return nil, nil
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode attempts: %w", err)
	}
	return b, nil
}

// decodeTries reads failed attempts. No run depends on them: what cannot be read is not shown.
func decodeTries(data []byte) *history.Tries {
	t := new(history.Tries)
	if len(data) == 0 || json.Unmarshal(data, t) != nil || t.Count == 0 {
		return nil
	}
	return t
}

// triedAgain are the failed attempts at a call of a relay or a worker, with the one that just failed.
func triedAgain(call query.FindCallRow, began, ended, next time.Time, e *history.FunctionError) (json.RawMessage, error) {
	return encodeTries(decodeTries(call.Tries).With(history.NewTry(int(call.Attempt), began, ended, next, e)))
}

// mayBeTried reports whether a call of the turns may have been attempted more than once: its result says so, or there is none.
func mayBeTried(commits []*commit) bool {
	return slices.ContainsFunc(commits, func(c *commit) bool {
		return slices.ContainsFunc(c.Entries, func(e history.Entry) bool {
			return e.Tries != nil || e.Kind == history.KindRun && e.Error != nil && e.Error.Code == history.CodeTimeout
		})
	})
}

// appendTried is appendEntries for turns with such a call.
func appendTried(ctx context.Context, q *query.Queries, p query.AppendManyParams, commits []*commit) error {
	with := query.AppendTriedParams{
		Executions: p.Executions, Seqs: p.Seqs, Branches: p.Branches, Ops: p.Ops, Kinds: p.Kinds, Names: p.Names, Hashes: p.Hashes, Vals: p.Vals,
		Errors: p.Errors, Events: p.Events, Ats: p.Ats,
	}
	for _, c := range commits {
		for _, e := range c.Entries {
			tries, err := encodeTries(e.Tries)
			if err != nil {
				return err
			}
			with.Tries = append(with.Tries, string(tries))
		}
	}
	return q.AppendTried(ctx, with)
}
