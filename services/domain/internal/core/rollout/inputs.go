package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

type deployInput struct {
	Rollout    rolloutInput    `json:"rollout"`
	VersionSet versionSetInput `json:"version_set"`
	Pipeline   json.RawMessage `json:"pipeline"`
}

type rolloutInput struct {
	ID             int64                     `json:"id"`
	OrganizationID int64                     `json:"organization_id"`
	Application    setup.Named               `json:"application"`
	Environments   []rolloutEnvironmentInput `json:"environments"`
	// URL is its page in the console, for people to follow. Rollouts of earlier releases, and those of an installation that does not know the
	// address of its console, have no such member.
	URL string `json:"url,omitempty"`
	// Passages reports whether the engine refuses changes of environments whose passage was not granted to the run (D46).
	// Rollouts of earlier releases have no such member, and end under the former protocol.
	Passages bool `json:"passages,omitempty"`
	// Retry reports whether an earlier rollout of the same versions may have left its deployments aborted.
	Retry bool `json:"retry,omitempty"`
	// PromoteFull reports whether no gate by weight holds it up (D14).
	PromoteFull bool `json:"promote_full,omitempty"`
	// Strategy is quick for a rollout that stops at no weight: then its pipeline has none, and the gates of its environments are none, or
	// have nothing to wait for (D59). Rollouts of earlier releases have no such member.
	Strategy planner.Strategy `json:"strategy,omitempty"`
	// Inputs are what the rollout was given when it was made (R4-09). Rollouts of earlier releases have no such member.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// Requester is who requested it, as policies about calls of Functions name principals.
	Requester *policy.Principal `json:"requester,omitempty"`
	// CallPolicies are the versions of the policy sets about calls, or that were about calls, that are in force: the engine decides by these
	// or later ones.
	CallPolicies map[string]int `json:"call_policies,omitempty"`
	// Labels are those that the application has now, which policies of groups select by.
	Labels map[string]string `json:"application_labels,omitempty"`
	// OnFailure is stop or abort; rollback is stop for the program, and the domain's business afterwards.
	OnFailure core.FailurePolicy `json:"on_failure,omitempty"`
}

type rolloutEnvironmentInput struct {
	setup.EnvironmentInput
	Position               int                         `json:"position"`
	ApplicationEnvironment applicationEnvironmentInput `json:"application_environment"`
	Gates                  []core.FlowGate             `json:"gates"`
	// ComparedCommit is the commit whose comparison has made the rollout a quick sync; empty for none.
	ComparedCommit string `json:"compared_commit,omitempty"`
	// SkippedGates are those that a quick sync skips: their approvals are needed at the entrance.
	SkippedGates []core.FlowGate   `json:"skipped_gates,omitempty"`
	Approval     *core.Approval    `json:"approval"`
	Deployments  []deploymentInput `json:"deployments"`
	// RunsJobs reports whether nothing is deployed: the jobs of a runbook run in the environment, with the versions of Services.
	RunsJobs bool          `json:"runs_jobs,omitempty"`
	Services []servedInput `json:"services,omitempty"`
	// JobNamespace is the namespace of jobs that name none, empty if there is none; no member if the driver does not declare it.
	JobNamespace *string `json:"job_namespace,omitempty"`
	// Fleet are the targets of an environment of many clusters (D61).
	Fleet *fleetInput `json:"fleet,omitempty"`
}

// fleetInput are the targets of an environment, wave by wave.
type fleetInput struct {
	Waves [][]fleet.Target `json:"waves"`
	// Agents are the members of the environment's configuration that name its agent.
	Agents []string `json:"agents"`
	// Deadline is how long one target may take, in seconds.
	Deadline int `json:"deadline"`
}

// servedInput are the versions of a service that jobs of a runbook may run.
type servedInput struct {
	Service  setup.Named    `json:"service"`
	Versions []versionInput `json:"versions"`
}

type applicationEnvironmentInput struct {
	ID         int64           `json:"id"`
	Config     json.RawMessage `json:"config"`
	Discovered json.RawMessage `json:"discovered"`
}

type deploymentInput struct {
	ID       int64          `json:"id"`
	Service  setup.Named    `json:"service"`
	Versions []versionInput `json:"versions"`
	// Before are the versions of the service in the version set that was live there when the rollout was made, for people to read; none if
	// nothing was, in a preview, and in rollouts of earlier releases.
	Before []versionInput `json:"before,omitempty"`
	// Last is with what the service was deployed that is live there; only of a preview.
	Last *lastInput `json:"last,omitempty"`
}

