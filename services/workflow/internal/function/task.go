package function

import (
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// taskFields are the arguments of the Functions that start a task.
func taskFields(argument, kind string) []Field {
	return []Field{
		{Name: "namespace", Doc: "The namespace; the object has none, or this one.", Type: Text, Required: true},
		{
			Name: argument, Type: Free, Required: true,
			Doc: "The " + kind + " as an object, with `apiVersion` and `kind`, and `metadata.name` or `metadata.generateName`.",
		},
		{Name: "operation", Doc: "An id: all calls with the same id are about one " + kind + ". By default every call is about its own.", Type: Text},
		{
			Name: "deadline", Type: Number, Least: 1,
			Doc: "After how many seconds the cluster ends it, also if nothing else does: `activeDeadlineSeconds`, unless the object has a smaller one.",
		},
		{
			Name: "dry_run", Type: Flag,
			Doc: "Have the API server validate it, and create nothing. Answers `{name, namespace, " + argument + "}`. Such a call needs no passage.",
		},
	}
}

// startsTask declares a Function that creates an object that runs to its end.
func startsTask(name, argument, kind, more string) *Function {
	f := changing(onCluster(name,
		"Creates "+kind+" that runs to its end, once, however often the call is repeated, and answers its state: `{name, namespace, uid, phase,\n"+
			"message, ended}`. "+more+" Without\n"+
			"`metadata.name`, its name is `metadata.generateName` and ten characters that are the same for every call of the same `operation`. Its labels\n"+
			"are the author's and `app.kubernetes.io/managed-by`, `lockstep.dev/organization` and `lockstep.dev/operation`. It is removed a day after its\n"+
			"end unless it says otherwise. An object of the same name that was not created by the same operation is the error `conflict`. The relay's\n"+
			"configuration names the namespaces in which it does that; by default there are none.",
		taskFields(argument, kind[len("a "):])...), activity.Changes, touchesTask)
	f.spec.EffectOf = func(args map[string]any) activity.Effect {
		if dry, _ := args["dry_run"].(bool); dry {
			return activity.Reads
		}
		return activity.Changes
	}
	return f
}

// touchesTask is what a call about a task changes. The name of one that is to be created may not be known yet.
func touchesTask(args map[string]any) []activity.Place {
	agent, _ := whole(args["agent_id"])
	name := text(args, "name")
	for _, argument := range []string{"workflow", "job"} {
		if given := text(object(object(args, argument), "metadata"), "name"); given != "" {
			name = given
		}
	}
	if text(args, "namespace") == "" {
		return nil
	}
	return []activity.Place{{Agent: agent, Namespace: text(args, "namespace"), Name: name}}
}

// namedTask are the arguments of the Functions on an existing task.
func namedTask(kind string) []Field {
	return []Field{
		{Name: "namespace", Doc: "The namespace of the " + kind + ".", Type: Text, Required: true},
		{Name: "name", Doc: "The name of the " + kind + ".", Type: Text, Required: true},
	}
}

// endsTask declares a Function that stops a task. After the end of its rollout, a run may still stop what it has started itself.
func endsTask(name, kind, doc string) *Function {
	f := changing(onCluster(name, doc+ownTask, append(namedTask(kind), Field{
		Name: "operation", Type: Text,
		Doc: "The `operation` that has created it; one of another operation is the error `conflict`. When its rollout has ended, as after a " +
			"cancellation, a run may only stop what was created by an operation whose id begins with the id of the run and a dot (`rollout-7.migrate`).",
	})...), activity.TakesBack, touchesTask)
	f.spec.Ends = func(args map[string]any) string { return text(args, "operation") }
	return f
}

const ownTask = "Only one that Lockstep has created for the organization; any other is the error `forbidden`."

// submitWorkflow is workflow.submit.
func submitWorkflow() *Function {
	return startsTask("workflow.submit", "workflow", "a Workflow of Argo Workflows",
		"`phase` is\nArgo's, or `Pending` before it has one; `ended` is whether it is `Succeeded`, `Failed` or `Error`.")
}

// stopWorkflow is workflow.stop.
func stopWorkflow() *Function {
	return endsTask("workflow.stop", "Workflow",
		"Stops a Workflow: its running steps end, its exit handlers still run. Answers `{name, namespace, uid, phase, message, ended}` as of before\n"+
			"that; a Workflow that has ended stays as it is, and one that does not exist has the `phase` `None`. ")
}

// terminateWorkflow is workflow.terminate.
func terminateWorkflow() *Function {
	return endsTask("workflow.terminate", "Workflow",
		"Stops a Workflow as `workflow.stop` does, but without its exit handlers. It may follow `workflow.stop`. ")
}

// logFields are the arguments of the Functions on logs.
func logFields(kind, container string) []Field {
	return append(namedTask(kind),
		Field{Name: "container", Doc: "The container to read; by default " + container + ".", Type: Text},
		Field{Name: "lines", Doc: "How many lines of each pod, at most 1000; 50 by default.", Type: Number, Least: 1})
}

const logsAnswer = "Answers `{logs, truncated}`: `pod`, `container` and `text` of up to ten pods, 64 KiB together. What looks like a secret is replaced by\n" +
	"`[redacted]`, but that is a guess: programs must not print secrets. "

// workflowLogs is workflow.logs.
func workflowLogs() *Function {
	return onCluster("workflow.logs", "Reads the end of the logs of a Workflow's pods. "+logsAnswer+ownTask,
		logFields("Workflow", "`main`")...)
}

// runJob is job.run.
func runJob() *Function {
	return startsTask("job.run", "job", "a Kubernetes Job",
		"`phase` is\n`Pending`, `Running`, `Succeeded` or `Failed`; `ended` is whether it is one of the last two.")
}

// stopJob is job.stop.
func stopJob() *Function {
	return endsTask("job.stop", "Job",
		"Stops a Job: its deadline passes, so that Kubernetes ends its pods and the Job fails with the message `stopped`. Answers as `workflow.stop`\n"+
			"does. ")
}

// jobLogs is job.logs.
func jobLogs() *Function {
	return onCluster("job.logs", "Reads the end of the logs of a Job's pods. "+logsAnswer+ownTask, logFields("Job", "the pod's default or first one")...)
}
