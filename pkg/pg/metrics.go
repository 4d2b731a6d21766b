package pg

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are how full a pool is: what a service has least of.
func Metrics(pool *pgxpool.Pool) prometheus.Collector {
	return metrics{
		pool:        pool,
		connections: prometheus.NewDesc("lockstep_database_connections", "Connections of the pool, by state.", []string{"state"}, nil),
		most:        prometheus.NewDesc("lockstep_database_connections_max", "Maximum number of connections of the pool.", nil, nil),
		waited:      prometheus.NewDesc("lockstep_database_wait_seconds_total", "Total time spent waiting for a free connection.", nil, nil),
	}
}

type metrics struct {
	pool                      *pgxpool.Pool
	connections, most, waited *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.connections
	ch <- m.most
	ch <- m.waited
}

// Collect implements prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.pool.Stat()
	ch <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(s.AcquiredConns()), "used")
	ch <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(s.IdleConns()), "idle")
	ch <- prometheus.MustNewConstMetric(m.most, prometheus.GaugeValue, float64(s.MaxConns()))
	ch <- prometheus.MustNewConstMetric(m.waited, prometheus.CounterValue, s.AcquireDuration().Seconds())
}
