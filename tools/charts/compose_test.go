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

// TestCompose: each service accepts the variables of the compose file, every variable that the file requires is in the example beside it,
// and every service that is called exists.
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
		if c, err := config.Load[registry.Config]("registry", nil); err != nil || len(c.Tokens) == 0 || c.DatabaseURL == "" ||
			c.NATSPassword == "" {
			t.Errorf("%+v, %v", config.Redacted(c), err)
		}
	})
	t.Run("domain", func(t *testing.T) {
		given(t, "domain")
		c, err := config.Load[domain.Config]("domain", nil)
		if err != nil || c.BootstrapToken == "" || c.WorkflowToken == "" || c.DatabaseURL == "" || c.NATSPassword == "" ||
			c.NATSAuthoritySeed == "" {
			t.Errorf("%+v, %v", config.Redacted(c), err)
		}
		if host, _, _ := strings.Cut(c.WorkflowAddress, ":"); file.Services[host].Environment == nil {
			t.Errorf("domain calls %s, which is not there", c.WorkflowAddress)
		}
	})
	t.Run("workflow", func(t *testing.T) {
		given(t, "workflow")
		if c, err := config.Load[workflow.Config]("workflow", nil); err != nil || c.Token == "" || c.DatabaseURL == "" || c.NATSPassword == "" ||
			len(c.Agents) != 1 {
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

// TestComposeIsWhole reads the compose file strictly, and checks its references: services that wait for others, published ports, volumes,
// files beside it, and hosts in addresses.
func TestComposeIsWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "deploy/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type service struct {
		Image string `json:"image"`
		Build *struct {
			Context, Dockerfile string
			Args                map[string]string
		} `json:"build"`
		Restart     string                                `json:"restart"`
		ReadOnly    bool                                  `json:"read_only"`
		CapDrop     []string                              `json:"cap_drop"`
		SecurityOpt []string                              `json:"security_opt"`
		Tmpfs       []string                              `json:"tmpfs"`
		Profiles    []string                              `json:"profiles"`
		Command     []string                              `json:"command"`
		Environment map[string]string                     `json:"environment"`
		Ports       []string                              `json:"ports"`
		Volumes     []string                              `json:"volumes"`
		DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
		Healthcheck *struct {
			Test     []string
			Interval string
			Retries  int
		} `json:"healthcheck"`
	}
	var file struct {
		Name     string             `json:"name"`
		Defaults service            `json:"x-service"`
		Services map[string]service `json:"services"`
		Volumes  map[string]any     `json:"volumes"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	listens := map[string]string{"nats": ":4222"}
	r, err := config.Load[registry.Config]("registry",
		[]string{"--set", "database_url=postgres://x", "--set", "nats_password=x", "--set", "tokens=an-example-0123456789"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := config.Load[domain.Config]("domain", []string{"--set", "database_url=postgres://x", "--set", "nats_password=x"})
	if err != nil {
		t.Fatal(err)
	}
	listens["registry"], listens["domain"] = r.HTTPAddress, d.HTTPAddress
	for name, s := range file.Services {
		if s.Build != nil {
			if s.Build.Args["SERVICE"] != name || s.Image != "lockstep/"+name {
				t.Errorf("%s is built as %q and called %s", name, s.Build.Args["SERVICE"], s.Image)
			}
			if _, err := os.Stat(filepath.Join(root, "deploy", s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !s.ReadOnly || len(s.CapDrop) != 1 || len(s.SecurityOpt) != 1 {
				t.Errorf("%s may do more than it needs", name)
			}
		}
		for other, on := range s.DependsOn {
			waited, there := file.Services[other]
			if !there || on.Condition == "service_healthy" && waited.Healthcheck == nil {
				t.Errorf("%s waits until %s is %s, which never comes", name, other, on.Condition)
			}
		}
		for _, published := range s.Ports {
			parts := strings.Split(published, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" || ":"+parts[2] != listens[name] {
				t.Errorf("%s publishes %s and listens on %q; expected this machine's own address only", name, published, listens[name])
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			_, declared := file.Volumes[from]
			_, missing := os.Stat(filepath.Join(root, "deploy", from))
			if !declared && missing != nil && !strings.HasPrefix(from, "$") {
				t.Errorf("%s mounts %s, which is neither a volume nor a file", name, from)
			}
		}
		for variable, address := range s.Environment {
			for _, host := range regexp.MustCompile(`://(?:[^@/]*@)?([a-z]+):|^([a-z]+):[0-9]+$`).FindAllStringSubmatch(address, -1) {
				if _, there := file.Services[host[1]+host[2]]; !there {
					t.Errorf("%s: %s=%s leads to no service", name, variable, address)
				}
			}
		}
	}
}
