package source

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSourcesAreCheckedWhereTheyAreWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, ref, config string
		fields            []string
	}{
		{"unknown kind", "helm-chart@1", `{}`, []string{"/sourceRef"}},
		{"another major", "oci-image@2", `{}`, []string{"/sourceRef"}},
		{"no image", OCIImage, `{}`, []string{"/sourceConfig/image"}},
		{"bad image", OCIImage, `{"image":"https://x/y"}`, []string{"/sourceConfig/image"}},
		{"superfluous field", OCIImage, `{"image":"x","project":7}`, []string{"/sourceConfig/project"}},
		{"not an object", OCIImage, `"nginx"`, []string{"/sourceConfig"}},
		{"not JSON", OCIImage, `{`, []string{"/sourceConfig"}},
		{"a range without semver", OCIImage, `{"image":"x","range":">=1"}`, []string{"/sourceConfig/range"}},
		{"a bad range", OCIImage, `{"image":"x","selection":"semver","range":"about 1"}`, []string{"/sourceConfig/range"}},
		{"no tag", OCIImage, `{"image":"x","selection":"mutable_tag"}`, []string{"/sourceConfig/tag"}},
		{"a tag beside a range", OCIImage, `{"image":"x","selection":"semver","tag":"1"}`, []string{"/sourceConfig/tag"}},
		{"nothing to poll for", OCIImage, `{"image":"x","poll":true}`, []string{"/sourceConfig/selection"}},
		{"an interval without polling", OCIImage, `{"image":"x","poll_interval_seconds":60}`, []string{"/sourceConfig/poll_interval_seconds"}},
		{
			"too often", OCIImage, `{"image":"x","selection":"lexical","poll":true,"poll_interval_seconds":1}`,
			[]string{"/sourceConfig/poll_interval_seconds"},
		},
		{
			"bad expressions", OCIImage, `{"image":"x","allow_tags":"(","ignore_tags":"[a"}`,
			[]string{"/sourceConfig/allow_tags", "/sourceConfig/ignore_tags"},
		},
		{"a look-ahead", OCIImage, `{"image":"x","allow_tags":"(?=a)"}`, []string{"/sourceConfig/allow_tags"}},
		{"a repository with a password", Git, `{"repository":"https://u:p@x/y","branch":"main"}`, []string{"/sourceConfig/repository"}},
		{"a repository by SSH", Git, `{"repository":"git@x:y.git","branch":"main"}`, []string{"/sourceConfig/repository"}},
		{"a host alone", Git, `{"repository":"https://x","branch":"main"}`, []string{"/sourceConfig/repository"}},
		{"no branch", Git, `{"repository":"https://x/y"}`, []string{"/sourceConfig/branch"}},
		{"a branch beside tags", Git, `{"repository":"https://x/y","follow":"tags","branch":"main"}`, []string{"/sourceConfig/branch"}},
		{
			"bad patterns", Git, `{"repository":"https://x/y","branch":"main","paths":"[a /b","ignore_paths":"**/**/**/**/**"}`,
			[]string{"/sourceConfig/paths", "/sourceConfig/paths", "/sourceConfig/ignore_paths"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, wrong := Parse(tt.ref, json.RawMessage(tt.config))
			var fields []string
			for _, f := range wrong {
				fields = append(fields, f.Name)
				if f.Problem == "" {
					t.Errorf("%s has no text", f.Name)
				}
			}
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%v", diff, wrong)
			}
		})
	}
}

// parse parses a valid configuration.
func parse(t *testing.T, ref, config string) Source {
	t.Helper()
	s, wrong := Parse(ref, json.RawMessage(config))
	if wrong != nil {
		t.Fatalf("Parse(%s): %v", config, wrong)
	}
	return s
}

