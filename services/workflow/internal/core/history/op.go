package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// Want is one kind of event that satisfies an operation.
type Want struct {
	Type   string
	Filter Filter
}

// Wants are the events of which the first ends the operation; none unless it waits.
func (o Op) Wants() []Want {
	var wants []Want
	for _, t := range o.Types {
		filter := o.Filter
		if more := o.Filters[t]; len(more) > 0 {
			filter = maps.Clone(more)
			maps.Copy(filter, o.Filter)
		}
		wants = append(wants, Want{t, filter})
	}
	for _, token := range o.Channels {
		wants = append(wants, Want{TypeMessage, channelFilter(token)})
	}
	return wants
}

// NoTime is the Timeout of an operation that succeeds at once or not at all; a Timeout of 0 means that none was given.
const NoTime = time.Nanosecond

// Activity is the operation's id: ActivityID, and for a poll that of one round, "<execution>/<branch>.<op>.<round>".
func (o Op) Activity(executionRef string) string {
	if o.Round > 0 {
		return fmt.Sprintf("%s.%d", ActivityID(executionRef, o.Ref), o.Round)
	}
	return ActivityID(executionRef, o.Ref)
}

// Op is an operation that a program has reached and that blocks its branch.
type Op struct {
	Ref  OpRef
	Kind Kind
	Name string
	Hash uint64
	// Position is where in the program: "main.star:12:5". It is for messages; replay does not compare it.
	Position string
	// Args are the canonical JSON arguments of a run: an object.
	Args json.RawMessage
	// Types and Filter are what a wait matches. Filters are what events of a type must have besides.
	Types   []string
	Filter  Filter
	Filters map[string]Filter
	// Channels are the tokens that a receive listens to.
	Channels []string
	// Timeout bounds the operation: how long a sleep lasts, after which a wait answers None, after which a run fails
	// with code "timeout". 0 for wait and run means the configured default.
	Timeout time.Duration
	// NoRetry hands a retryable error of a Function to the program at once; else Retry says how it is tried again, nil for
	// the engine's own way.
	NoRetry bool
	Retry   *RetryPolicy
	// Interval is the pause between two rounds of a poll. Round is the one that is meant; a program leaves it 0.
	Interval time.Duration
	Round    int
	// EndOf is the child of whose end a wait is, which may have ended before the events that are kept.
	EndOf string
}

// Completion is what unblocks an operation.
type Completion struct {
	// Event is the row of a wait's event, else 0. Of Value and Error at most one is set.
	Op    OpRef
	Value json.RawMessage
	Error *FunctionError
	Event int64
	// Round is the round of a poll that is answered.
	Round int
	// Tries are the attempts that failed before the answer.
	Tries *Tries
}
