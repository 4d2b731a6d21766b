package drivertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// composeServer is a stub of the server that docs/how-to/deploy-with-docker-compose.md describes: it runs a project, whose containers need
// a time to become healthy.
type composeServer struct {
	w *world
	// files are the Compose files by project, and changed is when the last one was put.
	files   map[string]string
	changed time.Time
	// state and health are how containers are once they have started, by service.
	state, health map[string]string
	// code is the exit code of a container; nil for 3.
	code any
}

const startsFor = 25 * time.Second

// ServeHTTP answers as the server does.
func (c *composeServer) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	project := strings.TrimPrefix(in.URL.Path, "/projects/")
	switch {
	case in.Header.Get("Authorization") != "Bearer machine":
		out.WriteHeader(http.StatusUnauthorized)
	case in.URL.Path == "/version":
		c.answer(out, object{"compose": "2.40.0"})
	case in.Method == http.MethodPut:
		var body struct{ Compose string }
		if err := json.NewDecoder(in.Body).Decode(&body); err != nil || body.Compose == "" {
			out.WriteHeader(http.StatusBadRequest)
			return
		}
		if c.files[project] != body.Compose {
			c.files[project], c.changed = body.Compose, c.w.now
			c.w.record("up: %s", project)
		}
		c.answer(out, object{})
	default:
		c.answer(out, object{"services": c.containers(project)})
	}
}

func (c *composeServer) answer(out http.ResponseWriter, body object) {
	if err := json.NewEncoder(out).Encode(body); err != nil {
		c.w.t.Error(err)
	}
}

func (c *composeServer) containers(project string) []object {
	var file struct {
		Services map[string]struct{ Image string }
	}
	if err := yaml.Unmarshal([]byte(c.files[project]), &file); err != nil {
		c.w.t.Error(err)
	}
	all := []object{}
	for service, of := range file.Services {
		one := object{"Service": service, "Image": of.Image, "State": "running", "Health": "starting"}
		if !c.w.now.Before(c.changed.Add(startsFor)) {
			one["Health"] = "healthy"
			if c.health[service] != "" {
				one["Health"] = c.health[service]
			}
			if c.state[service] != "" {
				one["State"], one["ExitCode"] = c.state[service], cmp.Or[any](c.code, 3)
			}
		}
		all = append(all, one)
	}
	return all
}

// serve has a server answer a request of a program, with the credential that it names.
func (w *world) serve(server http.Handler, args object) any {
	body, err := json.Marshal(args["json"])
	if err != nil {
		w.t.Fatal(err)
	}
	in := httptest.NewRequestWithContext(w.t.Context(), args["method"].(string), args["url"].(string), bytes.NewReader(body))
	if name, named := args["credential"].(string); named {
		in.Header.Set("Authorization", "Bearer "+name)
	}
	out := httptest.NewRecorder()
	server.ServeHTTP(out, in)
	answer := object{"status": out.Code, "ok": out.Code/100 == 2, "headers": object{}, "body": out.Body.String(), "json": nil}
	var decoded any
	if json.Unmarshal(out.Body.Bytes(), &decoded) == nil {
		answer["json"] = decoded
	}
	return answer
}

