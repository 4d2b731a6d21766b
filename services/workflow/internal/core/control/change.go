package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// ChangeRequest asks for another program for an execution that waits.
type ChangeRequest struct {
	Organization     int64
	Workflow, Reason string
	Program          program.Program
	// By is the name of the caller's token.
	By string
	// DryRun only checks.
	DryRun bool
}

// ProgramChange is another program for an execution, and where the execution stood when the program was checked.
type ProgramChange struct {
	ChangeRequest

	Execution, Turn, Wakes, LastSeq int64
	At                              time.Time
}

// Changed is a change that was carried out.
type Changed struct {
	At         time.Time
	Reason, By string
	// Replaced is the SHA-256 of the main source before, hexadecimal.
	Replaced string
	// LastSeq is the end of the history at that time.
	LastSeq int64
}

// ChangeProgram gives an execution that waits another program, if its history replays under that one and leads to the same waits: what the
// store has open for them stays what it is.
func (o *Operator) ChangeProgram(ctx context.Context, r ChangeRequest) (View, error) {
	if err := execution.CheckReason(r.Reason, 0); err != nil {
		return View{}, err
	}
	e, err := o.find(ctx, r.Organization, r.Workflow)
	if err != nil {
		return View{}, err
	}
	if err := checkOwn(r.Workflow); err != nil {
		return View{}, err
	}
	if e.State != execution.Parked {
		return View{}, fault.New(fault.Refused, "workflow %q is %s; only one that waits can be given another program", r.Workflow, e.State)
	}
	end, err := o.exports.begin(r.Organization)
	if err != nil {
		return View{}, err
	}
	defer end()
	loaded, err := o.control.LoadAny(ctx, e.ID)
	if err != nil {
		return View{}, fmt.Errorf("load %q: %w", r.Workflow, err)
	}
	start := execution.Start{Organization: r.Organization, Workflow: r.Workflow, Program: r.Program}
	if err := start.Admit(); err != nil {
		return View{}, err
	}
	scripts := program.ScriptsFor(o.scripts, r.Organization)
	if err := scripts.Check(r.Program, loaded.Inputs); err != nil {
		return View{}, err
	}
	if err := compare(scripts, loaded, r.Program); err != nil {
		return View{}, err
	}
	if !r.DryRun && !same(loaded.Program, r.Program) { // a repeat changes nothing
		r.Reason = history.Storable(r.Reason)
		err := o.control.ChangeProgram(ctx, ProgramChange{
			ChangeRequest: r, Execution: e.ID, Turn: loaded.Turn, Wakes: loaded.Wakes, LastSeq: loaded.Base + int64(len(loaded.History)),
			At: o.clock.Now(),
		})
		if err != nil {
			return View{}, err
		}
		o.changed(ctx, r.Organization, r.Workflow)
	}
	return o.View(ctx, r.Organization, r.Workflow)
}

// same reports whether two programs have the same text.
func same(a, b program.Program) bool {
	return bytes.Equal(a.Source, b.Source) && maps.EqualFunc(a.Modules, b.Modules, bytes.Equal)
}

// compare replays a history under the program that recorded it and under another one, which has to wait for the same then.
func compare(scripts program.Scripts, loaded engine.Loaded, other program.Program) error {
	was, err := replay(scripts, loaded, loaded.Program)
	if err != nil {
		return err
	}
	is, err := replay(scripts, loaded, other)
	if err != nil {
		return err
	}
	known := map[history.OpRef]history.Op{}
	for _, op := range was {
		known[op.Ref] = op
	}
	for _, op := range is {
		before, waits := known[op.Ref]
		if !waits || before.Kind != op.Kind || before.Name != op.Name || before.Hash != op.Hash {
			return misfit(loaded, fmt.Sprintf("at %s, call %s of branch and index, it would wait for %s %s, where the workflow waits for %s %s",
				op.Position, op.Ref, op.Kind, op.Name, orNothing(before.Kind), before.Name))
		}
		delete(known, op.Ref)
	}
	for ref, op := range known {
		return misfit(loaded, fmt.Sprintf("the workflow waits for %s %s in call %s of branch and index, and the program would not",
			op.Kind, op.Name, ref))
	}
	return nil
}

func orNothing(kind history.Kind) string {
	if kind == "" {
		return "nothing"
	}
	return string(kind)
}

func misfit(loaded engine.Loaded, why string) error {
	return fault.New(fault.Refused, "the program does not fit workflow %q after entry %d of its history: %s", loaded.Workflow,
		loaded.Base+int64(len(loaded.History)), why)
}

// replay is what a program waits for at the end of a history.
func replay(scripts program.Scripts, loaded engine.Loaded, p program.Program) ([]history.Op, error) {
	machine, err := scripts.Open(p, loaded.Inputs, program.Environment{
		Ref: loaded.Ref, Workflow: loaded.Workflow, Organization: loaded.Organization, Continuation: loaded.Continuation,
		Begun: len(loaded.Open) > 0,
		// What is asked for behind the end of the history is refused below, and seen by nobody.
		Now: func() time.Time { return loaded.CreatedAt }, UUID: func() string { return loaded.Ref }, Random: func() float64 { return 0 },
		Token: history.NewToken,
		Emit:  func(string, string, json.RawMessage) *history.FunctionError { return nil },
	})
	if err == nil {
		defer machine.Close()
		err = machine.Replay(loaded.History)
	}
	if interrupted, is := errors.AsType[*program.Interrupted](err); is {
		return nil, fault.New(fault.Unavailable, "checking the program of workflow %q was interrupted; ask again: %s", loaded.Workflow,
			interrupted.Reason)
	}
	if differs, is := errors.AsType[*program.Mismatch](err); is {
		return nil, fault.New(fault.Refused, "the program does not fit entry %d of the history of workflow %q: %s", differs.Seq, loaded.Workflow,
			differs)
	}
	if err != nil {
		return nil, misfit(loaded, "it would fail: "+err.Error())
	}
	if ended, _ := machine.Outcome(); ended {
		return nil, misfit(loaded, "it would end")
	}
	if entries, _ := machine.Take(); len(entries) > 0 {
		return nil, misfit(loaded, fmt.Sprintf("it would first record %s %s", entries[0].Kind, entries[0].Name))
	}
	return machine.Pending(), nil
}
