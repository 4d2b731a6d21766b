package domain

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// archived keeps settled rows that are deleted in a bucket, up to a thousand in an object of JSON lines, compressed by gzip:
//
//	settled/ORGANIZATION/KIND/FIRST-LAST-DIGEST.jsonl.gz
//
// FIRST and LAST are the lowest and the highest number of its rows, DIGEST the SHA-256 of their lines: the same rows again replace
// themselves, and no other rows have the name. The first line, the heading, says what the others are.
type archived struct {
	bucket *archive.Bucket
	clock  clock.Clock
}

var _ retention.Archive = archived{}

// heading is the first line of an object.
type heading struct {
	// Version is that of this format.
	Version      int            `json:"version"`
	Installation string         `json:"installation"`
	Organization int64          `json:"organization"`
	Kind         retention.Kind `json:"kind"`
	Rows         int            `json:"rows"`
	ArchivedAt   time.Time      `json:"archived_at"`
}

const (
	archiveVersion = 1
	// mostArchived bounds the lines of an object, in bytes without compression, and mostPacked the object: what is larger is neither stored
	// nor read. Lockstep writes 8 MiB of lines, unless one row has more.
	mostArchived = 64 << 20
	mostPacked   = 32 << 20
	// mostHeading bounds the heading.
	mostHeading = 4096
)

func archivedUnder(organization int64, kind retention.Kind) string {
	return fmt.Sprintf("settled/%d/%s/", organization, kind)
}

func archivedName(organization int64, kind retention.Kind, first, last int64, digest []byte) string {
	return fmt.Sprintf("%s%019d-%019d-%x.jsonl.gz", archivedUnder(organization, kind), first, last, digest)
}

// Keep implements retention.Archive.
func (a archived) Keep(ctx context.Context, b retention.Batch) (o retention.Object, err error) {
	b.Rows = slices.SortedFunc(slices.Values(b.Rows), func(x, y retention.Row) int { return cmp.Compare(x.ID, y.ID) })
	var lines []byte
	for _, row := range b.Rows {
		lines = append(append(lines, row.Content...), '\n')
	}
	first, last := b.Rows[0].ID, b.Rows[len(b.Rows)-1].ID
	if len(lines) > mostArchived {
		return o, fault.New(fault.Invalid, "rows %d to %d are %d bytes; expected at most %d", first, last, len(lines), mostArchived)
	}
	head, err := json.Marshal(heading{
		Version: archiveVersion, Installation: b.Installation, Organization: b.Organization, Kind: b.Kind, Rows: len(b.Rows),
		ArchivedAt: a.clock.Now().UTC(),
	})
	if err != nil {
		return o, fmt.Errorf("encode the heading: %w", err)
	}
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	for _, part := range [][]byte{head, []byte("\n"), lines} {
		if _, err := packed.Write(part); err != nil {
			return o, fmt.Errorf("compress: %w", err)
		}
	}
	if err := packed.Close(); err != nil {
		return o, fmt.Errorf("compress: %w", err)
	}
	if content.Len() > mostPacked {
		return o, fault.New(fault.Invalid, "rows %d to %d are %d bytes, compressed; expected at most %d", first, last, content.Len(), mostPacked)
	}
	sum := sha256.Sum256(lines)
	o = retention.Object{Name: archivedName(b.Organization, b.Kind, first, last, sum[:]), Digest: sum[:], Rows: len(b.Rows)}
	if err := a.bucket.Put(ctx, o.Name, "application/gzip", content.Bytes()); err != nil {
		return o, err
	}
	// Compared are the lines: another replica may have stored the same rows meanwhile, with another time in the heading.
	back, err := a.lines(ctx, o.Name, retention.Wanted{Organization: b.Organization, Kind: b.Kind, Installation: b.Installation})
	if err == nil && !bytes.Equal(back, lines) {
		err = fault.New(fault.Unavailable, "%s: the storage gave back other rows than those that were stored", o.Name)
	}
	return o, err
}

