package core

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The phases of an AnalysisRun that a task of another kind does not have.
const (
	PhaseSuccessful   = "Successful"
	PhaseInconclusive = "Inconclusive"
)

// The kinds of Argo Rollouts' templates of analyses.
//
//nolint:gochecknoglobals // constants in all but name
var (
	analysisTemplateKind        = Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "AnalysisTemplate"}
	clusterAnalysisTemplateKind = Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "ClusterAnalysisTemplate"}
)

// The bounds of an analysis.
const (
	maxTemplates = 20
	maxMetrics   = 50
	// maxMeasured is how much of a measured value an answer has, in bytes.
	maxMeasured = 200
)

// analysisTask returns the kind of Argo Rollouts' AnalysisRuns (D48). Argo Rollouts takes the measurements, by any of its metric providers.
func analysisTask() taskKind {
	return taskKind{
		kind: Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "AnalysisRun"}, argument: "templates", setting: "allow_analysis_namespaces",
		state: func(o Object) (string, string) {
			phase := o.text("status", "phase")
			if phase == "" {
				phase = PhasePending
			}
			return phase, o.text("status", "message")
		},
		stop: func(o Object, _ string) Object {
			if o.flag("spec", "terminate") {
				return nil
			}
			return Object{"spec": map[string]any{"terminate": true}}
		},
		detail: measured,
	}
}

// analysisRequest holds the arguments of argo.analyze.
type analysisRequest struct {
	TaskRequest

	// templates are what the analysis is made of, in their order.
	templates []Ref
	// args are the values of the templates' arguments.
	args map[string]string
}

// parseAnalysis parses the arguments of argo.analyze.
func parseAnalysis(call Call) (analysisRequest, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return analysisRequest{}, err
	}
	a.known["agent_id"] = true
	namespace, operation, prefix := a.name("namespace", true), a.text("operation", false), a.text("name", false)
	if operation == "" {
		operation = call.ID
	}
	if prefix == "" {
		prefix = "lockstep"
	}
	if !generated.MatchString(prefix) {
		a.problem("name", "found %q, expected the beginning of a name (lower-case letters, digits, '-')", prefix)
	}
	from := a.name("template_namespace", false)
	if from == "" {
		from = namespace
	}
	want := analysisRequest{templates: a.templates(from), args: a.textsByName("args")}
	a.rest()
	if err := a.err(); err != nil {
		return analysisRequest{}, err
	}
	const suffix = 10
	want.Operation = digestOf(call.Organization, operation)
	name := strings.TrimRight(prefix[:min(len(prefix), maxTaskName-suffix-1)], "-") + "-" + want.Operation[:suffix]
	want.Ref = Ref{Kind: analysisTask().kind, Namespace: namespace, Name: name}
	return want, nil
}

// templates reads the templates of an analysis.
func (a args) templates(namespace string) []Ref {
	a.known["templates"] = true
	items, isList := a.values["templates"].([]any)
	if !isList || len(items) == 0 || len(items) > maxTemplates {
		a.problem("templates", "expected a list of 1 to %d objects with the name of a template", maxTemplates)
		return nil
	}
	var all []Ref
	for i, item := range items {
		m, _ := item.(map[string]any)
		one := args{values: m, known: map[string]bool{}, prefix: fmt.Sprintf("%stemplates[%d].", a.prefix, i), wrong: a.wrong}
		ref := Ref{Kind: analysisTemplateKind, Namespace: namespace, Name: one.name("name", true)}
		if one.flag("cluster_scope") {
			ref.Kind, ref.Namespace = clusterAnalysisTemplateKind, ""
		}
		one.rest()
		all = append(all, ref)
	}
	return all
}

// textsByName reads an optional object of texts.
func (a args) textsByName(name string) map[string]string {
	given, _ := a.object(name)
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(given.values)) {
		s, isText := given.values[key].(string)
		if !isText {
			given.problem(key, "found %s, expected a string", describe(given.values[key]))
		}
		all[key] = s
	}
	return all
}

