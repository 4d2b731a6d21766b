// Package core holds the rules of the registry service: what a notification has to say before the rest of Lockstep
// hears of it, and what makes two of them one and the same.
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

// Notification is what a registry, a CI job or a poller tells, whatever format it came in. It is an untrusted hint:
// only Artifact, which Check makes of it, goes any further (D43). While its registry is asked it is stored as JSON
// under these very names: a field that is renamed is lost for all that wait during a rolling deploy.
type Notification struct {
	// Source and ID identify it: the same pair is the same push, however often it is told.
	Source, ID string
	// Organization narrows who may match; 0 for everybody: an image is matched across owners (R48).
	Organization int64
	// Correlation and TraceParent are handed on as they came; both may be empty.
	Correlation, TraceParent string
	// Image is the repository without tag or digest, Tag and PublishedAt may be empty. PublishedAt is RFC 3339.
	Image, Digest, Tag, PublishedAt string
	// Repository is set, and nothing else, by forges that tell of a push: the address of a Git repository that has something
	// new.
	Repository string `json:",omitempty"`
	// Place is what Image is below, host or host and path, for senders that tell the two apart. Empty: it is part of Image. It may begin with
	// http:// or https://, by which the registry was named.
	Place string
	// Manifest is what the sender says about the kind of what was pushed.
	Manifest Manifest `json:",omitzero"`
	// Believed means that it is published even if its registry does not confirm it at once: its sender may report digests.
	Believed bool `json:",omitempty"`
	// Foreign says why it is something else than the report of an artifact, and nothing else is set but Names.ID: the field that says so.
	Foreign string `json:"-"`
	// Line is set for senders without identifiers, where ID is made of what was told: it stands for the tag, or branch, whose
	// digests come one after the other.
	Line string `json:"-"`
	// Names are the fields as the sender wrote them, for error messages.
	Names Names
}

// Names are the paths of a notification's fields in the request that it came in.
type Names struct {
	Source, ID, Correlation, Image, Digest, Tag, PublishedAt string
	Repository                                               string `json:",omitempty"`
	// Place is where the host was.
	Place string `json:",omitempty"`
}

// believed is n of a sender that may report digests. Two events may follow, one before its registry has confirmed it and one after: both are of
// the instant at which it was reported, so that the later one is no later publication.
func (n Notification) believed(at time.Time) Notification {
	n.Believed = true
	if n.PublishedAt == "" {
		n.PublishedAt = at.UTC().Format(time.RFC3339Nano)
	}
	return n
}

// Seen says whether the digest of an artifact was found at its registry.
type Seen int

// The registry has not been asked where there is no access to it, or by older releases; it has the digest; or it has not confirmed that.
const (
	SeenUnknown Seen = iota
	SeenYes
	SeenNo
)

// Artifact is a notification that has passed every rule. It stays comparable with ==: that is how a delivery that tells
// two things under one identity is found.
type Artifact struct {
	// ID is derived from the notification's source and id, so that the same push told twice is one event.
	ID string
	// Cause is the sender's own identifier.
	Cause string
	// Organization, Correlation and TraceParent are those of the notification.
	Organization             int64
	Correlation, TraceParent string
	// Image, Digest, Tag and PublishedAt are what was published.
	Image, Digest, Tag, PublishedAt string
	// Seen is whether the registry has the digest.
	Seen Seen
	// Line is that of the notification, "" for none. What is told of one line is told when it differs from what was told of it
	// last, so that a tag which goes back to an older digest is told again.
	Line string
}

// After is the artifact as one that came after an event of its line: the same again after the same is the same event, and
// another than the first time that it was told.
func (a Artifact) After(event string) Artifact {
	a.ID = Identify(event, a.ID)
	return a
}

// Unconfirmed is the artifact as one that its registry has not confirmed. The event that says so is another than the one that confirms it, and
// of no line: it does not stand for what the tag names.
func (a Artifact) Unconfirmed() Artifact {
	a.ID, a.Line, a.Seen = Identify(a.ID, "unconfirmed"), "", SeenNo
	return a
}

