package store

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

const (
	// scrapeWithin bounds the queries of one scrape; a database that does not answer shows in other metrics.
	scrapeWithin = 2 * time.Second
	// countAtMost is as far as runnable executions are counted, and agentsAtMost how many agents have a series each.
	countAtMost  = 100_000
	agentsAtMost = 1000
)

// Metrics are figures of load from the tables, for Prometheus. Every replica reports the same figures: take the maximum, not the sum. While
// the database does not answer, there are none.
func Metrics(pool *pgxpool.Pool, now clock.Clock) prometheus.Collector {
	return gauges{
		pool: pool, clock: now,
		runnable: prometheus.NewDesc("lockstep_runs",
			"Runs that can continue now, with a place or waiting for one; counted up to 100000.", nil, prometheus.Labels{"state": "runnable"}),
		oldest: prometheus.NewDesc("lockstep_runs_oldest_runnable_age_seconds",
			"For how long the oldest runnable run has not parked or ended; 0 if there is none.", nil, nil),
		matching: prometheus.NewDesc("lockstep_match_lock_waiting",
			"Transactions of all replicas that wait for the lock of event matching.", nil, nil),
		heartbeat: prometheus.NewDesc("lockstep_agent_heartbeat_age_seconds",
			"How long ago the last heartbeat of an agent arrived; revoked agents have none.", []string{"agent"}, nil),
		reachable: prometheus.NewDesc("lockstep_agent_cluster_reachable",
			"Whether an agent reached its cluster at its last heartbeat: 1 or 0.", []string{"agent"}, nil),
	}
}

type gauges struct {
	pool                                             *pgxpool.Pool
	clock                                            clock.Clock
	runnable, oldest, matching, heartbeat, reachable *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.runnable, l.oldest, l.matching, l.heartbeat, l.reachable} {
		ch <- d
	}
}

// Collect implements prometheus.Collector, whose interface has no context.
func (l gauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	q := query.New(l.pool)
	if now, err := q.Load(ctx, countAtMost); err == nil {
		gauge(l.runnable, float64(now.Runnable))
		gauge(l.oldest, now.OldestSeconds)
		gauge(l.matching, float64(now.MatchWaiting))
	}
	beats, err := q.Beats(ctx, agentsAtMost)
	if err != nil {
		return
	}
	for _, b := range beats {
		agent, reachable := strconv.FormatInt(b.ID, 10), 0.0
		if b.Reachable {
			reachable = 1
		}
		gauge(l.heartbeat, l.clock.Now().Sub(b.SeenAt).Seconds(), agent)
		gauge(l.reachable, reachable, agent)
	}
}
