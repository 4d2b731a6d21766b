package core

import (
	"encoding/json"
	"fmt"
	"strings"
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
	// Removed reports whether it was removed; only signals refer to it still.
	Removed bool
}

// ManualTriggerName is the name of the manual trigger where none was saved.
const ManualTriggerName = "manual"

// GitTriggerName is the name of the trigger that an application gets with its first source of kind git (R4-06).
const GitTriggerName = "git"

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
	// TriggerDone means that a chain has run to its end, or that there was nothing to roll out for one.
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
	// LacksFacts reports whether the set was declined because of labels or facts of an image.
	LacksFacts bool
	// Edit is the edit of files that is made before the decision; nil for none.
	Edit *TriggerEdit
	// Sender is who has sent the event; zero for what nobody sent, and for events of before it was kept.
	Sender Author
}

// EditState is how far an edit has come.
type EditState string

// The states of an edit; all but the first are final.
const (
	EditPending   EditState = ""
	EditCommitted EditState = "committed"
	EditProposed  EditState = "proposed"
	EditUnchanged EditState = "unchanged"
	EditFailed    EditState = "failed"
)

// TriggerEdit is an edit of files that an event makes (R4-28). It is kept in this form.
type TriggerEdit struct {
	// Inputs are those of the program that makes it.
	Inputs json.RawMessage `json:"inputs"`
	State  EditState       `json:"state,omitempty"`
	// Attempt is how many runs have ended without an answer that counts, and Begun how many may have begun. Late is how many of the former
	// have only begun too late to commit, and Started the last one whose begin the engine has answered.
	Attempt int `json:"attempt,omitempty"`
	Begun   int `json:"begun,omitempty"`
	Late    int `json:"late,omitempty"`
	Started int `json:"started,omitempty"`
	// FirstBegun is when the first of them began, which has a column of its own; nil for none, and for those of before it was kept.
	FirstBegun *time.Time `json:"-"`
	// Limited is whether it has waited for the limit.
	Limited bool `json:"limited,omitempty"`
	// NotAfter is until when the present run may commit without another look at what would refuse its rollout; nil for any time.
	NotAfter *time.Time `json:"not_after,omitempty"`
	// Refused is what refuses the rollout by now, or why the edit is given up: the present run only looks for the commit of an earlier one.
	Refused string `json:"refused,omitempty"`
	// Last is why the edit is given up once the commit of an earlier run was searched for; empty if it is not.
	Last string `json:"last,omitempty"`
	// Mentions are the full hashes of commits that the event names, if it names no other one of the same length.
	Mentions []string `json:"mentions,omitempty"`
	// Commit is what was committed, or the head of what is proposed, and Link where that is; Why is why the last run failed.
	Commit string `json:"commit,omitempty"`
	Link   string `json:"link,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Repository is the URL of the repository whose files are edited.
func (e TriggerEdit) Repository() string {
	var in struct {
		Repository string `json:"repo_url"`
	}
	if json.Unmarshal(e.Inputs, &in) != nil {
		return ""
	}
	return in.Repository
}

// CommitLink is where most forges show the commit; empty without one.
func (e TriggerEdit) CommitLink() string {
	repository := strings.TrimSuffix(strings.TrimSuffix(e.Repository(), "/"), ".git")
	if e.Commit == "" || !strings.HasPrefix(repository, "https://") && !strings.HasPrefix(repository, "http://") {
		return ""
	}
	return repository + "/commit/" + e.Commit
}

// PromotionHold keeps automation from beginning rollouts of an application in an environment in which something was rolled back (D58).
type PromotionHold struct {
	ID, ApplicationID, EnvironmentID int64
	// RolloutID is the rollback.
	RolloutID int64
	Since     time.Time
}

// ChainState is the state of a chain.
type ChainState string

// The states of a chain; all but the first are final.
const (
	ChainRunning   ChainState = "running"
	ChainCompleted ChainState = "completed"
	// ChainStopped means that something failed, so that later blocks did not begin.
	ChainStopped   ChainState = "stopped"
	ChainCancelled ChainState = "cancelled"
)

// Chain is what follows one rollout: rollouts of other applications, block after block (D58).
type Chain struct {
	ID int64
	// TriggerID is the trigger whose blocks it has, ApplicationID its application, and RolloutID the rollout that the chain follows.
	TriggerID, ApplicationID, RolloutID int64
	// ParentID is the chain that began that rollout; 0 for none.
	ParentID int64
	State    ChainState
	// Block is the number of the block that has begun last, from 1; 0 for none. Blocks is how many there are.
	Block, Blocks int
	// Reason is why it ended as it did; empty while it runs.
	Reason  string
	BeganAt time.Time
	EndedAt *time.Time
}

// Name is what people call the chain.
func (c Chain) Name() string { return fmt.Sprintf("chain_%d", c.ID) }

// ChainNodeState is the state of an application in a chain.
type ChainNodeState string

// The states of an application in a chain. Begun is only stored: the decision of the application's trigger says more.
const (
	// NodeWaiting means that its block has not begun.
	NodeWaiting ChainNodeState = "waiting"
	NodeBegun   ChainNodeState = "begun"
	// NodePending means that its trigger has not begun a rollout yet.
	NodePending ChainNodeState = "pending"
	// NodeQueued means that its rollout waits in the queue of the application.
	NodeQueued    ChainNodeState = "queued"
	NodeRunning   ChainNodeState = "running"
	NodeCompleted ChainNodeState = "completed"
	// NodeUnchanged means that there was nothing to roll out: its newest version set is live.
	NodeUnchanged ChainNodeState = "unchanged"
	NodeFailed    ChainNodeState = "failed"
	// NodeSkipped means that it was selected, and does not follow.
	NodeSkipped ChainNodeState = "skipped"
	// NodeStopped means that the chain ended before its block began.
	NodeStopped   ChainNodeState = "stopped"
	NodeCancelled ChainNodeState = "cancelled"
)

// ChainNode is an application in a chain.
type ChainNode struct {
	ID, ChainID int64
	// Block is the number of its block, from 1.
	Block         int
	ApplicationID int64
	// TriggerID is the trigger of the application that follows; 0 for one that is skipped.
	TriggerID int64
	// State and Reason are as they are stored.
	State  ChainNodeState
	Reason string
	// RolloutID is the rollout that began; 0 for none.
	RolloutID int64
	// Outcome and Decision are what the trigger decided; empty before it has.
	Outcome  TriggerOutcome
	Decision string
	// RolloutState is the state of the rollout, if there is one.
	RolloutState RolloutState
}

// Standing is the state of the node with a sentence that explains it; the sentence is empty for states that need none.
func (n ChainNode) Standing() (ChainNodeState, string) {
	if n.State != NodeBegun {
		return n.State, n.Reason
	}
	if n.RolloutID != 0 {
		switch n.RolloutState {
		case RolloutCompleted:
			return NodeCompleted, n.Decision
		case RolloutFailed, RolloutCancelled:
			return NodeFailed, fmt.Sprintf("rollout_%d %s", n.RolloutID, map[RolloutState]string{
				RolloutFailed: "failed", RolloutCancelled: "was cancelled",
			}[n.RolloutState])
		case RolloutPending, RolloutInProgress, RolloutPaused:
			return NodeRunning, fmt.Sprintf("rollout_%d is %s", n.RolloutID, n.RolloutState.Words())
		}
	}
	switch n.Outcome {
	case TriggerDeclined:
		return NodeFailed, n.Decision
	case TriggerDone:
		return NodeUnchanged, n.Decision
	case TriggerQueued:
		return NodeQueued, n.Decision
	case TriggerPending, TriggerWaits, TriggerBegan:
	}
	return NodePending, n.Decision
}

// Ended reports whether the state is final.
func (s ChainNodeState) Ended() bool {
	switch s {
	case NodeWaiting, NodeBegun, NodePending, NodeQueued, NodeRunning:
		return false
	case NodeCompleted, NodeUnchanged, NodeFailed, NodeSkipped, NodeStopped, NodeCancelled:
	}
	return true
}

// ReachedTrigger is one that an event reaches.
type ReachedTrigger struct {
	Trigger
	// Pending is how much it has to decide about.
	Pending int
	// Cause identifies the event to it, and Sender is who has sent it: the same of all that is sent at once.
	Cause  string
	Sender Author
	// Edit is what the event has it edit; nil for nothing.
	Edit *TriggerEdit
}
