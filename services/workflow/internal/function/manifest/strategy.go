package manifest

import (
	"fmt"
	"regexp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The strategies of a Rollout that can be set.
const (
	Canary    = "canary"
	BlueGreen = "blue_green"
)

// Routing says how a canary's share of the traffic is brought about by a load balancer. Empty fields stay as the
// manifest has them.
type Routing struct {
	// Kind is istio, nginx or alb.
	Kind string
	// StableService and CanaryService are the two Services between which the traffic is split.
	StableService, CanaryService string
	// VirtualService and Routes are istio's; no Routes is the only one that it has.
	VirtualService string
	Routes         []string
	// Ingress is nginx's stable one, or alb's, which needs the port of its Service as well.
	Ingress     string
	ServicePort int
}

// Services are those of a blue-green Rollout. Empty ones stay as the manifest has them.
type Services struct {
	// Active serves everybody, Preview the new version before its promotion.
	Active, Preview string
}

// own is the routing of a kind of load balancer, apart from the Services.
func (r Routing) own() []pair {
	switch r.Kind {
	case "istio":
		inner := text1("name", r.VirtualService)
		if len(r.Routes) > 0 {
			inner = append(inner, pair{"routes", texts(r.Routes)})
		}
		if len(inner) == 0 {
			return nil
		}
		return []pair{{"virtualService", node{pairs: inner}}}
	case "nginx":
		return text1("stableIngress", r.Ingress)
	default:
		own := text1("ingress", r.Ingress)
		if r.ServicePort != 0 {
			own = append(own, pair{"servicePort", node{scalar: r.ServicePort}})
		}
		return own
	}
}

// text1 is a pair, or none for an empty text.
func text1(key, value string) []pair {
	if value == "" {
		return nil
	}
	return []pair{{key, node{scalar: value}}}
}

// strategy is what spec.strategy is to have; nil for a request that leaves it alone. found are the canary steps that the manifest has.
func (r Request) strategy(found any) []pair {
	var inner []pair
	switch {
	case r.Strategy == BlueGreen:
		inner = append(inner, text1("activeService", r.Services.Active)...)
		inner = append(inner, text1("previewService", r.Services.Preview)...)
		inner = append(inner, pair{"autoPromotionEnabled", node{scalar: false}})
		return []pair{{"blueGreen", node{pairs: inner}}}
	case r.Gates == nil:
		return nil
	}
	inner = append(inner, text1("stableService", r.Routing.StableService)...)
	inner = append(inner, text1("canaryService", r.Routing.CanaryService)...)
	if own := r.Routing.own(); len(own) > 0 && r.Routing.Kind != "" {
		inner = append(inner, pair{"trafficRouting", node{pairs: []pair{{r.Routing.Kind, node{pairs: own}}}}})
	}
	inner = append(inner, pair{"steps", steps(found, r.Gates)})
	return []pair{{"canary", node{pairs: inner}}}
}

// fits refuses a Rollout whose strategy cannot be made into the one asked for by adding to it.
func (r Request) fits(rollout doc) error {
	at := func(path ...string) any { return rollout.at(append([]string{"spec", "strategy"}, path...)...) }
	switch {
	case r.Strategy == BlueGreen && at("canary") != nil:
		return unsafe("spec.strategy", "has canary, expected blueGreen")
	case r.Strategy == BlueGreen && at("blueGreen", "autoPromotionSeconds") != nil:
		return unsafe("spec.strategy.blueGreen.autoPromotionSeconds", "is %v, expected none: the controller would promote by itself",
			at("blueGreen", "autoPromotionSeconds"))
	case r.Strategy == BlueGreen && at("blueGreen", "activeService") == nil && r.Services.Active == "":
		return unsafe("spec.strategy.blueGreen.activeService", "is missing, and none was given")
	case r.Strategy == BlueGreen:
		return nil
	case r.Gates != nil && at("blueGreen") != nil:
		return unsafe("spec.strategy", "has blueGreen, expected canary")
	case r.Gates == nil || r.Routing.Kind == "":
		return nil
	}
	return r.Routing.fits(at)
}

// needs are the fields that Argo Rollouts wants with a load balancer.
func (r Routing) needs() [][]string {
	all := [][]string{{"canary", "stableService"}, {"canary", "canaryService"}}
	under := func(path ...string) []string { return append([]string{"canary", "trafficRouting", r.Kind}, path...) }
	switch r.Kind {
	case "istio":
		return append(all, under("virtualService", "name"))
	case "nginx":
		return append(all, under("stableIngress"))
	default:
		return append(all, under("ingress"), under("servicePort"))
	}
}

// fits wants every field that the load balancer needs to be in the manifest or in the request.
func (r Routing) fits(at func(path ...string) any) error {
	given := mergeInto(map[string]any{}, Request{Gates: []int{}, Routing: r}.strategy(nil))
	for _, path := range r.needs() {
		if at(path...) == nil && (doc{value: given}).at(path...) == nil {
			field := "spec.strategy"
			for _, key := range path {
				field += "." + key
			}
			return unsafe(field, "is missing, and none was given: load balancing by %s needs it", r.Kind)
		}
	}
	return nil
}

// objectName is the shape of names that need no escaping in any style of YAML.
var objectName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9._/]*[a-zA-Z0-9])?$`)

// checkStrategy finds what is wrong with the strategy asked for.
func (r Request) checkStrategy() error {
	if r.Strategy != "" && r.Strategy != Canary && r.Strategy != BlueGreen {
		return problem("strategy", "found %q, expected %s or %s", r.Strategy, Canary, BlueGreen)
	}
	if k := r.Routing.Kind; k != "" && k != "istio" && k != "nginx" && k != "alb" {
		return problem("routing.kind", "found %q, expected istio, nginx or alb", k)
	}
	if p := r.Routing.ServicePort; p < 0 || p > 65535 {
		return problem("routing.service_port", "found %d, expected a port", p)
	}
	var wrong []fault.Field
	for _, f := range []struct{ name, value string }{
		{"routing.stable_service", r.Routing.StableService},
		{"routing.canary_service", r.Routing.CanaryService},
		{"routing.virtual_service", r.Routing.VirtualService},
		{"routing.ingress", r.Routing.Ingress},
		{"services.active", r.Services.Active},
		{"services.preview", r.Services.Preview},
	} {
		if f.value != "" && !objectName.MatchString(f.value) {
			wrong = append(wrong, fault.Field{Name: f.name, Problem: fmt.Sprintf("found %q, expected the name of an object", f.value)})
		}
	}
	for i, route := range r.Routing.Routes {
		if !objectName.MatchString(route) {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("routing.routes[%d]", i),
				Problem: fmt.Sprintf("found %q, expected the name of a route", route),
			})
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}
