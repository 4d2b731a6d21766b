package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	// maxEvent bounds the size of one event of a stream.
	maxEvent = 1 << 20
	// silence is how long a stream may be silent: three heartbeat intervals of the server. Without it, a connection whose other end has
	// vanished would be read for ever.
	silence = 45 * time.Second
)

// RolloutSince returns a rollout with the rows of its journal after a cursor, oldest first, and the cursor of the last one; an empty cursor
// means the beginning. Every row is returned once, however often the journal is read.
func (c *Client) RolloutSince(ctx context.Context, id, cursor string) (Rollout, string, error) {
	return c.rolloutSince(ctx, id, cursor, "")
}

// rolloutSince is RolloutSince with more fields of the rollout, which are asked for once.
func (c *Client) rolloutSince(ctx context.Context, id, cursor, more string) (Rollout, string, error) {
	var rollout Rollout
	var causes []Transition
	rows, err := all(0, func(first int, after *string) (connection[Transition], error) {
		if after == nil && cursor != "" {
			after = &cursor
		}
		var data struct {
			Rollout *struct {
				Rollout

				Journal connection[Transition] `json:"journal"`
			}
		}
		err := c.do(ctx, `query($id: ID!, $first: Int, $after: String) { rollout(id: $id) { `+rolloutFields+more+
			` journal(first: $first, after: $after) { nodes { `+transitionFields+journalNewer+` } `+pageInfo+` } } }`,
			map[string]any{"id": id, "first": first, "after": after}, &data)
		r, err := found(data.Rollout, err, "rollout", id)
		if rollout = r.Rollout; more != "" {
			causes, more = r.Causes, ""
		}
		if end := r.Journal.PageInfo.EndCursor; end != "" {
			cursor = end
		}
		return r.Journal, err
	})
	rollout.Journal, rollout.Causes = rows, causes
	return rollout, cursor, err
}

// JournalCursor returns the cursor of the end of the organization's journal, from which to follow it.
func (c *Client) JournalCursor(ctx context.Context) (string, error) {
	var data struct{ JournalCursor string }
	err := c.do(ctx, `query { journalCursor }`, nil, &data)
	return data.JournalCursor, err
}

// FollowRollout calls report for every new row of a rollout's journal after a cursor of the organization's journal, with the row's own
// cursor, from which another call can continue. It returns nil when the server ends the stream, which it does now and then, the error of
// report, or an Unavailable error if the stream broke. opened is called once the server has answered.
func (c *Client) FollowRollout(ctx context.Context, rollout, cursor string, opened func(), report func(cursor string) error) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	alive := make(chan struct{}, 1)
	go c.expect(reading, alive, stop)
	r, err := c.request(reading, `subscription($after: String, $rollout: ID) { journal(after: $after, rollout: $rollout) { cursor } }`,
		map[string]any{"after": cursor, "rollout": rollout}, "text/event-stream")
	if err != nil {
		return err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return c.broken(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "text/event-stream" {
		text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return c.broken(ctx, err)
		}
		return c.decode(response, text, &struct{}{})
	}
	opened()
	return c.events(ctx, response.Body, alive, report)
}

// events reads a stream of server-sent events (HTML Living Standard, 9.2) to its end.
func (c *Client) events(ctx context.Context, stream io.Reader, alive chan<- struct{}, report func(cursor string) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 4096), maxEvent)
	name, data := "", ""
	for lines.Scan() {
		select {
		case alive <- struct{}{}:
		default: // the previous sign of life has not been processed yet
		}
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data += value
		}
		if lines.Text() != "" {
			continue
		}
		switch name {
		case "complete":
			return nil
		case "next":
			var next struct {
				Data struct {
					Journal *struct{ Cursor string }
				}
				Errors []graphError
			}
			if err := json.Unmarshal([]byte(data), &next); err != nil {
				return fmt.Errorf("decode event of %s: %w", c.endpoint, err)
			}
			if len(next.Errors) > 0 {
				return graphErrors(next.Errors)
			}
			if next.Data.Journal != nil {
				if err := report(next.Data.Journal.Cursor); err != nil {
					return err
				}
			}
		}
		name, data = "", ""
	}
	if err := lines.Err(); err != nil {
		return c.broken(ctx, err)
	}
	return c.broken(ctx, io.ErrUnexpectedEOF)
}

// expect gives up after too long a silence.
func (c *Client) expect(ctx context.Context, alive <-chan struct{}, giveUp func()) {
	for {
		limit := c.clock.NewTimer(silence)
		select {
		case <-alive:
			limit.Stop()
		case <-limit.C():
			giveUp()
			return
		case <-ctx.Done():
			limit.Stop()
			return
		}
	}
}

// broken returns the error of a connection that failed or was lost.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("follow: %w", ctx.Err())
	}
	return fault.New(fault.Unavailable, "%s does not answer: %w", c.endpoint, err)
}
