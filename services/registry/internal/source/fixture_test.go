package source_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

var update = flag.Bool("update", false, "rewrite the golden files of the fixtures")

// fixture is a delivery as a version of a vendor's product sends it: testdata/<format>/<version>.http, headers and body, beside the golden
// file of its notifications.
type fixture struct {
	format, name string
	header       http.Header
	media        string
	body         []byte
}

func fixtures(tb testing.TB, format string) []fixture {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", format, "*.http"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no fixtures of %s: %v", format, err)
	}
	var all []fixture
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		r := bufio.NewReader(bytes.NewReader(content))
		header, err := textproto.NewReader(r).ReadMIMEHeader()
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			tb.Fatal(err)
		}
		media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		all = append(all, fixture{
			format: format, name: strings.TrimSuffix(filepath.Base(path), ".http"), header: http.Header(header),
			media: media, body: body,
		})
	}
	return all
}

func TestFixtures(t *testing.T) {
	t.Parallel()
	for _, f := range source.Formats() {
		for _, x := range fixtures(t, f.Name) {
			t.Run(f.Name+"/"+x.name, func(t *testing.T) {
				t.Parallel()
				all, err := f.Parse(x.header, x.media, x.body)
				if err != nil {
					t.Fatal(err)
				}
				var got strings.Builder
				for _, n := range all {
					if n.Repository != "" {
						fmt.Fprintf(&got, "repository: %s\n\n", n.Repository)
						continue
					}
					done := "published"
					if n.Deleted {
						done = "deleted"
					}
					fmt.Fprintf(&got, "id: %s\nplace: %s\nimage: %s\ntag: %s\ndigest: %s\n%s: %s\n\n", n.ID, n.Place, n.Image, n.Tag, n.Digest,
						done, n.PublishedAt)
				}
				path := filepath.Join("testdata", f.Name, x.name+".golden")
				if *update {
					if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got.String()); diff != "" {
					t.Errorf("notifications (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A damaged delivery is parsed, or refused with a named field.
func TestDamagedFixtures(t *testing.T) {
	t.Parallel()
	for _, f := range source.Formats() {
		for _, x := range fixtures(t, f.Name) {
			t.Run(f.Name+"/"+x.name, func(t *testing.T) {
				t.Parallel()
				parse := func(body []byte) ([]core.Notification, error) { return f.Parse(x.header, x.media, body) }
				text := bytes.TrimSpace(x.body)
				for n := 0; n < len(text); n += 7 {
					if _, err := parse(text[:n]); !fault.Is(err, fault.Invalid) {
						t.Fatalf("truncated after %d bytes: %v", n, err)
					}
				}
				deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
				for name, body := range map[string]string{
					"not UTF-8":     strings.Replace(string(text), `"`, "\"\xff", 1),
					"deeply nested": `{"x":` + deep + `,` + string(text[1:]),
					"an array":      "[" + string(text) + "]",
					"a string":      `"x"`,
					"two documents": string(text) + string(text),
					"empty":         "",
				} {
					if name == "an array" && f.Name == "acr" {
						continue // Event Grid sends arrays
					}
					if _, err := parse([]byte(body)); !fault.Is(err, fault.Invalid) || len(fault.FieldsOf(err)) == 0 {
						t.Errorf("%s: %v", name, err)
					}
				}
				var document any
				if err := json.Unmarshal(text, &document); err != nil {
					t.Fatal(err)
				}
				mutate(document, func(at string) {
					body, err := json.Marshal(document)
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if t.Failed() {
							t.Logf("with another type at %s", at)
						}
					}()
					heard(t, func() ([]core.Notification, error) { return parse(body) })
				})
			})
		}
	}
}

// forgetful accepts all reports, and stores none.
type forgetful struct{}

func (forgetful) Take(context.Context, string, []core.Artifact, []core.Hint, []core.Refusal) error {
	return nil
}

func (forgetful) Superseded(context.Context, []core.Artifact) ([]string, error) { return nil, nil }

func (forgetful) Name(address string) string { return kinds.RepositoryName(address) }

func (forgetful) Nudge(context.Context, []string) error { return nil }

// heard checks what must hold for any input: a result or a refusal that names a field, the same one each time, and the same from core.
func heard(t *testing.T, parse func() ([]core.Notification, error)) {
	t.Helper()
	all, err := parse()
	again, err2 := parse()
	if len(all) != len(again) || (err == nil) != (err2 == nil) {
		t.Fatalf("the second reading differs: %d and then %d, %v and then %v", len(all), len(again), err, err2)
	}
	hookIntake := core.NewHookIntake(core.NewIntake(nil, nil, core.Naming{Host: kinds.NormalizeHost, Image: kinds.NormalizeImage},
		clock.System()), forgetful{}, forgetful{})
	receipt, heard := hookIntake.Accept(t.Context(), core.Hook{Name: "test"}, all, core.Unreadable(err))
	if heard != nil {
		t.Fatalf("a delivery is refused as a whole: %v", heard)
	}
	if err != nil && (!fault.Is(err, fault.Invalid) || len(receipt.Refused) == 0) {
		t.Fatalf("left out without a record: %v", err)
	}
	for _, r := range receipt.Refused {
		if r.What == "" || r.Reason == "" || !utf8.ValidString(r.What+r.Reason) || len(r.What) > 400 || len(r.Reason) > 1100 {
			t.Fatalf("a record of what was left out: %+v", r)
		}
	}
}

// mutate replaces every value of a document, one after the other, by values of other types.
func mutate(document any, check func(at string)) {
	others := []any{
		nil, 7.5, true, "", "x",
		[]any{},
		[]any{1, nil, []any{}},
		map[string]any{},
		map[string]any{"a": 1},
		-1e300,
		strings.Repeat("y", 5000),
	}
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				for _, other := range others {
					v[key] = other
					check(at + "." + key)
				}
				delete(v, key)
				check(at + "." + key)
				v[key] = value
				walk(value, at+"."+key)
			}
		case []any:
			for i, value := range v {
				for _, other := range others {
					v[i] = other
					check(fmt.Sprintf("%s[%d]", at, i))
				}
				v[i] = value
				walk(value, fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
	walk(document, "")
}
