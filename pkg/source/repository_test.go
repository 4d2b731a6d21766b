package source

import (
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
		{"tag and digest", "registry.example.com/shop/api:1.4@sha256:abc", "registry.example.com/shop/api"},
		{"a port is no tag", "localhost:5000/api", "localhost:5000/api"},
		{"port and tag", "registry.example.com:8443/shop/api:1.4", "registry.example.com:8443/shop/api"},
		{"the default port", "registry.example.com:443/api", "registry.example.com/api"},
		{"localhost without a port", "localhost/api", "localhost/api"},
		{"upper case", "Registry.Example.COM/Shop/API", "registry.example.com/shop/api"},
		{"spaces around", " nginx ", "docker.io/library/nginx"},
		{"an address", "[::1]:5000/api", "[::1]:5000/api"},
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

func FuzzNormalizeImage(f *testing.F) {
	for _, seed := range []string{"nginx", "a.b:5000/c/d:e@sha256:f", "[::1]:5/x", "localhost/x", "UP/case", "//", "@", "x:443/y"} {
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
