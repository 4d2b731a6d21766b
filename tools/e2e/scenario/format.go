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
	// About describes the scenario in one sentence.
	About string `yaml:"about"`
	// Services of the application.
	Services []string `yaml:"services"`
	// BlueGreen and Kustomize define how its manifests are written; Config is added to the driver's configuration.
	BlueGreen bool           `yaml:"blue_green"`
	Kustomize bool           `yaml:"kustomize"`
	Config    map[string]any `yaml:"config"`
	// Metrics requires Prometheus, which only the real cluster has: ${prometheus} is its URL.
	Metrics bool `yaml:"metrics"`
	// Workflows requires Argo Workflows with its server, which only the real cluster has: ${argo} is the server's URL.
	Workflows bool `yaml:"workflows"`
	// Flux requires its source and kustomize controllers, which only the real cluster has. ${git:username} and ${git:password} are what they
	// sign in with.
	Flux bool `yaml:"flux"`
	// Applies is whether Lockstep applies objects by itself: the simulated cluster does so without schemas, and has few kinds.
	Applies bool `yaml:"applies"`
	// GitHost is the host of the Git server in the driver's configuration; credentials exist for the server's address.
	GitHost string `yaml:"git_host"`
	// Environments in the order of the pipeline.
	Environments []Environment `yaml:"environments"`
	// Files are the repository's content instead of generated manifests, by path. ${unreleased:api} is the image that a team would write.
	Files map[string]string `yaml:"files"`
	// Repeated are further ones, each of which repeats a text. ${number} counts from 1.
	Repeated map[string]Repeat `yaml:"repeated"`
	// Manifests are edited before they are committed.
	Manifests []Edit `yaml:"manifests"`
	// Acts in their order.
	Acts []Act `yaml:"acts"`
}

// Environment is one stop of the pipeline.
type Environment struct {
	Name     string `yaml:"name"`
	Gates    []int  `yaml:"gates"`
	Approval string `yaml:"approval"`
	// Soak is the soak time at each gate, in seconds.
	Soak int `yaml:"soak"`
	// Agent is the number of its relay; 0 is the stack's own.
	Agent int `yaml:"agent"`
	// Jobs are those of its step: before, after and on_failure.
	Jobs map[string][]map[string]any `yaml:"jobs"`
	// Checks are those of its step: active and proposed.
	Checks map[string][]map[string]any `yaml:"checks"`
	// Driver deploys to it, name@major; empty for argo-rollouts@1. DriverConfig is added to its configuration, and Own is that of the
	// application in the environment. Both have the placeholders of Apply.
	Driver       string         `yaml:"driver"`
	DriverConfig map[string]any `yaml:"driver_config"`
	Own          map[string]any `yaml:"own"`
}

// Repeat is a text, and how often it is repeated.
type Repeat struct {
	Times int    `yaml:"times"`
	Text  string `yaml:"text"`
}

// Edit replaces text in the manifests.
type Edit struct {
	// File is environment/service, or * for all.
	File    string `yaml:"file"`
	Replace string `yaml:"replace"`
	With    string `yaml:"with"`
}

