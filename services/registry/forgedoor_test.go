package registry

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
)

// hookOwner plays the domain, which knows the hooks that there are. It answers with one for each page.
type hookOwner struct {
	mu          sync.Mutex
	hooks       []*sourcesv1.ForgeHook
	away, older bool
	asked       int
}

func (o *hookOwner) Ask(_ context.Context, subject string, raw []byte) ([]byte, error) {
	var request sourcesv1.PullRequest
	if err := proto.Unmarshal(raw, &request); err != nil || subject != bus.SourcesPull || !request.GetForgeHooks() {
		return nil, fault.New(fault.Invalid, "found %v at %s, %v; expected a pull of hooks", &request, subject, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	switch {
	case o.away:
		return nil, fault.New(fault.Unavailable, "the domain's database is away")
	case o.older:
		return proto.Marshal(&sourcesv1.PullResponse{})
	}
	page := &sourcesv1.ForgeHooks{}
	for _, h := range o.hooks {
		if h.GetId() > request.GetAfter() && len(page.GetHooks()) < 1 {
			page.Hooks = append(page.Hooks, h)
		}
	}
	return proto.Marshal(&sourcesv1.PullResponse{ForgeHooks: page})
}

func (o *hookOwner) change(fn func(*hookOwner)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn(o)
}

// door is a registry service with a domain, and the hook forgeKey of organization 3.
type door struct {
	t     *testing.T
	owner *hookOwner
	hooks *forgeHooks
	pool  *pgxpool.Pool
	post  func(organization int64) (int, string)
}

func newDoor(t *testing.T) door {
	t.Helper()
	s, pool, in := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{secretFile(t, hookSecret)}}})
	d := door{t: t, hooks: in.sources.forgeHooks, pool: pool, owner: &hookOwner{hooks: []*sourcesv1.ForgeHook{
		{Id: 1, OrganizationId: 3, Key: forgeKey}, {Id: 4, OrganizationId: 5, Key: forgeKey},
	}}}
	sequence := 0
	d.post = func(organization int64) (int, string) {
		t.Helper()
		path, secret, err := answers{in.sources}.ForgeHook(t.Context(), organization, forgeKey, "github")
		if err != nil {
			t.Fatal(err)
		}
		sequence++
		body := githubStatus("success", "ci/e2e", "2026-03-25T10:00:00Z", sequence)
		return deliver(t, s.URL+path, githubSigned("status", secret, body), body)
	}
	return d
}

// wants checks how a delivery of an organization is answered, after the hooks were last pulled long ago.
func (d door) wants(organization int64, want int) {
	d.t.Helper()
	d.hooks.pulling.Lock()
	d.hooks.pulled = time.Time{}
	d.hooks.pulling.Unlock()
	if code, text := d.post(organization); code != want {
		d.t.Errorf("organization %d: found %d %s; want %d", organization, code, text, want)
	}
}

func (d door) refresh() {
	d.t.Helper()
	if _, err := d.hooks.refresh(d.t.Context(), 0); err != nil {
		d.t.Fatal(err)
	}
}

// D48: the secret of a hook that was removed proves nothing any more: its deliveries are answered as those to paths that there never were,
// and ask the domain service once. A new hook is found as soon as it delivers, also right after a pull that it was not in.
func TestARemovedHookIsRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.wants(3, http.StatusAccepted) // before anything is known
	d.hooks.domain(d.owner)
	d.refresh()
	d.wants(3, http.StatusAccepted)
	d.wants(5, http.StatusAccepted)
	d.wants(4, http.StatusNotFound) // another organization has a hook of this key
	d.owner.change(func(o *hookOwner) { o.hooks = o.hooks[1:] })
	d.wants(9, http.StatusNotFound)
	d.wants(3, http.StatusNotFound)
	before := d.owner.asked
	events := count(t, d.pool, "outbox")
	_, unknown := d.post(9)
	for i := range 10 {
		code, text := d.post(3)
		if slowed := i >= 3 && code == http.StatusTooManyRequests; !slowed && (code != http.StatusNotFound || text != unknown) {
			t.Errorf("delivery %d: found %d %s; want 404 with the words of all unknown paths, and later 429", i, code, text)
		}
	}
	if n := d.owner.asked - before; n > 0 {
		t.Errorf("found %d questions; want none about hooks that are known to be removed", n)
	}
	if n := count(t, d.pool, "outbox"); n != events {
		t.Errorf("found %d events more; want none", n-events)
	}
	d.wants(5, http.StatusAccepted)
	d.owner.change(func(o *hookOwner) {
		o.hooks = append(o.hooks, &sourcesv1.ForgeHook{Id: 7, OrganizationId: 6, Key: forgeKey})
	})
	if code, text := d.post(6); code != http.StatusAccepted {
		t.Errorf("found %d %s; want the delivery of a new hook accepted", code, text)
	}
	d.wants(6, http.StatusAccepted)
}

// D48: no report is lost because the domain service does not answer, or is of an older release: it decides later what a report counts for.
func TestReportsAreAcceptedWhileHooksAreNotKnown(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.hooks.domain(d.owner)
	d.refresh()
	d.owner.change(func(o *hookOwner) { o.hooks, o.away = nil, true })
	d.wants(3, http.StatusAccepted)
	d.wants(6, http.StatusAccepted)
	if code, text := d.post(6); code != http.StatusAccepted { // it is not asked again at once
		t.Errorf("found %d %s; want it accepted", code, text)
	}
	d.owner.change(func(o *hookOwner) { o.away = false })
	d.wants(6, http.StatusNotFound)
	d.wants(3, http.StatusNotFound)
	d.owner.change(func(o *hookOwner) { o.older = true })
	d.refresh()
	d.wants(3, http.StatusAccepted)
}
