package activity

import (
	"encoding/json"
	"time"
)

// Room is place for one call at a worker that is connected to this process. The call is stored as one that Holder has until Until, and is
// given to the worker when that is durable.
type Room struct {
	Holder string
	Until  time.Time
	// Give hands the stored call over. Leave gives the place up where it was not stored; where that is not known, it is given the id, and
	// offers the call to all. What is called after the first of them does nothing.
	Give  func(Offer)
	Leave func(id string)
}

// Offer is the first attempt at a call of a worker.
type Offer struct {
	ID        string
	Execution int64
	Workflow  string
	Args      json.RawMessage
	Deadline  time.Time
	Trace     string
}
