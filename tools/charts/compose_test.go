package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// variable is ${NAME} or ${NAME:?message} in a compose file.
var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)(?::[?-][^}]*)?\}`)

// TestCompose: each service takes the variables of the compose file, every variable that the file asks for is in the example beside it,
// and whoever is called is there.
//
//nolint:paralleltest // the loader reads this process's environment
func TestCompose(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(root, "deploy/compose.env.example"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range variable.FindAllStringSubmatch(string(text), -1) {
		if name := found[1]; name != "KUBECONFIG" && name != "RELAY_SEED_FILE" && !strings.Contains("\n"+string(example), "\n"+name+"=") {
			t.Errorf("compose.env.example has no %s", name)
		}
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	given := func(t *testing.T, service string) {
		t.Helper()
		for name, value := range file.Services[service].Environment {
			example := "an-example-0123456789"
			if strings.HasSuffix(name, "_NATS_AUTHORITY_SEED") {
				example = seedOfNobody
			}
			t.Setenv(name, variable.ReplaceAllString(value, example))
		}
	}
	t.Run("registry", func(t *testing.T) {
		given(t, "registry")
		if c, err := config.Load[registry.Config]("registry", nil); err != nil || len(c.Tokens) == 0 || c.DatabaseURL == "" || c.NATSPassword == "" {
			t.Errorf("%+v, %v", config.Redacted(c), err)
		}
	})
	t.Run("domain", func(t *testing.T) {
		given(t, "domain")
		c, err := config.Load[domain.Config]("domain", nil)
		if err != nil || c.BootstrapToken == "" || c.WorkflowToken == "" || c.DatabaseURL == "" || c.NATSPassword == "" || c.NATSAuthoritySeed == "" {
			t.Errorf("%+v, %v", config.Redacted(c), err)
		}
		if host, _, _ := strings.Cut(c.WorkflowAddress, ":"); file.Services[host].Environment == nil {
			t.Errorf("domain calls %s, which is not there", c.WorkflowAddress)
		}
	})
	t.Run("workflow", func(t *testing.T) {
		given(t, "workflow")
		if c, err := config.Load[workflow.Config]("workflow", nil); err != nil || c.Token == "" || c.DatabaseURL == "" || c.NATSPassword == "" || len(c.Agents) != 1 {
			t.Errorf("%+v, %v", config.Redacted(c), err)
		}
	})
	t.Run("relay", func(t *testing.T) {
		given(t, "relay")
		if c, err := config.Load[relay.Config]("relay", nil); err != nil || c.AgentID != 1 || c.NATSNKeySeedFile == "" {
			t.Errorf("%+v, %v", config.Redacted(c), err)
		}
	})
}
