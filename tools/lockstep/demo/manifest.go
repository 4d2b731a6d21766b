package demo

import "fmt"

// kustomizationPath is the file with an environment's images, for scenarios that use Kustomize.
func kustomizationPath(stage Stage) string { return stage.Environment + "/kustomization.yaml" }

// Manifests are the files of the repository: one Rollout for each service and environment, as a team would write it. The image and
// the steps of the canary are placeholders: Lockstep pins them, and touches nothing else.
func (s Scenario) Manifests(registry string) map[string]string {
	files := map[string]string{"README.md": "# " + s.Application + "\n\nWhat runs where. Lockstep commits image digests and canary steps.\n"}
	for _, stage := range s.Stages {
		kustomization := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
		images := "images:\n"
		for _, service := range s.Services {
			files[manifestPath(stage, service)] = s.manifest(registry, stage, service)
			kustomization += "  - " + service + ".yaml\n"
			images += "  - name: " + service + "\n    newName: " + s.Image(registry, service) + "\n    newTag: unreleased\n"
		}
		if s.Kustomize {
			files[kustomizationPath(stage)] = kustomization + images
		}
	}
	return files
}

// manifest is one service's Rollout in one environment.
func (s Scenario) manifest(registry string, stage Stage, service string) string {
	image := s.Image(registry, service) + ":unreleased"
	if s.Kustomize {
		image = service
	}
	return fmt.Sprintf(`# The %[1]s service of %[2]s in %[3]s.
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
          image: %[4]s  # pinned by Lockstep
          ports:
            - containerPort: 8080
  strategy:
%[5]s`, service, s.Application, stage.Environment, image, s.strategy(service))
}

// strategy is what a team writes down of it.
func (s Scenario) strategy(service string) string {
	if !s.BlueGreen {
		return `    canary:
      maxSurge: 1
      steps:
        - setWeight: 100
`
	}
	return fmt.Sprintf(`    blueGreen:
      activeService: %[1]s
      previewService: %[1]s-preview
---
apiVersion: v1
kind: Service
metadata:
  name: %[1]s
spec:
  selector:
    app.kubernetes.io/name: %[1]s
  ports:
    - port: 80
---
apiVersion: v1
kind: Service
metadata:
  name: %[1]s-preview
spec:
  selector:
    app.kubernetes.io/name: %[1]s
  ports:
    - port: 80
`, service)
}

// entry is where the driver finds a service's image.
func (s Scenario) entry(stage Stage, service string) map[string]any {
	if s.Kustomize {
		return map[string]any{
			"service": service, "format": "kustomize", "file": kustomizationPath(stage), "image_name": service,
			"rollout_file": manifestPath(stage, service), "container": service,
		}
	}
	return map[string]any{"service": service, "file": manifestPath(stage, service), "container": service}
}
