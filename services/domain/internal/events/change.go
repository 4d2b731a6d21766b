package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// change reads what an event says. Every type of the domain path is here: also those that change nothing have to be
// claimed, or the sender's mark stops before them.
func change(e event.Event) (rollout.Change, error) {
	read, ok := readers()[e.Type()]
	if !ok {
		return nil, fault.InvalidFields(fault.Field{Name: "type", Problem: "found " + e.Type() + ", which is not of the domain path"})
	}
	return read(e)
}

type reader func(event.Event) (rollout.Change, error)

// as decodes the payload and makes the change of it.
func as[T event.Data](read func(T) rollout.Change) reader {
	return func(e event.Event) (rollout.Change, error) {
		data, err := event.Decode[T](e)
		if err != nil {
			return nil, err
		}
		return read(data), nil
	}
}

// readers is made once. A type that the catalogue gains has to be added to one of its parts, or its first event is rejected.
//
//nolint:gochecknoglobals // a constant of a map type, which nothing changes
var readers = sync.OnceValue(func() map[string]reader {
	all := ofRollouts()
	for _, part := range []map[string]reader{ofDeployments(), ofEnvironments(), ofWorkflows()} {
		maps.Copy(all, part)
	}
	return all
})

// ofRollouts is what programs say of rollouts and their gates.
func ofRollouts() map[string]reader {
	return map[string]reader{
		event.TypeRolloutStarted: as(func(d event.RolloutStarted) rollout.Change {
			return rollout.Moved{RolloutID: d.RolloutID, Verb: core.VerbStart}
		}),
		event.TypeRolloutHealthy: as(func(d event.RolloutHealthy) rollout.Change {
			return rollout.Moved{RolloutID: d.RolloutID, Verb: core.VerbComplete}
		}),
		event.TypeRolloutFailed: as(func(d event.RolloutFailed) rollout.Change {
			return rollout.Moved{RolloutID: d.RolloutID, Verb: core.VerbFail, Reason: d.Reason}
		}),
		event.TypeRolloutEnvironmentStarted: as(func(d event.RolloutEnvironmentStarted) rollout.Change {
			return rollout.EnvironmentMoved{RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, Verb: core.VerbStart}
		}),
		event.TypeRolloutEnvironmentHealthy: as(func(d event.RolloutEnvironmentHealthy) rollout.Change {
			return rollout.EnvironmentMoved{RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, Verb: core.VerbComplete}
		}),
		event.TypeRolloutEnvironmentFailed: as(func(d event.RolloutEnvironmentFailed) rollout.Change {
			return rollout.EnvironmentMoved{RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, Verb: core.VerbFail, Reason: d.Reason}
		}),
		event.TypeRolloutPreviewed: as(func(d event.RolloutPreviewed) rollout.Change {
			m := rollout.Previewed{PreviewID: d.PreviewID}
			for _, e := range d.Environments {
				m.Environments = append(m.Environments, core.PreviewedEnvironment{
					EnvironmentID: e.EnvironmentID, Changes: changes(e.Changes), Reason: e.Reason, FromLive: e.FromLive,
					Compared: compared(e.Compared),
				})
			}
			return m
		}),
		event.TypeApprovalRequested: as(func(d event.ApprovalRequested) rollout.Change {
			return rollout.ApprovalRequested{RolloutID: d.RolloutID, GateID: d.GateID, EnvironmentID: d.EnvironmentID, Reason: d.Reason}
		}),
		event.TypeRolloutGateReached: as(func(d event.RolloutGateReached) rollout.Change {
			return rollout.GateReached{RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, Weight: d.Weight}
		}),
		event.TypeRolloutEnvironmentJobStarted: as(func(d event.RolloutEnvironmentJobStarted) rollout.Change {
			return rollout.JobReported{RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, Job: d.Job, When: d.When, Attempt: d.Attempt}
		}),
		event.TypeRolloutEnvironmentJobEnded: as(func(d event.RolloutEnvironmentJobEnded) rollout.Change {
			return rollout.JobReported{
				RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, Job: d.Job, When: d.When, Attempt: d.Attempt,
				Result: d.Result, Reason: d.Reason, Log: d.Log,
			}
		}),
		event.TypeRolloutEnvironmentTargetEnded: as(func(d event.RolloutEnvironmentTargetEnded) rollout.Change {
			return rollout.TargetEnded{
				RolloutID: d.RolloutID, EnvironmentID: d.EnvironmentID, AgentID: d.AgentID, Attempt: d.Attempt, State: core.TargetState(d.Result),
				Reason: d.Reason,
			}
		}),
		event.TypeRolloutPassageRequested: as(func(d event.RolloutPassageRequested) rollout.Change {
			return rollout.PassageRequested{RolloutID: d.RolloutID, GateID: d.GateID, SkipsWeights: d.SkipsWeights}
		}),
		event.TypeRolloutAborted: as(func(d event.RolloutAborted) rollout.Change {
			return rollout.Aborted{RolloutID: d.RolloutID, Reason: d.Reason}
		}),
		event.TypeRolloutAbortRequested: as(func(event.RolloutAbortRequested) rollout.Change { return rollout.Noted{} }),
		event.TypeRolloutRetryRequested: as(func(event.RolloutRetryRequested) rollout.Change { return rollout.Noted{} }),
		// These and the two above are the domain's own, whose echo the handler drops; from elsewhere they are claimed, and change nothing.
		event.TypeRolloutPassageGranted:    as(func(event.RolloutPassageGranted) rollout.Change { return rollout.Noted{} }),
		event.TypeRolloutPassagesRevoked:   as(func(event.RolloutPassagesRevoked) rollout.Change { return rollout.Noted{} }),
		event.TypeEnvironmentPlacesChanged: as(func(event.EnvironmentPlacesChanged) rollout.Change { return rollout.Noted{} }),
		event.TypeApprovalResolved:         as(func(event.ApprovalResolved) rollout.Change { return rollout.Noted{} }),
		event.TypeCheckNudged:              as(func(event.CheckNudged) rollout.Change { return rollout.Noted{} }),
		event.TypeDeploymentNudged:         as(func(event.DeploymentNudged) rollout.Change { return rollout.Noted{} }),
		event.TypePolicySetChanged:         as(func(event.PolicySetChanged) rollout.Change { return rollout.Noted{} }),
		event.TypeCredentialChanged:        as(func(event.CredentialChanged) rollout.Change { return rollout.Noted{} }),
		event.TypeCallAnswered:             as(func(event.CallAnswered) rollout.Change { return rollout.Noted{} }),
		event.TypePullRequestRead: func(e event.Event) (rollout.Change, error) {
			data, err := event.Decode[event.PullRequestRead](e)
			if err != nil {
				return nil, err
			}
			reading, err := withoutControls(data)
			if err != nil {
				return nil, fault.Because(err, fault.Invalid, "what was read of a pull request cannot be stored")
			}
			return rollout.PullRead{PullID: data.PullRequestID, Run: data.Run, Reading: reading}, nil
		},
		event.TypeCheckReported: as(func(d event.CheckReported) rollout.Change {
			m := rollout.CheckReported{
				RunID: d.CheckRunID, Phase: core.CheckPhase(d.Phase), Description: d.Description,
				Link: d.Link, Asks: d.Asks, Environments: map[string]core.CheckPhase{}, Output: d.Output,
			}
			for _, one := range d.Environments {
				m.Environments[one.Environment] = core.CheckPhase(one.Phase)
			}
			return m
		}),
	}
}

