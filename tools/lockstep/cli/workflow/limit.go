package workflow

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// limits is about what an organization may use.
func (e *Engine) limits() *cobra.Command {
	cmd := command.Noun("limits", "limit", "What an organization may use of the engine", e.limitsGet(), e.limitsList(), e.limitsSet())
	cmd.GroupID = ""
	return cmd
}

func (e *Engine) limitsGet() *cobra.Command {
	return e.asking("get", "Show the limits of an organization, what it uses, and who changed them", "  lockstep workflow limits get --organization 2",
		command.Exactly(0), func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			found, err := client.GetLimits(ctx, &autoflowv1.GetLimitsRequest{OrganizationId: e.organization})
			if err != nil {
				return err
			}
			return e.Print(message{found}, func(w io.Writer) {
				l := found.GetLimits()
				command.Row(w, "LIMIT", "MOST", "NOW")
				command.Row(w, "open runs", most(l.GetOpenRuns()), command.Number(int(found.GetOpenRuns())))
				command.Row(w, "starts per second", most(l.GetStartsPerSecond()), rate(found.GetStartsRate()))
				command.Row(w, "events per second", most(l.GetEventsPerSecond()), rate(found.GetEventsRate()))
				calls := "200 at each replica"
				if n := l.GetCallsPerSecond(); n > 0 {
					calls = command.Number(int(n))
				}
				command.Row(w, "calls per second", calls, rate(found.GetCallsRate()))
				command.Row(w, "bytes stored", most(l.GetStorageBytes()), command.Number(int(found.GetStorageBytes())))
				for _, c := range found.GetChanges() {
					command.Row(w, command.Moment(c.GetChangedAt().AsTime()), c.GetSetting()+" by "+c.GetChangedBy()+": "+c.GetBefore()+" to "+c.GetAfter(),
						c.GetReason())
				}
			})
		})
}

// limitsList shows who is close to a limit.
func (e *Engine) limitsList() *cobra.Command {
	var above, limit int
	cmd := e.asking("list", "List the organizations that are closest to their limits", "  lockstep workflow limits list --above 80",
		command.Exactly(0), func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			found, err := client.ListLimitUse(ctx, &autoflowv1.ListLimitUseRequest{AtLeastPercent: int32(above), PageSize: int32(limit)})
			if err != nil {
				return err
			}
			return e.Print(messages(found.GetUses()), func(w io.Writer) {
				command.Row(w, "ORGANIZATION", "LIMIT", "MOST", "NOW", "USED")
				for _, u := range found.GetUses() {
					now := command.Number(int(u.GetUsed()))
					if strings.HasSuffix(u.GetLimit(), "_per_second") {
						now = rate(u.GetUsed())
					}
					command.Row(w, strconv.FormatInt(u.GetOrganizationId(), 10), strings.ReplaceAll(u.GetLimit(), "_", " "),
						command.Number(int(u.GetMost())), now,
						strconv.Itoa(int(100*u.GetUsed()/float64(u.GetMost())))+" %")
				}
			})
		})
	cmd.Flags().IntVar(&above, "above", 50, "only those that use at least this `percentage` of a limit")
	command.LimitFlag(cmd, &limit, 100)
	return cmd
}

// rate is a number in a second as text.
func rate(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

// most is a limit as text.
func most(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return command.Number(int(n))
}

func (e *Engine) limitsSet() *cobra.Command {
	var l autoflowv1.Limits
	var reason string
	var remove bool
	cmd := e.asking("set", "Set the limits of an organization; 0 is no limit, and organization 0 is for all without limits of their own",
		"  lockstep workflow limits set --organization 2 --open-runs 10000 --starts 100 --events 500 --calls 400 --storage 10000000000 --reason 'shared installation'",
		command.Exactly(0), func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			req := &autoflowv1.SetLimitsRequest{OrganizationId: e.organization, Limits: &l, Reason: reason}
			if remove {
				req.Limits = nil
			}
			answer, err := client.SetLimits(ctx, req)
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { command.Row(w, "limits are set") })
		})
	flags := cmd.Flags()
	flags.Int64Var(&l.OpenRuns, "open-runs", 0, "`number` of runs that have not ended")
	flags.Int64Var(&l.StartsPerSecond, "starts", 0, "`number` of starts in a second")
	flags.Int64Var(&l.EventsPerSecond, "events", 0, "`number` of events and messages in a second")
	flags.Int64Var(&l.CallsPerSecond, "calls", 0, "`number` of calls of channels in a second; 0 is 200 at each replica")
	flags.Int64Var(&l.StorageBytes, "storage", 0, "`bytes` of runs, histories, events and payloads")
	flags.BoolVar(&remove, "remove", false, "remove the organization's own limits")
	flags.StringVar(&reason, "reason", "", "why, as `text`")
	return cmd
}