// lastInput is the snapshot of a deployment. Parameters are as its driver has recorded them; none if they are too large to be passed on.
type lastInput struct {
	DeploymentID   int64           `json:"deployment_id"`
	RolloutID      int64           `json:"rollout_id"`
	ManifestDigest string          `json:"manifest_digest"`
	Parameters     json.RawMessage `json:"parameters,omitempty"`
}

type versionSetInput struct {
	ID       int64          `json:"id"`
	Name     string         `json:"name"`
	Versions []versionInput `json:"versions"`
}

type versionInput struct {
	ArtifactSourceID int64  `json:"artifact_source_id"`
	Name             string `json:"name"`
	Digest           string `json:"digest"`
	Reference        string `json:"reference"`
	Image            string `json:"image"`
}

// checkInput is what the program of a check is started with.
type checkInput struct {
	Check   checkedInput    `json:"check"`
	Config  json.RawMessage `json:"config"`
	Subject subjectInput    `json:"subject"`
}

type checkedInput struct {
	// RunID is what the program names in its reports.
	RunID  int64            `json:"run_id"`
	Key    string           `json:"key"`
	Kind   core.CheckKind   `json:"kind"`
	Target core.CheckTarget `json:"target"`
	// Number counts the runs of the check, from 1.
	Number int `json:"number"`
	// Before are the phases of environments that the latest run of the same check of the rollout has found out (R3-44). A run that was asked
	// for begins without them.
	Before []checkedBefore `json:"before"`
	// Elsewhere is what the latest runs of the same check in other environments of the rollout have reported when the run begins; the latest
	// report comes last.
	Elsewhere []checkedElsewhere `json:"elsewhere"`
}

type checkedElsewhere struct {
	Environment string          `json:"environment"`
	Phase       core.CheckPhase `json:"phase"`
	// Output is what its program has reported for others; {} for nothing.
	Output json.RawMessage `json:"output"`
	// Omitted reports whether there is an output that is not shown, since those of later reports are large.
	Omitted bool `json:"omitted,omitempty"`
}

type checkedBefore struct {
	Environment string          `json:"environment"`
	Phase       core.CheckPhase `json:"phase"`
}

type subjectInput struct {
	Application setup.Named     `json:"application"`
	Environment environmentSeen `json:"environment"`
	// Environments are those of the rollout, in the order of promotion.
	Environments []environmentSeen `json:"environments"`
	Rollout      checkedRollout    `json:"rollout"`
	// Inputs are what the rollout was given when it was made.
	Inputs     json.RawMessage `json:"inputs"`
	VersionSet versionSetInput `json:"version_set"`
	// Commits are those that have brought the version set to the environment; none before anything was committed.
	Commits []string `json:"commits"`
	// Repositories are those that the rollout may commit to for the environment, as it has pinned them.
	Repositories []string `json:"repositories"`
	// Sources are what the versions were built from, by their attestations; of a version without one there is none.
	Sources []sourceInput `json:"sources"`
	// Live is what was live in the environment before the rollout; nil if nothing was, or if the check is not about what would enter it.
	Live *liveInput `json:"live,omitempty"`
}

type checkedRollout struct {
	ID int64 `json:"id"`
	// Rollback reports whether it takes another rollout back, to what has run in the environment before.
	Rollback bool `json:"rollback,omitempty"`
}

type liveInput struct {
	VersionSet versionSetInput `json:"version_set"`
	Sources    []sourceInput   `json:"sources"`
}

// sourceInput is the source of a version, by name.
type sourceInput struct {
	Version    string `json:"version"`
	Repository string `json:"repository"`
	Revision   string `json:"revision"`
}

type environmentSeen struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	Tier string `json:"tier"`
	// VersionSetID is the one before the rollout; 0 for none.
	VersionSetID int64 `json:"version_set_id"`
	// Agents are the numbers of those of its clusters, as the rollout has pinned them; only of the environment that the check is about.
	Agents []int64 `json:"agents,omitempty"`
}

func describeVersion(v core.Version) versionInput {
	image, _, _ := strings.Cut(v.Reference, "@")
	return versionInput{ArtifactSourceID: v.ArtifactSourceID, Name: v.Name, Digest: v.Digest, Reference: v.Reference, Image: image}
}

