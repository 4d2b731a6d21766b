package scenario

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// Scenario is one test.
type Scenario struct {
	// Name is that of the folder.
	Name string `yaml:"-"`
	// About says in a sentence what is to be seen.
	About string `yaml:"about"`
	// Services of the application.
	Services []string `yaml:"services"`
	// Environments in the order of the pipeline.
	Environments []Environment `yaml:"environments"`
	// Manifests are changed before they are committed.
	Manifests []Edit `yaml:"manifests"`
	// Acts in their order.
	Acts []Act `yaml:"acts"`
}

// Environment is one stop of the pipeline.
type Environment struct {
	Name     string `yaml:"name"`
	Gates    []int  `yaml:"gates"`
	Approval string `yaml:"approval"`
}

// Edit replaces text in the manifests.
type Edit struct {
	// File is environment/service, or * for all.
	File    string `yaml:"file"`
	Replace string `yaml:"replace"`
	With    string `yaml:"with"`
}

// Act is one thing that happens. Exactly one field is set.
type Act struct {
	// Setup creates everything and waits until it is ready.
	Setup *Setup `yaml:"setup"`
	// Push pushes an image for each service, and keeps the version set by its tag.
	Push *Push `yaml:"push"`
	// Rollout promotes a version set to its end. Gates that ask for approval are approved.
	Rollout *Rollout `yaml:"rollout"`
	// Start promotes a version set and does not wait; Finish waits for its end.
	Start  *Rollout `yaml:"start"`
	Finish *Rollout `yaml:"finish"`
	// Apply applies objects to the cluster. ${staging} is the Application and the namespace of that environment, ${repository} the URL.
	Apply string `yaml:"apply"`
	// Kill ends a part of Lockstep (kill -9), which is started again.
	Kill string `yaml:"kill"`
	// Restart ends a program of the cluster (kill -9) and starts it again.
	Restart string `yaml:"restart"`
	// Freeze stops a program of the cluster without ending it; Thaw lets it go on.
	Freeze string `yaml:"freeze"`
	Thaw   string `yaml:"thaw"`
	// Synced waits until the cluster has the started version in the specs of an environment.
	Synced string `yaml:"synced"`
	// Stays looks for a while that deployments of the started rollout stay in their states.
	Stays *Stays `yaml:"stays"`
}

// Setup says what is to come of the onboarding and the setup.
type Setup struct {
	// NotReady is a pattern of the reason why it is not ready; empty: it is ready.
	NotReady string `yaml:"not_ready"`
}

// Push says which images are pushed.
type Push struct {
	Tag string `yaml:"tag"`
	// Broken are the services whose pods never become ready with it.
	Broken []string `yaml:"broken"`
}

// Rollout says which version is promoted, and what is to come of it.
type Rollout struct {
	// Version is the tag that was pushed.
	Version string `yaml:"version"`
	State   string `yaml:"state"`
	// Deployments are the states by environment/service.
	Deployments map[string]string `yaml:"deployments"`
	// Healthy are the environments that run the version in the end, in the cluster itself.
	Healthy []string `yaml:"healthy"`
	// Runs are the environments that run another version in the end.
	Runs map[string]string `yaml:"runs"`
	// AllGates: every service has come to every gate and gone past it, all together.
	AllGates bool `yaml:"all_gates"`
	// Below has, by environment/service, a gate that was not passed.
	Below map[string]int `yaml:"below"`
	// Rollback: it is one.
	Rollback bool `yaml:"rollback"`
	// Reason is a pattern that the journal has to have.
	Reason string `yaml:"reason"`
	// During are acts for when the journal has a row for the first time.
	During []During `yaml:"during"`
}

// During is an act in the middle of a rollout.
type During struct {
	// When is "event gate" of a row, such as "reach_gate staging/25".
	When string `yaml:"when"`
	Act  Act    `yaml:"act"`
}

// Stays says what does not change, and for how many looks, a tenth of a second apart.
type Stays struct {
	Deployments map[string]string `yaml:"deployments"`
	Looks       int               `yaml:"looks"`
}

// Load reads every scenario below a folder, or only those named.
func Load(dir string, names ...string) ([]Scenario, error) {
	if len(names) == 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("scenarios: %w", err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	all := make([]Scenario, len(names))
	for i, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name, "scenario.yaml"))
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", name, err)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		if err := decoder.Decode(&all[i]); err != nil {
			return nil, fmt.Errorf("scenario %s: %w", name, err)
		}
		all[i].Name = name
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("scenario %s: %w", name, err)
		}
	}
	return all, nil
}

func (s Scenario) check() error {
	switch {
	case s.About == "":
		return fault.New(fault.Invalid, "about: found nothing, expected what is to be seen")
	case len(s.Services) == 0 || len(s.Environments) == 0:
		return fault.New(fault.Invalid, "found %d services and %d environments, expected at least one of each", len(s.Services), len(s.Environments))
	}
	for i, a := range s.Acts {
		if n := len(a.fields()); n != 1 {
			return fault.New(fault.Invalid, "acts[%d]: found %d things that happen, expected one", i, n)
		}
	}
	return nil
}

// world is the application as the stack's own tools know one.
func (s Scenario) world() demo.Scenario {
	w := demo.Scenario{Application: s.Name, Services: s.Services, PollInterval: 1}
	for _, e := range s.Environments {
		stage := demo.Stage{Environment: s.full(e.Name), Tier: "STAGING", Gates: e.Gates, Approval: e.Approval}
		if e.Approval != "" {
			stage.ApprovalReason = "a person looks first"
		}
		w.Stages = append(w.Stages, stage)
	}
	return w
}

// full is the name that an environment has in the organization, which all scenarios share.
func (s Scenario) full(environment string) string { return s.Name + "-" + environment }
