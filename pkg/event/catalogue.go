package event

import (
	"encoding/json"
	"slices"
	"sync"
)

// Definition is one entry of the catalogue.
type Definition struct {
	// Type is the CloudEvents type.
	Type string
	// Path is the event path it travels on.
	Path Path
	// Entity and Verb are the last two parts of the type, and of a domain subject.
	Entity, Verb string
	// Emitted says by whom, when and why.
	Emitted string
	// Example is a payload with every field set; the golden file holds it.
	Example Data

	channel string
}

// Lookup finds the entry of a type.
func Lookup(eventType string) (Definition, bool) {
	d, ok := byType()[eventType]
	return d, ok
}

//nolint:gochecknoglobals // written once, by sync.OnceValue
var byType = sync.OnceValue(func() map[string]Definition {
	m := map[string]Definition{}
	for _, d := range Catalogue() {
		m[d.Type] = d
	}
	return m
})

// Catalogue is every event type of the three paths, in the order a reader would want: by path, then by life cycle.
func Catalogue() []Definition {
	return slices.Concat(registryEvents(), clusterEvents(), rolloutEvents(), deploymentEvents(), readinessEvents(), observedEvents(), approvalEvents(), workflowEvents())
}

// Pattern is the subject that events of the type are published on, with placeholders for what an event fills in.
func (d Definition) Pattern() string {
	switch d.Path {
	case PathCluster:
		return "cd.cluster.<agent>." + d.channel
	case PathDomain:
		return "cd.domain.<organization>." + d.Entity + "." + d.Verb
	default:
		return "cd.registry." + d.Entity + "." + d.Verb
	}
}

func define(path Path, channel string, example Data, emitted string) Definition {
	entity, verb := split(example.EventType())
	return Definition{Type: example.EventType(), Path: path, Entity: entity, Verb: verb, Emitted: emitted, Example: example, channel: channel}
}

func registryEvents() []Definition {
	return []Definition{
		define(PathRegistry, "", ArtifactPublished{
			Image: "registry.example.com/shop/api", Digest: exampleDigest, Tag: "1.4.0", PublishedAt: "2026-03-25T10:00:00Z", DigestSeen: new(true),
		}, "By the registry service, when a registry, CI or a poll says that an artifact exists. The domain records a Version on every source that points at the image."),
	}
}

func clusterEvents() []Definition {
	return []Definition{
		define(PathCluster, ChannelCall, FunctionCalled{
			AgentID: 42, CallID: "1/7/0", Function: "argo.sync", Arguments: json.RawMessage(`{"app_name":"shop"}`), Attempt: 1, Deadline: "2026-03-25T10:05:00Z",
		}, "By the workflow service, for every Function that has to run beside a cluster; sent again until it is answered."),
		define(PathCluster, ChannelResult, FunctionCompleted{
			AgentID: 42, CallID: "1/7/0", Attempt: 1, Value: json.RawMessage(`{"synced":true}`),
			Error: &CallError{Code: "unreachable", Message: "the API server did not answer within 10s", Retryable: true},
		}, "By a relay, once for every call it has carried out. Exactly one of value and error is set."),
		define(PathCluster, ChannelEvent, ArgoRolloutStatusChanged{
			AgentID: 42, RolloutName: "payments-api", Namespace: "production", Phase: "Paused", CurrentStepIndex: 1,
			StableRS: "abc123", CurrentPodHash: "def456", PauseConditions: []PauseCondition{{Reason: "CanaryPauseStep"}}, Abort: false,
			Watch: "1/0.7", Object: json.RawMessage(`{"status":{"phase":"Paused"}}`), ObservedAt: "2026-03-25T10:00:00Z",
		}, "By a relay, when the status of an Argo Rollout that somebody watches has changed."),
		define(PathCluster, ChannelEvent, ObjectChanged{
			AgentID: 42, Watch: "1/0.7", Kind: "Application", Namespace: "argocd", Name: "shop", Found: true,
			Object: json.RawMessage(`{"status":{"sync":{"status":"Synced"}}}`), Report: json.RawMessage(`{"health":"healthy","reason":""}`), Error: &CallError{Code: "forbidden", Message: "the cluster does not let the relay watch Application argocd/shop"},
			ObservedAt: "2026-03-25T10:00:00Z",
		}, "By a relay, for what is watched and is no Argo Rollout, when the fields asked for have changed, the object is not there, or it cannot be watched."),
		define(PathCluster, ChannelCall, WatchesWanted{
			AgentID: 42, AsOf: "2026-03-25T10:00:00Z", LeaseSeconds: 300, Watches: []Watch{{
				Watch: "1/0.7", Kind: "Rollout", APIVersion: "argoproj.io/v1alpha1", Namespace: "shop", Name: "api", Labels: "app=api", Fields: []string{"status.phase"},
				Report: "argo.health", ExpectedRevision: "0123456789abcdef0123456789abcdef01234567",
			}},
		}, "By the workflow service, when what its workflows want watched has changed, and to a relay that holds another set or whose lease is running out: the whole set each time."),
		define(PathCluster, ChannelHeartbeat, AgentHeartbeat{
			AgentID: 42, Version: "0.1.0", StartedAt: "2026-03-25T09:00:00Z", ObservedAt: "2026-03-25T10:00:00Z", ClusterReachable: true, Message: "v1.34.2",
			Watching: "6b86b273ff34fce1", LeaseSeconds: 240,
		}, "By a relay, every few seconds, so that an agent that has gone away is noticed and named."),
	}
}

