package script

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

const recordedProgram = `
def step(name):
    run("echo", {"name": name})
    now()

a = spawn(step, "a")
b = spawn(step, "b")
gather(a, b)
wait_for_event(type="done", filter={"id": 1})
`

// TestMismatch replays a program over histories that other programs left behind: each must be found, and named.
func TestMismatch(t *testing.T) {
	t.Parallel()
	entries, failure := execute(t, recordedProgram, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	edit := func(change func([]history.Entry) []history.Entry) []history.Entry {
		return change(slices.Clone(entries))
	}
	for _, tt := range []struct {
		name    string
		program string
		history []history.Entry
		want    string
	}{
		{
			"other arguments", strings.Replace(recordedProgram, `{"name": name}`, `{"name": name + "!"}`, 1), entries,
			"program and history differ at main.star:3:8, call 1.0 of branch and index: the arguments of run echo are not those recorded",
		},
		{
			"other function", strings.Replace(recordedProgram, `"echo"`, `"scream"`, 1), entries,
			"main.star:3:8, call 1.0 of branch and index: recorded run echo, now run scream",
		},
		{
			"other operation on the spot", strings.Replace(recordedProgram, "now()", "uuid()", 1), entries,
			"main.star:4:9, call 1.1 of branch and index: recorded now, now uuid",
		},
		{
			"other filter", strings.Replace(recordedProgram, `{"id": 1}`, `{"id": 2}`, 1), entries,
			"main.star:9:15, call 0.0 of branch and index: the arguments of wait done are not those recorded",
		},
		{
			"one operation less", strings.Replace(recordedProgram, `wait_for_event(type="done", filter={"id": 1})`, "", 1), entries,
			"the history holds wait done, which the program did not ask for",
		},
		{
			"one operation more", strings.Replace(recordedProgram, "    now()", "    uuid()\n    now()", 1), entries,
			"call 1.1 of branch and index: recorded now, now uuid",
		},
		{
			"an entry twice", recordedProgram, edit(func(h []history.Entry) []history.Entry { return slices.Insert(h, 1, h[0]) }),
			"the history continues with run echo of call",
		},
		{
			"branches the other way round", recordedProgram, edit(func(h []history.Entry) []history.Entry {
				h[1].Op = history.OpRef{Branch: 9, Index: 1}
				return h
			}),
			"the history continues with now of call 9.1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := open(t, tt.program, tt.history)
			err := m.Replay(tt.history)
			if _, ok := errors.AsType[*program.Mismatch](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, expected a mismatch with %q", err, tt.want)
			}
			if ended, _ := m.Outcome(); !ended {
				t.Error("the run continues")
			}
			if entries, _ := m.Take(); len(entries) > 0 {
				t.Errorf("it recorded %v", entries)
			}
		})
	}
}

const newerProgram = `
reply = channel()
random()
receive(reply)
poll("echo", {"n": 1}, until = {"n": 1})
`

// TestMismatchOfTheNewerOperations is TestMismatch for channels, chance and polls.
func TestMismatchOfTheNewerOperations(t *testing.T) {
	t.Parallel()
	history, failure := execute(t, newerProgram, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	for _, tt := range []struct{ name, was, is, want string }{
		{
			"poll of something else", `{"n": 1}, until`, `{"n": 2}, until`,
			"main.star:5:5, call 0.3 of branch and index: the arguments of poll echo are not those recorded",
		},
		{
			"poll for something else", `until = {"n": 1}`, `until = {"n": 2}`,
			"main.star:5:5, call 0.3 of branch and index: the arguments of poll echo are not those recorded",
		},
		{
			"run for poll", `poll("echo", {"n": 1}, until = {"n": 1})`, `run("echo", {"n": 1})`,
			"main.star:5:4, call 0.3 of branch and index: recorded poll echo, now run echo",
		},
		{
			"receive with a timeout", "receive(reply)", "receive(reply, timeout = 5)",
			"main.star:4:8, call 0.2 of branch and index: the arguments of receive are not those recorded",
		},
		{"no chance", "random()", "uuid()", "main.star:3:5, call 0.1 of branch and index: recorded random, now uuid"},
		{
			"no channel", "reply = channel()", `reply = "ch_AAAAAAAAAAAAAAAAAAAAAAAAAA"`,
			"call 0.0 of branch and index: recorded channel, now random",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := open(t, strings.Replace(newerProgram, tt.was, tt.is, 1), history).Replay(history)
			if _, ok := errors.AsType[*program.Mismatch](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, expected a mismatch with %q", err, tt.want)
			}
		})
	}
}