// forCalls adds to the inputs of a rollout's run what policies about its calls may ask of, and which of them are in force.
func (u *UseCases) forCalls(ctx context.Context, tx Tx, c cause, p plan, in *rolloutInput) error {
	requester := c.Actor
	if c.ID != 0 {
		var err error
		if requester.Groups, err = tx.MemberGroups(ctx, c.ID); err != nil {
			return err
		}
	}
	principal := core.PolicyPrincipal(requester)
	in.Requester = &principal
	of := core.Detailed{Kind: core.ChangedApplication, ID: p.application.ID}
	details, err := tx.Details(ctx, c.Organization, []core.Detailed{of})
	if err != nil {
		return err
	}
	in.Labels = details[of].Labels
	concerning, err := tx.PoliciesConcerning(ctx, p.application.ID, 0)
	if err != nil {
		return err
	}
	// Also those that are off by now: the engine may not have heard of that yet, and would deny by the version before.
	sent, err := tx.SentPolicies(ctx, p.application.ID)
	if err != nil {
		return err
	}
	needs := func(s core.PolicySet) {
		if s.EnvironmentID != 0 && !slices.ContainsFunc(p.stops, func(one stop) bool { return one.environment.ID == s.EnvironmentID }) {
			return
		}
		if in.CallPolicies == nil {
			in.CallPolicies = map[string]int{}
		}
		in.CallPolicies[s.Name] = max(in.CallPolicies[s.Name], s.Version)
	}
	for _, s := range sent {
		needs(s)
	}
	for _, s := range concerning {
		if s.Latest && !s.Installation && s.Mode != core.PolicyOff && u.policies.AboutCalls(s.PolicySet) {
			needs(s.PolicySet)
		}
	}
	return nil
}

// giveInputs finds the inputs of the rollout (R4-09). A new one is given them. A retry has those of the rollout that it repeats, which have
// to fit the pipeline of today. What goes back, and what deploys again what is live, has the inputs with which it was deployed last
// where the rollout ends, as they were recorded: no change of a pipeline since keeps a rollback from beginning, and who may deploy only to
// the environments before decides nothing about the last one. What has never been there has the defaults.
func (p *plan) giveInputs(ctx context.Context, tx Tx, w wish) (err error) {
	returns := p.back != nil && (!p.back.forward || p.back.repair)
	switch {
	case returns:
		recorded := w.repeats.Inputs
		if w.repeats.ID == 0 {
			if recorded, err = tx.RecordedInputs(ctx, p.versionSet.ID, p.stops[len(p.stops)-1].environment.ID); err != nil {
				return err
			}
		}
		p.inputs, err = p.flow.KeepInputs(recorded)
	case w.commit != nil && !w.triggered: // its requester gives them
	case w.repeats.ID != 0:
		if p.inputs, err = p.flow.Inputs(w.repeats.Inputs); err != nil {
			return fault.Because(err, fault.Refused, "the inputs of rollout_%d do not fit the pipeline, which has changed since: %s; create a rollout "+
				"with others", w.repeats.ID, fault.Public(err))
		}
	default:
		p.inputs, err = p.flow.Inputs(w.inputs)
	}
	return err
}

// givesInputs reports whether a value is given for any input; a null is none.
func givesInputs(inputs json.RawMessage) bool {
	var members map[string]json.RawMessage
	if len(inputs) == 0 || json.Unmarshal(inputs, &members) != nil { // what is no object was refused
		return false
	}
	for _, value := range members {
		if string(value) != "null" {
			return true
		}
	}
	return false
}

// CheckInputs checks inputs against the latest pipeline of an application; an application without a pipeline accepts any. The error is
// Invalid, its fields JSON pointers that begin with /inputs.
func (u *UseCases) CheckInputs(ctx context.Context, tx Tx, organization, application int64, inputs json.RawMessage) error {
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{application})
	if err != nil {
		return err
	}
	definition, exists := latest[application]
	if !exists {
		return nil
	}
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	_, err = flow.Inputs(inputs)
	return err
}

// shownInputs is how much of the inputs the journal repeats, in bytes; the rollout has all of them.
const shownInputs = 2000

// inputWords are the inputs for the journal; empty for none.
func (p plan) inputWords() string {
	if len(p.inputs) == 0 || string(p.inputs) == "{}" {
		return ""
	}
	if len(p.inputs) > shownInputs {
		return fmt.Sprintf("; inputs: %d bytes of JSON, SHA-256 %x", len(p.inputs), sha256.Sum256(p.inputs))
	}
	return "; inputs: " + string(p.inputs)
}
