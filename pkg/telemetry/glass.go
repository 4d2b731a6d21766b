package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// glassWithin bounds the query of a scrape.
const glassWithin = 2 * time.Second

// BreakGlass exports how often the approvals of a rollout were bypassed by break-glass, and when last. It reads the record, so a restart
// loses nothing, and every replica exports the same. While the record cannot be read, the metrics are absent.
func BreakGlass(read func(ctx context.Context) (times int64, last time.Time, err error)) prometheus.Collector {
	return glass{
		read:  read,
		times: prometheus.NewDesc("lockstep_break_glass_total", "Rollouts whose approvals were bypassed by break-glass.", nil, nil),
		last:  prometheus.NewDesc("lockstep_break_glass_last_timestamp_seconds", "When break-glass was last used; 0 for never.", nil, nil),
	}
}

type glass struct {
	read        func(ctx context.Context) (int64, time.Time, error)
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
	times, last, err := g.read(ctx)
	if err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(g.times, prometheus.CounterValue, float64(times))
	ch <- prometheus.MustNewConstMetric(g.last, prometheus.GaugeValue, float64(last.Unix()))
}
