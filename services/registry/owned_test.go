package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// closed is a registry that wants a login.
type closed struct {
	host     string
	open     atomic.Bool
	mu       sync.Mutex
	password string
}

func privateRegistry(t *testing.T) *closed {
	t.Helper()
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	p := &closed{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		p.mu.Lock()
		good := password == p.password
		p.mu.Unlock()
		if !p.open.Load() && !good {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "not with "+password, http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	p.host = strings.TrimPrefix(s.URL, "http://")
	return p
}

func (p *closed) wants(password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.password = password
}

// D56: sources are polled with the credentials of their organization, by name, and with no other's; a rotated value is used from then on
// and a revoked one is not, while polls run; after a start they are known before the domain answers; and no value is in a table or an
// error.
func TestSourcesUseCredentialsOfTheirOrganization(t *testing.T) {
	t.Parallel()
	const canary = "kx7f3ab9-never-in-clear"
	p := privateRegistry(t)
	p.open.Store(true)
	image := p.host + "/shop/api"
	push(t, image+":1.0.0")
	p.open.Store(false)
	p.wants(canary)

	file := filepath.Join(t.TempDir(), "keyset.json")
	text, err := keyset.Create()
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	keys := keyset.New(nil, "file:"+file)
	sealed := func(id, organization int64, name string, version int, value string) *sourcesv1.Credential {
		t.Helper()
		terms := sealing.Terms{
			Organization: organization, Name: name, Version: version, Kind: sealing.Registry, Username: "robot",
			URLPrefixes: []string{"http://" + p.host + "/shop"},
		}
		c := &sourcesv1.Credential{
			Id: id, OrganizationId: organization, Name: name, Version: int32(version), UrlPrefixes: terms.URLPrefixes, Username: "robot",
			Revoked: value == "",
		}
		if value != "" {
			var err error
			if c.Sealed, _, err = keys.Seal(t.Context(), value, terms); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	c := config.WithDefaults(Config{PollRate: 1000, AllowNetworks: []string{p.host}, Credentials: sealing.Settings{KeysetRef: "file:" + file}})
	o, set, pool := followed(t, c)
	put := func(all ...*sourcesv1.Credential) {
		o.mu.Lock()
		o.credentials = map[int64]*sourcesv1.Credential{}
		for _, one := range all {
			o.credentials[one.GetId()] = one
		}
		o.mu.Unlock()
		o.conn.Hint(bus.SourcesChanged, nil)
	}
	try := func(organization int64, name string) string {
		t.Helper()
		config := fmt.Sprintf(`{"image":%q,"selection":"semver","credential":%q}`, image, name)
		if name == "" {
			config = fmt.Sprintf(`{"image":%q,"selection":"semver"}`, image)
		}
		tried := sourceOf(0, organization, kinds.OCIImage, "%s", config)
		answer, err := ask(t, o, bus.SourcesLook, &sourcesv1.LookRequest{OrganizationId: organization, Source: tried}, &sourcesv1.LookResponse{})
		if err != nil {
			t.Fatal(err)
		}
		found := answer.GetArtifact() + answer.GetProblem()
		if strings.Contains(found, canary) {
			t.Errorf("found the value in %s", found)
		}
		return found
	}
	becomes := func(organization int64, name, want string) {
		t.Helper()
		found := ""
		wait.For(t, want, func() bool { found = try(organization, name); return strings.Contains(found, want) })
	}
	const works = ":1.0.0@sha256:"
	o.has(sourceOf(1, 7, kinds.OCIImage, `{"image":%q,"selection":"semver","poll":true,"credential":"images"}`, image))
	wait.For(t, "a poll without the credential", func() bool { return strings.Contains(o.states(t, 7, 1)[1].GetLastError(), `no credential "images"`) })
	put(sealed(1, 7, "images", 1, canary), sealed(2, 8, "theirs", 1, "wrong"))
	becomes(7, "images", works)
	becomes(7, "", works) // the one whose URL fits
	becomes(7, "theirs", `no credential "theirs"`)
	becomes(8, "theirs", "with status 401")
	becomes(9, "", "a credential of kind registry")
	p.wants(canary + "-2")
	becomes(7, "images", "with status 401")
	put(sealed(1, 7, "images", 2, canary+"-2"))
	becomes(7, "images", works)

	// Another process knows them before the domain answers.
	second, err := newIntake(c, pool, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := second.sources.poller.Try(t.Context(), understand(coreSource(7, image)))
	if err != nil || outcome.Artifact == nil {
		t.Errorf("a process that has just started: %v, %v; want the artifact", outcome.Problem, err)
	}
	if err := set.pullCredentials(t.Context(), older{}); err != nil { // what is known stays
		t.Error(err)
	}
	becomes(7, "images", works)

	// A value that was moved to another organization opens for nobody.
	moved := sealed(1, 7, "images", 2, canary+"-2")
	moved.OrganizationId = 9
	put(moved)
	becomes(9, "images", `the credential "images"`)
	put(sealed(1, 7, "images", 2, ""))
	becomes(7, "images", "was revoked")
	becomes(7, "", "was revoked")
	put(sealed(1, 7, "images", 3, canary+"-2"))
	becomes(7, "images", works)

	rows, err := pool.Query(t.Context(), `SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 5 {
		t.Fatal(tables, err)
	}
	for _, table := range tables {
		all, err := pool.Query(t.Context(), "SELECT t::text FROM "+pgx.Identifier{table}.Sanitize()+" t")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(all, pgx.RowTo[string])
		joined := strings.Join(texts, "\n")
		if err != nil || strings.Contains(joined, canary) || strings.Contains(joined, fmt.Sprintf("%x", canary)) {
			t.Errorf("%s has the value, or cannot be read: %v", table, err)
		}
	}
}

func coreSource(organization int64, image string) core.Source {
	config := fmt.Appendf(nil, `{"image":%q,"selection":"semver","credential":"images"}`, image)
	return core.Source{Organization: organization, Ref: kinds.OCIImage, Config: config}
}

// older is a domain of an earlier release, which answers with sources.
type older struct{}

func (older) Ask(context.Context, string, []byte) ([]byte, error) { return nil, nil }
