// Package scripttest writes programs that have every kind of value where a function can reach it. It is for tests of what a run
// that was replayed can do with what it was given before. It is not a description of the language: testdata/*.star is.
package scripttest

import (
	"fmt"
	"strings"
)

// Kind is a kind of value that a program can have.
type Kind struct {
	// Name is what the tests call it.
	Name string
	// Made is the expression that makes one. It may use the names of Prelude.
	Made string
}

// Function is what Kinds call: it answers its arguments. With "reply_to" it first sends [1] to the channel of that token, with
// "tick" it first has an event of the type Tick happen, with "pause" the test may replace the process.
const (
	Function = "act"
	Tick     = "com.example.tick"
)

// Kinds are all kinds of values: those of the language, those of ours, and those that a Function, an event or a message brings.
func Kinds() []Kind {
	const member = `{"a": {"b": [1]}}`
	return []Kind{
		{"None", `None`},
		{"bool", `True`},
		{"int", `1 << 70`},
		{"float", `0.5`},
		{"string", `"s"`},
		{"bytes", `b"s"`},
		{"string.elems", `"ab".elems()`},
		{"list", `[1, [2]]`},
		{"dict", member},
		{"dict with functions as keys", `{len: [1], touch: [2]}`},
		{"set", `set([1, touch])`},
		{"tuple", `(1, [2])`},
		{"range", `range(3)`},
		{"struct", `struct(a = [1])`},
		{"function", `touch`},
		{"lambda", `lambda: touch`},
		{"builtin_function_or_method", `len`},
		{"method of a list", `[1].append`},
		{"module", `json`},
		{"value of json.decode", `json.decode('{"a": [1]}')`},
		{"value of parse_yaml", `parse_yaml("a: {b: [1]}")`},
		{"answer of run", `run("act", ` + member + `)`},
		{"answer that is a list", `run("act", {"list": [` + member + `]}).list`},
		{"method of an answer", `run("act", ` + member + `).keys`},
		{"member of an answer", `run("act", ` + member + `).a`},
		{"union of an answer and a dict", `run("act", ` + member + `) | {"c": 1}`},
		{"list of answers", `[run("act", ` + member + `)]`},
		{"envelope", `run("act", ` + member + `, on_error = "return")`},
		{"answer of poll", `poll("act", ` + member + `, until = lambda v: True)`},
		{"event", `(run("act", {"tick": True}), wait_for_event("com.example.tick"))[1]`},
		{"object", `given`},
		{"message", `answered(channel())`},
		{"channel", `channel()`},
		{"branch", `spawn(touch, 1)`},
		{"workflow", `start_workflow("kinds.star")`},
		{"now", `now()`},
		{"uuid", `uuid()`},
		{"random", `random()`},
		{"member of a module", `constants`},
		{"struct of answers", `struct(a = run("act", ` + member + `))`},
	}
}

// Modules are those of the programs.
func Modules() map[string][]byte {
	return map[string][]byte{"kinds.star": []byte(`
def touch(v = None, *more):
    str(v)
    bool(v)
    v == v
    return 1

def keeper(v):
    return struct(member = v, call = lambda *args: touch(v))

constants = struct(dict = {"a": [1]}, list = [{}], read = parse_yaml("a: {b: [1]}"), call = lambda: keeper)
`)}
}

// Inputs are those of the programs.
const Inputs = `{"given": {"a": {"b": [1]}}}`

// Use is a builtin that takes a function, and how programs use it. In Call, FUNCTION is the function.
type Use struct {
	Builtin, Call string
}

// Uses are all builtins that take a function, of the language and of ours.
func Uses() []Use {
	return []Use{
		{"poll", `poll("act", {"n": 1}, until = FUNCTION)`},
		{"spawn", `gather(spawn(FUNCTION))`},
		{"attempt", `attempt(FUNCTION).error == None or fail("an error")`},
		{"defer", `defer(FUNCTION)`},
		{"on_cancel", `on_cancel(FUNCTION)`},
		{"sorted", `sorted([2, 1], key = FUNCTION)`},
		{"max", `max([2, 1], key = FUNCTION)`},
		{"min", `min([2, 1], key = FUNCTION)`},
		{"continue_with", `continue_with(again)`},
		{"on_event", `on_event(type = "com.example.happened", handler = handle)`},
	}
}

// Program makes values of these kinds, calls Function with "pause", and then uses the builtin with functions that reach each value
// as a global, as the default of a parameter, in a closure, and as the member of a module's struct. It prints "done" at its end.
func Program(use Use, kinds []Kind) string {
	var b strings.Builder
	b.WriteString(`load("kinds.star", "touch", "keeper", "constants")

def answered(c):
    run("act", {"reply_to": c.token})
    return receive(c)

def make(v):
    def reach(*args):
        return touch(v)
    return reach

`)
	for i, kind := range kinds {
		fmt.Fprintf(&b, "v%d = %s\nkept%d = keeper(v%d)\n", i, kind.Made, i, i)
	}
	var reached []string
	for i := range kinds {
		reached = append(reached, fmt.Sprintf("lambda *args: touch(v%d)", i), fmt.Sprintf("lambda *args, v = v%d: touch(v)", i),
			fmt.Sprintf("make(v%d)", i), fmt.Sprintf("kept%d.call", i))
	}
	all := "def all(*args):\n"
	for i := range kinds {
		all += fmt.Sprintf("    touch(v%d)\n    make(v%d)()\n    kept%d.call()\n", i, i, i)
	}
	b.WriteString("\n" + all)
	switch use.Builtin {
	case "continue_with":
		b.WriteString("\ndef again():\n    run(\"act\", {\"pause\": True})\n    all()\n    print(\"done\")\n\ndef main():\n    run(\"act\", {\"pause\": True})\n    all()\n    " + use.Call + "\n")
	case "on_event":
		b.WriteString("\ndef handle(event):\n    run(\"act\", {\"pause\": True})\n    touch(event)\n    all()\n    print(\"done\")\n\n" +
			use.Call + "\n")
	default:
		b.WriteString("\nrun(\"act\", {\"pause\": True})\n")
		for _, function := range reached {
			b.WriteString(strings.ReplaceAll(use.Call, "FUNCTION", function) + "\n")
		}
		b.WriteString("all()\nprint(\"done\")\n")
	}
	return b.String()
}
