package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// maxConns is over how many connections clients are spread: one carries a hundred streams at most.
const maxConns = 8

// drive has clients do n things, each the next one that nobody has begun, and answers how long each took and all together.
func (w *world) drive(
	ctx context.Context, clients, n int, do func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error),
) (latencies, time.Duration, error) {
	conns := make([]autoflowv1.AutoFlowClient, min(maxConns, clients))
	for i := range conns {
		var err error
		address := w.config.GRPCAddress
		if len(w.over) > 0 {
			address = w.over[i%len(w.over)]
		}
		if conns[i], err = w.clientOf(address); err != nil {
			return nil, 0, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	all := make(latencies, n)
	var group sync.WaitGroup
	began := now()
	for client := range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				took, err := do(ctx, conns[client%len(conns)], i)
				if err != nil {
					cancel(fmt.Errorf("client %d, number %d: %w", client, i, err))
					return
				}
				all[i] = took
			}
		})
	}
	group.Wait()
	return all, now().Sub(began), context.Cause(ctx)
}

// now is the machine's clock: durations are what this program is about.
func now() time.Time { return time.Now() } //nolint:forbidigo // see above

// workflowRequest asks for a workflow.
func workflowRequest(id, program, inputs string) *autoflowv1.StartWorkflowRequest {
	return &autoflowv1.StartWorkflowRequest{OrganizationId: organization, WorkflowId: id, Starlark: []byte(program), Inputs: []byte(inputs)}
}

// begin starts a workflow.
func begin(ctx context.Context, c autoflowv1.AutoFlowClient, id, program, inputs string) error {
	_, err := c.StartWorkflow(ctx, workflowRequest(id, program, inputs))
	return err
}

// complete starts a workflow and waits until it has completed, in one call.
func complete(ctx context.Context, c autoflowv1.AutoFlowClient, id, program, inputs string) error {
	ctx, cancel := context.WithTimeout(ctx, longest+5*time.Second)
	defer cancel()
	request := workflowRequest(id, program, inputs)
	request.Wait = durationpb.New(longest)
	resp, err := c.StartWorkflow(ctx, request)
	if err != nil {
		return err
	}
	return completed(resp.GetWorkflow())
}

// completed is the error of a workflow that has not completed.
func completed(w *autoflowv1.Workflow) error {
	if w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
		return fmt.Errorf("workflow %s is %s: %s", w.GetWorkflowId(), w.GetState(), w.GetError())
	}
	return nil
}

// longest is how long a workflow may take here.
const longest = time.Minute

// finish waits until a workflow has completed.
func finish(ctx context.Context, c autoflowv1.AutoFlowClient, id string) error {
	ctx, cancel := context.WithTimeout(ctx, longest+5*time.Second)
	defer cancel()
	resp, err := c.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{
		OrganizationId: organization, WorkflowId: id,
		Wait: durationpb.New(longest),
	})
	if err != nil {
		return err
	}
	return completed(resp.GetWorkflow())
}

func pause(ctx context.Context, d time.Duration) error {
	if err := clock.Sleep(ctx, clock.System(), d); err != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	return nil
}
