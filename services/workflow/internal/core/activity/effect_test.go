package activity

import (
	"context"
	"strings"
	"testing"
)

type plain struct{ effect Effect }

func (plain) Name() string                            { return "world.act" }
func (plain) Location() Location                      { return InProcess }
func (f plain) Effect() Effect                        { return f.effect }
func (plain) Call(context.Context, Call) (any, error) { return nil, nil }

type placed struct{ plain }

func (placed) Touches(map[string]any) []Place { return nil }

// A Function that does not state what it changes cannot be registered (D46).
func TestAFunctionStatesItsEffectAndItsPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    Function
		want string
	}{
		{plain{Reads}, ""},
		{plain{}, "found effect 0"},
		{plain{Publishes + 1}, "found effect 6"},
		{plain{Changes}, "does not state what"},
		{plain{TakesBack}, "does not state what"},
		{plain{Proposes}, "does not state what"},
		{plain{Publishes}, "does not state what"},
		{placed{plain{Changes}}, ""},
		{placed{plain{TakesBack}}, ""},
		{placed{plain{Proposes}}, ""},
	} {
		_, err := NewFunctions(tt.f)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("effect %d: found %v, want %q", tt.f.Effect(), err, tt.want)
		}
	}
}

func TestPlacesCoverWhatIsTouched(t *testing.T) {
	t.Parallel()
	const repository = "https://git.example.com/shop/deploy"
	file := func(path string) Place { return Place{Repository: repository, Branch: "main", Path: path} }
	for _, tt := range []struct {
		name           string
		place, touched Place
		want           int
	}{
		{"the whole agent", Place{Agent: 4}, Place{Agent: 4, Namespace: "shop", Name: "api"}, 1},
		{"another agent", Place{Agent: 4}, Place{Agent: 5, Namespace: "shop"}, 0},
		{"the namespace", Place{Agent: 4, Namespace: "shop"}, Place{Agent: 4, Namespace: "shop", Name: "api"}, 2},
		{"another namespace", Place{Agent: 4, Namespace: "shop"}, Place{Agent: 4, Namespace: "shop-2", Name: "api"}, 0},
		{"the object", Place{Agent: 4, Namespace: "shop", Name: "api"}, Place{Agent: 4, Namespace: "shop", Name: "api"}, 3},
		{"another object", Place{Agent: 4, Namespace: "shop", Name: "api"}, Place{Agent: 4, Namespace: "shop", Name: "web"}, 0},
		{"an object is not its namespace", Place{Agent: 4, Namespace: "shop", Name: "api"}, Place{Agent: 4, Namespace: "shop"}, 0},
		{"the Application", Place{Agent: 4, Application: "argocd/shop"}, Place{Agent: 4, Application: "argocd/shop"}, 3},
		{"another Application", Place{Agent: 4, Application: "argocd/shop"}, Place{Agent: 4, Application: "argocd/web"}, 0},
		{"a namespace has no Application", Place{Agent: 4, Namespace: "argocd"}, Place{Agent: 4, Application: "argocd/shop"}, 0},
		{"no place", Place{}, Place{Agent: 4, Namespace: "shop"}, 0},
		{"no agent", Place{Repository: repository}, Place{Agent: 4}, 0},
		{"the repository", file("."), file("a/b.yaml"), 2},
		{"the folder", file("a"), file("a/b.yaml"), 3},
		{"the folder below", file("a/b"), file("a/b/c.yaml"), 4},
		{"the file", file("a/b.yaml"), file("a/b.yaml"), 4},
		{"a folder with the same beginning", file("a"), file("ab/c.yaml"), 0},
		{"another branch", Place{Repository: repository, Branch: "next", Path: "."}, file("a"), 0},
		{
			"another spelling",
			Place{Repository: "https://Git.Example.com.:443/Shop/deploy.git/", Branch: "refs/heads/main", Path: "a"},
			file("a/b"), 3,
		},
		{"the suffix in capitals", file("a"), Place{Repository: repository + ".GIT/", Branch: "main", Path: "a"}, 3},
		{"another repository", Place{Repository: repository + "-2", Branch: "main", Path: "."}, file("a"), 0},
		{"any repository", Place{Repository: AnyRepository}, file("a"), 1},
		{"the server", Place{URL: "https://a.example.com"}, Place{URL: "https://a.example.com/b?c"}, 2},
		{"the path", Place{URL: "https://a.example.com/b/"}, Place{URL: "https://a.example.com/b"}, 3},
		{"below the path", Place{URL: "https://a.example.com/b"}, Place{URL: "https://a.example.com/b/c"}, 3},
		{"a path with the same beginning", Place{URL: "https://a.example.com/b"}, Place{URL: "https://a.example.com/bc"}, 0},
		{"another spelling of a URL", Place{URL: "https://a.example.com/b"}, Place{URL: `http://A.example.com.:80//x/..\%42/c`}, 3},
		{"zeros before a port", Place{URL: "https://a.example.com"}, Place{URL: "https://a.example.com:0443"}, 2},
		{"zeros before another port", Place{URL: "https://a.example.com:8443"}, Place{URL: "https://a.example.com:008443"}, 2},
		{"an address", Place{URL: "https://203.0.113.7"}, Place{URL: "https://[::ffff:203.0.113.7]"}, 2},
		{"an address of IPv6", Place{URL: "https://[2001:db8::1]"}, Place{URL: "https://[2001:DB8:0:0:0::0001]"}, 2},
		{"zeros before the port of a repository", file("a"), Place{Repository: "https://git.example.com:0443/shop/deploy", Branch: "main", Path: "a"}, 3},
		{"another server", Place{URL: "https://a.example.com"}, Place{URL: "https://b.example.com"}, 0},
		{"another port", Place{URL: "https://a.example.com"}, Place{URL: "https://a.example.com:8443"}, 0},
		{"a repository is no server", Place{Repository: "https://a.example.com"}, Place{URL: "https://a.example.com"}, 0},
		{"a server is no cluster", Place{URL: "https://a.example.com"}, Place{Agent: 4}, 0},
		{"an agent is no server", Place{Agent: 4}, Place{URL: "https://a.example.com"}, 0},
		{"any server", Place{URL: AnyURL}, Place{URL: "https://a.example.com"}, 1},
		{"any repository is no cluster", Place{Repository: AnyRepository}, Place{Agent: 4}, 0},
	} {
		if got := tt.place.Covers(tt.touched); got != tt.want {
			t.Errorf("%s: found %d, want %d", tt.name, got, tt.want)
		}
	}
}
