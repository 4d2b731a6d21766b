package history

import (
	"encoding/json"
	"time"
)

// The types of the events that the engine sends about executions.
const (
	TypeCompleted = "com.gitlab.cd.workflow.completed"
	TypeFailed    = "com.gitlab.cd.workflow.failed"
	TypeCancelled = "com.gitlab.cd.workflow.cancelled"
)

// Emit is a domain event that a program sends, or that the engine sends about an execution.
type Emit struct {
	// ID is deterministic: the activity's id, or the execution's handle with the final state.
	ID           string
	Organization int64
	// Workflow becomes the event's correlation.
	Workflow string
	Type     string
	Data     json.RawMessage
	Time     time.Time
}
