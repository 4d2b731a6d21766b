package source

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A Selection defines which tag of a repository is the newest for a source.
type Selection string

// The selections.
const (
	// Any accepts every tag; the newest is the one published last, and it cannot be polled.
	Any Selection = "any"
	// Semver is the highest version in range.
	Semver Selection = "semver"
	// NewestBuild is the image that was created last.
	NewestBuild Selection = "newest_build"
	// Lexical is the last tag in the order of characters, for tags that begin with a date.
	Lexical Selection = "lexical"
	// MutableTag is the image that one tag names at the moment.
	MutableTag Selection = "mutable_tag"
)

// Image is a source of kind oci-image@1.
type Image struct {
	// Repository is the canonical name of the image, without tag and digest.
	Repository string
	Selection  Selection
	// Tag is set for MutableTag.
	Tag string
	// Platform is os/architecture or os/architecture/variant; empty for any.
	Platform string
	// Credential is the name of the organization's credential of the kind registry; empty for the one whose URL fits best.
	Credential string

	interval      time.Duration
	within        *semver.Constraints
	allow, ignore *regexp.Regexp
}

var _ Source = (*Image)(nil)

func parseImage(config json.RawMessage) (*Image, []fault.Field) {
	var c struct {
		Image               string    `json:"image"`
		Selection           Selection `json:"selection"`
		Range               string    `json:"range"`
		Tag                 string    `json:"tag"`
		AllowTags           string    `json:"allow_tags"`
		IgnoreTags          string    `json:"ignore_tags"`
		Platform            string    `json:"platform"`
		Credential          string    `json:"credential"`
		Poll                bool      `json:"poll"`
		PollIntervalSeconds int       `json:"poll_interval_seconds"`
	}
	if found := decode(config, &c); found != nil {
		return nil, found
	}
	src := &Image{Selection: c.Selection, Tag: c.Tag, Platform: c.Platform, Credential: c.Credential}
	if src.Selection == "" {
		src.Selection = Any
	}
	if c.Poll {
		src.interval = seconds(c.PollIntervalSeconds)
	}
	var (
		found []fault.Field
		err   error
	)
	if src.Repository, err = NormalizeImage(c.Image); err != nil {
		found = append(found, fault.Field{Name: "/image", Problem: err.Error()})
	}
	src.within, found = versions(c.Range, found)
	src.allow, found = expression("/allow_tags", c.AllowTags, found)
	src.ignore, found = expression("/ignore_tags", c.IgnoreTags, found)
	if len(found) > 0 {
		return nil, found
	}
	return src, nil
}

// versions parses a range; an empty text means every release.
func versions(text string, found []fault.Field) (*semver.Constraints, []fault.Field) {
	if text == "" {
		text = "*"
	}
	within, err := semver.NewConstraint(text)
	if err != nil {
		return nil, append(found, fault.Field{
			Name:    "/range",
			Problem: "found " + quote(text) + "; expected a range of versions, such as >=1.2.0 <2.0.0",
		})
	}
	return within, found
}

// expression parses a regular expression; an empty text gives nil, which matches nothing.
func expression(field, text string, found []fault.Field) (*regexp.Regexp, []fault.Field) {
	if text == "" {
		return nil, found
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, append(found, fault.Field{Name: field, Problem: "found " + quote(text) + "; expected a regular expression: " + err.Error()})
	}
	return re, found
}

// Key implements Source: it is the same for every spelling of the image.
func (s *Image) Key() string { return imageKey(s.Repository) }

// referring matches tags of manifests that refer to another manifest: the referrers tag schema of the OCI distribution specification
// (<algorithm>-<digest>), and cosign's with the suffixes .sig, .att and .sbom.
var referring = regexp.MustCompile(`^sha(?:256-[0-9a-f]{64}|512-[0-9a-f]{64,128})(?:\.[a-z]+)?$`)

// RefersTo reports whether a tag is that of a manifest that refers to another one, such as a signature or an SBOM, and is no image to
// deploy.
func RefersTo(tag string) bool { return referring.MatchString(tag) }

