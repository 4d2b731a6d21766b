package invariant

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// checkNetwork: if there are policies, every pod is under one in both directions, every port of a Service can be reached, and traffic that
// one pod of the release may send to another is accepted there.
func (r *release) checkNetwork() {
	if len(r.policies) == 0 {
		return
	}
	for _, p := range r.pods {
		for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
			if !slices.ContainsFunc(r.policiesOf(p), func(n *networkingv1.NetworkPolicy) bool {
				return slices.Contains(n.Spec.PolicyTypes,
					direction)
			}) {
				r.wrong("%s: no policy is about its %s, expected everything to be denied that is not allowed", p.of, direction)
			}
		}
	}
	for _, s := range r.services {
		for _, p := range r.selected(labels.SelectorFromSet(s.Spec.Selector)) {
			for _, port := range s.Spec.Ports {
				if n := number(p, port); !r.admits(p, n, nil) {
					r.wrong("Service %s: no policy lets anybody reach port %d of %s", s.Name, n, p.of)
				}
			}
		}
	}
	for _, policy := range r.policies {
		of := "NetworkPolicy " + policy.Name
		selector := r.selector(of, &policy.Spec.PodSelector)
		if selector == nil {
			continue
		}
		senders := r.selected(selector)
		if len(senders) == 0 {
			r.wrong("%s: selects no pod", of)
		}
		for _, from := range senders {
			r.checkEgress(of, from, policy.Spec.Egress)
		}
	}
}

// checkEgress checks that each pod of the release that a rule names accepts the traffic.
func (r *release) checkEgress(of string, from pod, rules []networkingv1.NetworkPolicyEgressRule) {
	for _, rule := range rules {
		for _, peer := range rule.To {
			if peer.PodSelector == nil || peer.NamespaceSelector != nil {
				continue
			}
			receivers := r.selected(r.selector(of, peer.PodSelector))
			if len(receivers) == 0 {
				r.wrong("%s: allows traffic to pods that are not there", of)
			}
			for _, to := range receivers {
				for _, port := range rule.Ports {
					if port.Port != nil && r.listens(to, port.Port.IntVal) && !r.admits(to, port.Port.IntVal, from.labels) {
						r.wrong("%s: lets %s send to port %d of %s, which refuses it", of, from.of, port.Port.IntVal, to.of)
					}
				}
			}
		}
	}
}

func (r *release) policiesOf(p pod) []*networkingv1.NetworkPolicy {
	var found []*networkingv1.NetworkPolicy
	for _, policy := range r.policies {
		if s, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector); err == nil && s.Matches(p.labels) {
			found = append(found, policy)
		}
	}
	return found
}

func (*release) listens(p pod, port int32) bool {
	for _, c := range p.spec.Containers {
		for _, cp := range c.Ports {
			if cp.ContainerPort == port {
				return true
			}
		}
	}
	return false
}

// admits reports whether a policy lets a pod with these labels, or for nil any client at all, reach the port.
func (r *release) admits(p pod, port int32, from labels.Set) bool {
	for _, policy := range r.policiesOf(p) {
		for _, rule := range policy.Spec.Ingress {
			if !slices.ContainsFunc(rule.Ports, func(n networkingv1.NetworkPolicyPort) bool { return n.Port != nil && n.Port.IntVal == port }) {
				continue
			}
			if from == nil || len(rule.From) == 0 {
				return true
			}
			for _, peer := range rule.From {
				if peer.NamespaceSelector != nil {
					return true
				}
				if s, err := metav1.LabelSelectorAsSelector(peer.PodSelector); err == nil && s.Matches(from) {
					return true
				}
			}
		}
	}
	return false
}
