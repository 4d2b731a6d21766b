package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// workflowNamespace is where measured Workflows run.
const workflowNamespace = "load"

// workflowTemplate is the Workflow of a measured deployment: two steps of ten seconds.
const workflowTemplate = `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: "{[ .application.name ]}-"}
spec:
  entrypoint: main
  templates:
    - {name: main, steps: [[{name: first, template: soak}], [{name: second, template: soak}]]}
    - {name: soak, suspend: {duration: "10"}}
`

// WorkflowsAtOnce creates applications with one service and deploys all of them at the same time by one Argo Workflow each, through one
// relay.
func WorkflowsAtOnce(ctx context.Context, place *scenario.Place, n int, relayPID string, count Counter) (Load, error) {
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + workflowNamespace + "}\n"
	if err := place.Cluster.Apply(ctx, []byte(namespace)); err != nil {
		return Load{Rollouts: n}, err
	}
	worlds, sets := make([]*demo.World, n), make([]client.VersionSet, n)
	errs := each(n, atOnce, func(i int) error {
		name := fmt.Sprintf("workflow-%03d", i)
		w, err := world(place, demo.Scenario{
			Application: name, Services: []string{"api"},
			Stages: []demo.Stage{{
				Environment: name, Tier: "STAGING", Driver: "argo-workflows@1",
				DriverOwn: map[string]any{"namespace": workflowNamespace, "template": workflowTemplate, "deadline": int(patience.Seconds())},
			}},
		})
		if err != nil {
			return err
		}
		worlds[i], w.Patience, w.Interval = w, patience, time.Duration(n)*eachLook
		if err := w.Create(ctx); err != nil {
			return err
		}
		sets[i], err = w.Push(ctx, "1", nil)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return Load{Rollouts: n}, err
	}
	return take(ctx, place, worlds, sets, relayPID, count)
}
