package client

import (
	"context"
	"time"
)

// A Driver is an installed deploy driver.
type Driver struct {
	// Ref is name@major.
	Ref string `json:"ref"`
	// Digest is that of its bundle, which rollouts pin.
	Digest string `json:"digest"`
	// Origin is built-in, folder or the reference of an OCI artifact; ArtifactDigest is that artifact's digest.
	Origin                 string   `json:"origin"`
	ArtifactDigest         string   `json:"artifactDigest,omitempty"`
	SupportedPipelineSteps []string `json:"supportedPipelineSteps"`
	EnvironmentSchema      any      `json:"environmentSchema,omitempty"`
	// ApplicationEnvironmentSchema is the schema of the config of a deploy step.
	ApplicationEnvironmentSchema any `json:"applicationEnvironmentSchema,omitempty"`
}

// A DriverOrigin is a source of drivers.
type DriverOrigin struct {
	Origin  string   `json:"origin"`
	Digest  string   `json:"digest,omitempty"`
	Drivers []string `json:"drivers"`
	// CheckedAt is when the registry last confirmed it.
	CheckedAt *time.Time `json:"checkedAt,omitempty"`
	// Problem is why the current content is not used; empty if there is no problem.
	Problem string `json:"problem,omitempty"`
	// ProblemCode is the kind of problem: NOT_PULLED, UNREACHABLE, DENIED, NOT_FOUND, ALTERED or BROKEN; empty if there is none.
	ProblemCode string `json:"problemCode,omitempty"`
}

const driverFields = `ref digest origin artifactDigest supportedPipelineSteps`

// DriverList lists the installed drivers and their origins.
type DriverList struct {
	Drivers []Driver       `json:"drivers"`
	Origins []DriverOrigin `json:"origins"`
}

// Drivers lists the drivers of the installation, without their schemas.
func (c *Client) Drivers(ctx context.Context) (DriverList, error) {
	var data struct {
		Drivers       []Driver
		DriverOrigins []DriverOrigin
	}
	err := c.do(ctx, `query { drivers { `+driverFields+` } driverOrigins { origin digest drivers checkedAt problem problemCode } }`, nil,
		&data)
	return DriverList{data.Drivers, data.DriverOrigins}, err
}

// DriverSchemas lists them with their schemas.
func (c *Client) DriverSchemas(ctx context.Context) ([]Driver, error) {
	var data struct{ Drivers []Driver }
	err := c.do(ctx, `query { drivers { `+driverFields+` environmentSchema applicationEnvironmentSchema } }`, nil, &data)
	return data.Drivers, err
}