// Read implements retention.Archive: with what the database has recorded, exactly those that were deleted, each once.
// Without, all that are in the bucket: rows that occur several times with the same content once, but one that came into use after it
// was archived with each content. An object that is missing, or is not what was stored, is passed to found, and the others are read; the
// error is Terminal then. A storage that cannot be reached ends it.
func (a archived) Read(ctx context.Context, s retention.Wanted, out io.Writer, found func(error)) error {
	recorded := make(map[string]retention.Object, len(s.Recorded))
	for _, o := range s.Recorded {
		recorded[o.Name] = o
	}
	problems, seen := 0, map[[sha256.Size]byte]int64{}
	problem := func(err error) {
		problems++
		found(err)
	}
	for o, err := range a.bucket.List(ctx, archivedUnder(s.Organization, s.Kind), "") {
		if err != nil {
			return err
		}
		record, is := recorded[o.Name]
		if !is && len(s.Recorded) > 0 {
			continue // its rows were not deleted with it: they are in another, or in the database
		}
		delete(recorded, o.Name)
		if o.Size > mostPacked {
			problem(fault.New(fault.Terminal, "%s: found %d bytes, expected at most %d", o.Name, o.Size, mostPacked))
			continue
		}
		lines, err := a.lines(ctx, o.Name, s)
		if ctx.Err() != nil {
			return fmt.Errorf("read %s: %w", o.Name, ctx.Err())
		}
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Terminal) {
			problem(err)
			continue
		}
		if err != nil {
			return err
		}
		if is {
			lines = without(lines, record.Kept)
		} else {
			lines = unseen(lines, seen)
		}
		if _, err := out.Write(lines); err != nil {
			return fmt.Errorf("write the rows: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		problem(fault.New(fault.Terminal, "%s is missing: %d rows were deleted with it", name, recorded[name].Deleted()))
	}
	if problems > 0 {
		return fault.New(fault.Terminal, "%d objects of the archive are missing or cannot be used", problems)
	}
	return nil
}

// archivedID is the number of the row of a line; 0 if it has none.
func archivedID(line []byte) int64 {
	var row struct {
		ID int64 `json:"id"`
	}
	if json.Unmarshal(line, &row) != nil {
		return 0
	}
	return row.ID
}

// without are the lines of all but some rows.
func without(lines []byte, kept []int64) (rest []byte) {
	if len(kept) == 0 {
		return lines
	}
	for line := range bytes.Lines(lines) {
		if !slices.Contains(kept, archivedID(line)) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// unseen are the lines that no object had before. Objects are read by their lowest number, so lines with lower ones are forgotten.
func unseen(lines []byte, seen map[[sha256.Size]byte]int64) (rest []byte) {
	first := int64(-1)
	for line := range bytes.Lines(lines) {
		sum, id := sha256.Sum256(line), archivedID(line)
		if first < 0 {
			first = id
			maps.DeleteFunc(seen, func(_ [sha256.Size]byte, id int64) bool { return id < first })
		}
		if _, is := seen[sum]; !is {
			seen[sum] = id
			rest = append(rest, line...)
		}
	}
	return rest
}

// lines reads an object and returns its lines behind the heading, compared with its name and with the heading. The error is Terminal if it
// is not what was stored.
func (a archived) lines(ctx context.Context, name string, s retention.Wanted) ([]byte, error) {
	content, err := a.bucket.GetUpTo(ctx, name, mostPacked)
	if fault.Is(err, fault.Invalid) {
		return nil, fault.Because(err, fault.Terminal, "%s: found more than %d bytes", name, mostPacked)
	}
	if err != nil {
		return nil, err
	}
	packed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fault.Because(err, fault.Terminal, "%s: expected gzip", name)
	}
	all, err := io.ReadAll(io.LimitReader(packed, mostHeading+mostArchived+1))
	if err != nil {
		return nil, fault.Because(err, fault.Terminal, "%s: expected gzip", name)
	}
	first, lines, _ := bytes.Cut(all, []byte("\n"))
	if len(lines) > mostArchived || len(first) > mostHeading {
		return nil, fault.New(fault.Terminal, "%s: found more than %d bytes", name, mostArchived)
	}
	var h heading
	if err := json.Unmarshal(first, &h); err != nil {
		return nil, fault.Because(err, fault.Terminal, "%s: expected a heading", name)
	}
	if h.Version != archiveVersion {
		return nil, fault.New(fault.Terminal, "%s: found version %d of the format; expected %d", name, h.Version, archiveVersion)
	}
	if h.Installation != s.Installation && s.Installation != "" {
		return nil, fault.New(fault.Terminal, "%s: it is of installation %s; expected %s: has another the same bucket and prefix?", name,
			h.Installation, s.Installation)
	}
	rows, least, greatest := 0, int64(math.MaxInt64), int64(0)
	for line := range bytes.Lines(lines) {
		id := archivedID(line)
		rows, least, greatest = rows+1, min(least, id), max(greatest, id)
	}
	sum := sha256.Sum256(lines)
	known := archivedName(s.Organization, s.Kind, least, greatest, sum[:])
	if h.Organization != s.Organization || h.Kind != s.Kind || h.Rows != rows || name != known {
		return nil, fault.New(fault.Terminal, "%s: found rows %d to %d of %s of organization %d with SHA-256 %x, not those of its name",
			name, least, greatest, h.Kind, h.Organization, sum)
	}
	return lines, nil
}

// archivedRows counts the rows that a process has archived, or failed to: each replica reports its own, so take the sum.
func archivedRows() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_archived_rows_total",
		Help: "Settled rows of the domain, by outcome: archived and then deleted, or failed to be archived. Those that failed are kept.",
	}, []string{"outcome"})
	for _, outcome := range []string{"archived", "failed"} {
		c.WithLabelValues(outcome) // at 0: the first failure is an increase
	}
	return c
}