func TestPrintIsRecordedAndCapped(t *testing.T) {
	t.Parallel()
	history, failure := execute(t, `
print("one", 1)
print("a line that is too long")
print("third")
print("fourth")
`, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	var lines []string
	for _, e := range history {
		var line string
		if err := json.Unmarshal(e.Value, &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	want := []string{"one 1", "a line tha… cut", "… further lines are not kept"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	scripts := New(Limits{Source: 2000})
	for _, tt := range []struct {
		name, program, inputs, want string
		modules                     map[string]string
	}{
		{name: "syntax", program: "x = = 1", want: "starlark: main.star:1:5: got '=', want primary expression"},
		{name: "unknown name", program: "\nx = y\nz = w", want: "starlark: main.star:2:5: undefined: y; main.star:3:5: undefined: w"},
		{
			name: "load of nothing", program: `load("x.star", "y")`,
			want: `starlark: main.star:1:6: load of "x.star", which is not among the modules: found none`,
		},
		{name: "module", program: "x = 1", modules: map[string]string{"m.star": "def"}, want: "modules.m.star: m.star:1:4:"},
		{
			name: "inputs seen by a module", program: "x = 1", inputs: `{"a":1}`, modules: map[string]string{"m.star": "y = a"},
			want: "modules.m.star: m.star:1:5: undefined: a",
		},
		{name: "inputs are no JSON", program: "x = 1", inputs: "{", want: "inputs: not JSON"},
		{name: "inputs are no object", program: "x = 1", inputs: "[]", want: "inputs: found a JSON list, expected an object"},
		{name: "bad name", program: "x = 1", inputs: `{"a-b":1}`, want: "inputs.a-b: not a name that a global of a program can have"},
		{name: "keyword", program: "x = 1", inputs: `{"while":1}`, want: "inputs.while: not a name"},
		{name: "builtin", program: "x = 1", inputs: `{"run":1}`, want: "inputs.run: is the name of a builtin"},
		{
			name: "parameter of main", program: "def main(rollout): pass", inputs: `{"a":1}`,
			want: "inputs.rollout: missing; main takes it at main.star:1:10",
		},
		{name: "too long", program: "#" + strings.Repeat("x", 2000), want: "starlark: 2001 bytes, expected at most 2000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := program.Program{Source: []byte(tt.program), Modules: map[string][]byte{}}
			for name, source := range tt.modules {
				p.Modules[name] = []byte(source)
			}
			err := scripts.Check(p, []byte(tt.inputs))
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, expected %q", err, tt.want)
			}
		})
	}
}

// A circle of loads is refused before the run, with its files; one that nothing leads to does no harm. A run that was begun before
// is opened as ever, and does what comes before the load.
func TestCirclesOfLoads(t *testing.T) {
	t.Parallel()
	modules := map[string][]byte{
		"a.star": []byte("load('b.star', 'b')\na = 1"), "b.star": []byte("load('c.star', 'c')\nb = 1"),
		"c.star":    []byte("c = 1\nload('a.star', 'a')"),
		"self.star": []byte("load('self.star', y = 'x')\nx = 1"), "twice.star": []byte("load('good.star', 'good')\ntwice = 1"),
		"good.star": []byte("good = 1"),
	}
	for source, want := range map[string]string{
		"load('a.star', 'a')":    `modules.c.star: c.star:2:6: load of "a.star", which leads back to itself: a.star loads b.star loads c.star loads a.star`,
		"load('c.star', 'c')":    `modules.b.star: b.star:1:6: load of "c.star", which leads back to itself: c.star loads a.star loads b.star loads c.star`,
		"load('self.star', 'x')": `modules.self.star: self.star:1:6: load of "self.star", which leads back to itself: self.star loads self.star`,
		"load('good.star', 'good')\nload('twice.star', 'twice')": "",
	} {
		p := program.Program{Source: []byte(source), Modules: modules}
		scripts := New(Limits{})
		_, inspected := scripts.Inspect(p)
		for _, err := range []error{inspected, scripts.Check(p, nil), scripts.Check(p, nil)} { // the second time it is known
			if (err == nil) != (want == "") || err != nil && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: found %v, expected %q", source, err, want)
			}
		}
	}
	m, err := New(Limits{}).Open(program.Program{Source: []byte("print('before')\nload('self.star', 'x')"), Modules: modules}, nil,
		program.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.Replay(nil)
	if entries, _ := m.Take(); len(entries) != 1 || err == nil || !strings.Contains(err.Error(), "loads itself") {
		t.Errorf("recorded %v, error %v, expected the line before and the failure of the load", entries, err)
	}
}

func TestAPanicFailsOneRun(t *testing.T) {
	t.Parallel()
	m := open(t, `x = 1`, nil).(*machine)
	m.start(func(*starlark.Thread) (starlark.Value, error) { panic("broken") })
	err := m.Replay(nil)
	if panicked, ok := errors.AsType[*PanicError](err); !ok || len(panicked.StackTrace()) == 0 {
		t.Errorf("found %v, expected a panic with its stack", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{testInputs, `[1,2.5,"x",null,true,{"a":{}}]`, `1e400`, `{"a":1,"a":2}`, `123456789012345678901234567890`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := decode([]byte(text))
		if err != nil {
			return
		}
		b, err := encode(v, 1<<20)
		if err != nil {
			t.Skip(err)
		}
		again, err := decode(b)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, b, err)
		}
		if b2, _ := encode(again, 1<<20); string(b2) != string(b) {
			t.Errorf("%q is not canonical: again it is %q", b, b2)
		}
	})
}

func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"a: [1, 2]\nb: &x {c: d}\ne: *x", "<<: [a]", "? [1]\n: 2", "a: !!binary x",
		"- 0x1F\n- 1_000\n- .inf", "*a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := readYAML(text, true)
		if err == nil && v == nil {
			t.Errorf("%q has no value", text)
		}
	})
}
