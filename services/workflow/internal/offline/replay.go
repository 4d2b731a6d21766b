package offline

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// Options say how a recording is replayed.
type Options struct {
	// Program are the files to replay it under; nil for those that were recorded.
	Program map[string]string
	// Until is the last entry that is replayed; 0 for all.
	Until int64
	// Breakpoints are lines by the name of the file.
	Breakpoints map[string][]int
}

// Report is what a replay led to. As JSON it is the output of a command: members are added, and never renamed.
type Report struct {
	Workflow string `json:"workflow_id,omitempty"`
	// Fits is set if the program asks for what the history holds; otherwise Problem says where it does not.
	Fits    bool     `json:"fits"`
	Problem *Problem `json:"problem,omitempty"`
	// Replayed is how many entries were.
	Replayed int `json:"replayed"`
	// Outcome is completed, failed, continued or waiting, Error why it has failed.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	// Waits are what branches wait for at the end.
	Waits []Waiting `json:"waits,omitempty"`
	// Steps are the entries with the places in the program that have recorded them, and Stops what was seen at breakpoints, in the order of
	// the replay.
	Steps []Step `json:"steps"`
	Stops []Stop `json:"stops,omitempty"`
}

// Problem is where a history and a program differ.
type Problem struct {
	// Sequence is the entry that does not fit.
	Sequence int64  `json:"sequence"`
	Position string `json:"position,omitempty"`
	Call     string `json:"call"`
	Differs  string `json:"differs"`
}

