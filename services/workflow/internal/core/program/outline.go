package program

import (
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Outline is what can be found out about a program without running it. What a program computes (a function's name put together
// from parts) is not in it; Dynamic says where that happens.
type Outline struct {
	// Inputs are the names that the program takes as inputs: globals that nothing defines, and the parameters of main
	// that have no default. Sorted.
	Inputs []string
	// Functions are those that run and poll name, Waits the types of wait_for_event, Emits the types of run("emit", …).
	// Each is listed once, with its first use, sorted by name.
	Functions, Waits, Emits []Use
	// Handlers are the calls of on_event at the top level of the main file, in its order. A program that has some is a
	// flow: an event that matches one starts a run (D4).
	Handlers []Handler
	// Dynamic are the calls of run, poll, wait_for_event and emit whose name or type is not a literal, by position, and where one of
	// these builtins is handed on as a value, beside spawn(run, …) and a name that is given it once (f = run).
	Dynamic []string
}

// Use is a name and where the program uses it first: "main.star:12:5".
type Use struct {
	Name, Position string
}

// Handler is one on_event(type=, filter=, handler=).
type Handler struct {
	// Types are the event types, at least one.
	Types []string
	// Filter is what the event's data must have, as in a wait; empty for every event of the types.
	Filter history.Filter
	// Function is the top-level function of the main file that takes the event.
	Function string
	// Position is where on_event is called.
	Position string
}

// Matches reports whether an event is one that starts the handler. The data is compared as by a wait with the same
// filter (D19).
func (h Handler) Matches(e history.Event) bool {
	return slices.Contains(h.Types, e.Type) && h.Filter.Matches(e.Data)
}

// Check refuses a handler whose runs would start each other for ever: each one ends with an event.
func (h Handler) Check() error {
	for _, t := range []string{history.TypeCompleted, history.TypeFailed, history.TypeCancelled} {
		if _, narrowed := h.Filter["workflow_id"]; slices.Contains(h.Types, t) && !narrowed {
			return fault.InvalidFields(fault.Field{
				Name: "starlark",
				Problem: fmt.Sprintf("%s: on_event of %s without workflow_id in its filter, expected one: the flow's own runs end with that event",
					h.Position, t),
			})
		}
	}
	if slices.Contains(h.Types, history.TypeMessage) {
		return fault.InvalidFields(fault.Field{
			Name: "starlark",
			Problem: fmt.Sprintf("%s: on_event of %s, expected another type: messages are for the run that made their channel", h.Position,
				history.TypeMessage),
		})
	}
	return nil
}

// HandlerInput is the input under which a run of a flow learns what it was started for. A program can have no input of
// that name, since it is the one of a builtin.
const HandlerInput = "on_event"

// HandlerCall is the value of HandlerInput: instead of main, the program's function Handler is called with Event, which
// is what Event.Value answers.
type HandlerCall struct {
	Handler string `json:"handler"`
	Event   any    `json:"event"`
}
