package telemetry

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DeliverySample holds the delivery metrics of an application in an environment within a window; the domain service defines each number.
type DeliverySample struct {
	Application, Environment, Tier                          string
	Deployments, Reworked, Ended, Failures, Unrecovered     int
	LeadTime, LeadTimePeople, LeadTimeMachine, RecoveryTime Percentiles
}

// Percentiles maps percentiles, such as 50 and 90, to durations; an empty map is not exported.
type Percentiles map[int]time.Duration

// Delivery exports the delivery metrics of a few applications and environments as gauges, all of the same time. It does not count: the
// metrics are recomputed from the record, so a restart changes nothing, and every replica exports the same. Its labels name applications:
// the caller of Set bounds how many.
type Delivery struct {
	mu      sync.Mutex
	samples []DeliverySample
	at      time.Time
	leftOut int
}

var _ prometheus.Collector = (*Delivery)(nil)

// Set replaces all samples. leftOut is the number of pairs of application and environment that were left out, because there were too many
// or one had too many rollouts.
func (d *Delivery) Set(samples []DeliverySample, leftOut int, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.samples, d.leftOut, d.at = slices.Clone(samples), leftOut, at
}

var (
	//nolint:gochecknoglobals // constants, which Go cannot express
	placed = []string{"application", "environment", "tier"}
	//nolint:gochecknoglobals // as above
	deliveryDescs = struct{ deployments, reworked, ended, failures, unrecovered, lead, recovery, at, leftOut *prometheus.Desc }{
		deployments: prometheus.NewDesc("lockstep_delivery_deployments", "Deployments that were completed in the window.", placed, nil),
		reworked: prometheus.NewDesc("lockstep_delivery_reworked", "Deployments of the window that were made because of a failure.", placed,
			nil),
		ended: prometheus.NewDesc("lockstep_delivery_ended", "Deployments that were completed, failed or aborted in the window.", placed,
			nil),
		failures: prometheus.NewDesc("lockstep_delivery_failures", "Deployments of the window that failed, were aborted or rolled back.",
			placed, nil),
		unrecovered: prometheus.NewDesc("lockstep_delivery_unrecovered",
			"Failures of the window that no later deployment has fixed yet.", placed, nil),
		lead: prometheus.NewDesc("lockstep_delivery_lead_time_seconds",
			"Change lead time by percentile, in total and by part: people, machine.", slices.Concat(placed, []string{"part", "percentile"}), nil),
		recovery: prometheus.NewDesc("lockstep_delivery_recovery_seconds", "Failed deployment recovery time by percentile.",
			slices.Concat(placed, []string{"percentile"}), nil),
		at: prometheus.NewDesc("lockstep_delivery_refreshed_timestamp_seconds", "When the delivery metrics were computed.", nil, nil),
		leftOut: prometheus.NewDesc("lockstep_delivery_left_out",
			"Pairs of application and environment that were left out because there are too many.", nil, nil),
	}
)

// Describe implements prometheus.Collector.
func (*Delivery) Describe(out chan<- *prometheus.Desc) {
	d := deliveryDescs
	for _, one := range []*prometheus.Desc{
		d.deployments, d.reworked, d.ended, d.failures, d.unrecovered, d.lead,
		d.recovery, d.at, d.leftOut,
	} {
		out <- one
	}
}

// Collect implements prometheus.Collector; it exports nothing before the first Set.
func (d *Delivery) Collect(out chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(deliveryDescs.at, float64(d.at.Unix()))
	gauge(deliveryDescs.leftOut, float64(d.leftOut))
	for _, s := range d.samples {
		place := []string{s.Application, s.Environment, s.Tier}
		gauge(deliveryDescs.deployments, float64(s.Deployments), place...)
		gauge(deliveryDescs.reworked, float64(s.Reworked), place...)
		gauge(deliveryDescs.ended, float64(s.Ended), place...)
		gauge(deliveryDescs.failures, float64(s.Failures), place...)
		gauge(deliveryDescs.unrecovered, float64(s.Unrecovered), place...)
		for part, percentiles := range map[string]Percentiles{"all": s.LeadTime, "people": s.LeadTimePeople, "machine": s.LeadTimeMachine} {
			each(percentiles, func(percentile string, seconds float64) {
				gauge(deliveryDescs.lead, seconds, slices.Concat(place, []string{part, percentile})...)
			})
		}
		each(s.RecoveryTime, func(percentile string, seconds float64) {
			gauge(deliveryDescs.recovery, seconds, slices.Concat(place, []string{percentile})...)
		})
	}
}

func each(p Percentiles, show func(percentile string, seconds float64)) {
	for _, percentile := range slices.Sorted(maps.Keys(p)) {
		show(strconv.Itoa(percentile), p[percentile].Seconds())
	}
}
