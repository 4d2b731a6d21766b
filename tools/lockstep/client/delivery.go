package client

import (
	"context"
	"time"
)

// DeliveryMetrics are the DORA metrics of an application in an environment, as defined in docs/reference/delivery-metrics.md.
type DeliveryMetrics struct {
	Environment Reference `json:"environment"`
	Since       time.Time `json:"since"`
	Until       time.Time `json:"until"`
	// Deployments is the number of completed ones; Reworked of them were made because of a failure.
	Deployments       int     `json:"deployments"`
	DeploymentsPerDay float64 `json:"deploymentsPerDay"`
	Reworked          int     `json:"reworked"`
	// ReworkRate and ChangeFailRate are from 0 to 1; missing if there were no deployments to count.
	ReworkRate     *float64 `json:"reworkRate,omitempty"`
	Failures       int      `json:"failures"`
	Cancelled      int      `json:"cancelled"`
	ChangeFailRate *float64 `json:"changeFailRate,omitempty"`
	// LeadTime is split into LeadTimePeople, the time spent waiting for people, and LeadTimeMachine, the rest.
	LeadTime        *DurationSummary `json:"leadTime,omitempty"`
	LeadTimePeople  *DurationSummary `json:"leadTimePeople,omitempty"`
	LeadTimeMachine *DurationSummary `json:"leadTimeMachine,omitempty"`
	RecoveryTime    *DurationSummary `json:"recoveryTime,omitempty"`
	// Unrecovered is the number of failures that no later deployment has fixed yet.
	Unrecovered int `json:"unrecovered"`
}

// DurationSummary summarizes a distribution of durations, in seconds.
type DurationSummary struct {
	Count   int     `json:"count"`
	Mean    float64 `json:"mean"`
	Median  float64 `json:"median"`
	P90     float64 `json:"p90"`
	Longest float64 `json:"longest"`
}

const deliveryFields = `environment { id name } since until deployments deploymentsPerDay reworked reworkRate failures cancelled changeFailRate unrecovered ` +
	`leadTime { count mean median p90 longest } leadTimePeople { count mean median p90 longest } leadTimeMachine { count mean median p90 longest } ` +
	`recoveryTime { count mean median p90 longest }`

// DeliveryMetrics returns the metrics of an application in an environment or, if that is empty, in each environment of its pipeline. A zero
// until means now, a zero since 30 days before.
func (c *Client) DeliveryMetrics(ctx context.Context, application, environment string, since, until time.Time) ([]DeliveryMetrics, error) {
	variables := map[string]any{"application": application}
	if environment != "" {
		variables["environment"] = environment
	}
	for name, at := range map[string]time.Time{"since": since, "until": until} {
		if !at.IsZero() {
			variables[name] = at
		}
	}
	var data struct{ DeliveryMetrics []DeliveryMetrics }
	err := c.do(ctx, `query($application: String!, $environment: String, $since: Time, $until: Time) { deliveryMetrics(application: $application, environment: $environment, since: $since, until: $until) { `+
		deliveryFields+` } }`, variables, &data)
	return data.DeliveryMetrics, err
}
