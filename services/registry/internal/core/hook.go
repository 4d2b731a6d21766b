package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Hook is an endpoint for one sender, as its configuration has it.
type Hook struct {
	// Name identifies it: what one hook tells is never taken for what another tells.
	Name string
	// Host replaces the registry's host in what is told, if it is set; it may have a path.
	Host string
	// Verify asks the registry even where the sender tells a digest.
	Verify bool
	// AllKinds means that the sender reports every manifest that is pushed, images or not.
	AllKinds bool
	// Scope is what it may report.
	Scope Scope
	// Redact takes the sender's secrets out of what is kept of refusals; nil for none.
	Redact func(string) string
}

// Hint is a notification that the registry itself has to complete or confirm before anybody believes it (D43).
type Hint struct {
	// ID identifies it while it is looked up. Where the sender has none it is made of image and tag, without the digest
	// that nobody knows yet: a tag told ten times while its registry is away is asked about once.
	ID string
	// Hook is whom it came from.
	Hook string
	// Notification is what was told.
	Notification Notification
	// Heard counts how often it was told, and Attempts how often the registry was asked since the last time. An answer
	// counts only if Heard is still what it was: a tag that was told again may have moved since we asked.
	Heard, Attempts int
}

// Receipt is what becomes of a delivery.
type Receipt struct {
	// Events are the ids of the events that follow, each once.
	Events []string
	// Resolving is how many notifications the registry, or the forge, is asked about first.
	Resolving int
	// Refused is what was left out, and why.
	Refused []Refusal
}

// Hints stores what hooks tell.
type Hints interface {
	// Take stores artifacts, hints and refusals, all or none, and drops the artifacts that it has taken before.
	Take(ctx context.Context, hook string, artifacts []Artifact, hints []Hint, refusals []Refusal) error
	// Superseded are the ids of those artifacts that were taken before and after which another one of their line was.
	Superseded(ctx context.Context, artifacts []Artifact) ([]string, error)
}

// Repositories are those that sources point at.
type Repositories interface {
	// Name is the one way of writing a repository's address; "" for what is none.
	Name(address string) string
	// Nudge makes the sources of these repositories due to be looked at.
	Nudge(ctx context.Context, names []string) error
}

// Desk takes what hooks tell.
type Desk struct {
	intake       *Intake
	hints        Hints
	repositories Repositories
}

// maxTold is how many artifacts of one delivery are taken. No vendor sends as many, and each may become a row and
// requests to somebody else's registry.
const maxTold = 500

// NewDesk is a desk that stores where it is told.
func NewDesk(i *Intake, h Hints, r Repositories) *Desk {
	return &Desk{intake: i, hints: h, repositories: r}
}

// Hear stores what a delivery tells. What cannot be understood, or may not be reported by this sender, is left out and recorded together with what
// the parser has left out already: it must not hold up what comes with it, or behind it.
func (d *Desk) Hear(ctx context.Context, h Hook, delivery []Notification, left []Refusal) (Receipt, error) {
	sorted := d.sort(h, delivery)
	artifacts, _, refusals := checkAll(sorted.known)
	artifacts, again, err := d.doubtful(ctx, h, artifacts)
	if err != nil {
		return Receipt{}, err
	}
	hints := append(sorted.hints, again...)
	refusals = h.redacted(boundedRefusals(slices.Concat(left, sorted.refused, refusals)))
	receipt := Receipt{Events: make([]string, len(artifacts)), Resolving: len(hints) + len(sorted.nudged), Refused: refusals}
	// One correlation for all that a delivery tells, in place of any that the payload brings.
	group := id.New(d.intake.clock.Now())
	for i := range artifacts {
		receipt.Events[i] = artifacts[i].ID
		artifacts[i].Correlation = group
	}
	for i := range hints {
		hints[i].Notification.Correlation = group
	}
	if len(sorted.nudged) > 0 {
		if err := d.repositories.Nudge(ctx, sorted.nudged); err != nil {
			return Receipt{}, fmt.Errorf("nudge the sources of what hook %s told: %w", h.Name, err)
		}
	}
	if len(artifacts)+len(hints)+len(refusals) == 0 {
		return receipt, nil
	}
	if err := d.hints.Take(ctx, h.Name, artifacts, hints, refusals); err != nil {
		return Receipt{}, fmt.Errorf("store what hook %s told: %w", h.Name, err)
	}
	return receipt, nil
}

