package event_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

var update = flag.Bool("update", false, "rewrite schema/ and testdata/ from the Go types")

// golden compares got with the file, or writes it with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make generate writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-file +generated):\n%s", path, diff)
	}
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSchemasAreThoseOfTheGoTypes(t *testing.T) {
	t.Parallel()
	for _, d := range event.Catalogue() {
		t.Run(d.Type, func(t *testing.T) {
			t.Parallel()
			r := jsonschema.Reflector{DoNotReference: true, AllowAdditionalProperties: true, Anonymous: true}
			s := r.Reflect(d.Example)
			s.Title, s.Description = d.Type, d.Emitted
			golden(t, filepath.Join("schema", d.Type+".json"), indent(t, s))
		})
	}
}

func TestGoldenEvents(t *testing.T) {
	t.Parallel()
	for _, d := range event.Catalogue() {
		t.Run(d.Type, func(t *testing.T) {
			t.Parallel()
			h := event.Header{ID: "018e7a4c-0000-7000-8000-000000000001", Source: "/services/example", Time: time.Unix(1_774_432_800, 0).UTC()}
			if d.Path == event.PathDomain {
				h.Organization, h.Correlation = 1, "rollout_7"
			}
			e, err := event.New(h, d.Example)
			if err != nil {
				t.Fatalf("the example does not fit its own schema: %v", err)
			}
			golden(t, filepath.Join("testdata", d.Type+".json"), indent(t, e))
		})
	}
}

func TestEveryTypeHasItsEntry(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^com\.gitlab\.cd(\.[a-z_]+){2,3}$`)
	seen := map[string]bool{}
	for _, d := range event.Catalogue() {
		if seen[d.Type] {
			t.Errorf("%s is in the catalogue twice", d.Type)
		}
		seen[d.Type] = true
		if !form.MatchString(d.Type) {
			t.Errorf("%s does not follow the grammar com.gitlab.cd.<noun>.<past verb>", d.Type)
		}
		if len(d.Emitted) < 20 || !strings.HasPrefix(d.Emitted, "By ") || !strings.HasSuffix(d.Emitted, ".") {
			t.Errorf("%s: found %q; expected a sentence \"By …\" that says by whom and when it is emitted", d.Type, d.Emitted)
		}
	}
	for _, dir := range []string{"schema", "testdata"} {
		files, err := filepath.Glob(dir + "/*.json")
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != len(seen) {
			t.Errorf("%s has %d files for %d types", dir, len(files), len(seen))
		}
	}
}
