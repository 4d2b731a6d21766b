package function

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// observe is k8s.observe: from now on, and after the run has ended, what it says of the object, or of the agent, is emitted as
// an event about the subject (R46, E58). Registered again for the same subject, it takes the place of what was.
func (d WatchDeps) observe() *Function {
	return &Function{
		spec: Spec{
			Name: "k8s.observe", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Registers a report about an object or an agent that outlives the run: whenever the reported state changes, an event about the\n" +
				"subject is emitted. A new registration for the same subject replaces the old one. Answers `{changed}`: whether the registration\n" +
				"differs from the one before.\n\n" +
				"`argo.health` emits `com.gitlab.cd.service.health_observed` about `{environment_id, service_id}`; `argo.reconciliation` emits\n" +
				"`com.gitlab.cd.application_environment.reconciled` about `{application_environment_id}`; `agent` emits\n" +
				"`com.gitlab.cd.environment.contact_changed` about `{environment_id}`, and an agent without a heartbeat for 20 seconds is offline.\n\n" +
				"Only the run of a rollout, an onboarding or a setup may register one, and only about what it was started for: a rollout about its\n" +
				"application in its environments, a setup about its application in its environment, an onboarding about its environment. The call of\n" +
				"any other run is refused with the code `forbidden`; a report about anything else is refused by the domain service.",
			Arguments: []Field{
				agentField(),
				{
					Name: "report", Doc: "What to report.", Type: Text, Required: true,
					OneOf: []string{agent.ReportHealth, agent.ReportReconciliation, agent.ReportAgent},
				},
				{Name: "namespace", Doc: "The object's namespace; required except for `agent`.", Type: Text},
				{Name: "name", Doc: "The object's name; required except for `agent`.", Type: Text},
				{Name: "expected_revision", Doc: "For `argo.reconciliation`: the commit that should be in effect.", Type: Text},
				{Name: "subject", Doc: "What the event is about: the identifiers that its type requires.", Type: Numbers, Required: true},
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			agentID, _ := whole(call.Args["agent_id"])
			o := agent.StandingReport{
				Organization: call.Organization, Agent: agentID, Report: text(call.Args, "report"), Namespace: text(call.Args, "namespace"),
				Name: text(call.Args, "name"), Expected: text(call.Args, "expected_revision"), Run: call.Workflow, Subject: subject(call),
			}
			if !id.ReservedRun(o.Run) {
				return nil, &history.FunctionError{
					Code: history.CodeForbidden,
					Message: "found a run that was started for nothing that the domain service keeps, expected that of a rollout, " +
						"an onboarding or a setup: no other registers a standing report",
				}
			}
			if err := d.checkObserver(ctx, o); err != nil {
				return nil, err
			}
			changed, err := d.Observers.SaveObserver(ctx, o)
			if err != nil {
				return nil, err
			}
			if changed {
				d.Changed(agentID)
			}
			return map[string]any{"changed": changed}, nil
		},
	}
}

// subjects are the members by which the event of each report names its subject.
func subjects(report string) []string {
	switch report {
	case agent.ReportHealth:
		return []string{"environment_id", "service_id"}
	case agent.ReportReconciliation:
		return []string{"application_environment_id"}
	default:
		return []string{"environment_id"}
	}
}

// checkObserver looks at what the arguments are together.
func (d WatchDeps) checkObserver(ctx context.Context, o agent.StandingReport) error {
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
