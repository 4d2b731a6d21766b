package driver_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A config is an object: a driver whose schema does not say so cannot be published, but still loads where it is installed.
func TestTheRootOfASchemaIsAnObject(t *testing.T) {
	t.Parallel()
	if err := driver.CheckNew([]*driver.Bundle{load(t, nil)}); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for root, want := range map[string]string{
		"{\n  \"type\": \"string\"\n}":  `v1/app.json:2: /type: found "string"; expected "object"`,
		`{"type": ["object", "array"]}`: `v1/app.json:1: /type: found ["object","array"]; expected "object"`,
		`{"properties": {"a": {}}}`:     `v1/app.json:1: /type: found nothing; expected "object"`,
		`true`:                          `v1/app.json:1: : found true for a schema`,
		`{"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}}`: `v1/app.json:1: /type: found nothing`,
	} {
		b := load(t, map[string]string{"v1/app.json": root})
		if err := driver.CheckNew([]*driver.Bundle{b}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", root, err, want)
		}
	}
}

// R24: an unknown widget loads and may be pulled; its author is notified, with file and line, before it is published.
func TestUnknownWidgetsAreReportedToAuthors(t *testing.T) {
	t.Parallel()
	b := load(t, map[string]string{"v1/environment.json": `{"type": "object"}`, "v1/app.json": "{\"type\": \"object\",\n\"properties\": {\"a\": {\"gitlabUi\": {\n\"widget\": \"agent_pciker\"}}}}"})
	if err := driver.CheckNew([]*driver.Bundle{b}); err != nil {
		t.Errorf("pulled: %v", err)
	}
	want := `v1/app.json:3: /properties/a/gitlabUi/widget: found "agent_pciker"; expected one of agent_picker, `
	if err := driver.CheckWidgets([]*driver.Bundle{b}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("found %v; expected %s", err, want)
	}
}

// All that Lockstep has itself use widgets that exist, and name kinds of credentials that exist.
func TestWhatIsBuiltInUsesKnownWidgets(t *testing.T) {
	t.Parallel()
	for name, embedded := range map[string]func() (*driver.Set, error){"drivers": driver.Embedded, "check kinds": driver.EmbeddedChecks} {
		set, err := embedded()
		if err != nil || len(set.All()) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, b := range set.All() {
			if err := driver.CheckWidgets([]*driver.Bundle{b}); err != nil {
				t.Errorf("%s: %v", b.Ref(), err)
			}
		}
	}
}

// Older majors never change (R21), even when a newer one is published.
func TestAnOlderMajorKeepsItsRoot(t *testing.T) {
	t.Parallel()
	first := files(map[string]string{"v1/app.json": "{}"})
	newest := strings.ReplaceAll(string(first["manifest.json"].Data), "v1/", "v2/")
	both := files(map[string]string{"v1/app.json": "{}", "v1/manifest.json": string(first["manifest.json"].Data), "manifest.json": newest})
	for _, file := range []string{"environment.json", "a.star", "b.star", "c.star", "walk.star"} {
		both["v2/"+file] = both["v1/"+file]
	}
	both["v2/app.json"] = both["v1/environment.json"]
	bundles, err := driver.Load(both)
	if err != nil || len(bundles) != 2 {
		t.Fatalf("%d majors, %v", len(bundles), err)
	}
	if err := driver.CheckNew(bundles); err != nil {
		t.Errorf("the older one is held to it: %v", err)
	}
	if err := driver.CheckNew(bundles[:1]); !fault.Is(err, fault.Invalid) {
		t.Errorf("as the newest it is not: %v", err)
	}
}
