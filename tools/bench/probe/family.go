package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Family is what PostgreSQL has used so far, by what its processes are for: "sessions", "checkpointer", "autovacuum worker" and others, as
// they call themselves, and "ended" for all that are gone.
type Family map[string]time.Duration

// ended are processes that the first one has collected.
const ended = "ended"

// FamilyParts reads what a server of PostgreSQL has used, by its first process.
func FamilyParts(parent int) (Family, error) {
	own, collected, err := times(parent)
	if err != nil {
		return nil, err
	}
	family := Family{"postmaster": own, ended: collected}
	children, err := childrenOf(parent)
	if err != nil {
		return nil, err
	}
	for _, pid := range children {
		spent, _, err := times(pid)
		title, titleErr := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err := errors.Join(err, titleErr); errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		} else if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		family[part(title)] += spent
	}
	return family, nil
}

// Since is what has been used since an earlier reading. What processes had used that have ended since is in "ended".
func (f Family) Since(before Family) Family {
	used := Family{}
	for name, spent := range f {
		used[name] = spent - before[name]
	}
	for name, spent := range before {
		if _, there := f[name]; !there {
			used[name] = -spent
		}
	}
	return used
}

// Total is all of it.
func (f Family) Total() (total time.Duration) {
	for _, spent := range f {
		total += spent
	}
	return total
}

// part is what a process says that it is for: "postgres: checkpointer", "postgres: autovacuum worker postgres", "postgres: user database
// [local] idle".
func part(title []byte) string {
	name, found := strings.CutPrefix(string(bytes.TrimRight(title, "\x00 ")), "postgres: ")
	for _, known := range []string{
		"checkpointer", "background writer", "walwriter", "autovacuum launcher", "autovacuum worker",
		"logical replication launcher",
	} {
		if found && strings.HasPrefix(name, known) {
			return known
		}
	}
	return "sessions"
}
