package invariant_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-cd/lockstep/tools/charts/invariant"
	"github.com/lockstep-cd/lockstep/tools/charts/render"
)

// chart is the chart that the tests break.
const chart = "../../../charts/lockstep"

const values = `
credentials: {existingSecret: lockstep}
nats: {url: "tls://nats:4222"}
domain: {ingress: {enabled: true, host: a.example.com}, autoscaling: {enabled: true}}
metrics: {serviceMonitor: {enabled: true}}
workflow: {kubernetesSecrets: [{namespace: secrets, names: [git]}]}
`

// TestEveryInvariantBites breaks one thing at a time in the rendered chart, and expects exactly the sentence about it.
func TestEveryInvariantBites(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, kind, object string
		old, new           string
		want               string
	}{
		{"root", "Deployment", "r-domain", "runAsNonRoot: true", "runAsNonRoot: false", "may run as root"},
		{"seccomp", "Deployment", "r-domain", "{type: RuntimeDefault}", "{type: Unconfined}", "seccomp"},
		{"escalation", "StatefulSet", "r-workflow", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "not restricted"},
		{"capabilities", "Pod", "r-test", "capabilities: {drop: [ALL]}", "capabilities: {drop: [NET_RAW]}", "not restricted"},
		{"root file system", "Deployment", "r-registry", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "root file system"},
		{"path of the node", "Deployment", "r-registry", "emptyDir: {}", "hostPath: {path: /}", "path of the node"},
		{
			"network of the node", "Deployment", "r-registry", "enableServiceLinks: false", "enableServiceLinks: false\n      hostNetwork: true",
			"namespace of the node",
		},
		{
			"token of the account", "Deployment", "r-registry", "automountServiceAccountToken: false", "automountServiceAccountToken: true",
			"automountServiceAccountToken",
		},
		{
			"an account's token is missing", "StatefulSet", "r-workflow", "automountServiceAccountToken: true",
			"automountServiceAccountToken: false", "automountServiceAccountToken",
		},
		{"all Secrets", "Role", "n-r-workflow-secrets", "resourceNames:\n      - git", "resourceNames: []", "expected get, and names"},
		{"Secrets to list", "Role", "n-r-workflow-secrets", "verbs: [get]", "verbs: [get, list]", "expected get, and names"},
		{"everything", "Role", "n-r-workflow-secrets", "verbs: [get]", "verbs: ['*']", "has a wildcard"},
		{"service links", "Deployment", "r-registry", "enableServiceLinks: false", "enableServiceLinks: true", "enableServiceLinks"},
		{"limits", "Deployment", "r-registry", "memory: 512Mi", "hugepages-2Mi: 512Mi", "limit of memory"},
		{"image", "Deployment", "r-registry", "/registry:0.1.0", "/registry:latest", "not pinned"},
		{
			"literal secret", "Deployment", "r-domain", "- name: LOCKSTEP_DOMAIN_WORKFLOW_TOKEN",
			"- {name: A_TOKEN, value: hunter2}\n            - name: LOCKSTEP_DOMAIN_WORKFLOW_TOKEN", "A_TOKEN is written out",
		},
		{"password in a URL", "ConfigMap", "r-domain", "tls://nats:4222", "tls://me:hunter2@nats:4222", "has a password in it"},
		{"probe", "Deployment", "r-domain", "          readinessProbe:\n            httpGet: {path: /readyz, port: health}\n            periodSeconds: 5\n            timeoutSeconds: 3\n", "", "no readiness probe"},
		{"port of a probe", "Deployment", "r-domain", "{path: /readyz, port: health}", "{path: /readyz, port: other}", "asks port other"},
		{"grace", "Deployment", "r-domain", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 20", "is killed before"},
		{"label", "Service", "r-domain", "helm.sh/chart", "helm.sh/other", "no label helm.sh/chart"},
		{
			"selector of a service", "Service", "r-domain", "    app.kubernetes.io/component: domain\n  ports",
			"    app.kubernetes.io/component: other\n  ports", "selects the pods of 0 workloads",
		},
		{"port of a service", "Service", "r-workflow", "targetPort: grpc", "targetPort: other", "does not have"},
		{
			"budget", "PodDisruptionBudget", "r-workflow", "app.kubernetes.io/component: workflow",
			"app.kubernetes.io/component: other", "selects no pod",
		},
		{"autoscaler", "HorizontalPodAutoscaler", "r-domain", "kind: Deployment", "kind: StatefulSet", "there is no StatefulSet r-domain"},
		{
			"scaled and counted", "Deployment", "r-domain", "spec:\n  revisionHistoryLimit", "spec:\n  replicas: 2\n  revisionHistoryLimit",
			"would undo the scaling",
		},
		{"ingress", "Ingress", "r-domain", "port: {name: http}", "port: {name: grpc}", "no Service r-domain with a port grpc"},
		{"monitor", "ServiceMonitor", "r-domain", "port: health", "port: other", "finds 0 Services"},
		{"account", "Deployment", "r-domain", "serviceAccountName: r-domain", "serviceAccountName: other", "no ServiceAccount other"},
		{"config map", "Deployment", "r-domain", "configMap: {name: r-domain}", "configMap: {name: other}", "no ConfigMap other"},
		{
			"closed port", "NetworkPolicy", "r-workflow", "port: 8083}]\n      from", "port: 8084}]\n      from",
			"no policy lets anybody reach port 8083",
		},
		{"edge that is refused", "NetworkPolicy", "r-workflow", "component: domain", "component: registry", "which refuses it"},
		{"traffic to nobody", "NetworkPolicy", "r-domain", "component: workflow", "component: other", "not there"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			problems := invariant.Check(spoiled(t, tt.kind, tt.object, tt.old, tt.new))
			if !strings.Contains(strings.Join(problems, "\n"), tt.want) {
				t.Errorf("got %q, want something with %q", problems, tt.want)
			}
		})
	}
}

func spoiled(t *testing.T, kind, name, old, replacement string) []render.Object {
	t.Helper()
	var v map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &v); err != nil {
		t.Fatal(err)
	}
	objects, _, err := render.Objects(t.Context(), render.Release{
		Chart: chart, Name: "r", Namespace: "n", Values: v, APIs: []string{"monitoring.coreos.com/v1/ServiceMonitor"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if problems := invariant.Check(objects); len(problems) > 0 {
		t.Fatalf("before anything is spoiled: %q", problems)
	}
	for i, o := range objects {
		text := strings.ReplaceAll(o.Text, old, replacement)
		if o.Kind != kind || o.Name != name || text == o.Text {
			continue
		}
		again, err := render.Decode(o.Source, text)
		if err != nil {
			t.Fatal(err)
		}
		objects[i] = again[0]
		return objects
	}
	t.Fatalf("found nothing to spoil: no %s %s with %q", kind, name, old)
	return nil
}
