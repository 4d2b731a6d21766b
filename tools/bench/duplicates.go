package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// duplicateClients is how many clients start each id of B10.
const duplicateClients = 64

// duplicates is B10: 64 clients start one id, again and again. With one input one of them makes the run and all get its handle; where
// each has an input of its own, one makes it, and the others get an error that says what differs.
func duplicates(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, emptyProgram, "{}"); err != nil {
		return err
	}
	ids := w.scaled(300)
	for _, c := range []struct {
		name   string
		inputs func(client int) string
		// runs is how many of the starts of an id must be answered with the run.
		runs int64
	}{
		{"same input", func(int) string { return `{"number": 1}` }, duplicateClients},
		{"other input", func(client int) string { return fmt.Sprintf(`{"number": %d}`, client) }, 1},
	} {
		created, answered, refs := make([]atomic.Int64, ids), make([]atomic.Int64, ids), make([]atomic.Pointer[string], ids)
		m := row{Scenario: "start of one id, " + c.name, Clients: duplicateClients, N: ids * duplicateClients, Unit: "starts"}
		err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			id, began := i/duplicateClients, now()
			resp, err := client.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: fmt.Sprintf("%s-%d", c.name[:4], id), Starlark: []byte(emptyProgram),
				Inputs: []byte(c.inputs(i % duplicateClients)),
			})
			took := now().Sub(began)
			if differs := fault.FieldsOf(err); c.runs == 1 && fault.Is(err, fault.Conflict) && len(differs) == 1 && differs[0].Name == "inputs" {
				return took, nil
			}
			if err != nil {
				return 0, err
			}
			answered[id].Add(1)
			if resp.GetCreated() {
				created[id].Add(1)
			}
			ref := resp.GetWorkflowRef()
			if first := refs[id].Swap(&ref); first != nil && *first != ref {
				return 0, fmt.Errorf("found handles %s and %s of one id", *first, ref)
			}
			return took, nil
		})
		if err != nil {
			return err
		}
		for id := range ids {
			if created[id].Load() != 1 || answered[id].Load() != c.runs {
				return fmt.Errorf("id %d, %s: made %d times, expected once; answered %d times, expected %d", id, c.name, created[id].Load(),
					answered[id].Load(), c.runs)
			}
		}
	}
	if err := w.ended(ctx); err != nil {
		return err
	}
	var runs int
	if err := w.db.QueryRow(ctx, "SELECT count(*) FROM workflow.execution WHERE workflow NOT LIKE 'warm-%' AND state = 'completed'").Scan(&runs); err != nil {
		return err
	}
	if runs != 2*ids {
		return fmt.Errorf("%d runs of %d ids have completed", runs, 2*ids)
	}
	return nil
}
