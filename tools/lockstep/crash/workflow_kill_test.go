package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// workflowStages is a scenario whose environments are deployed to by Argo Workflows, one for each service. There are two of them, so that
// there are enough steps also where several are recorded between two looks.
func workflowStages() demo.Scenario {
	s := demo.Story()
	for i := range s.Stages {
		s.Stages[i].Gates, s.Stages[i].Driver, s.Stages[i].Approval = nil, "argo-workflows@1", ""
		s.Stages[i].DriverOwn = map[string]any{
			"namespace": "default", "deadline": int(limit.Seconds()),
			"template": `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: "deploy-{[ .deployment.slug ]}-"}
spec:
  entrypoint: main
  templates: [{name: main, container: {image: {[ .version.reference | toJson ]}}}]
`,
		}
	}
	return s
}

// R2-31, R2-36: the workflow service is killed whenever a deploy with Argo Workflows has recorded another step. Each deployment is found
// again, and has one Workflow.
func TestWorkflowServiceKilledAtEachStepOfArgoWorkflows(t *testing.T) {
	t.Parallel()
	ctx, w := start(t, workflowStages())
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	created, err := w.Roll(ctx, set.ID, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	within, over := context.WithCancel(ctx)
	defer over()
	killed := make(chan int, 1)
	go func() {
		kills, err := w.killAtEachStep(within, t, created)
		if err != nil {
			t.Errorf("kill: %v", err)
		}
		killed <- kills
	}()
	r, err := w.Follow(ctx, created.ID, demo.Hooks{})
	over()
	kills := <-killed
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.ExpectState(r, "COMPLETED", nil); err != nil {
		t.Error(err)
	}
	if least := 3; kills < least {
		t.Errorf("the service was killed %d times, want at least %d: the program has more steps than that", kills, least)
	}
	found, err := w.argoWorkflows(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if want := expectedWorkflows(r); !slices.Equal(found, want) {
		t.Errorf("found the Workflows %q, want one for each deployment: %q", found, want)
	}
	t.Logf("%s completed through %d kills", r.ID, kills)
}

// expectedWorkflows are the names of the Workflows of a rollout's deployments.
func expectedWorkflows(r client.Rollout) []string {
	var names []string
	for _, e := range r.Environments {
		for _, d := range e.Deployments {
			names = append(names, fmt.Sprintf("deploy-%s-d%s", d.Service.Name, strings.TrimPrefix(d.ID, "deployment_")))
		}
	}
	slices.Sort(names)
	return names
}

// argoWorkflows are the names of the Workflows in the cluster.
func (w *world) argoWorkflows(ctx context.Context) ([]string, error) {
	url := w.stack.Endpoints().Cluster + "/apis/argoproj.io/v1alpha1/namespaces/default/workflows"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("decode %s: %w", text, err)
	}
	names := make([]string, len(list.Items))
	for i, item := range list.Items {
		names[i] = item.Metadata.Name
	}
	slices.Sort(names)
	return names, nil
}
