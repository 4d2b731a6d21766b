package bus

import "github.com/prometheus/client_golang/prometheus"

// Metrics say whether this process is connected to NATS, and how often it had to connect again. conn answers the connection, or nil before
// there is one.
func Metrics(conn func() *Conn) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_nats_connected",
			Help: "Whether this process is connected to NATS: 1 or 0.",
		}, func() float64 {
			if c := conn(); c != nil && c.connected() {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lockstep_nats_reconnects_total", Help: "Reconnections of this process to NATS."},
			func() float64 {
				if c := conn(); c != nil {
					return float64(c.nc.Stats().Reconnects)
				}
				return 0
			}),
	}
}
