package core

import (
	"encoding/json"
	"time"
)

// TriggerKind is what a trigger reacts to (D58).
type TriggerKind string

// The kinds.
const (
	// TriggerVersion begins a rollout of a new version set.
	TriggerVersion TriggerKind = "version"
	// TriggerManual is the requests of people and machines: every application has it, and it may be switched off.
	TriggerManual TriggerKind = "manual"
	// TriggerDrift deploys again what differs from what was deployed.
	TriggerDrift TriggerKind = "drift"
	// TriggerSchedule begins a rollout of the newest version set at times.
	TriggerSchedule TriggerKind = "schedule"
	// TriggerEvent begins a rollout of the newest version set when an event arrives.
	TriggerEvent TriggerKind = "event"
	// TriggerGit begins a rollout of a version set that has a new commit.
	TriggerGit TriggerKind = "git"
	// TriggerChain has rollouts of other applications follow one of its own, or its own follow theirs.
	TriggerChain TriggerKind = "chain"
)

// Trigger begins rollouts of an application without a person.
type Trigger struct {
	// ID is 0 for the manual trigger of an application that has not saved one.
	ID, ApplicationID int64
	// Name is unique in the application.
	Name string
	Kind TriggerKind
	// Config is as the kind has it.
	Config  json.RawMessage
	Enabled bool
	// Author is who saved it last, at ChangedAt; zero for a default.
	Author    Author
	ChangedAt time.Time
	// Removed is that it was removed; only signals refer to it still.
	Removed bool
}

// ManualTriggerName is the name of the manual trigger where none was saved.
const ManualTriggerName = "manual"

// DefaultManualTrigger is that of an application that has saved none: on.
func DefaultManualTrigger(application int64) Trigger {
	return Trigger{
		ApplicationID: application, Name: ManualTriggerName, Kind: TriggerManual, Config: json.RawMessage(`{}`), Enabled: true,
	}
}

// TriggerOutcome is what a trigger decided.
type TriggerOutcome string

// The outcomes.
const (
	// TriggerPending is not decided about yet.
	TriggerPending TriggerOutcome = ""
	// TriggerWaits is decided about again later.
	TriggerWaits TriggerOutcome = "waiting"
	// TriggerBegan has begun a rollout.
	TriggerBegan TriggerOutcome = "began"
	// TriggerQueued has a rollout in the application's queue.
	TriggerQueued TriggerOutcome = "queued"
	// TriggerDeclined begins nothing.
	TriggerDeclined TriggerOutcome = "declined"
	// TriggerDone is that a chain has run to its end, or that there was nothing to roll out for one.
	TriggerDone TriggerOutcome = "done"
)

// TriggerSignal is something that a trigger has to decide about, with what it decided.
type TriggerSignal struct {
	ID, TriggerID int64
	// Cause identifies what happened: each is decided about once.
	Cause string
	// At is when it happened, DueAt when it is decided about, DecidedAt when it was looked at last; nil for never.
	At, DueAt time.Time
	DecidedAt *time.Time
	Outcome   TriggerOutcome
	// Reason is the decision in one sentence; empty before the first one.
	Reason string
	// VersionSetID and RolloutID are what the decision is about; 0 for none.
	VersionSetID, RolloutID int64
}

// PromotionHold keeps automation from beginning rollouts of an application in an environment in which something was rolled back (D58).
type PromotionHold struct {
	ID, ApplicationID, EnvironmentID int64
	// RolloutID is the rollback.
	RolloutID int64
	Since     time.Time
}
