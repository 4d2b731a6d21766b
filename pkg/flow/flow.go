// Package flow is the flow definition: the pipeline that an application's versions go through, in one shape for every
// pipeline and every driver (E50, R34). It parses and checks definitions. It knows no driver: a deploy step's config belongs to the driver,
// which also declares the step types that it supports (E33).
package flow

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/cron"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// MaxBytes bounds the text of a definition.
const MaxBytes = 1 << 20

// The step types. A new type is compatible: a driver opts in by naming it in its manifest.
const (
	// Deploy brings every service of the application to one environment.
	Deploy StepType = "deploy"
	// Pause waits for a while.
	Pause StepType = "pause"
	// Approve waits for approvals.
	Approve StepType = "approval"
	// Analysis decides by measurements.
	Analysis StepType = "analysis"
	// RunJob runs a job in an environment (D54).
	RunJob StepType = "job"
)

// A StepType is what a step does.
type StepType string

// A Definition is a whole pipeline.
type Definition struct {
	// Checks are those of every environment.
	Checks Checks `json:"checks,omitzero"`
	// Deadline is how long a rollout may take, and RollbackDeadline a rollback; without it that is Deadline, too (D59).
	Deadline         *Deadline `json:"deadline,omitempty"`
	RollbackDeadline *Deadline `json:"rollback_deadline,omitempty"`
	// WorkDeadline is how long a rollout may be at work in an environment that has no deadline, in seconds: 0 for any time, and nil for
	// DefaultWork where the pipeline has no other deadline (R4-25).
	WorkDeadline *int `json:"work_deadline,omitempty"`
	// CommitMatcher and AlwaysUsePipeline say which rollouts stop at the weights (D59).
	CommitMatcher     CommitMatcher `json:"commitMatcher,omitzero"`
	AlwaysUsePipeline bool          `json:"alwaysUsePipeline,omitempty"`
	// CompareManifests is that the drivers say what changes, where nothing else decides (R4-19).
	CompareManifests bool `json:"compareManifests,omitempty"`
	// Inputs is the JSON Schema of what a rollout is given when it begins; nil for nothing (R4-09).
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// Steps are carried out in order.
	Steps []Step `json:"steps"`
}

// A CommitMatcher has regular expressions about the messages of commits; an empty one matches none.
type CommitMatcher struct {
	Pipeline  string `json:"pipeline,omitempty"`
	QuickSync string `json:"quickSync,omitempty"`
}

// Checks are conditions whose status people and systems report (D48).
type Checks struct {
	// Active are about what is in the environment, and guard the entrance to the next one.
	Active []Condition `json:"active,omitempty"`
	// Proposed are about what would enter the environment.
	Proposed []Condition `json:"proposed,omitempty"`
}

// A Condition is one check.
type Condition struct {
	// Key is what reports call it. A timer and a check of health have one by default.
	Key string `json:"key"`
	// Kind is "status", which is the default, "timer", "schedule", "health", or a check kind: its name, or its name and major.
	Kind string `json:"kind,omitempty"`
	// Duration is how long a timer runs, in seconds.
	Duration int `json:"duration,omitempty"`
	// InSync is whether a check of health also waits until nothing differs from what was deployed.
	InSync bool `json:"in_sync,omitempty"`
	// Schedule is when a schedule is open; nil for other kinds.
	Schedule *cron.Schedule `json:"schedule,omitempty"`
	// With is the configuration of a check of a check kind, or of the status that a forge reports; nil for an empty one.
	With json.RawMessage `json:"with,omitempty"`
}

// Program reports whether the program of a check kind decides.
func (c Condition) Program() bool {
	switch c.kind() {
	case "status", "timer", "schedule", "health":
		return false
	default:
		return true
	}
}

// A Step is one step of a pipeline. Which fields it has depends on its type; the others are zero.
type Step struct {
	// Type says what the step does.
	Type StepType `json:"type"`
	// Environment is the name of a deploy step's environment.
	Environment string `json:"environment,omitempty"`
	// Approval, if set, is required before a deploy step's first change.
	Approval *Approval `json:"approval,omitempty"`
	// Follows are the environments of earlier deploy steps whose active checks guard the entrance of this one; nil for that of the deploy
	// step before it.
	Follows []string `json:"follows,omitzero"`
	// Checks are those of a deploy step's environment, beside those of the definition.
	Checks Checks `json:"checks,omitzero"`
	// Gates are where all services of a deploy step stop and wait for each other; weights rise from gate to gate.
	Gates []Gate `json:"gates,omitempty"`
	// Deadline is how long a rollout may stay in a deploy step's environment.
	Deadline *Deadline `json:"deadline,omitempty"`
	// Before, After and OnFailure are the jobs of a deploy step, and Job is that of a job step (D54).
	Before    []Job `json:"before,omitempty"`
	After     []Job `json:"after,omitempty"`
	OnFailure []Job `json:"on_failure,omitempty"`
	Job       *Job  `json:"job,omitempty"`
	// Config belongs to the driver: in a deploy step it is the Application-Environment config, as the author wrote it.
	Config json.RawMessage `json:"config,omitempty"`
	// Name names a pause, approval or analysis step for people, and an approval step's gate.
	Name string `json:"name,omitempty"`
	// Reason is shown to the people who decide on an approval step.
	Reason string `json:"reason,omitempty"`
	// Duration is how long a pause step waits, in seconds.
	Duration int `json:"duration,omitempty"`
	// SkipOn is when a pause or an analysis is left out; nil for never.
	SkipOn *SkipOn `json:"skip_on,omitempty"`
	// Rules apply to an approval step.
	Rules
}

