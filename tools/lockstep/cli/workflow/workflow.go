// Package workflow has the commands about the workflow service, which they call directly.
package workflow

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.workflow(), own.schedule(), own.function()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

// Workflow is what people ask of the workflow engine, AutoFlow, itself.
func (c commands) workflow() *cobra.Command {
	e := &Engine{Command: c.Command}
	cmd := command.Noun("workflow", "wf", "Workflows: the durable programs that carry out rollouts",
		e.start(), e.list(), e.get(), e.history(), e.timeline(), e.logs(), e.watch(),
		e.end("cancel", "Cancel a workflow; its program is not run again", "  lockstep workflow cancel rollout-12 --reason superseded",
			false, e.cancelOne),
		e.end("terminate", "End a workflow as failed, without letting it clean up",
			"  lockstep workflow terminate rollout-12 --reason 'stuck, see incident 81'", true, e.terminateOne),
		e.retry(), e.reset(), e.changeProgram(), e.check(), e.send(), e.call(), e.flow(), e.batch(),
		e.export(), e.replay(), e.test(), e.eventType(), e.limits(), e.retention())
	cmd.Long = `workflow calls the gRPC API of the workflow service (AutoFlow), at the first of --grpc, LOCKSTEP_GRPC and --endpoints-file that is given. The
address is host:port or grpcs://host:port for TLS, and grpc://host:port for plain text.

-o json and -o yaml print the API's messages in the JSON mapping of protocol buffers, whose names are stable.`
	flags := cmd.PersistentFlags()
	e.Flags(flags)
	flags.Int64Var(&e.organization, "organization", 0, "`number` of the organization (LOCKSTEP_ORGANIZATION); by default the token's")
	return cmd
}

func (e *Engine) start() *cobra.Command {
	var given programFlags
	var secrets, labels map[string]string
	var watch bool
	var wait patienceFlag
	var first, firstID string
	cmd := e.asking("start ID PROGRAM", "Start a workflow; repeating the same ID is a no-op",
		"  lockstep workflow start nightly-7 nightly.star --inputs '{\"day\": 7}' --watch\n  lockstep workflow start x main.star --module lib.star --inputs @inputs.json --label team=shop\n  lockstep workflow start nightly-8 nightly.star --wait=30s -o json", command.Exactly(2),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			if watch && wait.given {
				return fault.New(fault.Invalid, "found --watch and --wait; expected one of them")
			}
			program, modules, inputs, err := given.read(args[1])
			if err != nil {
				return err
			}
			request := &autoflowv1.StartWorkflowRequest{
				OrganizationId: e.organization, WorkflowId: args[0], Starlark: program, Modules: modules, Inputs: inputs,
				Secrets: secrets, Labels: labels,
			}
			if first != "" {
				request.Message = &autoflowv1.StartMessage{MessageId: cmp.Or(firstID, "first"), Data: []byte(first)}
			}
			if wait.given {
				return e.startAndWait(ctx, client, request, wait.most)
			}
			started, err := client.StartWorkflow(ctx, request)
			if err != nil {
				return err
			}
			if watch {
				return e.follow(ctx, client, args[0], 0)
			}
			return e.Print(message{started}, func(w io.Writer) {
				command.Row(w, "ID", "REF", "CREATED")
				command.Row(w, started.GetWorkflowId(), started.GetWorkflowRef(), strconv.FormatBool(started.GetCreated()))
			})
		})
	given.add(cmd)
	cmd.Flags().StringToStringVar(&secrets, "secret", nil,
		"a secret's `name=reference`: env:NAME, file:/path, k8s:namespace/name#key or vault:mount/data/path#key")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "a label of the workflow, as `name=value`")
	cmd.Flags().StringVar(&first, "message", "", "`JSON` for the workflow's inbox, stored with the start or delivered to the workflow of that ID")
	cmd.Flags().StringVar(&firstID, "message-id", "", "the `id` of that message; repeating it is a no-op (default first)")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the workflow to its end")
	wait.add(cmd)
	return cmd
}

