package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// How long a passage takes, as a parked run sees it: to the word on the bus that lets it continue.

const (
	// conditions is how many a passage has here.
	conditions = 10
	// measuring is our own consumer, which receives the requests as well.
	measuring = "bench-passages"
	// passagesWithin bounds how long all passages may take together, with the time until the service has settled.
	passagesWithin = 20 * time.Minute
	// openWithin bounds how long one may take.
	openWithin = 20 * time.Second
	// settled is how long a service that has started announces nothing before passages are measured: it announces the places of every
	// application once, which takes a minute here.
	settled = time.Second
)

// received confirms events in place of a workflow service, which is not here: without that they are sent again and again.
// Nothing waits for the disk, as where marks are noted.
const received = `WITH hastened AS (SELECT set_config('synchronous_commit', 'off', true))
DELETE FROM ` + schema + `.outbox USING hastened WHERE source = '` + event.SourceDomain + `' AND event_id = ANY($1)`

// passageKinds are what comes last for a passage of ten conditions: the request itself, all others being there; an approval; a status.
func passageKinds() []string { return []string{"request", "approval", "status"} }

// prepareSQL gives the oldest rollouts that are under way ten conditions at the entrance of the environment that is next: ten checks, of
// which the third kind ($4) lacks one report, or nine and an approval. The tables are immutable for everybody but their owner.
const prepareSQL = `
WITH chosen AS (
    SELECT r.id, r.application_id, r.version_set_id, e.environment_id, n.name, ((r.id - $1) % 3)::int AS kind
    FROM cd_rollouts r
    JOIN cd_rollout_environments e ON e.rollout_id = r.id AND e.position = 2
    JOIN cd_environments n ON n.id = e.environment_id
    WHERE r.id >= $1 AND r.id < $1 + $2
), guarded AS (
    UPDATE cd_rollouts r SET passages = true, asked = false FROM chosen c WHERE r.id = c.id
), pinned AS (
    INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds)
    SELECT 1, c.id, c.environment_id, 'proposed', 'check-' || k, 'status', 0 FROM chosen c, generate_series(1, $3::int) k
    WHERE c.kind <> 1 OR k < $3
), reported AS (
    INSERT INTO cd_check_statuses (organization_id, application_id, environment_id, version_set_id, key, phase, description, link,
        principal_type, principal_id, principal_name)
    SELECT 1, c.application_id, c.environment_id, c.version_set_id, 'check-' || k, 'success', 'green', '', 'user', 1, 'owner'
    FROM chosen c, generate_series(1, $3::int) k WHERE c.kind = 0 OR k < $3
), asked AS (
    INSERT INTO cd_rollout_gates (organization_id, rollout_id, gate_id, quorum, requester_may_approve)
    SELECT 1, c.id, c.name, 1, true FROM chosen c WHERE c.kind = 1
)
SELECT c.id, c.kind, c.application_id, c.version_set_id, c.environment_id, c.name FROM chosen c ORDER BY c.id`

// waitingRollout is a rollout in front of a passage.
type waitingRollout struct {
	ID                                     int64
	Kind                                   int
	Application, VersionSet, EnvironmentID int64
	Gate                                   string
}

