package core

import (
	"time"
)

// Health is how a service does in an environment, rollout or not (R46). The numbers are stored.
type Health int16

// The healths.
const (
	HealthUnknown Health = iota
	HealthHealthy
	HealthProgressing
	HealthDegraded
)

// String is the word that events and the API use.
func (h Health) String() string {
	switch h {
	case HealthHealthy:
		return "healthy"
	case HealthProgressing:
		return "progressing"
	case HealthDegraded:
		return "degraded"
	default:
		return "unknown"
	}
}

// ServiceHealth is the latest health seen of a service in an environment: a cache, last write wins (R17). Since is the
// first observation in a row that said so, which is what the clock of a policy counts from (D13). It never touches a
// deployment, which froze when it ended (R36).
type ServiceHealth struct {
	ServiceID, EnvironmentID int64
	Health                   Health
	Reason                   string
	Since, ObservedAt        time.Time
}

// Reconciliation is what is in force of an application in an environment, beside what was deployed last (E58).
type Reconciliation struct {
	ApplicationEnvironmentID int64
	// Revision is in force, ExpectedRevision was deployed last; "" where nobody says.
	Revision, ExpectedRevision string
	// Automatic is that the reconciler moves by itself.
	Automatic bool
	// Drift says what differs; "" for nothing. It has been so Since.
	Drift             string
	Since, ObservedAt time.Time
}

// Contact is whether somebody can be reached who acts in an environment, and since when.
type Contact struct {
	EnvironmentID     int64
	Reachable         bool
	Reason            string
	Since, ObservedAt time.Time
}
