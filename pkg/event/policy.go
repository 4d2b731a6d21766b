package event

import "encoding/json"

// PolicySetChanged is com.gitlab.cd.policy_set.changed: a policy set of the organization, completely. Of events about the same set, that
// with the highest version counts.
type PolicySetChanged struct {
	// Name is that of the set.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=63"`
	// Version counts the versions of the set.
	Version int `json:"version" jsonschema:"minimum=1"`
	// Mode says whether the set counts.
	Mode string `json:"mode" jsonschema:"enum=enforce,enum=dry_run,enum=off"`
	// TimeZone is where the days and hours that its policies see are.
	TimeZone string `json:"time_zone" jsonschema:"minLength=1,maxLength=100"`
	// Text are its policies in Cedar; empty where none of them is about calls of Functions.
	Text string `json:"text" jsonschema:"maxLength=65536"`
	// ApplicationID is the application that the set is about; without it and environment_id, it is about the organization.
	ApplicationID int64 `json:"application_id,omitempty" jsonschema:"minimum=1"`
	// EnvironmentID is the environment that the set is about.
	EnvironmentID int64 `json:"environment_id,omitempty" jsonschema:"minimum=1"`
	// ApplicationLabels are the labels of the applications that the set is about.
	ApplicationLabels map[string]string `json:"application_labels,omitempty"`
}

// CallDecided is com.gitlab.cd.call.decided: policies have denied a call of a Function, or require an approval for it, or what was
// requested has come to an end.
type CallDecided struct {
	// WorkflowID is the run that calls the Function.
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
	// CallID identifies the decision. An answer names it.
	CallID string `json:"call_id" jsonschema:"minLength=1,maxLength=500"`
	// Function is what the program calls.
	Function string `json:"function" jsonschema:"minLength=1,maxLength=300"`
	// State is the outcome of the call: it was denied, an approval is pending, or was given or refused, or did not come in time.
	State string `json:"state" jsonschema:"enum=denied,enum=pending,enum=permitted,enum=refused,enum=expired"`
	// Policy is the name of the policy that has decided, with its set.
	Policy string `json:"policy,omitempty"`
	// Sampled reports whether all policies permit the call, and it is one of the few that are reported nevertheless, for simulations.
	Sampled bool `json:"sampled,omitempty"`
	// Reason says what was decided and why.
	Reason string `json:"reason,omitempty"`
	// Group is whose members may give the approval; absent for everybody who may approve.
	Group string `json:"group,omitempty"`
	// Quorum is how many have to give it.
	Quorum int `json:"quorum,omitempty" jsonschema:"minimum=1"`
	// RequesterMay reports whether the person who requested the rollout may give it, too.
	RequesterMay bool `json:"requester_may,omitempty"`
	// ExpiresAt is when a pending request ends as refused.
	ExpiresAt string `json:"expires_at,omitempty" jsonschema:"format=date-time"`
	// Decision is what each policy decided.
	Decision json.RawMessage `json:"decision,omitempty" jsonschema:"type=object"`
	// Request is everything that the policies could ask of, without secrets.
	Request json.RawMessage `json:"request,omitempty" jsonschema:"type=object"`
}

// CallAnswered is com.gitlab.cd.call.answered: people have answered the request for an approval of a call.
type CallAnswered struct {
	// WorkflowID is the run that calls the Function.
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
	// CallID is that of the request.
	CallID string `json:"call_id" jsonschema:"minLength=1,maxLength=500"`
	// Approved is whether the call may be made, as far as people decide.
	Approved bool `json:"approved"`
	// Reason is what the last of them has given.
	Reason string `json:"reason,omitempty"`
}

// EventType implements Data.
func (PolicySetChanged) EventType() string { return TypePolicySetChanged }

// EventType implements Data.
func (CallDecided) EventType() string { return TypeCallDecided }

// EventType implements Data.
func (CallAnswered) EventType() string { return TypeCallAnswered }
