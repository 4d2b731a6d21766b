// Package build reports what a binary was built from: version, commit and Go release.
//
// It does not report what a binary can do: services rely on events and proto for compatibility, never on versions.
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

// Info describes what a binary was built from.
type Info struct {
	// Version is the release or the output of git describe; "dev" if the linker set none.
	Version string `json:"version"`
	// Commit is the full commit hash; "unknown" if neither the linker nor the build information has one.
	Commit string `json:"commit"`
	// Go is the Go release.
	Go string `json:"go"`
}

// Read returns the information about this binary.
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

// String returns one line for people.
func (i Info) String() string { return i.Version + " (commit " + i.Commit + ", " + i.Go + ")" }