// retains makes what deletes settled rows, with the archive if one is configured.
func (s *service) retains(c Config, secrets *secret.Reader, now clock.Clock, log *slog.Logger) error {
	s.retention, s.archivedRows = retention.New(s.store.ForRetention()), archivedRows()
	bucket, err := archive.Open(c.Archive, secrets, now, log)
	if err != nil || bucket == nil {
		return err
	}
	s.retention.Archiving(archived{bucket, now}, func(outcome string, rows int) { s.archivedRows.WithLabelValues(outcome).Add(float64(rows)) })
	return nil
}

// ReadArchived writes the archived rows of a kind as JSON lines to out, and compares each object with its digest and with what the database
// has recorded: the command archived. Its arguments are the number of the organization and the kind.
func ReadArchived(ctx context.Context, c Config, arguments []string, out io.Writer) error {
	c = c.withDefaults()
	organization, err := strconv.ParseInt(arguments[0], 10, 64)
	if err != nil || organization < 1 {
		return fault.InvalidFields(fault.Field{
			Name: "ORGANIZATION", Problem: "found " + arguments[0] + "; expected the number of an organization",
		})
	}
	kinds, kind := retention.ArchivedKinds(), retention.Kind(arguments[1])
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
	pool, err := pg.Open(ctx, database(c, log))
	if err != nil {
		return err
	}
	defer pool.Close()
	of := retention.Wanted{Organization: organization, Kind: kind}
	kept := store.New(store.Deps{Pool: pool, Publish: outbox.Add})
	if of.Installation, err = kept.InstallationID(ctx); err != nil {
		return err
	}
	if of.Recorded, err = retention.AllArchived(ctx, kept.ForRetention(), organization, kind); err != nil {
		return err
	}
	if len(of.Recorded) == 0 {
		of.Installation = "" // such as a new database in place of a lost one
		log.WarnContext(ctx, "the database has recorded no object of the archive: all that are in the bucket are read")
	}
	return archived{bucket, clock.System()}.Read(ctx, of, out, func(err error) {
		log.ErrorContext(ctx, "an object of the archive cannot be used", telemetry.KeyError, err)
	})
}