// analyze creates an AnalysisRun of templates, or answers the state of the one that an earlier attempt has created.
func (r *Runner) analyze(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseAnalysis(call)
	if err != nil {
		return nil, err
	}
	k := analysisTask()
	if err := r.limits.checkTask(k, want.Ref); err != nil {
		return nil, err
	}
	// Templates are in any namespace that may be deployed to, so that those of an application can be used.
	for _, t := range want.templates {
		if t.Namespace != "" && t.Namespace != want.Ref.Namespace && !allowed(r.limits.DestinationNamespaces, t.Namespace) {
			return nil, r.limits.refusal(t.String()+": namespace", t.Namespace, "allow_destination_namespaces", r.limits.DestinationNamespaces)
		}
	}
	value, err := r.drive(ctx, want.Ref, func(observed Object) (Decision, error) {
		if observed == nil && want.Object == nil {
			spec, err := r.resolveAnalysis(ctx, want)
			if err != nil {
				return Decision{}, err
			}
			want.Object = k.labelled(Object{"apiVersion": k.kind.APIVersion, "kind": k.kind.Kind, "metadata": map[string]any{}},
				want.TaskRequest, call.Organization)
			want.Object["spec"] = map[string]any(spec)
		}
		return k.nextStart(want.TaskRequest, observed, call.Organization)
	})
	if fault.Is(err, fault.NotFound) { // the answer to a create
		return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf(
			"%s: namespace %s does not exist, expected it before", want.Ref, want.Ref.Namespace,
		)}
	}
	return value, err
}

// resolveAnalysis reads the templates of an analysis, and those that they refer to, and returns the spec of the AnalysisRun, as Argo
// Rollouts makes it for its own analyses.
func (r *Runner) resolveAnalysis(ctx context.Context, want analysisRequest) (Object, error) {
	var found []Object
	left := slices.Clone(want.templates)
	for seen := map[Ref]bool{}; len(left) > 0; left = left[1:] {
		ref := left[0]
		if seen[ref] {
			continue
		}
		if seen[ref] = true; len(seen) > maxTemplates {
			return nil, fault.InvalidFields(fault.Field{Name: "templates", Problem: fmt.Sprintf(
				"found more than %d with those that they refer to, expected at most that many", maxTemplates)})
		}
		o, err := r.cluster.Get(ctx, ref)
		if fault.Is(err, fault.NotFound) {
			return nil, &Error{Code: CodeNotFound, Message: ref.String() + " does not exist"}
		}
		if err != nil {
			return nil, err
		}
		found = append(found, o)
		for _, each := range o.list("spec", "templates") {
			m, _ := each.(map[string]any)
			more := Ref{Kind: analysisTemplateKind, Namespace: ref.Namespace, Name: Object(m).text("templateName")}
			// A ClusterAnalysisTemplate refers to others of its kind only.
			if Object(m).flag("clusterScope") || ref.Namespace == "" {
				more.Kind, more.Namespace = clusterAnalysisTemplateKind, ""
			}
			left = append(left, more)
		}
	}
	return analysisSpec(found, want.args)
}

// analysisSpec is the spec of an AnalysisRun of templates and the values of their arguments.
func analysisSpec(templates []Object, values map[string]string) (Object, error) {
	spec := Object{"ttlStrategy": map[string]any{"secondsAfterCompletion": int64(keptAfterEnd)}}
	var problems []fault.Field
	for _, list := range []struct{ name, by string }{{"metrics", "name"}, {"dryRun", "metricName"}, {"measurementRetention", "metricName"}} {
		var all []any
		seen := map[string]bool{}
		for _, t := range templates {
			for _, each := range t.list("spec", list.name) {
				m, _ := each.(map[string]any)
				name := Object(m).text(list.by)
				if seen[name] {
					problems = append(problems, fault.Field{
						Name: "templates", Problem: fmt.Sprintf("found two %s named %q, expected one", list.name, name),
					})
				}
				seen[name] = true
				all = append(all, each)
			}
		}
		if len(all) > 0 {
			spec[list.name] = all
		}
	}
	if n := len(spec.list("metrics")); n == 0 || n > maxMetrics {
		problems = append(problems, fault.Field{Name: "templates", Problem: fmt.Sprintf("found %d metrics, expected 1 to %d", n, maxMetrics)})
	}
	args, wrong := analysisArgs(templates, values)
	if len(args) > 0 {
		spec["args"] = args
	}
	if problems = append(problems, wrong...); len(problems) > 0 {
		return nil, fault.InvalidFields(problems...)
	}
	return spec, nil
}

