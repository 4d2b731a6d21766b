package demo

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Scenario is an application that is about to be created: what a platform team writes down once.
type Scenario struct {
	// Application names the application, its repository in Git and its images' folder.
	Application string
	// Services by name, in order.
	Services []string
	// Stages are the environments in the order of the pipeline.
	Stages []Stage
	// PollInterval is how often the driver looks at the cluster, in seconds.
	PollInterval float64
	// BlueGreen has its Rollouts send all traffic from one version to the next at once, after a pause.
	BlueGreen bool
	// Kustomize has every environment's images in a kustomization, instead of in the manifests.
	Kustomize bool
	// Config is added to the driver's configuration of the application in each environment.
	Config map[string]any
	// RepositoryURL, where given, is used in place of the stack's own.
	RepositoryURL string
}

// Stage is one environment, and how the pipeline goes through it.
type Stage struct {
	Environment, Tier string
	// Gates are the weights at which all services wait for each other.
	Gates []int
	// Soak is how long the pipeline stays at each gate, in seconds.
	Soak int
	// Approval, when not empty, is the name of the approval step before this stage, and ApprovalReason what it says.
	Approval, ApprovalReason string
	// Agent is the relay that reaches its cluster; 0 is the stack's own.
	Agent int
	// Jobs are those of its step in the pipeline: before, after and on_failure.
	Jobs map[string][]map[string]any
	// Checks are those of its step: active and proposed.
	Checks map[string][]map[string]any
	// Driver is the environment's driver, name@major; empty for that of the demo. DriverConfig is added to its configuration, and DriverOwn is
	// the application's configuration in the environment, in place of what the demo's driver needs.
	Driver       string
	DriverConfig map[string]any
	DriverOwn    map[string]any
}

// driver is the environment's driver.
func (s Stage) driver() string { return cmp.Or(s.Driver, driverRef) }

// driverRef names the driver that the demo deploys with.
const driverRef = "argo-rollouts@1"

// Story is the scenario of the demo.
func Story() Scenario {
	return Scenario{
		Application: "shop", Services: []string{"api", "web"}, PollInterval: 1,
		Stages: []Stage{
			{Environment: "staging", Tier: "STAGING", Gates: []int{25, 50, 100}},
			{
				Environment: "production", Tier: "PRODUCTION", Gates: []int{25, 50, 100},
				Approval: "release", ApprovalReason: "a person looks at staging before customers see it",
			},
		},
	}
}

// smokeTest is a job of the demo: a Kubernetes Job in the cluster of the environment, from the image that was just deployed. The simulated
// cluster says of every Job that it has succeeded, unless its template says otherwise.
const smokeTest = `apiVersion: batch/v1
kind: Job
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: smoke-test
          image: {[ .versions.api.reference | toJson ]}
          command: [shop, smoke-test]
`

// WithSmokeTest is the scenario with a job after the deployments of its first environment, without which the next one is not entered.
func (s Scenario) WithSmokeTest() Scenario {
	s.Stages = slices.Clone(s.Stages)
	s.Stages[0].Jobs = map[string][]map[string]any{"after": {{"name": "smoke-test", "deadline": 60, "template": smokeTest}}}
	return s
}

// Image is the repository of a service's images.
func (s Scenario) Image(registry, service string) string {
	return registry + "/" + s.Application + "/" + service
}

// Namespace is where an environment's workloads live.
func (s Scenario) Namespace(stage Stage) string { return s.Application + "-" + stage.Environment }

func manifestPath(stage Stage, service string) string {
	return stage.Environment + "/" + service + ".yaml"
}

// Flow is the pipeline as createFlowDefinition takes it.
func (s Scenario) Flow(repositoryURL string) map[string]any {
	var steps []any
	for _, stage := range s.Stages {
		if stage.Approval != "" {
			steps = append(steps, map[string]any{
				"type": "approval", "name": stage.Approval, "reason": stage.ApprovalReason,
				"requester_may_approve": true,
			})
		}
		gates := make([]any, len(stage.Gates))
		for i, weight := range stage.Gates {
			gates[i] = map[string]any{"weight": weight, "soak_duration": stage.Soak}
		}
		step := map[string]any{
			"type": "deploy", "environment": stage.Environment, "gates": gates, "config": s.config(stage, repositoryURL),
		}
		for when, jobs := range stage.Jobs {
			step[when] = jobs
		}
		if len(stage.Checks) > 0 {
			step["checks"] = stage.Checks
		}
		steps = append(steps, step)
	}
	return map[string]any{"steps": steps}
}

// config is what the driver needs to know of the application in one environment.
func (s Scenario) config(stage Stage, repositoryURL string) map[string]any {
	if stage.DriverOwn != nil {
		return stage.DriverOwn
	}
	services := make([]any, len(s.Services))
	for i, service := range s.Services {
		services[i] = s.entry(stage, service)
	}
	if s.RepositoryURL != "" {
		repositoryURL = s.RepositoryURL
	}
	strategy := "canary"
	if s.BlueGreen {
		strategy = "blue_green"
	}
	config := map[string]any{
		"namespace": "argocd", "application": s.Namespace(stage), "rollout_strategy": strategy, "use_load_balancing": false,
		"repository_url": repositoryURL, "branch": "main", "path": stage.Environment,
		"destination_namespace": s.Namespace(stage), "services": services, "poll_interval": s.PollInterval, "deadline": 120,
	}
	maps.Copy(config, s.Config)
	return config
}

// gateList is "25, 50 and 100 %".
func gateList(gates []int) string {
	words := make([]string, len(gates))
	for i, g := range gates {
		words[i] = strconv.Itoa(g)
	}
	if len(words) > 1 {
		words = append(words[:len(words)-2], words[len(words)-2]+" and "+words[len(words)-1])
	}
	return strings.Join(words, ", ") + " %"
}
