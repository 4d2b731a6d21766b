package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Hook is an endpoint for one sender, as configured.
type Hook struct {
	// Name identifies it: reports of different hooks are never mistaken for each other.
	Name string
	// Host, if set, replaces the registry's host in reports; it may have a path.
	Host string
	// Verify checks the digest at the registry even if the sender reports one.
	Verify bool
	// AllKinds means that the sender reports every pushed manifest, not only images.
	AllKinds bool
	// Scope is what it may report.
	Scope Scope
	// Redact removes the sender's secrets from refusals before they are stored; nil means no-op.
	Redact func(string) string
}

// Hint is a notification that the registry itself has to complete or confirm before it is published (D43).
type Hint struct {
	// ID identifies it while it is looked up. If the sender has none, it is made of image and tag, without the still unknown digest: a tag
	// reported ten times while its registry is unreachable causes one request.
	ID string
	// Hook is the sender.
	Hook string
	// Notification is the report.
	Notification Notification
	// Heard counts the reports, and Attempts the requests to the registry since the last one. A response counts only if Heard is unchanged:
	// a tag that was reported again may have moved since the request.
	Heard, Attempts int
}

// Receipt is the outcome of a delivery.
type Receipt struct {
	// Events are the ids of the events that follow, each once.
	Events []string
	// Resolving is the number of notifications for which the registry, or the forge, is queried first.
	Resolving int
	// Refused lists the parts that were left out, with reasons.
	Refused []Refusal
}

// Hints stores the reports of hooks.
type Hints interface {
	// Take stores artifacts, hints and refusals, all or none, and drops the artifacts that it has taken before.
	Take(ctx context.Context, hook string, artifacts []Artifact, hints []Hint, refusals []Refusal) error
	// Superseded returns the ids of those stored artifacts that are no longer the latest of their line.
	Superseded(ctx context.Context, artifacts []Artifact) ([]string, error)
}

// Repositories are the Git repositories of sources.
type Repositories interface {
	// Name returns the canonical form of a repository's address; "" for an invalid one.
	Name(address string) string
	// Nudge makes the sources of these repositories due for polling.
	Nudge(ctx context.Context, names []string) error
}

// HookIntake accepts the deliveries of hooks.
type HookIntake struct {
	intake       *Intake
	hints        Hints
	repositories Repositories
}

// maxArtifacts bounds the artifacts of one delivery. No vendor sends as many, and each may become a row and requests to an external
// registry.
const maxArtifacts = 500

// NewHookIntake returns a HookIntake that stores with the given parts.
func NewHookIntake(i *Intake, h Hints, r Repositories) *HookIntake {
	return &HookIntake{intake: i, hints: h, repositories: r}
}

// Accept stores the notifications of a delivery. A part that cannot be parsed, or that this sender may not report, is left out and
// recorded, together with the parts that the parser has left out: it must not hold up the rest of the delivery, or later ones.
func (d *HookIntake) Accept(ctx context.Context, h Hook, delivery []Notification, left []Refusal) (Receipt, error) {
	sorted := d.sort(h, delivery)
	artifacts, _, refusals := checkAll(sorted.known)
	artifacts, again, err := d.doubtful(ctx, h, artifacts)
	if err != nil {
		return Receipt{}, err
	}
	hints := append(sorted.hints, again...)
	refusals = h.redacted(boundedRefusals(slices.Concat(left, sorted.refused, refusals)))
	receipt := Receipt{Events: make([]string, len(artifacts)), Resolving: len(hints) + len(sorted.nudged), Refused: refusals}
	// All notifications of a delivery get the same new correlation, in place of those in the payload.
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
			return Receipt{}, fmt.Errorf("nudge the sources of a delivery to hook %s: %w", h.Name, err)
		}
	}
	if len(artifacts)+len(hints)+len(refusals) == 0 {
		return receipt, nil
	}
	if err := d.hints.Take(ctx, h.Name, artifacts, hints, refusals); err != nil {
		return Receipt{}, fmt.Errorf("store a delivery to hook %s: %w", h.Name, err)
	}
	return receipt, nil
}

// sorted is a delivery, sorted by what happens to its parts.
type sorted struct {
	known   []Notification
	hints   []Hint
	nudged  []string
	refused []Refusal
}

