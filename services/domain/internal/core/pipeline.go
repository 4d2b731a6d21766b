package core

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// KnownToFlow is what a flow definition is checked against.
type KnownToFlow struct {
	// Stored means that the definition was accepted earlier: names that have become reserved since are accepted.
	Stored       bool
	Steps        []string
	Environments []string
	// ValidateConfig checks the configuration of the deploy step to an environment.
	ValidateConfig func(environment string, config json.RawMessage) error
	// CheckRules finds what keeps everybody from answering an approval, as JSON pointers into it; nil accepts all.
	CheckRules func(Approval) []fault.Field
	// ValidateCheck checks the configuration of a check whose kind is a bundle.
	ValidateCheck func(kind, target string, config json.RawMessage) error
}

// Flow is a pipeline, as far as the domain has to understand it.
type Flow struct {
	// Check checks it, as it was read, against what is known. The error is Invalid, its fields JSON pointers into the definition.
	Check func(known KnownToFlow) error
	// Deploys are the deploy steps, in order.
	Deploys []DeployStep
	// Approvals are the steps that only ask people, in order.
	Approvals []ApprovalStep
	// Steps are all of them, in order.
	Steps []FlowStep
	// Keep is the definition with some of its steps only, true for those that stay. The gates that are left keep their identifiers.
	Keep func(kept []bool) (json.RawMessage, error)
}

// DeployStep brings the application to one environment.
type DeployStep struct {
	// At is where the step is in the definition, a JSON pointer.
	At          string
	Environment string
	Approval    *Approval
	Gates       []FlowGate
	// Active and Proposed are the checks of the environment, merged with those of the whole pipeline.
	CheckSet
	// Config is the driver's; opaque.
	Config json.RawMessage
}

// FlowGate is a weight at which every service stops. It is part of the inputs of the deploy program.
type FlowGate struct {
	Weight       int       `json:"weight"`
	SoakDuration int       `json:"soak_duration"`
	Approval     *Approval `json:"approval"`
}

// Approval asks people to agree. It is part of the inputs of the deploy program, which needs of it the reason and the time;
// who may answer is the domain's.
type Approval struct {
	Reason              string `json:"reason"`
	Quorum              int    `json:"quorum,omitempty"`
	Group               string `json:"group,omitempty"`
	RequesterMayApprove *bool  `json:"requester_may_approve,omitempty"`
	// ExpiresAfter is in seconds; 0 for never.
	ExpiresAfter int    `json:"expires_after,omitempty"`
	OnExpiry     string `json:"on_expiry,omitempty"`
}

// ApprovalStep is a step of a pipeline that only asks.
type ApprovalStep struct {
	GateID string
	// Step is which of the pipeline's steps it is, counted from 0.
	Step int
	// Before is the environment of the next deploy step; empty after the last.
	Before string
	Approval
}

// FlowStep is one step of a pipeline, as far as it matters where it stands.
type FlowStep struct {
	// Environment is that of a deploy step; empty for any other.
	Environment string
	// Asks is that people have to agree.
	Asks bool
}