// analysisArgs are the arguments of an AnalysisRun: those that templates declare, with the given values before the templates' own.
func analysisArgs(templates []Object, values map[string]string) (args []any, problems []fault.Field) {
	declared := map[string]Object{}
	for _, t := range templates {
		for _, each := range t.list("spec", "args") {
			m, _ := each.(map[string]any)
			one := Object(m)
			name := one.text("name")
			before, twice := declared[name]
			switch {
			case !twice || before["value"] == nil && before["valueFrom"] == nil:
				declared[name] = one
			case one["value"] != nil && before["value"] != one["value"] && values[name] == "":
				problems = append(problems, fault.Field{
					Name: "args." + name, Problem: "found two templates with different values for it, expected a value here",
				})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, known := declared[name]; !known {
			problems = append(problems, fault.Field{
				Name: "args." + name, Problem: "no template declares it, expected one of " + strings.Join(slices.Sorted(maps.Keys(declared)), ", "),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		one := map[string]any{"name": name}
		value, given := values[name]
		switch {
		case given:
			one["value"] = value
		case declared[name]["value"] != nil || declared[name]["valueFrom"] != nil:
			maps.Copy(one, declared[name])
		default:
			problems = append(problems, fault.Field{Name: "args." + name, Problem: "missing, and its template has no value for it"})
		}
		args = append(args, one)
	}
	return args, problems
}

// measured is what an answer has of an analysis beside its state: what came of each metric, and whether it was ended from outside.
func measured(o Object) map[string]any {
	results := map[string]Object{}
	for _, each := range o.list("status", "metricResults") {
		m, _ := each.(map[string]any)
		results[Object(m).text("name")] = m
	}
	dry := map[string]bool{}
	for _, each := range o.list("spec", "dryRun") {
		m, _ := each.(map[string]any)
		dry[Object(m).text("metricName")] = true
	}
	metrics := []any{}
	for _, each := range o.list("spec", "metrics") {
		m, _ := each.(map[string]any)
		name := Object(m).text("name")
		one := measuredMetric(name, results[name])
		one["dry_run"] = dry[name] || dry[".*"] || results[name].flag("dryRun")
		metrics = append(metrics, one)
	}
	return map[string]any{"metrics": metrics, "terminated": o.flag("spec", "terminate")}
}

// measuredMetric is what came of one metric; a result that does not exist yet is nil.
func measuredMetric(name string, result Object) map[string]any {
	one := map[string]any{"name": name, "phase": PhasePending, "message": "", "value": "", "with_data": int64(0)}
	if phase := result.text("phase"); phase != "" {
		one["phase"] = phase
	}
	for _, count := range []string{"successful", "failed", "inconclusive", "error"} {
		n, _ := result.number(count)
		one[count] = n
	}
	message := result.text("message")
	with := int64(0)
	for _, each := range result.list("measurements") {
		m, _ := each.(map[string]any)
		measurement := Object(m)
		value := measurement.text("value")
		if measurement.text("phase") == PhaseSuccessful && !hasNoData(value) {
			with++
		}
		one["value"] = strings.ToValidUTF8(value[:min(len(value), maxMeasured)], "")
		if text := measurement.text("message"); text != "" && message == "" {
			message = text
		}
	}
	one["message"], one["with_data"] = shortened(message), with
	return one
}

// hasNoData reports whether a measured value is the answer of a provider that knows nothing: an empty vector, or no number. A template
// whose conditions accept that would pass. Providers without values, such as job, have an empty text.
func hasNoData(value string) bool {
	if value == "" {
		return false
	}
	switch strings.ToLower(value) {
	case "nan", "+inf", "-inf", "<nil>":
		return true
	}
	var v any
	if json.Unmarshal([]byte(strings.ReplaceAll(value, "NaN", "null")), &v) != nil {
		return false
	}
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(each any) bool { return each != nil })
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}
