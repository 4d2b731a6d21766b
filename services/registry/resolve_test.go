package registry

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ociname "github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
)

// resolving runs the resolver until the test ends.
func (h hooked) resolving(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	group.Go(func() {
		if err := h.in.resolve(ctx, func() {}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); group.Wait() })
}

// published returns the events in the outbox, as image:tag@digest, with " deleted" for a deletion.
func published(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT event->'data'->>'image', event->'data'->>'tag', event->'data'->>'digest', event->>'type' LIKE '%.deleted' FROM outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var image, digest string
		var tag *string
		var deleted bool
		if err := rows.Scan(&image, &tag, &digest, &deleted); err != nil {
			t.Fatal(err)
		}
		if tag != nil {
			image += ":" + *tag
		}
		if deleted {
			digest += " deleted"
		}
		all = append(all, image+"@"+digest)
	}
	return all
}

// ociServer runs go-containerregistry's registry.
func ociServer(t *testing.T) (host string) {
	t.Helper()
	s := httptest.NewServer(ociregistry.New(ociregistry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// push pushes an index with images for two platforms.
func push(t *testing.T, reference string) v1.ImageIndex {
	t.Helper()
	tag, err := ociname.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(50, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	return index
}

func digestOf(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	d, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// hub is a delivery of Docker Hub.
func hub(tag string, at int) []byte {
	return fmt.Appendf(nil, `{"push_data":{"tag":%q,"pushed_at":%d},"repository":{"repo_name":"shop/api"},"callback_url":"http://169.254.169.254/"}`, tag, at)
}

func plainJSON() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func (h hooked) status(t *testing.T) api.HookStatus {
	t.Helper()
	status, _, body := post{method: http.MethodGet, path: "/v1/hooks", header: with("application/json")}.do(t, h.server.URL)
	var answer struct{ Hooks []api.HookStatus }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || len(answer.Hooks) != 1 {
		t.Fatalf("answered %d %s: %v", status, body, err)
	}
	return answer.Hooks[0]
}

func TestATagIsResolvedAtItsRegistry(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "dockerhub", Host: host}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	image := host + "/shop/api"
	first := digestOf(t, push(t, image+":1"))
	path := hookPath(h.config, hookSecret)
	for range 2 {
		if status, answer := h.post(t, path, plainJSON(), hub("1", 1774432800)); status != http.StatusAccepted ||
			!strings.Contains(answer, `"resolving":1`) {
			t.Fatalf("answered %d %s", status, answer)
		}
		wait.For(t, "event", func() bool {
			return slices.Equal(published(t, h.pool), []string{image + ":1@" + first}) && count(t, h.pool, "hint") == 0
		})
	}
	second := digestOf(t, push(t, image+":1"))
	h.post(t, path, plainJSON(), hub("1", 1774432801))
	wait.For(t, "event of the second push", func() bool { return len(published(t, h.pool)) == 2 })
	if got := published(t, h.pool); got[1] != image+":1@"+second {
		t.Errorf("events say %v, want %s in the end", got, second)
	}
	if s := h.status(t); s.LastArtifact != image+":1@"+second || s.LastPublished == nil || len(s.Waiting) != 0 {
		t.Errorf("status is %+v", s)
	}
}

// A registry with a certificate of a private authority is accessible if the authority is configured, and only then.
func TestARegistryOfAnotherAuthority(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(ociregistry.New(ociregistry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(server.Close)
	host, authority := strings.TrimPrefix(server.URL, "https://"), filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	tag, err := ociname.NewTag(host + "/shop/api:1")
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(50, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index, remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"named": authority, "not named": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hook(t, HookConfig{Source: "dockerhub", Host: host}, Config{AllowNetworks: []string{host}, RegistriesCAFile: file})
			h.resolving(t)
			h.post(t, hookPath(h.config, hookSecret), plainJSON(), hub("1", 1774432800))
			if file == "" {
				wait.For(t, "the reason why nothing comes", func() bool {
					waiting := h.status(t).Waiting
					return len(waiting) == 1 && waiting[0].LastError != ""
				})
				if got := published(t, h.pool); len(got) != 0 {
					t.Errorf("found %v, expected nothing from a registry that is not trusted", got)
				}
				return
			}
			wait.For(t, "event", func() bool {
				return slices.Equal(published(t, h.pool), []string{host + "/shop/api:1@" + digestOf(t, index)})
			})
		})
	}
	if _, err := newIntake(Config{RegistriesCAFile: authority + ".gone"}, nil, slog.New(slog.DiscardHandler), func() {}); err == nil ||
		!strings.Contains(err.Error(), "registries_ca_file") {
		t.Errorf("a file that is not there: found %v, expected an error that names the key", err)
	}
}

func TestAMissingTagIsRetriedAndShown(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "quay", Host: host}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	body := []byte(`{"docker_url":"quay.io/shop/api","updated_tags":["late"]}`)
	if status, answer := h.post(t, hookPath(h.config, hookSecret), plainJSON(), body); status != http.StatusAccepted {
		t.Fatalf("answered %d %s", status, answer)
	}
	wait.For(t, "failed attempt", func() bool {
		w := h.status(t).Waiting
		return len(w) == 1 && w[0].Reference == host+"/shop/api:late" && strings.Contains(w[0].LastError, "no such manifest") &&
			w[0].NextTry != nil && w[0].Attempts > 0
	})
	want := host + "/shop/api:late@" + digestOf(t, push(t, host+"/shop/api:late"))
	wait.For(t, "event", func() bool { return slices.Equal(published(t, h.pool), []string{want}) })
	wait.For(t, "end of waiting", func() bool { return len(h.status(t).Waiting) == 0 })
}

func TestVerifiedHooksBelieveTheRegistry(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "generic", Verify: true}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	index := digestOf(t, push(t, host+"/shop/api:1"))
	body := fmt.Appendf(nil, `{"image":%q,"tag":"1","digest":%q}`, host+"/shop/api", digest)
	header := plainJSON()
	header.Set("Authorization", "Bearer "+hookSecret)
	if status, answer := h.post(t, hookPath(h.config, hookSecret), header, body); status != http.StatusAccepted {
		t.Fatalf("answered %d %s", status, answer)
	}
	wait.For(t, "event", func() bool { return slices.Equal(published(t, h.pool), []string{host + "/shop/api:1@" + index}) })
}

func TestStatusNeedsAToken(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "quay"}, Config{})
	if status, _, body := (post{method: http.MethodGet, path: "/v1/hooks"}).do(t, h.server.URL); status != http.StatusUnauthorized {
		t.Errorf("answered %d %s", status, body)
	}
}
