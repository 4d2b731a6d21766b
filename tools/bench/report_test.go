package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var hundred latencies
	for i := 100; i > 0; i-- { // not in order
		hundred = append(hundred, time.Duration(i)*time.Millisecond)
	}
	for _, c := range []struct {
		name string
		of   latencies
		p    float64
		want float64
	}{
		{"none", nil, 0.5, 0},
		{"one", latencies{1500 * time.Microsecond}, 0.99, 1.5},
		{"the middle of two", latencies{3 * time.Millisecond, time.Millisecond}, 0.5, 1},
		{"the middle", hundred, 0.5, 50},
		{"the 99th", hundred, 0.99, 99},
		{"the last", hundred, 1, 100},
		{"the first", hundred, 0, 1},
	} {
		if got := slices.Clone(c.of).at(c.p); got != c.want {
			t.Errorf("%s: %g ms, expected %g", c.name, got, c.want)
		}
	}
}

func TestWhatWasUsedIsSharedOut(t *testing.T) {
	t.Parallel()
	before := usage{service: time.Second, postgres: 2 * time.Second, client: 3 * time.Second, wal: 1000, commits: 10}
	after := usage{service: 3 * time.Second, postgres: 6 * time.Second, client: 4 * time.Second, wal: 9000, commits: 30}
	got := row{Scenario: "s", N: 4}.used(after.since(before), 4)
	want := row{Scenario: "s", N: 4, CPU: 1750, Service: 500, Postgres: 1000, Client: 250, WAL: 2000, Commits: 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheTableAndTheFileAgree prints two rows, one of which has next to nothing.
func TestTheTableAndTheFileAgree(t *testing.T) {
	t.Parallel()
	r := newReport()
	r.add(row{
		Scenario: "start", Engine: "lockstep", Clients: 64, N: 1000, Unit: "starts", PerSecond: 6171.4, P50: 9.126, P99: 20.5,
		CPU: 0.27, Service: 0.1, Postgres: 0.12, Client: 0.05, WAL: 1931.7, Commits: 0.021,
	})
	r.add(row{Scenario: "peer", Engine: "river", Note: "not measured"})
	var table strings.Builder
	r.print(&table)
	var cells [][]string
	for line := range strings.Lines(table.String()) {
		cells = append(cells, strings.Fields(line))
	}
	for i := range r.Rows { // the machine's, whatever it was
		cells[i+1] = slices.Delete(cells[i+1], len(cells[i+1])-1-i*2, len(cells[i+1])-i*2)
		r.Rows[i].Load = 0
	}
	want := [][]string{
		strings.Fields("scenario engine clients n /s p50 ms p99 ms CPU ms service postgres client WAL B commits load note"),
		strings.Fields("start lockstep 64 1000 starts 6171 9.13 20.50 0.270 0.100 0.120 0.050 1932 0.021"),
		strings.Fields("peer river 0 0 - - - - - - - - - not measured"),
	}
	if diff := cmp.Diff(want, cells); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		CPUs int              `json:"cpus"`
		Rows []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	rows := []map[string]any{{
		"scenario": "start", "engine": "lockstep", "clients": 64.0, "n": 1000.0, "unit": "starts", "per_second": 6171.4, "p50_ms": 9.126,
		"p99_ms": 20.5, "cpu_ms": 0.27,
		"cpu_service_ms": 0.1, "cpu_postgres_ms": 0.12, "cpu_client_ms": 0.05, "wal_bytes": 1931.7, "commits": 0.021, "load": 0.0,
	}, {"scenario": "peer", "engine": "river", "load": 0.0, "note": "not measured"}}
	if diff := cmp.Diff(rows, file.Rows); diff != "" || file.CPUs < 1 {
		t.Errorf("the file, of %d processors (-want +got):\n%s", file.CPUs, diff)
	}
}
