package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// How long it takes until people are asked: from the event that an approval is needed to the request that a channel receives, sent by a run
// of the workflow service, beside rollouts that are under way and report.

const (
	// askedEvery is the time between two questions: a channel receives 60 messages a minute at most.
	askedEvery = 1100 * time.Millisecond
	// reportedEvery is the time between two events of the rollouts beside them.
	reportedEvery = 40 * time.Millisecond
	// handedWithin bounds how long one question may take.
	handedWithin = 30 * time.Second
	// eventsOfRollout is how many events a rollout of the seed has left.
	eventsOfRollout = 4 * perDeployment
)

// questionsSQL gives rollouts that are under way a gate at the entrance of the environment that is next.
const questionsSQL = `
WITH chosen AS (
    SELECT r.id, n.name FROM cd_rollouts r
    JOIN cd_rollout_environments e ON e.rollout_id = r.id AND e.position = 2
    JOIN cd_environments n ON n.id = e.environment_id
    WHERE r.id >= $1 AND r.id < $1 + $2
), asked AS (
    INSERT INTO cd_rollout_gates (organization_id, rollout_id, gate_id, quorum, requester_may_approve) SELECT 1, id, name, 1, true FROM
    	chosen
)
SELECT id, name FROM chosen ORDER BY id`

// asking is a rollout that asks for an approval.
type asking struct {
	ID   int64
	Gate string
}

// notifications prints how long it took until a channel had each question.
func notifications(ctx context.Context, nats, database string, api probe.API, o options, log *slog.Logger) error {
	arrived := make(chan string, 1000)
	channel := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Data struct{ Notifications []struct{ Rollout string } }
		}
		if json.NewDecoder(r.Body).Decode(&body) == nil && r.URL.Path == "/asked" {
			for _, n := range body.Data.Notifications {
				arrived <- n.Rollout
			}
		}
	}))
	defer channel.Close()
	if err := channels(ctx, api, channel.URL); err != nil {
		return err
	}
	first := int64(100_000*o.scale) - int64(2_000*o.scale) + 1 + int64(o.passages)
	questions, err := questioned(ctx, database, first, o.notifications+1)
	if err != nil {
		return err
	}
	beside := first + int64(len(questions))
	last := int64(100_000*o.scale) - int64(o.events/eventsOfRollout)
	conn, err := connect(ctx, nats, "workflow", log)
	if err != nil {
		return err
	}
	defer conn.Close()
	reporting, enough := context.WithCancel(ctx)
	defer enough()
	var sent atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return reports(reporting, conn, beside, last, &sent) })
	var took []time.Duration
	for i, q := range questions {
		one, err := handed(ctx, conn, q, arrived)
		if err != nil {
			enough()
			return errors.Join(fmt.Errorf("question %d of %d: %w", i+1, len(questions), err), group.Wait())
		}
		if i > 0 { // the first is sent before all connections are made
			took = append(took, one)
		}
		if err := clock.Sleep(ctx, clock.System(), askedEvery); err != nil {
			break
		}
	}
	enough()
	if err := group.Wait(); err != nil {
		return err
	}
	p50, p99 := probe.Percentiles(took)
	fmt.Fprintf(os.Stdout, "approval needed to the channel's request: %d, p50 %.1f ms, p95 %.1f ms (goal 1000), p99 %.1f ms, "+
		"beside %d rollouts under way with %d events, load %s\n", len(took), p50, probe.Milliseconds(took[len(took)*95/100]), p99,
		int64(2_000*o.scale), sent.Load(), probe.Load())
	return nil
}

// channels makes the one that receives questions, and one that receives everything by default.
func channels(ctx context.Context, api probe.API, url string) error {
	for name, rate := range map[string]int{"asked": 60, "everything": 20} {
		if _, err := api.Ask(ctx, `mutation($input: PutNotificationChannelInput!) { putNotificationChannel(input: $input) { errors { message } } }`,
			map[string]any{"input": map[string]any{"name": name, "kind": "WEBHOOK", "config": map[string]any{"url": url + "/" + name}, "rate": rate}}); err != nil {
			return fmt.Errorf("make the channel %s: %w", name, err)
		}
	}
	_, err := api.Ask(ctx, `mutation($input: PutNotificationRouteInput!) { putNotificationRoute(input: $input) { errors { message } } }`,
		map[string]any{"input": map[string]any{"name": "asked", "channel": "asked", "config": map[string]any{"events": []string{"approval_needed"}}}})
	return err
}

