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

const (
	// mostCalls is how many requests to the API server a relay may need for one Workflow, whatever their number.
	mostCalls = 40
	// mostMore is how many times as many requests a relay may need for each Workflow with ten times as many of them at once.
	mostMore = 1.5
	// mostGrowth is how many times as much memory a relay may have at its maximum with ten times as many Workflows at once.
	mostGrowth = 1.5
)

// Growth is what a relay needed for some Workflows at once, and for ten times as many.
type Growth struct{ Few, Many Load }

// Growing measures Workflows at once: a tenth of n, and n.
func Growing(ctx context.Context, place *scenario.Place, n int, relayPID string, count Counter) (g Growth, err error) {
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + workflowNamespace + "}\n"
	if err := place.Cluster.Apply(ctx, []byte(namespace)); err != nil {
		return g, err
	}
	if g.Few, err = workflowsAtOnce(ctx, place, "few", max(1, n/10), relayPID, count); err != nil {
		return g, err
	}
	g.Many, err = workflowsAtOnce(ctx, place, "many", n, relayPID, count)
	return g, err
}

// Ratio is how many times as much memory the relay had at its maximum with many as with few.
func (g Growth) Ratio() float64 { return float64(g.Many.Peak) / float64(max(1, g.Few.Peak)) }

// Table formats the figures.
func (g Growth) Table() string {
	return g.Few.Table() + g.Many.Table() + fmt.Sprintf("  memory with %d beside %d at once: %.2f times; at most %.1f\n",
		g.Many.Rollouts, g.Few.Rollouts, g.Ratio(), mostGrowth)
}

// Check is an error if Workflows cost more than they may: a number of requests for each, and neither these nor memory grow with their
// number; and if something was not measured.
func (g Growth) Check() error {
	var errs []error
	for _, load := range []Load{g.Few, g.Many} {
		if load.Rollouts == 0 || load.each() == 0 || load.Peak == 0 || load.Before == 0 {
			errs = append(errs, errors.New("workflows: nothing was measured"))
			continue
		}
		if each := load.each(); each > mostCalls {
			errs = append(errs, fmt.Errorf("%d workflows at once: found %.1f requests to the API server for each, expected at most %d",
				load.Rollouts, each, mostCalls))
		}
	}
	if few, many := g.Few.each(), g.Many.each(); few > 0 && many > mostMore*few {
		errs = append(errs, fmt.Errorf("requests to the API server: "+
			"found %.1f for each of %d workflows at once and %.1f for each of %d, expected at most %.1f times as many",
			many, g.Many.Rollouts, few, g.Few.Rollouts, mostMore))
	}
	if ratio := g.Ratio(); ratio > mostGrowth {
		errs = append(errs, fmt.Errorf("memory of the relay: found %.2f times as much with %d workflows at once as with %d, "+
			"expected at most %.1f times",
			ratio, g.Many.Rollouts, g.Few.Rollouts, mostGrowth))
	}
	return errors.Join(errs...)
}

// workflowsAtOnce creates applications with one service and deploys all of them at the same time by one Argo Workflow each, through one
// relay.
func workflowsAtOnce(ctx context.Context, place *scenario.Place, prefix string, n int, relayPID string, count Counter) (Load, error) {
	worlds, sets := make([]*demo.World, n), make([]client.VersionSet, n)
	errs := each(n, atOnce, func(i int) error {
		name := fmt.Sprintf("%s-%03d", prefix, i)
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
	if err := forgetPeak(relayPID); err != nil {
		return Load{Rollouts: n}, err
	}
	return take(ctx, place, worlds, sets, relayPID, count)
}
