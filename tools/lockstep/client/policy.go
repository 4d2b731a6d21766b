package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// PolicySet is one version of a named set of policies.
type PolicySet struct {
	Name string `json:"name"`
	// Application or Environment is its scope; nil for both is the organization.
	Application *Reference `json:"application,omitempty"`
	Environment *Reference `json:"environment,omitempty"`
	// ApplicationLabels are those of the applications that it concerns; nil for another scope.
	ApplicationLabels map[string]string `json:"applicationLabels,omitempty"`
	Version           int               `json:"version"`
	// Mode is ENFORCE, DRY_RUN or OFF.
	Mode     string `json:"mode"`
	TimeZone string `json:"timeZone"`
	// Text are the policies, in Cedar.
	Text   string `json:"text"`
	Reason string `json:"reason"`
	// Author is what the author of the version was called then.
	Author    string    `json:"author"`
	CreatedAt time.Time `json:"createdAt"`
}

const policySetFields = `name application { id name } environment { id name } applicationLabels version mode timeZone text reason author createdAt`

// PolicyProblem is something about the text of a policy set.
type PolicyProblem struct {
	// Line and Column count from 1; nil where there is no place.
	Line    *int   `json:"line,omitempty"`
	Column  *int   `json:"column,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Message string `json:"message"`
}

// PolicyCheck is what is wrong with the text of a policy set.
type PolicyCheck struct {
	// Problems keep it from being stored; Warnings do not.
	Problems []PolicyProblem `json:"problems"`
	Warnings []PolicyProblem `json:"warnings"`
}

// PolicyRuling is what one policy decided.
type PolicyRuling struct {
	Set    string `json:"set"`
	Policy string `json:"policy,omitempty"`
	Line   *int   `json:"line,omitempty"`
	// Verdict is ALLOW, NEEDS_APPROVAL or DENY.
	Verdict string `json:"verdict"`
	// Sentence says it for people.
	Sentence string `json:"sentence"`
	Failed   bool   `json:"failed"`
	Given    bool   `json:"given"`
	DryRun   bool   `json:"dryRun"`
}

// PolicyDecision is what policies decided about a rollout, or about a change of a control.
type PolicyDecision struct {
	ID string `json:"id"`
	// Action is what was decided, such as environment.enter.
	Action string `json:"action"`
	// GateID is the passage; empty for the creation of the rollout.
	GateID string `json:"gateId,omitempty"`
	// Verdict is ALLOW, NEEDS_APPROVAL or DENY, and WouldBe what it would be with the sets that are tried out; empty where there are none.
	Verdict string `json:"verdict"`
	WouldBe string `json:"wouldBe,omitempty"`
	Summary string `json:"summary"`
	Digest  string `json:"digest"`
	// PinnedDigest is that of the policies that the rollout was created with, if they are others.
	PinnedDigest string          `json:"pinnedDigest,omitempty"`
	Rulings      []PolicyRuling  `json:"rulings"`
	Request      json.RawMessage `json:"request"`
	CreatedAt    time.Time       `json:"createdAt"`
}

const policyDecisionFields = `id action gateId verdict wouldBe summary digest pinnedDigest rulings { set policy line verdict sentence failed given dryRun } ` +
	`request createdAt`

// DecidedRollout is what a decision of policies is about.
type DecidedRollout struct {
	ID string `json:"id"`
}

// PolicyDifference is a decision that would have been different.
type PolicyDifference struct {
	Decision PolicyDecision  `json:"decision"`
	Rollout  *DecidedRollout `json:"rollout,omitempty"`
	Verdict  string          `json:"verdict"`
	Summary  string          `json:"summary"`
}

// PolicySimulation is what a simulation found.
type PolicySimulation struct {
	Evaluated      int                `json:"evaluated"`
	Truncated      bool               `json:"truncated"`
	DifferentCount int                `json:"differentCount"`
	Different      []PolicyDifference `json:"different"`
	// EvaluatedCalls counts the decisions about calls of Functions, and DifferentCalls are those that would have been different.
	EvaluatedCalls int `json:"evaluatedCalls"`
	// SampledCalls are how many of them all policies had permitted at once. Few of those are recorded, as a sample.
	SampledCalls       int              `json:"sampledCalls"`
	DifferentCallCount int              `json:"differentCallCount"`
	DifferentCalls     []CallDifference `json:"differentCalls"`
}

// CallDifference is a decision about a call that would have been different.
type CallDifference struct {
	CallRequest CallRequest `json:"callRequest"`
	Verdict     string      `json:"verdict"`
	Summary     string      `json:"summary"`
}

// PolicySetInput describes a version of a policy set.
type PolicySetInput struct {
	Name string
	// Application or Environment is the scope of a new set, by name or identifier; empty for the organization.
	Application, Environment string
	// Labels are those of the applications that a new set concerns; nil for another scope.
	Labels map[string]string
	// Text are the policies; empty for those of the latest version.
	Text string
	// Mode is ENFORCE, DRY_RUN or OFF; empty for that of the latest version.
	Mode, TimeZone string
	Reason         string
}

func (in PolicySetInput) fields() map[string]any {
	input := map[string]any{"name": in.Name, "text": in.Text, "timeZone": in.TimeZone}
	for field, value := range map[string]string{"application": in.Application, "environment": in.Environment} {
		if value != "" {
			input[field] = value
		}
	}
	if len(in.Labels) > 0 {
		input["applicationLabels"] = in.Labels
	}
	return input
}

// PolicySets lists all policy sets in their latest versions, by name.
func (c *Client) PolicySets(ctx context.Context) ([]PolicySet, error) {
	var data struct{ PolicySets []PolicySet }
	err := c.do(ctx, `{ policySets { `+policySetFields+` } }`, nil, &data)
	return data.PolicySets, err
}

// InstallationPolicySet is a policy set of the operator.
type InstallationPolicySet struct {
	Name string `json:"name"`
	// Mode is ENFORCE or DRY_RUN.
	Mode     string `json:"mode"`
	TimeZone string `json:"timeZone"`
	// Text are the policies, in Cedar.
	Text string `json:"text"`
}

// InstallationPolicies lists the policy sets of the installation.
func (c *Client) InstallationPolicies(ctx context.Context) ([]InstallationPolicySet, error) {
	var data struct{ InstallationPolicies []InstallationPolicySet }
	err := c.do(ctx, `{ installationPolicies { name mode timeZone text } }`, nil, &data)
	return data.InstallationPolicies, err
}

// PolicySetVersions lists the versions of one set, the latest first; none for a name that is not taken.
func (c *Client) PolicySetVersions(ctx context.Context, name string) ([]PolicySet, error) {
	var data struct{ PolicySetVersions []PolicySet }
	err := c.do(ctx, `query($name: String!) { policySetVersions(name: $name) { `+policySetFields+` } }`, map[string]any{"name": name}, &data)
	return data.PolicySetVersions, err
}

// PutPolicySet adds a version of a policy set.
func (c *Client) PutPolicySet(ctx context.Context, in PolicySetInput) (PolicySet, error) {
	input := in.fields()
	input["reason"] = in.Reason
	if in.Mode != "" {
		input["mode"] = in.Mode
	}
	return change[PolicySet](ctx, c, "putPolicySet", "PutPolicySetInput", "policySet", policySetFields, input)
}

// CheckPolicies validates policies, and stores nothing.
func (c *Client) CheckPolicies(ctx context.Context, text string) (PolicyCheck, error) {
	var data struct{ CheckPolicies PolicyCheck }
	err := c.do(ctx, `query($text: String!) { checkPolicies(text: $text) { problems { line column policy message } `+
		`warnings { line column policy message } } }`, map[string]any{"text": text}, &data)
	return data.CheckPolicies, err
}

// PolicyDecision explains one decision: policydecision_7.
func (c *Client) PolicyDecision(ctx context.Context, id string) (PolicyDecision, error) {
	var data struct{ PolicyDecision PolicyDecision }
	err := c.do(ctx, `query($id: ID!) { policyDecision(id: $id) { `+policyDecisionFields+` } }`, map[string]any{"id": id}, &data)
	return data.PolicyDecision, err
}

// ControlDecisions are what policies decided about changes of controls, the latest first.
func (c *Client) ControlDecisions(ctx context.Context) ([]PolicyDecision, error) {
	var data struct{ ControlDecisions []PolicyDecision }
	err := c.do(ctx, `{ controlDecisions { `+policyDecisionFields+` } }`, nil, &data)
	return data.ControlDecisions, err
}

// SimulatePolicies decides again what was decided since an instant.
func (c *Client) SimulatePolicies(ctx context.Context, in PolicySetInput, since time.Time) (PolicySimulation, error) {
	input := in.fields()
	input["since"] = since
	var data struct{ SimulatePolicies PolicySimulation }
	err := c.do(ctx, `query($input: SimulatePoliciesInput!) { simulatePolicies(input: $input) { evaluated truncated differentCount `+
		`different { decision { `+policyDecisionFields+` } rollout { id } verdict summary } evaluatedCalls sampledCalls differentCallCount `+
		`differentCalls { callRequest { `+callRequestFields+` } verdict summary } } }`, map[string]any{"input": input}, &data)
	return data.SimulatePolicies, err
}

// CallRequest is a call of a Function that policies did not permit at once.
type CallRequest struct {
	ID string `json:"id"`
	// State is DENIED, PENDING, APPROVED, PERMITTED, REFUSED, EXPIRED or WITHDRAWN.
	State      string `json:"state"`
	Function   string `json:"function"`
	WorkflowID string `json:"workflowId"`
	// Rollout is that of the run; nil for other runs.
	Rollout *DecidedRollout `json:"rollout,omitempty"`
	Policy  string          `json:"policy"`
	Reason  string          `json:"reason"`
	// Group is whose members may approve it; empty for everybody who may approve. Quorum is how many have to, 0 for a call that was denied.
	Group     string       `json:"group,omitempty"`
	Quorum    int          `json:"quorum"`
	ExpiresAt *time.Time   `json:"expiresAt,omitempty"`
	Answers   []CallAnswer `json:"answers"`
	Verdict   string       `json:"verdict"`
	// WouldBe is the verdict if the policies that are tried out counted; empty if none is.
	WouldBe   string          `json:"wouldBe,omitempty"`
	Digest    string          `json:"digest"`
	Rulings   []PolicyRuling  `json:"rulings"`
	Request   json.RawMessage `json:"request"`
	CreatedAt time.Time       `json:"createdAt"`
}

// CallAnswer is the answer of a member.
type CallAnswer struct {
	Approves bool      `json:"approves"`
	Reason   string    `json:"reason"`
	Author   string    `json:"author"`
	At       time.Time `json:"at"`
}

const callRequestFields = `id state function workflowId rollout { id } policy reason group quorum expiresAt ` +
	`answers { approves reason author at } verdict wouldBe digest rulings { set policy line verdict sentence failed given dryRun } request createdAt`

// CallRequests are the latest first: those that wait for an approval, or all.
func (c *Client) CallRequests(ctx context.Context, pending bool) ([]CallRequest, error) {
	var data struct{ CallRequests []CallRequest }
	err := c.do(ctx, `query($pending: Boolean) { callRequests(pending: $pending) { `+callRequestFields+` } }`,
		map[string]any{"pending": pending}, &data)
	return data.CallRequests, err
}

// CallRequest explains one: callrequest_7.
func (c *Client) CallRequest(ctx context.Context, id string) (CallRequest, error) {
	var data struct{ CallRequest *CallRequest }
	err := c.do(ctx, `query($id: ID!) { callRequest(id: $id) { `+callRequestFields+` } }`, map[string]any{"id": id}, &data)
	if err == nil && data.CallRequest == nil {
		return CallRequest{}, fault.New(fault.NotFound, "%s does not exist", id)
	}
	if err != nil {
		return CallRequest{}, err
	}
	return *data.CallRequest, nil
}

// AnswerCall approves or refuses one.
func (c *Client) AnswerCall(ctx context.Context, id string, approve bool, reason string) (CallRequest, error) {
	return change[CallRequest](ctx, c, "answerCall", "AnswerCallInput", "callRequest", callRequestFields,
		map[string]any{"callRequestId": id, "approve": approve, "reason": reason})
}