// Waiting is a branch that waits.
type Waiting struct {
	Branch   int    `json:"branch"`
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`
	Position string `json:"position"`
}

// Step is an entry.
type Step struct {
	Sequence int64           `json:"sequence"`
	Branch   int             `json:"branch"`
	Kind     string          `json:"kind"`
	Name     string          `json:"name,omitempty"`
	Position string          `json:"position,omitempty"`
	Value    json.RawMessage `json:"value,omitempty"`
	Error    string          `json:"error,omitempty"`
	At       time.Time       `json:"recorded_at"`
}

// Stop is a branch at a breakpoint.
type Stop struct {
	// Sequence is the entry after which it was reached; 0 before the first.
	Sequence  int64      `json:"sequence"`
	Position  string     `json:"position"`
	Function  string     `json:"function"`
	Branch    int        `json:"branch"`
	Variables []Variable `json:"variables"`
}

// Variable is a name and its value.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// maxStops is how many stops a report has: a breakpoint may be in a loop.
const maxStops = 1000

// Replay runs a program over a recording. The error is about what was given; that the history does not fit is part of the report.
func Replay(r Recording, o Options) (Report, error) {
	files := r.Program
	if o.Program != nil {
		files = o.Program
	}
	p := ProgramOf(files)
	if err := script.CheckBreakpoints(p, o.Breakpoints); err != nil {
		return Report{}, err
	}
	entries := r.entries(o.Until)
	report := Report{Workflow: r.Workflow, Replayed: len(entries), Steps: []Step{}}
	places := map[history.OpRef]string{}
	scripts := script.New(script.Limits{}).Debug(script.Debugger{
		Breakpoints: o.Breakpoints,
		Asked:       func(op history.OpRef, position string) { places[op] = position },
		Stopped: func(s script.Stop) {
			if len(report.Stops) < maxStops {
				report.Stops = append(report.Stops, stopOf(s, entries))
			}
		},
	})
	machine, err := scripts.Open(p, r.Inputs, r.environment())
	if err != nil {
		return Report{}, err
	}
	defer machine.Close()
	failure := machine.Replay(entries)
	differs, mismatch := errors.AsType[*program.Mismatch](failure)
	if report.Fits = !mismatch; mismatch {
		report.Problem = &Problem{Sequence: differs.Seq, Position: differs.Position, Call: differs.Call.String(), Differs: differs.Differs}
	} else if problem := r.unfinished(machine, o.Until); problem != nil {
		report.Fits, report.Problem = false, problem
	}
	for _, e := range entries {
		if mismatch && e.Seq >= differs.Seq {
			report.Replayed = len(report.Steps)
			break
		}
		report.Steps = append(report.Steps, stepOf(e, places[e.Op]))
	}
	report.end(machine)
	return report, nil
}

// entries are those that a program is given: not the end of the run, nor what comes after until.
func (r Recording) entries(until int64) []history.Entry {
	entries := r.History
	for len(entries) > 0 && entries[len(entries)-1].Op.Branch < 0 {
		entries = entries[:len(entries)-1]
	}
	for i, e := range entries {
		if until > 0 && e.Seq > until {
			return entries[:i]
		}
	}
	return entries
}

// environment answers what a program asks for behind the end of the history, which nobody sees.
func (r Recording) environment() program.Environment {
	env := program.Environment{
		Ref: r.Ref, Workflow: r.Workflow, Continuation: r.Continuation, Begun: len(r.History) > 0,
		Now: func() time.Time { return time.Unix(0, 0).UTC() }, UUID: func() string { return "00000000-0000-0000-0000-000000000000" },
		Random: func() float64 { return 0 }, Token: func() string { return history.Pseudonym(0) },
		Emit: func(string, string, json.RawMessage) *history.FunctionError { return nil },
	}
	if r.Concealed {
		env.Opaque = history.HasPseudonym
	}
	return env
}

// unfinished is what a program does behind the end of a whole history which the recorded one did not: every commit leaves all branches
// waiting.
func (r Recording) unfinished(machine program.Machine, until int64) *Problem {
	entries, _ := machine.Take()
	if until > 0 || len(entries) == 0 || len(r.History) == 0 {
		return nil
	}
	first, last := entries[0], r.History[len(r.History)-1]
	return &Problem{
		Sequence: last.Seq + 1, Call: first.Op.String(),
		Differs: "the history ends here, and the program continues with " + title(first.Kind, first.Name),
	}
}

func (report *Report) end(machine program.Machine) {
	ended, failure := machine.Outcome()
	var stopped *program.Stopped
	switch {
	case !report.Fits:
		report.Outcome = "differs"
	case errors.As(failure, &stopped) && stopped.Cancelled:
		report.Outcome, report.Error = "cancelled", stopped.Reason
	case ended && failure != nil:
		report.Outcome, report.Error = "failed", failure.Error()
	case ended:
		report.Outcome = "completed"
		if n := len(report.Steps); n > 0 && report.Steps[n-1].Kind == string(history.KindContinue) {
			report.Outcome = "continued"
		}
	default:
		report.Outcome = "waiting"
	}
	for _, op := range machine.Pending() {
		report.Waits = append(report.Waits, Waiting{Branch: op.Ref.Branch, Kind: string(op.Kind), Name: op.Name, Position: op.Position})
	}
}

func stopOf(s script.Stop, entries []history.Entry) Stop {
	stop := Stop{Position: s.Position, Function: s.Function, Branch: s.Branch, Variables: []Variable{}}
	if n := min(s.Recorded, len(entries)); n > 0 {
		stop.Sequence = entries[n-1].Seq
	}
	for _, v := range s.Variables {
		stop.Variables = append(stop.Variables, Variable(v))
	}
	return stop
}

func stepOf(e history.Entry, position string) Step {
	s := Step{Sequence: e.Seq, Branch: e.Op.Branch, Kind: string(e.Kind), Name: e.Name, Position: position, Value: e.Value, At: e.At}
	if e.Error != nil {
		s.Error = e.Error.Error()
	}
	return s
}

// ParseBreakpoint reads FILE:LINE, or LINE of the main file.
func ParseBreakpoint(text string) (file string, line int, err error) {
	file = MainFile
	number := text
	if at := strings.LastIndex(text, ":"); at >= 0 {
		file, number = text[:at], text[at+1:]
	}
	if line, err = strconv.Atoi(number); err != nil || line < 1 || file == "" {
		return "", 0, fault.New(fault.Invalid, "breakpoint: found %q, expected FILE:LINE, such as main.star:12", text)
	}
	return file, line, nil
}
