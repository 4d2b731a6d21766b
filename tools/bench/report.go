package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// report collects figures.
type report struct {
	CPUs    int       `json:"cpus"`
	Started time.Time `json:"started"`
	Rows    []row     `json:"rows"`
	mu      sync.Mutex
}

// row is one measurement. What does not apply is zero, and left out.
type row struct {
	Scenario string `json:"scenario"`
	// Engine is "lockstep" or the name of a peer.
	Engine  string `json:"engine"`
	Clients int    `json:"clients,omitempty"`
	// N is how many things were done, Unit what they are.
	N    int    `json:"n,omitempty"`
	Unit string `json:"unit,omitempty"`
	// PerSecond is the throughput; P50 and P99 are latencies in milliseconds.
	PerSecond float64 `json:"per_second,omitempty"`
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	// CPU and its parts are milliseconds of processor time for each of N.
	CPU      float64 `json:"cpu_ms,omitempty"`
	Service  float64 `json:"cpu_service_ms,omitempty"`
	Postgres float64 `json:"cpu_postgres_ms,omitempty"`
	Client   float64 `json:"cpu_client_ms,omitempty"`
	// WAL is bytes of write-ahead log, Commits transactions, for each of N.
	WAL     float64 `json:"wal_bytes,omitempty"`
	Commits float64 `json:"commits,omitempty"`
	// Load is the machine's load average at the end.
	Load float64 `json:"load"`
	// Note is whatever else there is to say.
	Note string `json:"note,omitempty"`
}

func newReport() *report { return &report{CPUs: runtime.NumCPU(), Started: time.Now()} } //nolint:forbidigo // the date of the run

func (r *report) add(rows ...row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, added := range rows {
		added.Load = load()
		r.Rows = append(r.Rows, added)
	}
}

func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\tengine\tclients\tn\t/s\tp50 ms\tp99 ms\tCPU ms\tservice\tpostgres\tclient\tWAL B\tcommits\tload\t note")
	for _, m := range r.Rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t %s\n", m.Scenario, m.Engine, m.Clients, m.N, m.Unit,
			figure(m.PerSecond, "%.0f"), figure(m.P50, "%.2f"), figure(m.P99, "%.2f"), figure(m.CPU, "%.3f"),
			figure(m.Service, "%.3f"), figure(m.Postgres, "%.3f"), figure(m.Client, "%.3f"), figure(m.WAL, "%.0f"),
			figure(m.Commits, "%.3f"), m.Load, m.Note)
	}
	_ = w.Flush() // standard output that is closed wants no table
}

func figure(f float64, format string) string {
	if f == 0 {
		return "-"
	}
	return fmt.Sprintf(format, f)
}

// used fills in what n things have cost.
func (m row) used(u usage, n int) row {
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
	m.Service, m.Postgres, m.Client = each(u.service), each(u.postgres), each(u.client)
	m.CPU = m.Service + m.Postgres + m.Client
	m.WAL, m.Commits = float64(u.wal)/float64(n), float64(u.commits)/float64(n)
	return m
}

// latencies are what single operations took.
type latencies []time.Duration

// at is the p-th part of them, in milliseconds.
func (l latencies) at(p float64) float64 {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return float64(l[int(float64(len(l)-1)*p)].Microseconds()) / 1000
}
