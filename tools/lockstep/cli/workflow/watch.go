package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// follower prints what happens to one workflow.
type follower struct {
	*Engine
	client autoflowv1.AutoFlowClient
	id     string
	// after is the last history entry that was printed, and lastNews when AutoFlow has said something last.
	after    int64
	lastNews time.Time
	// state and waits are what was printed last of where it stands: a stream that begins anew says it again.
	state autoflowv1.WorkflowState
	waits map[waiting]bool
}

// waiting is what one branch waits for.
type waiting struct {
	branch   int
	sentence string
}

// follow prints what happens to a workflow until it has ended. A short absence of AutoFlow does not end it.
func (e *Engine) follow(ctx context.Context, client autoflowv1.AutoFlowClient, id string, after int64) error {
	f := &follower{Engine: e, client: client, id: id, after: after, lastNews: e.Clock.Now()}
	for {
		final, err := f.once(ctx)
		switch {
		case final != nil && final.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED:
			return notCompleted(final)
		case final != nil:
			return nil
		case !fault.Is(err, fault.Unavailable) || e.Clock.Now().Sub(f.lastNews) > command.Patience:
			return err
		}
		if err := clock.Sleep(ctx, e.Clock, command.WatchPause); err != nil {
			return err
		}
	}
}

// once follows one stream. It answers the workflow in its final state, or why the stream ended before.
func (f *follower) once(ctx context.Context) (*autoflowv1.Workflow, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.client.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{
		OrganizationId: f.organization, WorkflowId: f.id,
		AfterSequence: f.after,
	})
	if err != nil {
		return nil, err
	}
	for {
		news, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, fault.New(fault.Unavailable, "the stream has ended, and %s has not", f.id)
		}
		if err != nil {
			return nil, err
		}
		f.lastNews = f.Clock.Now()
		if err := f.print(news); err != nil {
			return nil, err
		}
		if entry := news.GetEntry(); entry != nil {
			f.after = entry.GetSequence()
		}
		if w := news.GetWorkflow(); w.GetFinishedAt() != nil {
			return w, nil
		}
	}
}

// print is one line for people and each thing that is new, or one JSON object on a line.
func (f *follower) print(n *autoflowv1.WatchWorkflowResponse) error {
	switch {
	case f.Output == "yaml":
		fmt.Fprintln(f.Out, "---")
		return command.PrintYAML(f.Out, message{n})
	case f.Output == "json":
		encoded, err := message{n}.MarshalJSON()
		if err != nil {
			return err
		}
		fmt.Fprintf(f.Out, "%s\n", encoded)
	case n.GetEntry() != nil:
		entry := n.GetEntry()
		parts := []string{strconv.FormatInt(entry.GetSequence(), 10)}
		if entry.GetBranch() >= 0 {
			parts = append(parts, "branch "+command.Number(int(entry.GetBranch())))
		}
		parts = append(parts, entry.GetKind(), entry.GetName(), firstLineOf(entry.GetValue()))
		f.line(entry.GetRecordedAt().AsTime(), parts...)
	default:
		f.standing(n.GetWorkflow())
	}
	return nil
}

// standing prints the state where it is another one, what the workflow waits for where that is new, and where it has failed.
func (f *follower) standing(w *autoflowv1.Workflow) {
	at := w.GetUpdatedAt().AsTime()
	if w.GetState() != f.state {
		f.line(at, stateName(w.GetState()))
	}
	for _, wait := range f.newWaits(w) {
		f.line(at, " ", wait)
	}
	f.state = w.GetState()
	for _, frame := range w.GetStack() {
		f.line(at, " ", fmt.Sprintf("branch %d at %s in %s", frame.GetBranch(), frame.GetPosition(), frame.GetFunction()))
	}
}

func (f *follower) line(at time.Time, parts ...string) {
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	fmt.Fprintf(f.Out, "%s %s\n", at.Local().Format("15:04:05"), text.Line(strings.Join(parts, " ")))
}

// newWaits are what a workflow waits for and was not printed, each thing once with the branches that wait for it.
func (f *follower) newWaits(w *autoflowv1.Workflow) (lines []string) {
	var order []string
	branches, now := map[string][]int{}, map[waiting]bool{}
	for i, wait := range w.GetWaits() {
		one := waiting{int(wait.GetBranch()), w.GetWaitingFor()[i]}
		now[one] = true
		if f.waits[one] {
			continue
		}
		if branches[one.sentence] == nil {
			order = append(order, one.sentence)
		}
		branches[one.sentence] = append(branches[one.sentence], one.branch)
	}
	f.waits = now
	for _, sentence := range order {
		lines = append(lines, branchList(branches[sentence])+": "+sentence)
	}
	return lines
}

// branchList is "branch 3", or "branches 1-4, 9" for several, which are in order.
func branchList(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		switch last - i {
		case 0:
			parts = append(parts, command.Number(numbers[i]))
		case 1:
			parts = append(parts, command.Number(numbers[i]), command.Number(numbers[last]))
		default:
			parts = append(parts, command.Number(numbers[i])+"-"+command.Number(numbers[last]))
		}
		i = last + 1
	}
	if len(numbers) == 1 {
		return "branch " + parts[0]
	}
	return "branches " + strings.Join(parts, ", ")
}
