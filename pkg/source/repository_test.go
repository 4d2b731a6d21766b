package source

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func TestNormalizeImage(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, image, want string }{
		{"a short name is Docker's library", "nginx", "docker.io/library/nginx"},
		{"a user on Docker Hub", "grafana/loki:3.1", "docker.io/grafana/loki"},
		{"the library spelled out", "docker.io/nginx:1.27", "docker.io/library/nginx"},
		{"Docker's old host", "index.docker.io/library/nginx", "docker.io/library/nginx"},
		{"tag and digest", "registry.example.com/shop/api:1.4@sha256:" + strings.Repeat("ab", 32), "registry.example.com/shop/api"},
		{"a digest that is too short", "registry.example.com/shop/api@sha256:short", ""},
		{"a digest that is cut off", "registry.example.com/shop/api@sha256:abc", ""},
		{"a digest of no algorithm", "registry.example.com/shop/api@md5:" + strings.Repeat("ab", 16), ""},
		{"a password", "user:pw@evil.example.com/p/api", ""},
		{"a password and a digest", "user:pw@evil.example.com/p/api@sha256:" + strings.Repeat("ab", 32), ""},
		{"a user", "user@127.0.0.1:15002/p/api", ""},
		{"a bad tag", "registry.example.com/shop/api:a b", ""},
		{"an empty tag", "registry.example.com/shop/api:", ""},
		{"a port is no tag", "localhost:5000/api", "localhost:5000/api"},
		{"port and tag", "registry.example.com:8443/shop/api:1.4", "registry.example.com:8443/shop/api"},
		{"the default port", "registry.example.com:443/api", "registry.example.com/api"},
		{"localhost without a port", "localhost/api", "localhost/api"},
		{"upper case", "Registry.Example.COM/Shop/API", "registry.example.com/shop/api"},
		{"spaces around", " nginx ", "docker.io/library/nginx"},
		{"an address", "[::1]:5000/api", "[::1]:5000/api"},
		{"a container of Compose", "registry_1:5000/api", "registry_1:5000/api"},
		{"a container of Compose in a domain", "shop_registry.internal/api", "shop_registry.internal/api"},
		{"a fully qualified name", "registry.example.com./api", "registry.example.com/api"},
		{"a fully qualified name with a port", "registry.example.com.:5000/api", "registry.example.com:5000/api"},
		{"an internationalized name", "Registry.Müller.example/api", "registry.xn--mller-kva.example/api"},
		{"an internationalized name in ASCII", "registry.xn--mller-kva.example/api", "registry.xn--mller-kva.example/api"},
		{"a single name with the default port", "registry:443/api", "registry:443/api"},
		{"a port out of range", "registry.example.com:99999/api", ""},
		{"a broken address", "[::1/api", ""},
		{"a malformed address", "[:::]:5000/api", ""},
		{"a scheme", "https://registry.example.com/api", ""},
		{"nothing", "", ""},
		{"only a tag", ":1.0", ""},
		{"a path that goes up", "registry.example.com/../api", ""},
		{"a trailing slash", "registry.example.com/api/", ""},
		{"spaces inside", "registry.example.com/a b", ""},
		{"endless", strings.Repeat("x", 10000), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := NormalizeImage(tt.image)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("NormalizeImage(%q) = %q, %v; want %q", tt.image, got, err, tt.want)
			}
		})
	}
}

// TestNoErrorShowsAPassword: the reason for refusing an event or a source may be stored.
func TestNoErrorShowsAPassword(t *testing.T) {
	t.Parallel()
	for _, image := range []string{
		"user:secret@evil.example.com/p/api", "https://user:secret@evil.example.com/api",
		"user:secret@h/a@sha256:abc", "user:secret@h:5000", "a@user:secret@h/x",
	} {
		_, err := NormalizeImage(image)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", image, err)
		}
	}
	for _, repository := range []string{
		"https://user:secret@git.example.com/x", "https://secret@git.example.com/x",
		"https://git.example.com/x?token=secret", "https://git.example.com/x#secret", "user:secret@git.example.com:x",
		"ht tp://user:secret@h/x",
	} {
		_, wrong := Parse(Git, json.RawMessage(`{"repository":`+strconv.Quote(repository)+`,"branch":"main"}`))
		if len(wrong) != 1 || strings.Contains(wrong[0].Problem, "secret") {
			t.Errorf("%s: %v", repository, wrong)
		}
	}
}

// TestAnErrorNamesTheImageAsUnderstood, since a name without a registry is one of Docker Hub.
func TestAnErrorNamesTheImageAsUnderstood(t *testing.T) {
	t.Parallel()
	if _, err := NormalizeImage("shop//api"); err == nil ||
		!strings.Contains(err.Error(), `understood as "shop//api" at registry "docker.io"`) {
		t.Errorf("error = %v", err)
	}
}

func FuzzNormalizeImage(f *testing.F) {
	for _, seed := range []string{
		"nginx", "a.b:5000/c/d:e@sha256:" + strings.Repeat("f", 64), "[::1]:5/x", "localhost/x", "UP/case",
		"//", "@", "x:443/y",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		once, err := NormalizeImage(image)
		if err != nil {
			return
		}
		twice, err := NormalizeImage(once)
		if err != nil || twice != once {
			t.Errorf("NormalizeImage(%q) = %q, and of that %q, %v", image, once, twice, err)
		}
		if strings.ToLower(once) != once || strings.Contains(once, "@") {
			t.Errorf("NormalizeImage(%q) = %q is not normal", image, once)
		}
	})
}

func TestNormalizeHost(t *testing.T) {
	t.Parallel()
	tests := []struct{ host, scheme, want string }{
		{"registry", "https", "registry:443"},
		{"registry", "http", "registry:80"},
		{"registry", "", "registry:443"},
		{"registry:5000", "http", "registry:5000"},
		{"registry_1:5000", "http", "registry_1:5000"},
		{"evil_host", "https", "evil_host:443"},
		{"registry.example.com.", "https", "registry.example.com"},
		{"EXAMPLE.com:443", "https", "example.com"},
		{"localhost", "http", "localhost"},
		{"EXAMPLE.com:99999", "https", ""},
		{"registry.example.com:0", "https", ""},
		{"registry.example.com:", "https", ""},
		{"[::1", "https", ""},
		{"::1", "https", ""},
		{"user:pw@registry.example.com", "https", ""},
		{"registry.example.com/shop", "https", ""},
		{"a b", "https", ""},
		{".", "https", ""},
		{"", "https", ""},
		{strings.Repeat("a", 300), "https", ""},
	}
	for _, tt := range tests {
		t.Run(tt.host+" "+tt.scheme, func(t *testing.T) {
			t.Parallel()
			got, ok := NormalizeHost(tt.host, tt.scheme)
			if got != tt.want || ok != (tt.want != "") {
				t.Fatalf("NormalizeHost(%q, %q) = %q, %v; want %q", tt.host, tt.scheme, got, ok, tt.want)
			}
			if again, _ := NormalizeHost(got, tt.scheme); ok && again != got {
				t.Errorf("normalized again: %q, not %q", again, got)
			}
		})
	}
}
