// Package core holds the rules of the registry service: what a notification must contain before it is published to the rest of Lockstep,
// and when two notifications are the same.
//
// It knows no wire format, no HTTP, no database and no bus.
package core

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Notification is a report of a registry, a CI job or a poll, in whatever format it was sent. It is untrusted: only the Artifact that Check
// makes of it is published (D43). While its registry is queried it is stored as JSON under these field names: a renamed field is lost for
// all that wait during a rolling deploy.
type Notification struct {
	// Source and ID identify it: the same pair is the same push, however often it is reported.
	Source, ID string
	// Organization restricts who may match; 0 means everyone: an image is matched across owners (R48).
	Organization int64
	// Correlation and TraceParent are passed on unchanged; both may be empty.
	Correlation, TraceParent string
	// Image is the repository without tag or digest. Tag and PublishedAt may be empty. PublishedAt is RFC 3339.
	Image, Digest, Tag, PublishedAt string
	// Repository is the address of a Git repository with new commits. Forges set it, and no other field, to report a push.
	Repository string `json:",omitempty"`
	// Message is the beginning of the message of a commit; only a poll knows it, so it is not read from requests.
	Message string `json:"-"`
	// Since is the commit that the source reported before, and Files those of its files that are different now, one a line; Since is empty
	// if they are not known. Only a poll knows them.
	Since, Files string `json:"-"`
	// Messages are the beginnings of the messages of all commits after Since, up to this one, NUL between them; empty if not all are known.
	Messages string `json:"-"`
	// Place is the host, or host and path, that Image is relative to, for senders that report the two separately. If empty, it is part of
	// Image. It may begin with http:// or https://, as the registry was named.
	Place string
	// Manifest is what the sender reports about the kind of the pushed manifest.
	Manifest Manifest `json:",omitzero"`
	// Believed means that it is published even before its registry confirms it: its sender may report digests.
	Believed bool `json:",omitempty"`
	// Deleted means that the tag, or the image if there is no tag, is no longer there. PublishedAt is when it was deleted, and one of Digest
	// and Tag is enough.
	Deleted bool `json:",omitempty"`
	// Undated means that the sender gives neither an identifier nor a time, and ID is made of the content: the same may happen again.
	Undated bool `json:",omitempty"`
	// Foreign is set if it is not the report of an artifact, and says why; then only Names.ID is set as well, for the field in question.
	Foreign string `json:"-"`
	// Line is set for senders without identifiers, where ID is made of the content: it identifies the tag, or branch, whose successive
	// digests are reported.
	Line string `json:"-"`
	// Names are the fields as the sender wrote them, for error messages.
	Names Names
}

// Names are the paths of a notification's fields in its request.
type Names struct {
	Source, ID, Correlation, Image, Digest, Tag, PublishedAt string
	Repository                                               string `json:",omitempty"`
	// Place is where the host was.
	Place string `json:",omitempty"`
}

// believed returns n for a sender that may report digests. Two events may follow, one before its registry has confirmed it and one after:
// both have the time of the report, so that the second is not a later publication.
func (n Notification) believed(at time.Time) Notification {
	n.Believed = true
	if n.PublishedAt == "" {
		n.PublishedAt = at.UTC().Format(time.RFC3339Nano)
	}
	return n
}

// Seen reports whether the digest of an artifact was found in its registry.
type Seen int

// Unknown means that the registry was not queried, because it is not accessible or the sender is an older release. Yes means that it has
// the digest; No that it has not confirmed it.
const (
	SeenUnknown Seen = iota
	SeenYes
	SeenNo
)

// Artifact is a notification that has passed every rule. It must stay comparable with ==, which finds deliveries that use one identity for
// two contents.
type Artifact struct {
	// ID is derived from the notification's source and id, so that repeated reports of a push are one event.
	ID string
	// Cause is the sender's own identifier.
	Cause string
	// Organization, Correlation and TraceParent are those of the notification.
	Organization             int64
	Correlation, TraceParent string
	// Image, Digest, Tag and PublishedAt are what was published.
	Image, Digest, Tag, PublishedAt string
	// Message, Since, Files and Messages are those of the notification.
	Message, Since, Files, Messages string
	// Seen reports whether the registry has the digest.
	Seen Seen
	// Deleted means that it is no longer there, since PublishedAt; one of Digest and Tag may be empty.
	Deleted bool
	// Line is that of the notification, "" for none. A notification of a line is forwarded only if it differs from the previous one, so
	// that a tag which moves back to an older digest is reported.
	Line string
}

// After returns the artifact as the successor of an event of its line. Repeating the move yields the same ID; moving the tag back yields a
// new one.
func (a Artifact) After(event string) Artifact {
	a.ID = Identify(event, a.ID)
	return a
}

// Unconfirmed returns the artifact for an event that says that its registry has not confirmed it. It has another ID than the confirming
// event, and no line: it does not count as the current content of the tag.
func (a Artifact) Unconfirmed() Artifact {
	a.ID, a.Line, a.Seen = Identify(a.ID, "unconfirmed"), "", SeenNo
	return a
}

