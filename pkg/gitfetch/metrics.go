package gitfetch

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of a budget.
type metrics struct {
	fetched, inUse atomic.Int64
	refused        *prometheus.CounterVec
	all            []prometheus.Collector
}

func newMetrics(b *Budget) *metrics {
	m := &metrics{}
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_git_refusals_total", Help: "Fetches refused because of a limit: memory, transfer, inflated, objects or messages.",
	}, []string{"limit"})
	for _, limit := range []string{"memory", "transfer", "inflated", "objects", "messages"} {
		m.refused.WithLabelValues(limit)
	}
	m.all = []prometheus.Collector{
		m.refused,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "lockstep_git_fetched_bytes_total", Help: "Bytes received from Git servers and the APIs of forges.",
		}, func() float64 { return float64(m.fetched.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_git_memory_bytes", Help: "Memory of the budget for fetches that is in use.",
		}, func() float64 { return float64(m.inUse.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_git_memory_limit_bytes", Help: "Memory that all fetches of the process share.",
		}, func() float64 { return float64(b.limits.MemoryBytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_git_waiting", Help: "Fetches that wait for a share of the memory.",
		}, func() float64 { return float64(b.small.all.Waiting() + b.large.all.Waiting()) }),
	}
	return m
}

// refuse counts a fetch that was ended by a limit.
func (m *metrics) refuse(limit string) { m.refused.WithLabelValues(limit).Inc() }

// Metrics returns the collectors of the budget: bytes received, memory in use, waiting fetches, refusals by limit.
func (b *Budget) Metrics() []prometheus.Collector { return b.metrics.all }
