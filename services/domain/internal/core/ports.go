package core

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Sources understands the artifact sources of this installation, whose configuration is opaque to everybody else (R7).
type Sources interface {
	// Kinds is every kind of source, by reference.
	Kinds() []SourceKind
	// Key is what a published artifact is looked up by. The findings are JSON pointers into the source: /sourceRef,
	// /sourceConfig/image.
	Key(ref string, config json.RawMessage) (string, []fault.Field)
	// KeyOf is the key of all sources that point at an artifact.
	KeyOf(image string) (string, error)
	// Placement is what a source makes of an artifact of its key, going by the tag. Configurations have passed Key.
	Placement(ref string, config json.RawMessage, tag string) Placement
}

// Placement is what a source makes of artifacts under a tag.
type Placement struct {
	// Taken is whether they belong to the source.
	Taken bool
	// Rank is how high they are in the order of the selection: a text whose bytes compare as it orders. Of equal rank, the one
	// that was published last is the newest.
	Rank string
	// Earliest is whether of several publications of one artifact the earliest counts; otherwise the last does.
	Earliest bool
}

// SourceKind is one kind of artifact source.
type SourceKind struct {
	// Ref is the source_ref: name@major.
	Ref string
	// Schema is the JSON Schema of the configuration, annotated for a form to reflect on (R23).
	Schema json.RawMessage
}

// Drivers are the deploy drivers of the installation. They may change while it runs: a tag of a registry moves.
type Drivers interface {
	// Now is what there is now. A use case takes it once, so that what it has checked is what it pins.
	Now() DriverSet
	// Origins are where drivers come from, and what is wrong there.
	Origins() []DriverOrigin
	// Program is a program of a driver whose bytes were kept.
	Program(content []byte, program string) (Program, error)
}

// DriverSet is drivers that do not change any more.
type DriverSet interface {
	// All is every driver, by reference.
	All() []Driver
	// Lookup finds one; the error is NotFound and names those there are.
	Lookup(ref string) (Driver, error)
	// ValidateEnvironment and ValidateApplicationEnvironment check a configuration against a driver's schema. The error
	// is Invalid, its fields JSON pointers into the configuration.
	ValidateEnvironment(ref string, config json.RawMessage) error
	ValidateApplicationEnvironment(ref string, config json.RawMessage) error
	// CheckAllowed checks an application's configuration, which has passed its schema, against what that of the environment allows.
	// The error is as theirs.
	CheckAllowed(ref string, environment, config json.RawMessage) error
	// Agents are where a configuration of an environment, which has passed the schema, names agents.
	Agents(ref string, config json.RawMessage) ([]AgentReference, error)
	// Export is a driver's bytes, to be kept.
	Export(ref string) ([]byte, error)
}

// Program is a driver's program with the modules it may load.
type Program struct {
	Source  []byte
	Modules map[string][]byte
}

// Flows reads flow definitions.
type Flows interface {
	// Read reads one. The error is Invalid, its fields JSON pointers into the definition, for one that is none.
	Read(definition json.RawMessage) (Flow, error)
}

// KnownToFlow is what a flow definition is checked against.
type KnownToFlow struct {
	Steps        []string
	Environments []string
	// ValidateConfig checks the configuration of the deploy step to an environment.
	ValidateConfig func(environment string, config json.RawMessage) error
	// CheckRules finds what keeps everybody from answering an approval, as JSON pointers into it; nil accepts all.
	CheckRules func(Approval) []fault.Field
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

// Engine runs workflows.
type Engine interface {
	// Start submits a workflow; the same again answers the same handle (D5).
	Start(ctx context.Context, w Workflow) (ref string, err error)
	// Cancel asks a workflow to stop. NotFound when there is none.
	Cancel(ctx context.Context, organization int64, workflowID, reason string) error
	// DeclareAgents says whose agents are; runs of other organizations cannot call them.
	DeclareAgents(ctx context.Context, agents []AgentOwner) error
}

// Workflow is what Engine.Start submits.
type Workflow struct {
	Organization int64
	ID           string
	Program      Program
	Inputs       json.RawMessage
	Labels       map[string]string
	// Agents are those of the organization: it may be the first that the engine hears of one.
	Agents []int64
	// Trace is where what it does is to be recorded, in W3C form; empty for that of the call.
	Trace string
}

// Inbound is an event that has come in, as far as the core needs to know it.
type Inbound struct {
	Organization int64
	// ID and Type go to the journal, as what triggered a change.
	ID, Type string
	// Correlation is the workflow that emitted it, if it says so.
	Correlation string
	// Envelope is the event itself, which only the adapters look at.
	Envelope any
}

// GateResolved is the fact that somebody has answered a gate.
type GateResolved struct {
	Actor
	RolloutID int64
	GateID    string
	Approved  bool
	Reason    string
	At        time.Time
}

// Passage is the permission to go past a gate.
type Passage struct {
	Organization, RolloutID int64
	GateID                  string
	At                      time.Time
}