// Takes implements Source. An artifact without a tag is accepted only by selection Any, and one that refers to an image by no source.
func (s *Image) Takes(tag string) bool {
	if RefersTo(tag) {
		return false
	}
	if s.Selection == MutableTag {
		return tag == s.Tag
	}
	if tag == "" {
		return s.Selection == Any && s.allow == nil
	}
	if s.allow != nil && !s.allow.MatchString(tag) || s.ignore != nil && s.ignore.MatchString(tag) {
		return false
	}
	return s.Selection != Semver || inRange(s.within, tag)
}

// inRange reports whether a tag is a version in range, with or without a leading v. A bare number is a date, a build or the beginning of a
// commit, not a version.
func inRange(within *semver.Constraints, tag string) bool {
	v, err := semver.NewVersion(tag)
	return err == nil && strings.Contains(tag, ".") && within.Check(v)
}

// Range is a range of versions, such as >=1.2.0 <2.0.0.
type Range struct{ within *semver.Constraints }

// ParseRange reads a range.
func ParseRange(text string) (Range, error) {
	within, err := semver.NewConstraint(text)
	if err != nil {
		return Range{}, fmt.Errorf("parse range %.100q: %w", text, err)
	}
	return Range{within}, nil
}

// Contains reports whether a tag is a version in the range, as of artifact sources that select by range.
func (r Range) Contains(tag string) bool { return r.within != nil && inRange(r.within, tag) }

// Interval implements Source.
func (s *Image) Interval() time.Duration { return s.interval }

// Place implements Source.
func (s *Image) Place() string {
	host, _, _ := strings.Cut(s.Repository, "/")
	return host
}

// Newest returns the tag that the source accepts and that is the newest by its name; it reports false if there is none, and for selections
// that do not order by name.
func (s *Image) Newest(tags []string) (string, bool) {
	less := func(a, b string) bool { return a < b }
	switch s.Selection {
	case Semver:
		less = lowerVersion
	case Lexical:
	case Any, NewestBuild, MutableTag:
		return "", false
	}
	return newest(tags, s.Takes, less)
}

// Rank implements Source.
func (s *Image) Rank(tag string) string {
	switch s.Selection {
	case Semver:
		return versionRank(tag)
	case Lexical:
		return tag
	case Any, NewestBuild, MutableTag:
	}
	return ""
}

// Earliest implements Source: an image was created before it was published, under any tag.
func (s *Image) Earliest() bool { return s.Selection == NewestBuild }

// newest returns the greatest of the wanted names.
func newest(names []string, wanted func(string) bool, less func(a, b string) bool) (best string, ok bool) {
	for _, n := range names {
		if wanted(n) && (!ok || less(best, n)) {
			best, ok = n, true
		}
	}
	return best, ok
}

// lowerVersion orders versions; equal ones (1.2 and 1.2.0, or differing only in build metadata) are ordered by spelling, so that the result
// does not depend on the order in which a registry lists them.
func lowerVersion(a, b string) bool {
	va, errA := semver.NewVersion(a)
	vb, errB := semver.NewVersion(b)
	if errA != nil || errB != nil {
		return errA != nil && errB == nil
	}
	if c := va.Compare(vb); c != 0 {
		return c < 0
	}
	return a < b
}

// versionRank encodes lowerVersion as a text: a tag is lower than another exactly if the bytes of its rank are. Numbers have a fixed width;
// every identifier of a pre-release ends with a character lower than any in it; a release is higher than its pre-releases. A tag that is
// not a version has the empty rank, which is the lowest.
func versionRank(tag string) string {
	v, err := semver.NewVersion(tag)
	if err != nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%020d%020d%020d", v.Major(), v.Minor(), v.Patch())
	if v.Prerelease() == "" {
		b.WriteByte('~')
	} else {
		for part := range strings.SplitSeq(v.Prerelease(), ".") {
			// As in the library, a number that is too large counts as text.
			if n, err := strconv.ParseUint(part, 10, 64); err == nil {
				fmt.Fprintf(&b, "0%020d!", n)
			} else {
				b.WriteString("1" + part + "!")
			}
		}
	}
	return b.String() + " " + tag
}

// ImageKey returns the key of all sources for an image, for any spelling of its repository, without tag and digest. A Git repository is
// published under the name from Repository.Artifact.
func ImageKey(image string) (string, error) {
	if strings.HasPrefix(image, gitScheme) {
		return image, nil
	}
	name, err := NormalizeImage(image)
	if err != nil {
		return "", err
	}
	return imageKey(name), nil
}

func imageKey(repository string) string { return "oci-image:" + repository }
