package model

import (
	"encoding/hex"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// Retention wraps the domain's.
type Retention struct{ retention.Retention }

// Rules are those of all kinds.
func (r Retention) Rules() []RetentionRule {
	all := make([]RetentionRule, len(r.Retention.Rules))
	for i, rule := range r.Retention.Rules {
		all[i] = RetentionRule{rule}
	}
	return all
}

// LegalHold is null if none is in force.
func (r Retention) LegalHold() *string { return orNone(r.Hold) }

// RetentionRule wraps the domain's.
type RetentionRule struct{ retention.Rule }

// Kind is what is kept.
func (r RetentionRule) Kind() string { return string(r.Rule.Kind) }

// ArchivedObjects wraps the domain's.
type ArchivedObjects struct{ retention.ArchivedPage }

// Objects are those of the page.
func (p ArchivedObjects) Objects() []ArchivedObject {
	all := make([]ArchivedObject, len(p.ArchivedPage.Objects))
	for i, o := range p.ArchivedPage.Objects {
		all[i] = ArchivedObject{o}
	}
	return all
}

// Next is null after the last page.
func (p ArchivedObjects) Next() *string { return orNone(p.ArchivedPage.Next) }

// ArchivedObject wraps the domain's.
type ArchivedObject struct{ retention.Object }

// Rows is how many rows were deleted with it.
func (o ArchivedObject) Rows() int { return o.Deleted() }

// SHA256 is the digest of its lines.
func (o ArchivedObject) SHA256() string { return hex.EncodeToString(o.Digest) }
