package events

import (
	"context"
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// ofPolicies reports whether events of a type are about what decides about calls: policies, and credentials.
func ofPolicies(eventType string) bool {
	return eventType == event.TypePolicySetChanged || eventType == event.TypeCallAnswered || eventType == event.TypeCredentialChanged
}

// policies takes what the domain service says of policies about calls and of credentials. Only the domain service is believed: that is
// checked here once more, because everything else depends on it.
func (d Domain) policies(ctx context.Context, wire event.Event, e history.Event) error {
	if err := event.CheckEmitter(e.Type, event.EmitterDomain); err != nil || wire.Source() != event.SourceDomain {
		return err
	}
	if e.Type == event.TypeCallAnswered {
		data, err := event.Decode[event.CallAnswered](wire)
		if err != nil {
			return err
		}
		return d.Policies.ReceiveCallAnswer(ctx, wire, e.Organization, history.CallAnswer{
			Request: data.CallID, Approved: data.Approved, Reason: data.Reason,
		})
	}
	if e.Type == event.TypeCredentialChanged {
		data, err := event.Decode[event.CredentialChanged](wire)
		if err != nil {
			return err
		}
		var proof sealing.Proof
		if len(data.Proof) > 0 {
			if err := json.Unmarshal(data.Proof, &proof); err != nil {
				return fault.Because(err, fault.Invalid, "read the proof of credential %q", data.Name)
			}
		}
		return d.Policies.ReceiveCredential(ctx, wire, book.Report{Sequence: data.Sequence, Credential: book.Credential{
			Terms: sealing.Terms{
				Organization: e.Organization, Name: data.Name, Version: data.Version, Kind: sealing.Kind(data.Kind), URLPrefixes: data.URLPrefixes,
				Username: data.Username, Header: data.Header, Forge: data.Forge, Proof: proof,
			},
			Reference: data.Reference, Sealed: data.Sealed, Revoked: data.Revoked,
		}})
	}
	data, err := event.Decode[event.PolicySetChanged](wire)
	if err != nil {
		return err
	}
	return d.Policies.ReceivePolicySet(ctx, wire, callpolicy.Set{
		Organization: e.Organization, Name: data.Name, Version: data.Version, Mode: data.Mode, TimeZone: data.TimeZone, Text: data.Text,
		Application: data.ApplicationID, Environment: data.EnvironmentID, Labels: data.ApplicationLabels,
	})
}
