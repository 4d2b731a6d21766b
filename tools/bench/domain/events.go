package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// What the domain takes in: events of workflows that become rows of the journal, and artifacts that become version sets.

const (
	// perDeployment is how many events each deployment has; each becomes at least one row.
	perDeployment = 4
	// publishers send them concurrently, each those of rollouts of its own, so that those of one rollout stay in order.
	publishers = 64
	// drainWithin bounds how long the journal may take.
	drainWithin = 5 * time.Minute
)

// eventsOf are the events of a workflow about one deployment, in order, from its start to its end.
func eventsOf(deployment int64) []event.Data {
	return []event.Data{
		event.DeploymentStarted{DeploymentID: deployment},
		event.DeploymentGateReached{DeploymentID: deployment, Weight: 25},
		event.DeploymentAdvance{DeploymentID: deployment, Weight: 25},
		event.DeploymentHealthy{DeploymentID: deployment},
	}
}

// connect is a connection to the bus as one of the services.
func connect(ctx context.Context, url, user string, log *slog.Logger) (*bus.Conn, error) {
	return bus.Connect(ctx, bus.Config{URL: url, User: user, Password: user, Name: "bench-" + user}, log)
}

// publish sends events about active rollouts, the newest of all, before the domain is started. It returns how many.
func publish(ctx context.Context, url string, o options, log *slog.Logger) (int, error) {
	conn, err := connect(ctx, url, "workflow", log)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.Apply(ctx, bus.Topology{Streams: []bus.Stream{bus.DomainStream()}}); err != nil {
		return 0, fmt.Errorf("make the stream: %w", err)
	}
	const deployments = 4 // of a rollout of the seed: two environments, two services
	rollouts, all := o.events/(deployments*perDeployment), int(100_000*o.scale)
	if rollouts > int(2_000*o.scale) {
		return 0, fmt.Errorf("%d events need %d active rollouts, and there are %d", o.events, rollouts, int(2_000*o.scale))
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(publishers)
	for i := range rollouts {
		group.Go(func() error {
			// Event by event over the rollout's deployments, which advance together.
			for n := range perDeployment {
				for d := range int64(deployments) {
					deployment := int64(deployments)*int64(all-1-i) + 1 + d
					e, err := event.New(event.Header{
						ID: fmt.Sprintf("bench-%d-%d", deployment, n), Source: event.SourceWorkflow, Time: clock.System().Now(), Organization: 1,
						Correlation: id.RolloutRun(int64(all - i)),
					}, eventsOf(deployment)[n])
					if err != nil {
						return err
					}
					if err := conn.Publish(ctx, e); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return rollouts * deployments * perDeployment, group.Wait()
}

// drained waits until the events have become rows, and returns how many rows there were each second, from the first to the last.
func drained(ctx context.Context, database string, events int) (rows int64, perSecond float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return 0, 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var before, last int64
	if err := conn.QueryRow(ctx, `SELECT last_value FROM `+schema+`.cd_journal_positions`).Scan(&before); err != nil {
		return 0, 0, fmt.Errorf("read the position of the journal: %w", err)
	}
	var began, changed time.Time
	for claimed := 0; claimed < events; {
		if err := clock.Sleep(ctx, clock.System(), 10*time.Millisecond); err != nil {
			return 0, 0, fmt.Errorf("%d of %d events have been applied: %w", claimed, events, err)
		}
		var now int64
		if err := conn.QueryRow(ctx, `SELECT last_value, (SELECT count(*) FROM `+schema+`.inbox WHERE source = $1 AND event_id LIKE 'bench-%') FROM `+
			schema+`.cd_journal_positions`, event.SourceWorkflow).Scan(&now, &claimed); err != nil {
			return 0, 0, fmt.Errorf("read the position of the journal: %w", err)
		}
		if now != max(last, before) {
			last, changed = now, clock.System().Now()
		}
		if began.IsZero() && last > before {
			began, before = changed, last // what had come by the first look does not count
		}
	}
	rows = last - before
	return rows, float64(rows) / changed.Sub(began).Seconds(), nil
}

// artifacts publishes images at a steady pace, and measures from each to the version set that comes of it.
func artifacts(ctx context.Context, url, database string, o options, log *slog.Logger) (took []time.Duration, err error) {
	conn, err := connect(ctx, url, "registry", log)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	db, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	const pace = 200 // a second
	n := int(float64(o.requests) * 5)
	var (
		mu   sync.Mutex
		sent = map[int64]time.Time{}
	)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		publishing, ctx := errgroup.WithContext(ctx)
		start := clock.System().Now()
		for i := range n {
			if err := clock.Sleep(ctx, clock.System(), start.Add(time.Duration(i)*time.Second/pace).Sub(clock.System().Now())); err != nil {
				return err
			}
			application := int64(1 + i%int(10_000*o.scale))
			publishing.Go(func() error {
				e, err := event.New(event.Header{ID: fmt.Sprintf("artifact-%d", i), Source: event.SourceRegistry, Time: clock.System().Now()},
					event.ArtifactPublished{
						Image: fmt.Sprintf("r.example.com/%d", 2*application-1), Tag: fmt.Sprintf("2.%d", i),
						Digest: fmt.Sprintf("sha256:%064x", 1_000_000+i),
					})
				if err != nil {
					return err
				}
				mu.Lock()
				sent[application] = clock.System().Now()
				mu.Unlock()
				return conn.Publish(ctx, e)
			})
		}
		return publishing.Wait()
	})
	// Numbers are given out before the commit, so one below the last that was seen may still come.
	before, seen := int64(0), map[int64]bool{}
	if err := db.QueryRow(ctx, `SELECT max(id) FROM `+schema+`.cd_version_sets`).Scan(&before); err != nil {
		return nil, fmt.Errorf("read the last version set: %w", err)
	}
	for len(took) < n {
		if err := clock.Sleep(ctx, clock.System(), time.Millisecond); err != nil {
			return nil, fmt.Errorf("%d of %d version sets: %w", len(took), n, errors.Join(group.Wait(), err))
		}
		rows, err := db.Query(ctx, `SELECT id, application_id FROM `+schema+`.cd_version_sets WHERE id > $1`, before)
		if err != nil {
			return nil, fmt.Errorf("read version sets: %w", err)
		}
		made, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ ID, Application int64 }])
		if err != nil {
			return nil, fmt.Errorf("read version sets: %w", err)
		}
		now := clock.System().Now()
		mu.Lock()
		for _, set := range made {
			if !seen[set.ID] {
				seen[set.ID] = true
				took = append(took, now.Sub(sent[set.Application]))
			}
		}
		mu.Unlock()
	}
	slices.Sort(took)
	return took, group.Wait()
}
