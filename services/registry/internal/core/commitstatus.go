package core

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// CommitStatus is a status of a commit as a forge reports it.
type CommitStatus struct {
	// ID is that of the event, derived from the content: the same report is the same event, however often it is delivered.
	ID string
	// Organization and Hook are the hook that received it.
	Organization int64
	Hook         string
	// Kind is StatusKind or RunKind. A later run has a higher Sequence.
	Kind string
	// Repository is an address, Commit a full ID, Context what the forge calls the status.
	Repository, Commit, Context string
	// Phase is pending, success or failure.
	Phase             string
	Description, Link string
	// ObservedAt is when the forge had it, RFC 3339; Sequence is the forge's number of it, which rises.
	ObservedAt string
	Sequence   int64
	// Names are the fields as the forge wrote them, for error messages.
	Names StatusNames
}

// The kinds of statuses. A forge may have one of each with the same name.
const (
	StatusKind = "status"
	// RunKind is a check run or a job.
	RunKind = "run"
)

// StatusNames are the paths of the fields of a status in its request.
type StatusNames struct{ Repository, Commit, Context, Phase, ObservedAt string }

// StatusHook is an endpoint of an organization for statuses of commits and pull requests.
type StatusHook struct {
	Organization int64
	// Key identifies it within the organization.
	Key string
	// Redact removes the hook's secrets from refusals before they are stored.
	Redact func(string) string
}

// Sender is the name that its refusals are stored under.
func (h StatusHook) Sender() string {
	return "forge/" + strconv.FormatInt(h.Organization, 10) + "/" + h.Key
}

// ForgeDelivery is what a forge reports at once.
type ForgeDelivery struct {
	Statuses     []CommitStatus
	PullRequests []PullRequest
	Comments     []PullComment
}

// StatusOutbox stores what a forge reports as events, each once, and refusals; all or none.
type StatusOutbox interface {
	PutStatuses(ctx context.Context, sender string, delivery ForgeDelivery, refusals []Refusal) error
}

// StatusIntake accepts what forges report of commits and pull requests.
type StatusIntake struct {
	outbox StatusOutbox
	clock  clock.Clock
}

// NewStatusIntake returns a StatusIntake that stores with an outbox.
func NewStatusIntake(o StatusOutbox, c clock.Clock) *StatusIntake {
	return &StatusIntake{outbox: o, clock: c}
}

// The bounds of a status. Longer texts are cut; what identifies it is refused.
const (
	// OurStatuses is what the names of statuses begin with that Lockstep itself publishes: they are never reports about anything.
	OurStatuses          = "lockstep/"
	maxContext           = 255
	maxStatusDescription = 500
	maxStatusLink        = 2000
	// maxAhead is how far the clock of a forge may be ahead.
	maxAhead = 5 * time.Minute
)

// Accept stores a delivery, and records the parts that were left out.
func (i *StatusIntake) Accept(ctx context.Context, h StatusHook, delivery ForgeDelivery, left []Refusal) (Receipt, error) {
	var known ForgeDelivery
	refusals := left
	for _, s := range delivery.Statuses {
		if strings.HasPrefix(s.Context, OurStatuses) {
			continue
		}
		s.Organization, s.Hook = h.Organization, h.Key
		s, problems := i.check(s)
		if len(problems) > 0 {
			refusals = append(refusals, refused(s.Context, problems))
			continue
		}
		known.Statuses = append(known.Statuses, s)
	}
	for _, p := range delivery.PullRequests {
		p.Organization, p.Hook = h.Organization, h.Key
		p, problems := checkPull(p)
		if len(problems) > 0 {
			refusals = append(refusals, refused("pull request", problems))
			continue
		}
		known.PullRequests = append(known.PullRequests, p)
	}
	for _, c := range delivery.Comments {
		c.Organization, c.Hook = h.Organization, h.Key
		c, problems := checkComment(c)
		if len(problems) > 0 {
			refusals = append(refusals, refused("comment", problems))
			continue
		}
		known.Comments = append(known.Comments, c)
	}
	refusals = boundedRefusals(refusals)
	if h.Redact != nil {
		for n := range refusals {
			refusals[n].What, refusals[n].Reason = h.Redact(refusals[n].What), h.Redact(refusals[n].Reason)
		}
	}
	receipt := Receipt{Events: []string{}, Refused: refusals}
	for _, s := range known.Statuses {
		receipt.Events = append(receipt.Events, s.ID)
	}
	for _, p := range known.PullRequests {
		receipt.Events = append(receipt.Events, p.ID)
	}
	for _, c := range known.Comments {
		receipt.Events = append(receipt.Events, c.ID)
	}
	if len(receipt.Events)+len(refusals) == 0 {
		return receipt, nil
	}
	if err := i.outbox.PutStatuses(ctx, h.Sender(), known, refusals); err != nil {
		return Receipt{}, fmt.Errorf("store a delivery to %s: %w", h.Sender(), err)
	}
	return receipt, nil
}

// check returns a status with its identity and bounded texts, or its problems.
func (i *StatusIntake) check(s CommitStatus) (CommitStatus, []fault.Field) {
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
	s.Commit = strings.ToLower(s.Commit)
	check(s.Names.Repository, s.Repository, len(s.Repository) <= maxImage && repositoryAddress(s.Repository),
		"the http or https address of a repository, without credentials or control characters")
	check(s.Names.Commit, s.Commit, commitForm.MatchString(s.Commit), "the 40 or 64 hexadecimal digits of a commit")
	check(s.Names.Context, s.Context, validIdentity(s.Context) && len(s.Context) <= maxContext, "1 to 255 bytes without control characters")
	check(s.Names.Phase, s.Phase, s.Phase == "pending" || s.Phase == "success" || s.Phase == "failure", "a state that is known")
	at, err := time.Parse(time.RFC3339, s.ObservedAt)
	check(s.Names.ObservedAt, s.ObservedAt, err == nil, "a time")
	// A time in the future would hide everything that is reported until then.
	check(s.Names.ObservedAt, s.ObservedAt, err != nil || !at.After(i.clock.Now().Add(maxAhead)), "a time that is not in the future")
	check("id", strconv.FormatInt(s.Sequence, 10), s.Sequence >= 0, "a number that is not negative")
	if len(problems) > 0 {
		return s, problems
	}
	s.Description = clean(s.Description, maxStatusDescription)
	if len(s.Link) > maxStatusLink || !plainAddress(s.Link) {
		s.Link = ""
	}
	s.ID = Identify(StatusHook{Organization: s.Organization, Key: s.Hook}.Sender(), strings.Join([]string{
		s.Kind, s.Repository, s.Commit, s.Context, s.Phase, s.ObservedAt, strconv.FormatInt(s.Sequence, 10),
	}, "\n"))
	// After the identity, or one that is delivered again would be another. A clock that is ahead must not hide what is reported next.
	if now := i.clock.Now(); at.After(now) {
		s.ObservedAt = now.UTC().Format(time.RFC3339)
	}
	return s, nil
}

// plainAddress reports whether an address is http or https, without credentials or control characters, also as they are decoded.
func plainAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		utf8.ValidString(u.Host+u.Path) && !strings.ContainsFunc(u.Host+u.Path, unicode.IsControl)
}

// maxRepository bounds the name of a repository: its host and path, decoded and in lower case, which may be longer than they are written.
const maxRepository = 1000

func repositoryAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && plainAddress(address) && len(strings.ToLower(u.Host+u.Path)) <= maxRepository
}
