package domain

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/secret"
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
	// ExportKey is a reference to the Ed25519 private key, as PEM (PKCS #8), that exports of the journal are signed with, such as
	// file:/etc/lockstep/journal.pem; without it there are no exports. openssl genpkey -algorithm ed25519 makes one.
	ExportKey string `koanf:"export_key"`
}

// exportKey reads the key that exports are signed with each time, so that it may be replaced; nil where none is configured.
func (c Config) exportKey(log *slog.Logger) (func(ctx context.Context) (ed25519.PrivateKey, error), error) {
	if c.Journal.ExportKey == "" {
		return nil, nil
	}
	secrets, err := secret.New(c.Vault, clock.System(), log)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	return func(ctx context.Context) (ed25519.PrivateKey, error) {
		text, err := secrets.Read(ctx, c.Journal.ExportKey)
		if err != nil {
			return nil, fmt.Errorf("journal.export_key: %w", err)
		}
		if block, _ := pem.Decode([]byte(text)); block != nil {
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if own, ok := key.(ed25519.PrivateKey); ok {
					return own, nil
				}
			}
		}
		return nil, fault.New(fault.Refused, "journal.export_key: found no Ed25519 private key in PEM (PKCS #8) at %s", c.Journal.ExportKey)
	}, nil
}

// prove seals and checks the journals until ctx ends. One process does; a second leader, for a moment, does no harm. A check takes its
// time, and sealing does not wait for it.
func (s *service) prove(ctx context.Context, c Journal) error {
	return run.Parts(ctx, s.log, stopWithin,
		run.Loop("seal", func(ctx context.Context) error { return s.sealJournals(ctx, c) }),
		run.Loop("check", func(ctx context.Context) error { return s.checkJournals(ctx, c) }),
	)
}

func (s *service) sealJournals(ctx context.Context, c Journal) error {
	for ctx.Err() == nil {
		if _, err := s.evidence.SealAll(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "sealing the journals failed; will retry", slog.Any(telemetry.KeyError, err))
		}
		_ = clock.Sleep(ctx, clock.System(), c.SealEvery) // if ctx ended, so does the loop
	}
	return nil
}

func (s *service) checkJournals(ctx context.Context, c Journal) error {
	for ctx.Err() == nil {
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
	return prometheus.NewDesc("lockstep_journal_check_problems",
			"Organizations whose journals are not what was sealed, or not what states say.", nil, nil),
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
