package callpolicy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// Run is what is known of a run that calls Functions.
type Run struct {
	Organization int64
	Workflow     string
	Principal    policy.Principal
	// Application and Environments are those of the rollout that the run belongs to; zero values for none.
	Application int64
	Name        string
	// Labels are those that the application had when the rollout was created.
	Labels       map[string]string
	Environments map[int64]policy.Environment
	// Needs are the versions of policy sets about calls that were in force when the rollout was created. Older ones do not decide.
	Needs map[string]int

	// caller is what policies see of the run, and scope identifies the sets that concern it.
	caller *policy.Caller
	scope  string
}

// ready is the run with what is the same for all of its calls.
func (r Run) ready() Run {
	common := policy.Call{Principal: r.Principal, Run: r.Workflow, Application: r.Name}
	environments := slices.Sorted(maps.Keys(r.Environments))
	for _, id := range environments {
		common.Environments = append(common.Environments, r.Environments[id])
	}
	r.caller, r.scope = policy.NewCaller(common), fmt.Sprint(r.Application, environments, selector(r.Labels))
	return r
}

// rolloutRun is the form of the ids of the runs of rollouts. Only the domain service may start a run with such an id, so what it was
// started with is what the domain service says.
var rolloutRun = regexp.MustCompile(`^rollout-[1-9][0-9]*$`)

// marker is the member of the inputs of a rollout's run that names versions of policy sets.
const marker = `"call_policies"`

// Needing is what is known of a run whose inputs say that policies decide about its calls; false for any other run. It is for each start of
// a run, and reads most inputs only for the marker.
func Needing(organization int64, workflow string, inputs []byte) (Run, bool) {
	if !rolloutRun.MatchString(workflow) || !bytes.Contains(inputs, []byte(marker)) {
		return Run{}, false
	}
	r, err := runOf(organization, workflow, workflow, inputs)
	return r, err == nil && len(r.Needs) > 0
}

// Find is what is known of a run, from what its root was started with.
func (r *Registry) Find(ctx context.Context, organization int64, workflow string) (Run, error) {
	if !id.IsChildRun(workflow) && !rolloutRun.MatchString(workflow) {
		return runOf(organization, workflow, workflow, nil)
	}
	root, inputs, err := r.store.Origin(ctx, organization, workflow)
	if err != nil {
		return Run{}, fmt.Errorf("find what %q belongs to: %w", workflow, err)
	}
	return runOf(organization, workflow, root, inputs)
}

// runOf reads what the run of a rollout was started with. Whatever other runs were started with says nothing about whose they are.
func runOf(organization int64, workflow, root string, inputs []byte) (Run, error) {
	r := Run{Organization: organization, Workflow: workflow, Principal: policy.Principal{Kind: policy.System, ID: "run"}}
	if !rolloutRun.MatchString(root) {
		return r.ready(), nil
	}
	var started struct {
		Rollout struct {
			Application struct {
				ID   int64  `json:"id"`
				Name string `json:"name"`
			} `json:"application"`
			// Labels is absent where the application has none.
			Labels       map[string]string `json:"application_labels"`
			Environments []struct {
				ID   int64  `json:"id"`
				Name string `json:"name"`
				Tier string `json:"tier"`
			} `json:"environments"`
			Requester    *policy.Principal `json:"requester"`
			CallPolicies map[string]int    `json:"call_policies"`
		} `json:"rollout"`
	}
	if err := json.Unmarshal(inputs, &started); err != nil {
		return r, fmt.Errorf("read what %q was started with: %w", root, err)
	}
	if started.Rollout.Requester != nil { // a domain service of an earlier release does not say
		r.Principal = *started.Rollout.Requester
	}
	r.Application, r.Name, r.Needs = started.Rollout.Application.ID, started.Rollout.Application.Name, started.Rollout.CallPolicies
	r.Labels = started.Rollout.Labels
	r.Environments = map[int64]policy.Environment{}
	for _, e := range started.Rollout.Environments {
		r.Environments[e.ID] = policy.Environment{Name: e.Name, Tier: e.Tier}
	}
	return r.ready(), nil
}

// has reports whether the application of a run has some labels.
func (r Run) has(labels map[string]string) bool {
	for key, value := range labels {
		if is, exists := r.Labels[key]; !exists || is != value {
			return false
		}
	}
	return r.Application != 0 && len(labels) > 0
}

// selector is labels as people write them, by key.
func selector(labels map[string]string) string {
	all := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ",")
}