// A Deadline is how long something may take, and what happens afterwards.
type Deadline struct {
	// After is the time in seconds.
	After int `json:"after"`
	// OnExpiry is "fail", which is the default, or "abort".
	OnExpiry string `json:"on_expiry,omitempty"`
	// CountsWaiting is that time counts during which the rollout waits for people.
	CountsWaiting bool `json:"counts_waiting,omitempty"`
}

// A Job runs to its end in the cluster of an environment.
type Job struct {
	// Name is unique among the jobs of an environment.
	Name string `json:"name"`
	// Template makes the Kubernetes Job or the Argo Workflow.
	Template string `json:"template"`
	// Namespace is empty for the one that the application is deployed to.
	Namespace string `json:"namespace,omitempty"`
	// Delimiters and MissingKeys are how the template is read; empty for the defaults.
	Delimiters  string `json:"delimiters,omitempty"`
	MissingKeys string `json:"missing_keys,omitempty"`
	// Variables are values for the template.
	Variables map[string]string `json:"variables,omitempty"`
	// Deadline is how long an attempt may take, in seconds; 0 for the default.
	Deadline int `json:"deadline,omitempty"`
	// Retries is how often a failed job is repeated.
	Retries int `json:"retries,omitempty"`
	// SkipOn is when it is left out; nil for never.
	SkipOn *SkipOn `json:"skip_on,omitempty"`
}

// JobList are the jobs of a deploy step at one time.
type JobList struct {
	// Name is the member of the step that has them.
	Name string
	Jobs []Job
}

// JobLists are the jobs of a deploy step, in the order of its members.
func (s Step) JobLists() []JobList {
	return []JobList{{"before", s.Before}, {"after", s.After}, {"on_failure", s.OnFailure}}
}

// A Gate is a share of traffic at which every service stops.
type Gate struct {
	// Weight is the share in percent, 1 to 100.
	Weight int `json:"weight"`
	// SoakDuration is how long to wait after every service has reached the gate, in seconds.
	SoakDuration int `json:"soak_duration,omitempty"`
	// Approval, if set, is requested after the soak.
	Approval *Approval `json:"approval,omitempty"`
}

// An Approval asks people to agree (D24).
type Approval struct {
	// Reason is shown to the people who decide.
	Reason string `json:"reason,omitempty"`
	Rules
}

// Rules define who decides on a gate, and until when. The zero value is one person, of any group, without expiry.
type Rules struct {
	// Quorum is how many different people have to agree; 0 means 1.
	Quorum int `json:"quorum,omitempty"`
	// Group restricts who may decide; empty means anyone with the permission.
	Group string `json:"group,omitempty"`
	// RequesterMayApprove lets the requester of the rollout agree, too. Nil leaves it to the tier: not in production (D28).
	RequesterMayApprove *bool `json:"requester_may_approve,omitempty"`
	// ExpiresAfter is how long the approval stays open, in seconds; 0 means without limit.
	ExpiresAfter int `json:"expires_after,omitempty"`
	// OnExpiry is the outcome without an answer: "reject", which is the default, or "approve".
	OnExpiry string `json:"on_expiry,omitempty"`
}

// schemaText is the JSON Schema (draft 2020-12) of a definition.
//
//go:embed flow.json
var schemaText []byte

// compiled is the schema, compiled once. It is part of the build: any test finds a defect in it.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var compiled = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(schemaText) })

// Parse parses a definition and checks everything that does not depend on drivers and environments. The error is Invalid and has one field
// for each finding: its JSON pointer, what was found and what was expected.
func Parse(text []byte) (Definition, error) {
	if len(text) > MaxBytes {
		return Definition{}, fault.InvalidFields(fault.Field{Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(text), MaxBytes)})
	}
	s, err := compiled()
	if err != nil {
		return Definition{}, fmt.Errorf("compile the flow schema: %w", err)
	}
	if err := s.Validate(text); err != nil {
		return Definition{}, err
	}
	var def Definition
	if err := json.Unmarshal(text, &def); err != nil {
		// JSON Schema accepts 5.0 and 5e0 as whole numbers; everything else that it accepts fits the types here.
		return Definition{}, fault.InvalidFields(fault.Field{
			Name:    "/steps",
			Problem: "found a number with a fraction or an exponent; expected whole numbers written with digits only",
		})
	}
	for _, checks := range append([][]Condition{def.Checks.Active}, activeOf(def.Steps)...) {
		for i := range checks {
			checks[i].Key = cmp.Or(checks[i].Key, defaultKey[checks[i].Kind])
		}
	}
	if fields := structure(def); len(fields) > 0 {
		return Definition{}, fault.InvalidFields(fields...)
	}
	return def, nil
}

