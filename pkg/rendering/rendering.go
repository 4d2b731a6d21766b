// Package rendering fills in the templates of users: text with expressions between {[ and ]}, or between {{ and }} (D33). The language is
// Go's text/template with those functions of Sprig that depend on nothing but their arguments.
//
// A template is a tenant's, and it is executed within this service. So it can neither read the environment nor the clock, and what it
// computes is bounded: the length of everything that it makes, and its steps. It is no sandbox for programs.
package rendering

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The bounds of one template, in bytes, or in units of work: about one for each byte that is read or made.
const (
	maxTemplate = 256 << 10
	maxOutput   = 1 << 20
	maxValue    = 1 << 20
	maxWork     = 64 << 20
	maxDepth    = 64
)

// A Stage is where a template has failed (R2-17).
type Stage string

// The stages.
const (
	// Parsing is for a text that is not a template.
	Parsing Stage = "template_parse"
	// Executing is for one that cannot be filled in with the data.
	Executing Stage = "template_execute"
)

// Error is the failure of a template.
type Error struct {
	Stage   Stage
	Message string
}

// Error returns what is wrong, and where.
func (e *Error) Error() string { return e.Message }

// Delimiters select what is around an expression.
type Delimiters string

// The delimiters.
const (
	// Auto is Square for a text with {[ in it, else Curly.
	Auto   Delimiters = "auto"
	Square Delimiters = "square"
	Curly  Delimiters = "curly"
)

// Request is a template with its data.
type Request struct {
	Template string
	Data     map[string]any
	// Delimiters is Auto if it is empty.
	Delimiters Delimiters
	// Strict makes a missing key an error; otherwise it is an empty string.
	Strict bool
	// Work is how many units of work it may make; 0 for 64 Mi. A unit is about a byte that is read or made.
	Work int
}

// shown is the function at the end of each expression that prints, step counts a round, and read what a comparison reads.
const (
	shown = "lockstepShown"
	step  = "lockstepStep"
	read  = "lockstepRead"
)

// Check says what is wrong with a template that nobody has filled in yet. The error is as of Render.
func Check(text string, delimiters Delimiters) error {
	_, _, err := open(text, delimiters, &meter{left: maxWork})
	return err
}

// Render fills in a template. The error is an *Error, or Invalid for a template that is too long.
func Render(r Request) (string, error) {
	if r.Work <= 0 || r.Work > maxWork {
		r.Work = maxWork
	}
	t, hint, err := open(r.Template, r.Delimiters, &meter{left: r.Work})
	if err != nil {
		return "", err
	}
	if r.Strict {
		t = t.Option("missingkey=error")
	}
	for _, each := range t.Templates() {
		if each.Tree != nil && each.Root != nil {
			instrument(each.Root, true)
		}
	}
	out := &limited{}
	if err := t.Execute(out, r.Data); err != nil {
		return "", &Error{Stage: Executing, Message: problem(err) + hint}
	}
	return out.String(), nil
}

// open parses a template. hint is what to add to an error about it.
func open(text string, delimiters Delimiters, m *meter) (t *template.Template, hint string, err error) {
	if len(text) > maxTemplate {
		return nil, "", fault.InvalidFields(fault.Field{
			Name: "template", Problem: fmt.Sprintf("found %d bytes, expected at most %d", len(text), maxTemplate),
		})
	}
	left, right := "{{", "}}"
	switch {
	case delimiters == Square, delimiters != Curly && strings.Contains(text, "{["):
		left, right = "{[", "]}"
	case delimiters != Curly && strings.Contains(text, "{{"):
		hint = " (the text has no {[, so {{ }} are read as this template's; delimiters: square leaves them to others)"
	}
	t = template.New("template").Delims(left, right).Funcs(m.functions(text)).Option("missingkey=zero")
	if t, err = t.Parse(text); err != nil {
		return nil, "", &Error{Stage: Parsing, Message: problem(err) + hint}
	}
	return t, hint, nil
}

// problem is an error of text/template without the words that say nothing to the author.
func problem(err error) string {
	return strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "template: ")
}

// limited keeps at most maxOutput bytes.
type limited struct{ strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("found more than %d bytes of output, expected less: %w", maxOutput, io.ErrShortWrite)
	}
	return l.Builder.Write(p)
}

// instrument changes the tree of a template: a body that may be executed again and again begins with a step, which is counted, and each
// expression that prints ends with a function that prints nothing for what is missing. What comparisons read is counted.
func instrument(list *parse.ListNode, again bool) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.ActionNode:
			countReads(n.Pipe)
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pipe, shown))
			}
		case *parse.TemplateNode:
			countReads(n.Pipe)
		case *parse.RangeNode:
			countReads(n.Pipe)
			instrument(n.List, true)
			instrument(n.ElseList, false)
		case *parse.IfNode:
			countReads(n.Pipe)
			instrument(n.List, false)
			instrument(n.ElseList, false)
		case *parse.WithNode:
			countReads(n.Pipe)
			instrument(n.List, false)
			instrument(n.ElseList, false)
		}
	}
	if again {
		pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: list.Pos}
		pipe.Cmds = []*parse.CommandNode{command(pipe, step)}
		list.Nodes = append([]parse.Node{&parse.ActionNode{NodeType: parse.NodeAction, Pos: list.Pos, Pipe: pipe}}, list.Nodes...)
	}
}

// reads is how many of the first arguments each of those functions of text/template does not read that take time for the length of others.
// They cannot be replaced like those that make texts, because the package does not export them.
func reads(name string) (unread int, found bool) {
	switch name {
	case "eq", "ne", "lt", "le", "gt", "ge":
		return 0, true
	case "index":
		return 1, true
	default:
		return 0, false
	}
}

// countReads puts a function around each argument that is read, which counts its length.
func countReads(pipe *parse.PipeNode) {
	if pipe == nil {
		return
	}
	var commands []*parse.CommandNode
	for i, c := range pipe.Cmds {
		for _, arg := range c.Args {
			switch n := arg.(type) {
			case *parse.PipeNode:
				countReads(n)
			case *parse.ChainNode:
				if inner, isPipe := n.Node.(*parse.PipeNode); isPipe {
					countReads(inner)
				}
			}
		}
		if name, isName := c.Args[0].(*parse.IdentifierNode); isName {
			if unread, found := reads(name.Ident); found {
				for n := 1 + unread; n < len(c.Args); n++ {
					c.Args[n] = counted(pipe, c.Args[n])
				}
				if i > 0 { // the last argument is what comes before it in the pipeline
					commands = append(commands, command(pipe, read))
				}
			}
		}
		commands = append(commands, c)
	}
	pipe.Cmds = commands
}

// counted is an argument with the function around it that counts its length; a constant is as long as the template makes it.
func counted(of *parse.PipeNode, arg parse.Node) parse.Node {
	switch arg.(type) {
	case *parse.BoolNode, *parse.NumberNode, *parse.StringNode, *parse.NilNode:
		return arg
	}
	c := command(of, read)
	c.Args = append(c.Args, arg)
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: of.Pos, Cmds: []*parse.CommandNode{c}}
}

// command is a call of one of our functions at the place of a pipeline.
func command(of *parse.PipeNode, name string) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: of.Pos, Args: []parse.Node{parse.NewIdentifier(name).SetPos(of.Pos)}}
}

var errWork = errors.New("found more work than one template may make; expected smaller loops and texts")