func rolloutEvents() []Definition {
	return []Definition{
		define(PathDomain, "", RolloutStarted{RolloutID: 7}, "By the deploy workflow as its first act: the rollout is in progress."),
		define(PathDomain, "", RolloutGateReached{RolloutID: 7, EnvironmentID: 3, Weight: 25}, "By the deploy workflow when every deployment of an environment stands at the gate: none passes before all have come."),
		define(PathDomain, "", RolloutPassageRequested{RolloutID: 7, EnvironmentID: 3, GateID: "production/25"}, "By the deploy workflow before it enters an environment or goes past a gate: it waits there for the answer."),
		define(PathDomain, "", RolloutPassageGranted{RolloutID: 7, GateID: "production/25"}, "By the domain service, at once or, while the rollout is paused, when somebody resumes it."),
		define(PathDomain, "", RolloutAbortRequested{RolloutID: 7, Reason: "errors at 25 %"}, "By the domain service when somebody wants what is under way taken back to the stable version."),
		define(PathDomain, "", RolloutAborted{RolloutID: 7, EnvironmentID: 3, Reason: "aborted: errors at 25 %"}, "By the deploy workflow when it has aborted every deployment under way, and waits for somebody to retry."),
		define(PathDomain, "", RolloutRetryRequested{RolloutID: 7, Reason: "mended"}, "By the domain service when somebody wants an aborted rollout tried again from its first gate."),
		define(PathDomain, "", RolloutPreviewed{PreviewID: 5, Environments: []PreviewedEnvironment{{EnvironmentID: 3, Changes: []FileChange{exampleChange()}}}},
			"By a driver's preview workflow: what a rollout would change, were it begun now, or why that cannot be told."),
		define(PathDomain, "", RolloutHealthy{RolloutID: 7}, "By the deploy workflow when every environment is healthy: the rollout is completed."),
		define(PathDomain, "", RolloutFailed{RolloutID: 7, Reason: "production: api is degraded at gate 50"}, "By the deploy workflow when it stops advancing, and why."),
		define(PathDomain, "", RolloutEnvironmentStarted{RolloutID: 7, EnvironmentID: 3}, "By the deploy workflow when a rollout enters an environment."),
		define(PathDomain, "", RolloutEnvironmentHealthy{RolloutID: 7, EnvironmentID: 3}, "By the deploy workflow when every deployment of an environment is healthy."),
		define(PathDomain, "", RolloutEnvironmentFailed{RolloutID: 7, EnvironmentID: 3, Reason: "api is degraded"}, "By the deploy workflow when an environment will not become healthy in this rollout."),
	}
}

