package store

import (
	"encoding/json"
	"fmt"

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