// Act is one step. Exactly one field is set.
type Act struct {
	// Setup creates everything and waits until it is ready.
	Setup *Setup `yaml:"setup"`
	// Register creates an agent for an environment, as which nothing connects.
	Register string `yaml:"register"`
	// Push pushes an image for each service, and remembers the version set by its tag.
	Push *Push `yaml:"push"`
	// Chart pushes a Helm chart to the registry, as `helm push` does.
	Chart *Chart `yaml:"chart"`
	// Rollout promotes a version set to its end. Gates with an approval are approved.
	Rollout *Rollout `yaml:"rollout"`
	// Start promotes a version set and does not wait; Finish waits for its end.
	Start  *Rollout `yaml:"start"`
	Finish *Rollout `yaml:"finish"`
	// Apply applies objects to the cluster. ${staging} is the Application and the namespace of that environment, ${repository} the URL, and
	// ${uid:ApplicationSet:staging} the uid of Argo CD's object of that kind with the Application's name.
	Apply string `yaml:"apply"`
	// Kill kills a part of Lockstep (kill -9), which is restarted.
	Kill string `yaml:"kill"`
	// Restart kills a program of the cluster (kill -9) and starts it again.
	Restart string `yaml:"restart"`
	// Freeze suspends a program of the cluster; Thaw resumes it.
	Freeze string `yaml:"freeze"`
	Thaw   string `yaml:"thaw"`
	// Synced waits until the specs in the cluster have the started version in an environment.
	Synced string `yaml:"synced"`
	// Delete removes an object from the cluster.
	Delete *Object `yaml:"delete"`
	// Available waits until a workload has a ready pod.
	Available *Object `yaml:"available"`
	// Present waits until an object exists.
	Present *Object `yaml:"present"`
	// Absent waits until an object does not exist.
	Absent *Object `yaml:"absent"`
	// Commits is the expected number of Lockstep's commits in the repository.
	Commits *int `yaml:"commits"`
	// Commit changes the manifests as the team would, by a push to the branch. ${image:api} is the image pushed last.
	Commit []Edit `yaml:"commit"`
	// Syncing waits until Argo CD runs a sync of the Application of an environment.
	Syncing string `yaml:"syncing"`
	// InPhase waits until every Rollout of an environment is in a phase, for the present spec: "staging Healthy".
	InPhase string `yaml:"in_phase"`
	// Remember stores the pods of an environment, and Same expects exactly those.
	Remember string `yaml:"remember"`
	Same     string `yaml:"same"`
	// Abort aborts the started rollout, and Retry retries it; both give a reason.
	Abort string `yaml:"abort"`
	Retry string `yaml:"retry"`
	// Cancel cancels it between two environments, for a reason.
	Cancel string `yaml:"cancel"`
	// Disconnect stops a part of Lockstep until Connect.
	Disconnect string `yaml:"disconnect"`
	Connect    string `yaml:"connect"`
	// Offline waits until an environment shows its agent as offline, and since when; Online, that it is online.
	Offline string `yaml:"offline"`
	Online  string `yaml:"online"`
	// Mark writes the status of an object, as a user with kubectl or a controller does.
	Mark *Mark `yaml:"mark"`
	// OnFailure is what the application does when a deployment fails: STOP (and no automatic rollback), ABORT or ROLLBACK.
	OnFailure string `yaml:"on_failure"`
	// RollBackAfter makes the application roll back automatically so many seconds after a deployment has degraded.
	RollBackAfter *int `yaml:"roll_back_after"`
	// RolledBack follows the automatic rollback of the application.
	RolledBack *Rollout `yaml:"rolled_back"`
	// Trigger saves a trigger of the application, and Begun follows the rollout that a trigger begins.
	Trigger *Trigger `yaml:"trigger"`
	Begun   *Rollout `yaml:"begun"`
	// Stays checks for a while that deployments of the started rollout stay in their states.
	Stays *Stays `yaml:"stays"`
	// Workflows waits until the Workflows of an environment are certain ones.
	Workflows *Workflows `yaml:"workflows"`
	// Jobs waits until the Jobs that the started rollout has begun in an environment are certain ones.
	Jobs *Jobs `yaml:"jobs"`
	// Report reports the phase of the latest Workflow of an environment over HTTP, as a sensor of Argo Events does. It has to wake the
	// rollout.
	Report string `yaml:"report"`
	// StopWorkflows stops those of an environment that run, as a person with Argo's command does.
	StopWorkflows string `yaml:"stop_workflows"`
	// Preview is what a preview of a version has to show.
	Preview *Preview `yaml:"preview"`
	// Printed are patterns of what the run of the started rollout has printed.
	Printed []string `yaml:"printed"`
	// Metric sets a value that Prometheus scrapes as e2e_value{name="…"}.
	Metric *Metric `yaml:"metric"`
	// Check waits until the started rollout waits for a check in a certain way; Passed, until it no longer waits for a check but for others.
	Check  *Check `yaml:"check"`
	Passed string `yaml:"passed"`
	// Decide answers for a check that asks a person.
	Decide *Decision `yaml:"decide"`
}

// Trigger begins rollouts. ${path:staging} in its configuration is the name of that environment.
type Trigger struct {
	Name   string `yaml:"name"`
	Kind   string `yaml:"kind"`
	Config string `yaml:"config"`
}

// Workflows are those of an environment's namespace, by name: for each a pattern of "name phase message".
type Workflows struct {
	Environment string   `yaml:"environment"`
	Are         []string `yaml:"are"`
	// Steps are, for each, a pattern of the names of its steps, which begin with the Workflow itself; none for any.
	Steps []string `yaml:"steps"`
	// Labels are patterns of labels that each of them has.
	Labels map[string]string `yaml:"labels"`
}

// Jobs are those of a rollout in an environment's namespace, as they were begun: each a pattern of "name attempt result", where the result
// is Complete, Failed with its reason, Stopped or Running.
type Jobs struct {
	Environment string   `yaml:"environment"`
	Are         []string `yaml:"are"`
}

