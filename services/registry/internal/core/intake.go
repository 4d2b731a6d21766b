package core

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Outbox stores accepted artifacts until the domain has confirmed them.
type Outbox interface {
	// Put stores everything or nothing, and skips those artifacts that it already has. When it returns they are committed: the response to
	// the sender relies on it (D44).
	Put(ctx context.Context, sender string, artifacts []Artifact, hints []Hint, refusals []Refusal) error
}

// Access knows at which registries digests can be looked up.
type Access interface {
	// Access reports whether an organization, or the service itself for 0, has an account for the registry of an image, or is configured to
	// read there without one.
	Access(organization int64, image string) bool
}

// Intake accepts deliveries with a token of ours.
type Intake struct {
	outbox Outbox
	access Access
	names  Naming
	clock  clock.Clock
}

// NewIntake returns an Intake that stores into an outbox.
func NewIntake(outbox Outbox, access Access, names Naming, c clock.Clock) *Intake {
	return &Intake{outbox: outbox, access: access, names: names, clock: c}
}

// Token is a sender with a token of ours.
type Token struct {
	// Name identifies it; empty for a token without a name, which cannot be distinguished from others.
	Name string
	// Scope is what it may report.
	Scope Scope
	// AllKinds means that the sender is a registry, which reports every pushed manifest, not only images.
	AllKinds bool
}

// Sender returns the token's name among the senders, which include hooks.
func (t Token) Sender() string { return "token:" + t.Name }

// Accept stores the notifications of a delivery. Those that break a rule are left out and recorded, together with the parts that the parser
// has left out. The receipt has the events of the notifications, in their order, each once.
func (i *Intake) Accept(ctx context.Context, t Token, delivery []Notification, left []Refusal) (Receipt, error) {
	var (
		known    []Notification
		refusals []Refusal
	)
	for _, n := range delivery {
		if n.Foreign != "" {
			refusals = append(refusals, foreign(n))
			continue
		}
		what := label(n)
		n, problems := placed(i.names, named(n))
		if len(problems) > 0 {
			refusals = append(refusals, refused(what, problems))
			continue
		}
		if n, problems = t.Scope.narrow(i.names, n); len(problems) > 0 {
			r := refused(what, problems)
			r.Denied = true
			refusals = append(refusals, r)
			continue
		}
		known = append(known, t.sign(n))
	}
	artifacts, from, wrong := checkAll(known)
	receipt := Receipt{Events: make([]string, len(artifacts)), Refused: boundedRefusals(append(append(refusals, wrong...), left...))}
	var (
		direct []Artifact
		hints  []Hint
		group  = id.New(i.clock.Now())
	)
	for n, a := range artifacts {
		receipt.Events[n] = a.ID
		// These senders have a token of ours, so their correlation is kept: a pipeline's run continues here.
		if a.Correlation == "" {
			a.Correlation = group
		}
		if i.asks(t.Scope.Organization, t.AllKinds, from[n]) {
			hinted := from[n].believed(i.clock.Now())
			hinted.Correlation, hinted.TraceParent = a.Correlation, a.TraceParent
			hints = append(hints, Hint{ID: a.ID, Hook: t.Sender(), Notification: hinted})
			continue
		}
		direct = append(direct, a)
	}
	receipt.Resolving = len(hints)
	if len(artifacts)+len(receipt.Refused) == 0 {
		return receipt, nil
	}
	if err := i.outbox.Put(ctx, t.Sender(), direct, hints, receipt.Refused); err != nil {
		return Receipt{}, fmt.Errorf("store %d artifacts: %w", len(artifacts), err)
	}
	return receipt, nil
}

// sign returns n as a report with this token: the name becomes part of the identity, so that no token uses up the identifiers of another.
// Tokens without a name share one space of identifiers.
func (t Token) sign(n Notification) Notification {
	if t.Name != "" && validIdentity(n.Source) {
		n.Source = "/tokens/" + t.Name + "/" + Identify(n.Source, "")
	}
	return n
}

// asks reports whether the registry is queried before n is published: for the digest, if it is accessible; and for the kind, if the sender
// does not report it.
func (i *Intake) asks(organization int64, allKinds bool, n Notification) bool {
	if n.commit() || n.Deleted {
		return false
	}
	if i.access != nil && i.access.Access(organization, n.Image) {
		return true
	}
	kind, _ := n.Manifest.Kind()
	return allKinds && kind == KindUnknown
}

// checkAll checks every notification and drops duplicates. The same identity with different content is refused: one of the two would be
// lost, and it is unknown which. The second result has the notification of each artifact.
func checkAll(delivery []Notification) ([]Artifact, []Notification, []Refusal) {
	var (
		artifacts []Artifact
		from      []Notification
		refusals  []Refusal
		seen      = map[string]Artifact{}
	)
	for _, n := range delivery {
		artifact, found := Check(n)
		if len(found) > 0 {
			refusals = append(refusals, refused(label(n), found))
			continue
		}
		earlier, again := seen[artifact.ID]
		switch {
		case !again:
			seen[artifact.ID] = artifact
			artifacts, from = append(artifacts, artifact), append(from, n)
		case earlier != artifact:
			refusals = append(refusals, refused(label(n), []fault.Field{{
				Name:    n.Names.ID,
				Problem: "found " + quote(n.ID) + " a second time with other contents; expected an id of its own for each event of a source",
			}}))
		}
	}
	return artifacts, from, refusals
}
