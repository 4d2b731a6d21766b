package client

import (
	"context"
	"encoding/json"
	"time"
)

// AuditFilter narrows the audit; empty values do not.
type AuditFilter struct {
	// Principal is a member, by name or identifier.
	Principal string
	// Action is a mutation, or an event of a rollout's journal.
	Action string
	// Application and Environment are names or identifiers.
	Application, Environment string
	// Since is included, Until is not.
	Since, Until time.Time
}

// AuditEntry is something that was done.
type AuditEntry struct {
	Journal       string          `json:"journal"`
	Position      int64           `json:"position"`
	CreatedAt     time.Time       `json:"createdAt"`
	PrincipalType string          `json:"principalType"`
	PrincipalID   int64           `json:"principalId,omitempty"`
	PrincipalName string          `json:"principalName"`
	Action        string          `json:"action"`
	Subject       string          `json:"subject,omitempty"`
	SubjectName   string          `json:"subjectName"`
	Application   *Reference      `json:"application,omitempty"`
	Environment   *Reference      `json:"environment,omitempty"`
	Reason        string          `json:"reason"`
	Detail        string          `json:"detail"`
	Before        json.RawMessage `json:"before,omitempty"`
	After         json.RawMessage `json:"after,omitempty"`
	TraceID       string          `json:"traceId,omitempty"`
}

// Audit returns who did what, newest first: limit entries, or all for 0.
func (c *Client) Audit(ctx context.Context, f AuditFilter, limit int) ([]AuditEntry, error) {
	filter := map[string]any{}
	for name, value := range map[string]string{
		"principal": f.Principal, "action": f.Action, "application": f.Application, "environment": f.Environment,
	} {
		if value != "" {
			filter[name] = value
		}
	}
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			filter[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return all(limit, func(first int, after *string) (connection[AuditEntry], error) {
		var data struct{ Audit connection[AuditEntry] }
		err := c.do(ctx, `query($filter: AuditFilter, $first: Int, $after: String) { audit(filter: $filter, first: $first, after: $after) { nodes {
			journal position createdAt principalType principalId principalName action subject subjectName
			application { id name } environment { id name } reason detail before after traceId } `+pageInfo+` } }`,
			map[string]any{"filter": filter, "first": first, "after": after}, &data)
		return data.Audit, err
	})
}

// JournalChain is the result of checking the chain of blocks that the journals are sealed in.
type JournalChain struct {
	Blocks int `json:"blocks"`
	Rows   int `json:"rows"`
	// Block is the last one that is right, Head its digest.
	Block int64  `json:"block"`
	Head  string `json:"head"`
	// Problem is the first thing that is wrong; empty for nothing.
	Problem string `json:"problem,omitempty"`
}

// CheckJournalChain recomputes the digests of all blocks of the organization, stretch by stretch, up to the first problem.
func (c *Client) CheckJournalChain(ctx context.Context) (JournalChain, error) {
	var total JournalChain
	for {
		var data struct {
			JournalChain struct {
				JournalChain
				More bool `json:"more"`
			}
		}
		err := c.do(ctx, `query($after: Int) { journalChain(after: $after) { blocks rows block head problem more } }`,
			map[string]any{"after": total.Block}, &data)
		if err != nil {
			return total, err
		}
		stretch := data.JournalChain.JournalChain
		stretch.Blocks, stretch.Rows = stretch.Blocks+total.Blocks, stretch.Rows+total.Rows
		if total = stretch; !data.JournalChain.More || total.Problem != "" {
			return total, nil
		}
	}
}
