package setup

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The inputs of a driver's programs. Identifiers are numbers; the driver's own blobs go through as they are.

// Named is how inputs refer to an object.
type Named struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// EnvironmentInput is an environment as programs get it.
type EnvironmentInput struct {
	ID     int64           `json:"id"`
	Name   string          `json:"name"`
	Tier   core.Tier       `json:"tier"`
	Driver string          `json:"driver"`
	Config json.RawMessage `json:"config"`
}

// DescribeEnvironment is an environment with its latest binding as programs get it.
func DescribeEnvironment(e core.BoundEnvironment) EnvironmentInput {
	return EnvironmentInput{ID: e.ID, Name: e.Name, Tier: e.Tier, Driver: e.Binding.DriverRef, Config: e.Binding.DriverConfig}
}

type setupInput struct {
	ApplicationEnvironment struct {
		ID          int64           `json:"id"`
		Config      json.RawMessage `json:"config"`
		Application Named           `json:"application"`
		Services    []Named         `json:"services"`
	} `json:"application_environment"`
	Environment EnvironmentInput `json:"environment"`
}
