package workflow

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// patienceFlag is --wait[=DURATION]: without a duration, for as long as it takes.
type patienceFlag struct {
	given bool
	// most is how long; 0 is without end.
	most time.Duration
}

// theEnd is what --wait alone means.
const theEnd = "end"

// add gives a command its --wait.
func (p *patienceFlag) add(cmd *cobra.Command) {
	cmd.Flags().Var(p, "wait", "wait for the end of the workflow and print it; with a `duration`, such as --wait=30s, at most that long")
	cmd.Flags().Lookup("wait").NoOptDefVal = theEnd
}

// Set implements pflag.Value.
func (p *patienceFlag) Set(text string) error {
	p.given, p.most = true, 0
	if text == theEnd {
		return nil
	}
	most, err := command.ParseDuration(text)
	if err != nil || most <= 0 {
		return fmt.Errorf("found %q; expected a duration above zero, such as 30s", text)
	}
	p.most = most
	return nil
}

// String implements pflag.Value.
func (p *patienceFlag) String() string {
	if p.given && p.most == 0 {
		return theEnd
	}
	if !p.given {
		return ""
	}
	return p.most.String()
}

// Type is what the help calls it.
func (*patienceFlag) Type() string { return "duration" }

// waitAtOnce is the longest wait of one call, which is AutoFlow's limit.
const waitAtOnce = time.Minute

// startAndWait starts a workflow and prints how it has ended, or how it stands after most, where that is not 0. The same request again
// joins the wait, so a short absence of AutoFlow does not end it.
func (e *Engine) startAndWait(
	ctx context.Context, client autoflowv1.AutoFlowClient, request *autoflowv1.StartWorkflowRequest, most time.Duration,
) error {
	began := e.Clock.Now()
	lastAnswer := began
	for {
		wait := waitAtOnce
		if most > 0 {
			wait = max(0, min(wait, most-e.Clock.Now().Sub(began)))
		}
		w, err := e.startAndWaitOnce(ctx, client, request, wait)
		switch {
		case err == nil && (w.GetFinishedAt() != nil || most > 0 && e.Clock.Now().Sub(began) >= most):
			return e.settled(w)
		case err == nil:
			lastAnswer = e.Clock.Now()
			continue
		case !fault.Is(err, fault.Unavailable) || e.Clock.Now().Sub(lastAnswer) > command.Patience || most > 0 && wait == 0:
			return err
		}
		if err := clock.Sleep(ctx, e.Clock, command.WatchPause); err != nil {
			return err
		}
	}
}

func (e *Engine) startAndWaitOnce(
	ctx context.Context, client autoflowv1.AutoFlowClient, request *autoflowv1.StartWorkflowRequest, wait time.Duration,
) (*autoflowv1.Workflow, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+command.AnswerTime)
	defer cancel()
	request.Wait = durationpb.New(wait)
	answer, err := client.StartWorkflow(ctx, request)
	return answer.GetWorkflow(), err
}

// settled prints a workflow that was waited for. One that has not completed is the exit code of one that was watched.
func (e *Engine) settled(w *autoflowv1.Workflow) error {
	if err := e.show(w); err != nil {
		return err
	}
	switch {
	case w.GetFinishedAt() == nil:
		return command.Exit(command.ExitNotCompleted, fmt.Errorf("%s has not ended: it is %s", w.GetWorkflowId(), stateName(w.GetState())))
	case w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED:
		return notCompleted(w)
	}
	return nil
}

// notCompleted is the exit code of a workflow that has ended otherwise.
func notCompleted(w *autoflowv1.Workflow) error {
	return command.Exit(command.ExitNotCompleted, fmt.Errorf("%s is %s: %s", w.GetWorkflowId(), stateName(w.GetState()), w.GetError()))
}
