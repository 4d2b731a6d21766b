package core

import (
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// Before a rollout is begun one may ask what it would change. The domain knows no Git: a program of the driver finds out, from
// the files as they are and the versions that would go into them, and reports it.

// PreviewState is where a preview stands.
type PreviewState string

// The states.
const (
	PreviewPending PreviewState = "pending"
	PreviewMade    PreviewState = "made"
	PreviewFailed  PreviewState = "failed"
)

// Preview is what a rollout of a version set would have changed, had it been begun when it was asked for.
type Preview struct {
	ID, ApplicationID, VersionSetID int64
	State                           PreviewState
	// Reason is why it failed.
	Reason       string
	Environments []PreviewedEnvironment
	RequestedAt  time.Time
	// DriftOf is the application environment that is looked at for drift; 0 for a preview that is about a rollout.
	DriftOf int64
}

// PreviewedEnvironment is what would change in one environment, in the order of promotion. It is kept in this form.
type PreviewedEnvironment struct {
	EnvironmentID int64        `json:"environment_id"`
	Changes       []FileChange `json:"changes"`
	// Reason is why that cannot be found out; then there are no changes.
	Reason string `json:"reason,omitempty"`
	// FromLive reports whether the changes are from what is live, not from a branch to which authors may have pushed since.
	FromLive bool `json:"from_live,omitempty"`
	// Compared is what differs between the manifests that run and those that would; nil if they were not compared.
	Compared *Comparison `json:"compared,omitempty"`
}

// Comparison is what a driver's program found when it compared manifests. It is kept in this form.
type Comparison struct {
	Workloads int             `json:"workloads"`
	Things    []planner.Thing `json:"things"`
	// Commit is what was compared with what runs; empty if the program names none.
	Commit string `json:"commit,omitempty"`
	// Reason is why it could not compare them.
	Reason string `json:"reason,omitempty"`
}

// FileChange is what changes in one file, for people to read. It is kept in this form.
type FileChange struct {
	Path string `json:"path"`
	// Diff is in the unified form; Truncated reports whether the rest was left out.
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated,omitempty"`
}

// SizeOf is how many files some changes concern, and how many lines are added or removed; nil where a diff was cut. A change that is listed
// twice, as that of a file of two services, counts once.
func SizeOf(changes []FileChange) (files, lines *int) {
	paths, seen := map[string]bool{}, map[FileChange]bool{}
	total, known := 0, true
	for _, c := range changes {
		known = known && !c.Truncated
		if seen[c] {
			continue
		}
		paths[c.Path], seen[c] = true, true
		inside := false // before the first hunk there are the names of the files
		for line := range strings.Lines(c.Diff) {
			switch {
			case strings.HasPrefix(line, "@@"):
				inside = true
			case inside && (line[0] == '+' || line[0] == '-'):
				total++
			}
		}
	}
	count := len(paths)
	if known {
		lines = &total
	}
	return &count, lines
}
