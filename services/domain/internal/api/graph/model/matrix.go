package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// MatrixRow is an application with its cells in some environments; nil Environments for all.
type MatrixRow struct {
	Application  Application
	Environments []int64
}

// Environment is which of them it is about.
func (e ApplicationEnvironment) Environment() Environment { return WrapEnvironment(e.Cell.Environment) }

// Live is the version set of the last rollout that completed there.
func (e ApplicationEnvironment) Live() *VersionSet { return wrapped(e.Cell.Live, WrapVersionSet) }

// Latest is where the newest rollout that goes there stands there.
func (e ApplicationEnvironment) Latest() *RolloutEnvironment {
	return wrapped(e.Cell.Latest, WrapRolloutEnvironment)
}

// LatestVersionSet is what that rollout brings.
func (e ApplicationEnvironment) LatestVersionSet() *VersionSet {
	return wrapped(e.Cell.LatestVersionSet, WrapVersionSet)
}

// State is how that rollout stands there.
func (e ApplicationEnvironment) State() *core.RolloutState {
	if e.Cell.Latest == nil {
		return nil
	}
	return &e.Cell.Latest.State
}

// Reconciliation is what is in force there beside what was deployed last; null before anybody has looked.
func (e ApplicationEnvironment) Reconciliation() *Reconciliation {
	return wrapped(e.Cell.Reconciliation, WrapReconciliation)
}

// wrapped is what may be missing, wrapped.
func wrapped[T, M any](one *T, wrap func(T) M) *M {
	if one == nil {
		return nil
	}
	m := wrap(*one)
	return &m
}

// MarshalDriverConfigKind writes a kind.
func MarshalDriverConfigKind(k setup.DriverConfigKind) graphql.Marshaler { return word(string(k)) }

// UnmarshalDriverConfigKind reads a kind.
func UnmarshalDriverConfigKind(v any) (setup.DriverConfigKind, error) {
	return enum(v, setup.EnvironmentConfig, setup.ApplicationEnvironmentConfig)
}
