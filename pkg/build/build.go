// Package build reports what a binary was built from: version, commit and Go release.
//
// It does not tell what a binary can do: services rely on events and proto for compatibility, never on versions.
package build

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// The linker sets these: -X github.com/lockstep-cd/lockstep/pkg/build.version=v1.2.3.
var (
	version string
	commit  string //nolint:gochecknoglobals // the linker sets variables of packages only
)

// Info says what a binary was made from.
type Info struct {
	// Version is a release's, or what git describe says; "dev" when nobody said.
	Version string `json:"version"`
	// Commit is the whole id; "unknown" when nobody said, and the build was not from a checkout.
	Commit string `json:"commit"`
	// Go is the release of Go.
	Go string `json:"go"`
}

// Read is about this binary.
func Read() Info {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return Info{Version: cmp.Or(version, "dev"), Commit: cmp.Or(commit, revision, "unknown"), Go: runtime.Version()}
}

// String is one line for people.
func (i Info) String() string { return i.Version + " (commit " + i.Commit + ", " + i.Go + ")" }