func (e *Engine) list() *cobra.Command {
	var states []string
	var labels map[string]string
	var digest string
	var limit int
	var count bool
	var texts listFlags
	cmd := e.asking("list", "List workflows, newest first",
		"  lockstep workflow list --state failed,terminated --ended-after 2h\n  lockstep workflow list --label team=shop -o json\n  lockstep workflow list --prefix schedule/nightly/ --started-after 2026-11-20T00:00:00Z --count",
		command.Exactly(0), func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			request := &autoflowv1.ListWorkflowsRequest{OrganizationId: e.organization, Labels: labels, ProgramDigest: digest}
			if err := texts.set(request, e.Clock.Now()); err != nil {
				return err
			}
			for _, name := range states {
				request.States = append(request.States, parseState(name))
			}
			if count {
				return e.count(ctx, client, request)
			}
			all, err := pages(limit, func(size int32, token string) ([]*autoflowv1.Workflow, string, error) {
				request.PageSize, request.PageToken = size, token
				page, err := client.ListWorkflows(ctx, request)
				return page.GetWorkflows(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) { workflowTable(w, all...) })
		})
	command.WordsFlag(cmd, &states, "state", "only those in these states", stateNames())
	cmd.Flags().StringToStringVar(&labels, "label", nil, "only workflows with this label, as `name=value`")
	cmd.Flags().StringVar(&digest, "program-digest", "", "only workflows of the program with this `SHA-256`")
	texts.add(cmd)
	cmd.Flags().BoolVar(&count, "count", false, "print how many there are, up to 10,000, instead of the list")
	command.LimitFlag(cmd, &limit, 20)
	return cmd
}

// count prints how many workflows meet conditions.
func (e *Engine) count(ctx context.Context, client autoflowv1.AutoFlowClient, filter *autoflowv1.ListWorkflowsRequest) error {
	found, err := client.CountWorkflows(ctx, &autoflowv1.CountWorkflowsRequest{Filter: filter})
	if err != nil {
		return err
	}
	return e.Print(message{found}, func(w io.Writer) {
		text := strconv.FormatInt(found.GetCount(), 10)
		if found.GetAtLeast() {
			text = "at least " + text
		}
		command.Row(w, text)
	})
}

// listFlags are conditions of a list.
type listFlags struct {
	startedAfter, startedBefore, endedAfter, endedBefore string
	prefix, contains                                     string
	status                                               map[string]string
}

func (f *listFlags) add(cmd *cobra.Command) {
	const moment = "a `time` such as 2026-11-23T06:00:00Z, or a duration ago such as 2h"
	flags := cmd.Flags()
	flags.StringVar(&f.startedAfter, "started-after", "", "only those started at this time or later: "+moment)
	flags.StringVar(&f.startedBefore, "started-before", "", "only those started before this `time`")
	flags.StringVar(&f.endedAfter, "ended-after", "", "only those that ended at this `time` or later")
	flags.StringVar(&f.endedBefore, "ended-before", "", "only those that ended before this `time`")
	flags.StringVar(&f.prefix, "prefix", "", "only those whose id begins with this `text`")
	flags.StringToStringVar(&f.status, "status", nil, "only those that have reported this with set_status, as `key=JSON`")
	flags.StringVar(&f.contains, "contains", "", "only those whose id contains this `text`")
}

// set adds the conditions to a request.
func (f *listFlags) set(request *autoflowv1.ListWorkflowsRequest, now time.Time) error {
	request.IdPrefix, request.IdContains, request.Status = f.prefix, f.contains, f.status
	for _, t := range []struct {
		name, given string
		into        **timestamppb.Timestamp
	}{
		{"--started-after", f.startedAfter, &request.StartedAfter},
		{"--started-before", f.startedBefore, &request.StartedBefore},
		{"--ended-after", f.endedAfter, &request.EndedAfter},
		{"--ended-before", f.endedBefore, &request.EndedBefore},
	} {
		if t.given == "" {
			continue
		}
		if ago, err := command.ParseDuration(t.given); err == nil {
			*t.into = timestamppb.New(now.Add(-ago))
			continue
		}
		parsed, err := moment(t.name, t.given)
		if err != nil {
			return err
		}
		*t.into = parsed
	}
	return nil
}

func (e *Engine) get() *cobra.Command {
	cmd := e.asking("get ID", "Show one workflow: what it waits for, what it reports, and its children", "  lockstep workflow get rollout-12", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: e.organization, WorkflowId: args[0]})
			if err != nil {
				return err
			}
			children, err := client.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{
				OrganizationId: e.organization, Labels: map[string]string{labelParent: args[0]}, PageSize: mostChildren,
			})
			if err != nil {
				return err
			}
			return e.show(answer.GetWorkflow(), children)
		})
	cmd.Aliases = []string{"show"}
	return cmd
}

const (
	// labelParent is the label of what a workflow has started, with its id.
	labelParent = "lockstep.parent"
	// mostChildren is how many of them are shown with it.
	mostChildren = 20
)

