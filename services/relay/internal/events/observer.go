package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// watch accepts the complete set of watches.
func (r *Receiver) watch(e event.Event) error {
	data, err := event.Decode[event.WatchesWanted](e)
	if err != nil {
		return fmt.Errorf("read watches %s: %w", e.ID(), err)
	}
	if err := r.mine(data.AgentID); err != nil {
		return err
	}
	asOf, err := time.Parse(time.RFC3339Nano, data.AsOf)
	if err != nil {
		return fault.InvalidFields(fault.Field{Name: "data.as_of", Problem: fmt.Sprintf("found %q, expected a time stamp (RFC 3339)", data.AsOf)})
	}
	set := core.WatchSet{AsOf: asOf, Lease: time.Duration(data.LeaseSeconds) * time.Second}
	for _, w := range data.Watches {
		set.Watches = append(set.Watches, core.Watch{
			ID: w.Watch, Fields: w.Fields, Report: w.Report, Expected: w.ExpectedRevision,
			Selection: core.Selection{
				Kind: core.Kind{APIVersion: w.APIVersion, Kind: w.Kind}, Namespace: w.Namespace, Name: w.Name, Labels: w.Labels,
			},
		})
	}
	r.deps.Watch(set)
	return nil
}

// Observer publishes observations of watches. It implements core.Observer.
type Observer struct {
	Agent int64
	Bus   Publisher
}

var _ core.Observer = Observer{}

// Observe publishes one observation: of an Argo Rollout in the form of E71, of everything else in a general form.
func (o Observer) Observe(ctx context.Context, seen core.Observation) error {
	data, from, err := o.payload(seen)
	if err != nil {
		return err
	}
	e, err := event.New(event.Header{ID: id.New(seen.At), Source: from, Time: seen.At}, data)
	if err != nil {
		return fmt.Errorf("observation under watch %s: %w", seen.Watch.ID, err)
	}
	return o.Bus.Publish(ctx, e)
}

// payload returns the event's payload and its source.
func (o Observer) payload(seen core.Observation) (event.Data, string, error) {
	at := seen.At.UTC().Format(time.RFC3339Nano)
	general := event.ObjectChanged{
		AgentID: o.Agent, Watch: seen.Watch.ID, Kind: seen.Watch.Kind.Kind, Namespace: seen.Watch.Namespace, Name: seen.Name, ObservedAt: at,
	}
	if seen.Err != nil {
		general.Error = &event.CallError{Code: seen.Err.Code, Message: seen.Err.Message, Retryable: seen.Err.Retryable}
	}
	if seen.Report != nil {
		report, err := json.Marshal(seen.Report)
		if err != nil {
			return nil, "", fmt.Errorf("encode the report to %s: %w", seen.Watch.ID, err)
		}
		general.Found, general.Report = seen.Object != nil, report
		return general, source(o.Agent), nil
	}
	if seen.Object == nil {
		return general, source(o.Agent), nil
	}
	object, err := json.Marshal(seen.Object)
	if err != nil {
		return nil, "", fmt.Errorf("encode the observation of %s: %w", seen.Watch.ID, err)
	}
	general.Found, general.Object = true, object
	status, isRollout := seen.Rollout()
	if !isRollout {
		return general, source(o.Agent), nil
	}
	pauses := make([]event.PauseCondition, len(status.Pauses))
	for i, reason := range status.Pauses {
		pauses[i] = event.PauseCondition{Reason: reason}
	}
	return event.ArgoRolloutStatusChanged{
		AgentID: o.Agent, RolloutName: seen.Name, Namespace: seen.Watch.Namespace, Phase: status.Phase, CurrentStepIndex: status.Step,
		StableRS: status.StableRS, CurrentPodHash: status.PodHash, PauseConditions: pauses, Abort: status.Aborted,
		Watch: seen.Watch.ID, Object: object, ObservedAt: at,
	}, fmt.Sprintf("%s/namespaces/%s/rollouts/%s", source(o.Agent), seen.Watch.Namespace, seen.Name), nil
}
