package store

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func application(r query.Application) core.Application {
	return core.Application{ID: r.ID, Name: r.Name, Description: r.Description, CreatedAt: r.CreatedAt, ArchivedAt: r.ArchivedAt}
}

func service(r query.Service) core.Service {
	return core.Service{
		ID: r.ID, ApplicationID: r.ApplicationID, Name: r.Name, DisplayName: shown(r.DisplayName, r.Name), Description: r.Description,
		CreatedAt: r.CreatedAt, RetiredAt: r.RetiredAt,
	}
}

// shown is a display name; the name where there is none.
func shown(display *string, name string) string {
	if display == nil {
		return name
	}
	return *display
}

func artifactSource(r query.ArtifactSource) core.ArtifactSource {
	return core.ArtifactSource{
		ID: r.ID, ServiceID: r.ServiceID, Ref: r.SourceRef, Config: r.SourceConfig, CreatedAt: r.CreatedAt,
		DisabledAt: r.DisabledAt, RemovedAt: r.RemovedAt, ReplacedBy: orZero(r.ReplacedBy),
	}
}

func version(r query.Version) core.Version {
	return core.Version{
		ID: r.ID, ArtifactSourceID: r.ArtifactSourceID, Name: r.Name, Digest: r.Digest, Reference: r.Reference,
		PublishedAt: r.PublishedAt, CreatedAt: r.CreatedAt, CommitMessage: r.CommitMessage,
	}
}

func curated(r query.CuratedVersionSet) core.Curated {
	return core.Curated{
		ID: r.ID, ApplicationID: r.ApplicationID, VersionSetID: r.VersionSetID, FromSetID: orZero(r.FromSetID), Name: r.Name, Reason: r.Reason,
		Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, PrincipalName: r.PrincipalName,
		CreatedAt: r.CreatedAt,
	}
}

func versionSet(r query.VersionSet) core.VersionSet {
	return core.VersionSet{
		ID: r.ID, ApplicationID: r.ApplicationID, Name: r.Name, EntriesDigest: r.EntriesDigest, Curated: r.Curated,
		CreatedAt: r.CreatedAt,
	}
}

func environment(r query.Environment) core.Environment {
	return core.Environment{
		ID: r.ID, Name: r.Name, DisplayName: shown(r.DisplayName, r.Name), Description: r.Description, Tier: core.Tier(r.Tier),
		Readiness: core.Readiness(r.Readiness), ReadinessReason: r.ReadinessReason, OnboardingAttempt: int(r.OnboardingAttempt),
		CreatedAt:  r.CreatedAt,
		ArchivedAt: r.ArchivedAt,
	}
}

func driverBinding(r query.DriverBinding) core.DriverBinding {
	return core.DriverBinding{
		ID: r.ID, EnvironmentID: r.EnvironmentID, Version: int(r.Version), DriverRef: r.DriverRef, DriverConfig: r.DriverConfig,
		Fleet:     r.Fleet,
		CreatedAt: r.CreatedAt,
	}
}

func flowDefinition(r query.FlowDefinition) core.FlowDefinition {
	return core.FlowDefinition{
		ID: r.ID, ApplicationID: r.ApplicationID, Version: int(r.Version), Definition: json.RawMessage(r.Definition), CreatedAt: r.CreatedAt,
	}
}

func applicationEnvironment(r query.ApplicationEnvironment) core.ApplicationEnvironment {
	return core.ApplicationEnvironment{
		ID: r.ID, ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, Readiness: core.Readiness(r.Readiness),
		ReadinessReason: r.ReadinessReason, Discovered: r.Discovered, SetupAttempt: int(r.SetupAttempt), SetupWanted: r.SetupWanted,
		CreatedAt: r.CreatedAt,
	}
}

