package scenario

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

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
	// BlueGreen and Kustomize are how its manifests are written; Config is added to what the driver is told.
	BlueGreen bool           `yaml:"blue_green"`
	Kustomize bool           `yaml:"kustomize"`
	Config    map[string]any `yaml:"config"`
	// GitHost is the name by which the driver is told to reach the Git server; it has credentials for the server's address.
	GitHost string `yaml:"git_host"`
	// Environments in the order of the pipeline.
	Environments []Environment `yaml:"environments"`
	// Files are the repository's instead of manifests that are made for the services, by path. ${unreleased:api} is the image that a
	// team would write down.
	Files map[string]string `yaml:"files"`
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
	// Soak is how many seconds it stays at each gate.
	Soak int `yaml:"soak"`
	// Agent is the number of the relay that reaches it; 0 is the one that there is.
	Agent int `yaml:"agent"`
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
	// Register makes an agent for an environment, and nothing connects as it.
	Register string `yaml:"register"`
	// Push pushes an image for each service, and keeps the version set by its tag.
	Push *Push `yaml:"push"`
	// Rollout promotes a version set to its end. Gates that ask for approval are approved.
	Rollout *Rollout `yaml:"rollout"`
	// Start promotes a version set and does not wait; Finish waits for its end.
	Start  *Rollout `yaml:"start"`
	Finish *Rollout `yaml:"finish"`
	// Apply applies objects to the cluster. ${staging} is the Application and the namespace of that environment, ${repository} the URL,
	// and ${uid:ApplicationSet:staging} the identity of Argo CD's object of that kind with the Application's name.
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
	// Delete removes an object from the cluster.
	Delete *Object `yaml:"delete"`
	// Available waits until a workload has a pod that is ready.
	Available *Object `yaml:"available"`
	// Present waits until an object is there.
	Present *Object `yaml:"present"`
	// Commits is how many commits of Lockstep's the repository has.
	Commits *int `yaml:"commits"`
	// Commit changes the manifests as the team would: somebody pushes to the branch. ${image:api} is the image pushed last.
	Commit []Edit `yaml:"commit"`
	// Syncing waits until Argo CD has begun a sync of the Application of an environment and has not ended it.
	Syncing string `yaml:"syncing"`
	// InPhase waits until every Rollout of an environment is in a phase of the present spec: "staging Healthy".
	InPhase string `yaml:"in_phase"`
	// Remember keeps which pods an environment has, and Same wants the very same to be there.
	Remember string `yaml:"remember"`
	Same     string `yaml:"same"`
	// Abort takes the started rollout back to what was stable, and Retry starts it again; both say why.
	Abort string `yaml:"abort"`
	Retry string `yaml:"retry"`
	// Disconnect ends a part of Lockstep, which stays away until Connect.
	Disconnect string `yaml:"disconnect"`
	Connect    string `yaml:"connect"`
	// Offline waits until an environment shows that its agent is away, and since when; Online, that it is there.
	Offline string `yaml:"offline"`
	Online  string `yaml:"online"`
	// Mark writes the status of an object, as somebody with kubectl or a controller does.
	Mark *Mark `yaml:"mark"`
	// OnFailure is what the application does with the others when a deployment fails: STOP, ABORT or ROLLBACK.
	OnFailure string `yaml:"on_failure"`
	// RollBackAfter has the application roll back by itself so many seconds after a deployment has degraded.
	RollBackAfter *int `yaml:"roll_back_after"`
	// RolledBack follows the rollback that the application has begun by itself.
	RolledBack *Rollout `yaml:"rolled_back"`
	// Stays looks for a while that deployments of the started rollout stay in their states.
	Stays *Stays `yaml:"stays"`
}

// Setup says what is to come of the onboarding and the setup.
type Setup struct {
	// NotReady is a pattern of the reason why it is not ready; empty: it is ready.
	NotReady string `yaml:"not_ready"`
	// Again continues an earlier one from where it has failed.
	Again bool `yaml:"again"`
	// Anew has the pipeline written down again with the address of the Git server that there are credentials for.
	Anew bool `yaml:"anew"`
}

// Object names one object of the cluster.
type Object struct {
	APIVersion string `yaml:"api_version"`
	Kind       string `yaml:"kind"`
	Namespace  string `yaml:"namespace"`
	Name       string `yaml:"name"`
}

// Mark is a change of an object's status.
type Mark struct {
	Object `yaml:",inline"`
	// Status is merged into the status.
	Status map[string]any `yaml:"status"`
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

// Alone reports whether the scenario disturbs what others share: parts of Lockstep, programs of the cluster, or their objects.
func (s Scenario) Alone() bool {
	for _, a := range s.Acts {
		if a.disturbs() {
			return true
		}
		for _, r := range []*Rollout{a.Rollout, a.Finish} {
			if r != nil && slices.ContainsFunc(r.During, func(d During) bool { return d.Act.disturbs() }) {
				return true
			}
		}
	}
	return false
}

func (a Act) disturbs() bool {
	return a.Disconnect != "" || a.Kill != "" || a.Restart != "" || a.Freeze != "" || a.Delete != nil
}

// world is the application as the stack's own tools know one.
func (s Scenario) world(repository string) demo.Scenario {
	w := demo.Scenario{
		Application: s.Name, Services: s.Services, PollInterval: 1, BlueGreen: s.BlueGreen, Kustomize: s.Kustomize, Config: s.Config,
	}
	if s.GitHost != "" {
		w.RepositoryURL = s.GitHost
		if at, err := url.Parse(repository); err == nil {
			at.Host = s.GitHost + ":" + at.Port()
			w.RepositoryURL = at.String()
		}
	}
	for _, e := range s.Environments {
		stage := demo.Stage{Environment: s.full(e.Name), Tier: "STAGING", Gates: e.Gates, Soak: e.Soak, Approval: e.Approval, Agent: e.Agent}
		if e.Approval != "" {
			stage.ApprovalReason = "a person looks first"
		}
		w.Stages = append(w.Stages, stage)
	}
	return w
}

// full is the name that an environment has in the organization, which all scenarios share.
func (s Scenario) full(environment string) string { return s.Name + "-" + environment }
