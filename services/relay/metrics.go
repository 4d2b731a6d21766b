package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/bus"
)

// Exposed are the collectors of everything that /metrics of this service exposes beside telemetry.Metrics. conn returns the connection to
// the bus, or nil while there is none. Without conn they can be described, and not collected.
func Exposed(conn func() *bus.Conn) []prometheus.Collector { return bus.Metrics(conn) }
