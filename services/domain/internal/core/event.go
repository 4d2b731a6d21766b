package core

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
