package demo

import (
	"fmt"
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
}

// Stage is one environment, and how the pipeline goes through it.
type Stage struct {
	Environment, Tier string
	// Gates are the weights at which all services wait for each other.
	Gates []int
	// Approval, when not empty, is the name of the approval step before this stage, and ApprovalReason what it says.
	Approval, ApprovalReason string
}

// driverRef names the driver that the demo deploys with.
const driverRef = "argo-rollouts@1"

// Story is the scenario that the demo tells.
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

// Image is the repository of a service's images.
func (s Scenario) Image(registry, service string) string {
	return registry + "/" + s.Application + "/" + service
}

// Namespace is where an environment's workloads live.
func (s Scenario) Namespace(stage Stage) string { return s.Application + "-" + stage.Environment }

func manifestPath(stage Stage, service string) string {
	return stage.Environment + "/" + service + ".yaml"
}

// Manifests are the files of the repository: one Rollout for each service and environment, as a team would write it. The image and
// the steps of the canary are placeholders: Lockstep pins them, and touches nothing else.
func (s Scenario) Manifests(registry string) map[string]string {
	files := map[string]string{"README.md": "# " + s.Application + "\n\nWhat runs where. Lockstep commits image digests and canary steps.\n"}
	for _, stage := range s.Stages {
		for _, service := range s.Services {
			files[manifestPath(stage, service)] = fmt.Sprintf(`# The %[1]s service of %[2]s in %[3]s.
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata:
  name: %[1]s
  labels:
    app.kubernetes.io/name: %[1]s
    app.kubernetes.io/part-of: %[2]s
spec:
  replicas: 4
  revisionHistoryLimit: 5
  progressDeadlineSeconds: 30
  selector:
    matchLabels:
      app.kubernetes.io/name: %[1]s
  template:
    metadata:
      labels:
        app.kubernetes.io/name: %[1]s
    spec:
      containers:
        - name: %[1]s
          image: %[4]s:unreleased  # pinned by Lockstep
          ports:
            - containerPort: 8080
  strategy:
    canary:
      maxSurge: 1
      steps:
        - setWeight: 100
`, service, s.Application, stage.Environment, s.Image(registry, service))
		}
	}
	return files
}

// Flow is the pipeline as createFlowDefinition takes it.
func (s Scenario) Flow(repositoryURL string) map[string]any {
	var steps []any
	for _, stage := range s.Stages {
		if stage.Approval != "" {
			steps = append(steps, map[string]any{"type": "approval", "name": stage.Approval, "reason": stage.ApprovalReason, "requester_may_approve": true})
		}
		gates := make([]any, len(stage.Gates))
		for i, weight := range stage.Gates {
			gates[i] = map[string]any{"weight": weight}
		}
		steps = append(steps, map[string]any{
			"type": "deploy", "environment": stage.Environment, "gates": gates, "config": s.config(stage, repositoryURL),
		})
	}
	return map[string]any{"steps": steps}
}

// config is what the driver needs to know of the application in one environment.
func (s Scenario) config(stage Stage, repositoryURL string) map[string]any {
	services := make([]any, len(s.Services))
	for i, service := range s.Services {
		services[i] = map[string]any{"service": service, "file": manifestPath(stage, service), "container": service}
	}
	return map[string]any{
		"namespace": "argocd", "application": s.Namespace(stage), "rollout_strategy": "canary", "use_load_balancing": false,
		"repository_url": repositoryURL, "branch": "main", "path": stage.Environment,
		"destination_namespace": s.Namespace(stage), "services": services, "poll_interval": s.PollInterval, "deadline": 120,
	}
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