// show prints one workflow, and its children where they are given.
func (e *Engine) show(w *autoflowv1.Workflow, children ...*autoflowv1.ListWorkflowsResponse) error {
	return e.Print(message{w}, func(out io.Writer) {
		workflowTable(out, w)
		if w.GetGeneration() > 1 {
			fmt.Fprintln(out)
			command.Row(out, "GENERATION", "FROM")
			command.Row(out, command.Number(int(w.GetGeneration())), command.Number(int(w.GetGenerationSequence())))
		}
		if len(w.GetStatus()) > 0 {
			fmt.Fprintln(out)
			command.Row(out, "STATUS", "VALUE")
		}
		for _, key := range slices.Sorted(maps.Keys(w.GetStatus())) {
			command.Row(out, key, w.GetStatus()[key])
		}
		for _, page := range children {
			childRows(out, w.GetWorkflowId(), page)
		}
		if len(w.GetWaits()) > 0 {
			fmt.Fprintln(out)
			command.Row(out, "BRANCH", "SINCE", "WAITS FOR")
		}
		for i, wait := range w.GetWaits() {
			command.Row(out, command.Number(int(wait.GetBranch())), command.Moment(wait.GetSince().AsTime()),
				strings.TrimPrefix(w.GetWaitingFor()[i], "waits for "))
		}
		if len(w.GetStack()) > 0 {
			fmt.Fprintln(out)
			command.Row(out, "BRANCH", "FAILED AT", "IN")
		}
		for _, f := range w.GetStack() {
			command.Row(out, command.Number(int(f.GetBranch())), f.GetPosition(), f.GetFunction())
		}
		if len(w.GetProgramChanges()) > 0 {
			command.Row(out)
			command.Row(out, "PROGRAM CHANGED", "AFTER", "BY", "REASON", "BEFORE")
		}
		for _, c := range w.GetProgramChanges() {
			command.Row(out, command.Moment(c.GetAt().AsTime()), command.Number(int(c.GetLastSequence())), c.GetChangedBy(), c.GetReason(),
				command.Short(c.GetReplacedDigest()))
		}
		if len(w.GetRetries()) > 0 {
			fmt.Fprintln(out)
			command.Row(out, "RETRIED", "FROM", "REASON", "AFTER")
		}
		for _, r := range w.GetRetries() {
			command.Row(out, command.Moment(r.GetAt().AsTime()), command.Number(int(r.GetFromSequence())), r.GetReason(), r.GetError())
		}
	})
}

func childRows(w io.Writer, parent string, page *autoflowv1.ListWorkflowsResponse) {
	if len(page.GetWorkflows()) == 0 {
		return
	}
	fmt.Fprintln(w)
	command.Row(w, "CHILD", "STATE", "CREATED", "ERROR")
	for _, c := range page.GetWorkflows() {
		command.Row(w, c.GetWorkflowId(), stateName(c.GetState()), command.Moment(c.GetCreatedAt().AsTime()), firstLineOf(c.GetError()))
	}
	if page.GetNextPageToken() != "" {
		command.Row(w, "more: lockstep workflow list --label "+labelParent+"="+parent)
	}
}

func workflowTable(w io.Writer, all ...*autoflowv1.Workflow) {
	command.Row(w, "ID", "STATE", "LABELS", "CREATED", "UPDATED", "FINISHED", "ERROR")
	for _, one := range all {
		finished := ""
		if one.GetFinishedAt() != nil {
			finished = command.Moment(one.GetFinishedAt().AsTime())
		}
		labels := make([]string, 0, len(one.GetLabels()))
		for _, name := range slices.Sorted(maps.Keys(one.GetLabels())) {
			labels = append(labels, name+"="+one.GetLabels()[name])
		}
		command.Row(w, one.GetWorkflowId(), stateName(one.GetState()), strings.Join(labels, ","), command.Moment(one.GetCreatedAt().AsTime()),
			command.Moment(one.GetUpdatedAt().AsTime()), finished, firstLineOf(one.GetError()))
	}
}

func (e *Engine) history() *cobra.Command {
	var limit int
	cmd := e.asking("history ID", "Show what a workflow has recorded, oldest first",
		"  lockstep workflow history rollout-12 --limit 0 -o json", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			all, err := pages(limit, func(size int32, token string) ([]*autoflowv1.HistoryEntry, string, error) {
				page, err := client.GetHistory(ctx, &autoflowv1.GetHistoryRequest{
					OrganizationId: e.organization, WorkflowId: args[0],
					PageSize: size, PageToken: token,
				})
				return page.GetEntries(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) {
				command.Row(w, "SEQUENCE", "GENERATION", "TIME", "BRANCH", "KIND", "NAME", "VALUE")
				for _, entry := range all {
					command.Row(w, command.Number(int(entry.GetSequence())), command.Number(int(entry.GetGeneration())),
						command.Moment(entry.GetRecordedAt().AsTime()), command.Number(int(entry.GetBranch())), entry.GetKind(), entry.GetName(),
						firstLineOf(entry.GetValue()))
				}
			})
		})
	command.LimitFlag(cmd, &limit, 100)
	return cmd
}

