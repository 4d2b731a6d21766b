package model

import (
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// DeliveryMetrics wraps the domain's.
type DeliveryMetrics struct{ view.DeliveryMetrics }

// DeploymentsPerDay is of days of 24 hours.
func (m DeliveryMetrics) DeploymentsPerDay() float64 {
	return float64(m.Deployments) / (m.Until.Sub(m.Since).Hours() / 24)
}

// ChangeFailRate is null where nothing was completed, failed or aborted.
func (m DeliveryMetrics) ChangeFailRate() *float64 { return part(m.Failures, m.Ended) }

// ReworkRate is null where nothing was completed.
func (m DeliveryMetrics) ReworkRate() *float64 { return part(m.Reworked, m.Deployments) }

// LeadTime is null where no change was deployed.
func (m DeliveryMetrics) LeadTime() *DurationSummary { return summary(m.Lead) }

// LeadTimePeople is null where no change was deployed.
func (m DeliveryMetrics) LeadTimePeople() *DurationSummary { return summary(m.People) }

// LeadTimeMachine is null where no change was deployed.
func (m DeliveryMetrics) LeadTimeMachine() *DurationSummary { return summary(m.Machine) }

// RecoveryTime is null where nothing was mended.
func (m DeliveryMetrics) RecoveryTime() *DurationSummary { return summary(m.Recovery) }

// part is a ratio; null of nothing.
func part(n, of int) *float64 {
	if of == 0 {
		return nil
	}
	ratio := float64(n) / float64(of)
	return &ratio
}

func summary(d view.Durations) *DurationSummary {
	if d.Count == 0 {
		return nil
	}
	return &DurationSummary{
		Count: d.Count, Mean: d.Mean.Seconds(), Median: d.Median.Seconds(), P90: d.P90.Seconds(),
		Longest: d.Longest.Seconds(),
	}
}

// DurationSummary is durations in seconds.
type DurationSummary struct {
	Count                      int
	Mean, Median, P90, Longest float64
}
