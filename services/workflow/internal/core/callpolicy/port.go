package callpolicy

import "context"

// Set is the latest version of a policy set, as the domain service has reported it.
type Set struct {
	Organization int64
	Name         string
	Version      int
	// Mode is enforce, dry_run or off. A set that is off, and one of a mode that is not known here, has another effect than one that is
	// enforced: see compile.
	Mode, TimeZone string
	// Text are its policies; empty where none of them is about calls.
	Text string
	// Application, Environment or Labels is what it is about, the latter the applications with these labels; without any, the organization.
	Application, Environment int64
	Labels                   map[string]string
}

// Version is which version of a set is stored.
type Version struct {
	Organization int64
	Name         string
	Version      int
	// OfGroup reports whether it has labels of applications: a row that a release without groups has stored gets them later, in the same
	// version.
	OfGroup bool
}

// Store keeps what the domain service has reported.
type Store interface {
	// PolicyVersions are the versions of all sets of all organizations.
	PolicyVersions(ctx context.Context) ([]Version, error)
	// PolicySets are all sets of some organizations.
	PolicySets(ctx context.Context, organizations []int64) ([]Set, error)
	// Origin is the run that a run descends from, the run itself if no program has started it, with what that was started with.
	Origin(ctx context.Context, organization int64, workflow string) (root string, inputs []byte, err error)
}
