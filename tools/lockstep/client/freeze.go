package client

import (
	"context"
	"strings"
	"time"
)

// Freeze is a time in which rollouts stop at their next passage within a scope.
type Freeze struct {
	ID string `json:"id"`
	// Tiers, Environments and Applications are the scope; an empty list limits nothing.
	Tiers        []string    `json:"tiers"`
	Environments []Reference `json:"environments"`
	Applications []Reference `json:"applications"`
	// EnvironmentLabels and ApplicationLabels are those that environments and applications have to have; nil for any.
	EnvironmentLabels map[string]string `json:"environmentLabels,omitempty"`
	ApplicationLabels map[string]string `json:"applicationLabels,omitempty"`
	// Rollbacks reports whether it stops rollbacks, too.
	Rollbacks bool   `json:"rollbacks"`
	Reason    string `json:"reason"`
	// Incident is what the incident is called that it is for; empty for none.
	Incident string `json:"incident,omitempty"`
	// Author is what the author was called then.
	Author   string    `json:"author"`
	StartsAt time.Time `json:"startsAt"`
	EndsAt   time.Time `json:"endsAt"`
	// EndedAt is when it was ended early; nil if it was not.
	EndedAt *time.Time `json:"endedAt,omitempty"`
	// InForce reports whether it stops rollouts now, and StoppedRollouts how many wait for its end.
	InForce         bool `json:"inForce"`
	StoppedRollouts int  `json:"stoppedRollouts"`
}

const freezeFields = `id tiers environments { id name } applications { id name } environmentLabels applicationLabels rollbacks reason incident ` +
	`author startsAt endsAt endedAt inForce stoppedRollouts`

// FreezeInput describes a freeze to start.
type FreezeInput struct {
	// Tiers are DEVELOPMENT, QA, STAGING and PRODUCTION; Environments and Applications are names or identifiers.
	Tiers, Environments, Applications []string
	// EnvironmentLabels and ApplicationLabels are those that environments and applications have to have; nil for any.
	EnvironmentLabels, ApplicationLabels map[string]string
	Rollbacks                            bool
	Reason                               string
	// Incident is what the incident is called that it is for; empty for none.
	Incident string
	// StartsAt is when it begins; the zero value is now.
	StartsAt, EndsAt time.Time
}

// Freezes lists freezes, newest first: those that are in force or to come, or with over all of them.
func (c *Client) Freezes(ctx context.Context, over bool) ([]Freeze, error) {
	return all(0, func(first int, after *string) (connection[Freeze], error) {
		var data struct{ Freezes connection[Freeze] }
		err := c.do(ctx, `query($first: Int!, $after: String, $over: Boolean!) { freezes(first: $first, after: $after, includeOver: $over) { nodes { `+
			freezeFields+` } `+pageInfo+` } }`, map[string]any{"first": first, "after": after, "over": over}, &data)
		return data.Freezes, err
	})
}

// StartFreeze starts a freeze.
func (c *Client) StartFreeze(ctx context.Context, in FreezeInput) (Freeze, error) {
	input := map[string]any{"reason": in.Reason, "endsAt": in.EndsAt, "rollbacks": in.Rollbacks}
	for field, names := range map[string][]string{"tiers": in.Tiers, "environments": in.Environments, "applications": in.Applications} {
		if len(names) > 0 {
			input[field] = names
		}
	}
	for field, labels := range map[string]map[string]string{"environmentLabels": in.EnvironmentLabels, "applicationLabels": in.ApplicationLabels} {
		if labels != nil { // empty ones as well: the answer says that they ask of nothing
			input[field] = labels
		}
	}
	if in.Incident != "" {
		input["incident"] = in.Incident
	}
	if !in.StartsAt.IsZero() {
		input["startsAt"] = in.StartsAt
	}
	return change[Freeze](ctx, c, "startFreeze", "StartFreezeInput", "freeze", freezeFields, input)
}

// ExtendFreeze chooses a later end for a freeze.
func (c *Client) ExtendFreeze(ctx context.Context, freeze string, end time.Time, reason string) (Freeze, error) {
	return change[Freeze](ctx, c, "extendFreeze", "ExtendFreezeInput", "freeze", freezeFields,
		map[string]any{"freezeId": freeze, "endsAt": end, "reason": reason})
}

// EndFreeze ends a freeze before its time.
func (c *Client) EndFreeze(ctx context.Context, freeze, reason string) (Freeze, error) {
	return change[Freeze](ctx, c, "endFreeze", "EndFreezeInput", "freeze", freezeFields,
		map[string]any{"freezeId": freeze, "reason": reason})
}

// BypassFreeze lets a rollout past the freezes that stop it now.
func (c *Client) BypassFreeze(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "bypassFreeze", "BypassFreezeInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// Veto keeps a version or a version set from being deployed.
type Veto struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	// Author is what the author was called then.
	Author    string    `json:"author"`
	CreatedAt time.Time `json:"createdAt"`
	// LiftedAt is when it was lifted; nil while it holds.
	LiftedAt *time.Time `json:"liftedAt,omitempty"`
}