func TestWhichTagsASourceTakes(t *testing.T) {
	t.Parallel()
	of := "sha256-" + strings.Repeat("0a", 32)
	tests := []struct {
		config      string
		takes, not  []string
		newest      string
		fromTheLast []string
	}{
		{config: `{}`, takes: []string{"", "latest", "1.0", "sha256-abc", "sha-4f26631"}, not: []string{of, of + ".sig", of + ".att"}},
		{config: `{"selection":"lexical"}`, not: []string{of}, newest: "b", fromTheLast: []string{"a", of, of + ".sig", "b"}},
		{config: `{"allow_tags":"^v"}`, takes: []string{"v1"}, not: []string{"", "1", "dev"}},
		{config: `{"ignore_tags":"-rc"}`, takes: []string{"", "1.0"}, not: []string{"1.0-rc1"}},
		{config: `{"selection":"mutable_tag","tag":"stable"}`, takes: []string{"stable"}, not: []string{"", "latest"}},
		{
			config: `{"selection":"semver","range":">=1.2 <2"}`, takes: []string{"1.2.0", "v1.10.3", "1.9"},
			not:    []string{"", "2.0.0", "1.1.9", "1.3.0-rc.1", "latest", "1", "v1"},
			newest: "v1.10.3", fromTheLast: []string{"1.9.0", "v1.10.3", "1.2.0", "2.0.0", "latest", "1.11.0-rc.1"},
		},
		{config: `{"selection":"semver"}`, newest: "2.0.0", fromTheLast: []string{"2.0.0", "v1.10.3", "2.1.0-rc.1", "20260301", "7000000"}},
		{config: `{"selection":"semver","range":">=1.0.0-0"}`, newest: "2.1.0-rc.1", fromTheLast: []string{"2.0.0", "2.1.0-rc.1"}},
		{
			config: `{"selection":"lexical","allow_tags":"^[0-9]{8}-"}`, newest: "20260302-b",
			fromTheLast: []string{"20260301-z", "20260302-b", "20260302-a", "zzz"},
		},
		{config: `{"selection":"semver","range":">=9"}`, fromTheLast: []string{"1.0.0"}},
	}
	for _, tt := range tests {
		t.Run(tt.config, func(t *testing.T) {
			t.Parallel()
			var c map[string]any
			if err := json.Unmarshal([]byte(tt.config), &c); err != nil {
				t.Fatal(err)
			}
			c["image"] = "shop/api"
			config, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			s := parse(t, OCIImage, string(config))
			for _, tag := range tt.takes {
				if !s.Takes(tag) {
					t.Errorf("does not take %q", tag)
				}
			}
			for _, tag := range tt.not {
				if s.Takes(tag) {
					t.Errorf("takes %q", tag)
				}
			}
			for range 2 {
				if got, ok := s.(*Image).Newest(tt.fromTheLast); got != tt.newest || ok != (tt.newest != "") {
					t.Errorf("newest of %q is %q, %v; want %q", tt.fromTheLast, got, ok, tt.newest)
				}
				slices.Reverse(tt.fromTheLast)
			}
		})
	}
}

func TestKeysMeetHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	image := parse(t, OCIImage, `{"image":"NGINX:1","selection":"lexical","poll":true}`)
	if key, err := ImageKey("index.docker.io/library/nginx@sha256:" + strings.Repeat("0", 64)); err != nil || key != image.Key() {
		t.Errorf("key %q, %v; want %q", key, err, image.Key())
	}
	if image.Interval() != 5*time.Minute || image.Place() != "docker.io" {
		t.Errorf("every %v at %s", image.Interval(), image.Place())
	}
	git := parse(t, Git, `{"repository":"https://Git.example.com:443/shop/config.git/","branch":"main","paths":"deploy/**"}`)
	same := parse(t, Git, `{"repository":"http://git.example.com/shop/config","branch":"main","paths":"  deploy/** "}`)
	other := parse(t, Git, `{"repository":"https://git.example.com/shop/config","branch":"main","paths":"src/**"}`)
	if git.Key() != same.Key() || git.Key() == other.Key() {
		t.Errorf("keys %q, %q, %q; want the first two alone alike", git.Key(), same.Key(), other.Key())
	}
	for _, s := range []Source{git, other, parse(t, Git, `{"repository":"https://x/y","follow":"tags"}`)} {
		name := s.(*Repository).Artifact()
		if key, err := ImageKey(name); err != nil || key != s.Key() {
			t.Errorf("key of %q is %q, %v", name, key, err)
		}
	}
	if name := git.(*Repository).Name(); name != "git.example.com/shop/config" ||
		RepositoryName("https://git.example.com/shop/config.git") != name || RepositoryName("git.example.com") != "" {
		t.Errorf("the repository is %q", name)
	}
}

// R4-08: patterns set which files matter, and one that ignores a file is about that file only.
func TestAnIgnoredFileHidesNoOther(t *testing.T) {
	t.Parallel()
	tests := []struct {
		filters string
		changed string
		want    bool
	}{
		{``, "README.md", true},
		{`,"paths":"deploy/** charts/*/values.yaml"`, "deploy/a/b.yaml", true},
		{`,"paths":"deploy/** charts/*/values.yaml"`, "charts/api/values.yaml", true},
		{`,"paths":"deploy/** charts/*/values.yaml"`, "charts/api/sub/values.yaml README.md", false},
		{`,"ignore_paths":"**/*.md"`, "README.md docs/a.md", false},
		{`,"ignore_paths":"**/*.md"`, "README.md main.go", true},
		{`,"ignore_paths":"**/*.md"`, "main.go README.md", true},
		{`,"paths":"deploy/**","ignore_paths":"deploy/test/**"`, "deploy/test/a.yaml src/x.go", false},
		{`,"paths":"deploy/**","ignore_paths":"deploy/test/**"`, "deploy/test/a.yaml deploy/b.yaml", true},
		{``, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.filters+tt.changed, func(t *testing.T) {
			t.Parallel()
			s := parse(t, Git, `{"repository":"https://x/y","branch":"main"`+tt.filters+`}`).(*Repository)
			if got := s.Wants(strings.Fields(tt.changed)); got != tt.want {
				t.Errorf("Wants(%s) = %v", tt.changed, got)
			}
		})
	}
}