// retention is about how long ended runs are kept.
func (e *Engine) retention() *cobra.Command {
	cmd := command.Noun("retention", "retentions", "How long runs are kept after their end", e.retentionList(), e.retentionSet(), e.retentionArchived())
	cmd.GroupID = ""
	return cmd
}

func (e *Engine) retentionList() *cobra.Command {
	return e.asking("list", "List the rules by which ended runs are deleted", "  lockstep workflow retention list", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			found, err := client.ListRetention(ctx, &autoflowv1.ListRetentionRequest{OrganizationId: e.organization})
			if err != nil {
				return err
			}
			return e.Print(messages(found.GetRules()), func(w io.Writer) {
				command.Row(w, "LABEL", "KEPT")
				for _, r := range found.GetRules() {
					label := r.GetLabel() + "=" + r.GetValue()
					if r.GetLabel() == "" {
						label = "all others"
					}
					command.Row(w, label, r.GetKeep().AsDuration().String())
				}
			})
		})
}

func (e *Engine) retentionSet() *cobra.Command {
	var label, keep, reason string
	cmd := e.asking("set", "Delete runs some time after their end, by a label or all of them",
		"  lockstep workflow retention set --label kind=nightly --keep 30d --reason 'logs are elsewhere'\n"+
			"  lockstep workflow retention set --keep 365d\n  lockstep workflow retention set --label kind=nightly --keep 0",
		command.Exactly(0), func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			rule := &autoflowv1.RetentionRule{}
			if label != "" {
				var ok bool
				if rule.Label, rule.Value, ok = strings.Cut(label, "="); !ok {
					return fault.New(fault.Invalid, "label: found %q, expected label=value", label)
				}
			}
			var parsed time.Duration
			if keep != "0" {
				var err error
				if parsed, err = command.ParseDuration(keep); err != nil {
					return fault.New(fault.Invalid, "keep: %w", err)
				}
				rule.Keep = durationpb.New(parsed)
			}
			answer, err := client.SetRetention(ctx, &autoflowv1.SetRetentionRequest{OrganizationId: e.organization, Rule: rule, Reason: reason})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { command.Row(w, "the rule is set") })
		})
	flags := cmd.Flags()
	flags.StringVar(&label, "label", "", "`label=value` of the runs; by default all runs for which there is no other rule")
	flags.StringVar(&keep, "keep", "", "`duration` from the end of a run to its deletion, such as 30d; 0 removes the rule")
	flags.StringVar(&reason, "reason", "", "why, as `text`")
	return cmd
}

func (e *Engine) retentionArchived() *cobra.Command {
	var limit int
	cmd := e.asking("archived", "List the workflows that were deleted and are in the archive",
		"  lockstep workflow retention archived --limit 1000", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			all, err := pages(limit, func(size int32, token string) ([]*autoflowv1.ArchivedWorkflow, string, error) {
				page, err := client.ListArchivedWorkflows(ctx, &autoflowv1.ListArchivedWorkflowsRequest{
					OrganizationId: e.organization, PageSize: size, PageToken: token,
				})
				return page.GetWorkflows(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) {
				command.Row(w, "ID", "ENDED", "BYTES", "OBJECT")
				for _, run := range all {
					ended := command.Moment(run.GetFinishedAt().AsTime())
					command.Row(w, run.GetWorkflowId(), ended, strconv.FormatInt(run.GetSize(), 10), run.GetObject())
				}
			})
		})
	command.LimitFlag(cmd, &limit, 20)
	return cmd
}