// ofDeployments is what they say of deployments.
func ofDeployments() map[string]reader {
	return map[string]reader{
		event.TypeDeploymentStarted: as(func(d event.DeploymentStarted) rollout.Change {
			return rollout.DeploymentMoved{DeploymentID: d.DeploymentID, Verb: core.VerbStart}
		}),
		event.TypeDeploymentHealthy: as(func(d event.DeploymentHealthy) rollout.Change {
			return rollout.DeploymentMoved{DeploymentID: d.DeploymentID, Verb: core.VerbComplete}
		}),
		event.TypeDeploymentDegraded: as(func(d event.DeploymentDegraded) rollout.Change {
			return rollout.DeploymentMoved{DeploymentID: d.DeploymentID, Verb: core.VerbDegrade, Reason: d.Reason}
		}),
		event.TypeDeploymentFailed: as(func(d event.DeploymentFailed) rollout.Change {
			return rollout.DeploymentMoved{DeploymentID: d.DeploymentID, Verb: core.VerbFail, Reason: d.Reason}
		}),
		event.TypeDeploymentProposed: as(func(d event.DeploymentProposed) rollout.Change {
			return rollout.DeploymentProposed{RolloutID: d.RolloutID, Name: d.Name, Paths: d.Paths, Head: d.Head, Proposal: core.ForgeProposal{
				Repository: d.Repository, Branch: d.Branch, Number: d.Number, Status: core.ProposedStatus(d.State), By: d.By, ByID: d.ByID,
				Unshown: d.Unshown,
			}}
		}),
		event.TypeDeploymentCommitted: as(func(d event.DeploymentCommitted) rollout.Change {
			return rollout.DeploymentCommitted{
				DeploymentID: d.DeploymentID, CommitSHA: d.CommitSHA, ManifestDigest: d.ManifestDigest, Parameters: d.Parameters,
				Changes: changes(d.Changes),
			}
		}),
		event.TypeDeploymentSubmitted: as(func(d event.DeploymentSubmitted) rollout.Change {
			return rollout.DeploymentSubmitted{Link: core.DeploymentLink{
				DeploymentID: d.DeploymentID, Name: d.Name, Namespace: d.Namespace, URL: d.URL, Status: d.Status,
			}}
		}),
		event.TypeDeploymentGateReached: as(func(d event.DeploymentGateReached) rollout.Change {
			return rollout.GatePassage{DeploymentID: d.DeploymentID, Verb: core.VerbReachGate, Weight: d.Weight}
		}),
		// The contract calls it advance: the command to go past a gate is also the news that it is passed (E69).
		event.TypeDeploymentAdvance: as(func(d event.DeploymentAdvance) rollout.Change {
			return rollout.GatePassage{DeploymentID: d.DeploymentID, Verb: core.VerbPassGate, Weight: d.Weight}
		}),
	}
}

