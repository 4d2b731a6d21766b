package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// BrokenGlass is how often somebody has broken the glass in this installation, and when last; zero for never.
func (s *Store) BrokenGlass(ctx context.Context) (times int64, last time.Time, err error) {
	row, err := query.New(s.deps.Pool).BrokenGlass(ctx)
	return row.Times, row.LastAt, pg.Classify(err, "read how often the glass was broken")
}

// glassWithin bounds the question that a scrape asks.
const glassWithin = 2 * time.Second

// Metrics are what the record says of break-glass, for Prometheus: nothing is counted here, so a crash or a restart forgets nothing, and
// every replica says the same. While the database does not answer there are none.
func Metrics(pool *pgxpool.Pool) prometheus.Collector {
	return glass{
		pool:  pool,
		times: prometheus.NewDesc("lockstep_break_glass_total", "Rollouts whose approvals were passed by break-glass.", nil, nil),
		last:  prometheus.NewDesc("lockstep_break_glass_last_timestamp_seconds", "When somebody last broke the glass; 0 for never.", nil, nil),
	}
}

type glass struct {
	pool        *pgxpool.Pool
	times, last *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (g glass) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.times
	ch <- g.last
}

// Collect implements prometheus.Collector, whose interface has no context.
func (g glass) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), glassWithin)
	defer cancel()
	row, err := query.New(g.pool).BrokenGlass(ctx)
	if err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(g.times, prometheus.CounterValue, float64(row.Times))
	ch <- prometheus.MustNewConstMetric(g.last, prometheus.GaugeValue, float64(row.LastAt.Unix()))
}