func toRollout(r query.Rollout) core.Rollout {
	return core.Rollout{
		ID: r.ID, ApplicationID: r.ApplicationID, VersionSetID: r.VersionSetID, FlowDefinitionID: r.FlowDefinitionID,
		WorkflowRef: orZero(r.WorkflowRef), State: core.RolloutState(r.State), RollbackOf: orZero(r.RollbackOf),
		Passages: r.Passages, Plan: planner.Decision{Strategy: planner.Strategy(r.Strategy), Why: r.StrategyReason}, Inputs: r.Inputs,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
}

func rolloutEnvironment(r query.RolloutEnvironment) core.RolloutEnvironment {
	return core.RolloutEnvironment{
		ID: r.ID, RolloutID: r.RolloutID, EnvironmentID: r.EnvironmentID, Position: int(r.Position), DriverBindingID: r.DriverBindingID,
		DriverDigest: r.DriverDigest, PreviousVersionSetID: orZero(r.PreviousVersionSetID), State: core.RolloutState(r.State),
		Weights: r.Weights, SkipsWeights: core.WeightSkip(r.SkipsWeights), Follows: r.Follows, NeedsHealth: r.NeedsHealth,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
}

func deployment(r query.Deployment) core.Deployment {
	return core.Deployment{
		ID: r.ID, RolloutEnvironmentID: r.RolloutEnvironmentID, ServiceID: r.ServiceID, State: core.DeploymentState(r.State),
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
}

func snapshot(r query.SnapshotsByDeploymentRow) core.Snapshot {
	reported := r.Snapshot.CreatedAt
	if r.Snapshot.ReportedAt != nil {
		reported = *r.Snapshot.ReportedAt
	}
	return core.Snapshot{
		DeploymentID: r.Snapshot.DeploymentID, CommitSHA: r.Snapshot.CommitSha, ManifestDigest: r.Snapshot.ManifestDigest,
		DriverDigest: r.DriverDigest,
		Parameters:   r.Snapshot.Parameters, Changes: r.Snapshot.Changes, CreatedAt: r.Snapshot.CreatedAt,
		ReportedAt: reported,
	}
}

func deploymentLink(r query.LinksByDeploymentRow) core.DeploymentLink {
	return core.DeploymentLink{DeploymentID: r.DeploymentID, Name: r.Name, Namespace: r.Namespace, URL: r.Url, Status: r.Status}
}

func transition(r query.JournalsByRolloutRow) core.Transition {
	return core.Transition{
		ID: r.ID, Subject: core.Subject{Kind: core.SubjectKind(r.Kind), ID: r.SubjectID}, From: core.State(orZero(r.FromState)),
		To:     core.State(r.ToState),
		Verb:   core.Verb(r.Event),
		GateID: orZero(r.GateID), PrincipalType: core.PrincipalType(r.PrincipalType), PrincipalID: orZero(r.PrincipalID),
		Reason: orZero(r.Reason), TriggeredBy: orZero(r.TriggeredBy), Conditions: conditions(r.Conditions), Breach: r.Breach,
		CreatedAt: r.CreatedAt,
	}
}

// conditions reads those of a passage. Only this package writes them, so they can be read.
func conditions(stored json.RawMessage) []core.Condition {
	var all []core.Condition
	if len(stored) > 0 && json.Unmarshal(stored, &all) != nil {
		return nil
	}
	return all
}

func gateWord(r query.GateWordsRow) core.Transition {
	return core.Transition{
		ID: r.ID, Subject: core.Subject{Kind: core.SubjectRollout, ID: r.RolloutID}, From: core.State(orZero(r.FromState)),
		To: core.State(r.ToState), Verb: core.Verb(r.Event),
		GateID: orZero(r.GateID), PrincipalType: core.PrincipalType(r.PrincipalType), PrincipalID: orZero(r.PrincipalID),
		Reason: orZero(r.Reason), CreatedAt: r.CreatedAt,
		Conditions: conditions(r.Conditions),
	}
}

// deploymentGates makes one gate of the rows about it; the first of each kind counts.
func deploymentGates(rows []query.GatesByDeploymentRow) []core.DeploymentGate {
	var gates []core.DeploymentGate
	at := map[string]int{}
	for _, r := range rows {
		id := orZero(r.GateID)
		i, known := at[id]
		if !known {
			i, at[id] = len(gates), len(gates)
			gates = append(gates, core.DeploymentGate{DeploymentID: r.DeploymentID, GateID: id})
		}
		seen := &gates[i].PassedAt
		if core.Verb(r.Event) == core.VerbReachGate {
			seen = &gates[i].ReachedAt
		}
		// A retry reports the same gate again under another event id; the first instant counts.
		if *seen == nil {
			*seen = &r.CreatedAt
		}
	}
	return gates
}

func toHandoff(r query.Handoff) core.Handoff {
	return core.Handoff{
		ID: r.ID, Kind: core.HandoffKind(r.Kind), WorkflowID: r.WorkflowID, Subject: core.HandoffSubject(r.SubjectKind), SubjectID: r.SubjectID,
		Program: orZero(r.Program), DriverDigest: orZero(r.DriverDigest), Inputs: r.Inputs, Reason: r.Reason,
		State: core.HandoffState(r.State), Attempts: int(r.Attempts), DueAt: r.DueAt, Error: r.Error, Trace: orZero(r.Traceparent),
	}
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// orNull is the absence of a zero value, as the tables say it.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// given is a list for a column that is never null: none is an empty one.
func given[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
