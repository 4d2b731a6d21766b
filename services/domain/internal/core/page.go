package core

// Page asks for one page of a list by keyset.
type Page struct {
	// First is how many at most; below 1 means 50, above 500 means 500.
	First int
	// After is the EndCursor of the page before; empty for the first page. A cursor that is none of ours is Invalid.
	After string
}

// Slice is one page of a list.
type Slice[T any] struct {
	Nodes   []T
	HasNext bool
	// EndCursor is empty when Nodes is.
	EndCursor string
}
