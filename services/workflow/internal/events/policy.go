package events

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// ofPolicies reports whether events of a type are about policies that decide about calls.
func ofPolicies(eventType string) bool {
	return eventType == event.TypePolicySetChanged || eventType == event.TypeCallAnswered
}

// policies takes what the domain service says of policies about calls. Only the domain service is believed: that is checked here once more,
// because everything else depends on it.
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
	data, err := event.Decode[event.PolicySetChanged](wire)
	if err != nil {
		return err
	}
	return d.Policies.ReceivePolicySet(ctx, wire, callpolicy.Set{
		Organization: e.Organization, Name: data.Name, Version: data.Version, Mode: data.Mode, TimeZone: data.TimeZone, Text: data.Text,
		Application: data.ApplicationID, Environment: data.EnvironmentID,
	})
}
