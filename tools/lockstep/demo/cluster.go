package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// cluster reads Argo Rollouts objects from the Kubernetes API, as kubectl would: what the demo believes about the cluster does not
// come from Lockstep.
type cluster struct {
	url    string
	client *http.Client
}

// rolloutObject is the part of an Argo Rollout that says where it stands.
type rolloutObject struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		// Replicas are given in all scenarios.
		Replicas int `json:"replicas"`

		Template struct {
			Spec struct {
				Containers []struct {
					Image string `json:"image"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
		Strategy struct {
			BlueGreen *struct{} `json:"blueGreen"`
			Canary    struct {
				Steps []struct {
					SetWeight *int `json:"setWeight"`
					Pause     any  `json:"pause"`
				} `json:"steps"`
			} `json:"canary"`
		} `json:"strategy"`
	} `json:"spec"`
	Status struct {
		// ObservedGeneration is text, in Argo Rollouts.
		ObservedGeneration string `json:"observedGeneration"`

		Phase            string `json:"phase"`
		Message          string `json:"message"`
		CurrentStepIndex int    `json:"currentStepIndex"`
		CurrentPodHash   string `json:"currentPodHash"`
		StableRS         string `json:"stableRS"`
		UpdatedReplicas  int    `json:"updatedReplicas"`
		BlueGreen        struct {
			ActiveSelector string `json:"activeSelector"`
		} `json:"blueGreen"`
		PauseConditions []struct {
			Reason string `json:"reason"`
		} `json:"pauseConditions"`
	} `json:"status"`
}

// position is where one service stands in one environment.
type position struct {
	Image string
	// Phase is Argo's: Healthy, Progressing, Paused, Degraded.
	Phase, Message string
	// Weight is the share of the new version, in percent. AtGate is set if it has been reached and a pause follows, Paused
	// if the pause holds: once promoted, a Rollout is for a moment at a gate without being paused.
	Weight         int
	AtGate, Paused bool
	// Passed is the highest gate that it has left behind.
	Passed int
	// Stable is set if the version asked for serves everything, Canary if it is on its way there past one that serves now.
	Stable, Canary bool
}

// rollout reads where one Rollout stands. A Rollout that is not there is NotFound.
func (c cluster) rollout(ctx context.Context, namespace, name string) (position, error) {
	url := fmt.Sprintf("%s/apis/argoproj.io/v1alpha1/namespaces/%s/rollouts/%s", c.url, namespace, name)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return position{}, fmt.Errorf("read rollout %s/%s: %w", namespace, name, err)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return position{}, fault.New(fault.Unavailable, "read rollout %s/%s: %w", namespace, name, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return position{}, fault.New(fault.NotFound, "rollout %s/%s: the cluster has none", namespace, name)
	default:
		return position{}, fmt.Errorf("read rollout %s/%s: the cluster answered %s", namespace, name, response.Status)
	}
	var object rolloutObject
	if err := json.NewDecoder(response.Body).Decode(&object); err != nil {
		return position{}, fmt.Errorf("read rollout %s/%s: %w", namespace, name, err)
	}
	return object.position(), nil
}

func (o rolloutObject) position() position {
	p := position{Phase: o.Status.Phase, Message: o.Status.Message}
	if len(o.Spec.Template.Spec.Containers) > 0 {
		p.Image = o.Spec.Template.Spec.Containers[0].Image
	}
	if o.Status.ObservedGeneration != strconv.FormatInt(o.Metadata.Generation, 10) {
		p.Phase, p.Message = "Progressing", "" // the rest is still about the version before
		return p
	}
	steps := o.Spec.Strategy.Canary.Steps
	for _, step := range steps[:min(o.Status.CurrentStepIndex, len(steps))] {
		if step.SetWeight != nil {
			p.Weight = *step.SetWeight
		} else {
			p.Passed = p.Weight
		}
	}
	p.AtGate = o.Status.CurrentStepIndex < len(steps) && steps[o.Status.CurrentStepIndex].SetWeight == nil
	for _, condition := range o.Status.PauseConditions {
		p.Paused = p.Paused || condition.Reason == "CanaryPauseStep" || condition.Reason == "BlueGreenPause"
	}
	if o.Spec.Strategy.BlueGreen != nil {
		// All of the new version stands ready before anybody gets it, and everybody gets it at once.
		p.AtGate, p.Weight = o.Status.UpdatedReplicas >= o.Spec.Replicas, 100
		if hash := o.Status.CurrentPodHash; hash != "" && o.Status.BlueGreen.ActiveSelector == hash {
			p.Passed = 100
		}
	}
	p.Stable = o.Status.CurrentPodHash != "" && o.Status.CurrentPodHash == o.Status.StableRS
	p.Canary = o.Status.StableRS != "" && !p.Stable
	return p
}

// digest is the part of the image after the @.
func (p position) digest() string {
	_, digest, _ := strings.Cut(p.Image, "@")
	return digest
}

// reached reports whether the gate has been come to.
func (p position) reached(gate int) bool {
	return p.Passed >= gate || (p.AtGate && p.Weight >= gate) || p.Stable
}

// SpecImage is what a Rollout is asked to run, whatever it runs by now.
func (w *World) SpecImage(ctx context.Context, stage Stage, service string) (string, error) {
	p, err := w.cluster.rollout(ctx, w.Scenario.Namespace(stage), service)
	return p.Image, err
}
