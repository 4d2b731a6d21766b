package manifest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kinds are the steps of Argo Rollouts that are neither weights nor pauses, each as its documentation writes it.
func kinds() map[string]string {
	return map[string]string{
		"setCanaryScale":  "- setCanaryScale:\n    weight: 25\n",
		"matchWeight":     "- setCanaryScale:\n    matchTrafficWeight: true\n",
		"setHeaderRoute":  "- setHeaderRoute:\n    name: by-header\n    match:\n      - headerName: X-Beta\n        headerValue:\n          exact: \"1\"\n",
		"dropHeaderRoute": "- setHeaderRoute:\n    name: by-header # the same, without a match: it is removed\n",
		"setMirrorRoute":  "- setMirrorRoute:\n    name: mirror\n    percentage: 35\n    match:\n      - method: {exact: GET}\n        path: {prefix: /}\n",
		"analysis":        "- analysis:\n    templates:\n      - templateName: success-rate\n    args:\n      - {name: service, value: api.example.com}\n",
		"experiment":      "- experiment:\n    duration: 5m\n    templates:\n      - name: baseline\n        specRef: stable\n      - name: candidate\n        specRef: canary\n",
		"plugin":          "- plugin:\n    name: example/step\n    config:\n      text: |\n        # no comment\n        - no step\n",
	}
}

// indented is a list of steps where a manifest has it.
func indented(steps ...string) string {
	text := "  strategy:\n    canary:\n      steps:\n"
	for _, s := range steps {
		for line := range strings.Lines(s) {
			text += "        " + line
		}
	}
	return text
}

// The user's own steps are never deleted: each stays at its weight, and as it is written.
func TestTheUsersOwnStepsStay(t *testing.T) {
	t.Parallel()
	weight := func(n int) string { return fmt.Sprintf("- setWeight: %d\n", n) }
	const pause, timed = "- pause: {}\n", "- pause: {duration: 10m}\n"
	for name, own := range kinds() {
		for _, tc := range []struct {
			name          string
			before, after string
			gates         []int
		}{
			{"first", indented(own, weight(10), timed), indented(own, weight(25), pause, weight(50), pause), nil},
			{"at a weight that is no gate", indented(weight(10), own, timed), indented(weight(10), own, weight(25), pause, weight(50), pause), nil},
			{"at a gate, before its pause", indented(weight(25), own, pause), indented(weight(25), own, pause, weight(50), pause), nil},
			{"at a gate, after its pause", indented(weight(25), timed, own), indented(weight(25), pause, own, weight(50), pause), nil},
			{"at a gate without a pause", indented(weight(25), own, weight(60)), indented(weight(25), own, pause, weight(50), pause), nil},
			{
				"between gates", indented(weight(20), timed, weight(40), own, weight(80), timed),
				indented(weight(25), pause, weight(40), own, weight(50), pause), nil,
			},
			{"last", indented(weight(20), timed, weight(100), own), indented(weight(25), pause, weight(50), pause, weight(100), own), nil},
			{
				"with a comment above it", indented(weight(25), pause, "\n# why\n"+own),
				indented(weight(25), pause, "\n# why\n"+own, weight(50), pause), nil,
			},
			{"without gates", indented(weight(25), pause, own, weight(50), pause), indented(weight(25), own), []int{}},
			{"alone", indented(own), indented(own), []int{}},
		} {
			t.Run(name+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				request := Request{Gates: []int{25, 50}}
				if tc.gates != nil {
					request.Gates = tc.gates
				}
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
}

// placed are the own steps of a list, each with the weight at which it is.
func placed(steps []any) (all []any) {
	for _, s := range stretches(steps) {
		for _, o := range s.own() {
			all = append(all, []any{s.weight, o.value})
		}
	}
	return all
}

// Whatever the steps are, and however often the gates change, each of the user's own stays at its weight and in its order; every gate has
// its pause, and nothing else waits.
func TestNoChangeOfGatesMovesAStep(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 14)) //nolint:gosec // a test
	names := []string{"analysis", "setCanaryScale", "setHeaderRoute", "plugin"}
	for range 500 {
		var list []any
		for n := random.IntN(9); n > 0; n-- {
			switch random.IntN(3) {
			case 0:
				list = append(list, map[string]any{"setWeight": random.IntN(11) * 10})
			case 1:
				list = append(list, map[string]any{"pause": map[string]any{}})
			default:
				list = append(list, map[string]any{names[random.IntN(len(names))]: len(list)})
			}
		}
		now := list
		for range 4 {
			gates := []int{}
			for weight := 10; weight <= 100; weight += 10 {
				if random.IntN(4) == 0 {
					gates = append(gates, weight)
				}
			}
			next, _ := steps(now, gates).plain().([]any)
			if diff := cmp.Diff(placed(now), placed(next)); diff != "" {
				t.Fatalf("%v with gates %v is %v (-before +after):\n%s", now, gates, next, diff)
			}
			if again := steps(next, gates).plain(); !reflect.DeepEqual(again, any(next)) {
				t.Fatalf("%v with gates %v is %v, and then %v", now, gates, next, again)
			}
			var stops []int
			weight := 0
			for _, step := range next {
				m, _ := step.(map[string]any)
				if w, ok := m["setWeight"].(int); ok {
					weight = w
				}
				if _, ok := m["pause"]; ok {
					stops = append(stops, weight)
				}
			}
			if len(gates)+len(stops) > 0 && !reflect.DeepEqual(stops, gates) {
				t.Fatalf("%v with gates %v is %v, which stops at %v", now, gates, next, stops)
			}
			now = next
		}
	}
}

func TestTheUsersOwnStepsStayInValuesAndFlowStyle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ before, after string }{
		{
			"api:\n  steps:\n    - setWeight: 10\n    - analysis: {templates: [{templateName: x}]} # ours\n",
			"api:\n  steps:\n    - setWeight: 10\n    - analysis: {templates: [{templateName: x}]} # ours\n    - setWeight: 50\n    - pause: {}\n",
		},
		{"api: {steps: [{analysis: {}}, {setWeight: 5}]}\n", "api: {steps: [{\"analysis\":{}}, {\"setWeight\": 50}, {\"pause\": {}}]}\n"},
	} {
		got, err := HelmValues([]byte(tc.before), []Value{{Path: "api.steps", Gates: []int{50}}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.after, string(got.Content)); diff != "" {
			t.Errorf("content (-want +got):\n%s", diff)
		}
	}
}
