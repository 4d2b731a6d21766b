package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

func TestBlueGreen(t *testing.T) {
	t.Parallel()
	services := Services{Active: "api", Preview: "api-preview"}
	for _, tc := range []struct{ name, before, after string }{
		{"no strategy", "", "  strategy:\n    blueGreen:\n      activeService: api\n      previewService: api-preview\n      autoPromotionEnabled: false\n"},
		{
			"it promotes by itself", "  strategy:\n    blueGreen:\n      activeService: api # ours\n      autoPromotionEnabled: true\n      previewReplicaCount: 1\n",
			"  strategy:\n    blueGreen:\n      previewService: api-preview\n      activeService: api # ours\n      autoPromotionEnabled: false\n      previewReplicaCount: 1\n",
		},
		{
			"another service, flow style", "  strategy: {blueGreen: {activeService: old, autoPromotionEnabled: \"true\"}}\n",
			"  strategy: {blueGreen: {\"previewService\": \"api-preview\", activeService: api, autoPromotionEnabled: false}}\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			request := Request{Strategy: BlueGreen, Services: services}
			got, err := Pin([]byte(rollout(tc.before)), request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rollout(tc.after), string(got.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if again, err := Pin(got.Content, request); err != nil || again.Changed {
				t.Errorf("a second time: changed %v, %v", again.Changed, err)
			}
		})
	}
}

func TestTrafficRouting(t *testing.T) {
	t.Parallel()
	services := func(r Routing) Routing { r.StableService, r.CanaryService = "api", "api-canary"; return r }
	const tail = "      steps:\n        - setWeight: 50\n        - pause: {}\n"
	const both = "  strategy:\n    canary:\n      stableService: api\n      canaryService: api-canary\n"
	for _, tc := range []struct {
		name, before, after string
		routing             Routing
	}{
		{
			"nginx", "", both + "      trafficRouting:\n        nginx:\n          stableIngress: shop\n" + tail,
			services(Routing{Kind: "nginx", Ingress: "shop"}),
		},
		{
			"alb", "", both + "      trafficRouting:\n        alb:\n          ingress: shop\n          servicePort: 80\n" + tail,
			services(Routing{Kind: "alb", Ingress: "shop", ServicePort: 80}),
		},
		{
			"istio", "", both + "      trafficRouting:\n        istio:\n          virtualService:\n            name: shop\n            routes:\n              - primary\n" + tail,
			services(Routing{Kind: "istio", VirtualService: "shop", Routes: []string{"primary"}}),
		},
		{
			"what the manifest has is enough", "  strategy:\n    canary:\n      stableService: api\n      canaryService: c\n      trafficRouting:\n        nginx: {stableIngress: shop}\n" + tail,
			"  strategy:\n    canary:\n      stableService: api\n      canaryService: c\n      trafficRouting:\n        nginx: {stableIngress: shop}\n" + tail,
			Routing{Kind: "nginx"},
		},
		{
			"another ingress, and the rest stays", "  strategy:\n    canary:\n      stableService: api\n      canaryService: api-canary\n      trafficRouting:\n        nginx:\n          annotationPrefix: x\n          stableIngress: old\n" + tail,
			"  strategy:\n    canary:\n      stableService: api\n      canaryService: api-canary\n      trafficRouting:\n        nginx:\n          annotationPrefix: x\n          stableIngress: shop\n" + tail,
			Routing{Kind: "nginx", Ingress: "shop"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := Pin([]byte(rollout(tc.before)), Request{Gates: []int{50}, Routing: tc.routing})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rollout(tc.after), string(got.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStrategiesThatAreRefused(t *testing.T) {
	t.Parallel()
	blueGreen := Request{Strategy: BlueGreen}
	with := func(r Routing) Request { return Request{Gates: []int{50}, Routing: r} }
	for _, tc := range []struct {
		name, strategy string
		request        Request
		want           string
	}{
		{"a canary", "  strategy: {canary: {}}\n", blueGreen, "spec.strategy has canary, expected blueGreen"},
		{
			"promotion by the clock", "  strategy: {blueGreen: {activeService: a, autoPromotionSeconds: 30}}\n", blueGreen,
			"autoPromotionSeconds is 30, expected none",
		},
		{"no active service", "", blueGreen, "activeService is missing, and none was given"},
		{"no such strategy", "", Request{Strategy: "recreate"}, `strategy: found "recreate"`},
		{"no such load balancer", "", with(Routing{Kind: "traefik"}), `routing.kind: found "traefik"`},
		{
			"no services", "", with(Routing{Kind: "nginx", Ingress: "x"}),
			"canary.stableService is missing, and none was given: load balancing by nginx needs it",
		},
		{"no ingress", "", with(Routing{Kind: "nginx", StableService: "a", CanaryService: "b"}), "trafficRouting.nginx.stableIngress is missing"},
		{
			"no port", "", with(Routing{Kind: "alb", StableService: "a", CanaryService: "b", Ingress: "x"}),
			"trafficRouting.alb.servicePort is missing",
		},
		{
			"no virtual service", "", with(Routing{Kind: "istio", StableService: "a", CanaryService: "b"}),
			"trafficRouting.istio.virtualService.name is missing",
		},
		{"a name that would end the scalar", "", with(Routing{Kind: "istio", VirtualService: "a: b"}), "routing.virtual_service: found"},
		{"a route that would", "", with(Routing{Kind: "istio", Routes: []string{"a\nb"}}), "routing.routes[0]: found"},
		{"a port out of range", "", with(Routing{Kind: "alb", ServicePort: 70000}), "routing.service_port: found 70000"},
	} {
		_, err := Pin([]byte(rollout(tc.strategy)), tc.request)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want …%s…", tc.name, err, tc.want)
		}
	}
}
