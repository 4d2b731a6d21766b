package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const (
	// hogCount is how many programs of one organization compute at a time, hogFor is for how long.
	hogCount = 40
	hogFor   = 20 * time.Second
	// hogProgram computes for about as long as it may.
	hogProgram = "for i in range(19000000): pass\n"
)

// hogs is B12 with programs that nobody vouches for: the nine quiet organizations by themselves, and while another one has 40 programs at work that do
// nothing but compute.
func hogs(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	seconds := time.Duration(max(5, float64(hogFor/time.Second)*w.options.scale)) * time.Second
	for _, note := range []string{"nobody else", fmt.Sprintf("beside %d hogs of one tenant", hogCount)} {
		during, over := context.WithTimeout(ctx, seconds)
		var group sync.WaitGroup
		failed := make(chan error, hogCount)
		if note != "nobody else" {
			for i := range hogCount {
				group.Go(func() { failed <- w.hog(during, i) })
			}
		}
		err := w.quiet(ctx, during, r, row{Scenario: "1-step, nine tenants", Note: note})
		over()
		group.Wait()
		close(failed)
		for problem := range failed {
			if err == nil {
				err = problem
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hog keeps one program at work that computes.
func (w *world) hog(ctx context.Context, number int) error {
	client, err := w.client()
	if err != nil {
		return err
	}
	for i := 0; ctx.Err() == nil; i++ {
		_, err := client.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: fmt.Sprintf("hog-%d-%d", number, i), Starlark: []byte(hogProgram), Wait: durationpb.New(longest),
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
