package workflow

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// exposition is what the metrics of this service are read from.
type exposition struct {
	budget *gitfetch.Budget
	conn   func() *bus.Conn
	pool   *pgxpool.Pool
	clock  clock.Clock
	engine *engine.Engine
	guard  *guard.Guard
	// policies decide about calls; nil to describe them.
	policies *callpolicy.Registry
	workers  *worker.Hub
	limits   *limit.Limiter
	// schedules and archive are kept here; nil to describe them.
	schedules *scheduleMetrics
	archive   *prometheus.CounterVec
	scripts   isolation
}

// collectors are everything that /metrics exposes beside telemetry.Metrics.
func (e exposition) collectors() []prometheus.Collector {
	all := append([]prometheus.Collector{pg.Metrics(e.pool), outbox.Metrics(e.pool)}, bus.Metrics(e.conn)...)
	archive := cmp.Or(e.archive, archiveMetrics())
	return append(append(append(all, e.budget.Metrics()...), store.Metrics(e.pool, e.clock), engineMetrics(e.engine),
		guardMetrics(e.guard), policyMetrics{e.policies}, limitMetrics{e.limits}, e.scripts),
		slices.Concat(orEmpty(e.schedules).collectors(), workerMetrics(e.workers), []prometheus.Collector{archive})...)
}

// Exposed are the collectors of everything that /metrics of this service exposes beside telemetry.Metrics. They read from nothing: they
// can be described, for references and for checks of dashboards and alerts, and not collected.
func Exposed() []prometheus.Collector {
	return exposition{budget: gitfetch.NewBudget(gitfetch.Limits{})}.collectors()
}

// Metrics are those of Exposed that no other service has.
func Metrics() []prometheus.Collector {
	return slices.Concat([]prometheus.Collector{
		store.Metrics(nil, nil), engineMetrics(nil), guardMetrics(nil), policyMetrics{}, limitMetrics{}, isolation{}, archiveMetrics(),
	}, newScheduleMetrics().collectors(), workerMetrics(nil))
}

// guardMetrics counts what a process has refused: each replica reports its own, so take the sum.
func guardMetrics(g *guard.Guard) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "lockstep_calls_forbidden_total",
		Help: "Attempts of calls that were refused because no passage opens what they change, or because an environment is protected.",
	}, func() float64 { return float64(g.Forbidden()) })
}

// policyMetrics count what policies have decided about calls in a process: each replica reports its own, so take the sum.
type policyMetrics struct{ policies *callpolicy.Registry }

// decidedDesc describes the counter.
func decidedDesc() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_call_policy_decisions_total",
		"Decisions of policies about calls of Functions, by verdict: allow, needs_approval or deny. Calls that no policy concerns are not "+
			"counted.",
		[]string{"verdict"}, nil)
}

// Describe implements prometheus.Collector.
func (policyMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- decidedDesc() }

// Collect implements prometheus.Collector.
func (m policyMetrics) Collect(ch chan<- prometheus.Metric) {
	allowed, asked, denied := m.policies.Counts()
	for verdict, count := range map[policy.Verdict]int64{policy.Allow: allowed, policy.NeedsApproval: asked, policy.Deny: denied} {
		ch <- prometheus.MustNewConstMetric(decidedDesc(), prometheus.CounterValue, float64(count), string(verdict))
	}
}

// scheduleMetrics are what the schedules of a process have done: each replica reports its own, so take the sum.
type scheduleMetrics struct {
	times *prometheus.CounterVec
	late  prometheus.Histogram
}

func newScheduleMetrics() *scheduleMetrics {
	return &scheduleMetrics{
		times: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lockstep_schedule_times_total", Help: "Due times of schedules, by outcome: started, skipped, missed or refused.",
		}, []string{"outcome"}),
		late: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lockstep_schedule_late_seconds", Help: "How late runs of schedules were started that had to wait for no other run.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300},
		}),
	}
}

func orEmpty(m *scheduleMetrics) *scheduleMetrics {
	if m == nil {
		return newScheduleMetrics()
	}
	return m
}

func (m *scheduleMetrics) counted(outcome schedule.State, times int64) {
	if times > 0 {
		m.times.WithLabelValues(string(outcome)).Add(float64(times))
	}
}

// collectors are its metrics, each with a type of its own.
func (m *scheduleMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.times, m.late}
}

// archiveMetrics count the runs that a process has archived, or failed to: each replica reports its own, so take the sum.
func archiveMetrics() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_archived_runs_total",
		Help: "Ended runs that were to be archived before their deletion, by outcome: archived or failed. Those that failed are kept.",
	}, []string{"outcome"})
}

// limitMetrics count what a process has refused because an organization was at a limit: each replica reports its own, so take the sum.
type limitMetrics struct{ limits *limit.Limiter }

// limitedDesc describes the counter.
func limitedDesc() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_limited_total",
		"Starts, events and calls of channels that were refused because their organization was at a limit, by limit.", []string{"limit"}, nil)
}

