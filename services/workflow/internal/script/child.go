package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxStarts is how many children are started by one turn: all of them are stored with it. A program that starts more is made to wait in
// between, for no time.
const maxStarts = 500

// maxResult bounds what a child returns, in bytes of JSON: it becomes part of an event.
const maxResult = 256 << 10

// workflow is a child as the program holds it. Outside of the program it is its id.
type workflow struct {
	id string
}

var _ starlark.HasAttrs = workflow{}

// String is the id, which is the same at every replay.
func (w workflow) String() string { return w.id }

// Type is "workflow".
func (workflow) Type() string { return "workflow" }

// Freeze has nothing to do: a program cannot change a handle.
func (workflow) Freeze() {}

// Truth is always true.
func (workflow) Truth() starlark.Bool { return true }

// Hash is the id's, so that handles may be keys of a dict.
func (w workflow) Hash() (uint32, error) { return starlark.String(w.id).Hash() }

// Attr is id.
func (w workflow) Attr(name string) (starlark.Value, error) {
	if name == "id" {
		return starlark.String(w.id), nil
	}
	return nil, starlark.NoSuchAttrError(fmt.Sprintf("workflow has no .%s; it has id", name))
}

// AttrNames is id.
func (workflow) AttrNames() []string { return []string{"id"} }

// startWorkflow(module="", inputs={}, id="", detached=False, program="") starts a run of its own, of a module that was submitted with this
// program or of a program that is given as text, and answers a handle for await_workflow. It is stored in the transaction that records
// that it was started, so it is started once. The id names it among the children of this run. At a limit of the organization it is an
// error with the code "limited".
func startWorkflow(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var module, source, name string
	var inputs starlark.Value
	var detached bool
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "module?", &module, "inputs??", &inputs, "id?", &name, "detached?", &detached,
		"program?", &source); err != nil {
		return nil, err
	}
	m := b.machine
	_, known := m.program.modules[module]
	switch {
	case (module == "") == (source == ""):
		return nil, errors.New("start_workflow: expected a module or a program")
	case module != "" && module != mainFile && !known:
		return nil, fmt.Errorf("start_workflow: there is no module %q, expected %s or a module that was submitted with it", module, mainFile)
	case len(source) > m.limits.Source:
		return nil, fmt.Errorf("start_workflow: the program has %d bytes, expected at most %d", len(source), m.limits.Source)
	}
	encoded, err := b.arguments("start_workflow", "inputs", inputs, onErrorFail)
	if err != nil {
		return nil, err
	}
	if m.started++; m.started > maxStarts && !m.cleaning {
		op := b.op(history.KindSleep, "", []byte(time.Duration(0).String()))
		if _, err := b.block(op); err != nil {
			return nil, err
		}
		m.started = 1
	}
	child := history.Child{Module: module, Program: source, Inputs: encoded, Detached: detached}
	text, err := json.Marshal(child)
	if err != nil {
		return nil, fmt.Errorf("start_workflow: %w", err)
	}
	op := b.op(history.KindStart, strings.TrimSpace(module+" "+name), text)
	key := history.ActivityID(m.env.Ref, op.Ref)
	if name != "" { // in every generation and attempt it is the same child
		ref, _, _ := strings.Cut(m.env.Ref, "~")
		key = ref + " " + name
	}
	if child.Workflow, err = id.ChildRun(m.env.Workflow, key, name); err != nil {
		return nil, fmt.Errorf("start_workflow: %w", err)
	}
	if m.children[name] {
		return nil, fmt.Errorf("start_workflow: the run has started a child with the id %q already", name)
	}
	if text, err = json.Marshal(child); err != nil {
		return nil, fmt.Errorf("start_workflow: %w", err)
	}
	c, err := m.immediate(op, func() history.Completion {
		if m.env.Start != nil {
			if refusal := m.env.Start(len(encoded) + len(source)); refusal != nil {
				return history.Completion{Op: op.Ref, Error: refusal}
			}
		}
		return history.Completion{Op: op.Ref, Value: text}
	})
	if err != nil {
		return nil, err
	}
	if c.Error != nil { // its id is free
		return nil, fmt.Errorf("start_workflow: %w", c.Error)
	}
	if name != "" {
		if m.children == nil {
			m.children = map[string]bool{}
		}
		m.children[name] = true
	}
	m.parent = m.parent || !detached
	// Of a run that was retried the entries before the retry were recorded under another handle.
	if err := json.Unmarshal(c.Value, &child); err != nil {
		return nil, fmt.Errorf("start_workflow: the recorded child: %w", err)
	}
	return workflow{child.Workflow}, nil
}

