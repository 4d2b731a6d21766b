package domain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
)

// reading is a shop whose feeds are read over HTTP.
type reading struct {
	winter
	handler http.Handler
}

func read(t *testing.T) reading {
	t.Helper()
	return reading{winter: clocked(t)}.serving()
}

// serving has the shop serve its feeds.
func (r reading) serving() reading {
	r.t.Helper()
	r.feeds = feed.New(r.store.ForFeed(), r.now, "https://cd.example.com", bundle.Flows{})
	handler, err := r.service.handler(Config{PublicURL: "https://cd.example.com"}.withDefaults())
	r.ok(err)
	r.handler = handler
	return r
}

// get asks for an address, from one of 250 machines.
func (r reading) get(method, address, etag string, machine int) *httptest.ResponseRecorder {
	q := httptest.NewRequestWithContext(r.t.Context(), method, strings.TrimPrefix(address, "https://cd.example.com"), nil)
	q.RemoteAddr = fmt.Sprintf("192.0.2.%d:4711", machine)
	if etag != "" {
		q.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, q)
	return w
}

func (r reading) feed(a core.Actor, name string, kind feed.Kind) string {
	r.t.Helper()
	_, address, err := r.feeds.Create(r.t.Context(), a, name, kind, "")
	r.ok(err)
	return address
}

// D64: a feed of changes in production is read by its address alone, which ends when it is revoked.
func TestAFeedIsReadByItsAddress(t *testing.T) {
	t.Parallel()
	r := read(t)
	rollout := r.rollout(r.set)
	r.succeed(rollout)
	address := r.feed(user(), "office", feed.KindChanges)
	if !strings.HasPrefix(address, "https://cd.example.com/feeds/organization_1/") {
		t.Fatalf("found %s", address)
	}
	token := strings.Split(address, "/")[5]
	a := r.get(http.MethodGet, address, "", 1)
	r.want(a.Code, http.StatusOK)
	r.want(a.Header().Get("Content-Type"), "application/atom+xml; charset=utf-8")
	r.want(a.Header().Get("Cache-Control"), "private, max-age=60")
	for _, want := range []string{
		"shop in production: " + r.set.Name + " completed", fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", rollout.ID),
	} {
		r.want(strings.Contains(a.Body.String(), want), true)
	}
	for _, secret := range []string{"staging", "reason", token, "default"} { // only production, and no more than is stated
		if strings.Contains(a.Body.String(), secret) {
			t.Errorf("found %q in %s", secret, a.Body)
		}
	}
	again := r.get(http.MethodGet, address, `"x", W/`+a.Header().Get("ETag"), 1)
	r.want([]any{again.Code, again.Body.Len()}, []any{http.StatusNotModified, 0})
	head := r.get(http.MethodHead, address, "", 1)
	r.want([]any{head.Code, head.Body.Len(), head.Header().Get("ETag")}, []any{http.StatusOK, 0, a.Header().Get("ETag")})

	second := r.rollout(r.set)
	r.want(r.get(http.MethodGet, address, a.Header().Get("ETag"), 1).Code, http.StatusNotModified) // it is kept for a short time
	r.succeed(second)
	r.now.Advance(31 * time.Second)
	changed := r.get(http.MethodGet, address, a.Header().Get("ETag"), 1)
	r.want(changed.Code, http.StatusOK)
	r.want(strings.Count(changed.Body.String(), "<entry>"), 2)

	r.want(r.countOf(`SELECT count(*) FROM cd_feeds WHERE last_read_at IS NOT NULL`), 1)
	r.want(r.countOf(`SELECT count(*) FROM cd_feeds f WHERE f::text LIKE '%' || $1 || '%'`, token), 0) // a digest of it is kept
	r.want(r.countOf(`SELECT count(*) FROM cd_changes c WHERE c.action = 'createFeed' AND NOT c::text LIKE '%' || $1 || '%'`, token), 1)
	for i, wrong := range []string{
		strings.Replace(address, token, strings.ToLower(token), 1), strings.Replace(address, token, "x", 1), strings.Replace(address, token, strings.Repeat("x", 500), 1),
		strings.Replace(address, "organization_1", "organization_2", 1), strings.Replace(address, "organization_1", "organization_x", 1),
		strings.Replace(address, "production-changes.atom", "freezes.ics", 1), strings.Replace(address, "production-changes.atom", "x", 1),
	} {
		w := r.get(http.MethodGet, wrong, "", 10+i)
		r.want([]any{w.Code, w.Body.String(), w.Header().Get("ETag")}, []any{http.StatusNotFound, "not found\n", ""})
	}
	_, err := r.feeds.Revoke(t.Context(), user(), "office", "got around")
	r.ok(err)
	r.want(r.get(http.MethodGet, address, a.Header().Get("ETag"), 1).Code, http.StatusNotFound) // at once, also of what is kept
	r.feed(user(), "office", feed.KindChanges)                                                  // under the name of one that has ended
	_, _, err = r.feeds.Create(t.Context(), user(), "office", feed.KindFreezes, "")
	r.refused(err, "exists")
	viewer := user()
	viewer.Permissions = core.RoleDeployer.Permissions()
	if _, _, err = r.feeds.Create(t.Context(), viewer, "mine", feed.KindChanges, ""); err == nil {
		t.Error("one who may not configure made a feed")
	}
	if _, err = r.feeds.Revoke(t.Context(), viewer, "office", ""); err == nil {
		t.Error("one who may not configure revoked a feed")
	}
}

