package oci_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
)

// held is a registry with an image and an index, behind a handler of the test.
type held struct {
	server       *httptest.Server
	host         string
	image, index string
}

func hold(t *testing.T, before func(next http.Handler) http.Handler) held {
	t.Helper()
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	var open atomic.Bool
	open.Store(true)
	guarded := before(inner)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open.Load() {
			inner.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	h := held{server: s, host: strings.TrimPrefix(s.URL, "http://")}
	repository, err := name.NewRepository(h.host + "/shop/api")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(100, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(remote.Write(repository.Tag("one"), image), remote.WriteIndex(repository.Tag("many"), index)); err != nil {
		t.Fatal(err)
	}
	d1, err1 := image.Digest()
	d2, err2 := index.Digest()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	h.image, h.index = d1.String(), d2.String()
	open.Store(false)
	return h
}

func asIs(next http.Handler) http.Handler { return next }

func client(t *testing.T, d oci.Deps) *oci.Registries {
	t.Helper()
	d.Clock = clock.System()
	if d.Transport == nil {
		d.Transport = http.DefaultTransport
	}
	return oci.New(d)
}

func TestDigest(t *testing.T) {
	t.Parallel()
	h := hold(t, asIs)
	r := client(t, oci.Deps{})
	none := "sha256:" + strings.Repeat("0", 64)
	for _, tt := range []struct {
		image, tag, digest, want string
		class                    fault.Class
	}{
		{image: "/shop/api", tag: "one", want: h.image},
		{image: "/shop/api", tag: "many", want: h.index},
		{image: "/shop/api", tag: "one", digest: none, want: h.image}, // the registry's digest counts, not the reported one
		{image: "/shop/api", digest: h.index, want: h.index},
		{image: "/shop/api", tag: "none", class: fault.NotFound},
		{image: "/shop/api", digest: none, class: fault.NotFound},
		{image: "/shop/none", tag: "one", class: fault.NotFound},
		{image: "/Shop/api", tag: "one", class: fault.Invalid},
	} {
		got, err := r.Digest(t.Context(), 1, h.host+tt.image, tt.tag, tt.digest)
		if got != tt.want || err != nil && fault.ClassOf(err) != tt.class || err == nil && tt.want == "" {
			t.Errorf("%s:%s@%s: %s, %v; want %s %s", tt.image, tt.tag, tt.digest, got, err, tt.want, fault.Describe(tt.class).Name)
		}
	}
}

func TestAnAnswerToHeadWithoutDigest(t *testing.T) {
	t.Parallel()
	h := hold(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	if got, err := client(t, oci.Deps{}).Digest(t.Context(), 1, h.host+"/shop/api", "many", ""); err != nil || got != h.index {
		t.Errorf("%s, %v; want %s", got, err, h.index)
	}
}

func accounts(t *testing.T, all []ociauth.Account) ociauth.Accounts {
	t.Helper()
	checked, err := ociauth.NewAccounts(all, false)
	if err != nil {
		t.Fatal(err)
	}
	return checked
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	h := hold(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !ok || user != "ci" || password != "right" {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	password := func(p string, err error) func() (string, error) { return func() (string, error) { return p, err } }
	for name, tt := range map[string]struct {
		accounts []ociauth.Account
		class    fault.Class
	}{
		"none":         {nil, fault.Denied},
		"right":        {[]ociauth.Account{{Host: h.host, Username: "ci", Password: password("right", nil)}}, fault.Internal},
		"wrong":        {[]ociauth.Account{{Host: h.host, Username: "ci", Password: password("wrong", nil)}}, fault.Denied},
		"another host": {[]ociauth.Account{{Host: "docker.io", Username: "ci", Password: password("right", nil)}}, fault.Denied},
		"the longest": {[]ociauth.Account{
			{Host: h.host, Username: "ci", Password: password("wrong", nil)},
			{Host: h.host + "/shop", Username: "ci", Password: password("right", nil)},
		}, fault.Internal},
		"another folder": {[]ociauth.Account{{Host: h.host + "/sho", Username: "ci", Password: password("right", nil)}}, fault.Denied},
		"unreadable":     {[]ociauth.Account{{Host: h.host, Username: "ci", Password: password("", errors.New("gone"))}}, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := client(t, oci.Deps{Accounts: accounts(t, tt.accounts)}).Digest(t.Context(), 1, h.host+"/shop/api", "one", "")
			if tt.class == fault.Internal && (err != nil || got != h.image) || tt.class != fault.Internal && !fault.Is(err, tt.class) {
				t.Errorf("%s, %v; want class %s", got, err, fault.Describe(tt.class).Name)
			}
		})
	}
	if _, err := ociauth.NewAccounts([]ociauth.Account{{Host: "a b"}}, false); !fault.Is(err, fault.Invalid) {
		t.Errorf("an invalid host: %v", err)
	}
}

func TestWhatARegistryMayAnswer(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		class  fault.Class
	}{
		"too many requests": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, fault.Unavailable},
		"broken":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, fault.Unavailable},
		"forbidden":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, fault.Denied},
		"a chart of another kind": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Docker-Content-Digest", digest)
			_, _ = w.Write([]byte("something"))
		}, fault.Invalid},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "<http://%zz>")
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write([]byte("<html>"))
		}, fault.Invalid},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/" {
					tt.answer(w, r)
				}
			}))
			t.Cleanup(s.Close)
			_, err := client(t, oci.Deps{}).Digest(t.Context(), 1, strings.TrimPrefix(s.URL, "http://")+"/shop/api", "one", "")
			if !fault.Is(err, tt.class) {
				t.Errorf("%v; want class %s", err, fault.Describe(tt.class).Name)
			}
			if answered := name != "hangs up"; answered == strings.Contains(err.Error(), "does not answer") {
				t.Errorf("%v", err)
			}
			if tt.class == fault.Denied && !strings.Contains(err.Error(), "`registries`") {
				t.Errorf("%v does not say where an account goes", err)
			}
		})
	}
}
