package invariant

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockstep-cd/lockstep/tools/charts/render"
)

// checkReferences: every object that another one refers to exists.
func (r *release) checkReferences() {
	seen := map[[3]string]bool{}
	for _, o := range r.objects {
		key := [3]string{o.Kind, o.Namespace, o.Name}
		if seen[key] {
			r.wrong("%s %s: exists twice", o.Kind, o.Name)
		}
		seen[key] = true
		r.checkReference(o)
	}
	for _, s := range r.services {
		r.checkService(s)
	}
	for _, p := range r.pods {
		if account := p.spec.ServiceAccountName; account != "" && !r.has("ServiceAccount", account) {
			r.wrong("%s: there is no ServiceAccount %s", p.of, account)
		}
		for _, v := range p.spec.Volumes {
			if v.ConfigMap != nil && !r.has("ConfigMap", v.ConfigMap.Name) {
				r.wrong("%s: there is no ConfigMap %s", p.of, v.ConfigMap.Name)
			}
		}
	}
}

func (r *release) checkReference(o render.Object) {
	of := o.Kind + " " + o.Name
	switch t := o.Typed.(type) {
	case *policyv1.PodDisruptionBudget:
		if s := r.selector(of, t.Spec.Selector); s != nil && len(r.selected(s)) == 0 {
			r.wrong("%s: selects no pod", of)
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		if !r.has(t.Spec.ScaleTargetRef.Kind, t.Spec.ScaleTargetRef.Name) {
			r.wrong("%s: there is no %s %s", of, t.Spec.ScaleTargetRef.Kind, t.Spec.ScaleTargetRef.Name)
		} else if r.replicas(t.Spec.ScaleTargetRef.Name) {
			r.wrong("%s: %s has a number of replicas as well; an upgrade would undo the scaling", of, t.Spec.ScaleTargetRef.Name)
		}
	case *networkingv1.Ingress:
		for _, rule := range t.Spec.Rules {
			for _, p := range rule.HTTP.Paths {
				if !r.serves(p.Backend.Service.Name, p.Backend.Service.Port.Name) {
					r.wrong("%s: there is no Service %s with a port %s", of, p.Backend.Service.Name, p.Backend.Service.Port.Name)
				}
			}
		}
	case *rbacv1.Role:
		r.checkRules(of, t.Rules)
	case *rbacv1.ClusterRole:
		r.checkRules(of, t.Rules)
	case *rbacv1.RoleBinding:
		r.checkBinding(of, t.RoleRef, t.Subjects)
	case *rbacv1.ClusterRoleBinding:
		r.checkBinding(of, t.RoleRef, t.Subjects)
	case *unstructured.Unstructured:
		if o.Kind == "ServiceMonitor" {
			r.checkMonitor(of, t)
		}
	}
}

// checkRules: Secrets are read by name only, and no role has wildcards.
func (r *release) checkRules(of string, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames), "*") {
			r.wrong("%s: has a wildcard, expected what is needed by name", of)
		}
		if slices.Contains(rule.Resources, "secrets") && (len(rule.ResourceNames) == 0 || !slices.Equal(rule.Verbs, []string{"get"})) {
			r.wrong("%s: may %v Secrets %v, expected get, and names", of, rule.Verbs, rule.ResourceNames)
		}
	}
}

// isBound reports whether an account of the release has a role.
func (r *release) isBound(account string) bool {
	return slices.ContainsFunc(r.objects, func(o render.Object) bool {
		var subjects []rbacv1.Subject
		switch t := o.Typed.(type) {
		case *rbacv1.RoleBinding:
			subjects = t.Subjects
		case *rbacv1.ClusterRoleBinding:
			subjects = t.Subjects
		}
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Name == account })
	})
}

func (r *release) checkBinding(of string, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if !r.has(role.Kind, role.Name) {
		r.wrong("%s: there is no %s %s", of, role.Kind, role.Name)
	}
	for _, s := range subjects {
		if !r.has(s.Kind, s.Name) {
			r.wrong("%s: there is no %s %s", of, s.Kind, s.Name)
		}
	}
}

// checkMonitor: a ServiceMonitor matches exactly one Service with the port that it scrapes.
func (r *release) checkMonitor(of string, u *unstructured.Unstructured) {
	match, _, err := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
	if err != nil || len(match) == 0 {
		r.wrong("%s: found no selector, expected one that names the release", of)
		return
	}
	endpoints, _, _ := unstructured.NestedSlice(u.Object, "spec", "endpoints") // counts as none found
	found := 0
	for _, s := range r.services {
		if !labels.SelectorFromSet(match).Matches(labels.Set(s.Labels)) {
			continue
		}
		for _, e := range endpoints {
			if endpoint, ok := e.(map[string]any); ok && r.serves(s.Name, endpoint["port"]) {
				found++
			}
		}
	}
	if found != 1 {
		r.wrong("%s: finds %d Services with its port, expected 1", of, found)
	}
}

func (r *release) checkService(s *corev1.Service) {
	of := "Service " + s.Name
	selector := r.selector(of, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
	if selector == nil {
		return
	}
	pods := r.selected(selector)
	if len(pods) != 1 {
		r.wrong("%s: selects the pods of %d workloads, expected 1", of, len(pods))
		return
	}
	for _, port := range s.Spec.Ports {
		if number(pods[0], port) == 0 {
			r.wrong("%s: port %s leads to %s, which %s does not have", of, port.Name, port.TargetPort.String(), pods[0].of)
		}
	}
}

// number returns the container port of a Service's port; 0 for none.
func number(p pod, port corev1.ServicePort) int32 {
	for _, c := range p.spec.Containers {
		for _, cp := range c.Ports {
			if cp.Name == port.TargetPort.StrVal {
				return cp.ContainerPort
			}
		}
	}
	return 0
}

func (r *release) has(kind, name string) bool {
	return slices.ContainsFunc(r.objects, func(o render.Object) bool { return o.Kind == kind && o.Name == name })
}

// serves reports whether a Service has a port with the given name.
func (r *release) serves(service string, port any) bool {
	for _, s := range r.services {
		if s.Name == service && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port }) {
			return true
		}
	}
	return false
}

// replicas reports whether a workload sets its number of pods.
func (r *release) replicas(name string) bool {
	for _, o := range r.objects {
		switch t := o.Typed.(type) {
		case *appsv1.Deployment:
			if o.Name == name && t.Spec.Replicas != nil {
				return true
			}
		case *appsv1.StatefulSet:
			if o.Name == name && t.Spec.Replicas != nil {
				return true
			}
		}
	}
	return false
}

// Selectors returns the pod selectors of a release's workloads.
func Selectors(objects []render.Object) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, o := range objects {
		switch t := o.Typed.(type) {
		case *appsv1.Deployment:
			all[o.Kind+" "+o.Name] = t.Spec.Selector.MatchLabels
		case *appsv1.StatefulSet:
			all[o.Kind+" "+o.Name] = t.Spec.Selector.MatchLabels
		}
	}
	return all
}