// D64: a calendar has the freezes of its own organization.
func TestACalendarHasFreezes(t *testing.T) {
	t.Parallel()
	r := read(t)
	other := user()
	other.Organization = 2
	_, err := r.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{
		Reason: "secret audit", Tiers: []core.Tier{core.TierProduction}, StartsAt: r.now.Now().Add(time.Hour), EndsAt: r.now.Now().Add(3 * time.Hour),
	})
	r.ok(err)
	ours, theirs := r.get(http.MethodGet, r.feed(user(), "c", feed.KindFreezes), "", 1), r.get(http.MethodGet, r.feed(other, "c", feed.KindFreezes), "", 1)
	r.want([]any{ours.Code, theirs.Code}, []any{http.StatusOK, http.StatusOK})
	r.want(ours.Header().Get("Content-Type"), "text/calendar; charset=utf-8")
	r.want(strings.Contains(ours.Body.String(), "DTSTART:20270115T090000Z\r\nDTEND:20270115T110000Z\r\nSUMMARY:Freeze of tier production\r\n"), true)
	r.want(strings.Contains(ours.Body.String(), "secret"), false)
	r.want(strings.Contains(theirs.Body.String(), "VEVENT"), false)
}

// D64: a calendar has the windows in which schedules let an application enter an environment, those of the pipeline and of the environment
// together; what has no schedule, or is archived, and what belongs to another organization is not in it.
func TestACalendarHasWindows(t *testing.T) {
	t.Parallel()
	c := scheduled(t, `{}`, `{"proposed":[{"key":"hours","kind":"schedule","schedule":{"time_zone":"Europe/Berlin",
		"allow":[{"cron":"0 9 * * *","duration":28800,"description":"secret hours"}]}}]}`)
	r := reading{winter: c.winter}.serving()
	address := r.feed(user(), "w", feed.KindWindows)
	read := func() string {
		t.Helper()
		r.now.Advance(time.Minute)
		got := r.get(http.MethodGet, address, "", 1)
		r.want([]any{got.Code, got.Header().Get("Content-Type")}, []any{http.StatusOK, "text/calendar; charset=utf-8"})
		return got.Body.String()
	}
	first := read() // 2027-01-15 08:01 UTC, which is 09:01 in Berlin
	r.want(strings.Contains(first, "DTSTART:20270115T080000Z\r\nDTEND:20270115T160000Z\r\nSUMMARY:"+c.application.Name+" may enter test\r\n"), true)
	r.want([]any{strings.Count(first, "BEGIN:VEVENT"), strings.Contains(first, "secret"), strings.Contains(first, "enter dev")}, []any{29, false, false})
	c.requires("test", `{"proposed":[{"key":"noon","kind":"schedule","schedule":{"exclude":[{"cron":"0 11 * * *","duration":3600}]}}]}`)
	second := read()
	r.want(strings.Contains(second, "DTSTART:20270115T080000Z\r\nDTEND:20270115T110000Z\r\n"), true)
	r.want(strings.Contains(second, "DTSTART:20270115T120000Z\r\nDTEND:20270115T160000Z\r\n"), true)
	r.ok(c.author(`{}`, `{}`)) // only the environment has one now
	third := read()
	r.want(strings.Contains(third, "DTEND:20270115T110000Z\r\nSUMMARY:"+c.application.Name+" may enter test\r\n"), true)
	c.requires("test", `{}`)
	r.want(strings.Contains(read(), "VEVENT"), false)
	other := user()
	other.Organization = 2
	r.want(strings.Contains(r.get(http.MethodGet, r.feed(other, "w", feed.KindWindows), "", 1).Body.String(), "VEVENT"), false)
}

