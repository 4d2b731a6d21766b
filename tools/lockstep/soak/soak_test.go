package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

// TestMain is also what the stack starts as its child processes: `<this binary> serve PART …`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(cli.Main("test", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// series makes a sample every ten seconds for half an hour.
func series(value func(i int) float64) []point {
	points := make([]point, 180)
	for i := range points {
		points[i] = point{At: float64(10 * i), Value: value(i)}
	}
	return points
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const mebibyte = 1 << 20
	for _, tt := range []struct {
		name, of string
		value    func(i int) float64
		want     verdict
	}{
		{"nothing changes", "goroutines", func(int) float64 { return 90 }, flat},
		{"up and down as the garbage collector does", "live heap", func(i int) float64 { return float64(20+i%7) * mebibyte }, flat},
		{"a pool that fills in the beginning", "connections", func(i int) float64 { return float64(min(i, 12)) }, flat},
		{"a few odd samples", "open files", func(i int) float64 {
			if i%40 == 39 {
				return 500
			}
			return 24
		}, flat},
		{"a queue that is emptied again", "rows", func(i int) float64 { return float64(100 * (i % 2)) }, flat},
		{"a goroutine for every tenth rollout", "goroutines", func(i int) float64 { return 90 + float64(2*i)/10 }, grows},
		{"40 KB a rollout", "live heap", func(i int) float64 { return 20*mebibyte + float64(2*i)*40e3 }, grows},
		{"a connection every two minutes", "connections", func(i int) float64 { return 10 + float64(i/12) }, grows},
		{"a row that every rollout leaves in a queue", "rows", func(i int) float64 { return float64(2 * i) }, grows},
		{"a record", "records", func(i int) float64 { return float64(2 * i) }, record},
		{"what becomes less", "memory", func(i int) float64 { return float64(300-i) * mebibyte }, flat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k, known := kinds()[tt.of]
			if !known {
				t.Fatalf("there is no kind %q", tt.of)
			}
			if got := judge(tt.name, k, series(tt.value)); got.Verdict != tt.want {
				t.Errorf("grew by %.1f %s of %.1f: got %s, want %s", got.Growth, got.Unit, got.Allowed, got.Verdict, tt.want)
			}
		})
	}
}

// A report is as short as a soak may be.
func TestFewSamplesAreJudgedToo(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		points := series(func(i int) float64 { return float64(1000 * i) })[:n+1]
		if got := judge("short", kinds()["rows"], points); got.First != points[(n+1)/4].Value {
			t.Errorf("%d samples: got %+v, want the first to be %v", n+1, got, points[(n+1)/4].Value)
		}
	}
}

// A short soak runs rollouts through every service and samples everything. Whether something grows takes longer to see.
func TestASoakSamplesEverything(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	r, err := soak(ctx, options{
		lasting: 3 * time.Second, pace: time.Second, sampling: time.Second, applications: 2, dir: t.TempDir(), database: pgtest.URL(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rollouts == 0 || r.Samples == 0 {
		t.Fatalf("%d rollouts, %d samples; want some of each", r.Rollouts, r.Samples)
	}
	found := map[string]line{}
	for _, l := range r.Series {
		found[l.Name] = l
		if l.Unit == "" || l.Verdict == "" || len(l.Points) != r.Samples {
			t.Errorf("%s: got unit %q, verdict %q, %d points; want all, and %d points", l.Name, l.Unit, l.Verdict, len(l.Points), r.Samples)
		}
	}
	for _, service := range services() {
		for _, what := range []string{"live heap", "memory", "goroutines", "open files"} {
			if found[service+": "+what].Last <= 0 {
				t.Errorf("%s: %s: got %+v, want a value", service, what, found[service+": "+what])
			}
		}
	}
	for service, tables := range records() {
		if found["database, "+service+": connections"].Last <= 0 {
			t.Errorf("connections of %s: got %+v, want some", service, found["database, "+service+": connections"])
		}
		for _, table := range tables {
			if _, ok := found[service+"."+table+": records"]; !ok {
				t.Errorf("%s.%s is called a record, and is no table", service, table)
			}
		}
	}
	for _, name := range []string{
		"nats: sockets", "stream CLUSTER_CALLS: waiting", "consumer domain of DOMAIN: waiting",
		"workflow.runnable: rows", "domain: queues",
	} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s was not sampled", name)
		}
	}
}

// What is printed, written and answered says the same.
func TestReport(t *testing.T) {
	t.Parallel()
	r := report{Lasted: 60, Rollouts: 7, Samples: 3, Series: []line{
		{Name: "a: rows", Unit: "rows", Verdict: flat, Growth: 1, Allowed: 25},
		{Name: "b: goroutines", Unit: "goroutines", Verdict: grows, Growth: 40, Allowed: 8},
		{Name: "c: records", Unit: "rows", Verdict: record, Growth: 900},
	}}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.HasPrefix(lines[0], "7 rollouts in 60 s") || !strings.HasPrefix(lines[2], "grows") || !strings.HasPrefix(lines[4], "record") {
		t.Errorf("got\n%s\nwant what grows first, and records last", out.String())
	}
	if err := r.verdict(); err == nil || !strings.Contains(err.Error(), "b: goroutines grew by 40.0") ||
		strings.Contains(err.Error(), "c: records") {
		t.Errorf("the verdict is %v, want what grows, and no record", err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(text, &read); err != nil || read.Rollouts != 7 || len(read.Series) != 3 || read.Series[1].Verdict != grows {
		t.Errorf("written as %s, %v", text, err)
	}
}
