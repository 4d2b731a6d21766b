package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// raceProgram waits for its event; one that never comes fails the run. Every second run has one commit more on its way to the wait,
// so that neither side always comes first.
const raceProgram = `
if number % 2:
    run("checkpoint", {"state": {}})
if wait_for_event("com.example.race", filter = {"number": number}, timeout = 30) == None:
    fail("the event was lost")
`

// race is B6: an event and the wait for it, which become known within about a millisecond of each other: the event is sent as soon as
// the start is answered, while the run is on its way to its wait. Every run has to get its event. Those whose event found no wait
// are what an engine would lose that hands events only to waits that are there: there have to be some, or this was no race.
func race(ctx context.Context, w *world, r *report) error {
	const clients = 64
	n := w.scaled(100_000)
	var early, lost atomic.Int64
	m := row{Scenario: "event beside its wait", Clients: clients, N: n, Unit: "pairs"}
	err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		began, id := now(), fmt.Sprintf("race-%d", i)
		if err := begin(ctx, client, id, raceProgram, fmt.Sprintf(`{"number": %d}`, i)); err != nil {
			return 0, err
		}
		resp, err := client.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
			`{"specversion":"1.0","id":%q,"source":"/bench","type":"com.example.race","organizationid":"%d","data":{"number":%d}}`, id, organization, i)})
		if err != nil {
			return 0, err
		}
		if resp.GetMatched() == 0 {
			early.Add(1)
		}
		if err := finish(ctx, client, id); err != nil {
			if ctx.Err() != nil {
				return 0, err
			}
			lost.Add(1)
		}
		return now().Sub(began), nil
	})
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d lost; %d events came before their wait, which an engine without a memory for events would have lost", lost.Load(), early.Load())
	r.add(row{Scenario: "event beside its wait, lost", N: n, Unit: "pairs", Note: note})
	if lost.Load() > 0 || early.Load() == 0 {
		return fmt.Errorf("race of %d pairs: %s", n, note)
	}
	return nil
}
