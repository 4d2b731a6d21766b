package rollout

import (
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// GateResolved is the fact that a gate was answered.
type GateResolved struct {
	core.Actor
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
	Opening
	At time.Time
}

// End is that a rollout is over: its run may change nothing any more.
type End struct {
	Organization, RolloutID int64
	At                      time.Time
}

// Abort and retry (D18, E73). An abort takes what is under way back to the version that was stable before, and leaves the
// rollout there, paused; a retry starts it again from its first gate. Both are requests to the workflow: the journal has the request,
// and the pause once it has taken effect (D17).

// Command is something that a rollout's workflow is asked to do.
type Command struct {
	Organization, RolloutID int64
	// Verb is abort or retry.
	Verb   core.Verb
	Reason string
	At     time.Time
}