// ofEnvironments is what they, and standing observers, say of environments.
func ofEnvironments() map[string]reader {
	return map[string]reader{
		event.TypeEnvironmentReady: as(func(d event.EnvironmentReady) rollout.Change {
			return rollout.EnvironmentReadiness{EnvironmentID: d.EnvironmentID, Ready: true}
		}),
		event.TypeEnvironmentNotReady: as(func(d event.EnvironmentNotReady) rollout.Change {
			return rollout.EnvironmentReadiness{EnvironmentID: d.EnvironmentID, Reason: d.Reason}
		}),
		event.TypeApplicationEnvironmentReady: as(func(d event.ApplicationEnvironmentReady) rollout.Change {
			return rollout.ApplicationEnvironmentReadiness{
				ApplicationEnvironmentID: d.ApplicationEnvironmentID, Ready: true, Discovered: discovered(d),
			}
		}),
		event.TypeApplicationEnvironmentNotReady: as(func(d event.ApplicationEnvironmentNotReady) rollout.Change {
			return rollout.ApplicationEnvironmentReadiness{ApplicationEnvironmentID: d.ApplicationEnvironmentID, Reason: d.Reason}
		}),
		event.TypeServiceHealthObserved: observed(func(d event.ServiceHealthObserved) string { return d.ObservedAt },
			func(d event.ServiceHealthObserved, at time.Time) rollout.Change {
				return rollout.HealthSeen{ServiceHealth: core.ServiceHealth{
					ServiceID: d.ServiceID, EnvironmentID: d.EnvironmentID, Health: health(d.Health), Reason: d.Reason, ObservedAt: at,
				}}
			}),
		event.TypeApplicationEnvironmentReconciled: observed(func(d event.ApplicationEnvironmentReconciled) string { return d.ObservedAt },
			func(d event.ApplicationEnvironmentReconciled, at time.Time) rollout.Change {
				return rollout.Reconciled{Reconciliation: core.Reconciliation{
					ApplicationEnvironmentID: d.ApplicationEnvironmentID, Revision: d.Revision, ExpectedRevision: d.ExpectedRevision,
					Automatic: d.Automatic, Objects: drifted(d), ObservedAt: at,
				}}
			}),
		event.TypeEnvironmentContactChanged: observed(func(d event.EnvironmentContactChanged) string { return d.ObservedAt },
			func(d event.EnvironmentContactChanged, at time.Time) rollout.Change {
				return rollout.ContactSeen{
					Contact: core.Contact{EnvironmentID: d.EnvironmentID, Reachable: d.Reachable, Reason: d.Reason, ObservedAt: at},
				}
			}),
	}
}

