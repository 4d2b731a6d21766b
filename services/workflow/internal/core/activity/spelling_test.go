package activity

import (
	"strings"
	"testing"
)

// A URL that servers may read as a place of an environment, and the guard would not, is ambiguous (D46).
func TestAnotherSpellingOfAPlaceIsAmbiguous(t *testing.T) {
	t.Parallel()
	part := []Place{{URL: "https://a.example.com/prefix"}, {Agent: 7, Namespace: "shop"}, {URL: AnyURL}}
	server := []Place{{URL: "https://a.example.com"}}
	project := []Place{{URL: "https://a.example.com/projects/shop%2Fapi"}, {URL: "https://a.example.com/projects/blog%2Fsite"}}
	repository := []Place{{Repository: "https://git.example.com/shop/deploy"}, {Repository: AnyRepository}}
	of := func(url string) Place { return Place{URL: url} }
	git := func(url string) Place { return Place{Repository: url, Branch: "main", Path: "a"} }
	const odd, address = "several ways", "by its address"
	for _, tt := range []struct {
		touched Place
		places  []Place
		want    string
	}{
		{of("https://a.example.com/prefix/b"), part, ""},
		{of("https://a.example.com/other/b%20c"), part, ""},
		{of("https://a.example.com/prefix%2Fother"), part, odd},
		{of("https://a.example.com/other/%252e%252e/prefix"), part, odd},
		{of("https://a.example.com/other/%2e%2e/prefix"), part, odd},
		{of("https://a.example.com/other/..%5cprefix"), part, odd},
		{of("https://a.example.com/prefix;v=1/b"), part, odd},
		{of("https://a.example.com/prefix/%2e%2e/b"), part, odd},
		{of("https://A.example.com.:443/x%2Fprefix"), part, odd},
		{of("https://a.example.com/prefix%2Fother"), server, ""},
		{of("https://b.example.com/prefix%2Fother"), part, ""},
		{of("https://a.example.com/prefix%2Fother"), nil, ""},
		{of("https://a.example.com/projects/shop%2Fapi/hooks"), project, ""},
		{of("https://a.example.com/projects/SHOP%2fapi"), project, ""},
		{of("https://a.example.com/projects/shop%2Fapi/%2e%2e/x"), project, odd},
		{of("https://a.example.com/projects/shop%252Fapi"), project, odd},
		{of("http://203.0.113.7/prefix"), part, address},
		{of("http://[2001:db8::1]/prefix"), part, address},
		{of("http://3405803783/prefix"), part, address},
		{of("http://0xcb.0x71.0x7/prefix"), part, address},
		{of("http://203.0.113.7/x"), []Place{{URL: "http://203.0.113.7/prefix"}}, ""},
		{of("http://203.0.113.7/prefix/x"), append([]Place{{URL: "http://203.0.113.7/prefix"}}, part...), ""},
		{of("http://203.0.113.7/x"), nil, ""},
		{of("http://[::1"), part, "cannot be read"},
		{git("https://git.example.com/shop/deploy"), repository, ""},
		{git("https://git.example.com/shop%2Fdeploy"), repository, odd},
		{git("https://203.0.113.7/shop/deploy"), repository, address},
		{git("https://a.example.com/prefix%2Fx"), part, ""},
		{Place{Agent: 7, Namespace: "shop"}, part, ""},
	} {
		if got := tt.touched.Ambiguous(tt.places); got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s%s: found %q, want %q", tt.touched.URL, tt.touched.Repository, got, tt.want)
		}
	}
}