// sorted is a delivery by what is to become of its parts.
type sorted struct {
	known   []Notification
	hints   []Hint
	nudged  []string
	refused []Refusal
}

func (d *Desk) sort(h Hook, delivery []Notification) sorted {
	var s sorted
	if len(delivery) > maxTold {
		s.refused = append(s.refused, Refusal{What: "body", Reason: fmt.Sprintf("found %d artifacts; expected %d at most: those behind were left out", len(delivery), maxTold)})
		delivery = delivery[:maxTold]
	}
	for _, n := range delivery {
		if n.Foreign != "" {
			s.refused = append(s.refused, foreign(n))
			continue
		}
		if n.Names.Repository != "" {
			if name := d.repositories.Name(n.Repository); name != "" {
				s.nudged = append(s.nudged, name)
			} else {
				s.refused = append(s.refused, refused(n.Repository, []fault.Field{{Name: n.Names.Repository, Problem: "found " + quote(n.Repository) + "; expected the address of a repository"}}))
			}
			continue
		}
		what := label(n)
		n, problems := h.place(d.intake.names, n)
		// Without a host the client of registries would ask Docker Hub, where anybody may own a repository of that name.
		if len(problems) == 0 && n.Image != "" && withoutHost(n.Image) == n.Image {
			problems = append(problems, fault.Field{Name: n.Names.Image, Problem: "found " + quote(n.Image) + "; expected a repository with its registry's host"})
		}
		if len(problems) > 0 {
			s.refused = append(s.refused, refused(what, problems))
			continue
		}
		n, problems = h.Scope.narrow(d.intake.names, n)
		if len(problems) > 0 {
			r := refused(what, problems)
			r.Denied = true
			s.refused = append(s.refused, r)
			continue
		}
		// The sender has proven itself and tells a digest, which pins what it means. All else the registry answers (D43).
		believed := n.Digest != "" && !h.Verify
		if believed && !d.intake.asks(h.Scope.Organization, h.AllKinds, n) {
			s.known = append(s.known, identified(n))
			continue
		}
		if believed {
			n = n.believed(d.intake.clock.Now())
		}
		hint, wrong := h.hint(n)
		if len(wrong) > 0 {
			s.refused = append(s.refused, refused(what, wrong))
			continue
		}
		s.hints = append(s.hints, hint)
	}
	return s
}

// redacted is refusals without the sender's secrets.
func (h Hook) redacted(all []Refusal) []Refusal {
	if h.Redact != nil {
		for i := range all {
			all[i].What, all[i].Reason = h.Redact(all[i].What), h.Redact(all[i].Reason)
		}
	}
	return all
}

// doubtful parts artifacts from those that cannot be believed: told before, of a tag that has moved since. Either the tag
// went back, which is a new event, or an old delivery is replayed, which is none. Only the registry knows (D43).
func (d *Desk) doubtful(ctx context.Context, h Hook, all []Artifact) (good []Artifact, hints []Hint, err error) {
	lines := slices.DeleteFunc(slices.Clone(all), func(a Artifact) bool { return a.Line == "" })
	if len(lines) == 0 {
		return all, nil, nil
	}
	old, err := d.hints.Superseded(ctx, lines)
	if err != nil {
		return nil, nil, fmt.Errorf("look up what hook %s told before: %w", h.Name, err)
	}
	for _, a := range all {
		if !slices.Contains(old, a.ID) {
			good = append(good, a)
			continue
		}
		n := Notification{Source: h.source(), Image: a.Image, Digest: a.Digest, Tag: a.Tag, PublishedAt: a.PublishedAt, TraceParent: a.TraceParent}
		hint, _ := h.hint(n) // nothing is wrong with what has passed as an artifact
		hints = append(hints, hint)
	}
	return good, hints, nil
}

// source is what a hook's notifications are from.
func (h Hook) source() string { return "/hooks/" + h.Name }

// place puts a notification where its hook says, and gives names to the fields that the format has no name for; or it says what is wrong with
// the host.
func (h Hook) place(names Naming, n Notification) (Notification, []fault.Field) {
	// Never the payload's: identities are remembered by source, so one sender could otherwise use up another's ids and
	// have the real events dropped as repetitions.
	n.Source = h.source()
	// What travels no further than the registry's database, which takes no zero bytes.
	if !traceForm.MatchString(n.TraceParent) {
		n.TraceParent = ""
	}
	n = named(n)
	if h.Host != "" && n.Image != "" {
		if n.Place == "" {
			n.Image = withoutHost(n.Image)
		}
		n.Place, n.Names.Place = h.Host, "" // which may have a path
	}
	return placed(names, n)
}

