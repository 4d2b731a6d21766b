package bundle

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Flows is setup.Flows over pkg/flow.
type Flows struct{}

var _ setup.Flows = Flows{}

// Read implements setup.Flows.
func (Flows) Read(definition json.RawMessage) (core.Flow, error) {
	def, err := flow.Parse(definition)
	if err != nil {
		return core.Flow{}, err
	}
	f := understand(def)
	f.Rules = planner.Rules{
		Pipeline: def.CommitMatcher.Pipeline, Quick: def.CommitMatcher.QuickSync, Always: def.AlwaysUsePipeline, Compare: def.CompareManifests,
	}
	inputs, err := def.ReadInputs()
	if err != nil {
		return core.Flow{}, fmt.Errorf("read the inputs of a pipeline: %w", err)
	}
	f.Inputs, f.KeepInputs = inputs.Resolve, inputs.Keep
	f.Unweighted = unweighted
	if def.Skips() {
		f.Skip = skip
	}
	f.Keep = func(kept []bool) (json.RawMessage, error) { return keep(definition, def, kept) }
	f.Check = func(known core.KnownToFlow) error { return check(def, known) }
	return f, nil
}

// ReadChecks implements setup.Flows.
func (Flows) ReadChecks(own json.RawMessage) (core.CheckSet, error) {
	def, err := flow.ParseChecks(own)
	if err != nil {
		return core.CheckSet{}, err
	}
	return core.CheckSet{Active: checks(def.Active, nil), Proposed: checks(def.Proposed, nil)}, nil
}

// CheckChecks implements setup.Flows.
func (Flows) CheckChecks(own json.RawMessage, kinds setup.CheckKinds) error {
	def, err := flow.ParseChecks(own)
	if err != nil {
		return err
	}
	return flow.CheckChecks(def, flow.Known{ValidateCheck: kinds.ValidateCheck})
}

// ChecksSchema implements setup.Flows.
func (Flows) ChecksSchema(kinds []core.InstalledCheckKind) (json.RawMessage, error) {
	return flow.ChecksSchema(offered(kinds))
}

// DefinitionSchema implements setup.Flows.
func (Flows) DefinitionSchema(kinds []core.InstalledCheckKind) (json.RawMessage, error) {
	return flow.DefinitionSchema(offered(kinds))
}

// offered are the check kinds that forms offer.
func offered(kinds []core.InstalledCheckKind) []flow.Kind {
	all := make([]flow.Kind, len(kinds))
	for i, k := range kinds {
		all[i] = flow.Kind{Name: k.Ref, Schema: k.Schema}
		for _, target := range k.Targets {
			all[i].Targets = append(all[i].Targets, string(target))
		}
	}
	return all
}

// check is core.Flow.Check.
func check(def flow.Definition, known core.KnownToFlow) error {
	against := flow.Known{
		Stored: known.Stored, Steps: known.Steps, StepsIn: known.StepsIn, Environments: known.Environments, ValidateConfig: known.ValidateConfig,
		ValidateCheck: known.ValidateCheck,
	}
	if known.CheckRules != nil {
		against.CheckRules = func(r flow.Rules) []fault.Field { return known.CheckRules(*approval(&flow.Approval{Rules: r})) }
	}
	return flow.Check(def, against)
}

// understand keeps what the domain has to know of a pipeline; the deploy program walks the definition itself.
func understand(def flow.Definition) core.Flow {
	f := core.Flow{Runbook: def.Runbook(), Deadline: deadline(def.Deadline), RollbackDeadline: deadline(def.RollbackDeadline)}
	f.Work, f.WorkGiven = flow.DefaultWork, def.WorkDeadline != nil
	if f.WorkGiven {
		f.Work = time.Duration(*def.WorkDeadline) * time.Second
	}
	asking := 0 // how many approval steps come before the next environment
	for i, s := range def.Steps {
		one := core.FlowStep{Asks: s.Type == flow.Approve}
		enters := s.Type == flow.Deploy || s.Type == flow.RunJob && f.Runbook
		if enters {
			one.Environment = s.Environment
		}
		f.Steps = append(f.Steps, one)
		if s.Type == flow.Approve {
			f.Approvals = append(f.Approvals, core.ApprovalStep{
				Step: i, GateID: flow.StepGateID(i, s), Approval: *approval(&flow.Approval{Reason: s.Reason, Rules: s.Rules}),
			})
			asking++
		}
		// Pauses and analyses between the stops pin nothing, so the domain need not know of them.
		if !enters {
			continue
		}
		if last := len(f.Deploys) - 1; f.Runbook && last >= 0 && f.Deploys[last].Environment == s.Environment {
			f.Deploys[last].Namespaces = append(f.Deploys[last].Namespaces, s.Job.Namespace)
			continue
		}
		for ; asking > 0; asking-- {
			f.Approvals[len(f.Approvals)-asking].Before = s.Environment
		}
		step := core.DeployStep{At: fmt.Sprintf("/steps/%d", i), Environment: s.Environment, Approval: approval(s.Approval), Config: s.Config}
		if f.Runbook {
			step.Config, step.Namespaces = json.RawMessage(`{}`), []string{s.Job.Namespace}
		}
		step.Jobs = jobsIn(def, i, f.Runbook)
		step.Deadline, step.Follows, step.Given = deadline(s.Deadline), s.Follows, def.Given(i)
		step.CheckSet = core.CheckSet{
			Active: checks(def.Checks.Active, s.Checks.Active), Proposed: checks(def.Checks.Proposed, s.Checks.Proposed),
		}
		for _, g := range s.Gates {
			step.Gates = append(step.Gates, core.FlowGate{Weight: g.Weight, SoakDuration: g.SoakDuration, Approval: approval(g.Approval)})
		}
		f.Deploys = append(f.Deploys, step)
	}
	return f
}