// Preview is a pattern of the changes in an environment, or of the reason why they are not known.
type Preview struct {
	Version     string `yaml:"version"`
	Environment string `yaml:"environment"`
	Shows       string `yaml:"shows"`
	Reason      string `yaml:"reason"`
}

// Metric is a value. It is removed if Gone.
type Metric struct {
	Name  string  `yaml:"name"`
	Value float64 `yaml:"value"`
	Gone  bool    `yaml:"gone"`
}

// Check is how a rollout waits for a check: its status, and a pattern of the details.
type Check struct {
	Key    string `yaml:"key"`
	Status string `yaml:"status"`
	Detail string `yaml:"detail"`
}

// Decision is the answer of a person.
type Decision struct {
	Environment string `yaml:"environment"`
	Key         string `yaml:"key"`
	Phase       string `yaml:"phase"`
}

// Setup is the expected outcome of the onboarding and the setup.
type Setup struct {
	// NotReady is a pattern of the expected reason; empty means that it is ready.
	NotReady string `yaml:"not_ready"`
	// Again continues a failed setup.
	Again bool `yaml:"again"`
	// Anew rewrites the pipeline with the address of the Git server for which credentials exist.
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

// Push is the images to push.
type Push struct {
	Tag string `yaml:"tag"`
	// Broken are the services whose pods never become ready with it.
	Broken []string `yaml:"broken"`
}

// Chart is a folder of the repository's content, ${oci}/SCENARIO/NAME in the registry.
type Chart struct {
	Folder string `yaml:"folder"`
	Name   string `yaml:"name"`
	Tag    string `yaml:"tag"`
}

// Rollout is a version to promote, and the expected outcome.
type Rollout struct {
	// Version is the tag that was pushed.
	Version string `yaml:"version"`
	State   string `yaml:"state"`
	// Deployments are the states by environment/service.
	Deployments map[string]string `yaml:"deployments"`
	// Healthy lists the environments that run the version in the end, in the cluster itself.
	Healthy []string `yaml:"healthy"`
	// Runs maps environments to another version that they run in the end.
	Runs map[string]string `yaml:"runs"`
	// AllGates expects that every service has reached and passed every gate, all together.
	AllGates bool `yaml:"all_gates"`
	// Below maps environment/service to a gate that was not passed.
	Below map[string]int `yaml:"below"`
	// Rollback expects that it is a rollback.
	Rollback bool `yaml:"rollback"`
	// Reason is a pattern that the journal must match.
	Reason string `yaml:"reason"`
	// Links maps environment/service to a pattern of "namespace/name status url", which is what the deployment is outside of Lockstep.
	Links map[string]string `yaml:"links"`
	// During lists acts for when the journal has a certain row for the first time.
	During []During `yaml:"during"`
}

// During is an act during a rollout.
type During struct {
	// When is "event gate" of a row, such as "reach_gate staging/25".
	When string `yaml:"when"`
	Act  Act    `yaml:"act"`
}

// Stays is what must not change, and the number of checks, a tenth of a second apart.
type Stays struct {
	Deployments map[string]string `yaml:"deployments"`
	Looks       int               `yaml:"looks"`
}

// Load reads every scenario below a folder, or only the named ones.
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
		return fault.New(fault.Invalid, "about: found nothing, expected a description")
	case len(s.Services) == 0 || len(s.Environments) == 0:
		return fault.New(fault.Invalid, "found %d services and %d environments, expected at least one of each", len(s.Services),
			len(s.Environments))
	}
	for i, a := range s.Acts {
		if n := len(a.fields()); n != 1 {
			return fault.New(fault.Invalid, "acts[%d]: found %d things to do, expected one", i, n)
		}
	}
	return nil
}

// Alone reports whether the scenario disturbs shared resources: parts of Lockstep, programs of the cluster, or their objects.
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

// world returns the application in the form of the stack's tools.
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
		stage := demo.Stage{
			Environment: s.full(e.Name), Tier: "STAGING", Gates: e.Gates, Soak: e.Soak, Approval: e.Approval, Agent: e.Agent, Jobs: e.Jobs, Checks: e.Checks,
			Driver: e.Driver, DriverConfig: e.DriverConfig, DriverOwn: e.Own,
		}
		if e.Approval != "" {
			stage.ApprovalReason = "a person looks first"
		}
		w.Stages = append(w.Stages, stage)
	}
	return w
}

// full returns the name of an environment in the organization, which all scenarios share.
func (s Scenario) full(environment string) string { return s.Name + "-" + environment }
