// Package invariant checks what must hold for every release of our charts, for any values: pods are restricted, no secret is in clear,
// selectors select what they should, and network policies open exactly the ports that a container listens on.
//
// It checks rendered objects; other tests use a real API server.
package invariant

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockstep-cd/lockstep/tools/charts/render"
)

// pod is a pod that the release creates.
type pod struct {
	// of is the object that creates it, for messages.
	of     string
	labels labels.Set
	spec   corev1.PodSpec
	// isWorkload distinguishes long-running pods from those of tests.
	isWorkload bool
}

// release is the input of the checks.
type release struct {
	objects  []render.Object
	pods     []pod
	services []*corev1.Service
	policies []*networkingv1.NetworkPolicy
	problems []string
}

// Check returns all problems of a release, one sentence each, sorted.
func Check(objects []render.Object) []string {
	r := &release{objects: objects}
	for _, o := range objects {
		of := o.Kind + " " + o.Name
		switch t := o.Typed.(type) {
		case *appsv1.Deployment:
			r.addTemplate(of, t.Spec.Selector, t.Spec.Template)
		case *appsv1.StatefulSet:
			r.addTemplate(of, t.Spec.Selector, t.Spec.Template)
		case *batchv1.Job:
			// The Job's controller adds a selector of its own.
			r.pods = append(r.pods, pod{of: of, labels: t.Spec.Template.Labels, spec: t.Spec.Template.Spec})
		case *corev1.Pod:
			r.pods = append(r.pods, pod{of: of, labels: t.Labels, spec: t.Spec})
		case *corev1.Service:
			r.services = append(r.services, t)
		case *networkingv1.NetworkPolicy:
			r.policies = append(r.policies, t)
		case *corev1.Secret:
			r.wrong("%s: the chart makes a Secret; expected a reference to one", of)
		}
	}
	for _, p := range r.pods {
		r.checkPod(p)
	}
	r.checkText()
	r.checkReferences()
	r.checkNetwork()
	slices.Sort(r.problems)
	return slices.Compact(r.problems)
}

func (r *release) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *release) addTemplate(of string, selector *metav1.LabelSelector, template corev1.PodTemplateSpec) {
	r.pods = append(r.pods, pod{of: of, labels: template.Labels, spec: template.Spec, isWorkload: true})
	if s := r.selector(of, selector); s != nil && !s.Matches(labels.Set(template.Labels)) {
		r.wrong("%s: its selector %s does not match its own pods", of, s)
	}
}

// selector returns a compiled selector. An empty one would select everything, and is refused.
func (r *release) selector(of string, s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	switch {
	case err != nil:
		r.wrong("%s: selector: %v", of, err)
		return nil
	case s == nil || selector.Empty():
		r.wrong("%s: found no selector, expected one that names the release", of)
		return nil
	}
	return selector
}

// selected returns the pods that a selector matches.
func (r *release) selected(s labels.Selector) []pod {
	var found []pod
	for _, p := range r.pods {
		if s.Matches(p.labels) {
			found = append(found, p)
		}
	}
	return found
}
