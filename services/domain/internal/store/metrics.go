package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// scrapeWithin bounds the query of one scrape; a database that does not answer shows in other metrics.
const scrapeWithin = 2 * time.Second

// Metrics are what waits for people and for the workflow service, for Prometheus. Every replica reports the same: take the maximum, not the
// sum. While the database does not answer there are none.
func Metrics(pool *pgxpool.Pool) prometheus.Collector {
	return gauges{
		pool: pool,
		handoffs: prometheus.NewDesc("lockstep_handoffs_due",
			"Starts and cancellations of workflows that the workflow service has not confirmed.", nil, nil),
		handoffsOldest: prometheus.NewDesc("lockstep_handoffs_oldest_age_seconds",
			"Age of the oldest unconfirmed start or cancellation; 0 if there is none.", nil, nil),
		gates: prometheus.NewDesc("lockstep_gates_waiting", "Gates of active rollouts that wait for an approval.", nil, nil),
		gatesOldest: prometheus.NewDesc("lockstep_gates_oldest_age_seconds",
			"How long the oldest gate that waits for an approval has waited; 0 if there is none.", nil, nil),
	}
}

type gauges struct {
	pool                                         *pgxpool.Pool
	handoffs, handoffsOldest, gates, gatesOldest *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.handoffs, l.handoffsOldest, l.gates, l.gatesOldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector, whose interface has no context.
func (l gauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	now, err := query.New(l.pool).Load(ctx)
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	gauge(l.handoffs, float64(now.HandoffsDue))
	gauge(l.handoffsOldest, now.HandoffsOldestSeconds)
	gauge(l.gates, float64(now.GatesWaiting))
	gauge(l.gatesOldest, now.GatesOldestSeconds)
}
