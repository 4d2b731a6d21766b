package domain

import "github.com/prometheus/client_golang/prometheus"

// outcomeMetrics exports a count of this process by outcome.
type outcomeMetrics struct {
	desc *prometheus.Desc
	read func() map[string]int64
}

// Describe implements prometheus.Collector.
func (m outcomeMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.desc }

// Collect implements prometheus.Collector.
func (m outcomeMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(n), outcome)
	}
}

func byOutcome(name, help string, read func() map[string]int64) outcomeMetrics {
	return outcomeMetrics{prometheus.NewDesc(name, help, []string{"outcome"}, nil), read}
}

func driftLooks(read func() map[string]int64) outcomeMetrics {
	return byOutcome("lockstep_drift_looks_total", "Looks of drivers for drift whose answer came to this process, by outcome: same, drift, "+
		"unknown where it could not be found out, or late where a rollout has begun or another look was asked for since.", read)
}

func triggerEdits(read func() map[string]int64) outcomeMetrics {
	return byOutcome("lockstep_trigger_edits_total", "Edits of files by triggers in this process, by outcome: committed, proposed, unchanged, "+
		"failed, again for an attempt that failed and is repeated, limited for one that began to wait for the limit of its trigger within "+
		"an hour, or returned for an event that was about an edit of the trigger itself, which is declined.", read)
}

func skippedSteps(read func() map[string]int64) outcomeMetrics {
	return byOutcome("lockstep_rollout_step_skips_total", "Steps of pipelines that commits had skipped in rollouts that began in this process "+
		"(skipped), and rollouts whose pipeline has skip_on and that skipped none (kept).", read)
}
