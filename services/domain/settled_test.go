package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/testkit/s3test"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// bucketOf opens a bucket for tests.
func bucketOf(t *testing.T, c archive.Config) *archive.Bucket {
	t.Helper()
	secrets, err := secret.New(secret.VaultConfig{}, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := archive.Open(c, secrets, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

// archivedIDs are the numbers of the archived rows of a kind.
func (s *shop) archivedIDs(a archived, kind retention.Kind) (ids []int64) {
	s.t.Helper()
	var out bytes.Buffer
	s.ok(a.Read(s.t.Context(), 1, kind, &out))
	for line := range strings.Lines(out.String()) {
		var row struct {
			ID int64 `json:"id"`
		}
		s.ok(json.Unmarshal([]byte(line), &row))
		ids = append(ids, row.ID)
	}
	return ids
}

// idsOf are the numbers of the rows of a table.
func (s *shop) idsOf(table string) (ids []int64) {
	s.t.Helper()
	s.ok(s.pool.QueryRow(s.t.Context(), "SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM "+table+" WHERE organization_id = 1").Scan(&ids))
	return ids
}

// D65: with an archive, a row is deleted only after the archive has it, with all that it holds; nothing under a legal hold goes there; and
// while the storage is away, nothing is deleted. A process that dies between the two archives the same rows again, under the same name.
func TestSettledRowsAreArchivedBeforeTheyAreDeleted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	done := s.rollout(s.set)
	s.succeed(done)
	open := s.rollout(s.release(2))
	s.handOver()
	s.settledRows(done, open)
	var away atomic.Bool
	a := archived{bucketOf(t, s3test.Start(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				http.Error(w, "away", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}))}
	counts := map[string]int{}
	counted := func(outcome string, rows int) { counts[outcome] += rows }
	u := retention.New(s.store.ForRetention(), clock.System()).Archiving(a, counted)
	for _, kind := range retention.Kinds() {
		_, err := u.Set(t.Context(), user(), kind, 30, "growth")
		s.ok(err)
	}
	before := map[string][]int64{"cd_handoffs": s.idsOf("cd_handoffs"), "cd_rollout_closings": s.idsOf("cd_rollout_closings")}

	_, err := u.SetHold(t.Context(), user(), true, "case 7")
	s.ok(err)
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want([]int{len(s.archivedIDs(a, retention.Handoffs)), counts["archived"]}, []int{0, 0})
	_, err = u.SetHold(t.Context(), user(), false, "closed")
	s.ok(err)

	away.Store(true)
	_, err = u.DeleteDue(t.Context())
	s.want(fault.ClassOf(err), fault.Unavailable)
	s.want(s.idsOf("cd_handoffs"), before["cd_handoffs"])
	away.Store(false)

	dies := retention.New(s.store.ForRetention(), clock.System()).Archiving(dyingAfter{a}, counted)
	if _, err = dies.DeleteDue(t.Context()); !errors.Is(err, errDied) {
		t.Fatalf("answered %v", err)
	}
	s.want(s.idsOf("cd_handoffs"), before["cd_handoffs"])
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	for kind, table := range map[retention.Kind]string{retention.Handoffs: "cd_handoffs", retention.Closings: "cd_rollout_closings"} {
		left := s.idsOf(table)
		gone := slices.DeleteFunc(slices.Clone(before[table]), func(id int64) bool { return slices.Contains(left, id) })
		if len(gone) == 0 {
			t.Errorf("no rows of %s are gone", table)
		}
		s.want(s.archivedIDs(a, kind), gone)
	}
	var out bytes.Buffer
	s.ok(a.Read(t.Context(), 1, retention.Handoffs, &out))
	for _, want := range []string{`"workflow_id": "rollout-`, `"inputs": {`, `"organization_id": 1`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the archive has no %s:\n%s", want, out.String())
		}
	}
	s.want(counts["failed"] > 0, true)
}

var errDied = errors.New("the process died")

// dyingAfter is an archive whose process dies once it has stored.
type dyingAfter struct{ archived }

func (d dyingAfter) Keep(ctx context.Context, organization int64, kind retention.Kind, rows []retention.Row) error {
	if err := d.archived.Keep(ctx, organization, kind, rows); err != nil {
		return err
	}
	return errDied
}

// D65: what comes into use between the reading and the deletion stays, and so does everything once a hold has begun.
func TestWhatIsNoLongerDueIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	done := s.rollout(s.set)
	s.succeed(done)
	open := s.rollout(s.release(2))
	s.handOver()
	s.settledRows(done, open)
	a := archived{bucketOf(t, s3test.Start(t, nil))}
	var during func()
	u := retention.New(s.store.ForRetention(), clock.System()).Archiving(meanwhile{a, func() { during() }}, func(string, int) {})
	_, err := u.Set(t.Context(), user(), retention.Handoffs, 30, "growth")
	s.ok(err)
	before := s.idsOf("cd_handoffs")
	during = func() {
		_, err := u.SetHold(t.Context(), user(), true, "case 8")
		s.ok(err)
	}
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want(s.idsOf("cd_handoffs"), before)
	_, err = u.SetHold(t.Context(), user(), false, "closed")
	s.ok(err)
	var used int64
	during = func() {
		s.ok(s.pool.QueryRow(t.Context(), `UPDATE cd_handoffs SET updated_at = now()
			WHERE id = (SELECT min(id) FROM cd_handoffs WHERE organization_id = 1 AND state = 'done' AND subject_kind <> 'rollout') RETURNING id`).Scan(&used))
	}
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	left := s.idsOf("cd_handoffs")
	s.want([]bool{slices.Contains(left, used), len(left) < len(before)}, []bool{true, true})
}

// meanwhile is an archive beside which something happens.
type meanwhile struct {
	archived
	do func()
}

func (m meanwhile) Keep(ctx context.Context, organization int64, kind retention.Kind, rows []retention.Row) error {
	m.do()
	return m.archived.Keep(ctx, organization, kind, rows)
}

// D65: what was changed in the bucket is not taken for what was stored.
func TestAChangedArchiveIsRefused(t *testing.T) {
	t.Parallel()
	bucket := bucketOf(t, s3test.Start(t, nil))
	a := archived{bucket}
	ctx := t.Context()
	rows := []retention.Row{{ID: 3, Content: `{"id": 3}`}, {ID: 5, Content: `{"id": 5}`}}
	if err := a.Keep(ctx, 1, retention.Handoffs, rows); err != nil {
		t.Fatal(err)
	}
	var name string
	for o, err := range bucket.List(ctx, "settled/1/", "") {
		if err != nil {
			t.Fatal(err)
		}
		name = o.Name
	}
	content, err := bucket.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Put(ctx, strings.Replace(name, "/1/", "/2/", 1), "application/gzip", content); err != nil {
		t.Fatal(err)
	}
	if err := a.Read(ctx, 2, retention.Handoffs, &bytes.Buffer{}); !fault.Is(err, fault.Terminal) {
		t.Errorf("rows of another organization: %v", err)
	}
	var out bytes.Buffer
	if err := a.Read(ctx, 1, retention.Handoffs, &out); err != nil || out.String() != "{\"id\": 3}\n{\"id\": 5}\n" {
		t.Errorf("read %q, error %v", out.String(), err)
	}
}
