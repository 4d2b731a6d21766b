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

// StandbyMetrics are how far behind a standby is, and what it was asked; a nil Standby has none.
func StandbyMetrics(s *Standby) prometheus.Collector {
	return standbyMetrics{
		standby: s,
		lag: prometheus.NewDesc("lockstep_database_standby_lag_seconds",
			"Age of what is read on the standby of the database, at most; missing while that is not known.", nil, nil),
		reads: prometheus.NewDesc("lockstep_database_reads_total",
			"Requests that a standby of the database might have answered, by the server that did.", []string{"server"}, nil),
	}
}

type standbyMetrics struct {
	standby    *Standby
	lag, reads *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m standbyMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.lag
	ch <- m.reads
}

// Collect implements prometheus.Collector.
func (m standbyMetrics) Collect(ch chan<- prometheus.Metric) {
	if m.standby == nil {
		return
	}
	if lag, known := m.standby.Lag(); known {
		ch <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, lag.Seconds())
	}
	ch <- prometheus.MustNewConstMetric(m.reads, prometheus.CounterValue, float64(m.standby.countedThere.Load()), "standby")
	ch <- prometheus.MustNewConstMetric(m.reads, prometheus.CounterValue, float64(m.standby.countedHere.Load()), "primary")
}
