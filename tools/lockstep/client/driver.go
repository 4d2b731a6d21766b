package client

import (
	"context"
	"time"
)

// A Driver is a deploy driver that the installation carries.
type Driver struct {
	// Ref is name@major.
	Ref string `json:"ref"`
	// Digest is that of its bundle: what a rollout pins.
	Digest string `json:"digest"`
	// Origin is built-in, folder or the reference of an OCI artifact, and ArtifactDigest that artifact's digest.
	Origin                 string   `json:"origin"`
	ArtifactDigest         string   `json:"artifactDigest,omitempty"`
	SupportedPipelineSteps []string `json:"supportedPipelineSteps"`
	EnvironmentSchema      any      `json:"environmentSchema,omitempty"`
	// ApplicationEnvironmentSchema is the schema of the driver's part of a deploy step.
	ApplicationEnvironmentSchema any `json:"applicationEnvironmentSchema,omitempty"`
}

// A DriverOrigin is where drivers come from.
type DriverOrigin struct {
	Origin  string   `json:"origin"`
	Digest  string   `json:"digest,omitempty"`
	Drivers []string `json:"drivers"`
	// CheckedAt is when the registry last said so.
	CheckedAt *time.Time `json:"checkedAt,omitempty"`
	// Problem is why what is there now is not in force; empty when all is well.
	Problem string `json:"problem,omitempty"`
	// ProblemCode is what kind of problem that is: NOT_PULLED, UNREACHABLE, DENIED, NOT_FOUND, ALTERED or BROKEN; empty when all is well.
	ProblemCode string `json:"problemCode,omitempty"`
}

const driverFields = `ref digest origin artifactDigest supportedPipelineSteps`

// DriverList is what the installation deploys with, and where that comes from.
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
	err := c.do(ctx, `query { drivers { `+driverFields+` } driverOrigins { origin digest drivers checkedAt problem problemCode } }`, nil, &data)
	return DriverList{data.Drivers, data.DriverOrigins}, err
}

// DriverSchemas lists them with their schemas.
func (c *Client) DriverSchemas(ctx context.Context) ([]Driver, error) {
	var data struct{ Drivers []Driver }
	err := c.do(ctx, `query { drivers { `+driverFields+` environmentSchema applicationEnvironmentSchema } }`, nil, &data)
	return data.Drivers, err
}