// placed is n with its registry's host in its image, in the one way of writing it.
func placed(names Naming, n Notification) (Notification, []fault.Field) {
	place, scheme := n.Place, "https"
	n.Place = ""
	if n.Image == "" {
		return n, nil
	}
	if place == "" && n.Names.Place != "" {
		return n, []fault.Field{{Name: n.Names.Place, Problem: "missing; expected the host of the registry"}}
	}
	if place == "" {
		if rest := withoutHost(n.Image); rest != n.Image {
			if host, ok := names.Host(strings.TrimSuffix(n.Image, "/"+rest), scheme); ok {
				n.Image = host + "/" + rest
			}
		}
		return n, nil
	}
	if rest, ok := strings.CutPrefix(place, "http://"); ok {
		place, scheme = rest, "http"
	}
	host, path, below := strings.TrimPrefix(place, "https://"), "", false
	if n.Names.Place == "" { // otherwise it is a host and nothing else: one that smuggles in a path would name a repository elsewhere
		host, path, below = strings.Cut(host, "/")
	}
	normalized, ok := names.Host(host, scheme)
	if !ok {
		at := n.Names.Place
		if at == "" {
			at = n.Names.Image
		}
		return n, []fault.Field{{Name: at, Problem: "found " + quote(host) + "; expected the host of the registry, with its port if it has one"}}
	}
	if below {
		normalized += "/" + path
	}
	n.Image = normalized + "/" + n.Image
	return n, nil
}

// named is n with names for the fields that the format has no name for.
func named(n Notification) Notification {
	for _, name := range []struct {
		field *string
		value string
	}{
		{&n.Names.Source, "source"},
		{&n.Names.ID, "id"},
		{&n.Names.Image, "image"},
		{&n.Names.Digest, "digest"},
		{&n.Names.Tag, "tag"},
		{&n.Names.PublishedAt, "published_at"},
		{&n.Names.Correlation, "correlationid"},
	} {
		if *name.field == "" {
			*name.field = name.value
		}
	}
	return n
}

// hint is n, to be looked up; or what is wrong with it.
func (h Hook) hint(n Notification) (Hint, []fault.Field) {
	told := n
	if told.ID == "" {
		told.ID = n.Image + ":" + n.Tag
	}
	problems := check(told, n.Digest == "" || validDigest(n.Digest))
	if n.Digest == "" && n.Tag == "" {
		problems = append(problems, fault.Field{Name: n.Names.Tag, Problem: "missing; expected a tag or a digest"})
	}
	return Hint{ID: Identify(told.Source, told.ID), Hook: h.Name, Notification: n}, problems
}

// identified is n with an identifier: the sender's or, where it has none, what makes two tellings one in effect. The
// digest is part of it: a tag that has moved is a new event. One that has moved back is, too, which its line shows.
func identified(n Notification) Notification {
	if n.ID == "" {
		n.ID = n.Image + ":" + n.Tag + "@" + n.Digest
		if n.Tag != "" || n.commit() {
			n.Line = Identify(n.Source, n.Image+":"+n.Tag)
		}
	}
	return n
}

// Resolve is the artifact that a hint becomes with the digest that the registry told. Every rule is checked again: the
// registry is somebody else's too, and the hint may have been stored by an older version of us.
func (h Hint) Resolve(digest string) (Artifact, []fault.Field) {
	n := h.Notification
	n.Digest = digest
	a, problems := Check(identified(named(n)))
	a.Seen = SeenYes
	return a, problems
}

// asked is what the registry is asked for. Of a sender without identifiers the tag counts: the digest that it tells may be that of an old delivery,
// sent again. Of all others that are believed, the digest does.
func (h Hint) asked() (tag, digest string) {
	n := h.Notification
	if n.Believed && (n.ID != "" || n.Tag == "") {
		return "", n.Digest
	}
	return n.Tag, n.Digest
}

// withoutHost drops the registry's host from an image. A first component with a dot or a colon, and localhost, is one:
// it is Docker's rule, by which every client tells shop/api at Docker Hub from localhost/api.
func withoutHost(image string) string {
	first, rest, ok := strings.Cut(image, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return rest
	}
	return image
}
