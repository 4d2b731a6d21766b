package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Serving is a cluster with an Argo Server.
type Serving interface {
	// ArgoServer returns its URL; empty without one.
	ArgoServer() string
}

// expandMap fills in placeholders in all texts of a configuration.
func (r *run) expandMap(ctx context.Context, config map[string]any) map[string]any {
	expanded, _ := r.expandValue(ctx, config).(map[string]any)
	return expanded
}

func (r *run) expandValue(ctx context.Context, value any) any {
	switch v := value.(type) {
	case string:
		return r.expand(ctx, v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = r.expandValue(ctx, v[i])
		}
		return list
	case map[string]any:
		if v == nil {
			return v
		}
		object := map[string]any{}
		for key := range v {
			object[key] = r.expandValue(ctx, v[key])
		}
		return object
	default:
		return value
	}
}

// seenWithin bounds the wait for Workflows: none of a scenario runs longer by itself.
const seenWithin = 90 * time.Second

// workflows waits until the Workflows of an environment are the expected ones, and no others.
func (r *run) workflows(ctx context.Context, want Workflows) error {
	api, err := r.Cluster.Resource(argo, "Workflow", r.namespace(want.Environment))
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the Workflows of %s to be %q", want.Environment, want.Are)
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	return r.world.Await(ctx, what, func() (string, bool, error) {
		list, err := api.List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, away(err)
		}
		all := list.Items
		slices.SortFunc(all, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
		seen, fit := []string{}, len(all) == len(want.Are)
		if !fit {
			return fmt.Sprintf("%d Workflows", len(all)), false, nil
		}
		for i, o := range all {
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			message, _, _ := unstructured.NestedString(o.Object, "status", "message")
			text := strings.TrimSpace(o.GetName() + " " + phase + " " + message)
			seen = append(seen, fmt.Sprintf("%s, steps %q, %v", text, steps(o), o.GetLabels()))
			fit = fit && matches(want.Are[i], text) && (want.Steps == nil || matches(want.Steps[i], steps(o)))
			for label, pattern := range want.Labels {
				fit = fit && matches(pattern, o.GetLabels()[label])
			}
		}
		return strings.Join(seen, "; "), fit, nil
	})
}

// steps returns the names of the steps of a Workflow that there are, in order.
func steps(o unstructured.Unstructured) string {
	nodes, _, _ := unstructured.NestedMap(o.Object, "status", "nodes")
	names := make([]string, 0, len(nodes))
	for _, n := range nodes {
		node, _ := n.(map[string]any)
		name, _, _ := unstructured.NestedString(node, "name")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// matches reports whether a pattern, whose mistakes match nothing, matches a whole text.
func matches(pattern, text string) bool {
	found, err := regexp.MatchString("^(?:"+pattern+")$", text)
	return err == nil && found
}

// stopWorkflows stops the Workflows of an environment that run.
func (r *run) stopWorkflows(ctx context.Context, environment string) error {
	api, err := r.Cluster.Resource(argo, "Workflow", r.namespace(environment))
	if err != nil {
		return err
	}
	all, err := api.List(ctx, metav1.ListOptions{LabelSelector: "workflows.argoproj.io/completed!=true"})
	if err != nil {
		return fmt.Errorf("list of Workflows: %w", err)
	}
	if len(all.Items) == 0 {
		return fmt.Errorf("workflows of %s: found none that runs, expected one to stop", environment)
	}
	for _, o := range all.Items {
		if _, err := api.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"spec":{"shutdown":"Stop"}}`), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("stop Workflow %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// preview requests a preview, waits until it has been made, and compares it.
func (r *run) preview(ctx context.Context, want Preview) error {
	set, ok := r.sets[want.Version]
	if !ok {
		return fmt.Errorf("version %q was not pushed", want.Version)
	}
	made, err := r.world.API.PreviewRollout(ctx, set.ID)
	if err != nil {
		return err
	}
	err = r.world.Await(ctx, "the preview to be made", func() (string, bool, error) {
		made, err = r.world.API.Preview(ctx, made.ID)
		return made.State, made.State != "PENDING", err
	})
	if err != nil {
		return err
	}
	for _, e := range made.Environments {
		if e.Environment.Name != r.scenario.full(want.Environment) {
			continue
		}
		diffs := ""
		for _, c := range e.Changes {
			diffs += c.Path + "\n" + c.Diff + "\n"
		}
		if (e.Reason == "") != (want.Reason == "") {
			return fmt.Errorf("preview of %s: found the reason %q, expected %q", want.Environment, e.Reason, want.Reason)
		}
		if err := match(want.Reason, e.Reason); err != nil {
			return err
		}
		return match(want.Shows, diffs)
	}
	return fmt.Errorf("preview: found nothing about %s; %s: %s", want.Environment, made.State, made.Reason)
}

// printedWithin bounds the wait for what an ended run has printed.
const printedWithin = 20 * time.Second

// printed waits until the run of the started rollout has printed certain lines.
func (r *run) printed(ctx context.Context, patterns []string) error {
	ctx, cancel := context.WithTimeout(ctx, printedWithin)
	defer cancel()
	return r.world.Await(ctx, fmt.Sprintf("the run to print %q", patterns), func() (string, bool, error) {
		lines, err := r.world.API.Printed(ctx, r.started.ID)
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
		text, fit := strings.Join(lines, "\n"), true
		for _, pattern := range patterns {
			fit = fit && match(pattern, text) == nil
		}
		return text, fit, err
	})
}

// links compares what deployments are outside of Lockstep.
func (r *run) links(ctx context.Context, ended client.Rollout, want map[string]string) error {
	for name, pattern := range want {
		full, found := r.scenario.full(name), "no such deployment"
		for _, e := range ended.Environments {
			for _, d := range e.Deployments {
				if e.Environment.Name+"/"+d.Service.Name != full {
					continue
				}
				found = "no link"
				if d.Link != nil {
					found = strings.TrimSpace(d.Link.Namespace + "/" + d.Link.Name + " " + d.Link.Status + " " + d.Link.URL)
				}
			}
		}
		if !matches(r.expand(ctx, pattern), found) {
			return fmt.Errorf("link of %s: found %q, expected %q", name, found, pattern)
		}
	}
	return nil
}

// report reports the phase of the Workflow of an environment that was submitted last, which has to wake the rollout.
func (r *run) report(ctx context.Context, environment string) error {
	api, err := r.Cluster.Resource(argo, "Workflow", r.namespace(environment))
	if err != nil {
		return err
	}
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return fmt.Errorf("list the Workflows of %s: found %d: %w", environment, len(list.Items), err)
	}
	latest := slices.MaxFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	phase, _, _ := unstructured.NestedString(latest.Object, "status", "phase")
	body, err := json.Marshal(map[string]string{
		"deployment": latest.GetLabels()["lockstep.dev/deployment"], "name": latest.GetName(), "namespace": latest.GetNamespace(), "phase": phase,
	})
	if err != nil {
		return fmt.Errorf("encode a report: %w", err)
	}
	at := r.Stack.Endpoints()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.Console+"/v1/deployments/report", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+at.Token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 10_000))
	if err == nil && (answer.StatusCode != http.StatusAccepted || strings.TrimSpace(string(text)) != `{"woken":true}`) {
		err = fmt.Errorf("report that %s is %s: found %s %s, expected that the rollout is woken", latest.GetName(), phase, answer.Status, text)
	}
	return err
}
