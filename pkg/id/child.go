package id

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The runs that programs start as children of their own run (start_workflow). Only the engine starts a run with such an id.

// ChildDepthMost is how deep children may be nested: a run that a caller has started has depth 0.
const ChildDepthMost = 8

// The bounds of the parts of a child's id, in characters: with them it is at most 255 long.
const (
	parentMost    = 150
	childNameMost = 60
)

var (
	childRun  = regexp.MustCompile(`^child:[1-9]:`)
	childName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
)

// ChildRun returns the id of a child of a run: its depth, the beginning of the parent's id for readers, a digest of the key, which names
// the child within all that were ever started, and the name that its program has given it, if any. An error says what is wrong with the
// name, or that children are nested too deeply.
func ChildRun(parent, key, name string) (string, error) {
	depth := 1
	if IsChildRun(parent) {
		depth += int(parent[len("child:")] - '0')
		_, parent, _ = strings.Cut(parent[len("child:"):], ":")
	}
	if depth > ChildDepthMost {
		return "", fmt.Errorf("children are nested more than %d deep", ChildDepthMost)
	}
	if name != "" && (len(name) > childNameMost || !childName.MatchString(name)) {
		return "", fmt.Errorf("found the id %.80q, expected 1 to %d letters, digits, dots, dashes and underscores", name, childNameMost)
	}
	if utf8.RuneCountInString(parent) > parentMost {
		parent = string([]rune(parent)[:parentMost])
	}
	sum := sha256.Sum256([]byte(key))
	run := "child:" + strconv.Itoa(depth) + ":" + parent + "/" + hex.EncodeToString(sum[:12])
	if name != "" {
		run += "." + name
	}
	return run, nil
}

// firstChild is the id of a child of a run that is no child itself. That of the parent is whole: it has no slash, so a longer one that
// begins the same has one.
var firstChild = regexp.MustCompile(`^child:1:([^/]+)/[0-9a-f]{24}(\.[A-Za-z0-9._-]+)?$`)

// ParentOf returns the run that has started a child, if that is a run without a slash in its id and no child itself, such as that of a
// rollout; empty for any other run.
func ParentOf(run string) string {
	if m := firstChild.FindStringSubmatch(run); m != nil && utf8.RuneCountInString(m[1]) < parentMost {
		return m[1]
	}
	return ""
}

// targetName is what a rollout's run calls the run of a target of a fleet.
var targetName = regexp.MustCompile(`/[0-9a-f]{24}\.e([1-9][0-9]*)\.t([1-9][0-9]*)\.([1-9][0-9]*)$`)

// TargetRun returns the environment, the agent and the attempt that the run of a target of a fleet is named for, and the run that has
// started it; zeros for any other run.
func TargetRun(run string) (parent string, environment, agent int64, attempt int) {
	m := targetName.FindStringSubmatch(run)
	if parent = ParentOf(run); parent == "" || m == nil {
		return "", 0, 0, 0
	}
	var errs [3]error
	environment, errs[0] = strconv.ParseInt(m[1], 10, 64)
	agent, errs[1] = strconv.ParseInt(m[2], 10, 64)
	attempt, errs[2] = strconv.Atoi(m[3])
	if errors.Join(errs[:]...) != nil {
		return "", 0, 0, 0
	}
	return parent, environment, agent, attempt
}

// IsChildRun reports whether an id has the form of a child's.
func IsChildRun(run string) bool { return childRun.MatchString(run) }
