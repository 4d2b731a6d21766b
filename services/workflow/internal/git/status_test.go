package git

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// statusForge is what forges do with statuses, as they document it: they keep each one that they are given, list the latest of each name
// page by page, and limit requests.
type statusForge struct {
	kind string
	mu   sync.Mutex
	all  []activity.CommitStatus
	// posted are the documents that it was given.
	posted []map[string]string
	// refuse answers the next requests, if it answers anything.
	refuse func(w http.ResponseWriter, r *http.Request) bool
}

func (f *statusForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil && f.refuse(w, r) {
		return
	}
	commit := strings.Repeat("c", 40)
	base := map[string]string{
		GitHub: "/api/v3/repos/team/shop", Gitea: "/api/v1/repos/team/shop", GitLab: "/api/v4/projects/shop",
	}[f.kind]
	list := map[string]string{GitHub: "/commits/" + commit + "/status", Gitea: "/commits/" + commit + "/status", GitLab: "/repository/commits/" + commit + "/statuses"}
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, base) {
	case "GET " + list[f.kind]:
		f.list(w, r)
	case "GET /commits/" + commit + "/check-runs":
		answer(w, http.StatusOK, map[string]any{"check_runs": []any{}})
	case "POST /statuses/" + commit:
		f.post(w, r)
	default:
		refuse(w, http.StatusNotFound, "Not Found")
	}
}

func (f *statusForge) list(w http.ResponseWriter, r *http.Request) {
	var names []string
	var latest []map[string]string
	name, state := "context", "state"
	size, _ := strconv.Atoi(r.FormValue("per_page") + r.FormValue("limit"))
	switch f.kind {
	case GitLab:
		name, state = "name", "status"
	case Gitea:
		state = "status"
	}
	for _, s := range slices.Backward(f.all) {
		if slices.Contains(names, s.Name) {
			continue
		}
		names = append(names, s.Name)
		if f.kind == GitLab && s.State == "failure" {
			s.State = "failed"
		}
		latest = append(latest, map[string]string{name: s.Name, state: s.State, "description": s.Description, "target_url": s.URL})
	}
	page, _ := strconv.Atoi(r.FormValue("page"))
	from := min((page-1)*size, len(latest))
	latest = latest[from:min(from+size, len(latest))]
	if f.kind == GitLab {
		answer(w, http.StatusOK, append([]map[string]string{}, latest...))
		return
	}
	answer(w, http.StatusOK, map[string]any{"statuses": append([]map[string]string{}, latest...)})
}

func (f *statusForge) post(w http.ResponseWriter, r *http.Request) {
	var in map[string]string
	_ = json.NewDecoder(r.Body).Decode(&in)
	f.posted = append(f.posted, in)
	s := activity.CommitStatus{Name: in["context"] + in["name"], State: in["state"], URL: in["target_url"], Description: in["description"]}
	states := []string{"pending", "success", "failure", "error"}
	if f.kind == GitLab {
		states = []string{"pending", "running", "success", "failed", "canceled", "skipped"}
	}
	switch {
	case !slices.Contains(states, s.State):
		refuse(w, http.StatusUnprocessableEntity, "state is not included in the list")
		return
	case len([]rune(s.Description)) > 140:
		refuse(w, http.StatusUnprocessableEntity, "description is too long (maximum is 140 characters)")
		return
	}
	s.State = strings.Replace(s.State, "failed", "failure", 1)
	for _, known := range slices.Backward(f.all) {
		if f.kind == GitLab && known.Name == s.Name {
			if known.State == "pending" && s.State == "pending" {
				refuse(w, http.StatusBadRequest, `Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")`)
				return
			}
			break
		}
	}
	f.all = append(f.all, s)
	w.Header().Set("X-RateLimit-Limit", "5000")
	w.Header().Set("X-RateLimit-Remaining", "4990")
	w.Header().Set("X-RateLimit-Reset", "1800000000")
	answer(w, http.StatusCreated, map[string]string{})
}

func statusesOn(t *testing.T, kind string) (*server, *statusForge, activity.StatusRequest) {
	t.Helper()
	s, f := setupForge(t, kind), &statusForge{kind: kind}
	s.api = f.ServeHTTP
	return s, f, activity.StatusRequest{Organization: 1, RepoURL: s.url, Commit: strings.Repeat("c", 40), Status: activity.CommitStatus{
		Name: "lockstep/staging/e2e", State: activity.StatusPending, URL: "https://cd.example.com/rollouts/7", Description: "waits",
	}}
}

