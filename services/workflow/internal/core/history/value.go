package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Door is a way by which a value comes to a program from outside of it.
type Door int

// The doors.
const (
	// EventDoor is the data of an event, by CloudEvent, from the bus or from a watch.
	EventDoor Door = iota
	// MessageDoor is what is sent to a channel.
	MessageDoor
	// InputsDoor is the inputs of a run or of a flow.
	InputsDoor
	// AnswerDoor is what a Function answers, in this process or at a relay.
	AnswerDoor
)

// Limits bound a value at a door. All of it can then be read by every program: nothing that is let in fails the run that meets it.
type Limits struct {
	// Size is in bytes of JSON.
	Size int
	// Depth is how deep objects and lists may be nested.
	Depth int
	// Digits is how many characters a number may have. Whole numbers are exact at any length, which costs time to read; others have
	// to fit a float.
	Digits int
	// Once is set if no object may have two members of one name, of which one would be dropped silently.
	Once bool
}

const (
	maxNested = 200
	maxDigits = 100_000
	// ReadableDepth is how deep a value may be nested that a program reads: what comes through a door is deeper within an event or
	// a message, and as the input of a handler.
	ReadableDepth = maxNested + 8
)

// Limits is the table of limits, of which README has the numbers.
func (d Door) Limits() Limits {
	switch d {
	case EventDoor, MessageDoor:
		return Limits{Size: 1 << 20, Depth: maxNested, Digits: maxDigits}
	case InputsDoor:
		return Limits{Size: 4 << 20, Depth: maxNested, Digits: maxDigits, Once: true}
	case AnswerDoor:
		return Limits{Size: 4 << 20, Depth: maxNested, Digits: maxDigits}
	default:
		panic("core: not a door: " + strconv.Itoa(int(d)))
	}
}

// Check says what is wrong with a value that comes through the door; "" where nothing is. No value at all is none of its business.
func (d Door) Check(data []byte) (problem string) {
	l := d.Limits()
	switch {
	case len(data) > l.Size:
		return fmt.Sprintf("found %d bytes, expected at most %d", len(data), l.Size)
	case !utf8.Valid(data):
		return "found bytes that are not UTF-8, expected JSON in UTF-8"
	}
	if problem := l.nested(data); problem != "" {
		return problem // encoding/json refuses what is nested much deeper, in other words
	}
	if !json.Valid(data) {
		if _, err := Canonical(data); err != nil {
			return "not JSON: " + err.Error()
		}
		return "not JSON"
	}
	if problem := l.numbers(data); problem != "" {
		return problem
	}
	if l.Once {
		return repeated(data)
	}
	return ""
}

// CheckField is Check as an error of fault.Invalid about the field of that name.
func (d Door) CheckField(name string, data []byte) error {
	if problem := d.Check(data); problem != "" {
		return fault.InvalidFields(fault.Field{Name: name, Problem: problem})
	}
	return nil
}

// Refuse is Check for what a Function has answered, as the error that its program gets instead; nil where nothing is wrong.
func (d Door) Refuse(function string, value json.RawMessage) *FunctionError {
	problem := d.Check(value)
	switch {
	case problem == "":
		return nil
	case len(value) > d.Limits().Size:
		return &FunctionError{Code: CodeTooLarge, Message: fmt.Sprintf("%s answered %d bytes, expected at most %d", function,
			len(value), d.Limits().Size)}
	default:
		return &FunctionError{Code: CodeUnreadable, Message: fmt.Sprintf("the answer of %s: %s", function, problem)}
	}
}

// nested reports that brackets are nested too deeply, in JSON or in what else it may be.
func (l Limits) nested(data []byte) string {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = afterString(data, i) - 1
		case '[', '{':
			if depth++; depth > l.Depth {
				return fmt.Sprintf("found values nested more than %d deep at byte %d, expected at most %d", l.Depth, i+1, l.Depth)
			}
		case ']', '}':
			depth--
		}
	}
	return ""
}

// numbers says which number of a JSON value is none that a program can have.
func (l Limits) numbers(data []byte) string {
	for i := 0; i < len(data); i++ {
		c := data[i]
		if c == '"' {
			i = afterString(data, i) - 1
			continue
		}
		if c != '-' && (c < '0' || c > '9') {
			continue
		}
		begin := i
		for i < len(data) && strings.IndexByte("+-.eE0123456789", data[i]) >= 0 {
			i++
		}
		text := string(data[begin:i])
		i--
		if len(text) > l.Digits {
			return fmt.Sprintf("found a number of %d characters at byte %d, expected at most %d", len(text), begin+1, l.Digits)
		}
		if !strings.ContainsAny(text, ".eE") {
			continue
		}
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return fmt.Sprintf("found the number %.40s at byte %d, expected one from -1.8e308 to 1.8e308", text, begin+1)
		}
	}
	return ""
}

// afterString is the place behind the string that begins at i.
func afterString(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// repeated says which member a JSON value has twice. It is valid JSON: names are what stands behind a bracket or a comma of an object.
func repeated(data []byte) string {
	// names is nil for a list. next is set where a name of an object comes next.
	type level struct {
		names map[string]bool
		next  bool
	}
	var open []level
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			open = append(open, level{names: map[string]bool{}, next: true})
		case '[':
			open = append(open, level{})
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			in := &open[len(open)-1]
			in.next = in.names != nil
		case '"':
			end := afterString(data, i)
			if len(open) > 0 && open[len(open)-1].next {
				in := &open[len(open)-1]
				name := unquoted(data[i:end])
				if in.names[name] {
					return fmt.Sprintf("found the member %.80q twice, at byte %d, expected each once", name, end)
				}
				in.names[name], in.next = true, false
			}
			i = end - 1
		}
	}
	return ""
}

// unquoted is the text that a string of valid JSON writes.
func unquoted(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text
}