// D64: badges are shown for applications that were opted in, with the name and the state and no more.
func TestABadgeIsOptIn(t *testing.T) {
	t.Parallel()
	r := read(t)
	const address = "/badges/organization_1/shop/production.svg"
	hidden := r.get(http.MethodGet, address, "", 1)
	r.want([]any{hidden.Code, hidden.Body.String()}, []any{http.StatusNotFound, "not found\n"})
	b, err := r.feeds.SetBadges(t.Context(), user(), "shop", true, "")
	r.ok(err)
	r.want(b.Enabled, true)
	r.want(r.feeds.BadgeAddress(org, "a/b c"), "https://cd.example.com/badges/organization_1/a%2Fb%20c/{environment}.svg")
	w := r.get(http.MethodGet, address, "", 1)
	r.want([]any{w.Code, w.Header().Get("Content-Type")}, []any{http.StatusOK, "image/svg+xml; charset=utf-8"})
	r.want(w.Header().Get("Content-Security-Policy"), "default-src 'none'; frame-ancestors 'none'; sandbox")
	r.want([]string{w.Header().Get("Cache-Control"), w.Header().Get("Cross-Origin-Resource-Policy")}, []string{"public, max-age=60", "cross-origin"})
	r.want(strings.Contains(w.Body.String(), "shop in production: not deployed"), true)
	r.ok(r.show(r.production.ID, "live")) // D57: it is found by what people call it as well
	r.want(r.get(http.MethodGet, "/badges/organization_1/shop/live.svg", "", 2).Code, http.StatusOK)
	r.want(r.get(http.MethodGet, address, w.Header().Get("ETag"), 1).Code, http.StatusNotModified)
	r.succeed(r.rollout(r.set))
	r.now.Advance(31 * time.Second)
	w = r.get(http.MethodGet, address, w.Header().Get("ETag"), 1)
	r.want(w.Code, http.StatusOK)
	r.want(strings.Contains(w.Body.String(), "shop in production: deployed"), true)
	r.want(strings.Contains(w.Body.String(), r.set.Name), false)
	for i, wrong := range []string{
		"/badges/organization_1/shop/nowhere.svg", "/badges/organization_1/shop/production.png", "/badges/organization_1/nothing/production.svg",
		"/badges/organization_2/shop/production.svg", "/badges/organization_0/shop/production.svg",
	} {
		r.want(r.get(http.MethodGet, wrong, "", 10+i).Code, http.StatusNotFound)
	}
	_, err = r.feeds.SetBadges(t.Context(), user(), "shop", false, "private")
	r.ok(err)
	r.now.Advance(31 * time.Second)
	r.want(r.get(http.MethodGet, address, "", 1).Code, http.StatusNotFound)
	r.want(r.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'setBadges' AND application_id = $1`, r.application.ID), 2)
	viewer := user()
	viewer.Permissions = core.RoleDeployer.Permissions()
	if _, err = r.feeds.SetBadges(t.Context(), viewer, "shop", true, ""); err == nil {
		t.Error("one who may not configure switched badges on")
	}
}

// D64: a feed is served so often and no more, and who guesses is slowed down; readers beside them are not.
func TestFeedsAreLimited(t *testing.T) {
	t.Parallel()
	r := read(t)
	address := r.feed(user(), "office", feed.KindChanges)
	served := 0
	for range 130 {
		if w := r.get(http.MethodGet, address, "", 1); w.Code == http.StatusOK {
			served++
		} else if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("found %d %v", w.Code, w.Header())
		}
	}
	r.want(served, 120)
	r.now.Advance(time.Minute)
	r.want(r.get(http.MethodGet, address, "", 1).Code, http.StatusOK)
	slowed := false
	for i := range 200 {
		w := r.get(http.MethodGet, fmt.Sprintf("/feeds/organization_1/guess%d/freezes.ics", i), "", 1)
		slowed = slowed || w.Code == http.StatusTooManyRequests
	}
	r.want(slowed, true)
	r.want(r.get(http.MethodGet, address, "", 1).Code, http.StatusOK)
	counts := r.feeds.Counts()
	r.want([]any{counts["served"] >= 122, counts["limited"] >= 10, counts["unknown"] > 0}, []any{true, true, true})
}

// TestATokenOfAFeedIsInNoLog: the address has the token, also with a file that does not exist, and the log has neither (D64).
func TestATokenOfAFeedIsInNoLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handler, err := f.handler(Config{PublicURL: "https://cd.example.com"}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rpc.ServeHTTP(ctx, logger, listener, handler) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"organization_1/SECRET/production-changes.atom", "organization_1/SECRET/typo", "SECRET", "a/b/SECRET/d"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+feed.FeedPath+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, "SECRET") || strings.Count(text, feed.FeedPath+"…") != 4 {
		t.Errorf("found %s; expected four requests without the token", text)
	}
}
