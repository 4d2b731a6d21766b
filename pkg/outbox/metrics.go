package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
)

const (
	// scrapeWithin bounds the query of a scrape: other metrics report a database that does not answer.
	scrapeWithin = 2 * time.Second
	// countAtMost is as far as a scrape counts.
	countAtMost = 100_000
)

// Metrics are how much of an outbox has not been confirmed, for Prometheus. Every replica of a service reports the same outbox: take the
// maximum, not the sum. While the database does not answer there are none.
func Metrics(pool *pgxpool.Pool) prometheus.Collector {
	return metrics{
		pool: pool,
		events: prometheus.NewDesc("lockstep_outbox_events",
			"Events of the outbox that are not confirmed by their receivers; counted up to 100000.", nil, nil),
		failing: prometheus.NewDesc("lockstep_outbox_failing_events", "Unconfirmed events of the outbox that the bus has refused.", nil, nil),
		oldest: prometheus.NewDesc("lockstep_outbox_oldest_event_age_seconds",
			"Age of the oldest unconfirmed event of the outbox; 0 if there is none.", nil, nil),
		senders: prometheus.NewDesc("lockstep_outbox_senders", "Replicas that send events of the outbox, each in lanes of its own.", nil, nil),
		unsent:  prometheus.NewDesc("lockstep_outbox_unsent_lanes", "Lanes of the outbox that no replica sends at the moment.", nil, nil),
		waiting: prometheus.NewDesc("lockstep_outbox_waiting_lanes",
			"Lanes of the outbox in which an event has waited for a minute to be sent at all.", nil, nil),
	}
}

type metrics struct {
	pool                    *pgxpool.Pool
	events, failing, oldest *prometheus.Desc
	senders, unsent         *prometheus.Desc
	waiting                 *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.events
	ch <- m.failing
	ch <- m.oldest
	ch <- m.senders
	ch <- m.unsent
	ch <- m.waiting
}

// Collect implements prometheus.Collector, whose interface has no context.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	b, err := query.New(m.pool).Backlog(ctx, countAtMost)
	if err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(m.events, prometheus.GaugeValue, float64(b.Events))
	ch <- prometheus.MustNewConstMetric(m.failing, prometheus.GaugeValue, float64(b.Failing))
	ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, b.OldestSeconds)
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(b.Waiting))
	var senders, unsent int64
	if err := m.pool.QueryRow(ctx, countLanes).Scan(&senders, &unsent); err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(m.senders, prometheus.GaugeValue, float64(senders))
	ch <- prometheus.MustNewConstMetric(m.unsent, prometheus.GaugeValue, float64(unsent))
}