func (d *HookIntake) sort(h Hook, delivery []Notification) sorted {
	var s sorted
	if len(delivery) > maxArtifacts {
		s.refused = append(s.refused, Refusal{
			What:   "body",
			Reason: fmt.Sprintf("found %d artifacts; expected %d at most: the rest was left out", len(delivery), maxArtifacts),
		})
		delivery = delivery[:maxArtifacts]
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
				s.refused = append(s.refused, refused(n.Repository,
					[]fault.Field{{Name: n.Names.Repository, Problem: "found " + quote(n.Repository) + "; expected the address of a repository"}}))
			}
			continue
		}
		what := label(n)
		n, problems := h.place(d.intake.names, n)
		// Without a host the registry client would ask Docker Hub, where anyone may own a repository of that name.
		if len(problems) == 0 && n.Image != "" && withoutHost(n.Image) == n.Image {
			problems = append(problems, fault.Field{
				Name:    n.Names.Image,
				Problem: "found " + quote(n.Image) + "; expected a repository with its registry's host",
			})
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
		// The sender has proved its identity and reports a digest, which pins the content. Everything else is checked at the registry
		// (D43).
		believed := (n.Digest != "" || n.Deleted) && !h.Verify
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

// redacted returns refusals without the sender's secrets.
func (h Hook) redacted(all []Refusal) []Refusal {
	if h.Redact != nil {
		for i := range all {
			all[i].What, all[i].Reason = h.Redact(all[i].What), h.Redact(all[i].Reason)
		}
	}
	return all
}

// doubtful separates artifacts from those that need confirmation: reported before, of a tag that has moved since. Either the tag moved
// back, which is a new event, or an old delivery is replayed, which is not. Only the registry knows (D43).
func (d *HookIntake) doubtful(ctx context.Context, h Hook, all []Artifact) (good []Artifact, hints []Hint, err error) {
	lines := slices.DeleteFunc(slices.Clone(all), func(a Artifact) bool { return a.Line == "" })
	if len(lines) == 0 {
		return all, nil, nil
	}
	old, err := d.hints.Superseded(ctx, lines)
	if err != nil {
		return nil, nil, fmt.Errorf("look up earlier reports of hook %s: %w", h.Name, err)
	}
	for _, a := range all {
		if !slices.Contains(old, a.ID) {
			good = append(good, a)
			continue
		}
		n := Notification{
			Source: h.source(), Image: a.Image, Digest: a.Digest, Tag: a.Tag, PublishedAt: a.PublishedAt, TraceParent: a.TraceParent,
			Deleted: a.Deleted,
		}
		hint, _ := h.hint(n) // an accepted artifact has no problems
		hints = append(hints, hint)
	}
	return good, hints, nil
}

// source is the source of a hook's notifications.
func (h Hook) source() string { return "/hooks/" + h.Name }

// place applies the hook's host to a notification, and names the fields for which the format has no name. It returns the problems of the
// host.
func (h Hook) place(names Naming, n Notification) (Notification, []fault.Field) {
	// Never the payload's source: identities are recorded by source, so one sender could otherwise use up another's ids and have the real
	// events dropped as duplicates.
	n.Source = h.source()
	// The database does not accept zero bytes.
	if !traceForm.MatchString(n.TraceParent) {
		n.TraceParent = ""
	}
	n = named(n)
	if h.Host != "" && n.Image != "" {
		if n.Place == "" {
			n.Image = withoutHost(n.Image)
		}
		n.Place, n.Names.Place = h.Host, "" // it may have a path
	}
	return placed(names, n)
}

// placed returns n with its registry's host in its image, in canonical form.
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
	if n.Names.Place == "" { // otherwise only a host is allowed: with a path it would name another repository
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

// named returns n with names for the fields for which the format has none.
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

// hint returns n as a hint, or its problems.
func (h Hook) hint(n Notification) (Hint, []fault.Field) {
	reported := n
	if reported.ID == "" || n.Undated {
		reported.ID = n.Image + ":" + n.Tag
		if n.Deleted {
			reported.ID = "deleted " + reported.ID + "@" + n.Digest
		}
	}
	problems := check(reported, n.Digest == "" || validDigest(n.Digest))
	if n.Digest == "" && n.Tag == "" {
		problems = append(problems, fault.Field{Name: n.Names.Tag, Problem: "missing; expected a tag or a digest"})
	}
	return Hint{ID: Identify(reported.Source, reported.ID), Hook: h.Name, Notification: n}, problems
}

// identified returns n with an identifier: the sender's or, if it has none, one that repeated reports share. The digest is part of it: a
// tag that has moved is a new event. A tag that has moved back, or was deleted and published
// again, is one too, which its line shows.
func identified(n Notification) Notification {
	if n.ID != "" && !n.Undated {
		return n
	}
	if n.Tag != "" || n.commit() {
		n.Line = Identify(n.Source, n.Image+":"+n.Tag)
	}
	if n.ID == "" {
		n.ID = n.Image + ":" + n.Tag + "@" + n.Digest
		if n.Deleted {
			n.ID = "deleted " + n.PublishedAt + " " + n.ID
		}
	}
	return n
}

// Resolve returns the artifact that a hint becomes with the registry's digest. Every rule is checked again: the registry is external too,
// and the hint may have been stored by an older version of the service.
func (h Hint) Resolve(digest string) (Artifact, []fault.Field) {
	n := h.Notification
	if !n.Deleted {
		n.Digest = digest
	}
	a, problems := Check(identified(named(n)))
	if !n.Deleted {
		a.Seen = SeenYes
	}
	return a, problems
}

// asked returns the reference to query. For a sender without identifiers it is the tag: a reported digest may be that of a replayed
// delivery. For other believed senders it is the digest.
func (h Hint) asked() (tag, digest string) {
	n := h.Notification
	if n.Believed && (n.ID != "" && !n.Undated || n.Tag == "") {
		return "", n.Digest
	}
	return n.Tag, n.Digest
}

// withoutHost removes the registry's host from an image. A first component with a dot or a colon, or localhost, is a host: this is Docker's
// rule, by which every client distinguishes shop/api at Docker Hub from localhost/api.
func withoutHost(image string) string {
	first, rest, ok := strings.Cut(image, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return rest
	}
	return image
}
