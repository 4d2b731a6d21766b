package sandbox

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// maxFrame bounds one message, in bytes: a history of a run, at the most.
const maxFrame = 512 << 20

// request is what a child is asked to do.
type request struct {
	// Do is one of the verbs.
	Do string
	// Session is the run that it is about; 0 for check and inspect.
	Session uint64
	Program program.Program `json:",omitzero"`
	Inputs  []byte          `json:",omitempty"`
	Ref     string          `json:",omitempty"`
	// Workflow is the run's id, for open.
	Workflow string `json:",omitempty"`
	// Continuation is what a generation begins with that is not the first.
	Continuation json.RawMessage     `json:",omitempty"`
	History      []history.Entry     `json:",omitempty"`
	Completion   *history.Completion `json:",omitempty"`
	// Begun and Watched are of an open, and Stopped of a stop.
	Begun   bool             `json:",omitempty"`
	Watched bool             `json:",omitempty"`
	Stopped *program.Stopped `json:",omitempty"`
	// Bounded is set while children have to be admitted.
	Bounded bool `json:",omitempty"`
	// Limits are for hello, and Body for compute.
	Limits Limits `json:",omitzero"`
	Body   []byte `json:",omitempty"`
	// Answer is for a question of the child.
	Answer answer `json:",omitzero"`
}

// The verbs. Each but answer has one reply, before which the child may ask questions.
const (
	doHello    = "hello"
	doCheck    = "check"
	doInspect  = "inspect"
	doOpen     = "open"
	doReplay   = "replay"
	doComplete = "complete"
	doStop     = "stop"
	doCompute  = "compute"
	doClose    = "close"
	doAnswer   = "answer"
)

// reply ends a request, unless Ask is set: then it is a question, and an answer is awaited.
type reply struct {
	Ask     *question       `json:",omitempty"`
	Error   *failure        `json:",omitempty"`
	Outline program.Outline `json:",omitzero"`
	// Isolation is for hello, and Body for compute.
	Isolation Isolation `json:",omitzero"`
	Body      []byte    `json:",omitempty"`
	// Turn is what the program did, for replay and complete.
	Turn turn `json:",omitzero"`
}

// turn is what a program did until every branch was blocked.
type turn struct {
	// Pending are the operations that it is blocked on now and was not before.
	Pending []history.Op
	// Withdrawn are those that it was blocked on and is no more, without a completion.
	Withdrawn []history.OpRef `json:",omitempty"`
	Entries   []history.Entry
	Emits     []history.Emit
	Ended     bool
	// Ending is set if deferred calls are being made, Stopped if the request has stopped the run.
	Ending  bool `json:",omitempty"`
	Stopped bool `json:",omitempty"`
	Failure *failure
	// Result is what the main of a child returned.
	Result json.RawMessage `json:",omitempty"`
	// Asked are the operations that it has reached, if that is watched.
	Asked []program.Asked `json:",omitempty"`
}

// question is what only the service can say: the time, an identifier, chance, a token, whether an event may be sent or a child started.
type question struct {
	Kind history.Kind
	ID   string          `json:",omitempty"`
	Type string          `json:",omitempty"`
	Data json.RawMessage `json:",omitempty"`
	// Bytes is the size of a child's inputs.
	Bytes int `json:",omitempty"`
}

type answer struct {
	Time    time.Time              `json:",omitzero"`
	Text    string                 `json:",omitempty"`
	Number  float64                `json:",omitempty"`
	Refusal *history.FunctionError `json:",omitempty"`
}

// failure is an error on its way between processes. It keeps the kinds of errors that callers check for.
type failure struct {
	Text     string
	Fields   []fault.Field     `json:",omitempty"`
	Mismatch *program.Mismatch `json:",omitempty"`
	Stack    []byte            `json:",omitempty"`
	Calls    []history.Frame   `json:",omitempty"`
	Stopped  *program.Stopped  `json:",omitempty"`
}

func wrap(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), Fields: fault.FieldsOf(err)}
	if mismatch, ok := errors.AsType[*program.Mismatch](err); ok {
		f.Mismatch = mismatch
	}
	if cause, ok := errors.AsType[*program.Stopped](err); ok {
		f.Stopped = cause
	}
	var panicked interface{ StackTrace() []byte }
	if errors.As(err, &panicked) {
		f.Stack = panicked.StackTrace()
	}
	var traced interface{ CallStack() []history.Frame }
	if errors.As(err, &traced) {
		f.Calls = traced.CallStack()
	}
	return f
}

func (f *failure) error() error {
	switch {
	case f == nil:
		return nil
	case f.Mismatch != nil:
		return f.Mismatch
	case f.Stopped != nil:
		return f.Stopped
	case len(f.Fields) > 0:
		return fault.InvalidFields(f.Fields...)
	case f.Stack != nil:
		return &panicError{f.Text, f.Stack}
	case len(f.Calls) > 0:
		return &tracedError{f.Text, f.Calls}
	default:
		return errors.New(f.Text)
	}
}

// panicError is a panic in the child, of the interpreter or of a builtin.
type panicError struct {
	text  string
	stack []byte
}

// Error does not show the stack, which differs between processes.
func (e *panicError) Error() string { return e.text }

// StackTrace is where it happened, for the log.
func (e *panicError) StackTrace() []byte { return e.stack }

// tracedError is a failure of the program with the calls that led to it.
type tracedError struct {
	text  string
	calls []history.Frame
}

// Error does not show the calls, which are shown by themselves.
func (e *tracedError) Error() string { return e.text }

// CallStack is the calls, the innermost first.
func (e *tracedError) CallStack() []history.Frame { return e.calls }

// send writes a message with its length, four bytes, in front.
func send(w io.Writer, v any) error {
	var frame bytes.Buffer
	frame.Write(make([]byte, 4))
	e := json.NewEncoder(&frame)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	b := frame.Bytes()
	if len(b)-4 > maxFrame {
		return fmt.Errorf("message of %d bytes, expected at most %d", len(b)-4, maxFrame)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// receive reads a message. An io.EOF is the end of the other side.
func receive(r *bufio.Reader, v any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err // not wrapped: callers check for io.EOF
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return fmt.Errorf("message of %d bytes, expected at most %d", n, maxFrame)
	}
	frame, err := io.ReadAll(io.LimitReader(r, int64(n))) // grows with what comes, not with what was announced
	if err != nil || len(frame) != int(n) {
		return fmt.Errorf("message of %d bytes ended after %d: %w", n, len(frame), errors.Join(err, io.ErrUnexpectedEOF))
	}
	if err := json.Unmarshal(frame, v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}
