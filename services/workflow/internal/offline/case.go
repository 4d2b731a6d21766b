package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Case is a test of a program: what it is started with, what its Functions answer, what happens to it, and what is expected then.
type Case struct {
	Name    string
	Program program.Program
	Inputs  json.RawMessage
	// Functions are the answers by the name of the Function, in the order of the calls; the last one repeats.
	Functions map[string][]Answer
	// Steps are carried out one by one, each when the run waits. Behind the last one, time passes by itself.
	Steps []Action
	// EventTypes are types that the organization has declared; their schemas are not compared here.
	EventTypes []string
	// Patient is set if pauses between attempts at a Function take time, too.
	Patient bool
	// Compute are Functions that only compute, as they are: they are carried out where the case has no answer for them.
	Compute map[string]Carrier
	// World makes Functions that are carried out where the case has no answer for them, anew each time that the case is played.
	World func() map[string]Carrier
	// Outside is a world with a life of its own, made for one play of the case; nil for none. It carries Functions out in place of answers.
	Outside Outside
	// Begins is when the case begins; zero for a time that is always the same.
	Begins time.Time
	// CallTimeout and WaitTimeout are the timeouts of calls and waits that give none.
	CallTimeout, WaitTimeout time.Duration

	Expect Expectation
}

// Answer is what a Function answers to a call: a value, or an error, which is repeated Times and followed by the value; always if 0.
type Answer struct {
	// When has members that the arguments must have. Answers with it come before those without, which are given one after the other.
	When   json.RawMessage        `json:"when,omitempty"`
	Result json.RawMessage        `json:"result,omitempty"`
	Error  *history.FunctionError `json:"error,omitempty"`
	Times  int                    `json:"times,omitempty"`
}

// Carrier carries a call of a Function out. key is its idempotency key.
type Carrier func(key string, args json.RawMessage) (json.RawMessage, *history.FunctionError)

// Action is one thing that happens to a run; one of its members is set.
type Action struct {
	// Event reaches the run's organization.
	Event *EventStep `json:"event,omitempty"`
	// Advance lets time pass: a duration such as 2h.
	Advance string `json:"advance,omitempty"`
	// Send is a message to a channel of the run, or to its inbox.
	Send *SendStep `json:"send,omitempty"`
	// Call is a message to its inbox whose sender waits for the answer.
	Call *CallStep `json:"call,omitempty"`
	// Cancel has the run cancelled, for this reason.
	Cancel *string `json:"cancel,omitempty"`
	// Change gives the run another program, as ChangeProgram does: the file, beside the table.
	Change string `json:"change,omitempty"`
	// changed is the text of that file.
	changed []byte
}

