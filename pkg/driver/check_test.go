package driver_test

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// D48: a check kind is a bundle of three files, loaded, digested, kept and packed as a driver is.
func TestACheckKindIsABundle(t *testing.T) {
	t.Parallel()
	files, err := driver.Files(os.DirFS("../../docs/examples/check"))
	if err != nil || len(files) != 3 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	bundles, err := driver.FromFiles(files)
	if err != nil || len(bundles) != 1 || driver.CheckNew(bundles) != nil {
		t.Fatalf("found %v, %v, %v", bundles, err, driver.CheckNew(bundles))
	}
	b := bundles[0]
	if b.Ref() != "ticket@1" || !b.IsCheck() || b.Description() == "" || strings.Join(b.CheckTargets(), ",") != "proposed" || b.Has(driver.Deploy) {
		t.Errorf("found %s, a check: %t, %q, %v", b.Ref(), b.IsCheck(), b.Description(), b.CheckTargets())
	}
	p, err := b.Program(driver.Check)
	if err != nil || len(p.Modules["lockstep:check@1"]) == 0 {
		t.Errorf("found modules %v, %v", p.Modules, err)
	}
	for config, want := range map[string]string{
		`{"url":"https://tickets.test"}`: "", `{}`: "/url", ``: "/url", `{"url":"tickets"}`: "/url", `{"url":"https://t.test","interval":1}`: "/interval",
	} {
		err := b.ValidateCheck(json.RawMessage(config))
		if want == "" && err != nil || want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: found %v, expected %q", config, err, want)
		}
	}
	content, err := b.Export()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := driver.Import(content); err != nil || again.Digest() != b.Digest() || !again.IsCheck() {
		t.Errorf("imported %v, %v", again, err)
	}
	packed, err := artifact.Pack(files)
	if err != nil {
		t.Fatal(err)
	}
	if loaded, err := artifact.Load(packed); err != nil || len(loaded) != 1 || loaded[0].Digest() != b.Digest() {
		t.Errorf("loaded %v, %v", loaded, err)
	}
}

// What is wrong with a check kind is found with its place.
func TestABrokenCheckKindIsRefused(t *testing.T) {
	t.Parallel()
	files, err := driver.Files(os.DirFS("../../docs/examples/check"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ file, from, to, want string }{
		{"manifest.json", `"v1/check.star"`, `"v1/other.star"`, "/check/program"},
		{"manifest.json", `"v1/check.star"`, `"v2/check.star"`, "expected a file in v1/, as check/config_schema has it"},
		{"manifest.json", `"proposed"`, `"future"`, "/check/targets/0"},
		{"manifest.json", `"ref": "ticket"`, `"ref": "Ticket"`, "/ref"},
		{"manifest.json", `"check": {`, `"gates": true, "check": {`, "/gates"},
		{"v1/config.json", `"type": "object"`, `"type": "objekt"`, "v1/config.json"},
		{"v1/check.star", `"lockstep:check@1"`, `"lockstep:check@2"`, `found load of "lockstep:check@2"`},
	} {
		broken := maps.Clone(files)
		broken[one.file] = []byte(strings.Replace(string(files[one.file]), one.from, one.to, 1))
		if _, err := driver.FromFiles(broken); err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s with %s: found %v, expected %q", one.file, one.to, err, one.want)
		}
	}
}