// jobsIn are the jobs in the environment that a step deploys to: those of the step, and those of steps of their own.
func jobsIn(def flow.Definition, deploy int, runbook bool) (all []core.FlowJob) {
	if runbook {
		return nil
	}
	for i, s := range def.Steps {
		if s.Environment != def.Steps[deploy].Environment {
			continue
		}
		for _, part := range s.JobLists() {
			for j, job := range part.Jobs {
				all = append(all, core.FlowJob{At: fmt.Sprintf("/steps/%d/%s/%d", i, part.Name, j), Namespace: job.Namespace})
			}
		}
		if s.Job != nil {
			all = append(all, core.FlowJob{At: fmt.Sprintf("/steps/%d/job", i), Namespace: s.Job.Namespace})
		}
	}
	return all
}

// checks merges those of the whole pipeline and of a step (R3-05).
func checks(all, own []flow.Condition) []core.Check {
	var merged []core.Check
	for _, c := range flow.Merge(all, own) {
		one := core.Check{Key: c.Key, Kind: core.CheckStatus, Duration: time.Duration(c.Duration) * time.Second, Schedule: c.Schedule}
		one.InSync = c.InSync
		if c.Kind != "" {
			one.Kind = core.CheckKind(c.Kind)
		}
		if one.Kind == core.CheckStatus {
			one.Config = c.With
		}
		if c.Program() {
			one.Kind, one.Config = core.CheckKind(driver.CheckRef(c.Kind)), c.With
		}
		merged = append(merged, one)
	}
	return merged
}

// deadline is how long something may take; nil for any time.
func deadline(d *flow.Deadline) *core.DeadlineRule {
	if d == nil {
		return nil
	}
	rule := core.DeadlineRule{After: time.Duration(d.After) * time.Second, Action: core.DeadlineFails, CountsWaiting: d.CountsWaiting}
	if d.OnExpiry != "" {
		rule.Action = core.DeadlineAction(d.OnExpiry)
	}
	return &rule
}

func approval(a *flow.Approval) *core.Approval {
	if a == nil {
		return nil
	}
	return &core.Approval{
		Reason: a.Reason, Quorum: a.Quorum, Group: a.Group, RequesterMayApprove: a.RequesterMayApprove,
		ExpiresAfter: a.ExpiresAfter, OnExpiry: a.OnExpiry,
	}
}

// keep is core.Flow.Keep. The steps stay as their author wrote them; an approval without a name gets that of its gate, which would
// otherwise go by another number.
func keep(definition json.RawMessage, def flow.Definition, kept []bool) (json.RawMessage, error) {
	return rewrite(definition, func(steps []step) ([]step, error) {
		left := []step{}
		for i, s := range steps {
			if !kept[i] {
				continue
			}
			if def.Steps[i].Type == flow.Approve {
				name, err := json.Marshal(flow.StepGateID(i, def.Steps[i]))
				if err != nil {
					return nil, fmt.Errorf("name step %d of pipeline: %w", i, err)
				}
				s["name"] = name
			}
			left = append(left, s)
		}
		return left, nil
	})
}

// unweighted is core.Flow.Unweighted.
func unweighted(definition json.RawMessage) (json.RawMessage, error) {
	return rewrite(definition, func(steps []step) ([]step, error) {
		for _, s := range steps {
			delete(s, "gates")
		}
		return steps, nil
	})
}

// step is a step of a pipeline as its author wrote it.
type step = map[string]json.RawMessage

// rewrite replaces the steps of a definition.
func rewrite(definition json.RawMessage, change func([]step) ([]step, error)) (json.RawMessage, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(definition, &whole); err != nil {
		return nil, fmt.Errorf("read pipeline: %w", err)
	}
	var steps []step
	if err := json.Unmarshal(whole["steps"], &steps); err != nil {
		return nil, fmt.Errorf("read steps of pipeline: %w", err)
	}
	left, err := change(steps)
	if err != nil {
		return nil, err
	}
	if whole["steps"], err = json.Marshal(left); err != nil {
		return nil, fmt.Errorf("write steps of pipeline: %w", err)
	}
	rewritten, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("write pipeline: %w", err)
	}
	return rewritten, nil
}
