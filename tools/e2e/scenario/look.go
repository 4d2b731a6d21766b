package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

const argo = "argoproj.io/v1alpha1"

// namespace returns the namespace of an environment's workloads; the Application has the same name.
func (r *run) namespace(environment string) string {
	return r.world.Scenario.Namespace(demo.Stage{Environment: r.scenario.full(environment)})
}

// away marks an error as retryable: programs of the cluster are restarted on purpose.
func away(err error) error {
	return fault.Because(err, fault.Unavailable, "the cluster does not answer")
}

// syncing waits until Argo CD runs a sync.
func (r *run) syncing(ctx context.Context, environment string) error {
	applications, err := r.Cluster.Resource(argo, "Application", "argocd")
	if err != nil {
		return err
	}
	return r.world.Await(ctx, "a sync of "+environment+" to be running", func() (string, bool, error) {
		app, err := applications.Get(ctx, r.namespace(environment), metav1.GetOptions{})
		if err != nil {
			return "", false, away(err)
		}
		phase, _, _ := unstructured.NestedString(app.Object, "status", "operationState", "phase")
		_, asked, _ := unstructured.NestedMap(app.Object, "operation")
		return "phase " + phase, asked && phase == "Running", nil
	})
}

// inPhase waits for all Rollouts of an environment.
func (r *run) inPhase(ctx context.Context, want string) error {
	environment, phase, _ := strings.Cut(want, " ")
	rollouts, err := r.Cluster.Resource(argo, "Rollout", r.namespace(environment))
	if err != nil {
		return err
	}
	return r.world.Await(ctx, "the Rollouts of "+environment+" to be "+phase, func() (string, bool, error) {
		all, err := rollouts.List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, away(err)
		}
		for _, o := range all.Items {
			found, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			seen, _, _ := unstructured.NestedString(o.Object, "status", "observedGeneration")
			if found != phase || seen != strconv.FormatInt(o.GetGeneration(), 10) {
				return o.GetName() + " " + found, false, nil
			}
		}
		return "", len(all.Items) == len(r.scenario.Services), nil
	})
}

// remove deletes an object after its dependents, and waits until it is gone. With background deletion a dependent may survive unnoticed if
// the object is recreated with the same name at once: Kubernetes' garbage collector misses an object that was deleted while its watch was
// down, as after a restart of the API server, and the old pod blocks the new one.
func (r *run) remove(ctx context.Context, o Object) error {
	objects, err := r.Cluster.Resource(o.APIVersion, o.Kind, r.expand(ctx, o.Namespace))
	if err != nil {
		return err
	}
	name, foreground := r.expand(ctx, o.Name), metav1.DeletePropagationForeground
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		return fmt.Errorf("delete %s %s: %w", o.Kind, name, err)
	}
	return r.world.Await(ctx, o.Kind+" "+name+" to be gone", func() (string, bool, error) {
		_, err := objects.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "it is gone", true, nil
		case err != nil:
			return "", false, away(err)
		default:
			return "it exists", false, nil
		}
	})
}

// available waits for a ready pod of a workload.
func (r *run) available(ctx context.Context, o Object) error {
	objects, err := r.Cluster.Resource(o.APIVersion, o.Kind, r.expand(ctx, o.Namespace))
	if err != nil {
		return err
	}
	return r.world.Await(ctx, o.Kind+" "+o.Name+" to have a ready pod", func() (string, bool, error) {
		found, err := objects.Get(ctx, o.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "it does not exist", false, nil
		case err != nil:
			return "", false, away(err)
		}
		ready, _, _ := unstructured.NestedInt64(found.Object, "status", "readyReplicas")
		return fmt.Sprintf("%d of its pods are ready", ready), ready > 0, nil
	})
}

// present waits until an object exists, or does not.
func (r *run) present(ctx context.Context, o Object, wanted bool) error {
	objects, err := r.Cluster.Resource(o.APIVersion, o.Kind, r.expand(ctx, o.Namespace))
	if err != nil {
		return err
	}
	name := r.expand(ctx, o.Name)
	what := o.Kind + " " + name + " to exist"
	if !wanted {
		what = o.Kind + " " + name + " to be deleted"
	}
	return r.world.Await(ctx, what, func() (string, bool, error) {
		_, err := objects.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "it does not exist", !wanted, nil
		case err != nil:
			return "", false, away(err)
		default:
			return "it exists", wanted, nil
		}
	})
}

// podsOf returns the identities of an environment's pods, and of their ReplicaSets.
func (r *run) podsOf(ctx context.Context, environment string) ([]string, error) {
	var found []string
	for kind, version := range map[string]string{"ReplicaSet": "apps/v1", "Pod": "v1"} {
		objects, err := r.Cluster.Resource(version, kind, r.namespace(environment))
		if err != nil {
			return nil, err
		}
		all, err := objects.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list of %s: %w", kind, err)
		}
		for _, o := range all.Items {
			found = append(found, kind+" "+o.GetName()+" "+string(o.GetUID()))
		}
	}
	slices.Sort(found)
	if len(found) == 0 {
		return nil, errors.New("pods of " + environment + ": found none, expected some to remember")
	}
	return found, nil
}

// same expects the remembered pods.
func (r *run) same(ctx context.Context, environment string) error {
	now, err := r.podsOf(ctx, environment)
	if err != nil {
		return err
	}
	if !slices.Equal(now, r.pods) {
		return fmt.Errorf("pods of %s: found %q, expected the previous ones: %q", environment, now, r.pods)
	}
	return nil
}

// begun finds a rollout that nobody has asked for, and follows it.
func (r *run) begun(ctx context.Context, what string, want Rollout) error {
	last := r.started.ID
	err := r.world.Await(ctx, what, func() (string, bool, error) {
		all, err := r.world.API.Rollouts(ctx, client.Filter{Application: r.scenario.Name, Limit: 1})
		if err != nil || len(all) == 0 || all[0].ID == last {
			return "nothing newer than " + last, false, err
		}
		r.started = all[0]
		return "", true, nil
	})
	if err != nil {
		return err
	}
	return r.finish(ctx, want)
}

// contact waits until an environment shows whether its agent is reachable, and since when.
func (r *run) contact(ctx context.Context, environment string, reachable bool) error {
	began := r.Clock.Now()
	what := fmt.Sprintf("the agent of %s to be shown (reachable: %t)", environment, reachable)
	return r.world.Await(ctx, what, func() (string, bool, error) {
		e, err := r.world.API.Environment(ctx, r.scenario.full(environment))
		if err != nil || e.Contact == nil {
			return "nothing", false, err
		}
		if !e.Contact.Reachable && (e.Contact.Reason == "" || e.Contact.Since.After(r.Clock.Now())) {
			return "", false, fmt.Errorf("contact of %s, looked at since %s: found %+v, expected a reason, and since when",
				environment, began, *e.Contact)
		}
		return fmt.Sprintf("%+v", *e.Contact), e.Contact.Reachable == reachable, nil
	})
}

// mark writes a status.
func (r *run) mark(ctx context.Context, m Mark) error {
	objects, err := r.Cluster.Resource(m.APIVersion, m.Kind, r.expand(ctx, m.Namespace))
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": m.Status})
	if err != nil {
		return fmt.Errorf("status of %s %s: %w", m.Kind, m.Name, err)
	}
	if _, err := objects.Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("status of %s %s: %w", m.Kind, m.Name, err)
	}
	return nil
}