func (e *Engine) logs() *cobra.Command {
	var limit int
	var branch int32
	cmd := e.asking("logs ID", "Show what a workflow printed and which Functions it called, oldest first",
		"  lockstep workflow logs rollout-12\n  lockstep workflow logs rollout-12 --branch 2 -o json", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			request := &autoflowv1.GetLogsRequest{OrganizationId: e.organization, WorkflowId: args[0]}
			if branch >= 0 {
				request.Branch = &branch
			}
			all, err := pages(limit, func(size int32, token string) ([]*autoflowv1.LogLine, string, error) {
				request.PageSize, request.PageToken = size, token
				page, err := client.GetLogs(ctx, request)
				return page.GetLines(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) {
				for _, line := range all {
					command.Row(w, command.Moment(line.GetRecordedAt().AsTime()), command.Number(int(line.GetBranch())), logText(line))
				}
			})
		})
	command.LimitFlag(cmd, &limit, 0)
	cmd.Flags().Int32Var(&branch, "branch", -1, "only this branch of the program, by `number`; -1 for all")
	return cmd
}

// logText is a line for people.
func logText(l *autoflowv1.LogLine) string {
	if l.GetKind() == "print" {
		return l.GetText()
	}
	parts := []string{l.GetKind()}
	for _, part := range []string{l.GetName(), l.GetCode(), l.GetText()} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// end is a command that ends one workflow.
func (e *Engine) end(
	verb, short, example string, needsReason bool,
	do func(ctx context.Context, client autoflowv1.AutoFlowClient, id, reason string) (*autoflowv1.Workflow, error),
) *cobra.Command {
	var reason string
	cmd := e.asking(verb+" ID", short, example, command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			w, err := do(ctx, client, args[0], reason)
			if err != nil {
				return err
			}
			return e.show(w)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	if needsReason {
		cmd.Flags().Lookup("reason").Usage += "; required"
	}
	return cmd
}

func (e *Engine) cancelOne(ctx context.Context, client autoflowv1.AutoFlowClient, id, reason string) (*autoflowv1.Workflow, error) {
	_, err := client.CancelWorkflow(ctx, &autoflowv1.CancelWorkflowRequest{OrganizationId: e.organization, WorkflowId: id, Reason: reason})
	if err != nil {
		return nil, err
	}
	answer, err := client.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: e.organization, WorkflowId: id})
	return answer.GetWorkflow(), err
}

func (e *Engine) terminateOne(ctx context.Context, client autoflowv1.AutoFlowClient, id, reason string) (*autoflowv1.Workflow, error) {
	answer, err := client.TerminateWorkflow(ctx,
		&autoflowv1.TerminateWorkflowRequest{OrganizationId: e.organization, WorkflowId: id, Reason: reason})
	return answer.GetWorkflow(), err
}

func (e *Engine) retry() *cobra.Command {
	var reason string
	var from int64
	var watch bool
	cmd := e.asking("retry ID", "Continue a failed workflow from the step that failed",
		"  lockstep workflow retry rollout-12 --reason 'credentials renewed' --watch\n  lockstep workflow retry rollout-12 --from 40",
		command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.RetryWorkflow(ctx, &autoflowv1.RetryWorkflowRequest{
				OrganizationId: e.organization, WorkflowId: args[0],
				Reason: reason, FromSequence: from,
			})
			if err != nil {
				return err
			}
			if watch {
				return e.follow(ctx, client, args[0], answer.GetWorkflow().GetLastSequence())
			}
			return e.show(answer.GetWorkflow())
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().Int64Var(&from, "from", 0, "restart from the history entry with this `sequence`; it and all later ones are discarded")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the workflow to its end")
	return cmd
}

func (e *Engine) watch() *cobra.Command {
	var after int64
	cmd := e.asking("watch ID", "Follow a workflow to its end, with a line for each history entry and state",
		"  lockstep workflow watch rollout-12\n  lockstep workflow watch rollout-12 --after 40 -o json | jq .entry", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			return e.follow(ctx, client, args[0], after)
		})
	cmd.Flags().Int64Var(&after, "after", 0, "only entries after the one with this `sequence`")
	return cmd
}
