package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// MatrixRow is an application with its cells in some environments; nil Environments for all.
type MatrixRow struct {
	Application  Application
	Environments []int64
}

// MarshalDriverConfigKind writes a kind.
func MarshalDriverConfigKind(k core.DriverConfigKind) graphql.Marshaler { return word(string(k)) }

// UnmarshalDriverConfigKind reads a kind.
func UnmarshalDriverConfigKind(v any) (core.DriverConfigKind, error) {
	return enum(v, core.EnvironmentConfig, core.ApplicationEnvironmentConfig)
}
