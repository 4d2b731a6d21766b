package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldest is the first version that Lockstep supports.
const oldest = 15

// binaries are the programs of one installation.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// findBinaries finds an installation, or makes one. want is the major version that existing data needs; 0 is the newest.
func findBinaries(ctx context.Context, log *slog.Logger, who *account, want int) (binaries, error) {
	if b, ok := installed(ctx, who, want); ok {
		return b, nil
	}
	reasons := []error{errors.New(none(want))}
	for _, get := range []func(context.Context, *slog.Logger, int) error{installWithApt, download} {
		err := get(ctx, log, want)
		if b, ok := installed(ctx, who, want); ok {
			return b, nil
		}
		if err != nil {
			reasons = append(reasons, err)
		}
	}
	return binaries{}, errors.Join(reasons...)
}

func none(want int) string {
	if want != 0 {
		return fmt.Sprintf("the folder was made by PostgreSQL %d, and no server of that version is installed: install the package postgresql-%d, or take another folder", want, want)
	}
	return fmt.Sprintf("no PostgreSQL server of version %d or later is installed: install the package postgresql, or set LOCKSTEP_DATABASE_URL to a server of yours", oldest)
}

// installed is the newest installation on this machine that who can run.
func installed(ctx context.Context, who *account, want int) (binaries, bool) {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", filepath.Join(downloadDir(), "*", "bin")} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		dirs = append(dirs, found...)
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		if program, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(program))
		}
	}
	var found []binaries
	for _, dir := range dirs {
		if major := versionOf(ctx, dir, who); major >= oldest && (want == 0 || major == want) {
			found = append(found, binaries{dir: dir, major: major})
		}
	}
	if len(found) == 0 {
		return binaries{}, false
	}
	return slices.MaxFunc(found, func(a, b binaries) int { return a.major - b.major }), true
}

var versionPattern = regexp.MustCompile(`(?m)^postgres \(PostgreSQL\) (\d+)`)

// versionOf is the major version of the programs in dir, and 0 where they are missing or who cannot run them.
func versionOf(ctx context.Context, dir string, who *account) int {
	for _, program := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil || !who.reaches(dir) {
			return 0
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output() //nolint:gosec // a path found above
	if err != nil {
		return 0
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1])) // digits
	return major
}

// dataVersion is the major version that made the data, and 0 where there is none.
func dataVersion(data string) int {
	b, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return major
}