// prepared are at most so many rollouts under way that no event was sent about.
func prepared(ctx context.Context, database string, o options) ([]waitingRollout, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{`SELECT set_config('search_path', '` + schema + `', false)`, `SET session_replication_role = replica`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("prepare rollouts: %w", err)
		}
	}
	active := int(2_000 * o.scale)
	rows, err := conn.Query(ctx, prepareSQL, int64(100_000*o.scale)-int64(active)+1, min(o.passages, active-o.events/16), conditions)
	if err != nil {
		return nil, fmt.Errorf("prepare rollouts: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[waitingRollout])
	if err != nil {
		return nil, fmt.Errorf("prepare rollouts: %w", err)
	}
	return all, nil
}

// passages prints how long passages took: one after the other, while the rollouts of the seed are under way.
func passages(ctx context.Context, nats, database string, api probe.API, o options, log *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, passagesWithin)
	defer cancel()
	if err := api.Await(ctx); err != nil {
		return err
	}
	all, err := prepared(ctx, database, o)
	if err != nil {
		return err
	}
	conn, err := connect(ctx, nats, "workflow", log)
	if err != nil {
		return err
	}
	defer conn.Close()
	consumer := bus.Consumer{Stream: bus.StreamDomain, Durable: measuring}
	if err := conn.Apply(ctx, bus.Topology{Streams: []bus.Stream{bus.DomainStream()}, Consumers: []bus.Consumer{consumer}}); err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	granted := make(chan grant, 2*len(all))
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer db.Close()
	var announced atomic.Int64 // when the service last announced places
	announced.Store(clock.System().Now().UnixNano())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return conn.ConsumeInOrder(ctx, consumer, hear(db, granted, &announced), func(context.Context, bus.Delivery, error) {})
	})
	for clock.System().Now().Sub(time.Unix(0, announced.Load())) < settled {
		if err := clock.Sleep(ctx, clock.System(), settled/10); err != nil {
			cancel()
			return fmt.Errorf("the service has not settled: %w", err)
		}
	}
	waiting, err := openBehind(ctx, conn, database, len(all), o)
	if err != nil {
		cancel()
		return err
	}
	// As the server does by itself within a minute: plans that were made for empty tables would be measured otherwise.
	if _, err := db.Exec(ctx, `VACUUM ANALYZE`); err != nil {
		cancel()
		return fmt.Errorf("maintain the tables: %w", err)
	}
	busy := clock.System().Now()
	changes, unchanging := context.WithCancel(ctx)
	defer unchanging()
	group.Go(func() error { return waiting.change(changes, api) })
	took := make([][]time.Duration, len(passageKinds()))
	var decided []time.Duration
	began, err := handled()
	if err != nil {
		cancel()
		return err
	}
	for i, r := range all {
		before, err := began.after(ctx, i)
		if err != nil {
			cancel()
			return err
		}
		one, err := pass(ctx, conn, database, api, granted, r)
		if err != nil {
			cancel()
			return fmt.Errorf("rollout %d, %s: %w", r.ID, passageKinds()[r.Kind], err)
		}
		took[r.Kind] = append(took[r.Kind], one)
		if r.Kind == 0 {
			now, err := before.after(ctx, 1)
			if err != nil {
				cancel()
				return err
			}
			if now.count == before.count+1 { // else one was delivered again
				decided = append(decided, time.Duration((now.seconds-before.seconds)*float64(time.Second)))
			}
		}
	}
	unchanging()
	waiting.print(clock.System().Now().Sub(busy))
	printDecided(decided)
	for kind, name := range passageKinds() {
		if len(took[kind]) == 0 {
			continue
		}
		slices.Sort(took[kind])
		p50, p99 := probe.Percentiles(took[kind])
		fmt.Fprintf(os.Stdout, "%s to the word that opens a passage of %d conditions: %d, p50 %.1f ms (goal %s), p99 %.1f ms, load %s\n", name,
			conditions, len(took[kind]), p50, map[bool]string{true: "5, with the way over the bus twice", false: "50"}[kind == 0], p99, probe.Load())
	}
	cancel()
	return group.Wait()
}

// hear takes events of the domain: it confirms them, passes grants on, and notes when the service announced places.
func hear(db *pgxpool.Pool, granted chan<- grant, announced *atomic.Int64) func(context.Context, []bus.Delivery) []error {
	return func(ctx context.Context, deliveries []bus.Delivery) []error {
		at := clock.System().Now()
		var ids []string
		for _, d := range deliveries {
			if d.Event.Source() == event.SourceDomain {
				ids = append(ids, d.Event.ID())
			}
			if d.Event.Type() == event.TypeEnvironmentPlacesChanged {
				announced.Store(at.UnixNano())
			}
			if d.Event.Type() != event.TypeRolloutPassageGranted {
				continue
			}
			if data, err := event.Decode[event.RolloutPassageGranted](d.Event); err == nil {
				granted <- grant{data.RolloutID, at}
			}
		}
		_, err := db.Exec(ctx, received, ids)
		return slices.Repeat([]error{err}, len(deliveries))
	}
}

func printDecided(decided []time.Duration) {
	if len(decided) == 0 {
		return
	}
	p50, p99 := probe.Percentiles(decided)
	fmt.Fprintf(os.Stdout, "the decision alone, from the request's receipt to its acknowledgement after the commit: %d, p50 %.1f ms (goal 5), "+
		"p99 %.1f ms, load %s\n", len(decided), p50, p99, probe.Load())
}

