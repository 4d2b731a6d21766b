package registry

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// exposition is what the metrics of this service are read from.
type exposition struct {
	budget *gitfetch.Budget
	conn   func() *bus.Conn
	pool   *pgxpool.Pool
}

// collectors are everything that /metrics exposes beside telemetry.Metrics.
func (e exposition) collectors() []prometheus.Collector {
	all := append([]prometheus.Collector{pg.Metrics(e.pool), outbox.Metrics(e.pool)}, bus.Metrics(e.conn)...)
	return append(all, e.budget.Metrics()...)
}

// Exposed are the collectors of everything that /metrics of this service exposes beside telemetry.Metrics. They read from nothing: they
// can be described, for references and for checks of dashboards and alerts, and not collected.
func Exposed() []prometheus.Collector {
	return exposition{budget: gitfetch.NewBudget(gitfetch.Limits{})}.collectors()
}
