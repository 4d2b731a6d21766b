package script

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

const flowProgram = `
load("gates.star", "pass_gate")

def deploy(event):
    run("git.commit", {"branch": event.data.branch})
    run("git.commit", {"branch": "other"})
    pass_gate(rollout, 5)
    run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {}})

def handle_any(event, more = 1):
    wait_for_event(type = ["com.example.done", "com.example.failed"])
    run("k8s." + verb, {})
    wait_for_event(event.type)

on_event(type = "com.example.pushed", filter = {"ref": {"name": "main"}, "size": -1, "draft": False}, handler = deploy)
on_event(["com.example.a", "com.example.b"], None, handle_any)

def main(rollout, extra = 1):
    def run(x):
        pass
    run("not.a.function")
`

func TestInspectReadsAProgramWithoutRunningIt(t *testing.T) {
	t.Parallel()
	p := program.Program{Source: []byte(flowProgram), Modules: map[string][]byte{
		"gates.star": []byte("def pass_gate(r, n):\n    poll(function = \"argo.status\", args = {})\n    sleep(n)\n"),
	}}
	got, err := New(Limits{}).Inspect(p)
	if err != nil {
		t.Fatal(err)
	}
	want := program.Outline{
		Inputs: []string{"rollout", "verb"},
		Functions: []program.Use{
			{Name: "argo.status", Position: "gates.star:2:9"},
			{Name: "git.commit", Position: "main.star:5:8"},
		},
		Waits: []program.Use{
			{Name: "com.example.done", Position: "main.star:11:19"},
			{Name: "com.example.failed", Position: "main.star:11:19"},
		},
		Emits: []program.Use{{Name: "com.gitlab.cd.rollout.started", Position: "main.star:8:8"}},
		Handlers: []program.Handler{
			{
				Types: []string{"com.example.pushed"}, Filter: history.Filter{"ref.name": `"main"`, "size": "-1", "draft": "false"},
				Function: "deploy", Position: "main.star:15:9",
			},
			{Types: []string{"com.example.a", "com.example.b"}, Filter: history.Filter{}, Function: "handle_any", Position: "main.star:16:9"},
		},
		Dynamic: []string{"main.star:12:8", "main.star:13:19"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outline (-want +got):\n%s", diff)
	}
	for data, matches := range map[string]bool{
		`{"ref":{"name":"main"},"size":-1,"draft":false,"branch":"x"}`: true,
		`{"ref":{"name":"main"},"size":-1}`:                            false,
		`{"ref":{"name":"next"},"size":-1,"draft":false}`:              false,
	} {
		if found := got.Handlers[0].Matches(history.Event{Type: "com.example.pushed", Data: []byte(data)}); found != matches {
			t.Errorf("%s matches: %t", data, found)
		}
	}
	if got.Handlers[0].Matches(history.Event{Type: "com.example.other", Data: []byte(`{"ref":{"name":"main"},"size":-1,"draft":false}`)}) {
		t.Error("an event of another type matches")
	}
}

// Functions and events are found behind other names of the builtins as well. Where that cannot be, the outline says that it is not whole.
func TestInspectFollowsOtherNames(t *testing.T) {
	t.Parallel()
	module := "do = run\n_wait = wait_for_event\ndef f():\n    _wait('m.wait')\n    do('m.do')"
	for name, tt := range map[string]struct {
		program string
		found   []string
		dynamic []string
	}{
		"spawn": {
			program: "spawn(run, 'a', {})\nspawn(poll, function = 'b')\nspawn(wait_for_event, ['c'])",
			found:   []string{"a", "b", "c"},
		},
		"spawn of an emit":    {program: "spawn(run, 'emit', {'type': 't'})", found: []string{"t"}},
		"spawn of a variable": {program: "spawn(run, x)\nspawn(run, *x)", dynamic: []string{"main.star:1:6", "main.star:2:6"}},
		"another name": {
			program: "f = run\nf('a')\ng = f\ndef h():\n    g('b')\n    spawn(f, 'c')\n    s = spawn\n    s(run, 'd')",
			found:   []string{"a", "b", "c", "d"},
		},
		"within a function":    {program: "def f():\n    r = (run)\n    def g(): r('a')\n    (r)('b')", found: []string{"a", "b"}},
		"of a module":          {program: "load('m.star', r = 'do')\nr('a')", found: []string{"a"}},
		"computed by an alias": {program: "f = run\nf(x)", dynamic: []string{"main.star:2:2"}},
		"two values":           {program: "f = run\nf = print\nf('a')", dynamic: []string{"main.star:1:5"}},
		"a parameter's":        {program: "def g(f):\n    f = run\n    f('a')", dynamic: []string{"main.star:2:9"}},
		"in a list":            {program: "for f in [run, poll]: f('a')", dynamic: []string{"main.star:1:11", "main.star:1:16"}},
		"an argument": {
			program: "f = run\ndef g(h): h('a')\ng(f)\ng(h = wait_for_event)",
			dynamic: []string{"main.star:3:3", "main.star:4:7"},
		},
		"its own":            {program: "def run(x): pass\nf = run\nf('a')\nspawn(run, 'b')\nprint([run])"},
		"an argument's name": {program: "def g(run): run('a')\ng(run = 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := New(Limits{}).Inspect(program.Program{Source: []byte(tt.program), Modules: map[string][]byte{"m.star": []byte(module)}})
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, use := range slices.Concat(got.Functions, got.Waits, got.Emits) {
				if !strings.HasPrefix(use.Name, "m.") {
					found = append(found, use.Name)
				}
			}
			if diff := cmp.Diff(tt.found, found); diff != "" {
				t.Errorf("uses (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.dynamic, got.Dynamic); diff != "" {
				t.Errorf("dynamic (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInspectNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, program, module, want string }{
		{name: "syntax", program: "x = = 1", want: "starlark: main.star:1:5: got '='"},
		{name: "in a function", program: "def f(e):\n    on_event('t', {}, f)", want: "main.star:2:13: on_event is only for the top level"},
		{
			name: "in a module", program: "x = 1", module: "def f(e): pass\non_event('t', {}, f)",
			want: "modules.m.star: m.star:2:9: on_event is only for",
		},
		{
			name: "computed type", program: "def f(e): pass\non_event('a' + 'b', {}, f)",
			want: "main.star:2:9: on_event: type is missing or computed",
		},
		{name: "no type", program: "def f(e): pass\non_event('', {}, f)", want: "on_event: type is empty"},
		{name: "computed filter", program: "def f(e): pass\non_event('t', {'a': f}, f)", want: "on_event: filter is computed"},
		{name: "filter", program: "def f(e): pass\non_event('t', {'a': [1]}, f)", want: "on_event: filter.a is a list"},
		{name: "too early", program: "on_event('t', handler = f)\ndef f(e): pass", want: "main.star:2:5: f is used before it is defined here"},
		{name: "no handler", program: "on_event('t')", want: "on_event: handler is missing"},
		{name: "lambda", program: "on_event('t', handler = lambda e: 1)", want: "on_event: handler is missing or not a name"},
		{name: "no function", program: "f = 1\non_event('t', handler = f)", want: "on_event: f is no function of the main file"},
		{name: "continues with nothing", program: "continue_with()", want: "main.star:1:14: continue_with: expected a function"},
		{name: "continues with a text", program: "continue_with('main')", want: "main.star:1:14: continue_with: expected a function"},
		{
			name: "continues with an input", program: "def main():\n    continue_with(step, 1)",
			want: "main.star:2:18: continue_with: expected a function",
		},
		{
			name: "continues with a builtin", program: "x = 1", module: "def f():\n    continue_with(len)",
			want: "modules.m.star: m.star:2:18: continue_with: expected a function",
		},
		{
			name: "no such name", program: "load('m.star', 'says')", module: "def say(): pass\nx = 1",
			want: "starlark: main.star:1:17: load of \"says\", which m.star does not define: found say, x",
		},
		{
			name: "a name of its own", program: "load('m.star', s = '_say')", module: "def _say(): pass",
			want: "names with leading underscores are not exported",
		},
		{
			name: "of a module", program: "x = 1", module: "load('m.star', 'y')",
			want: "modules.m.star: m.star:1:17: load of \"y\", which m.star does not define: found none",
		},
		{
			name: "two parameters", program: "def f(a, b): pass\non_event('t', handler = f)",
			want: "main.star:2:9: on_event: f at main.star:1:1 cannot be called with the event alone, expected def f(event)",
		},
		{
			name: "no parameter", program: "def f(): pass\non_event('t', handler = f)",
			want: "on_event: f at main.star:1:1 cannot be called with the event alone",
		},
		{
			name: "parameters by name only", program: "def f(*, e = 1): pass\non_event('t', handler = f)",
			want: "on_event: f at main.star:1:1 cannot be called",
		},
		{
			name: "more by name", program: "def f(e, *, a): pass\non_event('t', handler = f)",
			want: "on_event: f at main.star:1:1 cannot be called",
		},
		{name: "keywords", program: "def f(**k): pass\non_event('t', handler = f)", want: "on_event: f at main.star:1:1 cannot be called"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := program.Program{Source: []byte(tt.program), Modules: map[string][]byte{"m.star": []byte(tt.module)}}
			_, err := New(Limits{}).Inspect(p)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, expected %q", err, tt.want)
			}
		})
	}
}

// What can be called with the event alone is a handler, whatever else it could be given.
func TestHandlersThatTakeTheEvent(t *testing.T) {
	t.Parallel()
	for _, parameters := range []string{"e", "e = None", "e, a = 1", "a = 1, b = 2", "*e", "e, *a, b = 1, **c", "e, *, a = 1"} {
		source := "def f(" + parameters + "): pass\non_event('t', handler = f)"
		outline, err := New(Limits{}).Inspect(program.Program{Source: []byte(source)})
		if err != nil || len(outline.Handlers) != 1 {
			t.Errorf("f(%s): handlers %v, error %v", parameters, outline.Handlers, err)
		}
	}
}

// A flow that was registered before handlers were checked strictly still works as it did: its run begins, and fails at the call.
func TestAHandlerOfAnOlderFlowIsStillCalled(t *testing.T) {
	t.Parallel()
	p := program.Program{Source: []byte("def f(): pass\non_event('t', handler = f)")}
	inputs := []byte(`{"on_event":{"handler":"f","event":{}}}`)
	scripts := New(Limits{})
	if err := scripts.Check(p, inputs); err != nil {
		t.Errorf("its start is refused: %v", err)
	}
	m, err := scripts.Open(p, inputs, program.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Replay(nil); err == nil || !strings.Contains(err.Error(), "function f accepts no arguments") {
		t.Errorf("the run ends with %v", err)
	}
}

// TestAHandlerIsCalledWithItsEvent starts a flow as an event does (program.HandlerInput).
func TestAHandlerIsCalledWithItsEvent(t *testing.T) {
	t.Parallel()
	const source = "def f(e): print(e.data.id)\non_event('t', handler = f)\ndef main(never): fail()\ndef two(a, b): pass"
	scripts := New(Limits{})
	run := func(inputs string) ([]history.Entry, error) {
		m, err := scripts.Open(program.Program{Source: []byte(source)}, []byte(inputs), program.Environment{})
		if err != nil {
			return nil, err
		}
		defer m.Close()
		err = m.Replay(nil)
		entries, _ := m.Take()
		return entries, err
	}
	entries, err := run(`{"on_event":{"handler":"f","event":{"type":"t","data":{"id":5}}}}`)
	if err != nil || len(entries) != 1 || string(entries[0].Value) != `"5"` {
		t.Errorf("recorded %v, error %v", entries, err)
	}
	for _, tt := range []struct{ inputs, want string }{
		{`{"on_event":{"handler":"g","event":{}}}`, `found the handler "g", expected a function`},
		{`{"on_event":{"handler":"two","event":{}}}`, `found the handler "two", expected a function`},
		{`{"on_event":{"handler":"f"}}`, "expected exactly the members"},
		{`{"on_event":[]}`, "found a list"},
		{`{}`, "inputs.never: missing"},
	} {
		if _, err := run(tt.inputs); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: found %v, expected %q", tt.inputs, err, tt.want)
		}
	}
}

// TestACallOfWhatNothingDefinesIsAProblem: it could only be an input, and no input is a function. Other names may be inputs.
func TestACallOfWhatNothingDefinesIsAProblem(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"for d in deployments_for(rollout):\n    advance_one(d)\n": "main.star:1:10: deployments_for is called, and is not defined: expected a function; an input cannot be one; main.star:2:5: advance_one is called",
		"def main(rollout):\n    (apply)(rollout)\n":               "main.star:2:6: apply is called",
		"def main(apply):\n    apply()\n":                          "",
		"print(rollout.id, rollout.get(1), len(gates))\n":          "",
		"f = gates\nf()\n": "",
	} {
		_, err := New(Limits{}).Inspect(program.Program{Source: []byte(source)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, expected %q", source, err, want)
		}
	}
}
