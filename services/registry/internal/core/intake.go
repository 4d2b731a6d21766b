package core

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Outbox is where accepted artifacts wait for the domain to have received them.
type Outbox interface {
	// Put stores everything or nothing, and leaves those artifacts alone that wait there already. When it returns they are
	// committed: the answer to the sender relies on it (D44).
	Put(ctx context.Context, sender string, artifacts []Artifact, hints []Hint, refusals []Refusal) error
}

// Access says at which registries digests can be looked up.
type Access interface {
	// Access reports whether an organization, or the service itself for 0, has an account for the registry of an image, or is configured to read
	// there without one.
	Access(organization int64, image string) bool
}

// Intake takes deliveries in from those who have a token of ours.
type Intake struct {
	outbox Outbox
	access Access
	names  Naming
	clock  clock.Clock
}

// NewIntake is an intake over an outbox.
func NewIntake(outbox Outbox, access Access, names Naming, c clock.Clock) *Intake {
	return &Intake{outbox: outbox, access: access, names: names, clock: c}
}

// Token is a sender that has a token of ours.
type Token struct {
	// Name identifies it; empty for a token without a name, which is not to be told from others.
	Name string
	// Scope is what it may report.
	Scope Scope
	// AllKinds means that the delivery is of a registry, which reports every manifest that is pushed, images or not.
	AllKinds bool
}

// Sender is how the token is called beside hooks.
func (t Token) Sender() string { return "token:" + t.Name }

// Accept stores what a delivery tells. What breaks a rule is left out and recorded, together with what the parser has left out already. The events of
// the answer are those that the notifications become, in their order, each once.
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
		// These senders hold a token of ours, so that a correlation of theirs is kept: a pipeline's run continues with us.
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

// sign is n as this token's: the name is part of the identity, so that no token uses up the identifiers of another one's events. Tokens without a
// name share one space of identifiers.
func (t Token) sign(n Notification) Notification {
	if t.Name != "" && validIdentity(n.Source) {
		n.Source = "/tokens/" + t.Name + "/" + Identify(n.Source, "")
	}
	return n
}

// asks reports whether the registry is asked before n is published: where there is access to it, for the digest; and where the sender does not say
// whether it is an image, for that.
func (i *Intake) asks(organization int64, allKinds bool, n Notification) bool {
	if n.commit() {
		return false
	}
	if i.access != nil && i.access.Access(organization, n.Image) {
		return true
	}
	kind, _ := n.Manifest.Kind()
	return allKinds && kind == KindUnknown
}

// checkAll checks every notification and drops repetitions. The same identity with other contents is refused: one of
// the two would be lost, and nobody could say which. The second answer is the notification of each artifact.
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