// exampleDriver is a driver of docs/examples.
func exampleDriver(t *testing.T, name string) *driver.Bundle {
	t.Helper()
	files, err := driver.Files(os.DirFS(filepath.Join("..", "..", "..", "..", "..", "docs", "examples", name)))
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := driver.FromFiles(files)
	if err == nil {
		err = driver.CheckNew(bundles)
	}
	if err == nil {
		err = driver.CheckWidgets(bundles)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bundles[0]
}

// composed is a shop that the driver of docs/examples/compose deploys.
func composed(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.bundle = exampleDriver(t, "compose")
	w.compose = &composeServer{w: w, files: map[string]string{}, state: map[string]string{}, health: map[string]string{}}
	w.server = w.compose
	return w
}

const composeFile = `services:
  api: {image: "{[ .images.api ]}", environment: {HOME: "$HOME", IN: "{[ .environment.name ]}"}}
  worker: {image: "{[ .images.worker ]}"}
`

func composeInputs(version int, edit func(environment, config object)) object {
	return inputs(version, func(_, environment object) {
		config := object{"project": "shop", "compose": composeFile}
		environment["config"] = object{"url": "https://machine.test", "credential": "machine"}
		environment["application_environment"] = object{"id": 5, "discovered": object{}, "config": config}
		environment["gates"] = []any{}
		if edit != nil {
			edit(environment, config)
		}
	})
}

// The driver for Docker Compose has a machine run one project, once, and follows its containers; its snapshot has the file, and a preview
// is the difference to it (D53).
func TestTheExampleForDockerComposeDeploys(t *testing.T) {
	t.Parallel()
	w := composed(t)
	began := w.now
	if failure := w.run(driver.Deploy, composeInputs(1, nil)); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w,
		"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
		"deployment.started deployment_id=12", "up: shop", "deployment.committed deployment_id=11", "deployment.committed deployment_id=12",
		"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy")
	want := strings.NewReplacer("{[ .images.api ]}", image("api", 1), "{[ .images.worker ]}", image("worker", 1), "{[ .environment.name ]}", "staging").Replace(composeFile)
	if w.compose.files["shop"] != want {
		t.Errorf("the machine runs %s, expected %s", w.compose.files["shop"], want)
	}
	if took := w.now.Sub(began); took != 30*time.Second {
		t.Errorf("the rollout took %s, expected three looks, 10 s apart", took)
	}
	last := func(in object) object {
		for _, d := range in["rollout"].(object)["environments"].([]any)[0].(object)["deployments"].([]any) {
			d.(object)["last"] = object{"deployment_id": 11, "rollout_id": 7, "parameters": w.committed[0].Parameters}
		}
		return object{"preview": object{"id": 5}, "rollout": in["rollout"], "version_set": in["version_set"]}
	}
	if got := preview(t, w, last(composeInputs(1, nil))); len(got.Changes) != 0 || !got.FromLive || got.Reason != "" {
		t.Errorf("the same again: %+v, expected no change", got)
	}
	got := preview(t, again(w), last(composeInputs(2, nil)))
	if len(got.Changes) != 1 || got.Changes[0].Path != "shop/compose.yaml" || len(lines(got.Changes[0].Diff)) != 4 {
		t.Errorf("the next version: %+v, expected its images", got)
	}
	for name, edit := range map[string]func(_, config object){
		"another project": func(_, config object) { config["project"] = "other" },
		"a secret":        func(_, config object) { config["compose"] = composeFile + "x-a: 'PASSWORD=hunter2 next'\n" },
	} {
		got := preview(t, again(w), last(composeInputs(1, edit)))
		if len(got.Changes) != 1 || got.FromLive || strings.Contains(got.Changes[0].Diff, "hunter2") {
			t.Errorf("%s: %+v, expected a change that is not known to be all", name, got)
		}
	}
	none := composeInputs(1, nil)
	none["rollout"].(object)["environments"].([]any)[0].(object)["deployments"] = []any{}
	if got := preview(t, again(w), last(none)); len(got.Changes) != 0 || got.FromLive || got.Reason != "" {
		t.Errorf("no deployments: %+v, expected nothing", got)
	}
	newer := last(composeInputs(1, nil))
	newer["rollout"].(object)["environments"].([]any)[0].(object)["deployments"].([]any)[1].(object)["last"] = object{
		"deployment_id": 21, "rollout_id": 8, "parameters": object{"project": "shop", "compose": want + "\nx-later: 1\n"},
	}
	if got := preview(t, again(w), newer); len(got.Changes) != 1 || !strings.Contains(got.Changes[0].Diff, "-x-later: 1") {
		t.Errorf("one service was deployed later: %+v, expected the difference to that file", got)
	}
	if w.compose.files["shop"] != want {
		t.Errorf("a preview has changed the machine: it runs %s", w.compose.files["shop"])
	}
}

