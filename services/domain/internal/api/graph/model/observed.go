package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
)

// ServiceHealth wraps the domain's.
type ServiceHealth struct{ core.ServiceHealth }

// Reconciliation wraps the domain's.
type Reconciliation struct{ core.Reconciliation }

// Objects are what differs.
func (r Reconciliation) Objects() []DriftedObject {
	all := make([]DriftedObject, len(r.Reconciliation.Objects))
	for i, o := range r.Reconciliation.Objects.Sorted() {
		all[i] = DriftedObject{o}
	}
	return all
}

// DriftedObject wraps the domain's.
type DriftedObject struct{ drift.Object }

// Held are the fields that others have taken over.
func (o DriftedObject) Held() []HeldField {
	all := make([]HeldField, len(o.Object.Held))
	for i, h := range o.Object.Held {
		all[i] = HeldField(h)
	}
	return all
}

// Differs says what differs in it.
func (o DriftedObject) Differs() []string {
	if o.Object.Differs == nil {
		return []string{}
	}
	return o.Object.Differs
}

// HeldField is the domain's.
type HeldField drift.Held

// MarshalDriftHow writes how an object differs.
func MarshalDriftHow(h drift.How) graphql.Marshaler { return word(string(h)) }

// UnmarshalDriftHow reads how an object differs.
func UnmarshalDriftHow(v any) (drift.How, error) {
	return enum(v, drift.Missing, drift.Extra, drift.Different)
}

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
