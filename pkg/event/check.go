package event

import "encoding/json"

// CheckReported is com.gitlab.cd.check.reported: what the program of a check has found out. Of the events of one run the latest
// counts.
type CheckReported struct {
	// CheckRunID is the run of the check, as the program was started for it.
	CheckRunID int64 `json:"check_run_id" jsonschema:"minimum=1"`
	// Phase is pending, success or failure.
	Phase string `json:"phase" jsonschema:"enum=pending,enum=success,enum=failure"`
	// Description is text for people.
	Description string `json:"description,omitempty" jsonschema:"maxLength=1000"`
	// Asks reports whether a person has to decide, since the program cannot. It is only with the phase pending.
	Asks bool `json:"asks,omitempty"`
	// Link is an http or https address with more.
	Link string `json:"link,omitempty" jsonschema:"maxLength=2000"`
	// Environments are the phases of environments of the rollout, if the program has found them out together: the runs of the same check in
	// the others begin with them.
	Environments []CheckedEnvironment `json:"environments,omitempty" jsonschema:"maxItems=1000"`
	// Output is what the program keeps for the runs of the same check in other environments, at most 16 KiB.
	Output json.RawMessage `json:"output,omitempty" jsonschema:"type=object"`
}

// CheckedEnvironment is what the program of a check has found out about an environment.
type CheckedEnvironment struct {
	// Environment is its name.
	Environment string `json:"environment" jsonschema:"minLength=1,maxLength=255"`
	// Phase is pending, success or failure.
	Phase string `json:"phase" jsonschema:"enum=pending,enum=success,enum=failure"`
}

// CheckNudged is com.gitlab.cd.check.nudged: something may have changed for a check, whose program need not wait any longer.
type CheckNudged struct {
	// CheckRunID is the run of the check.
	CheckRunID int64 `json:"check_run_id" jsonschema:"minimum=1"`
}