// What a machine runs may have secrets; what is recorded of it has none that has a usual form, and is bounded (R2-44).
func TestTheExampleForDockerComposeRecordsNoSecret(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		"x-a: {POSTGRES_PASSWORD: hunter2}\n":                           "POSTGRES_PASSWORD: [redacted]",
		"x-a: " + strings.Repeat("x", 64<<10) + "\n# password: hunter2": "compose_bytes",
	} {
		w := composed(t)
		if failure := w.run(driver.Deploy, composeInputs(1, func(_, config object) { config["compose"] = composeFile + more })); failure != "" {
			t.Fatal(failure)
		}
		if text := string(w.committed[0].Parameters); !strings.Contains(text, want) || strings.Contains(text, "hunter2") || len(text) > 64<<10 {
			t.Errorf("found %.300s, expected %s", text, want)
		}
	}
}

// What a container does wrong fails its deployment, and a file that does not run the images is refused before anything is changed.
func TestTheExampleForDockerComposeFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(w *world, environment, config object)
		want string
		ups  int
	}{
		{"exited", func(w *world, _, _ object) { w.compose.state["api"] = "exited" }, "api has ended with the exit code 3", 1},
		{"restarting", func(w *world, _, _ object) { w.compose.state["api"] = "restarting" }, "api is restarting", 1},
		{"exited with a text", func(w *world, _, _ object) { w.compose.state["api"], w.compose.code = "exited", "137" }, "exit code 137", 1},
		{"unhealthy", func(w *world, _, _ object) { w.compose.health["worker"] = "unhealthy" }, "worker is unhealthy", 1},
		{"login", func(_ *world, environment, _ object) { delete(environment["config"].(object), "credential") }, "project shop: the server answers 401", 0},
		{"fixed image", func(_ *world, _, config object) { config["compose"] = "services: {api: {image: other}}" }, "expected the service api with the image {[ .images.api ]}", 0},
		{"unknown image", func(_ *world, _, config object) { config["compose"] = "x: {[ .images.nothing ]}" }, `no entry for key "nothing"`, 0},
		{"no YAML", func(_ *world, _, config object) { config["compose"] = "services: [" }, "the Compose file: ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := composed(t)
			failure := w.run(driver.Deploy, composeInputs(1, func(environment, config object) { c.edit(w, environment, config) }))
			ups := len(slices.DeleteFunc(slices.Clone(w.story), func(line string) bool { return line != "up: shop" }))
			if !strings.Contains(failure, c.want) || ups != c.ups {
				t.Errorf("found %q after %d changes of the machine, expected %q after %d", failure, ups, c.want, c.ups)
			}
		})
	}
}

func TestTheExampleForDockerComposeIsSetUp(t *testing.T) {
	t.Parallel()
	w := composed(t)
	environment := composeInputs(1, nil)["rollout"].(object)["environments"].([]any)[0].(object)
	of := environment["application_environment"].(object)
	of["services"] = []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}
	for _, step := range []func(){
		func() {},
		func() { delete(environment["config"].(object), "credential") },
		func() { of["config"].(object)["compose"] = "services: {api: {image: x}}" },
	} {
		step()
		for workflow, in := range map[driver.Workflow]object{
			driver.Onboarding: {"environment": environment}, driver.Setup: {"application_environment": of, "environment": environment},
		} {
			if failure := w.run(workflow, in); failure != "" {
				t.Fatal(failure)
			}
		}
	}
	count := func(line string) int {
		return len(slices.DeleteFunc(slices.Clone(w.story), func(found string) bool { return !strings.HasPrefix(found, line) }))
	}
	for line, want := range map[string]int{
		"environment.ready environment_id=3":                                                                               1,
		"environment.not_ready environment_id=3 reason=the server: the server answers 401":                                 2,
		"application_environment.ready application_environment_id=5":                                                       2,
		"application_environment.not_ready application_environment_id=5 reason=the Compose file: expected the service api": 1,
	} {
		if found := count(line); found != want {
			t.Errorf("found %q %d times, expected %d; the story is\n%s", line, found, want, fmt.Sprint(strings.Join(w.story, "\n")))
		}
	}
}
