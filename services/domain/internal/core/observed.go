package core

import (
	"context"
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

// ObservedWrites keeps what standing observers see. An observation that is older than the one that is kept changes
// nothing. Each fills in since by itself. The error of a subject that does not exist is Invalid.
type ObservedWrites interface {
	// SaveHealth answers whether it counts for a clock: it is news, or says that the service is degraded.
	SaveHealth(ctx context.Context, h ServiceHealth) (counts bool, err error)
	// RolloutServing is the last rollout that has begun to deploy a service in an environment; false when none has.
	RolloutServing(ctx context.Context, service, environment int64) (rollout int64, ok bool, err error)
	// DegradedSince is since when the first of the services is degraded that a rollout was the last to deploy; false
	// when none is.
	DegradedSince(ctx context.Context, rollout int64) (since time.Time, ok bool, err error)
	SaveReconciliation(ctx context.Context, r Reconciliation) error
	SaveContact(ctx context.Context, c Contact) error
}

// ObservedReads has no key for what nobody has seen yet.
type ObservedReads interface {
	// HealthsByEnvironment are the healths of all services that were seen in each environment.
	HealthsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]ServiceHealth, error)
	Reconciliations(ctx context.Context, organization int64, applicationEnvironments []int64) (map[int64]Reconciliation, error)
	Contacts(ctx context.Context, organization int64, environments []int64) (map[int64]Contact, error)
}

func (h ServiceHealth) apply(ctx context.Context, _ *Domain, tx Tx, c cause, _ Inbound) error {
	counts, err := tx.SaveHealth(ctx, h)
	if err != nil || !counts {
		return err
	}
	rollout, ok, err := tx.RolloutServing(ctx, h.ServiceID, h.EnvironmentID)
	if err != nil || !ok {
		return err
	}
	// Under the lock: of this word and the rollout's end, whichever comes second sees the other.
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil {
		return err
	}
	return t.runClock(ctx)
}

func (r Reconciliation) apply(ctx context.Context, _ *Domain, tx Tx, _ cause, _ Inbound) error {
	return tx.SaveReconciliation(ctx, r)
}

func (o Contact) apply(ctx context.Context, _ *Domain, tx Tx, _ cause, _ Inbound) error {
	return tx.SaveContact(ctx, o)
}