// handling is how many requests for passages the service in this process has handled, and for how many seconds together.
type handling struct {
	count   uint64
	seconds float64
}

// handled reads it from the metrics of the service.
func handled() (h handling, err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(telemetry.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		return h, fmt.Errorf("read the service's metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != "lockstep_event_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["type"] == event.TypeRolloutPassageRequested && labels["consumer"] != measuring {
				h.count += m.GetHistogram().GetSampleCount()
				h.seconds += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return h, nil
}

// after waits until so many more requests were handled: one is counted after its commit, so perhaps after the grant has arrived.
func (h handling) after(ctx context.Context, more int) (now handling, err error) {
	for {
		if now, err = handled(); err != nil || now.count >= h.count+uint64(more) {
			return now, err
		}
		if err := clock.Sleep(ctx, clock.System(), time.Millisecond); err != nil {
			return now, fmt.Errorf("%d requests were handled, expected %d: %w", now.count-h.count, more, err)
		}
	}
}

// grant is when a rollout was allowed to continue.
type grant struct {
	rollout int64
	at      time.Time
}

// pass takes a rollout through its passage: how long from what comes last to the grant.
func pass(
	ctx context.Context, conn *bus.Conn, database string, api probe.API, granted <-chan grant, r waitingRollout,
) (time.Duration, error) {
	e, err := event.New(event.Header{
		ID: fmt.Sprintf("passage-%d", r.ID), Source: event.SourceWorkflow, Time: clock.System().Now(), Organization: 1,
		Correlation: id.RolloutRun(r.ID),
	}, event.RolloutPassageRequested{RolloutID: r.ID, GateID: r.Gate})
	if err != nil {
		return 0, err
	}
	began := clock.System().Now()
	if err := conn.Publish(ctx, e); err != nil {
		return 0, err
	}
	if r.Kind != 0 {
		if err := requested(ctx, database, r); err != nil {
			return 0, err
		}
		began = clock.System().Now()
		if err := answer(ctx, api, r); err != nil {
			return 0, err
		}
	}
	late := clock.System().NewTimer(openWithin)
	defer late.Stop()
	for {
		select {
		case g := <-granted:
			if g.rollout == r.ID {
				return g.at.Sub(began), nil
			}
		case <-late.C():
			return 0, fmt.Errorf("no grant within %s", openWithin)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// requested waits until the domain has the request.
func requested(ctx context.Context, database string, r waitingRollout) error {
	db, err := pgx.Connect(ctx, database)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	for there := false; !there; {
		if err := clock.Sleep(ctx, clock.System(), 10*time.Millisecond); err != nil {
			return fmt.Errorf("the request is not in the journal: %w", err)
		}
		if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+schema+`.cd_rollout_transitions WHERE organization_id = 1 AND rollout_id = $1
            AND event = 'request_passage')`,
			r.ID).Scan(&there); err != nil {
			return fmt.Errorf("look for the request: %w", err)
		}
	}
	return nil
}

// answer gives what is missing.
func answer(ctx context.Context, api probe.API, r waitingRollout) error {
	query, input := `mutation($input: ResolveGateInput!) { done: approveGate(input: $input) { errors { message } } }`,
		map[string]any{"rolloutId": fmt.Sprintf("rollout_%d", r.ID), "gateId": r.Gate}
	if passageKinds()[r.Kind] == "status" {
		query, input = `mutation($input: ReportCheckInput!) { done: reportCheck(input: $input) { errors { message } } }`, map[string]any{
			"application": fmt.Sprintf("application_%d", r.Application), "environment": r.Gate,
			"versionSetId": fmt.Sprintf("versionset_%d", r.VersionSet), "key": "check-" + strconv.Itoa(conditions), "phase": "SUCCESS",
		}
	}
	raw, err := api.Ask(ctx, query, map[string]any{"input": input})
	if err != nil {
		return err
	}
	var body struct {
		Data struct {
			Done struct {
				Errors []struct{ Message string }
			}
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if found := body.Data.Done.Errors; len(found) > 0 {
		return fmt.Errorf("refused: %s", found[0].Message)
	}
	return nil
}
