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
	// Put stores all artifacts or none, and leaves those alone that wait there already. When it returns they are
	// committed: the answer to the sender relies on it (D44).
	Put(ctx context.Context, artifacts []Artifact) error
}

// Intake takes deliveries in.
type Intake struct {
	outbox Outbox
	clock  clock.Clock
}

// NewIntake is an intake over an outbox.
func NewIntake(outbox Outbox, c clock.Clock) *Intake { return &Intake{outbox: outbox, clock: c} }

// Accept stores every notification of a delivery or, if a single one breaks a rule, none of them. The error is then
// Invalid and names every field at fault. The answer is the ids of the events that the notifications become, in their
// order, each once.
func (i *Intake) Accept(ctx context.Context, delivery []Notification) ([]string, error) {
	artifacts, err := checkAll(delivery)
	if err != nil {
		return nil, err
	}
	events := make([]string, len(artifacts))
	group := id.New(i.clock.Now())
	for n := range artifacts {
		events[n] = artifacts[n].ID
		// These senders hold a token of ours, so that a correlation of theirs is kept: a pipeline's run goes on with us.
		if artifacts[n].Correlation == "" {
			artifacts[n].Correlation = group
		}
	}
	if len(artifacts) == 0 {
		return events, nil
	}
	if err := i.outbox.Put(ctx, artifacts); err != nil {
		return nil, fmt.Errorf("store %d artifacts: %w", len(artifacts), err)
	}
	return events, nil
}

// checkAll checks every notification and drops repetitions. The same identity with other contents is refused: one of
// the two would be lost, and nobody could say which.
func checkAll(delivery []Notification) ([]Artifact, error) {
	var (
		artifacts []Artifact
		problems  []fault.Field
		seen      = map[string]Artifact{}
	)
	for _, n := range delivery {
		artifact, found := Check(n)
		if len(found) > 0 {
			problems = append(problems, found...)
			continue
		}
		earlier, again := seen[artifact.ID]
		switch {
		case !again:
			seen[artifact.ID] = artifact
			artifacts = append(artifacts, artifact)
		case earlier != artifact:
			problems = append(problems, fault.Field{
				Name:    n.Names.ID,
				Problem: "found " + quote(n.ID) + " a second time with other contents; expected an id of its own for each event of a source",
			})
		}
	}
	if len(problems) > maxProblems {
		more := len(problems) - maxProblems
		problems = append(problems[:maxProblems], fault.Field{Name: "…", Problem: fmt.Sprintf("and %d more", more)})
	}
	if len(problems) > 0 {
		return nil, fault.InvalidFields(problems...)
	}
	return artifacts, nil
}

// maxProblems keeps the answer to a large and wholly wrong batch readable.
const maxProblems = 50
