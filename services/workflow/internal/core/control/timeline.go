package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// A history has the result of each operation, and when it was recorded. When an operation began, its arguments, and which branch spawned
// which are not stored: they follow from the program. So a timeline is computed by a replay, and a run stores nothing more for it.

// Timeline is what the current generation of a run did, branch by branch.
type Timeline struct {
	View

	// Branches are those that have steps in the timeline, by number, and Steps are in the order in which they were recorded; those that are
	// still open come last.
	Branches []TimelineBranch
	Steps    []TimelineStep
	// Earlier is set if the generation has steps before these.
	Earlier bool
	// Gap is why beginnings and inputs are missing from some entry on; empty if they are not.
	Gap string
}

// TimelineBranch is a branch of the program.
type TimelineBranch struct {
	Number int
	// Parent is the branch that has spawned it, -1 for the first one, which nothing has.
	Parent int
	// Begun is when it reached its first operation in this timeline, Ended when its last one ended; zero while one is open.
	Begun, Ended time.Time
}

// TimelineStep is an operation.
type TimelineStep struct {
	// Seq is the entry that it ended with; 0 for one that is open.
	Seq  int64
	Op   history.OpRef
	Kind history.Kind
	// Name is the Function, the event type, or what else the operation is about, Position the place in the program.
	Name, Position string
	// Begun is when the program reached it, Ended when its result was recorded, Due when an open one ends at the latest.
	Begun, Ended, Due time.Time
	// Input are its arguments and Output its result as JSON, as far as they are shown; each has no token and nothing that looks like a secret.
	Input, Output       string
	InputCut, OutputCut bool
	// Code is the error's, for one that failed; its message is the output then.
	Code string
	// Child is the run that it started.
	Child string
	// Attempt is how often an open call was sent.
	Attempt int
	// Tries are the attempts of a Function that failed before its result, or so far.
	Tries *history.Tries
}

// TimelineQuery is which part of a timeline is asked for.
type TimelineQuery struct {
	Organization int64
	Workflow     string
	// Before is the first entry that is not part of it; 0 for the end, with what is open.
	Before int64
	Limit  int
	// Inputs is set if the caller may see arguments.
	Inputs bool
}

// maxShown is where inputs and outputs are cut, in bytes.
const maxShown = 8 << 10

// Timeline reads a run, and replays it to find what its history does not have.
func (o *Operator) Timeline(ctx context.Context, q TimelineQuery) (Timeline, error) {
	e, err := o.find(ctx, q.Organization, q.Workflow)
	if err != nil {
		return Timeline{}, err
	}
	end, err := o.exports.begin(q.Organization)
	if err != nil {
		return Timeline{}, err
	}
	defer end()
	loaded, err := o.control.LoadAny(ctx, e.ID)
	if err != nil {
		return Timeline{}, fmt.Errorf("read the timeline of %q: %w", q.Workflow, err)
	}
	v, err := o.view(ctx, e)
	if err != nil {
		return Timeline{}, err
	}
	loaded.Secrets = nil
	t := Timeline{View: v}
	asked, gap := watched(program.ScriptsFor(o.scripts, q.Organization), loaded)
	t.Gap = gap
	t.fill(loaded, asked, q, o.Tries)
	return t, nil
}

// watched replays a run, and returns the operations that its program has reached.
func watched(scripts program.Scripts, loaded engine.Loaded) (asked map[history.OpRef]program.Asked, gap string) {
	asked = map[history.OpRef]program.Asked{}
	if loaded.State == execution.Quarantined {
		return asked, "the run was set aside because it ended processes, and is not replayed for that"
	}
	recorded := loaded.History
	for len(recorded) > 0 && recorded[len(recorded)-1].Op.Branch < 0 && recorded[len(recorded)-1].Kind != history.KindEnding {
		recorded = recorded[:len(recorded)-1]
	}
	env := program.Environment{
		Ref: loaded.Ref, Workflow: loaded.Workflow, Organization: loaded.Organization, Continuation: loaded.Continuation,
		Begun: len(recorded) > 0 || len(loaded.Open) > 0,
		// What is asked for behind the end of the history is seen by nobody.
		Now: func() time.Time { return loaded.CreatedAt }, UUID: func() string { return loaded.Ref }, Random: func() float64 { return 0 },
		Token: func() string { return history.Pseudonym(0) },
		Emit:  func(string, string, json.RawMessage) *history.FunctionError { return nil },
		Asked: func(a program.Asked) { asked[a.Op] = a },
	}
	machine, err := scripts.Open(loaded.Program, loaded.Inputs, env)
	if err == nil {
		defer machine.Close()
		err = machine.Replay(recorded)
	}
	if differs, is := errors.AsType[*program.Mismatch](err); is {
		return asked, fmt.Sprintf("entry %d does not fit the program: %s", differs.Seq, differs.Error())
	}
	if interrupted, is := errors.AsType[*program.Interrupted](err); is {
		return asked, "the replay was interrupted: " + interrupted.Reason
	}
	if err != nil && len(asked) == 0 && len(recorded) > 0 {
		return asked, "the program cannot be replayed: " + fault.Public(err)
	}
	return asked, "" // else it has failed as the recorded one has
}

