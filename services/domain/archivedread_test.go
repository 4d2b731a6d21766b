package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// D65: owners read what was archived of their organization, exactly what was deleted, and nobody else reads it; what is in the bucket and
// was not recorded, as another installation's, is not read.
func TestOwnersReadTheArchive(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	a := archiveOf(t, nil)
	u := s.archiving(a)
	ids := s.idsOf("cd_call_requests")
	_, err := u.DeleteDue(t.Context())
	s.ok(err)
	s.want(s.rowsOf("cd_call_requests"), 0)
	_, err = a.Keep(t.Context(), retention.Batch{Installation: "another", Organization: 1, Kind: retention.TriedCalls, Rows: []retention.Row{
		{ID: 999999, Content: `{"id": 999999}`},
	}})
	s.ok(err)

	page, err := u.Archived(t.Context(), user(), retention.TriedCalls, "")
	s.ok(err)
	s.want([]int{len(page.Objects), page.Objects[0].Deleted()}, []int{1, len(ids)})
	s.want(page.Next, "")
	behind, err := u.Archived(t.Context(), user(), retention.TriedCalls, page.Objects[0].Name)
	s.ok(err)
	s.want(len(behind.Objects), 0)

	var out bytes.Buffer
	s.ok(u.ReadArchived(t.Context(), user(), retention.TriedCalls, &out, func(err error) { t.Error(err) }))
	var got []int64
	for line := range strings.Lines(out.String()) {
		var row struct {
			ID           int64 `json:"id"`
			Organization int64 `json:"organization_id"`
		}
		s.ok(json.Unmarshal([]byte(line), &row))
		s.want(row.Organization, int64(1))
		got = append(got, row.ID)
	}
	slices.Sort(got)
	s.want(got, ids)

	maintainer := user()
	maintainer.Permissions = core.RoleMaintainer.Permissions()
	for _, err := range []error{
		u.ReadArchived(t.Context(), maintainer, retention.TriedCalls, &out, func(error) {}), func() error {
			_, err := u.Archived(t.Context(), maintainer, retention.TriedCalls, "")
			return err
		}(),
	} {
		s.want(fault.ClassOf(err), fault.Denied)
	}
	for _, kind := range []retention.Kind{retention.Requests, "../1/handoffs"} {
		s.want(fault.ClassOf(u.ReadArchived(t.Context(), user(), kind, &out, func(error) {})), fault.Invalid)
	}
	err = retention.New(s.store.ForRetention()).ReadArchived(t.Context(), user(), retention.TriedCalls, &out, func(error) {})
	s.want(fault.ClassOf(err), fault.Refused)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := u.ReadArchived(ended, user(), retention.TriedCalls, &out, func(error) {}); err == nil {
		t.Error("an owner who is gone was answered")
	}
}

// D65: the answer ends with a line that says how many rows it has and what is wrong; one that is cut off has none.
func TestAnAnswerOfTheArchiveEnds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	a := archiveOf(t, nil)
	u := s.archiving(a)
	_, err := u.DeleteDue(t.Context())
	s.ok(err)
	handler := api.NewHandler(api.Deps{
		GraphQL: http.NotFoundHandler(), Console: http.NotFoundHandler(), Archived: u, Tokens: api.Tokens{"secret": user()}, Access: s.access,
		Clock: clock.System(),
	})
	read := func(method, kind, token string) (int, []string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, api.ArchivedPath+"?kind="+kind, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	}
	code, lines := read(http.MethodGet, "tried_calls", "secret")
	s.want([]int{code, len(lines)}, []int{http.StatusOK, 4})
	s.want(lines[3], `{"end":{"rows":3,"problem_count":0,"problems":[]}}`)
	_, lines = read(http.MethodGet, "closings", "secret")
	s.want(lines, []string{`{"end":{"rows":0,"problem_count":0,"problems":[]}}`})
	for _, wrong := range []struct {
		method, kind, token string
		code                int
	}{
		{http.MethodPost, "tried_calls", "secret", http.StatusMethodNotAllowed},
		{http.MethodGet, "tried_calls", "guessed", http.StatusUnauthorized},
		{http.MethodGet, "requests", "secret", http.StatusBadRequest},
	} {
		code, _ := read(wrong.method, wrong.kind, wrong.token)
		s.want(code, wrong.code)
	}

	page, err := u.Archived(t.Context(), user(), retention.TriedCalls, "")
	s.ok(err)
	s.ok(a.bucket.Put(t.Context(), page.Objects[0].Name, "application/gzip", []byte("changed")))
	code, lines = read(http.MethodGet, "tried_calls", "secret")
	s.want([]int{code, len(lines)}, []int{http.StatusOK, 1})
	if want := fmt.Sprintf(`{"end":{"rows":0,"problem_count":1,"problems":["%s: expected gzip`, page.Objects[0].Name); !strings.HasPrefix(lines[0], want) {
		t.Errorf("found %s; expected %s", lines[0], want)
	}
}

// stuckReader reads nothing until it is released.
type stuckReader struct{ begun, end chan struct{} }

// Write implements io.Writer.
func (s stuckReader) Write(text []byte) (int, error) {
	close(s.begun)
	<-s.end
	return len(text), nil
}

// D65: who reads slowly keeps others of the same organization waiting for a while, and no other organization; a storage that is away ends
// the reading, and is no problem of an object.
func TestASlowReaderOfTheArchiveBlocksNoOther(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	var away atomic.Bool
	a := archiveOf(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() && strings.HasSuffix(r.URL.Path, ".gz") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	u := s.archiving(a).Waiting(time.Millisecond)
	_, err := u.DeleteDue(t.Context())
	s.ok(err)
	w, done := stuckReader{make(chan struct{}), make(chan struct{})}, make(chan error)
	go func() { done <- u.ReadArchived(t.Context(), user(), retention.TriedCalls, w, func(error) {}) }()
	<-w.begun
	var out bytes.Buffer
	other := core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}
	s.ok(u.ReadArchived(t.Context(), other, retention.TriedCalls, &out, func(err error) { t.Error(err) }))
	s.want(fault.ClassOf(u.ReadArchived(t.Context(), user(), retention.TriedCalls, &out, func(error) {})), fault.Unavailable)
	close(w.end)
	s.ok(<-done)
	away.Store(true)
	s.want(fault.ClassOf(u.ReadArchived(t.Context(), user(), retention.TriedCalls, &out, func(err error) { t.Error(err) })), fault.Unavailable)
}

// D65: an object that is larger than any that Lockstep writes is a problem, and is not read.
func TestNoObjectOfAnySizeIsRead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	a := archiveOf(t, nil)
	u := s.archiving(a)
	_, err := u.DeleteDue(t.Context())
	s.ok(err)
	page, err := u.Archived(t.Context(), user(), retention.TriedCalls, "")
	s.ok(err)
	s.ok(a.bucket.Put(t.Context(), page.Objects[0].Name, "application/gzip", make([]byte, mostPacked+1)))
	var problems []error
	err = u.ReadArchived(t.Context(), user(), retention.TriedCalls, io.Discard, func(err error) { problems = append(problems, err) })
	s.want(fault.ClassOf(err), fault.Terminal)
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "expected at most 33554432") {
		t.Errorf("found %v; want the size", problems)
	}
}
