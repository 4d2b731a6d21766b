package function

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// observe is k8s.observe: from now on, and after the run has ended, what it says of the object, or of the agent, is emitted as
// an event about the subject (R46, E58). Registered again for the same subject, it takes the place of what was.
func (d WatchDeps) observe() *Function {
	return &Function{
		spec: Spec{
			Name: "k8s.observe", Location: core.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Arguments: []Field{
				{Name: "agent_id", Type: Number, Required: true, Least: 1},
				{Name: "report", Type: Text, Required: true, OneOf: []string{core.ReportHealth, core.ReportReconciliation, core.ReportAgent}},
				{Name: "namespace", Type: Text},
				{Name: "name", Type: Text},
				{Name: "expected_revision", Type: Text},
				{Name: "subject", Type: Numbers, Required: true},
			},
		},
		do: func(ctx context.Context, call core.Call) (any, error) {
			agent, _ := whole(call.Args["agent_id"])
			o := core.Observer{
				Organization: call.Organization, Agent: agent, Report: text(call.Args, "report"), Namespace: text(call.Args, "namespace"),
				Name: text(call.Args, "name"), Expected: text(call.Args, "expected_revision"), Subject: subject(call),
			}
			if err := d.checkObserver(ctx, o); err != nil {
				return nil, err
			}
			changed, err := d.Observers.SaveObserver(ctx, o)
			if err != nil {
				return nil, err
			}
			if changed {
				d.Changed(agent)
			}
			return map[string]any{"changed": changed}, nil
		},
	}
}

// subjects are the members by which the event of each report names its subject.
func subjects(report string) []string {
	switch report {
	case core.ReportHealth:
		return []string{"environment_id", "service_id"}
	case core.ReportReconciliation:
		return []string{"application_environment_id"}
	default:
		return []string{"environment_id"}
	}
}

// checkObserver looks at what the arguments are together.
func (d WatchDeps) checkObserver(ctx context.Context, o core.Observer) error {
	var wrong []fault.Field
	problem, err := d.Agents.Problem(ctx, o.Organization, o.Agent)
	if err != nil {
		return err
	}
	if problem != "" {
		wrong = append(wrong, fault.Field{Name: "agent_id", Problem: problem})
	}
	if _, followed := o.Watch(); followed && (o.Name == "" || o.Namespace == "") {
		wrong = append(wrong, fault.Field{Name: "name", Problem: "expected name and namespace of the object"})
	}
	expected := subjects(o.Report)
	complete := len(o.Subject) == len(expected)
	for _, name := range expected {
		complete = complete && o.Subject[name] > 0
	}
	if !complete {
		wrong = append(wrong, fault.Field{Name: "subject", Problem: fmt.Sprintf("found %v, expected %v", o.Subject, expected)})
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}
