package telemetry

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// Breaches exports how many rollouts failed because they advanced beyond a passage that was never granted. It reads the record, so a
// restart loses nothing, and every replica exports the same. While the record cannot be read, the metric is absent.
func Breaches(read func(ctx context.Context) (times int64, err error)) prometheus.Collector {
	return breaches{read, prometheus.NewDesc(
		"lockstep_passage_breaches_total", "Rollouts that failed because they advanced beyond a passage that was never granted.", nil, nil,
	)}
}

// FreezeBypasses exports how often a rollout was let past a freeze; otherwise it is like Breaches.
func FreezeBypasses(read func(ctx context.Context) (times int64, err error)) prometheus.Collector {
	return breaches{read, prometheus.NewDesc("lockstep_freeze_bypasses_total", "Rollouts that a person has let past a freeze.", nil, nil)}
}

type breaches struct {
	read  func(ctx context.Context) (int64, error)
	times *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (b breaches) Describe(ch chan<- *prometheus.Desc) { ch <- b.times }

// Collect implements prometheus.Collector, whose interface has no context.
func (b breaches) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), glassWithin)
	defer cancel()
	times, err := b.read(ctx)
	if err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(b.times, prometheus.CounterValue, float64(times))
}