// defaultKey is the key of a check of a kind that has none of its own (R3-18, R3-20).
//
//nolint:gochecknoglobals // never written
var defaultKey = map[string]string{"timer": "timer", "health": "argocd-health"}

// activeOf are the active checks of each step.
func activeOf(steps []Step) [][]Condition {
	all := make([][]Condition, len(steps))
	for i, s := range steps {
		all[i] = s.Checks.Active
	}
	return all
}

// A Kind is a check kind that forms offer.
type Kind struct {
	// Name is what a check names it by.
	Name string
	// Targets are active and proposed, or one of them.
	Targets []string
	// Schema is that of the configuration.
	Schema json.RawMessage
}

// ChecksSchema is the JSON Schema of what ParseChecks accepts, with the check kinds that are installed, from which forms are made.
func ChecksSchema(kinds []Kind) (json.RawMessage, error) {
	whole, err := withKinds(kinds)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(object{"$schema": whole["$schema"], "$defs": whole["$defs"], "$ref": "#/$defs/checks"})
	if err != nil {
		return nil, fmt.Errorf("write the schema of checks: %w", err)
	}
	return text, nil
}

// DefinitionSchema is the JSON Schema of a definition, with the check kinds that are installed, from which forms are made.
func DefinitionSchema(kinds []Kind) (json.RawMessage, error) {
	whole, err := withKinds(kinds)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("write the schema of definitions: %w", err)
	}
	return text, nil
}

// withKinds are the members of the schema of a definition, whose checks are of the built-in kinds and of those that are given.
func withKinds(kinds []Kind) (map[string]json.RawMessage, error) {
	var whole, defs map[string]json.RawMessage
	if err := json.Unmarshal(schemaText, &whole); err != nil {
		return nil, fmt.Errorf("read the flow schema: %w", err)
	}
	if err := json.Unmarshal(whole["$defs"], &defs); err != nil {
		return nil, fmt.Errorf("read the definitions of the flow schema: %w", err)
	}
	for target, own := range map[string][]string{"active": {"timer", "health"}, "proposed": {"schedule"}} {
		names := append([]string{"status"}, own...)
		with := []any{
			object{"if": isOneOf(own), "then": object{"properties": object{"with": false}}},
			object{"if": isOneOf([]string{"status"}), "then": object{"properties": object{"with": defs["status_config"]}}},
		}
		for _, k := range kinds {
			if !slices.Contains(k.Targets, target) {
				continue
			}
			names = append(names, k.Name)
			with = append(with, object{"if": isOneOf([]string{k.Name}), "then": object{"properties": object{"with": k.Schema}}})
		}
		for name, def := range map[string]any{target + "_kind": object{"enum": names}, target + "_config": object{"allOf": with}} {
			text, err := json.Marshal(def)
			if err != nil {
				return nil, fmt.Errorf("write the schema of check kinds: %w", err)
			}
			defs[name] = text
		}
	}
	text, err := json.Marshal(defs)
	if err != nil {
		return nil, fmt.Errorf("write the schema of check kinds: %w", err)
	}
	whole["$defs"] = text
	return whole, nil
}

// object is a JSON object.
type object = map[string]any

// isOneOf is the schema of a check whose kind is one of several. Without a kind it is status.
func isOneOf(kinds []string) object {
	one := object{"properties": object{"kind": object{"enum": kinds}}}
	if !slices.Contains(kinds, "status") {
		one["required"] = []string{"kind"}
	}
	return one
}

// ParseChecks parses the checks of an environment: the same as those of a definition. The error is Invalid and has one field for each
// finding, whose JSON pointer begins with /checks.
func ParseChecks(text []byte) (Checks, error) {
	if !json.Valid(text) {
		return Checks{}, fault.InvalidFields(fault.Field{Name: "/checks", Problem: "found text that is not JSON; expected an object"})
	}
	def, err := Parse(fmt.Appendf(nil, `{"checks":%s,"steps":[{"type":"deploy","environment":"e","config":{}}]}`, text))
	if err != nil {
		return Checks{}, err
	}
	if found := opens(def); len(found) > 0 {
		return Checks{}, fault.InvalidFields(found...)
	}
	return def.Checks, nil
}

// StepGateID returns the id of the gate that an approval step opens (D24).
func StepGateID(index int, s Step) string {
	if s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("step-%d", index)
}

// EnvironmentGateID returns the id of the gate before an environment.
func EnvironmentGateID(environment string) string { return environment }

// WeightGateID returns the id of the gate at a weight in an environment.
func WeightGateID(environment string, weight int) string {
	return fmt.Sprintf("%s/%d", environment, weight)
}
