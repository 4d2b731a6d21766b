package git

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// invalid is an error about one argument.
func invalid(name, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: name, Problem: fmt.Sprintf(format, args...)})
}

// maxURL is how many bytes the URL of a repository may have.
const maxURL = 2000

// parseURL takes a repository's URL, or a prefix of some. Credentials inside are refused: they would end in histories.
func parseURL(field, raw string, prefix bool) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, invalid(field, "found %d bytes, expected at most %d", len(raw), maxURL)
	}
	if place, is, err := sealing.ParseSSH(raw); is {
		return sshURL(field, place, prefix, err)
	}
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return nil, invalid(field, "missing, expected an http or https URL")
	case err != nil:
		return nil, invalid(field, "not a URL; expected http or https")
	case u.User != nil:
		return nil, invalid(field, "found a user name or password in it; credentials belong into the configuration")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid(field, "found %q, expected an http or https URL, or one of SSH", raw)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		// The client would translate it into the name of a server that nobody has compared it with (D46).
		return nil, invalid(field, "found a host name that is not ASCII, expected it as DNS has it, such as xn--…")
	case strings.ContainsFunc(u.Path, func(r rune) bool { return r == '%' || r == '\\' }), strings.Contains(strings.ToLower(u.EscapedPath()),
		"%2f"):
		// Servers differ in how they read it, so that it could be another repository than the one whose credential is chosen.
		return nil, invalid(field, "found %% or \\ or an escaped slash in the path, expected a path without them")
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, invalid(field, "found %q, expected a URL of host and path only", raw)
	case !prefix && strings.Trim(u.Path, "/") == "":
		return nil, invalid(field, "found %q, expected the path of a repository in it", raw)
	}
	return u, nil
}

// checkPath accepts the path of a file inside a repository. Git itself refuses most of the others, but only when the repository is
// cloned after the push.
func checkPath(path string) error {
	const field = "path"
	if path == "" {
		return invalid(field, "missing, expected the path of a file")
	}
	if strings.ContainsRune(path, 0) || !utf8.ValidString(path) {
		return invalid(field, "found %q, expected UTF-8 text", path)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git") {
			return invalid(field, "found %q, expected a path inside the repository, such as staging/api.yaml", path)
		}
	}
	return nil
}

// trailerKey is what Git takes for the key of a trailer.
var trailerKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// ownLine is the beginning of a line that Lockstep alone writes. In a program's message it would be believed.
var ownLine = regexp.MustCompile(`(?im)^[\t ]*(?:` + trailerActivity + `|` + trailerProposal + `|` + trailerMerged + `)[\t ]*:`)

// checkCommit finds what is wrong with a request before the remote is asked anything. Its errors name arguments of
// git.commit, which is what the program's author has written.
func checkCommit(c activity.CommitRequest) error {
	if _, err := parseURL("repo_url", c.RepoURL, false); err != nil {
		return err
	}
	if err := checkBranch(c.Branch); err != nil {
		return err
	}
	if c.Base != "" && !commitID.MatchString(c.Base) {
		return invalid("base", "found %q, expected the id of a commit", c.Base)
	}
	if len(c.Files) == 0 {
		return invalid("files", "missing, expected at least one file")
	}
	for path := range c.Files {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	if strings.TrimSpace(c.Message) == "" {
		return invalid("message", "missing, expected what the commit is for")
	}
	if line := ownLine.FindString(strings.ReplaceAll(c.Message, "\r", "\n")); line != "" {
		return invalid("message", "found a line that begins with %q, expected none with %s, %s or %s, which say what Lockstep has done",
			strings.TrimSpace(line), trailerActivity, trailerProposal, trailerMerged)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Trailers)) {
		all := []string{trailerActivity, trailerProposal, trailerMerged}
		if slices.ContainsFunc(all, func(k string) bool { return strings.EqualFold(key, k) }) || !trailerKey.MatchString(key) {
			return invalid("trailers", "found the key %q, expected letters, digits and hyphens, and not %s, %s or %s", key, trailerActivity,
				trailerProposal, trailerMerged)
		}
		// A second line could be a trailer of its own, the activity's for one.
		if strings.ContainsAny(c.Trailers[key], "\r\n") {
			return invalid("trailers."+key, "found several lines, expected one")
		}
	}
	return nil
}

// checkBranch applies the rules of git check-ref-format.
func checkBranch(branch string) error {
	if branch == "" {
		return invalid("branch", "missing, expected the name of a branch")
	}
	if err := plumbing.NewBranchReferenceName(branch).Validate(); err != nil {
		return invalid("branch", "found %q, which cannot be the name of a branch", branch)
	}
	return nil
}
