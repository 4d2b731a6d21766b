package drivertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// functionServer is a stub of an API like that of AWS Lambda, as docs/examples/lambda calls it: a function has versions, each of an image,
// and an alias that splits its traffic between at most two of them.
type functionServer struct {
	w   *world
	all map[string]*cloudFunction
	// unable are images that cannot be published.
	unable map[string]bool
	// away is how many requests are answered by 503 from now on.
	away int
}

type cloudFunction struct {
	// images are those of the versions, from version 1 on.
	images []string
	alias  functionAlias
	// moved is when the alias was changed.
	moved time.Time
}

type functionAlias struct {
	FunctionVersion string
	RoutingConfig   struct{ AdditionalVersionWeights map[string]float64 }
}

// ServeHTTP answers as the server does.
func (f *functionServer) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(in.URL.Path, "/2015-03-31/functions/"), "/")
	of := f.all[name]
	switch {
	case f.away > 0:
		f.away--
		out.WriteHeader(http.StatusServiceUnavailable)
	case in.Header.Get("Authorization") != "Bearer cloud":
		out.WriteHeader(http.StatusForbidden)
	case in.URL.Path == "/2015-03-31/functions":
		f.answer(out, object{"Functions": slices.Sorted(maps.Keys(f.all))})
	case of == nil || rest != "code" && rest != "aliases/live":
		out.WriteHeader(http.StatusNotFound)
	case in.Method == http.MethodGet:
		f.answer(out, of.alias)
	case rest == "code":
		f.publish(out, in, name, of)
	default:
		f.route(out, in, name, of)
	}
}