func deploymentEvents() []Definition {
	return []Definition{
		define(PathDomain, "", DeploymentStarted{DeploymentID: 11}, "By the deploy workflow before the first change for a service in an environment."),
		define(PathDomain, "", DeploymentCommitted{
			DeploymentID: 11, CommitSHA: "0123456789abcdef0123456789abcdef01234567", ManifestDigest: exampleDigest,
			Parameters: json.RawMessage(`{"path":"staging/api.yaml"}`), Changes: []FileChange{exampleChange()},
		}, "By the deploy workflow once the desired state is in Git: the snapshot an auditor reads. Never a secret."),
		define(PathDomain, "", DeploymentGateReached{DeploymentID: 11, Weight: 25}, "By the deploy workflow when one service stands at a gate."),
		define(PathDomain, "", DeploymentAdvance{DeploymentID: 11, Weight: 25}, "By the deploy workflow when one service may go past the gate named."),
		define(PathDomain, "", DeploymentHealthy{DeploymentID: 11}, "By the deploy workflow when a service is healthy at full weight with the new version."),
		define(PathDomain, "", DeploymentDegraded{DeploymentID: 11, Reason: "ProgressDeadlineExceeded"}, "By the deploy workflow when the new version of a service is degraded; the canary is left as it is."),
		define(PathDomain, "", DeploymentFailed{DeploymentID: 11, Reason: "no status within 10m0s"}, "By the deploy workflow when a service could not be deployed or its wait ran out."),
	}
}

func readinessEvents() []Definition {
	return []Definition{
		define(PathDomain, "", EnvironmentReady{EnvironmentID: 3}, "By the onboarding workflow when everything an environment needs is there."),
		define(PathDomain, "", EnvironmentNotReady{EnvironmentID: 3, Reason: "argo-rollouts controller not found"}, "By the onboarding workflow when something is missing, and what."),
		define(PathDomain, "", ApplicationEnvironmentReady{
			ApplicationEnvironmentID: 5, RolloutName: "api", RolloutNamespace: "shop",
			Discovered: json.RawMessage(`{"services":{"api":{"rollout_name":"api","rollout_namespace":"shop"}}}`),
		}, "By the setup workflow when the manifests of an application fit its services."),
		define(PathDomain, "", ApplicationEnvironmentNotReady{ApplicationEnvironmentID: 5, Reason: "container mismatch"}, "By the setup workflow when they do not, and why."),
	}
}

func observedEvents() []Definition {
	return []Definition{
		define(PathDomain, "", ServiceHealthObserved{
			ServiceID: 4, EnvironmentID: 3, Health: "degraded", Reason: "ProgressDeadlineExceeded", ObservedAt: "2026-03-25T10:00:00Z",
		}, "By the workflow service, off a standing observer, when the health of a service in an environment has changed, rollout or not. It never reopens a deployment."),
		define(PathDomain, "", ApplicationEnvironmentReconciled{
			ApplicationEnvironmentID: 5, Revision: "89abcdef0123456789abcdef0123456789abcdef", ExpectedRevision: "0123456789abcdef0123456789abcdef01234567",
			Automatic: true, Drift: "automated sync is on", ObservedAt: "2026-03-25T10:00:00Z",
		}, "By the workflow service, off a standing observer, when what is in force of an application in an environment has changed: drift shows in it."),
		define(PathDomain, "", EnvironmentContactChanged{
			EnvironmentID: 3, Reachable: false, Reason: "agent 42 is offline", ObservedAt: "2026-03-25T10:00:00Z",
		}, "By the workflow service, off heartbeats, when the agent of an environment, or its cluster, has gone away or come back."),
	}
}

func approvalEvents() []Definition {
	return []Definition{
		define(PathDomain, "", ApprovalRequested{RolloutID: 7, GateID: "production/approval", EnvironmentID: 3, Weight: 50, Reason: "production needs a release manager"}, "By the deploy workflow when it will not go on before somebody has approved."),
		define(PathDomain, "", ApprovalResolved{RolloutID: 7, GateID: "production/approval", Resolution: "approved", PrincipalType: "user", PrincipalID: 1, Reason: "looks good"}, "By the domain service when a gate has been approved or rejected; the parked workflow waits for it."),
	}
}

func workflowEvents() []Definition {
	return []Definition{
		define(PathDomain, "", WorkflowCompleted{WorkflowID: "rollout-7"}, "By the engine itself when a program has run to its end."),
		define(PathDomain, "", WorkflowFailed{WorkflowID: "rollout-7", Error: "deploy.star:12:5: fail: container mismatch"}, "By the engine itself when a run fails, whatever the program had the time to say."),
		define(PathDomain, "", WorkflowCancelled{WorkflowID: "rollout-7", Reason: "cancelled by user 1"}, "By the engine itself when a run has been cancelled."),
	}
}

const exampleDigest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
