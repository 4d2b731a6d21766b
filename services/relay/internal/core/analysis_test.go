package core

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// template is an analysis template of the shelf.
func template(kind, namespace, name, spec string) (string, Object) {
	var s map[string]any
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		panic(err)
	}
	ref := Ref{Kind: Kind{Kind: kind}, Namespace: namespace, Name: name}
	return ref.String(), Object{"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": s}
}

// measuring is a shelf with templates of namespace shop and of the cluster.
func measuring() *shelf {
	s := &shelf{objects: map[string]Object{}}
	for _, each := range [][4]string{
		{"AnalysisTemplate", "shop", "errors", `{"args":[{"name":"service"},{"name":"limit","value":"5"}],"metrics":[{"name":"errors"}],
			"dryRun":[{"metricName":"extra"}],"templates":[{"templateName":"latency","clusterScope":true}]}`},
		{"ClusterAnalysisTemplate", "", "latency", `{"args":[{"name":"token","valueFrom":{"secretKeyRef":{"name":"t","key":"k"}}}],
			"metrics":[{"name":"latency"},{"name":"extra"}]}`},
		{"AnalysisTemplate", "shop", "again", `{"metrics":[{"name":"errors"}]}`},
		{"AnalysisTemplate", "shop", "empty", `{"metrics":[]}`},
	} {
		key, o := template(each[0], each[1], each[2], each[3])
		s.objects[key] = o
	}
	return s
}

func analyses() Limits {
	return Limits{AnalysisNamespaces: []string{"checks"}, DestinationNamespaces: []string{"*", "!kube-*"}}
}

const analysis = `{"namespace":"checks","template_namespace":"shop","name":"check-9-errors","operation":"check-9.1",
	"templates":[{"name":"errors"}],"args":{"service":"api"}}`

// D48: an AnalysisRun is made of templates and of those that they refer to, once; what came of it is answered to each repeat of the call,
// and nothing is read for that any more.
func TestAnAnalysisIsMadeOfItsTemplates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := measuring()
		first := s.run(t, analyses(), FunctionAnalyze, analysis)
		if first.Err != nil {
			t.Fatal(first.Err)
		}
		name, _ := first.Value["name"].(string)
		run := s.objects["AnalysisRun checks/"+name]
		want := map[string]any{
			"metrics": []any{map[string]any{"name": "errors"}, map[string]any{"name": "latency"}, map[string]any{"name": "extra"}},
			"dryRun":  []any{map[string]any{"metricName": "extra"}},
			"args": []any{
				map[string]any{"name": "limit", "value": "5"},
				map[string]any{"name": "service", "value": "api"},
				map[string]any{"name": "token", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "t", "key": "k"}}},
			},
			"ttlStrategy": map[string]any{"secondsAfterCompletion": int64(24 * 3600)},
		}
		if diff := cmp.Diff(want, run["spec"]); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
		if !strings.HasPrefix(name, "check-9-errors-") || run.object("metadata", "labels")[labelOrganization] != "7" {
			t.Errorf("metadata %v", run["metadata"])
		}
		run["status"] = map[string]any{"phase": "Inconclusive", "message": "unclear", "metricResults": []any{map[string]any{
			"name": "errors", "phase": "Inconclusive", "successful": int64(2), "inconclusive": int64(1), "measurements": []any{
				map[string]any{"phase": "Successful", "value": "[]"},
				map[string]any{"phase": "Successful", "value": "[0.01]"},
				map[string]any{"phase": "Inconclusive", "value": "[0.2]", "message": "between"},
			},
		}}}
		clear(s.objects)
		s.objects["AnalysisRun checks/"+name] = run
		again := s.run(t, analyses(), FunctionAnalyze, analysis)
		metric := func(name, phase, message, value string, successful, inconclusive, with int64, dry bool) any {
			return map[string]any{
				"name": name, "phase": phase, "message": message, "value": value, "successful": successful, "failed": int64(0),
				"inconclusive": inconclusive, "error": int64(0), "with_data": with, "dry_run": dry,
			}
		}
		expected := map[string]any{
			"name": name, "namespace": "checks", "uid": "", "phase": "Inconclusive", "message": "unclear", "ended": true, "terminated": false,
			"metrics": []any{
				metric("errors", "Inconclusive", "between", "[0.2]", 2, 1, 1, false), metric("latency", "Pending", "", "", 0, 0, 0, false),
				metric("extra", "Pending", "", "", 0, 0, 0, true),
			},
		}
		if diff := cmp.Diff(expected, again.Value); diff != "" || s.writes != 1 {
			t.Errorf("%v, %d writes (-want +got):\n%s", again.Err, s.writes, diff)
		}
	})
}

