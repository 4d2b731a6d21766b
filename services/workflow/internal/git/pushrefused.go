package git

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// errFirstRefused means that a server refuses the first of several changes by itself, so that it would refuse it alone as well.
var errFirstRefused = errors.New("the first of the changes is refused")

// becauseOfOthers is what servers say of a change that they refuse only since another one of the same push failed.
var becauseOfOthers = regexp.MustCompile(`(?i)atomic|transaction`)

// refusedUpdate is refused for a push that may change several branches: it says which one the server refuses, and what its hook reported.
func (r *repository) refusedUpdate(
	ctx context.Context, commands []*packp.Command, report *packp.ReportStatus, reported string, cause error,
) error {
	first := commands[0]
	if err := r.refused(ctx, first.Name.Short(), first.Old, cause); !fault.Is(err, fault.Refused) {
		return err
	}
	why := map[plumbing.ReferenceName]string{}
	for _, s := range report.CommandStatuses {
		if err := s.Error(); err != nil {
			why[s.ReferenceName] = s.Status
		}
	}
	own := why[first.Name] != "" && !becauseOfOthers.MatchString(why[first.Name])
	for _, other := range commands[1:] {
		own = own && why[other.Name] != why[first.Name] // a hook for all of them may mean any
	}
	if own {
		cause = fmt.Errorf("%w: %w", errFirstRefused, cause)
	}
	text := printable(why[first.Name])
	if text == "" {
		text = printable(report.UnpackStatus)
	}
	if reported != "" {
		text += " (" + reported + ")"
	}
	if first.New == plumbing.ZeroHash {
		return fault.Because(cause, fault.Refused, "the server refuses to delete branch %q of %s: %s", first.Name.Short(), r.url, text)
	}
	return fault.Because(cause, fault.Refused, "the server refuses the push to %q of %s: %s; the account has to be allowed to push there",
		first.Name.Short(), r.url, text)
}

// mostReported is how much of what a hook says is kept, in bytes.
const mostReported = 300

// hookText is the beginning of what the hooks of a server say about a push.
type hookText struct{ text []byte }

// Write implements io.Writer.
func (h *hookText) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), mostReported-len(h.text))]...)
	return len(b), nil
}

// String is the text in one line.
func (h *hookText) String() string { return printable(string(h.text)) }

// printable is a server's text in one line that can be shown.
func printable(s string) string {
	s = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s[:min(len(s), mostReported)], ""))
	return strings.Join(strings.Fields(s), " ")
}
