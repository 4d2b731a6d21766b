package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

// hogs is B12 with programs that nobody vouches for: the nine quiet organizations by themselves, and while another one has 40 programs at
// work that do nothing but compute, by turns, so that both have their part of what else the machine does.
func hogs(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	const turns = 4
	each := time.Duration(max(3, float64(hogFor/time.Second)*w.options.scale)) * time.Second
	if _, err := w.besideHogs(ctx, 3*time.Second, 0); err != nil { // they have their processes
		return err
	}
	var alone, noisy latencies
	var worked int
	for range turns {
		quiet, err := w.besideHogs(ctx, each, 0)
		if err != nil {
			return err
		}
		loud, err := w.besideHogs(ctx, each, hogCount)
		if err != nil {
			return err
		}
		alone, noisy = append(alone, quiet.took...), append(noisy, loud.took...)
		worked += loud.hogs
	}
	all := turns * each
	r.add(
		row{Scenario: "1-step, nine tenants", Note: "nobody else"}.of(alone, all),
		row{Scenario: "1-step, nine tenants", Note: fmt.Sprintf("beside %d hogs of one tenant, of which %.1f a second end", hogCount,
			float64(worked)/all.Seconds())}.of(noisy, all),
		row{Scenario: "hogs", Engine: "lockstep", Note: fmt.Sprintf("p95 beside hogs is %.2f times that without", noisy.at(0.95)/alone.at(0.95))},
	)
	return nil
}

// turn is what the nine have measured, and how many hogs have ended.
type turn struct {
	took latencies
	hogs int
}

// besideHogs measures the nine for a time beside so many hogs.
func (w *world) besideHogs(ctx context.Context, length time.Duration, hogs int) (t turn, err error) {
	during, over := context.WithTimeout(ctx, length)
	defer over()
	var group sync.WaitGroup
	var ended atomic.Int64
	failed := make(chan error, hogs)
	w.herds++
	for i := range hogs {
		group.Go(func() { failed <- w.hog(ctx, during, fmt.Sprintf("hog-%d-%d", w.herds, i), &ended) })
	}
	t.took, err = w.tenants(ctx, during)
	t.hogs = int(ended.Load())
	over()
	group.Wait()
	close(failed)
	for problem := range failed {
		if err == nil {
			err = problem
		}
	}
	return t, err
}

// hog keeps one program at work that computes, and counts those that have ended before during has. It waits for the last one, which is not
// to be beside what is measured next.
func (w *world) hog(ctx, during context.Context, name string, ended *atomic.Int64) error {
	client, err := w.client()
	if err != nil {
		return err
	}
	for i := 0; during.Err() == nil; i++ {
		_, err := client.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: fmt.Sprintf("%s-%d", name, i), Starlark: []byte(hogProgram), Wait: durationpb.New(longest),
		})
		if err != nil {
			return err
		}
		if during.Err() == nil {
			ended.Add(1)
		}
	}
	return nil
}
