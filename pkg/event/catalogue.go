package event

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Definition is one entry of the catalogue.
type Definition struct {
	// Type is the CloudEvents type.
	Type string
	// Path is the event path it travels on.
	Path Path
	// Entity and Verb are the last two parts of the type, and of a domain subject.
	Entity, Verb string
	// Emitted says by which service and when it is emitted. It begins with "By".
	Emitted string
	// EmittedBy lists who may emit it (D47); see CheckEmitter and CheckSource.
	EmittedBy []Emitter
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

// Catalogue returns every event type of the three paths, by path and then by life cycle.
func Catalogue() []Definition {
	return slices.Concat(registryEvents(), clusterEvents(), rolloutEvents(), deploymentEvents(), readinessEvents(),
		observedEvents(), approvalEvents(), policyEvents(), workflowEvents())
}

// Pattern returns the subject that events of the type are published on, with placeholders for the variable parts.
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

// define is an entry. It does not compile without an emitter.
func define(path Path, channel string, example Data, emitted string, by Emitter, more ...Emitter) Definition {
	entity, verb := split(example.EventType())
	return Definition{
		Type: example.EventType(), Path: path, Entity: entity, Verb: verb, Emitted: emitted, EmittedBy: append([]Emitter{by}, more...),
		Example: example, channel: channel,
	}
}

func registryEvents() []Definition {
	return []Definition{
		define(PathRegistry, "", ArtifactPublished{
			Image: "registry.example.com/shop/api", Digest: exampleDigest, Tag: "1.4.0", PublishedAt: "2026-03-25T10:00:00Z", DigestSeen: new(true),
		}, "By the registry service, when a registry, CI or a poll reports an artifact. The domain service records a version on "+
			"every source that points at the image.", EmitterRegistry, EmitterCaller),
		define(PathRegistry, "", ArtifactDeleted{
			Image: "registry.example.com/shop/api", Digest: exampleDigest, Tag: "1.4.0", DeletedAt: "2026-04-25T10:00:00Z",
		}, "By the registry service, when a registry or a poll reports that a tag or an image was deleted. The domain service marks the "+
			"versions that were published so; they stay.", EmitterRegistry, EmitterCaller),
		define(PathRegistry, "", CommitStatusReported{
			Hook: "7f3a9c52e1b84d06", Repository: "https://github.com/shop/api", Commit: "9fceb02d0ae598e95dc970b74767f19372d61af8", Kind: "status",
			Context: "ci/e2e", Phase: "success", Description: "112 tests passed", Link: "https://ci.example.com/runs/7", ObservedAt: "2026-03-25T10:00:00Z", Sequence: 7001,
		}, "By the registry service, when a forge reports a status of a commit to a hook of an organization. The domain service counts it for "+
			"checks of kind status that have its context.", EmitterRegistry),
		define(PathRegistry, "", PullRequestReported{
			Hook: "7f3a9c52e1b84d06", Repository: "https://github.com/shop/config", Number: 7, AskedBy: "ann",
		}, "By the registry service, when a forge reports a pull request to a hook of an organization, or a comment that asks for its plan. The "+
			"domain service comments on it.", EmitterRegistry),
		define(PathRegistry, "", PullRequestCommented{
			Hook: "7f3a9c52e1b84d06", Repository: "https://github.com/shop/config", Number: 7, CommentID: 1901, AuthorID: 42, Author: "ann",
			MadeAt: "2026-03-25T10:00:00Z", Text: "/lockstep approve 118 looks good",
		}, "By the registry service, when a forge reports a comment with a command to a hook of an organization. The domain service performs it "+
			"for the member who has linked the account, if the pull request is that of a proposed change.", EmitterRegistry),
		define(PathRegistry, "", PullRequestReviewed{
			Hook: "7f3a9c52e1b84d06", Repository: "https://github.com/shop/config", Number: 7, CommentID: id.Reviews + 1901, AuthorID: 42, Author: "ann",
			MadeAt: "2026-03-25T10:00:00Z", Text: "/lockstep why", MaybeApp: true,
		}, "By the registry service, when a forge reports a review with a command, or a comment in one, to a hook of an organization. The domain "+
			"service performs it as one of a comment, but decides nothing by it where an App may have written it.", EmitterRegistry),
	}
}

func clusterEvents() []Definition {
	return []Definition{
		define(PathCluster, ChannelCall, FunctionCalled{
			AgentID: 42, CallID: "1/7/0", Function: "argo.sync", Arguments: json.RawMessage(`{"app_name":"shop"}`), Attempt: 1,
			Deadline: "2026-03-25T10:05:00Z", HeldWeights: []int{50}, Owner: "o1.e3.a5", Installation: "4f9c1b7a0d2e8c35",
		}, "By the workflow service, for every Function that a relay has to execute. Sent again until it is answered.", EmitterEngine),
		define(PathCluster, ChannelResult, FunctionCompleted{
			AgentID: 42, CallID: "1/7/0", Attempt: 1, Value: json.RawMessage(`{"synced":true}`),
			Error: &CallError{Code: "unreachable", Message: "the API server did not answer within 10s", Retryable: true},
		}, "By a relay, once for every call that it has executed. Exactly one of value and error is set.", EmitterRelay),
		define(PathCluster, ChannelEvent, ArgoRolloutStatusChanged{
			AgentID: 42, RolloutName: "payments-api", Namespace: "production", Phase: "Paused", CurrentStepIndex: 1,
			StableRS: "abc123", CurrentPodHash: "def456", PauseConditions: []PauseCondition{{Reason: "CanaryPauseStep"}}, Abort: false,
			Watch: "1/0.7", Object: json.RawMessage(`{"status":{"phase":"Paused"}}`), ObservedAt: "2026-03-25T10:00:00Z",
		}, "By a relay, when the status of a watched Argo Rollout has changed.", EmitterRelay),
		define(PathCluster, ChannelEvent, ObjectChanged{
			AgentID: 42, Watch: "1/0.7", Kind: "Application", Namespace: "argocd", Name: "shop", Found: true,
			Object: json.RawMessage(`{"status":{"sync":{"status":"Synced"}}}`), Report: json.RawMessage(`{"health":"healthy","reason":""}`),
			Error:      &CallError{Code: "forbidden", Message: "the cluster does not let the relay watch Application argocd/shop"},
			ObservedAt: "2026-03-25T10:00:00Z",
		}, "By a relay, when the watched fields of an object other than an Argo Rollout have changed, or the object does not exist "+
			"or cannot be watched.", EmitterRelay),
		define(PathCluster, ChannelCall, WatchesWanted{
			AgentID: 42, AsOf: "2026-03-25T10:00:00Z", LeaseSeconds: 300, Watches: []Watch{{
				Watch: "1/0.7", Kind: "Rollout", APIVersion: "argoproj.io/v1alpha1", Namespace: "shop", Name: "api", Labels: "app=api",
				Fields: []string{"status.phase"},
				Report: "argo.health", ExpectedRevision: "0123456789abcdef0123456789abcdef01234567",
			}},
		}, "By the workflow service, when the watches of its workflows have changed, and to a relay that has another set or whose "+
			"lease is about to expire. It always carries the whole set.", EmitterEngine),
		define(PathCluster, ChannelHeartbeat, AgentHeartbeat{
			AgentID: 42, Version: "0.1.0", StartedAt: "2026-03-25T09:00:00Z", ObservedAt: "2026-03-25T10:00:00Z", ClusterReachable: true,
			Message: "v1.34.2", Watching: "6b86b273ff34fce1", LeaseSeconds: 240,
		}, "By a relay, every few seconds. An agent without heartbeats is reported as offline.", EmitterRelay),
	}
}

func rolloutEvents() []Definition {
	return []Definition{
		define(PathDomain, "", RolloutStarted{RolloutID: 7}, "By the deploy workflow, before anything else.", EmitterProgram),
		define(PathDomain, "", RolloutGateReached{RolloutID: 7, EnvironmentID: 3, Weight: 25},
			"By the deploy workflow, when every deployment of an environment has reached the gate. None passes before "+
				"all have reached it.", EmitterProgram),
		define(PathDomain, "", RolloutEnvironmentJobStarted{RolloutID: 7, EnvironmentID: 3, Job: "migrate", When: "before", Attempt: 1},
			"By the deploy workflow, before it creates the Job or Workflow of an attempt.", EmitterProgram),
		define(PathDomain, "", RolloutEnvironmentJobEnded{
			RolloutID: 7, EnvironmentID: 3, Job: "migrate", When: "before", Attempt: 1, Result: "failed",
			Reason: "BackoffLimitExceeded: Job has reached the specified backoff limit", Log: "no such table: orders",
		},
			"By the deploy workflow, when an attempt has ended or was stopped. The result becomes part of the journal.", EmitterProgram),
		define(PathDomain, "", RolloutEnvironmentTargetEnded{
			RolloutID: 7, EnvironmentID: 3, AgentID: 12, Attempt: 1, Result: "failed", Reason: "api is degraded: CrashLoopBackOff",
		},
			"By the run of a target of a fleet, or, as failed only, by the deploy workflow for one that did not report itself.", EmitterProgram),
		define(PathDomain, "", RolloutPassageRequested{RolloutID: 7, EnvironmentID: 3, GateID: "production", SkipsWeights: []int{25, 50}},
			"By the deploy workflow, before it enters an environment, passes a gate or takes a step between environments. It waits for the answer.",
			EmitterProgram),
		define(PathDomain, "", RolloutPassageGranted{
			RolloutID: 7, GateID: "production", EnvironmentID: 3, PinnedWeights: []int{25, 50},
			Places: examplePlaces(),
		},
			"By the domain service, once the rollout is not on hold and every approval that the passage needs has been given.", EmitterDomain),
		define(PathDomain, "", RolloutPassagesRevoked{RolloutID: 7, Cancelled: true},
			"By the domain service, when the rollout has ended, or a wave of a fleet may never begin. Its run may change nothing from then on.", EmitterDomain),
		define(PathDomain, "", RolloutAbortRequested{RolloutID: 7, Reason: "errors at 25 %"},
			"By the domain service, when a member aborts the rollout.", EmitterDomain),
		define(PathDomain, "", RolloutAborted{RolloutID: 7, EnvironmentID: 3, Reason: "aborted: errors at 25 %"},
			"By the deploy workflow, when it has aborted every deployment in progress. It waits for a retry.", EmitterProgram),
		define(PathDomain, "", RolloutRetryRequested{RolloutID: 7, Reason: "fixed"},
			"By the domain service, when a member retries an aborted rollout.", EmitterDomain),
		define(PathDomain, "", RolloutPreviewed{
			PreviewID: 5, Environments: []PreviewedEnvironment{{EnvironmentID: 3, Changes: []FileChange{exampleChange()}}},
		}, "By a driver's preview workflow, with what a rollout would change if it was started now, or why that is unknown.", EmitterProgram),
		define(PathDomain, "", RolloutHealthy{RolloutID: 7}, "By the deploy workflow, when every environment is healthy.", EmitterProgram),
		define(PathDomain, "", RolloutFailed{RolloutID: 7, Reason: "production: api is degraded at gate 50"},
			"By the deploy workflow, when it stops advancing.", EmitterProgram),
		define(PathDomain, "", RolloutEnvironmentStarted{RolloutID: 7, EnvironmentID: 3},
			"By the deploy workflow, when the rollout enters an environment.", EmitterProgram),
		define(PathDomain, "", RolloutEnvironmentHealthy{RolloutID: 7, EnvironmentID: 3},
			"By the deploy workflow, when every deployment of an environment is healthy.", EmitterProgram),
		define(PathDomain, "", RolloutEnvironmentFailed{RolloutID: 7, EnvironmentID: 3, Reason: "api is degraded"},
			"By the deploy workflow, when an environment can no longer become healthy in this rollout.", EmitterProgram),
	}
}

func deploymentEvents() []Definition {
	return []Definition{
		define(PathDomain, "", DeploymentStarted{DeploymentID: 11},
			"By the deploy workflow, before the first change for a service in an environment.", EmitterProgram),
		define(PathDomain, "", DeploymentCommitted{
			DeploymentID: 11, CommitSHA: "0123456789abcdef0123456789abcdef01234567", ManifestDigest: exampleDigest,
			Parameters: json.RawMessage(`{"path":"staging/api.yaml"}`), Changes: []FileChange{exampleChange()},
		}, "By the deploy workflow, when the desired state is in Git: the snapshot that auditors read. Drivers keep secrets "+
			"out of it: those that come with Lockstep refer to them, or redact what looks like one.",
			EmitterProgram),
		define(PathDomain, "", DeploymentSubmitted{
			DeploymentID: 11, Name: "#17", Namespace: "shop", URL: "https://git.example.com/shop/deploy/pulls/17", Status: "open",
		}, "By the deploy workflow, when a deployment has become something outside of Lockstep, such as a pull request or a workflow, and when "+
			"that changes. It may precede the passage into the environment.", EmitterProgram),
		define(PathDomain, "", DeploymentProposed{
			RolloutID: 7, Name: "production", Repository: "https://git.example.com/shop/deploy", Branch: "main", Paths: []string{"production/api.yaml"},
			Number: 17, State: "merged", Head: "0123456789abcdef0123456789abcdef01234567", Commit: "89abcdef0123456789abcdef0123456789abcdef",
			By: "ann", ByID: 4,
		}, "By the engine, with the answer of a Function that has made or read the proposal of a rollout, whenever that has changed. A pull request "+
			"that people close before the passage rejects the rollout; one that they merge approves it, if the member may approve.", EmitterEngine),
		define(PathDomain, "", DeploymentNudged{RolloutID: 7, DeploymentID: 11, Watch: "deployment/11"},
			"By the domain service, when a caller reports that what a deployment is outside of Lockstep has changed. The deploy workflow looks at it.",
			EmitterDomain),
		define(PathDomain, "", DeploymentGateReached{DeploymentID: 11, Weight: 25},
			"By the deploy workflow, when a service has reached a gate.", EmitterProgram),
		define(PathDomain, "", DeploymentAdvance{DeploymentID: 11, Weight: 25}, "By the deploy workflow, when a service may pass the gate.",
			EmitterProgram),
		define(PathDomain, "", DeploymentHealthy{DeploymentID: 11},
			"By the deploy workflow, when a service is healthy with the new version at full weight.", EmitterProgram),
		define(PathDomain, "", DeploymentDegraded{DeploymentID: 11, Reason: "ProgressDeadlineExceeded"},
			"By the deploy workflow, when the new version of a service is degraded. The canary is left as it is.", EmitterProgram),
		define(PathDomain, "", DeploymentFailed{DeploymentID: 11, Reason: "no status within 10m0s"},
			"By the deploy workflow, when a service could not be deployed, or was not healthy in time.", EmitterProgram),
	}
}

func readinessEvents() []Definition {
	return []Definition{
		define(PathDomain, "", EnvironmentReady{EnvironmentID: 3}, "By the onboarding workflow, when the environment has everything it needs.",
			EmitterProgram),
		define(PathDomain, "", EnvironmentNotReady{EnvironmentID: 3, Reason: "argo-rollouts controller not found"},
			"By the onboarding workflow, when something is missing.", EmitterProgram),
		define(PathDomain, "", ApplicationEnvironmentReady{
			ApplicationEnvironmentID: 5, RolloutName: "api", RolloutNamespace: "shop",
			Discovered: json.RawMessage(`{"services":{"api":{"rollout_name":"api","rollout_namespace":"shop"}}}`),
		}, "By the setup workflow, when the manifests of an application match its services.", EmitterProgram),
		define(PathDomain, "", ApplicationEnvironmentNotReady{ApplicationEnvironmentID: 5, Reason: "container mismatch"},
			"By the setup workflow, when the manifests of an application do not match its services.", EmitterProgram),
	}
}

func observedEvents() []Definition {
	return []Definition{
		define(PathDomain, "", ServiceHealthObserved{
			ServiceID: 4, EnvironmentID: 3, Health: "degraded", Reason: "ProgressDeadlineExceeded", ObservedAt: "2026-03-25T10:00:00Z",
		}, "By the workflow service, when the observed health of a service in an environment has changed, with or without a rollout. "+
			"It never reopens a deployment.", EmitterObserver),
		define(PathDomain, "", ApplicationEnvironmentReconciled{
			ApplicationEnvironmentID: 5, Revision: "89abcdef0123456789abcdef0123456789abcdef",
			ExpectedRevision: "0123456789abcdef0123456789abcdef01234567",
			Automatic:        true, Drift: "automated sync is on", ObservedAt: "2026-03-25T10:00:00Z",
			Objects: []DriftedObject{{Kind: "Application", Namespace: "argocd", Name: "shop-production", How: "different", Detail: "automated sync is on"}},
		}, "By the workflow service, when the commit in effect for an application in an environment has changed. It shows drift.",
			EmitterObserver),
		define(PathDomain, "", EnvironmentPlacesChanged{
			EnvironmentID: 3, Name: "production", ApplicationID: 2, Sequence: 1774432800000000, Protected: true, Archived: true,
			Places: examplePlaces(),
		}, "By the domain service, when what belongs to an environment or its protection has changed, and again from time to time. The "+
			"workflow service refuses calls that change a protected environment and belong to no rollout.", EmitterDomain),
		define(PathDomain, "", EnvironmentContactChanged{
			EnvironmentID: 3, Reachable: false, Reason: "agent 42 is offline", ObservedAt: "2026-03-25T10:00:00Z",
		}, "By the workflow service, from heartbeats, when the agent of an environment, or its cluster, has become unreachable or reachable.",
			EmitterObserver),
	}
}

func approvalEvents() []Definition {
	return []Definition{
		define(PathDomain, "", ApprovalRequested{
			RolloutID: 7, GateID: "production/approval", EnvironmentID: 3, Weight: 50, Reason: "production needs a release manager",
		}, "By the deploy workflow, when it needs an approval to continue.", EmitterProgram),
		define(PathDomain, "", ApprovalResolved{
			RolloutID: 7, GateID: "production/approval", Resolution: "approved", PrincipalType: "user", PrincipalID: 1, Reason: "looks good",
		}, "By the domain service, when a gate has been approved or rejected. The deploy workflow waits for it.", EmitterDomain),
		define(PathDomain, "", PullRequestRead{
			PullRequestID: 3, Run: 1, State: "open", Into: "main", Head: "9fceb02d0ae598e95dc970b74767f19372d61af8", Message: "Two replicas",
			Refused: "it comes from a fork", Paths: []string{"deploy/api.yaml"}, More: true, Resources: []string{"changed Deployment shop/api"},
			Rendered:   []RenderedChange{{ApplicationID: 2, Environment: "staging", Resources: []string{"changed Deployment shop/api"}}},
			Unrendered: 1,
		}, "By the program that reads a pull request for the domain service. It is planned from that.", EmitterProgram),
		define(PathDomain, "", CheckReported{
			CheckRunID: 9, Phase: "pending", Description: "metric errors is inconclusive", Asks: true, Link: "https://metrics.example.com/errors",
			Environments: []CheckedEnvironment{{Environment: "staging", Phase: "success"}, {Environment: "production", Phase: "pending"}},
			Output:       json.RawMessage(`{"approvers":2}`),
		}, "By the program of a check, whenever what it has found out changes.", EmitterProgram),
		define(PathDomain, "", CheckNudged{CheckRunID: 9},
			"By the domain service, when a caller asks for a check to be evaluated now. The program of the check may wait for it.", EmitterDomain),
	}
}

func policyEvents() []Definition {
	return []Definition{
		define(PathDomain, "", PolicySetChanged{
			Name: "calls", Version: 3, Mode: "enforce", TimeZone: "Europe/Berlin", ApplicationID: 2, EnvironmentID: 3,
			Text: "@id(\"all\")\npermit (principal, action == Action::\"function.call\", resource);\n",
		}, "By the domain service, when a policy set that is about calls of Functions, or was, has a new version. The workflow service decides "+
			"about calls by it.", EmitterDomain),
		define(PathDomain, "", CallDecided{
			WorkflowID: "rollout-7", CallID: "0197f3/0.4!1", Function: "http.request", State: "pending", Policy: "calls/payments",
			Reason: "policy calls/payments requires 1 of the group \"finance\" to approve", Group: "finance", Quorum: 1, RequesterMay: true,
			ExpiresAt: "2026-03-26T10:00:00Z", Decision: []byte(`{"verdict":"needs_approval"}`), Request: []byte(`{"function":"http.request"}`),
		}, "By the engine, when policies deny a call of a Function or require an approval for it, and when such a request has come to an end.",
			EmitterEngine),
		define(PathDomain, "", CallAnswered{WorkflowID: "rollout-7", CallID: "0197f3/0.4!1", Approved: true, Reason: "as agreed"},
			"By the domain service, when people have answered the request for an approval of a call. The engine decides again.", EmitterDomain),
		define(PathDomain, "", CredentialChanged{
			Name: "api", Sequence: 1774515600000000, Version: 2, Kind: "http", URLPrefixes: []string{"https://api.example.com/v1"}, Username: "deploy",
			Header: "X-Api-Key", Forge: "gitlab", Reference: "vault:secret/data/shop/api#token", Sealed: []byte{1, 2, 3}, Revoked: true,
		}, "By the domain service, when a credential was made, rotated or revoked, and again from time to time. The workflow service keeps it for "+
			"the calls of programs.", EmitterDomain),
	}
}

func workflowEvents() []Definition {
	return []Definition{
		define(PathDomain, "", WorkflowCompleted{WorkflowID: "rollout-7"}, "By the engine, when a program has run to its end.", EmitterEngine),
		define(PathDomain, "", WorkflowFailed{WorkflowID: "rollout-7", Error: "deploy.star:12:5: fail: container mismatch"},
			"By the engine, when a run fails, whatever events the program has emitted.", EmitterEngine),
		define(PathDomain, "", WorkflowCancelled{WorkflowID: "rollout-7", Reason: "cancelled by user 1"},
			"By the engine, when a run has been cancelled.", EmitterEngine),
	}
}

func examplePlaces() []Place {
	return []Place{
		{AgentID: 42, Application: "argocd/shop", Namespace: "shop", Name: "api"},
		{Repository: "https://git.example.com/shop/deploy", Branch: "main", Path: "production"},
		{URL: "https://deploy.example.com/shop"},
	}
}

const exampleDigest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
