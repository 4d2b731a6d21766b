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
}

// Hints stores what hooks tell.
type Hints interface {
	// Take stores artifacts and hints, all or none, and drops the artifacts that it has taken before.
	Take(ctx context.Context, hook string, artifacts []Artifact, hints []Hint) error
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

// maxTold is how many artifacts one delivery may tell of. No vendor sends as many, and each may become a row and
// requests to somebody else's registry.
const maxTold = 500

// NewDesk is a desk that stores where it is told.
func NewDesk(i *Intake, h Hints, r Repositories) *Desk {
	return &Desk{intake: i, hints: h, repositories: r}
}

// Hear stores everything that a delivery tells or, if any of it breaks a rule, nothing. The error is then Invalid and
// names every field at fault.
func (d *Desk) Hear(ctx context.Context, h Hook, delivery []Notification) (Receipt, error) {
	var (
		known    []Notification
		hints    []Hint
		nudged   []string
		problems []fault.Field
	)
	if len(delivery) > maxTold {
		return Receipt{}, fault.InvalidFields(fault.Field{Name: "body", Problem: fmt.Sprintf("found %d artifacts; expected %d at most", len(delivery), maxTold)})
	}
	for _, n := range delivery {
		if n.Names.Repository != "" {
			name := d.repositories.Name(n.Repository)
			if name == "" {
				problems = append(problems, fault.Field{Name: n.Names.Repository, Problem: "found " + quote(n.Repository) + "; expected the address of a repository"})
			}
			nudged = append(nudged, name)
			continue
		}
		n = h.place(n)
		// Without a host the client of registries would ask Docker Hub, where anybody may own a repository of that name.
		if n.Image != "" && withoutHost(n.Image) == n.Image {
			problems = append(problems, fault.Field{Name: n.Names.Image, Problem: "found " + quote(n.Image) + "; expected a repository with its registry's host"})
			continue
		}
		// The sender has proven itself and tells a digest, which pins what it means. All else the registry answers (D43).
		if n.Digest != "" && !h.Verify {
			known = append(known, identified(n))
			continue
		}
		hint, wrong := h.hint(n)
		problems = append(problems, wrong...)
		hints = append(hints, hint)
	}
	artifacts, err := checkAll(known)
	problems = append(problems, fault.FieldsOf(err)...)
	if len(problems) > 0 {
		return Receipt{}, fault.InvalidFields(problems...)
	}
	artifacts, again, err := d.doubtful(ctx, h, artifacts)
	if err != nil {
		return Receipt{}, err
	}
	hints = append(hints, again...)
	receipt := Receipt{Events: make([]string, len(artifacts)), Resolving: len(hints) + len(nudged)}
	// One correlation for all that a delivery tells, in place of any that the payload brings.
	group := id.New(d.intake.clock.Now())
	for i := range artifacts {
		receipt.Events[i] = artifacts[i].ID
		artifacts[i].Correlation = group
	}
	for i := range hints {
		hints[i].Notification.Correlation = group
	}
	if len(nudged) > 0 {
		if err := d.repositories.Nudge(ctx, nudged); err != nil {
			return Receipt{}, fmt.Errorf("nudge the sources of what hook %s told: %w", h.Name, err)
		}
	}
	if len(artifacts)+len(hints) == 0 {
		return receipt, nil
	}
	if err := d.hints.Take(ctx, h.Name, artifacts, hints); err != nil {
		return Receipt{}, fmt.Errorf("store what hook %s told: %w", h.Name, err)
	}
	return receipt, nil
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

// place puts a notification where its hook says, and gives names to the fields that the format has no name for.
func (h Hook) place(n Notification) Notification {
	// Never the payload's: identities are remembered by source, so one sender could otherwise use up another's ids and
	// have the real events dropped as repetitions.
	n.Source = h.source()
	switch {
	case n.Image == "":
	case h.Host != "":
		if n.Place == "" {
			n.Image = withoutHost(n.Image)
		}
		n.Image = h.Host + "/" + n.Image
	case n.Place != "":
		n.Image = n.Place + "/" + n.Image
	}
	n.Place = ""
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
	return Check(identified(n))
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
