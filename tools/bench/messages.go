package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const (
	answeringProgram = `
def main(messages = 0):
    for _ in range(messages):
        m = receive(inbox())
        reply(m, m.data)
`
	messagesOfOne = 10
)

// messages is B20: runs that answer messages (CallChannel), one after the other. A latency is a message's, from the call to its answer,
// which is durable by then.
func messages(ctx context.Context, w *world, r *report) error {
	inputs := fmt.Sprintf(`{"messages": %d}`, messagesOfOne)
	if err := warm(ctx, w, answeringProgram, `{"messages": 0}`); err != nil {
		return err
	}
	// By default, an organization may call fewer times in a second than a fast machine can answer.
	_, err := autoflowv1.NewAutoFlowClient(w.conns[0]).SetLimits(ctx, &autoflowv1.SetLimitsRequest{
		OrganizationId: organization, Limits: &autoflowv1.Limits{CallsPerSecond: 1_000_000}, Reason: "what the engine can do is measured",
	})
	if err != nil {
		return err
	}
	var besides []peerRun
	for _, c := range []struct{ clients, n int }{{1, 50}, {64, 1000}} {
		m := row{Scenario: "message and answer", Engine: "lockstep", Clients: c.clients, N: w.scaled(c.n) * messagesOfOne, Unit: "messages"}
		before, err := w.usage(ctx)
		if err != nil {
			return err
		}
		var mu sync.Mutex
		var trips latencies
		each := func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			id := fmt.Sprintf("answering-%d-%d", c.clients, i)
			if err := begin(ctx, client, id, answeringProgram, inputs); err != nil {
				return 0, err
			}
			for message := range messagesOfOne {
				began := now()
				answer, err := client.CallChannel(ctx, &autoflowv1.CallChannelRequest{
					OrganizationId: organization, WorkflowId: id, RequestId: strconv.Itoa(message), Data: []byte(strconv.Itoa(message)),
				})
				if err != nil {
					return 0, err
				}
				if string(answer.GetValue()) != strconv.Itoa(message) {
					return 0, fmt.Errorf("the answer to message %d was %s", message, answer.GetValue())
				}
				trip := now().Sub(began)
				mu.Lock()
				trips = append(trips, trip)
				mu.Unlock()
			}
			return 0, finish(ctx, client, id)
		}
		_, took, err := w.drive(ctx, c.clients, w.scaled(c.n), each)
		if err != nil {
			return err
		}
		after, err := w.usage(ctx)
		if err != nil {
			return err
		}
		m.PerSecond, m.P50, m.P99 = float64(m.N)/took.Seconds(), trips.at(0.5), trips.at(0.99)
		r.add(m.used(after.since(before), m.N))
		besides = append(besides, peerRun{modeMessages, messagesOfOne, c.clients, w.scaled(c.n)})
	}
	return w.besideRivals(ctx, r, rival{"dbos", "", besides}, rival{"restate", "its own storage; ", besides})
}
