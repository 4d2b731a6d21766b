package main

import (
	"context"
	"fmt"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// childrenOfOne is how many children the run of B19 has, each of which returns its number; the parent adds them up.
const (
	childrenOfOne   = 10_000
	childrenProgram = `
def main(n = 0, children = 0):
    if n:
        return n
    started = [start_workflow("main.star", {"n": i + 1}) for i in range(children)]
    total = 0
    for child in started:
        total += await_workflow(child)
    if total != children * (children + 1) // 2:
        fail("the children returned %d together" % total)
    return total
`
)

// children is B19: one run that starts 10,000 children and waits for each, from its start to its end.
func children(ctx context.Context, w *world, r *report) error {
	client := autoflowv1.NewAutoFlowClient(w.conns[0])
	if err := warm(ctx, w, emptyProgram, "{}"); err != nil {
		return err
	}
	if err := complete(ctx, client, "warm", childrenProgram, `{"children": 10}`); err != nil { // few: their rate is limited
		return err
	}
	n := w.scaled(childrenOfOne)
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	began := now()
	if err := begin(ctx, client, "parent", childrenProgram, fmt.Sprintf(`{"children": %d}`, n)); err != nil {
		return err
	}
	err = finish(ctx, client, "parent")
	for range 4 { // a busy machine takes longer than one wait
		if err == nil {
			break
		}
		err = finish(ctx, client, "parent")
	}
	if err != nil {
		return err
	}
	took := now().Sub(began)
	var completed int
	if err := w.db.QueryRow(ctx, `SELECT count(*) FROM workflow.child c JOIN workflow.execution e USING (organization, workflow)
JOIN workflow.execution p ON p.id = c.parent
WHERE p.workflow = 'parent' AND e.ended_at IS NOT NULL AND e.error = ''`).Scan(&completed); err != nil {
		return err
	}
	if completed != n {
		return fmt.Errorf("%d of %d children have completed", completed, n)
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	m := row{
		Scenario: "children of one run", Engine: "lockstep", Clients: 1, N: n, Unit: "children", PerSecond: float64(n) / took.Seconds(),
		Note: fmt.Sprintf("%.1f s from the start of the parent to its end", took.Seconds()),
	}
	r.add(m.used(after.since(before), n))
	return w.besideRivals(ctx, r,
		rival{"dbos", "", []peerRun{{modeChildren, n, 1, 1}}},
		rival{"restate", "its own storage; ", []peerRun{{modeChildren, n, 1, 1}}},
		rival{"goworkflows", "a tenth of the children; ", []peerRun{{modeChildren, max(1, n/10), 1, 1}}})
}
