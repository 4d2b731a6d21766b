package domain

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// archived keeps settled rows that are deleted in a bucket, up to a thousand in an object of JSON lines, compressed by gzip:
//
//	settled/ORGANIZATION/KIND/FIRST-LAST-DIGEST.jsonl.gz
//
// FIRST and LAST are the lowest and the highest number of its rows, DIGEST the beginning of the SHA-256 of its lines: the same rows again,
// after a crash before their deletion, replace themselves, and no other rows have the name. The first line says what the others are.
type archived struct{ bucket *archive.Bucket }

var _ retention.Archive = archived{}

// heading is the first line of an object.
type heading struct {
	Organization int64          `json:"organization"`
	Kind         retention.Kind `json:"kind"`
	Rows         int            `json:"rows"`
}

// mostArchived bounds the lines of an object that is read, in bytes without compression.
const mostArchived = 1 << 30

func archivedUnder(organization int64, kind retention.Kind) string {
	return fmt.Sprintf("settled/%d/%s/", organization, kind)
}

// Keep implements retention.Archive.
func (a archived) Keep(ctx context.Context, organization int64, kind retention.Kind, rows []retention.Row) error {
	first, err := json.Marshal(heading{organization, kind, len(rows)})
	if err != nil {
		return fmt.Errorf("encode the heading: %w", err)
	}
	lines := append(first, '\n')
	least, greatest := rows[0].ID, rows[0].ID
	for _, row := range rows {
		least, greatest = min(least, row.ID), max(greatest, row.ID)
		lines = append(append(lines, row.Content...), '\n')
	}
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	if _, err := packed.Write(lines); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	sum := sha256.Sum256(lines)
	name := fmt.Sprintf("%s%019d-%019d-%s.jsonl.gz", archivedUnder(organization, kind), least, greatest, hex.EncodeToString(sum[:8]))
	if err := a.bucket.Put(ctx, name, "application/gzip", content.Bytes()); err != nil {
		return err
	}
	back, err := a.bucket.Get(ctx, name)
	if err != nil {
		return err
	}
	if !bytes.Equal(back, content.Bytes()) {
		return fault.New(fault.Unavailable, "%s: the storage gave back %d bytes that are not those that were stored", name, len(back))
	}
	return nil
}

// Read writes the archived rows of a kind as JSON lines. The error of an object that is not what was stored is Terminal.
func (a archived) Read(ctx context.Context, organization int64, kind retention.Kind, out io.Writer) error {
	for o, err := range a.bucket.List(ctx, archivedUnder(organization, kind), "") {
		if err != nil {
			return err
		}
		content, err := a.bucket.Get(ctx, o.Name)
		if err != nil {
			return err
		}
		lines, err := unpackRows(content, organization, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
		if _, err := out.Write(lines); err != nil {
			return fmt.Errorf("write the rows: %w", err)
		}
	}
	return nil
}

// unpackRows returns the lines of an object behind its heading.
func unpackRows(content []byte, organization int64, kind retention.Kind) ([]byte, error) {
	packed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fault.Because(err, fault.Terminal, "expected gzip")
	}
	lines, err := io.ReadAll(io.LimitReader(packed, mostArchived))
	if err != nil {
		return nil, fault.Because(err, fault.Terminal, "expected gzip")
	}
	first, rest, _ := bytes.Cut(lines, []byte("\n"))
	var h heading
	if err := json.Unmarshal(first, &h); err != nil || h != (heading{organization, kind, bytes.Count(rest, []byte("\n"))}) {
		return nil, fault.New(fault.Terminal, "these are not settled %s of organization %d, as its name says", kind, organization)
	}
	return rest, nil
}

// archivedRows counts the rows that a process has archived, or failed to: each replica reports its own, so take the sum.
func archivedRows() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_archived_rows_total",
		Help: "Settled rows of the domain that were to be archived before their deletion, by outcome: archived or failed. Those that failed are kept.",
	}, []string{"outcome"})
}

// retains makes what deletes settled rows, with the archive if one is configured.
func (s *service) retains(c Config, secrets *secret.Reader, now clock.Clock, log *slog.Logger) error {
	s.retention, s.archivedRows = retention.New(s.store.ForRetention(), now), archivedRows()
	bucket, err := archive.Open(c.Archive, secrets, now, log)
	if err != nil || bucket == nil {
		return err
	}
	s.retention.Archiving(archived{bucket}, func(outcome string, rows int) { s.archivedRows.WithLabelValues(outcome).Add(float64(rows)) })
	return nil
}

// ReadArchived writes the archived rows of a kind as JSON lines to out, and compares each object with its digest: the command archived.
// Its arguments are the number of the organization and the kind.
func ReadArchived(ctx context.Context, c Config, arguments []string, out io.Writer) error {
	c = c.withDefaults()
	organization, err := strconv.ParseInt(arguments[0], 10, 64)
	if err != nil || organization < 1 {
		return fault.InvalidFields(fault.Field{
			Name: "ORGANIZATION", Problem: "found " + arguments[0] + "; expected the number of an organization",
		})
	}
	kinds := slices.DeleteFunc(retention.Kinds(), func(k retention.Kind) bool { return !k.Archived() })
	kind := retention.Kind(arguments[1])
	if !slices.Contains(kinds, kind) {
		return fault.InvalidFields(fault.Field{Name: "KIND", Problem: fmt.Sprintf("found %.40q; expected one of %v", kind, kinds)})
	}
	log := telemetry.Logger(os.Stderr, c.LogLevel)
	secrets, err := secret.New(c.Vault, clock.System(), log)
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	bucket, err := archive.Open(c.Archive, secrets, clock.System(), log)
	if err != nil {
		return err
	}
	if bucket == nil {
		return fault.New(fault.Refused, "no archive is configured (archive.endpoint)")
	}
	return archived{bucket}.Read(ctx, organization, kind, out)
}