// questioned are at most so many rollouts under way that have a gate.
func questioned(ctx context.Context, database string, first int64, most int) ([]asking, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{`SELECT set_config('search_path', '` + schema + `', false)`, `SET session_replication_role = replica`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("prepare questions: %w", err)
		}
	}
	rows, err := conn.Query(ctx, questionsSQL, first, most)
	if err != nil {
		return nil, fmt.Errorf("prepare questions: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[asking])
	if err == nil && len(all) < 2 {
		err = errors.New("found no rollouts under way that are left for questions; expected fewer events or passages, or a larger scale")
	}
	return all, pg.Classify(err, "prepare questions")
}

// handed has a rollout ask, and returns how long it took until the channel received that.
func handed(ctx context.Context, conn *bus.Conn, q asking, arrived <-chan string) (time.Duration, error) {
	e, err := event.New(event.Header{
		ID: fmt.Sprintf("question-%d", q.ID), Source: event.SourceWorkflow, Time: clock.System().Now(), Organization: 1, Correlation: id.RolloutRun(q.ID),
	}, event.ApprovalRequested{RolloutID: q.ID, GateID: q.Gate})
	if err != nil {
		return 0, err
	}
	began := clock.System().Now()
	if err := conn.Publish(ctx, e); err != nil {
		return 0, err
	}
	late := clock.System().NewTimer(handedWithin)
	defer late.Stop()
	for {
		select {
		case rollout := <-arrived:
			if rollout == "rollout_"+strconv.FormatInt(q.ID, 10) {
				return clock.System().Now().Sub(began), nil
			}
		case <-late.C():
			return 0, fmt.Errorf("rollout %d: no message within %s", q.ID, handedWithin)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// reports sends the events of the rollouts from one to another at a steady pace, one rollout after the other, until ctx ends.
func reports(ctx context.Context, conn *bus.Conn, from, to int64, sent *atomic.Int64) error {
	for rollout := from; rollout <= to; rollout++ {
		for n := range perDeployment {
			for d := range int64(4) {
				if clock.Sleep(ctx, clock.System(), reportedEvery) != nil {
					return nil //nolint:nilerr // there are enough
				}
				deployment := 4*(rollout-1) + 1 + d
				e, err := event.New(event.Header{
					ID: fmt.Sprintf("beside-%d-%d", deployment, n), Source: event.SourceWorkflow, Time: clock.System().Now(), Organization: 1,
					Correlation: id.RolloutRun(rollout),
				}, eventsOf(deployment)[n])
				if err != nil {
					return err
				}
				if err := conn.Publish(ctx, e); err != nil && ctx.Err() == nil {
					return err
				}
				sent.Add(1)
			}
		}
	}
	return nil
}

// engine starts the workflow service that sends messages, and returns how to stop it. It answers once this returns.
func engine(ctx context.Context, database, nats, address string) (func() error, error) {
	c := workflow.Config{
		Database: pg.Database{DatabaseURL: database}, Schema: "workflow", NATS: bus.NATS{NATSURL: nats, NATSPassword: "workflow"},
		GRPCAddress: address, Token: token, Instance: "bench", Settings: telemetry.Settings{LogLevel: "error"}, HTTPAllowNetworks: []string{"127.0.0.1"},
	}
	if err := workflow.Migrate(ctx, c); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- workflow.Run(serving, c) }()
	end := func() error {
		stop()
		return <-ended
	}
	for range 600 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return end, conn.Close()
		}
		if err := clock.Sleep(ctx, clock.System(), 100*time.Millisecond); err != nil {
			break
		}
	}
	return nil, errors.Join(errors.New("the workflow service does not answer"), end())
}