// fill takes the steps that are asked for. tries has the failed attempts at calls that are under way in this process.
func (t *Timeline) fill(
	loaded engine.Loaded, asked map[history.OpRef]program.Asked, q TimelineQuery, tries func(call string) *history.Tries,
) {
	entries := history.Results(loaded.History) // as the program has seen it
	last := len(entries)
	for q.Before > 0 && last > 0 && entries[last-1].Seq >= q.Before {
		last--
	}
	first := max(0, last-q.Limit)
	t.Earlier = first > 0
	// at is when a number of entries had been recorded.
	at := func(n int) time.Time {
		if n = min(n, len(entries)); n > 0 {
			return entries[n-1].At
		}
		return loaded.CreatedAt
	}
	before := map[int]time.Time{} // when the step before ended, of each branch
	for i, e := range entries[:last] {
		begun := e.At
		if a, known := asked[e.Op]; known && e.Op.Branch >= 0 {
			begun = at(a.After)
		} else if ended, is := before[e.Op.Branch]; is {
			begun = ended
		}
		before[e.Op.Branch] = e.At
		if i < first {
			continue
		}
		s := TimelineStep{Seq: e.Seq, Op: e.Op, Kind: e.Kind, Name: e.Name, Begun: begun, Ended: e.At, Tries: e.Tries}
		s.output(e)
		t.add(s, asked, q.Inputs)
	}
	if q.Before > 0 {
		return
	}
	for _, w := range t.Waiting {
		if w.Kind == history.KindContinue {
			continue // nothing of the program: the run is held back
		}
		s := TimelineStep{Op: w.Op, Kind: w.Kind, Name: w.Name, Begun: w.Since, Due: w.Due, Attempt: w.Attempt, Tries: w.Tries}
		if s.Tries == nil && tries != nil && w.Kind == history.KindRun {
			s.Tries = tries(history.ActivityID(loaded.Ref, w.Op))
		}
		if w.Kind == history.KindWait {
			s.Name = strings.Join(w.Types, " ")
		}
		t.add(s, asked, q.Inputs)
	}
}

// add appends a step, with what the replay has found of it.
func (t *Timeline) add(s TimelineStep, asked map[history.OpRef]program.Asked, inputs bool) {
	parent := -1
	if a, known := asked[s.Op]; known && s.Op.Branch >= 0 {
		s.Position, parent = a.Position, a.Parent
		if inputs {
			s.input(a)
		}
	}
	t.Steps = append(t.Steps, s)
	if s.Op.Branch < 0 {
		return // the end of the run is no branch's
	}
	for i := range t.Branches {
		b := &t.Branches[i]
		if b.Number == s.Op.Branch {
			if b.Ended = s.Ended; s.Begun.Before(b.Begun) {
				b.Begun = s.Begun
			}
			return
		}
	}
	b := TimelineBranch{Number: s.Op.Branch, Parent: parent, Begun: s.Begun, Ended: s.Ended}
	at := len(t.Branches)
	for at > 0 && t.Branches[at-1].Number > b.Number {
		at--
	}
	t.Branches = append(t.Branches[:at], append([]TimelineBranch{b}, t.Branches[at:]...)...)
}

// input shows the arguments in the words of the program.
func (s *TimelineStep) input(a program.Asked) {
	text, parts := a.Input, []json.RawMessage{}
	switch s.Kind {
	case history.KindPrint, history.KindNow, history.KindUUID, history.KindRandom, history.KindChannel, history.KindDefer, history.KindReply:
		return // they have none, or it is their output
	case history.KindSleep:
		text = quoted(text)
	case history.KindPoll:
		if !a.Cut && json.Unmarshal([]byte(text), &parts) == nil && len(parts) > 0 {
			text = string(parts[0]) // behind it is what the poll is until
		}
	case history.KindWait, history.KindReceive:
		if !a.Cut && json.Unmarshal([]byte(text), &parts) == nil && len(parts) > 1 {
			named := map[string]any{"timeout": timeoutOf(parts[len(parts)-1])}
			if s.Kind == history.KindWait && len(parts) == 3 {
				named["types"], named["filter"] = parts[0], parts[1]
			}
			if b, err := json.Marshal(named); err == nil {
				text = string(b)
			}
		}
	default: // as it is kept
	}
	s.Input, s.InputCut = shown(text)
	s.InputCut = s.InputCut || a.Cut
}

// timeoutOf is a fingerprint's, in nanoseconds, as people write it; the default's is 0.
func timeoutOf(fingerprint json.RawMessage) string {
	var d time.Duration
	if json.Unmarshal(fingerprint, &d) != nil || d == 0 {
		return "default"
	}
	return d.String()
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		return ""
	}
	return string(b)
}

// output shows a result.
func (s *TimelineStep) output(e history.Entry) {
	text := string(e.Value)
	if e.Error != nil {
		s.Code, text = e.Error.Code, quoted(e.Error.Message)
	}
	if e.Kind == history.KindStart {
		var child history.Child
		if json.Unmarshal(e.Value, &child) == nil {
			s.Child, text = child.Workflow, quoted(child.Workflow) // what it was started with is the input
		}
	}
	s.Output, s.OutputCut = shown(text)
}

// shown is a text without tokens and without what looks like a secret, cut where it is long.
func shown(text string) (_ string, cut bool) {
	text, _ = history.Redact(history.ConcealTokens(text))
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], ""), true
	}
	return text, false
}
