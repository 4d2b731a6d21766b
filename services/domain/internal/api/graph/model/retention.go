package model

import "github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"

// Retention wraps the domain's.
type Retention struct{ retention.Retention }

// Rules are those of all kinds.
func (r Retention) Rules() []RetentionRule {
	all := make([]RetentionRule, len(r.Retention.Rules))
	for i, rule := range r.Retention.Rules {
		all[i] = RetentionRule{rule}
	}
	return all
}

// LegalHold is null if none is in force.
func (r Retention) LegalHold() *string { return orNone(r.Hold) }

// RetentionRule wraps the domain's.
type RetentionRule struct{ retention.Rule }

// Kind is what is kept.
func (r RetentionRule) Kind() string { return string(r.Rule.Kind) }
