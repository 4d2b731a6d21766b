package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ServiceHealth wraps the domain's.
type ServiceHealth struct{ core.ServiceHealth }

// Reconciliation wraps the domain's.
type Reconciliation struct{ core.Reconciliation }

// Contact wraps the domain's.
type Contact struct{ core.Contact }

// WrapServiceHealth wraps the domain's.
func WrapServiceHealth(h core.ServiceHealth) ServiceHealth { return ServiceHealth{h} }

// WrapReconciliation wraps the domain's.
func WrapReconciliation(r core.Reconciliation) Reconciliation { return Reconciliation{r} }

// WrapContact wraps the domain's.
func WrapContact(c core.Contact) Contact { return Contact{c} }

// MarshalHealth writes a health.
func MarshalHealth(h core.Health) graphql.Marshaler { return word(string(h)) }

// UnmarshalHealth reads a health.
func UnmarshalHealth(v any) (core.Health, error) {
	return enum(v, core.HealthUnknown, core.HealthHealthy, core.HealthProgressing, core.HealthDegraded)
}