// ofWorkflows are the engine's own events, which it emits for every run, whatever its program emitted before (D36).
func ofWorkflows() map[string]reader {
	return map[string]reader{
		event.TypeCallDecided: callDecided,
		event.TypeWorkflowCompleted: as(func(d event.WorkflowCompleted) rollout.Change {
			return rollout.WorkflowEnded{WorkflowID: d.WorkflowID, Verb: core.VerbComplete}
		}),
		event.TypeWorkflowFailed: as(func(d event.WorkflowFailed) rollout.Change {
			return rollout.WorkflowEnded{WorkflowID: d.WorkflowID, Verb: core.VerbFail, Reason: d.Error}
		}),
		event.TypeWorkflowCancelled: as(func(d event.WorkflowCancelled) rollout.Change {
			return rollout.WorkflowEnded{WorkflowID: d.WorkflowID, Verb: core.VerbCancel, Reason: d.Reason}
		}),
	}
}

// callDecided reads what the engine says of a decision about a call.
func callDecided(e event.Event) (rollout.Change, error) {
	data, err := event.Decode[event.CallDecided](e)
	if err != nil {
		return nil, err
	}
	r := core.CallRequest{
		WorkflowID: data.WorkflowID, CallID: data.CallID, Function: data.Function, State: core.CallState(data.State), Policy: data.Policy,
		Reason: data.Reason, Group: data.Group, Quorum: data.Quorum, RequesterMay: data.RequesterMay, Request: data.Request,
		Sampled: data.Sampled,
	}
	if data.ExpiresAt != "" {
		at, err := time.Parse(time.RFC3339Nano, data.ExpiresAt)
		if err != nil {
			return nil, fault.InvalidFields(fault.Field{
				Name: "data.expires_at", Problem: "found " + data.ExpiresAt + ", expected a time stamp (RFC 3339)",
			})
		}
		r.ExpiresAt = &at
	}
	if len(data.Decision) > 0 {
		if err := json.Unmarshal(data.Decision, &r.Decision); err != nil {
			return nil, fault.InvalidFields(fault.Field{
				Name: "data.decision", Problem: "found " + err.Error() + ", expected a decision of policies",
			})
		}
	}
	if r.State == core.CallPending && (r.Quorum < 1 || r.ExpiresAt == nil) {
		return nil, fault.InvalidFields(fault.Field{
			Name: "data.quorum", Problem: "found no quorum or expires_at, expected both of a pending call",
		})
	}
	if r.Sampled && (r.State != core.CallPermitted || r.Quorum != 0) {
		return nil, fault.InvalidFields(fault.Field{
			Name: "data.sampled", Problem: fmt.Sprintf("found it of a call that is %s, expected one that is permitted at once", r.State),
		})
	}
	return rollout.CallReported{CallRequest: r}, nil
}

// compared is what a program has compared, as it is kept.
func compared(c *event.Comparison) *core.Comparison {
	if c == nil {
		return nil
	}
	kept := core.Comparison{Workloads: c.Workloads, Things: make([]planner.Thing, len(c.Things)), Commit: c.Commit, Reason: c.Reason}
	for i, t := range c.Things {
		kept.Things[i] = planner.Thing{
			Kind: planner.Kind(t.Kind), Action: t.Action, Object: t.Object, Namespace: t.Namespace, Detail: t.Detail, Held: held(t),
		}
		if kept.Things[i].Held != nil && strings.HasPrefix(t.Detail, othersManage) { // the words are for replicas of before
			kept.Things[i].Detail = ""
		}
	}
	return &kept
}

