package domain

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Journal is how the journals are sealed and checked.
type Journal struct {
	// Unsealed switches sealing and checking off: the journals are still append-only, but a change by the owner of the tables is not found.
	Unsealed bool `koanf:"unsealed"`
	// SealEvery is how often new rows are sealed.
	SealEvery time.Duration `koanf:"seal_every" default:"10s"`
	// CheckEvery is how often the rows that were sealed since the last check, and the states of the newest rollouts, are checked.
	CheckEvery time.Duration `koanf:"check_every" default:"24h"`
}

// prove seals and checks the journals until ctx ends. One process does; a second leader, for a moment, does no harm.
func (s *service) prove(ctx context.Context, c Journal) error {
	for ctx.Err() == nil {
		if _, err := s.evidence.SealAll(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "sealing the journals failed; will retry", slog.Any(telemetry.KeyError, err))
		}
		checked, err := s.evidence.CheckDue(ctx, c.CheckEvery)
		if err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "checking the journals failed; will retry", slog.Any(telemetry.KeyError, err))
		}
		for _, one := range checked {
			// The head is in the log as well, where the owner of the tables cannot change it.
			attrs := []any{
				slog.Int64(telemetry.KeyOrganization, one.OrganizationID), slog.Int64("block", one.Block), slog.String("head", one.Head),
				slog.Int64("position", one.UpTo),
			}
			if one.Problem != "" {
				s.log.ErrorContext(ctx, "the journals are not what was sealed", append(attrs, slog.String("problem", one.Problem))...)
				continue
			}
			s.log.InfoContext(ctx, "journals checked", attrs...)
		}
		_ = clock.Sleep(ctx, clock.System(), c.SealEvery) // if ctx ended, so does the loop
	}
	return nil
}

// journalMetrics are how the checks of the journals went, read by health. Every replica reports the same.
type journalMetrics struct {
	health func(ctx context.Context) (problems int64, oldest time.Time, err error)
}

func (journalMetrics) descriptions() (problems, oldest *prometheus.Desc) {
	return prometheus.NewDesc("lockstep_journal_check_problems", "Organizations whose journals are not what was sealed, or not what states say.", nil, nil),
		prometheus.NewDesc("lockstep_journal_check_oldest_timestamp_seconds",
			"When the organization's journals were checked that were not for longest; 0 before the first check.", nil, nil)
}

// Describe implements prometheus.Collector.
func (m journalMetrics) Describe(ch chan<- *prometheus.Desc) {
	problems, oldest := m.descriptions()
	ch <- problems
	ch <- oldest
}

// Collect implements prometheus.Collector, whose interface has no context.
func (m journalMetrics) Collect(ch chan<- prometheus.Metric) {
	if m.health == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	n, at, err := m.health(ctx)
	if err != nil {
		return
	}
	problems, oldest := m.descriptions()
	ch <- prometheus.MustNewConstMetric(problems, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, float64(at.Unix()))
}
