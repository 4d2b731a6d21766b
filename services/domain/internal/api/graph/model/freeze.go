package model

import (
	"encoding/json"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The kinds of what stops passages from outside of pipelines.
const (
	KindFreeze = "freeze"
	KindVeto   = "veto"
)

// Freeze wraps the domain's.
type Freeze struct{ core.Freeze }

// GlobalID is freeze_<number>.
func (f Freeze) GlobalID() string { return id.Format(KindFreeze, f.ID) }

// IsNode marks a node.
func (Freeze) IsNode() {}

// AuthorName is what the author was called then.
func (f Freeze) AuthorName() string { return f.Author.Name }

// Tiers are those that it concerns.
func (f Freeze) Tiers() []core.Tier { return append([]core.Tier{}, f.Freeze.Tiers...) }

// EnvironmentLabelsText are the labels of its environments as an object; nil for any.
func (f Freeze) EnvironmentLabelsText() json.RawMessage { return labelsText(f.EnvironmentLabels) }

// ApplicationLabelsText are the labels of its applications as an object; nil for any.
func (f Freeze) ApplicationLabelsText() json.RawMessage { return labelsText(f.ApplicationLabels) }

// labelsText are labels that something asks of as an object; nil for none.
func labelsText(labels map[string]string) json.RawMessage {
	if labels == nil {
		return nil
	}
	text, _ := json.Marshal(labels) // a map of strings cannot fail
	return text
}

// WrapFreeze wraps the domain's.
func WrapFreeze(f core.Freeze) Freeze { return Freeze{f} }

// Veto wraps the domain's.
type Veto struct{ core.Veto }

// GlobalID is veto_<number>.
func (v Veto) GlobalID() string { return id.Format(KindVeto, v.ID) }

// IsNode marks a node.
func (Veto) IsNode() {}

// AuthorName is what the author was called then.
func (v Veto) AuthorName() string { return v.Author.Name }

// WrapVeto wraps the domain's.
func WrapVeto(v core.Veto) Veto { return Veto{v} }

// EnvironmentPin wraps the domain's.
type EnvironmentPin struct{ core.Pin }

// AuthorName is what the author was called then.
func (p EnvironmentPin) AuthorName() string { return p.Author.Name }

// WrapPin wraps the domain's.
func WrapPin(p core.Pin) EnvironmentPin { return EnvironmentPin{p} }

// CheckReport wraps the domain's.
type CheckReport struct{ core.CheckReport }

// ReporterName is what the reporter was called then.
func (r CheckReport) ReporterName() string { return r.Reporter.Name }

// WrapCheckReport wraps the domain's.
func WrapCheckReport(r core.CheckReport) CheckReport { return CheckReport{r} }

// MarshalCheckPhase writes a phase.
func MarshalCheckPhase(p core.CheckPhase) graphql.Marshaler { return word(string(p)) }

// UnmarshalCheckPhase reads a phase.
func UnmarshalCheckPhase(v any) (core.CheckPhase, error) {
	return enum(v, core.CheckPending, core.CheckSuccess, core.CheckFailure)
}

// RolloutCheck wraps the domain's.
type RolloutCheck struct{ core.CheckState }

// KindName is the kind as pipelines name it.
func (c RolloutCheck) KindName() string { return string(c.Kind) }

// WorkflowID is the run of its program; nil for none.
func (c RolloutCheck) WorkflowID() *string {
	if c.Run == nil {
		return nil
	}
	run := id.CheckRun(c.Run.ID)
	return &run
}

// InstalledCheckKind wraps the domain's.
type InstalledCheckKind struct{ core.InstalledCheckKind }

// ConfigSchema is the schema of the configuration of a check.
func (k InstalledCheckKind) ConfigSchema() json.RawMessage { return k.Schema }

// ArtifactDigest is that of its OCI artifact; nil for none.
func (k InstalledCheckKind) ArtifactDigest() *string {
	return orNull(k.InstalledCheckKind.ArtifactDigest)
}

// WrapInstalledCheckKind wraps the domain's.
func WrapInstalledCheckKind(k core.InstalledCheckKind) InstalledCheckKind {
	return InstalledCheckKind{k}
}

// WrapRolloutCheck wraps the domain's.
func WrapRolloutCheck(s core.CheckState) RolloutCheck { return RolloutCheck{s} }

// MarshalCheckTarget writes a target.
func MarshalCheckTarget(t core.CheckTarget) graphql.Marshaler { return word(string(t)) }

// UnmarshalCheckTarget reads a target.
func UnmarshalCheckTarget(v any) (core.CheckTarget, error) {
	return enum(v, core.CheckProposed, core.CheckActive)
}

// MarshalCheckKind writes a kind.
func MarshalCheckKind(k core.CheckKind) graphql.Marshaler {
	if k.Program() {
		k = checkProgram
	}
	return word(string(k))
}

// checkProgram is what all check kinds are in the enumeration.
const checkProgram core.CheckKind = "program"

// UnmarshalCheckKind reads a kind.
func UnmarshalCheckKind(v any) (core.CheckKind, error) {
	return enum(v, core.CheckStatus, core.CheckTimer, core.CheckSchedule, core.CheckHealth, checkProgram)
}
