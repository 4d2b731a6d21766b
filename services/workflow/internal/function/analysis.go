package function

import "github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"

// analyze is argo.analyze.
func analyze() *Function {
	return changing(onCluster("argo.analyze",
		"Has Argo Rollouts measure: creates an AnalysisRun of `AnalysisTemplate`s, once, however often the call is repeated with the same\n"+
			"`operation`, and answers its state: `{name, namespace, uid, phase, message, ended, terminated, metrics}`. `phase` is Argo's, or `Pending` before it has\n"+
			"one; `ended` is whether it is `Successful`, `Failed`, `Error` or `Inconclusive`; `terminated` is whether it was ended from outside. Each of\n"+
			"`metrics` is `{name, phase, message, value, successful, failed, inconclusive, error, with_data, dry_run}`: how many of its measurements came\n"+
			"to what, and the latest value. `with_data` is how many of the successful ones that Argo keeps have data, which an empty vector and what is\n"+
			"no number are not. Templates that the templates refer to are read as well. It is removed a day after its end. The relay's configuration names the namespaces in which it does that\n"+
			"(`allow_analysis_namespaces`); by default there are none.",
		Field{Name: "namespace", Doc: "The namespace of the AnalysisRun.", Type: Text, Required: true},
		Field{
			Name: "templates", Type: List, Required: true, Doc: "The templates, at most 20.",
			Element: &Field{Type: Object, Required: true, Fields: []Field{
				{Name: "name", Doc: "The name of the template.", Type: Text, Required: true},
				{Name: "cluster_scope", Doc: "Whether it is a `ClusterAnalysisTemplate`.", Type: Flag},
			}},
		},
		Field{Name: "template_namespace", Doc: "The namespace of the templates; by default that of the AnalysisRun.", Type: Text},
		Field{Name: "args", Doc: "The values of the templates' arguments, as texts. Arguments that no template declares are refused.", Type: Texts},
		Field{Name: "name", Doc: "The beginning of the AnalysisRun's name; ten characters follow. `lockstep` by default.", Type: Text},
		Field{Name: "operation", Doc: "An id: all calls with the same id are about one AnalysisRun. By default every call is about its own.", Type: Text},
	), activity.Changes, touchesTask)
}

// endAnalysis is argo.end_analysis.
func endAnalysis() *Function {
	return endsTask("argo.end_analysis", "AnalysisRun",
		"Terminates an AnalysisRun: Argo Rollouts measures no more, and what was measured decides. Answers as `argo.analyze` does, as of before that;\n"+
			"one that does not exist has the `phase` `None`. ")
}
