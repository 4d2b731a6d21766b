package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Retention is how long an organization keeps what is settled.
type Retention struct {
	Rules []RetentionRule `json:"rules"`
	// LegalHold is why nothing is deleted for its age; empty if no legal hold is in force.
	LegalHold string `json:"legalHold,omitempty"`
}

// RetentionRule is how long a kind is kept.
type RetentionRule struct {
	Kind string `json:"kind"`
	// KeepDays is 0 for as long as the organization exists.
	KeepDays int `json:"keepDays"`
	// Due is how many rows are older, counted up to 10000.
	Due int `json:"due"`
}

const retentionFields = `rules { kind keepDays due } legalHold`

// Retention returns the rules of the organization, and what is due by them.
func (c *Client) Retention(ctx context.Context) (Retention, error) {
	var data struct{ Retention Retention }
	err := c.do(ctx, `{ retention { `+retentionFields+` } }`, nil, &data)
	return data.Retention, err
}

// SetRetention sets how long a kind is kept, in days; 0 for as long as the organization exists.
func (c *Client) SetRetention(ctx context.Context, kind string, days int, reason string) (Retention, error) {
	return change[Retention](ctx, c, "setRetention", "SetRetentionInput", "retention", retentionFields,
		map[string]any{"kind": kind, "keepDays": days, "reason": reason})
}

// SetLegalHold puts a legal hold into force, or ends it.
func (c *Client) SetLegalHold(ctx context.Context, on bool, reason string) (Retention, error) {
	return change[Retention](ctx, c, "setLegalHold", "SetLegalHoldInput", "retention", retentionFields,
		map[string]any{"on": on, "reason": reason})
}

// ArchivedObject is an object of the archive whose rows were deleted from the database.
type ArchivedObject struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
	// SHA256 is that of its lines.
	SHA256    string    `json:"sha256"`
	DeletedAt time.Time `json:"deletedAt"`
}

// ArchivedObjects returns the objects of the archive that have rows of a kind, by name.
func (c *Client) ArchivedObjects(ctx context.Context, kind string) ([]ArchivedObject, error) {
	return all(0, func(_ int, after *string) (connection[ArchivedObject], error) {
		var data struct {
			ArchivedObjects struct {
				Objects []ArchivedObject
				Next    *string
			}
		}
		err := c.do(ctx, `query($kind: String!, $after: String) {
			archivedObjects(kind: $kind, after: $after) { objects { name rows sha256 deletedAt } next }
		}`, map[string]any{"kind": kind, "after": after}, &data)
		return upTo(data.ArchivedObjects.Objects, data.ArchivedObjects.Next), err
	})
}

// ReadArchived writes the archived rows of a kind as JSON lines, and answers how many they are. The error names objects that are missing,
// or are not what was stored: the rows of the others are written.
func (c *Client) ReadArchived(ctx context.Context, kind string, to io.Writer) (rows int, err error) {
	response, err := c.file(ctx, url.Values{"kind": {kind}}, "retention", "archived")
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	in := bufio.NewReaderSize(response.Body, 64<<10)
	for {
		line, err := lineOf(in)
		if fault.Is(err, fault.Terminal) {
			return rows, err
		}
		if err != nil && !errors.Is(err, io.EOF) || len(line) == 0 {
			return rows, fault.New(fault.Unavailable, "the archive was cut off behind %d rows", rows)
		}
		if bytes.HasPrefix(line, []byte(`{"end":`)) {
			return rows, endOf(line, rows)
		}
		if _, err := to.Write(line); err != nil {
			return rows, fmt.Errorf("write the rows: %w", err)
		}
		rows++
	}
}

// mostLine bounds a line of an answer: no row is longer.
const mostLine = 64 << 20

// lineOf reads a line with its end; Terminal if it is longer than any row.
func lineOf(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > mostLine {
			return nil, fault.New(fault.Terminal, "found a line of more than %d bytes; expected the rows of an archive", mostLine)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// endOf judges the last line of an answer: nil if everything was read.
func endOf(line []byte, rows int) error {
	var last struct {
		End struct {
			Rows     int      `json:"rows"`
			Count    int      `json:"problem_count"`
			Problems []string `json:"problems"`
		} `json:"end"`
	}
	if err := json.Unmarshal(line, &last); err != nil || last.End.Rows != rows {
		return fault.New(fault.Unavailable, "the archive was cut off: found %d rows, expected %d", rows, last.End.Rows)
	}
	if n := len(last.End.Problems); n > 0 {
		n = max(n, last.End.Count) // only the first are named
		return fault.New(fault.Terminal, "%d objects of the archive cannot be used, first: %s", n, last.End.Problems[0])
	}
	return nil
}
