package reference

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

var updateKeys = flag.Bool("update", false, "rewrite testdata/keys.txt")

// TestConfigurationKeys: a key, its variable and its default are a contract with operators, wherever its field is declared. A new key is
// a new line; a line that changes or goes is a breaking change.
func TestConfigurationKeys(t *testing.T) {
	t.Parallel()
	var lines []string
	for service, keys := range map[string][]config.Key{
		"registry": config.Keys[registry.Config]("registry"), "domain": config.Keys[domain.Config]("domain"),
		"workflow": config.Keys[workflow.Config]("workflow"), "relay": config.Keys[relay.Config]("relay"),
	} {
		for _, k := range keys {
			line := fmt.Sprintf("%s %s: %s, variable %q, shared %q, default %q", service, k.Name, k.Type, k.Variable, k.Shared,
				k.Default)
			if k.Secret {
				line += ", secret"
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	got, golden := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", "keys.txt")
	if *updateKeys {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("keys (-want +got); -update rewrites the file:\n%s", diff)
	}
}