// Check turns a notification into an artifact, or says everything that is wrong with it.
func Check(n Notification) (Artifact, []fault.Field) {
	digestOK := validDigest(n.Digest)
	if n.commit() {
		digestOK = commitForm.MatchString(n.Digest)
	}
	if problems := check(n, digestOK); len(problems) > 0 {
		return Artifact{}, problems
	}
	trace := n.TraceParent
	if !traceForm.MatchString(trace) {
		trace = "" // a broken trace context is not worth a refusal: W3C says to go on without
	}
	return Artifact{
		ID: Identify(n.Source, n.ID), Cause: n.ID,
		Organization: n.Organization, Correlation: n.Correlation, TraceParent: trace,
		Image: n.Image, Digest: n.Digest, Tag: n.Tag, PublishedAt: n.PublishedAt, Line: n.Line,
	}, nil
}

// check says what is wrong with a notification whose digest is good or not.
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
	check(n.Names.Correlation, n.Correlation, n.Correlation == "" || validIdentity(n.Correlation), "up to 1024 bytes without control characters")
	check(n.Names.Image, n.Image, validImage(n.Image) || n.commit() && gitForm.MatchString(n.Image) && len(n.Image) <= maxImage, "a repository such as registry.example.com/shop/api, in lower case, without tag or digest")
	check(n.Names.Digest, n.Digest, digestOK, "sha256: and 64 hexadecimal digits in lower case (or sha512: and 128)")
	check(n.Names.Tag, n.Tag, n.Tag == "" || tagForm.MatchString(n.Tag), "up to 128 letters, digits, dots, dashes and underscores")
	_, err := time.Parse(time.RFC3339, n.PublishedAt)
	check(n.Names.PublishedAt, n.PublishedAt, n.PublishedAt == "" || err == nil, "an instant as in RFC 3339, such as 2026-03-25T10:00:00Z")
	return problems
}

// Identify derives an event id from the identity of a notification: a version 8 UUID (RFC 9562, for derivations of
// one's own) over the SHA-256 of both parts. Outbox, told and hint have stored such ids: derived in another way,
// whatever is told again would be a new event.
func Identify(source, id string) string {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(source))) // so that ("ab", "c") is not ("a", "bc")
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
	// In bytes. The limits are ours: no message and no row grows with what a sender makes up.
	maxIdentity = 1024
	maxImage    = 1024
)

// The forms of the OCI distribution specification. A first path component with a dot, a colon or capitals is a host.
// Go's expressions take time in proportion to their input, so that none of them can be made to hang by what a stranger
// sends.
var (
	hostForm      = regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?$`)
	componentForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$`)
	digestForm    = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
	traceForm     = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	gitForm       = regexp.MustCompile(`^git:[^\s@#?]+/[^\s@#?]+#[^\s@#?]+(?:\?[0-9a-f]{12})?$`)
	commitForm    = regexp.MustCompile(`^[0-9a-f]{40}(?:[0-9a-f]{24})?$`)
	tagForm       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// validIdentity keeps out what could not travel in a header, or would forge a line of a log.
func validIdentity(s string) bool {
	return s != "" && len(s) <= maxIdentity && !strings.ContainsFunc(s, unicode.IsControl)
}

func validDigest(s string) bool { return digestForm.MatchString(s) }

// commit is whether n is a commit of a Git repository, which has names of its own: git:<host>/<path>#<branch> and a SHA.
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

// quote shows what was found, cut where it would drown the message.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "… (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.Quote(s)
}

// Naming is the one way of writing registries and images, by which they are compared.
type Naming struct {
	// Host is a registry's host as references have it; false for what is no host. The scheme is that by which it was named.
	Host func(host, scheme string) (string, bool)
	// Image is a repository with its registry.
	Image func(image string) (string, error)
}