// Every mistake is named, and nothing is created.
func TestAnAnalysisThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct{ args, want string }{
		"no template":       {`{"namespace":"checks","templates":[]}`, "templates: expected a list of 1 to 20"},
		"unknown template":  {`{"namespace":"checks","template_namespace":"shop","templates":[{"name":"x"}]}`, "shop/x does not exist"},
		"missing argument":  {strings.Replace(analysis, `{"service":"api"}`, `{}`, 1), "args.service: missing"},
		"unknown argument":  {strings.Replace(analysis, `{"service":"api"}`, `{"service":"api","x":"y"}`, 1), "expected one of limit, service, token"},
		"argument no text":  {strings.Replace(analysis, `"api"`, `7`, 1), "args.service: found 7, expected a string"},
		"a metric twice":    {strings.Replace(analysis, `[{"name":"errors"}]`, `[{"name":"errors"},{"name":"again"}]`, 1), `metrics named "errors"`},
		"no metrics":        {`{"namespace":"checks","template_namespace":"shop","templates":[{"name":"empty"}]}`, "found 0 metrics"},
		"forbidden place":   {strings.Replace(analysis, `"checks"`, `"shop"`, 1), "this relay's allow_analysis_namespaces allows"},
		"forbidden library": {strings.Replace(analysis, `"shop"`, `"kube-system"`, 1), "allow_destination_namespaces"},
		"misspelt":          {strings.Replace(analysis, `"args"`, `"arg"`, 1), "arg: unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := measuring()
				answer := s.run(t, analyses(), FunctionAnalyze, one.args)
				if answer.Err == nil || !strings.Contains(answer.Err.Message, one.want) || s.writes != 0 {
					t.Errorf("found %v after %d writes, expected %q", answer.Err, s.writes, one.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		answer := measuring().run(t, Limits{}, FunctionAnalyze, analysis)
		if answer.Err == nil || !strings.Contains(answer.Err.Message, "this relay runs no AnalysisRuns; its configuration names") {
			t.Errorf("found %v", answer.Err)
		}
	})
}

// Only an analysis of ours is ended, and one that has ended stays as it is.
func TestAnAnalysisIsEnded(t *testing.T) {
	t.Parallel()
	stop := analysisTask()
	labels := map[string]any{labelManagedBy: managedBy, labelOrganization: "7"}
	ours := Object{"metadata": map[string]any{"resourceVersion": "3", "labels": labels}}
	d, err := stop.nextEnd(terminated, Ref{}, ours, "7")
	if err != nil || d.Action != Patch || !d.Body.flag("spec", "terminate") {
		t.Errorf("found %+v, %v", d, err)
	}
	ours["status"] = map[string]any{"phase": "Successful"}
	if d, err = stop.nextEnd(terminated, Ref{}, ours, "7"); err != nil || d.Action != Done {
		t.Errorf("found %+v, %v", d, err)
	}
	if _, err = stop.nextEnd(terminated, Ref{}, ours, "8"); err == nil {
		t.Error("another organization has ended it")
	}
}

// What a provider answers that knows nothing; the providers without values, as job, have an empty text.
func TestWhatHasNoData(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"": false, "[]": true, "[0]": false, "0": false, "NaN": true, "[NaN]": true, "[NaN,1]": false, "null": true, "{}": true, "+Inf": true,
		`"text"`: false, "not json": false, "[null]": true, `{"a":1}`: false, "false": false,
	} {
		if got := hasNoData(value); got != want {
			t.Errorf("%q: found %v", value, got)
		}
	}
}
