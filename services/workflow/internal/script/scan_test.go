package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// slowly is what decode does where scan gives up.
func slowly(data []byte) (starlark.Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows")
	}
	return v, nil
}

// FuzzScan has scan read what decode reads, or give up: a history must not read differently than it was written.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"b": 1, "a": [true, false, null, -0, 1.50, 1e3, 12345678901234567890], "b": "again"}`, `"\u00e9\ud83d\ude00\n"`, `"\ud800"`, "\"\xff\"",
		`01`, `-`, `1.`, `.5`, `+1`, `1e`, `1_0`, `[1,]`, `{"a":1,}`, `{"a" 1}`, ` [ ] `, `{}x`, "\"\x01\"", `nul`, `"open`,
		`"\`, `1e999`, `[[[]]]`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := scan(data)
		if !ok {
			return
		}
		want, err := slowly(data)
		if err != nil {
			t.Fatalf("%q: scan reads %s, encoding/json says %v", data, got, err)
		}
		if got.String() != want.String() || got.Type() != want.Type() {
			t.Errorf("%q: scan reads %s, encoding/json %s", data, got, want)
		}
	})
}

// BenchmarkReplay is B8: what one entry of a history costs a replay, beside reading it from the database.
func BenchmarkReplay(b *testing.B) {
	for _, entries := range []int{10, 1_000, 50_000} {
		b.Run(fmt.Sprintf("%d entries", entries), func(b *testing.B) {
			scripts := New(Limits{})
			source := program.Program{Source: []byte("for i in range(n):\n    last = run(\"act\", {\"number\": i})\n")}
			inputs := fmt.Appendf(nil, `{"n": %d}`, entries)
			m, err := scripts.Open(source, inputs, program.Environment{})
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Replay(nil); err != nil {
				b.Fatal(err)
			}
			var past []history.Entry
			for i := range entries {
				value := fmt.Appendf(nil, `{"ok":true,"number":%d,"sha":"0123456789abcdef0123456789abcdef01234567","labels":{"app":"web","tier":"front"},"ports":[80,443]}`, i)
				m.Complete(history.Completion{Op: m.Pending()[0].Ref, Value: value})
				taken, _ := m.Take()
				past = append(past, taken...)
			}
			m.Close()
			before := processorTime(b)
			for b.Loop() {
				m, err := scripts.Open(source, inputs, program.Environment{})
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Replay(past); err != nil {
					b.Fatal(err)
				}
				m.Close()
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/float64(entries), "cpu-ns/entry")
		})
	}
}

// BenchmarkInterpreter is the program of BenchmarkReplay in the interpreter alone, with a builtin that only answers: what is
// left of a replay if recording, comparing and decoding cost nothing.
func BenchmarkInterpreter(b *testing.B) {
	const entries = 1_000
	answer := starlark.NewBuiltin("run", func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
		return starlark.None, nil
	})
	options := &syntax.FileOptions{TopLevelControl: true, GlobalReassign: true}
	_, program, err := starlark.SourceProgramOptions(options, "main.star", fmt.Appendf(nil,
		"for i in range(%d):\n    last = run(\"act\", {\"number\": i})\n", entries), func(name string) bool { return name == "run" })
	if err != nil {
		b.Fatal(err)
	}
	before := processorTime(b)
	for b.Loop() {
		if _, err := program.Init(&starlark.Thread{}, starlark.StringDict{"run": answer}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/entries, "cpu-ns/entry")
}

// processorTime is what this process has used, in nanoseconds: a machine that has other things to do lengthens the time
// on the clock, and not this one. It includes the collection of garbage.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