// pacedDesc describes the counter of waits.
func pacedDesc() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_limit_waits_total",
		"Waits of programs because their organization was at a limit, by limit: starts, events, or storage before a next generation.",
		[]string{"limit"}, nil)
}

// usedDesc and mostDesc describe the use of limits.
func usedDesc() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_limit_used",
		"What an organization uses of a limit, for the 20 uses of half a limit or more that are closest to theirs. Every replica has all of them, so take the "+
			"maximum.", []string{"organization", "limit"}, nil)
}

func mostDesc() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_limit_max", "The limits of lockstep_limit_used.", []string{"organization", "limit"}, nil)
}

// What lockstep_limit_used has: organizations that use this share of a limit, and at most so many uses.
const (
	usedShare = 0.5
	usedMost  = 20
)

// Describe implements prometheus.Collector.
func (limitMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{limitedDesc(), pacedDesc(), usedDesc(), mostDesc()} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m limitMetrics) Collect(ch chan<- prometheus.Metric) {
	for kind, count := range m.limits.Refused() {
		ch <- prometheus.MustNewConstMetric(limitedDesc(), prometheus.CounterValue, float64(count), limit.Names()[kind])
	}
	for kind, count := range m.limits.Waits() {
		ch <- prometheus.MustNewConstMetric(pacedDesc(), prometheus.CounterValue, float64(count), limit.Names()[kind])
	}
	for _, u := range m.limits.Nearest(usedShare, usedMost) {
		labels := []string{strconv.FormatInt(u.Organization, 10), limit.Names()[u.Kind]}
		ch <- prometheus.MustNewConstMetric(usedDesc(), prometheus.GaugeValue, u.Used, labels...)
		ch <- prometheus.MustNewConstMetric(mostDesc(), prometheus.GaugeValue, float64(u.Most), labels...)
	}
}

// workerMetrics are the workers of one replica, so take the sum.
func workerMetrics(hub *worker.Hub) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lockstep_workers_connected", Help: "Workers that are connected."}, func() float64 {
			connected, _, _ := hub.Load()
			return float64(connected)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_worker_calls_in_progress", Help: "Calls that connected workers have and have not answered.",
		}, func() float64 {
			_, held, _ := hub.Load()
			return float64(held)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "lockstep_worker_calls_total", Help: "Attempts of calls that were given to workers.",
		}, func() float64 {
			_, _, given := hub.Load()
			return float64(given)
		}),
	}
}

// engineMetrics are what an engine has in its process: each replica reports its own, so take the sum.
func engineMetrics(engine *engine.Engine) prometheus.Collector {
	return engineLoad{
		engine: engine,
		used: prometheus.NewDesc("lockstep_places_used",
			"Places in use, by kind: runs, calls of Functions in progress, and deliveries: those of runs that send notifications or publish to forges.", []string{"kind"}, nil),
		most: prometheus.NewDesc("lockstep_places_max",
			"Maximum number of places, by kind: runs (max_live), functions (max_activities) and deliveries (half of max_activities).", []string{"kind"}, nil),
		queued: prometheus.NewDesc("lockstep_functions_queued",
			"Attempts at calls of Functions that wait for a place, or for others of their organization.", nil, nil),
		memory: prometheus.NewDesc("lockstep_runs_in_memory",
			"Runs in the memory of this process, by state: running, queued for a place, or parked.", []string{"place"}, nil),
		bytes: prometheus.NewDesc("lockstep_runs_parked_bytes", "Memory of parked runs, out of cache_bytes.", nil, nil),
		histories: prometheus.NewDesc("lockstep_workflow_long_histories_total",
			"Runs whose history came close to max_history; their programs need continue_with.", nil, nil),
		held: prometheus.NewDesc("lockstep_workflow_held_generations_total",
			"Generations of runs that were held back because their programs call continue_with more often than max_generations.", nil, nil),
		quarantined: prometheus.NewDesc("lockstep_runs_quarantined_total", "Runs that this process has quarantined.", nil, nil),
	}
}

type engineLoad struct {
	engine                                                          *engine.Engine
	used, most, queued, memory, bytes, histories, held, quarantined *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l engineLoad) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.used, l.most, l.queued, l.memory, l.bytes, l.histories, l.held, l.quarantined} {
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
	gauge(l.used, int64(now.Deliveries), "deliveries")
	gauge(l.most, int64(now.MostDeliveries), "deliveries")
	gauge(l.queued, int64(now.QueuedFunctions))
	gauge(l.memory, int64(now.Running), "running")
	gauge(l.memory, int64(now.Queued), "queued")
	gauge(l.memory, int64(now.Parked), "parked")
	gauge(l.bytes, now.ParkedBytes)
	ch <- prometheus.MustNewConstMetric(l.histories, prometheus.CounterValue, float64(now.LongHistories))
	ch <- prometheus.MustNewConstMetric(l.held, prometheus.CounterValue, float64(l.engine.Held()))
	ch <- prometheus.MustNewConstMetric(l.quarantined, prometheus.CounterValue, float64(now.Quarantined))
}
