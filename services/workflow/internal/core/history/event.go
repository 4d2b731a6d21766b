package history

import (
	"encoding/json"
	"time"
)

// Event is something that happened, as waits see it.
type Event struct {
	// Row numbers the stored event; 0 before it is stored.
	Row          int64
	Organization int64
	// Source and ID identify the event: the same pair again changes nothing.
	Source, ID string
	Type       string
	// Data is a JSON object, or nil.
	Data json.RawMessage
	// Time is when it happened, as its source says; matching never looks at it.
	Time time.Time
}

// Value is the event as programs see it.
func (e Event) Value() json.RawMessage {
	data := e.Data
	if data == nil {
		data = json.RawMessage("null")
	}
	b, err := json.Marshal(struct {
		ID     string          `json:"id"`
		Type   string          `json:"type"`
		Source string          `json:"source"`
		Time   string          `json:"time"`
		Data   json.RawMessage `json:"data"`
	}{e.ID, e.Type, e.Source, e.Time.UTC().Format(time.RFC3339Nano), data})
	if err != nil {
		return json.RawMessage("null") // data was JSON when it was stored
	}
	return b
}