// EventStep is an event.
type EventStep struct {
	Type string          `json:"type"`
	ID   string          `json:"id,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Source is where it is from; if empty, a source that such events have.
	Source string `json:"source,omitempty"`
}

// SendStep is a message to the nth channel that the run has made, from 0, or to its inbox.
type SendStep struct {
	Channel *int            `json:"channel,omitempty"`
	ID      string          `json:"id,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// CallStep is a call. Answer is what the run is expected to answer in the end, as JSON; Error the text of an error.
type CallStep struct {
	ID     string          `json:"id,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Expectation is what a run must have led to. What is not set is not compared.
type Expectation struct {
	// State is completed, failed, cancelled or waiting.
	State string `json:"state,omitempty"`
	// Error is part of the text of the failure, or of the reason of the cancellation.
	Error string `json:"error,omitempty"`
	// Result is what main returned.
	Result json.RawMessage `json:"result,omitempty"`
	// Calls are the Functions called, and Emits the events emitted, in order. Of an object only the members that are given are compared.
	Calls []ExpectedCall  `json:"calls,omitempty"`
	Emits []ExpectedEvent `json:"emits,omitempty"`
	// Prints are the lines printed.
	Prints []string `json:"prints,omitempty"`
	// Status are values reported with set_status.
	Status map[string]json.RawMessage `json:"status,omitempty"`
	// History is the whole history, as Narrate writes it; empty: it is not compared.
	History string `json:"history,omitempty"`
}

// ExpectedCall is a call of a Function.
type ExpectedCall struct {
	Function string          `json:"function"`
	Args     json.RawMessage `json:"args,omitempty"`
}

// ExpectedEvent is an event that was emitted.
type ExpectedEvent struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// table is a file of cases.
type table struct {
	// Program and Modules are files beside this one; Inputs and Functions are those of all cases that have none of their own.
	Program   string              `json:"program"`
	Modules   []string            `json:"modules"`
	Inputs    json.RawMessage     `json:"inputs"`
	Functions map[string][]Answer `json:"functions"`
	// EventTypes are types that programs may emit beside those of the catalogue.
	EventTypes []string `json:"event_types"`
	Cases      []struct {
		Name      string              `json:"name"`
		Inputs    json.RawMessage     `json:"inputs"`
		Functions map[string][]Answer `json:"functions"`
		Steps     []Action            `json:"steps"`
		Expect    Expectation         `json:"expect"`
	} `json:"cases"`
}

// The bounds of a file of cases.
const (
	maxCases = 1000
	maxSteps = 10_000
)

// ReadTable reads a table of cases, as JSON. load reads the files that it names.
func ReadTable(text []byte, load func(name string) ([]byte, error)) ([]Case, error) {
	var t table
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	if t.Program == "" || len(t.Cases) == 0 || len(t.Cases) > maxCases {
		return nil, fault.New(fault.Invalid, "found the program %q and %d cases, expected a program and 1 to %d cases", t.Program,
			len(t.Cases), maxCases)
	}
	source, err := load(t.Program)
	if err != nil {
		return nil, fault.New(fault.Invalid, "program: %w", err)
	}
	p := program.Program{Source: source, Modules: map[string][]byte{}}
	for _, name := range t.Modules {
		module, err := load(name)
		if err != nil {
			return nil, fault.New(fault.Invalid, "modules: %w", err)
		}
		p.Modules[name[strings.LastIndex(name, "/")+1:]] = module
	}
	if err := addHost(p, load); err != nil {
		return nil, err
	}
	cases, names := make([]Case, len(t.Cases)), map[string]bool{}
	for i, c := range t.Cases {
		if c.Name == "" || names[c.Name] {
			return nil, fault.New(fault.Invalid, "cases[%d].name: found %q, expected a name of its own", i, c.Name)
		}
		names[c.Name] = true
		functions := maps.Clone(t.Functions)
		if functions == nil {
			functions = map[string][]Answer{}
		}
		maps.Copy(functions, c.Functions)
		if len(c.Inputs) == 0 {
			c.Inputs = t.Inputs
		}
		if len(c.Inputs) == 0 {
			c.Inputs = json.RawMessage("{}")
		}
		for n := range c.Steps {
			if c.Steps[n].Change == "" {
				continue
			}
			if c.Steps[n].changed, err = load(c.Steps[n].Change); err != nil {
				return nil, fault.New(fault.Invalid, "cases[%d] (%s): steps[%d].change: %w", i, c.Name, n, err)
			}
		}
		cases[i] = Case{
			Name: c.Name, Program: p, Inputs: c.Inputs, Functions: functions, Steps: c.Steps, Expect: c.Expect,
			EventTypes: t.EventTypes, Patient: true,
			CallTimeout: 15 * time.Minute, WaitTimeout: 30 * 24 * time.Hour, // as the service's own, unless it is configured otherwise
		}
		if err := cases[i].check(); err != nil {
			return nil, fault.New(fault.Invalid, "cases[%d] (%s): %w", i, c.Name, err)
		}
	}
	return cases, nil
}

// check refuses what a case cannot mean.
func (c Case) check() error {
	if len(c.Steps) > maxSteps {
		return fmt.Errorf("steps: found %d, expected at most %d", len(c.Steps), maxSteps)
	}
	for i, s := range c.Steps {
		set := 0
		for _, is := range []bool{s.Event != nil, s.Advance != "", s.Send != nil, s.Call != nil, s.Cancel != nil, s.Change != ""} {
			if is {
				set++
			}
		}
		if set != 1 {
			return fmt.Errorf("steps[%d]: found %d of event, advance, send, call, cancel and change, expected one", i, set)
		}
		if s.Event != nil && s.Event.Type == "" {
			return fmt.Errorf("steps[%d].event.type is missing", i)
		}
		if s.Advance != "" {
			if d, err := time.ParseDuration(s.Advance); err != nil || d < 0 {
				return fmt.Errorf("steps[%d].advance: found %q, expected a duration such as 90s or 2h", i, s.Advance)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Functions)) {
		if len(c.Functions[name]) == 0 {
			return fmt.Errorf("functions.%s: found no answer, expected at least one", name)
		}
	}
	if known := []string{"", "completed", "failed", "cancelled", "waiting"}; !slices.Contains(known, c.Expect.State) {
		return fmt.Errorf("expect.state: found %q, expected completed, failed, cancelled or waiting", c.Expect.State)
	}
	return nil
}

// ReadScenario reads a case of files by name: main.star and modules, inputs.json, answers.json, script.txt and history.txt. answers.json
// has the answers by the name of the Function, where {"$error": …} fails, with "$times" so often and then answers sha. script.txt has a
// line for each step: "event TYPE DATA", "send CHANNEL ID DATA", "call ID DATA", "answered ID ANSWER", "advance DURATION", "cancel
// REASON", "change FILE", where FILE is not a module.
func ReadScenario(name string, files map[string][]byte) (Case, error) {
	c := Case{
		Name: name, Program: program.Program{Modules: map[string][]byte{}}, Inputs: files["inputs.json"], Functions: map[string][]Answer{},
		CallTimeout: time.Minute, WaitTimeout: 24 * time.Hour,
	}
	if len(bytes.TrimSpace(c.Inputs)) == 0 {
		c.Inputs = json.RawMessage("{}")
	}
	c.Program.Source = files[MainFile]
	if len(c.Program.Source) == 0 {
		return c, fault.New(fault.Invalid, "%s has no %s", name, MainFile)
	}
	for file, text := range files {
		if file != MainFile && strings.HasSuffix(file, ".star") {
			c.Program.Modules[file] = text
		}
	}
	answers := map[string][]json.RawMessage{}
	if text := files["answers.json"]; len(text) > 0 {
		if err := json.Unmarshal(text, &answers); err != nil {
			return c, fault.New(fault.Invalid, "%s: answers.json: %w", name, err)
		}
	}
	for function, list := range answers {
		for _, text := range list {
			var failing struct {
				Error *history.FunctionError `json:"$error"`
				Times int                    `json:"$times"`
				SHA   string                 `json:"sha"`
			}
			answer := Answer{Result: text}
			if json.Unmarshal(text, &failing) == nil && failing.Error != nil {
				answer = Answer{Error: failing.Error, Times: failing.Times, Result: json.RawMessage(strconv.Quote(failing.SHA))}
			}
			c.Functions[function] = append(c.Functions[function], answer)
		}
	}
	for _, line := range strings.Split(string(files["script.txt"]), "\n") {
		if line == "" {
			continue
		}
		action, err := action(line)
		if err != nil {
			return c, fault.New(fault.Invalid, "%s: script.txt: %w", name, err)
		}
		if action.Change != "" {
			if action.changed = files[action.Change]; action.changed == nil {
				return c, fault.New(fault.Invalid, "%s: script.txt: there is no file %s", name, action.Change)
			}
		}
		c.Steps = append(c.Steps, action)
	}
	c.Expect.History = string(files["history.txt"])
	return c, c.check()
}

func action(line string) (Action, error) {
	verb, rest, _ := strings.Cut(line, " ")
	first, more, _ := strings.Cut(rest, " ")
	switch verb {
	case "event":
		return Action{Event: &EventStep{Type: first, ID: line, Data: json.RawMessage(more)}}, nil
	case "advance":
		return Action{Advance: rest}, nil
	case "send":
		n, err := strconv.Atoi(first)
		if err != nil {
			return Action{}, fmt.Errorf("found %q, expected send CHANNEL ID DATA", line)
		}
		id, data, _ := strings.Cut(more, " ")
		return Action{Send: &SendStep{Channel: &n, ID: id, Data: json.RawMessage(data)}}, nil
	case "call":
		return Action{Call: &CallStep{ID: first, Data: json.RawMessage(more)}}, nil
	case "answered":
		var given history.Answer
		if err := json.Unmarshal([]byte(more), &given); err != nil {
			return Action{}, fmt.Errorf("%q: %w", line, err)
		}
		return Action{Call: &CallStep{ID: first, Answer: given.Value, Error: given.Error}}, nil
	case "cancel":
		return Action{Cancel: &rest}, nil
	case "change":
		return Action{Change: rest}, nil
	default:
		return Action{}, fmt.Errorf("found the step %q, expected event, advance, send, call, answered, cancel or change", line)
	}
}

// sourceOf is a source that an event of a type has: that of its emitter for the types of the catalogue.
func sourceOf(eventType string) string {
	for _, source := range []string{"/test", event.SourceDomain, event.SourceWorkflow, event.SourceRegistry, event.AgentSource(1)} {
		if event.Fits(eventType, source) {
			return source
		}
	}
	return "/test"
}

// hostLoad is the load of a module of Lockstep's own.
var hostLoad = regexp.MustCompile(`(?m)^load\("(lockstep:[^"]*)"`)

// addHost adds the modules of Lockstep that a program and its modules load: a table names those of its own only.
func addHost(p program.Program, load func(name string) ([]byte, error)) error {
	texts := append(slices.Collect(maps.Values(p.Modules)), p.Source)
	for len(texts) > 0 {
		text := texts[len(texts)-1]
		texts = texts[:len(texts)-1]
		for _, found := range hostLoad.FindAllSubmatch(text, -1) {
			name := string(found[1])
			if _, has := p.Modules[name]; has {
				continue
			}
			module, err := load(name)
			if err != nil {
				return fault.New(fault.Invalid, "module %s: %w", name, err)
			}
			p.Modules[name] = module
			texts = append(texts, module)
		}
	}
	return nil
}
