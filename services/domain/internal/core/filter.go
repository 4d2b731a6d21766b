package core

// ApplicationFilter narrows a list of applications; its zero value does not.
type ApplicationFilter struct {
	// Contains is part of the name, in any case; empty for all.
	Contains string
	// RolledOut: only those that were rolled out, or are being rolled out for the first time; false: only those that never were;
	// nil for all.
	RolledOut *bool
}

// EnvironmentFilter narrows a list of environments; its zero value does not.
type EnvironmentFilter struct {
	// Contains is part of the name, in any case; empty for all.
	Contains string
	// Tiers; empty for all.
	Tiers []Tier
	// Readiness; empty for all.
	Readiness []Readiness
}

// JournalEntry is a row of any journal of an organization, with the rollout that it belongs to. The transition's ID is its
// position.
type JournalEntry struct {
	Transition
	RolloutID int64
}

// Horizon is how far a journal can be seen at an instant.
type Horizon struct {
	// Position is the last one that can be seen. Below it some may still be missing: positions are given out before the
	// commit.
	Position int64
	// Oldest and Next bound the transactions under way: once Oldest has come to Next, those have all ended, and nothing
	// up to Position is missing any more.
	Oldest, Next int64
}

// Range is a stretch of rows by their numbers, neither of its ends among them.
type Range struct {
	Above, Below int64
	// Falling begins with the greatest number.
	Falling bool
	Most    int
}

// MatrixFilter narrows the matrix to applications that have a cell which meets all of it; its zero value shows all.
type MatrixFilter struct {
	// Contains is part of the application's name, in any case; empty for all.
	Contains string
	// EnvironmentIDs and Drivers say which cells are looked at, and shown; empty for all.
	EnvironmentIDs []int64
	Drivers        []string
	// States are those of the newest rollout there; empty for all.
	States []RolloutState
	// Healths are of Cell.Health; empty for all. A cell of which nothing was seen has none.
	Healths []Health
	// Waiting reports whether a gate is open there; nil for both.
	Waiting *bool
	// Nothing reports whether no cell can meet what is asked for.
	Nothing bool
}

// WantsCells reports whether anything is asked of the cells.
func (f MatrixFilter) WantsCells() bool {
	return len(f.EnvironmentIDs) > 0 || len(f.States) > 0 || len(f.Healths) > 0 || f.Waiting != nil
}

// RolloutFilter narrows a list of rollouts; its zero value does not.
type RolloutFilter struct {
	// ApplicationID; 0 for all.
	ApplicationID int64
	// States; empty for all.
	States []RolloutState
	// EnvironmentID is one that the rollout goes to; 0 for any.
	EnvironmentID int64
}

// SourceFilter narrows a list of sources.
type SourceFilter struct {
	// ApplicationID is whose; 0 for all.
	ApplicationID int64
}
