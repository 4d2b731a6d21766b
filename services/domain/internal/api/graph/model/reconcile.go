package model

import "github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"

// RecordDifferences wraps the domain's.
type RecordDifferences struct{ reconcile.Page }

// Differences are those of the page.
func (p RecordDifferences) Differences() []RecordDifference {
	all := make([]RecordDifference, len(p.Page.Differences))
	for i, d := range p.Page.Differences {
		all[i] = RecordDifference{d}
	}
	return all
}

// Next is null after the last page.
func (p RecordDifferences) Next() *string { return orNone(p.Page.Next) }

// RecordDifference wraps the domain's.
type RecordDifference struct{ reconcile.Difference }

// Kind is what differs.
func (d RecordDifference) Kind() string { return string(d.Difference.Kind) }

// Remedy is null where nothing settles it.
func (d RecordDifference) Remedy() *string { return orNone(d.Difference.Remedy) }
