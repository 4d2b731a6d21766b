package scenario

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// attempt matches the name of a Job of a rollout: what it is called in the pipeline, and which attempt it is.
var attempt = regexp.MustCompile(`^(.*)-r\d+-e\d+-(\d+)$`)

// jobs waits until the Jobs of the started rollout are the expected ones, and no others.
func (r *run) jobs(ctx context.Context, want Jobs) error {
	api, err := r.Cluster.Resource("batch/v1", "Job", r.namespace(want.Environment))
	if err != nil {
		return err
	}
	_, number, _ := strings.Cut(r.started.ID, "_")
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	return r.world.Await(ctx, fmt.Sprintf("the Jobs of %s to be %q", want.Environment, want.Are), func() (string, bool, error) {
		list, err := api.List(ctx, metav1.ListOptions{LabelSelector: "lockstep.dev/rollout=" + number})
		if err != nil {
			return "", false, away(err)
		}
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
			begun := a.GetCreationTimestamp()
			theirs := b.GetCreationTimestamp()
			if c := begun.Compare(theirs.Time); c != 0 {
				return c
			}
			return strings.Compare(a.GetName(), b.GetName())
		})
		seen, fit := make([]string, len(list.Items)), len(list.Items) == len(want.Are)
		for i, o := range list.Items {
			seen[i] = attempt.ReplaceAllString(o.GetName(), "$1 $2") + " " + resultOf(o)
			fit = fit && matches(want.Are[i], seen[i])
		}
		return fmt.Sprintf("%q", seen), fit, nil
	})
}

// resultOf is how a Job stands, in a word and the reason.
func resultOf(job unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	for _, each := range conditions {
		c, _ := each.(map[string]any)
		how, _ := c["type"].(string)
		if c["status"] != "True" || (how != "Complete" && how != "Failed") {
			continue
		}
		if how == "Failed" && job.GetAnnotations()["lockstep.dev/stopped"] != "" {
			return "Stopped"
		}
		reason, _ := c["reason"].(string)
		return strings.TrimSpace(how + " " + reason)
	}
	return "Running"
}
