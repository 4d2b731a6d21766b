package main

import (
	"context"
	"fmt"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// fanWidth is how many branches a run of B3 has; fanProgram has each call a Function, and looks whether each has its own answer.
const (
	fanWidth   = 100
	fanProgram = `
def one(i):
    return run("checkpoint", {"state": {"i": i}})

answers = gather([spawn(one, i) for i in range(width)])
if [answer.i for answer in answers] != list(range(width)):
    fail("the answers are %s" % answers)
`
)

// fan is B3: runs that each call a hundred Functions at the same time, from start to the caller's knowledge of the end.
func fan(ctx context.Context, w *world, r *report) error {
	inputs := fmt.Sprintf(`{"width": %d}`, fanWidth)
	if err := warm(ctx, w, fanProgram, inputs); err != nil {
		return err
	}
	for _, c := range []struct{ clients, n int }{{1, 100}, {16, 400}} {
		m := row{Scenario: fmt.Sprintf("%d branches", fanWidth), Clients: c.clients, N: w.scaled(c.n), Unit: "workflows"}
		start := now()
		err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			id := fmt.Sprintf("fan-%d-%d", c.clients, i)
			began := now()
			if err := begin(ctx, client, id, fanProgram, inputs); err != nil {
				return 0, err
			}
			err := finish(ctx, client, id)
			return now().Sub(began), err
		})
		if err != nil {
			return err
		}
		all := m.N * fanWidth
		r.add(row{
			Scenario: m.Scenario + ", each", Engine: "lockstep", Clients: c.clients, N: all, Unit: "Functions",
			PerSecond: float64(all) / now().Sub(start).Seconds(),
		})
	}
	var short int
	if err := w.db.QueryRow(ctx, `SELECT count(*) FROM workflow.execution x WHERE x.workflow LIKE 'fan-%'
AND $1 <> (SELECT count(*) FROM workflow.entry n WHERE n.execution = x.id AND n.kind = 'run')`, fanWidth).Scan(&short); err != nil {
		return err
	}
	if short > 0 {
		return fmt.Errorf("%d runs have recorded another number of answers than %d", short, fanWidth)
	}
	return nil
}
