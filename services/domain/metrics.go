package domain

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// Metrics are the collectors of what this service alone shows, with nothing behind them: they can be described, for checks of dashboards and
// alerts, and not collected.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{store.Metrics(nil), telemetry.BreakGlass(nil), graph.NewStreams(1)}
}
