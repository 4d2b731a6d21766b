package source

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/bmatcuk/doublestar/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Repository is a source of kind git@1: its artifacts are the commits of a branch, or the tags that are versions. The digest of such a
// version is the SHA of the commit.
type Repository struct {
	// URL is where to clone from.
	URL string
	// Branch is the branch to follow; empty to follow tags.
	Branch string

	place, name   string
	interval      time.Duration
	within        *semver.Constraints
	paths, ignore []string
}

var _ Source = (*Repository)(nil)

const (
	gitScheme = "git:"
	// maxFile bounds the path of a changed file that is matched against patterns.
	maxFile = 4096
)

func parseGit(config json.RawMessage) (*Repository, []fault.Field) {
	var c struct {
		Repository          string `json:"repository"`
		Branch              string `json:"branch"`
		Range               string `json:"range"`
		Paths               string `json:"paths"`
		IgnorePaths         string `json:"ignore_paths"`
		PollIntervalSeconds int    `json:"poll_interval_seconds"`
	}
	if found := decode(config, &c); found != nil {
		return nil, found
	}
	s := &Repository{URL: c.Repository, Branch: c.Branch, interval: seconds(c.PollIntervalSeconds)}
	var found []fault.Field
	s.place, s.name = repositoryName(c.Repository)
	if s.name == "" {
		what := quote(c.Repository)
		if strings.ContainsAny(c.Repository, "@?#") {
			what = "a URL with a user, a password or parameters (not shown)"
		}
		found = append(found, fault.Field{
			Name:    "/repository",
			Problem: "found " + what + "; expected a URL such as https://git.example.com/shop/config.git, without user, password and parameters",
		})
	}
	s.within, found = versions(c.Range, found)
	s.paths, found = patterns("/paths", c.Paths, found)
	s.ignore, found = patterns("/ignore_paths", c.IgnorePaths, found)
	if len(found) > 0 {
		return nil, found
	}
	return s, nil
}

// repositoryName returns the host and the canonical name of a repository: host and path, without scheme and .git.
func repositoryName(repository string) (host, name string) {
	u, err := url.Parse(repository)
	if err != nil || u.User != nil || u.Host == "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(repository, "#") {
		return "", ""
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Host), ":443"), ":80")
	path := strings.TrimSuffix(strings.Trim(u.EscapedPath(), "/"), ".git")
	if path == "" {
		return "", ""
	}
	return host, host + "/" + path
}

// patterns parses globs (** crosses folders), separated by spaces.
func patterns(field, text string, found []fault.Field) ([]string, []fault.Field) {
	all := strings.Fields(text)
	for _, p := range all {
		// Each ** and each alternative multiplies the cost of a match; this many is enough.
		if !doublestar.ValidatePattern(p) || strings.HasPrefix(p, "/") || strings.Count(p, "**") > 4 || strings.Count(p, "{") > 2 {
			found = append(found, fault.Field{
				Name:    field,
				Problem: "found " + quote(p) + "; expected a pattern of files, such as deploy/**, from the top of the repository",
			})
		}
	}
	return all, found
}

// Artifact returns the name that the source's commits are published under: the repository, what is followed and, because two sources of one
// branch with different filters have different versions, a digest of the filters.
func (s *Repository) Artifact() string {
	follows := s.Branch
	if follows == "" {
		follows = "tags?" + filterDigest([]string{s.within.String()}, nil)
	} else if len(s.paths)+len(s.ignore) > 0 {
		follows += "?" + filterDigest(s.paths, s.ignore)
	}
	return gitScheme + s.name + "#" + follows
}

func filterDigest(groups ...[]string) string {
	h := sha256.New()
	for _, g := range groups {
		fmt.Fprintf(h, "%d\n%s\n", len(g), strings.Join(g, "\n")) // patterns contain no line breaks
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Key implements Source.
func (s *Repository) Key() string { return s.Artifact() }

// Takes implements Source: the filters are part of the key, so every artifact with the key belongs to the source.
func (s *Repository) Takes(string) bool { return true }

// Rank implements Source: tags are ordered by version; a branch has no order but time.
func (s *Repository) Rank(tag string) string {
	if s.Branch != "" {
		return ""
	}
	return versionRank(tag)
}

// Earliest implements Source.
func (s *Repository) Earliest() bool { return false }

// Interval implements Source.
func (s *Repository) Interval() time.Duration { return s.interval }

// Place implements Source.
func (s *Repository) Place() string { return s.place }

// Name returns the canonical name of the repository: host and path.
func (s *Repository) Name() string { return s.name }

// RepositoryName returns the canonical name of a repository's URL; empty for an invalid one.
func RepositoryName(repository string) string {
	_, name := repositoryName(repository)
	return name
}

// Filtered reports whether the files that a commit changes matter.
func (s *Repository) Filtered() bool { return len(s.paths)+len(s.ignore) > 0 }

// Wants reports whether one of the changed files makes a commit count. Each file is judged on its own, so an ignored file never hides
// another that counts (as PipeCD's triggers do).
func (s *Repository) Wants(changed []string) bool { return slices.ContainsFunc(changed, s.Counts) }

// Counts reports whether a changed file makes a commit count.
func (s *Repository) Counts(file string) bool {
	return len(file) <= maxFile && (len(s.paths) == 0 || matches(s.paths, file)) && !matches(s.ignore, file)
}

// KeyPrefix is what the keys of all sources of a repository begin with, given its canonical name.
func KeyPrefix(repository string) string { return gitScheme + repository + "#" }

func matches(all []string, file string) bool {
	for _, p := range all {
		if doublestar.MatchUnvalidated(p, file) {
			return true
		}
	}
	return false
}

// Newest returns the tag with the highest version in range.
func (s *Repository) Newest(tags []string) (string, bool) {
	return newest(tags, func(tag string) bool { return inRange(s.within, tag) }, lowerVersion)
}