// publish makes a version of an image: the one that there is if the latest is of it.
func (f *functionServer) publish(out http.ResponseWriter, in *http.Request, name string, of *cloudFunction) {
	var body struct {
		ImageURI string `json:"ImageUri"`
		Publish  bool
	}
	if err := json.NewDecoder(in.Body).Decode(&body); err != nil || !body.Publish || f.unable[body.ImageURI] {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	if of.images[len(of.images)-1] != body.ImageURI {
		of.images = append(of.images, body.ImageURI)
		f.w.record("publish: %s %d", name, len(of.images))
	}
	f.answer(out, object{"Version": strconv.Itoa(len(of.images))})
}

// route changes the alias, if its versions exist and the weight is a part of the whole.
func (f *functionServer) route(out http.ResponseWriter, in *http.Request, name string, of *cloudFunction) {
	var body functionAlias
	bad := json.NewDecoder(in.Body).Decode(&body) != nil
	versions := append(slices.Collect(maps.Keys(body.RoutingConfig.AdditionalVersionWeights)), body.FunctionVersion)
	for _, v := range versions {
		n, err := strconv.Atoi(v)
		bad = bad || err != nil || n < 1 || n > len(of.images)
	}
	for _, part := range body.RoutingConfig.AdditionalVersionWeights {
		bad = bad || part <= 0 || part >= 1 || len(versions) > 2
	}
	if bad {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	if before, after := fmt.Sprint(of.alias), fmt.Sprint(body); before != after {
		of.alias, of.moved = body, f.w.now
		line := fmt.Sprintf("alias: %s %s", name, body.FunctionVersion)
		for v, part := range body.RoutingConfig.AdditionalVersionWeights {
			line += fmt.Sprintf(", %s with %.2f", v, part)
		}
		f.w.record("%s", line)
	}
	f.answer(out, of.alias)
}

func (f *functionServer) answer(out http.ResponseWriter, body any) {
	if err := json.NewEncoder(out).Encode(body); err != nil {
		f.w.t.Error(err)
	}
}

// functional is a shop whose services are functions, at version 1.
func functional(t *testing.T) (*world, *functionServer) {
	t.Helper()
	w := newWorld(t)
	w.bundle = exampleDriver(t, "lambda")
	f := &functionServer{w: w, all: map[string]*cloudFunction{}, unable: map[string]bool{}}
	for _, service := range []string{"api", "worker"} {
		f.all["shop-"+service] = &cloudFunction{images: []string{"registry/shop/" + service + ":1"}, alias: functionAlias{FunctionVersion: "1"}}
	}
	w.server = f
	return w, f
}

func functionInputs(edit func(environment, config object)) object {
	return inputs(2, func(_, environment object) {
		config := object{"functions": object{"api": "shop-api", "worker": "shop-worker"}}
		environment["config"] = object{"url": "https://functions.test", "credential": "cloud"}
		environment["application_environment"] = object{"id": 5, "discovered": object{}, "config": config}
		environment["gates"] = []any{object{"weight": 25}, object{"weight": 50}}
		if edit != nil {
			edit(environment, config)
		}
	})
}

// The driver for functions moves the traffic of functions weight by weight, once each, against a server that keeps them
// (D53); the same again, and whatever a crash repeats, publishes nothing anew.
func TestTheExampleForFunctionsDeploys(t *testing.T) {
	t.Parallel()
	w, f := functional(t)
	if failure := w.run(driver.Deploy, functionInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	reached := func(weight int) []string {
		return []string{
			fmt.Sprintf("deployment.gate_reached deployment_id=11 weight=%d", weight), fmt.Sprintf("deployment.gate_reached deployment_id=12 weight=%d", weight),
			fmt.Sprintf("rollout.gate_reached environment_id=3 weight=%d", weight),
			fmt.Sprintf("deployment.advance deployment_id=11 weight=%d", weight), fmt.Sprintf("deployment.advance deployment_id=12 weight=%d", weight),
		}
	}
	expect(t, w, slices.Concat(
		[]string{
			"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11", "deployment.started deployment_id=12",
			"publish: shop-api 2", "publish: shop-worker 2", "alias: shop-api 1, 2 with 0.25", "alias: shop-worker 1, 2 with 0.25",
		},
		reached(25), []string{"alias: shop-api 1, 2 with 0.50", "alias: shop-worker 1, 2 with 0.50"},
		reached(50), []string{
			"alias: shop-api 2", "alias: shop-worker 2", "deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
			"rollout_environment.healthy environment_id=3", "rollout.healthy",
		},
	)...)
	for name, of := range f.all {
		if len(of.images) != 2 || of.alias.FunctionVersion != "2" || len(of.alias.RoutingConfig.AdditionalVersionWeights) != 0 {
			t.Errorf("%s: found %+v, expected version 2 with all traffic", name, of)
		}
	}
	w.story = nil
	if failure := w.run(driver.Deploy, functionInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	changes := func(line string) bool { return strings.HasPrefix(line, "publish") || strings.HasPrefix(line, "alias") }
	if i := slices.IndexFunc(w.story, changes); i >= 0 {
		t.Errorf("the same again: found %q, expected that nothing changes", w.story[i])
	}
}

// What the server refuses fails the deployment before any traffic moves; while it does not answer, the driver waits for it.
func TestTheExampleForFunctionsFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(f *functionServer, environment, config object)
		want string
	}{
		"login":    {func(_ *functionServer, e, _ object) { delete(e["config"].(object), "credential") }, "alias of shop-api: the server answers 403"},
		"unknown":  {func(_ *functionServer, _, c object) { c["functions"].(object)["worker"] = "nothing" }, "alias of nothing: the server answers 404"},
		"no image": {func(f *functionServer, _, _ object) { f.unable["registry/shop/worker:v"] = true }, "image of shop-worker: the server answers 400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := functional(t)
			failure := w.run(driver.Deploy, functionInputs(func(environment, config object) { tc.edit(f, environment, config) }))
			if !strings.Contains(failure, tc.want) || f.all["shop-api"].alias.FunctionVersion != "1" || !f.all["shop-api"].moved.IsZero() {
				t.Errorf("found %q with %+v, expected %q and no change of traffic", failure, f.all["shop-api"], tc.want)
			}
		})
	}
	t.Run("it is away for a time", func(t *testing.T) {
		t.Parallel()
		w, f := functional(t)
		gone, began := false, w.now
		w.server = http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			if !gone && in.Method == http.MethodGet && !f.all["shop-worker"].moved.IsZero() {
				gone, f.away = true, 3
			}
			f.ServeHTTP(out, in)
		})
		if failure := w.run(driver.Deploy, functionInputs(nil)); failure != "" || !gone {
			t.Errorf("found %q, expected that it waits for the server", failure)
		}
		if took := w.now.Sub(began); took != time.Minute {
			t.Errorf("the rollout took %s, expected a look each 30 s", took)
		}
	})
}

func TestTheExampleForFunctionsIsSetUp(t *testing.T) {
	t.Parallel()
	w, f := functional(t)
	environment := functionInputs(nil)["rollout"].(object)["environments"].([]any)[0].(object)
	of := environment["application_environment"].(object)
	both := func() {
		for _, run := range []struct {
			workflow driver.Workflow
			in       object
		}{{driver.Onboarding, object{"environment": environment}}, {driver.Setup, object{"application_environment": of, "environment": environment}}} {
			if failure := w.run(run.workflow, run.in); failure != "" {
				t.Fatal(failure)
			}
		}
	}
	both()
	delete(f.all, "shop-worker")
	both()
	delete(environment["config"].(object), "credential")
	both()
	expect(t, w,
		"environment.ready environment_id=3", "application_environment.ready application_environment_id=5",
		"environment.ready environment_id=3",
		"application_environment.not_ready application_environment_id=5 reason=alias live of shop-worker: the server answers 404",
		"environment.not_ready environment_id=3 reason=the server answers 403",
		"application_environment.not_ready application_environment_id=5 reason=alias live of shop-api: the server answers 403")
}
