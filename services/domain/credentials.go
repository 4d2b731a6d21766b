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
	// changedInterval is how often those are announced again that have changed within recently: replicas of the workflow service that do not
	// know what was announced to them may have taken it, for as long as an upgrade lasts. All are announced that often, too, for that long
	// after this service has begun to announce.
	changedInterval = 5 * time.Minute
	recently        = 30 * time.Minute
)

// announcements decides what is announced when.
type announcements struct{ began, all, changed time.Time }

// due reports whether all are announced now, or those that have changed since a time.
func (a *announcements) due(now time.Time) (all bool, changed time.Time) {
	if a.began.IsZero() {
		a.began = now
	}
	every := announceInterval
	if now.Sub(a.began) <= recently {
		every = changedInterval
	}
	switch {
	case now.Sub(a.all) >= every:
		a.all, a.changed = now, now
		return true, time.Time{}
	case now.Sub(a.changed) >= changedInterval:
		a.changed = now
		return false, now.Add(-recently)
	}
	return false, time.Time{}
}

// again has all announced often for a while, as in the beginning: some of them failed. What always fails costs no more than that.
func (a *announcements) again() { a.began = a.changed }

// keepCredentials announces credentials and seals them anew, at once and from time to time, until ctx ends.
func (s *service) keepCredentials(ctx context.Context) error {
	var when announcements
	for ctx.Err() == nil {
		var err error
		if all, changed := when.due(clock.System().Now()); all {
			err = s.credentials.Announce(ctx)
		} else if !changed.IsZero() {
			err = s.credentials.AnnounceChanged(ctx, changed)
		}
		if err != nil && ctx.Err() == nil {
			when.again()
			s.log.WarnContext(ctx, "announcing credentials failed; will retry", telemetry.KeyError, err)
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
