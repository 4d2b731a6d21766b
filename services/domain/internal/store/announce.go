package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Source is the source of the domain's events.
const Source = event.SourceDomain

// Announce implements rollout.Tx: the event is made here, once, in the transaction, and keeps its id however often it is sent.
func (t *tx) Announce(ctx context.Context, r rollout.GateResolved) error {
	data := event.ApprovalResolved{
		RolloutID: r.RolloutID, GateID: r.GateID, Resolution: "rejected",
		PrincipalType: string(r.Type), PrincipalID: r.ID, Reason: r.Reason,
	}
	if r.Approved {
		data.Resolution = "approved"
	}
	return t.announce(ctx, r.Organization, r.RolloutID, r.At, data)
}

// Grant implements rollout.Tx.
func (t *tx) Grant(ctx context.Context, p rollout.Passage) error {
	return t.announce(ctx, p.Organization, p.RolloutID, p.At, event.RolloutPassageGranted{
		RolloutID: p.RolloutID, GateID: p.GateID, EnvironmentID: p.EnvironmentID, ApplicationID: p.ApplicationID,
		Weight: p.Weight, Wave: p.Wave, PinnedWeights: p.PinnedWeights,
		Places: eventPlaces(p.Places), Attempt: p.Attempt,
	})
}

// Revoke implements rollout.Tx.
func (t *tx) Revoke(ctx context.Context, e rollout.End) error {
	return t.announce(ctx, e.Organization, e.RolloutID, e.At, event.RolloutPassagesRevoked{
		RolloutID: e.RolloutID, Cancelled: e.Cancelled, EnvironmentIDs: e.Left,
	})
}

// Command implements rollout.Tx.
func (t *tx) Command(ctx context.Context, c rollout.Command) error {
	if c.Verb == core.VerbAbort {
		return t.announce(ctx, c.Organization, c.RolloutID, c.At, event.RolloutAbortRequested{RolloutID: c.RolloutID, Reason: c.Reason})
	}
	return t.announce(ctx, c.Organization, c.RolloutID, c.At, event.RolloutRetryRequested{RolloutID: c.RolloutID, Reason: c.Reason})
}

// Nudge implements rollout.Tx.
func (t *tx) Nudge(ctx context.Context, n rollout.Nudge) error {
	return t.announce(ctx, n.Organization, n.RolloutID, n.At, event.CheckNudged{CheckRunID: n.RunID})
}

// NudgeDeployment implements rollout.Tx.
func (t *tx) NudgeDeployment(ctx context.Context, n rollout.DeploymentNudge) error {
	return t.announce(ctx, n.Organization, n.RolloutID, n.At, event.DeploymentNudged{
		RolloutID: n.RolloutID, DeploymentID: n.DeploymentID, Watch: fmt.Sprintf("deployment/%d", n.DeploymentID),
	})
}

// AnnounceCallAnswer implements policy.CallTx.
func (t *tx) AnnounceCallAnswer(ctx context.Context, r core.CallRequest, approved bool, reason string, at time.Time) error {
	return t.publish(ctx, r.WorkflowID, at, event.CallAnswered{
		WorkflowID: r.WorkflowID, CallID: r.CallID, Approved: approved, Reason: reason,
	})
}

// AnnouncePolicySet implements policy.Tx.
func (t *tx) AnnouncePolicySet(ctx context.Context, s core.PolicySet) error {
	if err := t.q.NotePolicySent(ctx, int32(s.Version), t.organization, s.ID); err != nil {
		return pg.Classify(err, "note that policy set %q was sent", s.Name)
	}
	return t.publish(ctx, "policy-set-"+s.Name, s.CreatedAt, event.PolicySetChanged{
		Name: s.Name, Version: s.Version, Mode: string(s.Mode), TimeZone: s.TimeZone, Text: s.Text, ApplicationID: s.ApplicationID,
		EnvironmentID: s.EnvironmentID, ApplicationLabels: s.Labels,
	})
}

// AnnounceCredential implements credential.Tx.
func (t *tx) AnnounceCredential(ctx context.Context, c credential.Credential, at time.Time) error {
	sequence, err := t.q.PlacesSequence(ctx)
	if err != nil {
		return pg.Classify(err, "number credential %q", c.Name)
	}
	var proof json.RawMessage
	if !c.Proof.IsZero() {
		if proof, err = json.Marshal(c.Proof); err != nil {
			return fmt.Errorf("encode the proof of credential %q: %w", c.Name, err)
		}
	}
	return t.publish(ctx, "credential-"+c.Name, at, event.CredentialChanged{
		Name: c.Name, Sequence: sequence, Version: c.Version, Kind: string(c.Kind), URLPrefixes: c.URLPrefixes, Username: c.Username,
		Header: c.Header, Forge: c.Forge, Reference: c.Reference, Sealed: c.Sealed, Revoked: c.RevokedAt != nil, Proof: proof,
	})
}

// publish makes an event about something other than a rollout.
func (t *tx) publish(ctx context.Context, correlation string, at time.Time, data event.Data) error {
	e, err := event.Make(event.Header{
		ID: id.New(at), Source: Source, Organization: t.organization, Correlation: correlation, Time: at,
	}, data)
	if err != nil {
		return fmt.Errorf("make %s of %q: %w", data.EventType(), correlation, err)
	}
	return t.deps.Publish(ctx, outgoing{t.pgx, t.line}, e)
}

// announce makes an event of a rollout and stores it with what it is about.
func (t *tx) announce(ctx context.Context, organization, rollout int64, at time.Time, data event.Data) error {
	// What happens to a rollout is recorded in the rollout's trace, and linked to the request that it happened by.
	trace, locked := t.traces[rollout]
	if !locked {
		var err error
		if trace, err = t.q.TraceOfRollout(ctx, t.organization, rollout); err != nil {
			return missing(err, "rollout", rollout)
		}
	}
	if trace != "" {
		trace = telemetry.TraceParent(telemetry.LinkSpan(ctx, trace, data.EventType()))
	}
	// When the transaction is run again after a deadlock, a new id is made and nobody has seen the old one. After the
	// commit the outbox keeps it (D44).
	e, err := event.Make(event.Header{
		ID: id.New(at), Source: Source, Organization: organization, Correlation: fmt.Sprintf("rollout-%d", rollout), Time: at, Trace: trace,
	}, data)
	if err != nil {
		return fmt.Errorf("make %s of rollout %d: %w", data.EventType(), rollout, err)
	}
	return t.deps.Publish(ctx, outgoing{t.pgx, t.line}, e)
}
