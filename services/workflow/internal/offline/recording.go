package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// MainFile is the name of a program's main file.
const MainFile = "main.star"

// Recording is a generation of a run: what it began with, and its history. As JSON it is a file that others keep: members are added, and
// never renamed.
type Recording struct {
	// Workflow is the run's id, State the state it was in, both for people.
	Workflow string `json:",omitempty"`
	State    string `json:",omitempty"`
	// Ref is what the ids of its activities begin with.
	Ref string
	// Program are its files by name, with the main one.
	Program map[string]string
	Inputs  json.RawMessage
	// Continuation is what a generation begins with that is not the first, and Generation its number; 0 where that is not known.
	Continuation json.RawMessage `json:",omitempty"`
	Generation   int             `json:",omitempty"`
	// Concealed is set if tokens of channels were replaced.
	Concealed bool `json:",omitempty"`
	History   []history.Entry
	// Run is what is known about the run besides; only in recordings of the archive.
	Run *execution.Execution `json:",omitempty"`
}

// Read reads a recording from a file's text.
func Read(text []byte) (Recording, error) {
	var r Recording
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&r); err != nil {
		return r, fault.New(fault.Invalid, "the recording: byte %d: %w", d.InputOffset(), err)
	}
	if _, has := r.Program[MainFile]; !has {
		return r, fault.New(fault.Invalid, "the recording has no program %s; expected what `lockstep workflow export` writes", MainFile)
	}
	if len(r.Inputs) == 0 {
		r.Inputs = json.RawMessage("{}")
	}
	for i, e := range r.History {
		if i > 0 && e.Seq != r.History[i-1].Seq+1 {
			return r, fault.New(fault.Invalid, "the recording: entry %d follows entry %d, expected %d", e.Seq, r.History[i-1].Seq,
				r.History[i-1].Seq+1)
		}
	}
	return r, nil
}

// ProgramOf is the program of files by name.
func ProgramOf(files map[string]string) program.Program {
	p := program.Program{Modules: map[string][]byte{}}
	for name, source := range files {
		if name == MainFile {
			p.Source = []byte(source)
		} else {
			p.Modules[name] = []byte(source)
		}
	}
	return p
}

// title is what an entry or an operation is about.
func title(kind history.Kind, name string) string {
	if name == "" {
		return string(kind)
	}
	return fmt.Sprintf("%s %s", kind, name)
}

// Entry is an entry of a history as an export has it.
type Entry struct {
	Sequence          int64
	Branch, Operation int
	Kind, Name        string
	Digest            uint64
	// Value and Error are JSON.
	Value, Error []byte
	Event        int64
	At           time.Time
}

// Add appends an entry.
func (r *Recording) Add(e Entry) error {
	entry := history.Entry{
		Seq: e.Sequence, Op: history.OpRef{Branch: e.Branch, Index: e.Operation}, Kind: history.Kind(e.Kind), Name: e.Name, Hash: e.Digest,
		Value: e.Value, Event: e.Event, At: e.At,
	}
	if len(e.Error) > 0 {
		entry.Error = &history.FunctionError{}
		if err := json.Unmarshal(e.Error, entry.Error); err != nil {
			return fault.New(fault.Invalid, "the error of entry %d: %w", e.Sequence, err)
		}
	}
	r.History = append(r.History, entry)
	return nil
}