// Check converts a notification to an artifact, or returns all its problems.
func Check(n Notification) (Artifact, []fault.Field) {
	digestOK := validDigest(n.Digest) || n.Deleted && n.Digest == ""
	if n.commit() && !n.Deleted {
		digestOK = commitForm.MatchString(n.Digest)
	}
	if problems := check(n, digestOK); len(problems) > 0 {
		return Artifact{}, problems
	}
	trace := n.TraceParent
	if !traceForm.MatchString(trace) {
		trace = "" // a broken trace context does not justify a refusal: W3C says to continue without
	}
	return Artifact{
		ID: Identify(n.Source, n.ID), Cause: n.ID,
		Organization: n.Organization, Correlation: n.Correlation, TraceParent: trace,
		Image: n.Image, Digest: n.Digest, Tag: n.Tag, PublishedAt: n.PublishedAt, Line: n.Line, Deleted: n.Deleted,
		Message: n.Message, Since: n.Since, Files: n.Files, Messages: n.Messages,
	}, nil
}

// check returns the problems of a notification; digestOK reports whether its digest is valid.
func check(n Notification, digestOK bool) []fault.Field {
	var problems []fault.Field
	check := func(name, value string, ok bool, expected string) {
		if ok {
			return
		}
		found := "missing"
		if value != "" {
			found = "found " + quote(value)
		}
		problems = append(problems, fault.Field{Name: name, Problem: found + "; expected " + expected})
	}
	check(n.Names.ID, n.ID, validIdentity(n.ID), "1 to 1024 bytes, without control characters, that identify the event at its source")
	check(n.Names.Source, n.Source, validIdentity(n.Source), "1 to 1024 bytes, without control characters, that name the source")
	check(n.Names.Correlation, n.Correlation, n.Correlation == "" || validIdentity(n.Correlation),
		"up to 1024 bytes without control characters")
	check(n.Names.Image, n.Image, validImage(n.Image) || n.commit() && gitForm.MatchString(n.Image) && len(n.Image) <= maxImage,
		"a repository such as registry.example.com/shop/api, in lower case, without tag or digest")
	check(n.Names.Digest, n.Digest, digestOK, "sha256: and 64 hexadecimal digits in lower case (or sha512: and 128)")
	if n.Deleted && n.Digest == "" {
		check(n.Names.Tag, n.Tag, n.Tag != "", "the tag that was deleted, or a digest")
	}
	check(n.Names.Tag, n.Tag, n.Tag == "" || tagForm.MatchString(n.Tag), "up to 128 letters, digits, dots, dashes and underscores")
	_, err := time.Parse(time.RFC3339, n.PublishedAt)
	check(n.Names.PublishedAt, n.PublishedAt, n.PublishedAt == "" || err == nil, "an instant as in RFC 3339, such as 2026-03-25T10:00:00Z")
	return problems
}

// Identify derives an event id from the identity of a notification: a version 8 UUID (RFC 9562, for custom derivations) from the SHA-256 of
// both parts. Such ids are stored, with what was reported: with another derivation, every repeated report would be a new event.
func Identify(source, id string) string {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(source))) // distinguishes ("ab", "c") from ("a", "bc")
	_, _ = h.Write(length[:])
	_, _ = h.Write([]byte(source))
	_, _ = h.Write([]byte(id))
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u)
	return fmt.Sprintf("%s-%s-%s-%s-%s", s[:8], s[8:12], s[12:16], s[16:20], s[20:])
}

const (
	// In bytes. The limits are ours: no message and no row grows with input from a sender.
	maxIdentity = 1024
	maxImage    = 1024
)

// The forms of the OCI distribution specification. A first path component with a dot, a colon or capitals is a host. Go's expressions take
// linear time, so no input can make them hang.
var (
	hostForm      = regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?$`)
	componentForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$`)
	digestForm    = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
	traceForm     = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	gitForm       = regexp.MustCompile(`^git:[^\s@#?]+/[^\s@#?]+#[^\s@#?]+(?:\?[0-9a-f]{12})?$`)
	commitForm    = regexp.MustCompile(`^[0-9a-f]{40}(?:[0-9a-f]{24})?$`)
	tagForm       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// validIdentity refuses what could not be sent in a header, or would forge a log line.
func validIdentity(s string) bool {
	return s != "" && len(s) <= maxIdentity && !strings.ContainsFunc(s, unicode.IsControl)
}

func validDigest(s string) bool { return digestForm.MatchString(s) }

// commit reports whether n is a commit of a Git repository, which has names of its own: git:<host>/<path>#<branch> and a SHA.
func (n Notification) commit() bool { return strings.HasPrefix(n.Image, "git:") }

func validImage(s string) bool {
	if s == "" || len(s) > maxImage {
		return false
	}
	parts := strings.Split(s, "/")
	if len(parts) > 1 {
		if m := hostForm.FindStringSubmatch(parts[0]); m != nil && validPort(m[1]) {
			parts = parts[1:]
		}
	}
	for _, part := range parts {
		if !componentForm.MatchString(part) {
			return false
		}
	}
	return true
}

func validPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.Atoi(s)
	return err == nil && n > 0 && n < 1<<16
}

// quote quotes a value for a message, and shortens a long one.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "… (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.Quote(s)
}

// Naming returns the canonical names of registries and images, which are used for comparisons.
type Naming struct {
	// Host returns a registry's host in the form used in references; false for an invalid one. The scheme is the one that the host was
	// given with.
	Host func(host, scheme string) (string, bool)
	// Image returns a repository with its registry.
	Image func(image string) (string, error)
}
