package workflow

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// Metrics are the collectors of what this service alone shows, with nothing behind them: they can be described, for checks of dashboards and
// alerts, and not collected.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{store.Metrics(nil, clock.System()), engineMetrics(nil), isolation{}}
}

// engineMetrics are what an engine has in its process: each replica reports its own, so take the sum.
func engineMetrics(engine *core.Engine) prometheus.Collector {
	return engineLoad{
		engine:      engine,
		used:        prometheus.NewDesc("lockstep_places_used", "Places that are taken, by kind: runs that are carried out, and attempts at Functions.", []string{"kind"}, nil),
		most:        prometheus.NewDesc("lockstep_places_max", "How many places there are, by kind (max_live, max_activities).", []string{"kind"}, nil),
		memory:      prometheus.NewDesc("lockstep_runs_in_memory", "Runs in this process's memory, by what they do: run, wait for a place, or parked.", []string{"place"}, nil),
		bytes:       prometheus.NewDesc("lockstep_runs_parked_bytes", "What parked runs take of cache_bytes.", nil, nil),
		histories:   prometheus.NewDesc("lockstep_workflow_long_histories_total", "Runs whose history was found to be close to max_history; they need continue_with.", nil, nil),
		held:        prometheus.NewDesc("lockstep_workflow_held_generations_total", "Generations of runs that were held back because their programs call continue_with more often than max_generations.", nil, nil),
		quarantined: prometheus.NewDesc("lockstep_runs_quarantined_total", "Runs that this process has quarantined.", nil, nil),
	}
}

type engineLoad struct {
	engine                                                  *core.Engine
	used, most, memory, bytes, histories, held, quarantined *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l engineLoad) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.used, l.most, l.memory, l.bytes, l.histories, l.held, l.quarantined} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (l engineLoad) Collect(ch chan<- prometheus.Metric) {
	now := l.engine.Usage()
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(l.used, int64(now.Running), "runs")
	gauge(l.most, int64(l.engine.Settings.Live), "runs")
	gauge(l.used, int64(now.Functions), "functions")
	gauge(l.most, int64(l.engine.Settings.Activities), "functions")
	gauge(l.memory, int64(now.Running), "running")
	gauge(l.memory, int64(now.Queued), "queued")
	gauge(l.memory, int64(now.Parked), "parked")
	gauge(l.bytes, now.ParkedBytes)
	ch <- prometheus.MustNewConstMetric(l.histories, prometheus.CounterValue, float64(now.LongHistories))
	ch <- prometheus.MustNewConstMetric(l.held, prometheus.CounterValue, float64(l.engine.Held()))
	ch <- prometheus.MustNewConstMetric(l.quarantined, prometheus.CounterValue, float64(now.Quarantined))
}
