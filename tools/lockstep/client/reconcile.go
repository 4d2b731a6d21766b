package client

import (
	"context"
	"slices"
	"time"
)

// RecordDifference is something in which the record differs from what others know.
type RecordDifference struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Problem string `json:"problem"`
	// Remedy is what settling it does; empty if it cannot be settled.
	Remedy string `json:"remedy,omitempty"`
	// Outcome is settled, nothing to do, or why it failed; empty in a comparison.
	Outcome string `json:"outcome,omitempty"`
}

// RecordDifferences compares the record with what others know, for what happened since a time, page by page. A difference that several
// pages have is among the answer once.
func (c *Client) RecordDifferences(ctx context.Context, since time.Time) ([]RecordDifference, error) {
	found, err := all(0, func(_ int, after *string) (connection[RecordDifference], error) {
		var data struct {
			RecordDifferences struct {
				Differences []RecordDifference
				Next        *string
			}
		}
		err := c.do(ctx, `query($since: Time!, $after: String) { recordDifferences(since: $since, after: $after) {
			differences { kind subject problem remedy } next } }`, map[string]any{"since": since.UTC().Format(time.RFC3339Nano), "after": after},
			&data)
		return upTo(data.RecordDifferences.Differences, data.RecordDifferences.Next), err
	})
	type key struct{ kind, subject string }
	known := map[key]bool{}
	return slices.DeleteFunc(found, func(d RecordDifference) bool {
		k := key{d.Kind, d.Subject}
		before := known[k]
		known[k] = true
		return before
	}), err
}

// ReconcileRecord settles a difference; false if there was none any more.
func (c *Client) ReconcileRecord(ctx context.Context, since time.Time, kind, subject, reason string) (bool, error) {
	var data struct {
		ReconcileRecord struct {
			Settled bool
			Errors  []UserError
		}
	}
	err := c.do(ctx, `mutation($input: ReconcileRecordInput!) { reconcileRecord(input: $input) { settled errors { field message code } } }`,
		map[string]any{"input": map[string]any{
			"since": since.UTC().Format(time.RFC3339Nano), "kind": kind, "subject": subject, "reason": reason,
		}}, &data)
	if err == nil {
		err = refusal(data.ReconcileRecord.Errors)
	}
	return data.ReconcileRecord.Settled, err
}
