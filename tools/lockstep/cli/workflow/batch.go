package workflow

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// batch is about operations on many workflows.
func (e *Engine) batch() *cobra.Command {
	cmd := command.Noun("batch", "batches", "Batches: cancel, terminate, retry or reset many workflows",
		e.batchStart("cancel", "Cancel many workflows", autoflowv1.BatchAction_BATCH_ACTION_CANCEL,
			"  lockstep workflow batch cancel --label team=shop --started-before 2h --dry-run"),
		e.batchStart("terminate", "End many workflows as failed", autoflowv1.BatchAction_BATCH_ACTION_TERMINATE,
			"  lockstep workflow batch terminate --prefix load-test- --reason 'test is over' --rate 200"),
		e.batchStart("retry", "Continue many failed workflows from the steps that failed", autoflowv1.BatchAction_BATCH_ACTION_RETRY,
			"  lockstep workflow batch retry --state failed --ended-after 1h --reason 'registry is back'"),
		e.batchStart("reset", "Start workflows that continue many failed ones from the steps that failed", autoflowv1.BatchAction_BATCH_ACTION_RESET,
			"  lockstep workflow batch reset --state failed --label team=shop --ended-after 1h --dry-run"),
		e.batchGet(), e.batchList(), e.batchStop())
	cmd.GroupID = ""
	return cmd
}

func (e *Engine) batchStart(verb, short string, action autoflowv1.BatchAction, example string) *cobra.Command {
	var states, ids []string
	var labels map[string]string
	var digest, reason string
	var rate int32
	var to int64
	var dryRun bool
	var texts listFlags
	cmd := e.asking(verb, short, example, command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			filter := &autoflowv1.ListWorkflowsRequest{OrganizationId: e.organization, Labels: labels, ProgramDigest: digest}
			if err := texts.set(filter, e.Clock.Now()); err != nil {
				return err
			}
			for _, name := range states {
				filter.States = append(filter.States, parseState(name))
			}
			answer, err := client.StartBatch(ctx, &autoflowv1.StartBatchRequest{
				Action: action, Filter: filter, WorkflowIds: ids, Reason: reason, Rate: rate, DryRun: dryRun, ToSequence: to,
			})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) {
				if !dryRun {
					batchTable(w, answer.GetBatch())
					return
				}
				most := ""
				if answer.GetAtLeast() {
					most = "at least "
				}
				command.Row(w, fmt.Sprintf("%s%d workflows; nothing was done", most, answer.GetCount()))
				if len(answer.GetSample()) > 0 {
					command.Row(w)
					workflowTable(w, answer.GetSample()...)
				}
			})
		})
	command.WordsFlag(cmd, &states, "state", "only those in these states", stateNames())
	flags := cmd.Flags()
	flags.StringToStringVar(&labels, "label", nil, "only workflows with this label, as `name=value`")
	flags.StringVar(&digest, "program-digest", "", "only workflows of the program with this `SHA-256`")
	texts.add(cmd)
	flags.StringSliceVar(&ids, "id", nil, "the workflow with this `id`, instead of conditions; repeatable")
	flags.StringVar(&reason, "reason", "", "why, for the histories")
	flags.Int32Var(&rate, "rate", 0, "how many workflows a second, as a `number` up to 1000; by default 50")
	if action == autoflowv1.BatchAction_BATCH_ACTION_RESET {
		flags.Int64Var(&to, "to", 0, "keep the history of each workflow before the entry with this `sequence`; by default before the step that failed")
	}
	flags.BoolVar(&dryRun, "dry-run", false, "only show how many workflows it would be about, and some of them")
	return cmd
}

func batchTable(w io.Writer, all ...*autoflowv1.Batch) {
	command.Row(w, "ID", "ACTION", "STATE", "DONE", "REFUSED", "OF", "STARTED", "FINISHED", "BY", "REASON", "LAST REFUSAL")
	for _, b := range all {
		finished := ""
		if b.GetFinishedAt() != nil {
			finished = command.Moment(b.GetFinishedAt().AsTime())
		}
		command.Row(w, strconv.FormatInt(b.GetId(), 10), wordOf(b.GetAction().String(), "BATCH_ACTION_"), wordOf(b.GetState().String(), "BATCH_STATE_"),
			command.Number(int(b.GetDone())), command.Number(int(b.GetRefused())), totalOf(b), command.Moment(b.GetCreatedAt().AsTime()), finished,
			b.GetStartedBy(), firstLineOf(b.GetReason()), firstLineOf(b.GetLastRefusal()))
	}
}

// totalOf is how many workflows a batch was about when it was started.
func totalOf(b *autoflowv1.Batch) string {
	total := command.Number(int(b.GetTotal()))
	if b.GetTotalAtLeast() {
		return "at least " + total
	}
	return total
}

func batchID(given string) (int64, error) {
	id, err := strconv.ParseInt(given, 10, 64)
	if err != nil || id < 1 {
		return 0, fault.New(fault.Invalid, "found %q, expected the number of a batch", given)
	}
	return id, nil
}

func (e *Engine) batchGet() *cobra.Command {
	return e.asking("get ID", "Show a batch and its progress", "  lockstep workflow batch get 7", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			id, err := batchID(args[0])
			if err != nil {
				return err
			}
			found, err := client.GetBatch(ctx, &autoflowv1.GetBatchRequest{OrganizationId: e.organization, Id: id})
			if err != nil {
				return err
			}
			return e.Print(message{found.GetBatch()}, func(w io.Writer) { batchTable(w, found.GetBatch()) })
		})
}

func (e *Engine) batchList() *cobra.Command {
	var limit int
	cmd := e.asking("list", "List batches, newest first", "  lockstep workflow batch list", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			all, err := pages(limit, func(size int32, token string) ([]*autoflowv1.Batch, string, error) {
				page, err := client.ListBatches(ctx, &autoflowv1.ListBatchesRequest{OrganizationId: e.organization, PageSize: size, PageToken: token})
				return page.GetBatches(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) { batchTable(w, all...) })
		})
	command.LimitFlag(cmd, &limit, 20)
	return cmd
}

func (e *Engine) batchStop() *cobra.Command {
	return e.asking("stop ID", "Stop a batch; what it has done stays done", "  lockstep workflow batch stop 7", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			id, err := batchID(args[0])
			if err != nil {
				return err
			}
			found, err := client.StopBatch(ctx, &autoflowv1.StopBatchRequest{OrganizationId: e.organization, Id: id})
			if err != nil {
				return err
			}
			return e.Print(message{found.GetBatch()}, func(w io.Writer) { batchTable(w, found.GetBatch()) })
		})
}
