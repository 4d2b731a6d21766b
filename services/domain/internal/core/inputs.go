package core

import (
	"encoding/json"
	"strings"
)

// The inputs of a driver's programs. Identifiers are numbers; the driver's own blobs go through as they are.

type named struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

type environmentInput struct {
	ID     int64           `json:"id"`
	Name   string          `json:"name"`
	Tier   Tier            `json:"tier"`
	Config json.RawMessage `json:"config"`
}

func describeEnvironment(e BoundEnvironment) environmentInput {
	return environmentInput{ID: e.ID, Name: e.Name, Tier: e.Tier, Config: e.Binding.DriverConfig}
}

type setupInput struct {
	ApplicationEnvironment struct {
		ID          int64           `json:"id"`
		Config      json.RawMessage `json:"config"`
		Application named           `json:"application"`
		Services    []named         `json:"services"`
	} `json:"application_environment"`
	Environment environmentInput `json:"environment"`
}

type deployInput struct {
	Rollout    rolloutInput    `json:"rollout"`
	VersionSet versionSetInput `json:"version_set"`
	Pipeline   json.RawMessage `json:"pipeline"`
}

type rolloutInput struct {
	ID             int64                     `json:"id"`
	OrganizationID int64                     `json:"organization_id"`
	Application    named                     `json:"application"`
	Environments   []rolloutEnvironmentInput `json:"environments"`
	// Retry is that an earlier rollout of the same versions may have left its deployments aborted.
	Retry bool `json:"retry,omitempty"`
	// PromoteFull is that no gate by weight holds it up (D14).
	PromoteFull bool `json:"promote_full,omitempty"`
	// OnFailure is stop or abort; rollback is stop for the program, and the domain's business afterwards.
	OnFailure FailurePolicy `json:"on_failure,omitempty"`
}

type rolloutEnvironmentInput struct {
	environmentInput
	Position               int                         `json:"position"`
	ApplicationEnvironment applicationEnvironmentInput `json:"application_environment"`
	Gates                  []FlowGate                  `json:"gates"`
	Approval               *Approval                   `json:"approval"`
	Deployments            []deploymentInput           `json:"deployments"`
}

type applicationEnvironmentInput struct {
	ID         int64           `json:"id"`
	Config     json.RawMessage `json:"config"`
	Discovered json.RawMessage `json:"discovered"`
}

type deploymentInput struct {
	ID       int64          `json:"id"`
	Service  named          `json:"service"`
	Versions []versionInput `json:"versions"`
}

type versionSetInput struct {
	ID       int64          `json:"id"`
	Name     string         `json:"name"`
	Versions []versionInput `json:"versions"`
}

type versionInput struct {
	ArtifactSourceID int64  `json:"artifact_source_id"`
	Name             string `json:"name"`
	Digest           string `json:"digest"`
	Reference        string `json:"reference"`
	Image            string `json:"image"`
}

func describeVersion(v Version) versionInput {
	image, _, _ := strings.Cut(v.Reference, "@")
	return versionInput{ArtifactSourceID: v.ArtifactSourceID, Name: v.Name, Digest: v.Digest, Reference: v.Reference, Image: image}
}