const vetoFields = `id reason author createdAt liftedAt`

// VetoVersion vetoes a version, version_7, or a version set, versionset_3.
func (c *Client) VetoVersion(ctx context.Context, subject, reason string) (Veto, error) {
	field := "versionId"
	if strings.HasPrefix(subject, "versionset_") {
		field = "versionSetId"
	}
	return change[Veto](ctx, c, "vetoVersion", "VetoVersionInput", "veto", vetoFields, map[string]any{field: subject, "reason": reason})
}

// LiftVeto lifts a veto.
func (c *Client) LiftVeto(ctx context.Context, veto, reason string) (Veto, error) {
	return change[Veto](ctx, c, "liftVeto", "LiftVetoInput", "veto", vetoFields, map[string]any{"vetoId": veto, "reason": reason})
}

// PinEnvironment keeps automation from changing what runs in an environment.
func (c *Client) PinEnvironment(ctx context.Context, environment, reason string) (Environment, error) {
	return change[Environment](ctx, c, "pinEnvironment", "PinEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "reason": reason})
}

// UnpinEnvironment ends that.
func (c *Client) UnpinEnvironment(ctx context.Context, environment, reason string) (Environment, error) {
	return change[Environment](ctx, c, "unpinEnvironment", "UnpinEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "reason": reason})
}

// CheckReport is a status that was reported about a check.
type CheckReport struct {
	Key string `json:"key"`
	// Phase is PENDING, SUCCESS or FAILURE.
	Phase       string    `json:"phase"`
	Description string    `json:"description,omitempty"`
	Link        string    `json:"link,omitempty"`
	Application Reference `json:"application"`
	Environment Reference `json:"environment"`
	VersionSet  Reference `json:"versionSet"`
	// Reporter is what the reporter was called then.
	Reporter   string    `json:"reporter"`
	ReportedAt time.Time `json:"reportedAt"`
	// ObservedAt is when the reporter found it out.
	ObservedAt time.Time `json:"observedAt"`
}

// CheckInput describes a status to report.
type CheckInput struct {
	// Application and Environment are names or identifiers.
	Application, Environment string
	// VersionSet, Commit or Digest is what it is about.
	VersionSet, Commit, Digest string
	Key                        string
	// Phase is PENDING, SUCCESS or FAILURE.
	Phase             string
	Description, Link string
	// ObservedAt is when the reporter found it out; zero for now.
	ObservedAt time.Time
}

// ReportCheck reports the status of a check.
func (c *Client) ReportCheck(ctx context.Context, in CheckInput) (CheckReport, error) {
	input := map[string]any{
		"application": in.Application, "environment": in.Environment, "key": in.Key, "phase": in.Phase, "description": in.Description, "link": in.Link,
	}
	for field, value := range map[string]string{"versionSetId": in.VersionSet, "commit": in.Commit, "digest": in.Digest} {
		if value != "" {
			input[field] = value
		}
	}
	if !in.ObservedAt.IsZero() {
		input["observedAt"] = in.ObservedAt
	}
	return change[CheckReport](ctx, c, "reportCheck", "ReportCheckInput", "report", reportFields, input)
}

// CheckKind is a kind of checks whose program decides, in one major version.
type CheckKind struct {
	// Ref is name@major.
	Ref         string `json:"ref"`
	Description string `json:"description"`
	Digest      string `json:"digest"`
	// Origin is built-in, folder, or the reference of an OCI artifact.
	Origin         string `json:"origin"`
	ArtifactDigest string `json:"artifactDigest,omitempty"`
	// Targets are ACTIVE and PROPOSED, or one of them.
	Targets []string `json:"targets"`
	// ConfigSchema is the JSON Schema of the configuration of a check.
	ConfigSchema any `json:"configSchema"`
}

// CheckKinds returns the kinds of checks that are installed and whose programs decide.
func (c *Client) CheckKinds(ctx context.Context) ([]CheckKind, error) {
	var data struct{ CheckKinds []CheckKind }
	err := c.do(ctx, `query { checkKinds { ref description digest origin artifactDigest targets configSchema } }`, nil, &data)
	return data.CheckKinds, err
}

// DecideCheck answers a check whose program asks a person. The environment is a name or an identifier, the phase SUCCESS or FAILURE.
func (c *Client) DecideCheck(ctx context.Context, rollout, environment, key, phase, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "decideCheck", "DecideCheckInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "environment": environment, "key": key, "phase": phase, "reason": reason})
}

// EvaluateCheck has a check of a rollout evaluated now, whose kind is a check kind. The environment is a name or an identifier.
func (c *Client) EvaluateCheck(ctx context.Context, rollout, environment, key string) (Rollout, error) {
	return change[Rollout](ctx, c, "evaluateCheck", "EvaluateCheckInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "environment": environment, "key": key})
}
