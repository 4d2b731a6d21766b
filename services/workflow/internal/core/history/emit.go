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
	// Answers is the channel whose call ID this is the answer to; empty for an event. An answer stays in this service.
	Answers string `json:",omitempty"`
	// Engine is that the engine reports it, and no program: none of this service's own programs receives it.
	Engine bool `json:",omitempty"`
}

// Answer is the answer to a call as it is stored; false for an event.
func (e Emit) Answer() (Event, bool) {
	return Event{
		Organization: e.Organization, Source: AnswerSource(e.Answers), ID: e.ID, Type: TypeMessage, Data: e.Data, Time: e.Time,
	}, e.Answers != ""
}