// awaitWorkflow(workflow, timeout=None, on_error="fail") waits for the end of a child and answers what its main returned. The error of a child
// that has failed or was cancelled is an error of this operation.
func awaitWorkflow(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var given, timeout starlark.Value
	onError := onErrorFail
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "workflow", &given, "timeout??", &timeout, "on_error?", &onError); err != nil {
		return nil, err
	}
	if err := checkOnError(onError); err != nil {
		return nil, fmt.Errorf("await_workflow: %w", err)
	}
	limit, err := duration("timeout", timeout)
	if err != nil {
		return nil, fmt.Errorf("await_workflow: %w", err)
	}
	child := ""
	switch v := given.(type) {
	case workflow:
		child = v.id
	case starlark.String:
		child = string(v)
	}
	if !id.IsChildRun(child) {
		return nil, fmt.Errorf("await_workflow: found a %s, expected what start_workflow answered, or its id", given.Type())
	}
	types := []string{history.TypeCompleted, history.TypeFailed, history.TypeCancelled}
	value, _ := history.Scalar(child) // a string is one
	filter := history.Filter{"workflow_id": value}
	fingerprint, err := json.Marshal([]any{types, filter, limit})
	if err != nil {
		return nil, fmt.Errorf("await_workflow: %w", err)
	}
	op := b.op(history.KindWait, joinTypes(types), fingerprint)
	op.Types, op.Filter, op.Timeout, op.EndOf = types, filter, within(timeout, limit), child
	c, err := b.block(op)
	if err != nil {
		return nil, err
	}
	return b.result("await_workflow", onError, childEnd(child, op, c))
}

// childEnd is the completion of a wait for the end of a child, as that of a Function.
func childEnd(child string, op history.Op, c history.Completion) history.Completion {
	if c.Error != nil {
		return c
	}
	var ended *struct {
		Type string
		Data struct {
			Error, Reason string
			Result        json.RawMessage
		}
	}
	failed := func(code, format string, args ...any) history.Completion {
		return history.Completion{Op: c.Op, Error: &history.FunctionError{Code: code, Message: fmt.Sprintf(format, args...)}}
	}
	switch err := json.Unmarshal(c.Value, &ended); {
	case err != nil:
		return failed(history.CodeUnreadable, "the end of %s cannot be read: %s", child, err)
	case ended == nil:
		return failed(history.CodeTimeout, "%s did not end within %s", child, op.Timeout)
	case ended.Type == history.TypeFailed:
		return failed(history.CodeChildFailed, "%s", ended.Data.Error)
	case ended.Type == history.TypeCancelled:
		return failed(history.CodeChildCancelled, "the child was cancelled: %s", ended.Data.Reason)
	}
	if c.Value = ended.Data.Result; c.Value == nil {
		c.Value = json.RawMessage("null")
	}
	return c
}

// returned keeps what the main of a child returned, for its parent.
func (m *machine) returned(value starlark.Value) error {
	if !id.IsChildRun(m.env.Workflow) || value == starlark.None {
		return nil
	}
	encoded, err := encode(value, min(maxResult, m.limits.Value))
	if err != nil {
		return fmt.Errorf("what main returns to the parent: %w", err)
	}
	m.result = encoded
	return nil
}

// Result is what the main of a child returned.
func (m *machine) Result() json.RawMessage { return m.result }
