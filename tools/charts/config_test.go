package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/charts/render"
)

// TestServicesTakeTheirConfiguration loads the file and the variables that the chart generates with each service's own loader, which
// refuses unknown keys. Every credential has to be set, except optional ones.
//
//nolint:paralleltest // the loader reads this process's environment
func TestServicesTakeTheirConfiguration(t *testing.T) {
	for name, values := range cases(t, "lockstep") {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, "lockstep", values)
			r := takes[registry.Config](t, "registry", objects)
			fits(t, containerOf(t, objects, "registry"), r.GitLimits.MemoryBytes+serviceAlone, 0)
			w := takes[workflow.Config](t, "workflow", objects)
			fits(t, containerOf(t, objects, "workflow"), w.Memory().Total(), w.Memory().Programs)
			c := takes[domain.Config](t, "domain", objects, "owner_database_url", "database_standby_url", "nats_authority_seed")
			if !hasService(objects, strings.TrimPrefix(c.WorkflowAddress, "dns:///")) {
				t.Errorf("domain calls %s, which is no Service of the chart", c.WorkflowAddress)
			}
		})
	}
	for name, values := range cases(t, "lockstep-relay") {
		t.Run("relay/"+name, func(t *testing.T) {
			c := takes[relay.Config](t, "relay", mustRender(t, "lockstep-relay", values), "nats_password")
			if (c.NATSPassword == "") == (c.NATSNKeySeedFile == "") {
				t.Errorf("the relay has password %t and seed file %q, expected one of the two", c.NATSPassword != "", c.NATSNKeySeedFile)
			}
		})
	}
}

// serviceAlone is the memory of a service without its configured budgets, in bytes.
const serviceAlone = 128 << 20

// fits checks that a container's limit covers everything that its configuration allows, and that Go collects garbage before its own part is
// used up.
func fits(t *testing.T, c corev1.Container, most, children int64) {
	t.Helper()
	limit := c.Resources.Limits.Memory().Value()
	if limit < most {
		t.Errorf("%s may take %d bytes of memory, and its configuration can take %d", c.Name, limit, most)
	}
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		own, err := strconv.ParseInt(e.Value, 10, 64)
		if err != nil || own > limit-children || own < most-children {
			t.Errorf("%s collects garbage from %q bytes on; expected at least %d and at most %d", c.Name, e.Value, most-children, limit-children)
		}
		return
	}
	t.Errorf("%s has no GOMEMLIMIT", c.Name)
}

// takes loads the configuration that a release gives a component.
func takes[T any](t *testing.T, component string, objects []render.Object, optional ...string) T {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	for _, o := range objects {
		if m, ok := o.Typed.(*corev1.ConfigMap); ok && m.Labels["app.kubernetes.io/component"] == component {
			if err := os.WriteFile(file, []byte(m.Data["config.yaml"]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range containerOf(t, objects, component).Env {
		if strings.HasPrefix(e.Name, "LOCKSTEP_") {
			t.Setenv(e.Name, example(e))
		}
	}
	c, err := config.Load[T](component, []string{"--config", file})
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("koanf")
		if f.Tag.Get("secret") == "true" && v.Field(i).IsZero() && !slices.Contains(optional, key) {
			t.Errorf("%s is given no %s", component, key)
		}
	}
	return c
}

// example returns a value that a Secret may hold.
func example(e corev1.EnvVar) string {
	switch {
	case strings.HasSuffix(e.Name, "_AGENT_ID"):
		return "7"
	case strings.HasSuffix(e.Name, "_NATS_AUTHORITY_SEED"):
		return seedOfNobody
	case e.Value != "":
		return e.Value
	default:
		return "only-an-example-0123456789"
	}
}

func containerOf(t *testing.T, objects []render.Object, component string) corev1.Container {
	t.Helper()
	for _, o := range objects {
		var template corev1.PodTemplateSpec
		switch w := o.Typed.(type) {
		case *appsv1.Deployment:
			template = w.Spec.Template
		case *appsv1.StatefulSet:
			template = w.Spec.Template
		}
		if template.Labels["app.kubernetes.io/component"] == component {
			return template.Spec.Containers[0]
		}
	}
	t.Fatalf("there is no workload %s", component)
	return corev1.Container{}
}

func mustRender(t *testing.T, chart string, values map[string]any) []render.Object {
	t.Helper()
	objects, _, err := render.Objects(t.Context(), release(chart, values))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// hasService reports whether host:port is a Service of the release.
func hasService(objects []render.Object, address string) bool {
	for _, o := range objects {
		if s, ok := o.Typed.(*corev1.Service); ok {
			for _, port := range s.Spec.Ports {
				if address == s.Name+":"+itoa(port.Port) {
					return true
				}
			}
		}
	}
	return false
}

// TestProbesAskWhatIsServed: our services' probes use paths that pkg/telemetry serves.
func TestProbesAskWhatIsServed(t *testing.T) {
	t.Parallel()
	health := telemetry.Health(nil)
	objects := append(mustRender(t, "lockstep", cases(t, "lockstep")["minimal"]),
		mustRender(t, "lockstep-relay", cases(t, "lockstep-relay")["minimal"])...)
	for _, component := range []string{"registry", "domain", "workflow", "relay"} {
		c := containerOf(t, objects, component)
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			answer := httptest.NewRecorder()
			health.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, probe.HTTPGet.Path, nil))
			if answer.Code != http.StatusOK {
				t.Errorf("%s: %s answers %d", component, probe.HTTPGet.Path, answer.Code)
			}
		}
	}
}
