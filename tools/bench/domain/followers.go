package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// What it costs that many consoles follow a busy organization: each of them has every row of the journal, over a connection of its own.

const (
	// followFor is how long the rows are counted.
	followFor = 30 * time.Second
	// followDrained is how long no row has to arrive until all are taken to have arrived.
	followDrained = 5 * time.Second
	// followQuery is what consoles ask, and when each row was written.
	followQuery = `subscription { journal { cursor rollout { id application { id } } transition { createdAt } } }`
)

// follower is one console: how many rows it has, and how long each took since it was written.
type follower struct {
	rows []time.Duration
	// all counts the rows of all followers.
	all  *atomic.Int64
	last string
}

// follow reads rows until ctx ends. opened is called once the server has answered.
func (f *follower) follow(ctx context.Context, api probe.API, opened func()) error {
	body, err := json.Marshal(map[string]string{"query": followQuery})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", "Bearer "+api.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("follow: found status %d", response.StatusCode)
	}
	opened()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		data, some := strings.CutPrefix(lines.Text(), "data: ")
		if !some || data == "" {
			continue
		}
		var next struct {
			Data struct {
				Journal struct {
					Cursor     string
					Transition struct{ CreatedAt time.Time }
				}
			}
		}
		if err := json.Unmarshal([]byte(data), &next); err != nil || next.Data.Journal.Cursor == "" {
			return fmt.Errorf("follow: found %.200s, expected a row: %w", data, err)
		}
		f.rows = append(f.rows, clock.System().Now().Sub(next.Data.Journal.Transition.CreatedAt))
		f.all.Add(1)
		f.last = next.Data.Journal.Cursor
	}
	return nil
}

// followers prints how long rows took to all followers, and what one row to one follower costs.
func followers(ctx context.Context, nats string, pid int, api probe.API, o options, log *slog.Logger) error {
	if err := api.Await(ctx); err != nil {
		return err
	}
	conn, err := connect(ctx, nats, "workflow", log)
	if err != nil {
		return err
	}
	defer conn.Close()
	following, leave := context.WithCancel(ctx)
	defer leave()
	all, failures := make([]follower, o.followers), make([]error, o.followers)
	var open, reading sync.WaitGroup
	var received atomic.Int64
	for i := range all {
		open.Add(1)
		all[i].all = &received
		reading.Go(func() {
			once := sync.OnceFunc(open.Done)
			defer once()
			failures[i] = all[i].follow(following, api, once)
		})
	}
	open.Wait()
	before, err := spent(pid)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	reporting, enough := context.WithTimeout(ctx, followFor)
	defer enough()
	first := int64(100_000*o.scale) - int64(2_000*o.scale) + 1 + int64(o.passages) + int64(o.notifications) + 1
	if err := reports(reporting, conn, first, int64(100_000*o.scale)-int64(o.events/eventsOfRollout), &sent); err != nil {
		return err
	}
	for before := int64(-1); before != received.Load(); {
		before = received.Load()
		if err := clock.Sleep(ctx, clock.System(), followDrained); err != nil {
			return err
		}
	}
	after, err := spent(pid)
	if err != nil {
		return err
	}
	leave()
	reading.Wait()
	return errors.Join(errors.Join(failures...), printFollowed(all, sent.Load(), after-before))
}

// spent is the processor time of this process, which is the service, NATS and the followers, and of PostgreSQL.
func spent(pid int) (time.Duration, error) {
	parts, err := probe.FamilyParts(pid)
	if err != nil {
		return 0, err
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return parts.Total() + time.Duration(self.Utime.Nano()+self.Stime.Nano()), nil
}

func printFollowed(all []follower, events int64, used time.Duration) error {
	var took []time.Duration
	for _, f := range all {
		if len(f.rows) == 0 || len(f.rows) != len(all[0].rows) || f.last != all[0].last {
			return fmt.Errorf("a follower has %d rows up to %q, the first one %d up to %q; expected the same", len(f.rows), f.last, len(all[0].rows),
				all[0].last)
		}
		took = append(took, f.rows...)
	}
	p50, p99 := probe.Percentiles(took)
	fmt.Fprintf(os.Stdout, "rows to %d followers: %d events, %d rows to each in %s, p50 %.1f ms, p99 %.1f ms since they were written, "+
		"%.0f µs of processor time for a row to a follower, all else included, load %s\n",
		len(all), events, len(all[0].rows), followFor, p50, p99, float64(used.Microseconds())/float64(len(took)), probe.Load())
	return nil
}
