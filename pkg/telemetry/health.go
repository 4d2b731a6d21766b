package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockstep-cd/lockstep/pkg/build"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// checkWithin bounds one readiness check: a probe that hangs says less than one that fails.
const checkWithin = 2 * time.Second

// Health serves what an operator's machinery asks a process: /healthz (it runs: always 200), /readyz (every check
// passes: 200, else 503, with the outcome of each), /version and /metrics (Go, process, version, what this package counts, and the
// collectors given, for Prometheus).
func Health(checks map[string]func(context.Context) error, metrics ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap())), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(buildInfo())
	registry.MustRegister(process()...)
	registry.MustRegister(metrics...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, report{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		rep := examine(r.Context(), checks)
		status := http.StatusOK
		if rep.Status != "ok" {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, rep)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(build.Read()) // the caller hung up; there is nobody to tell
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// liveHeap adds go_gc_heap_live_bytes, what the last garbage collection left: unlike the heap in use, which goes up and down between two
// of them, it grows only with what is kept.
func liveHeap() collectors.GoRuntimeMetricsRule {
	return collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}
}

// buildInfo is always 1; its labels are what the binary was made from.
func buildInfo() prometheus.Collector {
	info := build.Read()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lockstep_build_info", Help: "What the binary was made from; always 1.",
		ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "go": info.Go},
	}, func() float64 { return 1 })
}

// report is the body of /healthz and /readyz.
type report struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks,omitempty"`
}

// examine runs all checks at once, since a probe has little patience.
func examine(ctx context.Context, checks map[string]func(context.Context) error) report {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	rep := report{Status: "ok", Checks: map[string]string{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, check := range checks {
		wg.Go(func() {
			outcome := "ok"
			if err := check(ctx); err != nil {
				outcome = fault.Public(err)
			}
			mu.Lock()
			defer mu.Unlock()
			rep.Checks[name] = outcome
			if outcome != "ok" {
				rep.Status = "not ready"
			}
		})
	}
	wg.Wait()
	return rep
}

func answer(w http.ResponseWriter, status int, rep report) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(rep) // the caller hung up; there is nobody to tell
}
