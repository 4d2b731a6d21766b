package function

import (
	"context"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// WatchDeps are what the Functions about watches need.
type WatchDeps struct {
	Store     agent.WatchStore
	Observers agent.ReportStore
	// Agents says which agents an organization may have looked through.
	Agents agent.Owners
	// Changed is called when an agent's watches have changed.
	Changed func(agent int64)
}

// Watching are k8s.watch, k8s.unwatch and k8s.observe. They are carried out here: the relay is sent the whole set, again and again, and
// not one by one (D20).
func Watching(d WatchDeps) []activity.Function {
	return []activity.Function{d.watch(), d.unwatch(), d.observe()}
}

// watch is k8s.watch: watch, which is the member to filter by, and types, the types of the events that report observations,
// beginning with the present state. An observation has object with the fields asked for, or found false, or error.
func (d WatchDeps) watch() *Function {
	return &Function{
		spec: Spec{
			Name: "k8s.watch", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Watches one object by `name`, or all objects with certain `labels`. Every change of the selected fields arrives as an event,\n" +
				"beginning with the current state. Answers `{watch, types}`: wait for the events with\n" +
				"`wait_for_event(type = w.types, filter = {\"watch\": w.watch})`. The watch ends with the run.",
			Arguments: append([]Field{agentField()}, append(kindFields(),
				Field{Name: "namespace", Doc: "The objects' namespace; empty for a cluster-scoped kind.", Type: Text},
				Field{Name: "name", Doc: "The name of one object; either this or `labels`.", Type: Text},
				Field{Name: "labels", Doc: "A label selector, as `kubectl` takes it; either this or `name`.", Type: Text},
				pathsField("The fields whose changes are reported, as dotted paths."),
				Field{Name: "subject", Doc: "Members that every event of the watch carries, to filter by. `watch` is reserved.", Type: Numbers},
			)...),
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			w, err := d.read(ctx, call)
			if err != nil {
				return nil, err
			}
			if err := d.Store.OpenWatch(ctx, w); err != nil {
				return nil, err
			}
			d.Changed(w.Agent)
			return map[string]any{"watch": w.ID, "types": []string{agent.TypeRolloutStatusChanged, agent.TypeObjectChanged}}, nil
		},
	}
}

// unwatch is k8s.unwatch: closed is false when there was no such watch. A program that ends needs none.
func (d WatchDeps) unwatch() *Function {
	return &Function{
		spec: Spec{
			Name: "k8s.unwatch", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc:       "Ends a watch before its run ends. Answers `{closed}`: whether the watch existed.",
			Arguments: []Field{{Name: "watch", Doc: "The watch, as `k8s.watch` has answered it.", Type: Text, Required: true}},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			agent, err := d.Store.CloseWatch(ctx, execution(call), text(call.Args, "watch"))
			if err != nil {
				return nil, err
			}
			if agent != 0 {
				d.Changed(agent)
			}
			return map[string]any{"closed": agent != 0}, nil
		},
	}
}

// read makes a watch of a call whose arguments have been checked one by one, and looks at what they are together.
func (d WatchDeps) read(ctx context.Context, call activity.Call) (agent.Watch, error) {
	agentID, _ := whole(call.Args["agent_id"])
	w := agent.Watch{ID: call.ID, Execution: execution(call), Agent: agentID, Spec: agent.WatchSpec{
		Kind: text(call.Args, "kind"), APIVersion: text(call.Args, "api_version"), Namespace: text(call.Args, "namespace"),
		Name: text(call.Args, "name"), Labels: text(call.Args, "labels"), Fields: []string{},
	}}
	fields, _ := call.Args["fields"].([]any)
	for _, f := range fields {
		if path, isText := f.(string); isText {
			w.Spec.Fields = append(w.Spec.Fields, path)
		}
	}
	w.Spec.Subject = subject(call)
	var wrong []fault.Field
	problem, err := d.Agents.Problem(ctx, call.Organization, agentID)
	if err != nil {
		return agent.Watch{}, err
	}
	if problem != "" {
		wrong = append(wrong, fault.Field{Name: "agent_id", Problem: problem})
	}
	if _, hidden := w.Spec.Subject["watch"]; hidden {
		wrong = append(wrong, fault.Field{Name: "subject", Problem: `found a member "watch", which is the watch's own`})
	}
	if w.Spec.Kind == "Secret" {
		wrong = append(wrong, fault.Field{Name: "kind", Problem: `found "Secret", whose values must not become part of a workflow's history`})
	}
	if (w.Spec.Name == "") == (w.Spec.Labels == "") {
		wrong = append(wrong, fault.Field{Name: "name", Problem: "expected either a name or labels"})
	}
	if len(w.Spec.Fields) == 0 {
		wrong = append(wrong, fault.Field{Name: "fields", Problem: "found none, expected the paths whose changes matter"})
	}
	if len(wrong) > 0 {
		return agent.Watch{}, fault.InvalidFields(wrong...)
	}
	return w, nil
}

// subject are the numbers that say what a watch or a report is about; nil for none.
func subject(call activity.Call) map[string]int64 {
	members, _ := call.Args["subject"].(map[string]any)
	if len(members) == 0 {
		return nil
	}
	of := make(map[string]int64, len(members))
	for name, value := range members {
		of[name], _ = whole(value)
	}
	return of
}

// execution is the handle of the run that a call belongs to: its id is <execution>/<branch>.<op>.
func execution(call activity.Call) string {
	return call.ID[:max(0, strings.LastIndexByte(call.ID, '/'))]
}
