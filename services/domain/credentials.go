package domain

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// How often values are sealed anew that are sealed with another key than the primary one, and how often all credentials are announced again
// although nothing has changed: the workflow service may have lost them.
const (
	resealInterval   = 30 * time.Second
	announceInterval = 6 * time.Hour
)

// keepCredentials announces credentials and seals them anew, at once and from time to time, until ctx ends.
func (s *service) keepCredentials(ctx context.Context) error {
	var announced time.Time
	for ctx.Err() == nil {
		if now := clock.System().Now(); now.Sub(announced) >= announceInterval {
			if err := s.credentials.Announce(ctx); err == nil {
				announced = now
			} else if ctx.Err() == nil {
				s.log.WarnContext(ctx, "announcing credentials failed; will retry", telemetry.KeyError, err)
			}
		}
		resealed, err := s.credentials.Reseal(ctx)
		if resealed > 0 {
			s.log.InfoContext(ctx, "credentials sealed with the primary key", slog.Int(telemetry.KeyCount, resealed))
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "sealing credentials with the primary key failed; will retry", telemetry.KeyError, err)
		}
		s.pause(ctx, resealInterval)
	}
	return nil
}

// credentialMetrics exports how many values of credentials end soon.
type credentialMetrics struct {
	read func(ctx context.Context) (expiring, expired int64, err error)
}

// Describe implements prometheus.Collector.
func (credentialMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- credentialCounts() }

// Collect implements prometheus.Collector, whose interface has no context.
func (m credentialMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	expiring, expired, err := m.read(ctx)
	if err != nil {
		return // a database that does not answer shows in other metrics
	}
	ch <- prometheus.MustNewConstMetric(credentialCounts(), prometheus.GaugeValue, float64(expiring), "expiring")
	ch <- prometheus.MustNewConstMetric(credentialCounts(), prometheus.GaugeValue, float64(expired), "expired")
}

func credentialCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_credentials", "Credentials of all organizations whose values end within 14 days (expiring) or have ended (expired), "+
		"by state. Every replica reports the same.", []string{"state"}, nil)
}