// othersManage begins the detail of a thing that says in words what others have taken over.
const othersManage = "others manage "

// held are the fields of a thing that others have taken over. Programs of before name them in words.
func held(t event.ChangedThing) (all []drift.Held) {
	for _, f := range t.Held {
		all = append(all, drift.Held{Path: f.Path, Manager: f.Manager})
	}
	if words, before := strings.CutPrefix(t.Detail, othersManage); before && all == nil {
		for path := range strings.SplitSeq(words, ", ") {
			all = append(all, drift.Held{Path: path})
		}
	}
	return all
}

// drifted is what an observer reports to differ. A relay of an earlier release has it in words only.
func drifted(d event.ApplicationEnvironmentReconciled) drift.List {
	if len(d.Objects) == 0 {
		return drift.InWords(d.Drift)
	}
	var all drift.List
	for _, o := range d.Objects {
		one := drift.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, How: drift.How(o.How), Code: o.Code}
		if o.Detail != "" {
			one.Differs = []string{o.Detail}
		}
		all = all.Add(one)
	}
	return all
}

// changes are those of files.
func changes(all []event.FileChange) []core.FileChange {
	changed := make([]core.FileChange, len(all))
	for i, c := range all {
		changed[i] = core.FileChange(c)
	}
	return changed
}

// observed is as for what was seen at a time.
func observed[T event.Data](seenAt func(T) string, read func(T, time.Time) rollout.Change) reader {
	return func(e event.Event) (rollout.Change, error) {
		data, err := event.Decode[T](e)
		if err != nil {
			return nil, err
		}
		at, err := time.Parse(time.RFC3339Nano, seenAt(data))
		if err != nil {
			return nil, fault.InvalidFields(
				fault.Field{Name: "data.observed_at", Problem: "found " + seenAt(data) + ", expected a time stamp (RFC 3339)"},
			)
		}
		return read(data, at), nil
	}
}

// health finds the health that a word means.
func health(word string) core.Health {
	switch h := core.Health(word); h {
	case core.HealthHealthy, core.HealthProgressing, core.HealthDegraded:
		return h
	default:
		return core.HealthUnknown
	}
}

// discovered is what the driver wants back. The two names that the contract has on their own (E54) go in beside the rest:
// both are the driver's, so they are kept in its blob (R1).
func discovered(d event.ApplicationEnvironmentReady) json.RawMessage {
	all := map[string]json.RawMessage{}
	if len(d.Discovered) > 0 && json.Unmarshal(d.Discovered, &all) != nil {
		return d.Discovered // the schema says it is an object, so this cannot be
	}
	for name, value := range map[string]string{"rollout_name": d.RolloutName, "rollout_namespace": d.RolloutNamespace} {
		// What the driver put into its own blob counts; the contract's names only fill a gap.
		if _, taken := all[name]; value == "" || taken {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			continue // text is always JSON
		}
		all[name] = text
	}
	blob, err := json.Marshal(all)
	if err != nil {
		return d.Discovered // made of JSON, so it is JSON
	}
	return blob
}

// withoutControls is JSON whose texts have spaces in the place of control characters, but for tabs and ends of lines: what is in a
// repository may have any, and the database stores no NUL.
func withoutControls(data any) (json.RawMessage, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("write it: %w", err)
	}
	var read any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&read); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if text, err = json.Marshal(cleaned(read)); err != nil {
		return nil, fmt.Errorf("write it again: %w", err)
	}
	return text, nil
}

func cleaned(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Map(func(c rune) rune {
			if unicode.IsControl(c) && c != '\n' && c != '\t' {
				return ' '
			}
			return c
		}, v)
	case []any:
		for i := range v {
			v[i] = cleaned(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = cleaned(v[key])
		}
	}
	return value
}