// R3-09: a status is set as each forge has it, and once, however often it is sent; what has changed is set again.
func TestAStatusIsSetOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{GitLab, GitHub, Gitea} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, f, r := statusesOn(t, kind)
			set := func(unchanged bool) {
				t.Helper()
				got, err := s.forge.SetStatus(t.Context(), r)
				if err != nil || got.Unchanged != unchanged || got.Limited != "" {
					t.Errorf("found %+v, %v; want unchanged %t", got, err, unchanged)
				}
				if !unchanged && (got.Quota == nil || got.Quota.Remaining != 4990 || !got.Quota.ResetsAt.Equal(time.Unix(1_800_000_000, 0))) {
					t.Errorf("found the quota %+v", got.Quota)
				}
			}
			set(false)
			set(true)
			r.Status.Description = "still waits"
			set(kind == GitLab) // which refuses a status that does not change its state
			r.Status.State, r.Status.Description = activity.StatusFailure, strings.Repeat("é", 200)
			set(false)
			set(true)
			r.Status.State, r.Status.Description, r.Status.URL = activity.StatusSuccess, "", ""
			set(false)
			last := f.posted[len(f.posted)-1]
			name := map[string]string{GitLab: "name", GitHub: "context", Gitea: "context"}[kind]
			if diff := cmp.Diff(map[string]string{"state": "success", name: "lockstep/staging/e2e", "description": ""}, last); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Statuses beyond the first page are read, and a list without an end is refused: one that was left out could have failed.
func TestAllPagesOfStatusesAreRead(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{GitLab, GitHub, Gitea} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, f, r := statusesOn(t, kind)
			f.all = append(f.all, activity.CommitStatus{Name: "first", State: "failure"})
			for i := range 250 {
				f.all = append(f.all, activity.CommitStatus{Name: fmt.Sprint(i), State: "success"})
			}
			all, err := s.forge.ReadStatus(t.Context(), 1, r.RepoURL, r.Commit)
			if err != nil || len(all) != 251 || !slices.Contains(all, activity.CommitStatus{Name: "first", State: activity.StatusFailure}) {
				t.Errorf("found %d statuses, %v; want 251 with the one that has failed", len(all), err)
			}
			f.mu.Lock()
			for i := range 1000 {
				f.all = append(f.all, activity.CommitStatus{Name: "more " + strconv.Itoa(i), State: "success"})
			}
			f.mu.Unlock()
			if _, err := s.forge.ReadStatus(t.Context(), 1, r.RepoURL, r.Commit); !fault.Is(err, fault.Refused) ||
				!strings.Contains(err.Error(), "entries or more in a list") {
				t.Errorf("found %v; want that the list is refused", err)
			}
		})
	}
}

// R3-09: a forge that accepts no more requests says for how long, in one of the ways that forges have; other failures are errors.
func TestAForgeThatLimitsRequests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind    string
		status  int
		headers map[string]string
		wait    time.Duration
		limited bool
		class   fault.Class
	}{
		"GitHub's secondary limit":       {kind: GitHub, status: 403, headers: map[string]string{"Retry-After": "60"}, wait: time.Minute, limited: true},
		"GitHub's primary limit":         {kind: GitHub, status: 403, headers: map[string]string{"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "+10m"}, wait: 10 * time.Minute, limited: true},
		"GitLab's limit":                 {kind: GitLab, status: 429, headers: map[string]string{"Retry-After": "30", "RateLimit-Limit": "60", "RateLimit-Remaining": "0", "RateLimit-Reset": "+1h"}, wait: 30 * time.Second, limited: true},
		"without a time":                 {kind: Gitea, status: 429, limited: true},
		"with a date":                    {kind: Gitea, status: 503, headers: map[string]string{"Retry-After": "date"}, wait: 5 * time.Minute, limited: true},
		"for longer than a day":          {kind: Gitea, status: 429, headers: map[string]string{"Retry-After": "99999999"}, wait: time.Hour, limited: true},
		"with nonsense":                  {kind: Gitea, status: 429, headers: map[string]string{"Retry-After": "-5", "RateLimit-Limit": "x"}, limited: true},
		"away":                           {kind: Gitea, status: 502, class: fault.Unavailable},
		"a token without the right":      {kind: GitHub, status: 403, class: fault.Denied},
		"a token that is not valid":      {kind: GitLab, status: 401, class: fault.Unauthenticated},
		"a commit that is not there":     {kind: GitHub, status: 404, class: fault.NotFound},
		"a status that it does not take": {kind: GitHub, status: 422, class: fault.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f, r := statusesOn(t, tt.kind)
			now := s.forge.clock.Now()
			f.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
				for key, value := range tt.headers {
					if after, is := strings.CutPrefix(value, "+"); is {
						d, _ := time.ParseDuration(after)
						value = strconv.FormatInt(now.Add(d).Unix(), 10)
					}
					if value == "date" {
						value = now.Add(5 * time.Minute).UTC().Format(http.TimeFormat)
					}
					w.Header().Set(key, value)
				}
				refuse(w, tt.status, "no")
				return true
			}
			got, err := s.forge.SetStatus(t.Context(), r)
			if tt.limited {
				if err != nil || got.Limited == "" || got.Wait > tt.wait || got.Wait < tt.wait-5*time.Second {
					t.Errorf("found %+v, %v; want it limited for %s", got, err, tt.wait)
				}
				return
			}
			if !fault.Is(err, tt.class) {
				t.Errorf("found %v; want class %s", err, tt.class)
			}
		})
	}
}
