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

// checkWithin bounds one readiness check: a probe that fails is more useful than one that hangs.
const checkWithin = 2 * time.Second

// Health serves the operational endpoints of a process: /healthz (it runs: always 200), /readyz (200 if every check passes, else 503, with
// the outcome of each), /version, and /metrics for Prometheus (Go, process, version, the metrics of this package, and the given
// collectors).
func Health(checks map[string]func(context.Context) error, metrics ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap())),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(Metrics()...)
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
		_ = json.NewEncoder(w).Encode(build.Read()) // fails only if the caller hung up
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// liveHeap adds go_gc_heap_live_bytes, the heap after the last garbage collection: unlike the heap in use, which varies between
// collections, it grows only with retained memory.
func liveHeap() collectors.GoRuntimeMetricsRule {
	return collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}
}

// buildInfo is always 1; its labels are the build information.
func buildInfo() prometheus.Collector {
	info := build.Read()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lockstep_build_info", Help: "What the binary was built from; always 1.",
		ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "go": info.Go},
	}, func() float64 { return 1 })
}

// report is the body of /healthz and /readyz.
type report struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks,omitempty"`
}

// examine runs all checks at once, since a probe has a short timeout.
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
	_ = json.NewEncoder(w).Encode(rep) // fails only if the caller hung up
}
