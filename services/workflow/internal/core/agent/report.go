package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The reports that an Observer can make.
const (
	// ReportHealth and ReportReconciliation are made by the relay, of an Argo Rollout and of an Argo CD Application.
	ReportHealth         = "argo.health"
	ReportReconciliation = "argo.reconciliation"
	// ReportAgent is made here, off heartbeats: whether the agent is connected and its cluster answers.
	ReportAgent = "agent"
)

// StandingReport reports of something for as long as nobody says otherwise, execution or not (R46, D13): what the relay, or a
// heartbeat, says of it is emitted as an event about its subject whenever it has changed.
type StandingReport struct {
	Organization int64 `json:"-"`
	Agent        int64 `json:"-"`
	// Report is one of the Report constants; it decides about the type of the event.
	Report string `json:"report"`
	// Namespace and Name are the object's, for the reports of relays.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Expected is the revision that a reconciliation is compared with.
	Expected string `json:"expected,omitempty"`
	// Run is the run that has registered it, whose standing decides about what it may report (D47); empty for what an earlier release has
	// registered.
	Run string `json:"run,omitempty"`
	// Subject are the members that every event of it has: whose report it is, in the words of the domain.
	Subject map[string]int64 `json:"subject"`
}

// Key identifies what is reported of: another Observer of the same key takes its place.
func (o StandingReport) Key() string {
	parts := make([]string, 0, len(o.Subject))
	for _, name := range slices.Sorted(maps.Keys(o.Subject)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, o.Subject[name]))
	}
	return o.Report + "/" + strings.Join(parts, ",")
}

// Event is the type of what a report is emitted as.
func (o StandingReport) Event() string {
	switch o.Report {
	case ReportHealth:
		return "com.gitlab.cd.service.health_observed"
	case ReportReconciliation:
		return "com.gitlab.cd.application_environment.reconciled"
	default:
		return "com.gitlab.cd.environment.contact_changed"
	}
}

// Members are those of the event that its reporter decides about; it is not believed about any other.
func (o StandingReport) Members() []string {
	switch o.Report {
	case ReportHealth:
		return []string{"health", "reason"}
	case ReportReconciliation:
		return []string{"revision", "expected_revision", "automatic", "drift", "objects"}
	default:
		return []string{"reachable", "reason"}
	}
}

// Watch is what a relay is to follow for it; false for what no relay follows.
func (o StandingReport) Watch() (WatchSpec, bool) {
	kind := map[string]string{ReportHealth: "Rollout", ReportReconciliation: "Application"}[o.Report]
	return WatchSpec{
		Kind: kind, APIVersion: "argoproj.io/v1alpha1", Namespace: o.Namespace, Name: o.Name, Fields: []string{},
		Report: o.Report, Expected: o.Expected,
	}, kind != ""
}

// Beat is what is kept of an agent's newest heartbeat.
type Beat struct {
	Agent int64
	// At is when it came, by the clock of the service that received it.
	At        time.Time
	Reachable bool
	Message   string
}

// ReportStore keeps observers and the heartbeats of agents. Every method is one transaction and may be repeated.
type ReportStore interface {
	// SaveObserver registers an observer; changed is false when it was registered as it is.
	SaveObserver(ctx context.Context, o StandingReport) (changed bool, err error)
	// SaveBeats keeps the newest heartbeats of agents, at most one of each.
	SaveBeats(ctx context.Context, beats []Beat) error
	// ReportAgents emits, for every observer of an agent, what has changed: an agent without a heartbeat for so long is
	// offline, since its last one.
	ReportAgents(ctx context.Context, now time.Time, offlineAfter time.Duration) error
}
