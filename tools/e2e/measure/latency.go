package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

// Samples are durations of one kind.
type Samples []time.Duration

// at returns the p-th percentile (0 to 100) by the nearest rank; 0 for no samples.
func (s Samples) at(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

// Latency holds the latencies of consecutive rollouts.
type Latency struct {
	// Resumed is from a Rollout's pause, as seen by a watch on the cluster, to the gate's row in the journal.
	Resumed Samples
	// NextGate is from the journal's row of a passed gate to that of the next reached gate; it includes the time that the cluster needs for
	// its pods.
	NextGate Samples
	// FirstCommit is from the request for a rollout to its commit in the repository.
	FirstCommit Samples
}

// gates returns many gates, for many samples.
func gates() []int { return []int{10, 20, 30, 40, 50, 60, 70, 80, 90, 100} }

// Latencies promotes versions of an application with one service, one after the other.
func Latencies(ctx context.Context, place *scenario.Place, rollouts int) (Latency, error) {
	s := demo.Scenario{
		Application: "latency", Services: []string{"api"}, PollInterval: 30,
		Stages: []demo.Stage{{Environment: "latency", Tier: "STAGING", Gates: gates()}},
	}
	w, err := world(place, s)
	if err != nil {
		return Latency{}, err
	}
	if err := w.Create(ctx); err != nil {
		return Latency{}, err
	}
	var found Latency
	for i := range rollouts + 1 {
		set, err := w.Push(ctx, strconv.Itoa(i), nil)
		if err != nil {
			return found, err
		}
		if i == 0 { // the first version has no canary to pause
			_, err = promote(ctx, w, set)
		} else {
			err = found.sample(ctx, place, w, set)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func world(place *scenario.Place, s demo.Scenario) (*demo.World, error) {
	w := demo.NewWorld(place.Stack, s, place.Clock)
	with, err := place.Cluster.HTTP()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	w.ClusterAt(place.Cluster.URL(), with)
	return w, nil
}

func promote(ctx context.Context, w *demo.World, set client.VersionSet) (client.Rollout, error) {
	r, err := w.Roll(ctx, set.ID, "a figure")
	if err == nil {
		r, err = w.Follow(ctx, r.ID, demo.Hooks{})
	}
	if err == nil && r.State != "COMPLETED" {
		reason := ""
		for _, t := range r.Journal {
			if t.Subject == r.ID && t.Reason != "" {
				reason = t.Reason // the last one is the reason of the end
			}
		}
		err = fmt.Errorf("%s ended as %s, expected COMPLETED: %s", r.ID, r.State, reason)
	}
	return r, err
}

// sample adds the figures of one rollout.
func (l *Latency) sample(ctx context.Context, place *scenario.Place, w *demo.World, set client.VersionSet) error {
	watched, err := watch(ctx, place, w)
	if err != nil {
		return err
	}
	began := place.Clock.Now()
	commit := make(chan time.Duration, 1)
	go firstCommit(ctx, w, began, commit)
	r, err := promote(ctx, w, set)
	seen := watched()
	if err != nil {
		return err
	}
	l.FirstCommit = append(l.FirstCommit, <-commit)
	var passed time.Time
	for _, t := range r.Journal {
		switch {
		case t.Subject == r.ID:
		case t.Event == "pass_gate":
			passed = t.CreatedAt
		case t.Event == "reach_gate":
			if at, ok := seen[t.GateID]; ok {
				l.Resumed = append(l.Resumed, t.CreatedAt.Sub(at))
			}
			if !passed.IsZero() {
				l.NextGate = append(l.NextGate, t.CreatedAt.Sub(passed))
			}
		}
	}
	return nil
}

// firstCommit waits for the first new commit.
func firstCommit(ctx context.Context, w *demo.World, began time.Time, found chan<- time.Duration) {
	before := -1
	for {
		commits, err := gitserver.Log(ctx, w.Stack.GitDir(), w.Scenario.Application)
		switch {
		case err != nil:
		case before < 0:
			before = len(commits)
		case len(commits) > before:
			found <- w.Clock.Now().Sub(began)
			return
		}
		if clock.Sleep(ctx, w.Clock, 5*time.Millisecond) != nil {
			found <- 0
			return
		}
	}
}

// watch records when the Rollout is seen paused at each gate. The returned function ends it, and returns the times by gate.
func watch(ctx context.Context, place *scenario.Place, w *demo.World) (func() map[string]time.Time, error) {
	stage := w.Scenario.Stages[0]
	rollouts, err := place.Cluster.Resource("argoproj.io/v1alpha1", "Rollout", w.Scenario.Namespace(stage))
	if err != nil {
		return nil, err
	}
	changes, err := rollouts.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch rollouts: %w", err)
	}
	seen := map[string]time.Time{}
	var wait sync.WaitGroup
	wait.Go(func() {
		for change := range changes.ResultChan() {
			o, ok := change.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			if weight, err := pausedAt(o); err == nil {
				gate := fmt.Sprintf("%s/%d", stage.Environment, weight)
				if _, known := seen[gate]; !known {
					seen[gate] = w.Clock.Now()
				}
			}
		}
	})
	return func() map[string]time.Time {
		changes.Stop()
		wait.Wait()
		return seen
	}, nil
}

// pausedAt returns the weight at which a Rollout is paused.
func pausedAt(o *unstructured.Unstructured) (int64, error) {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	generation, _, _ := unstructured.NestedString(o.Object, "status", "observedGeneration")
	index, _, _ := unstructured.NestedInt64(o.Object, "status", "currentStepIndex")
	steps, _, _ := unstructured.NestedSlice(o.Object, "spec", "strategy", "canary", "steps")
	if phase != "Paused" || generation != strconv.FormatInt(o.GetGeneration(), 10) || index < 1 || index >= int64(len(steps)) {
		return 0, errors.New("not paused at a step of the present spec")
	}
	step, _ := steps[index-1].(map[string]any)
	weight, _, err := unstructured.NestedInt64(step, "setWeight")
	if err != nil {
		return 0, fmt.Errorf("step %d: %w", index-1, err)
	}
	return weight, nil
}
