package policy

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func (c commands) requests() *cobra.Command {
	all := false
	cmd := c.Asking("requests", "List calls of Functions that wait for an approval, which a policy requires",
		"  lockstep policy requests\n  lockstep policy requests --all", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			found, err := api.CallRequests(cmd.Context(), !all)
			if err != nil {
				return err
			}
			return c.Print(found, func(w io.Writer) { callTable(w, found) })
		})
	cmd.Flags().BoolVar(&all, "all", false, "those that were answered or denied, too")
	return cmd
}

func callTable(w io.Writer, all []client.CallRequest) {
	command.Row(w, "REQUEST", "STATE", "FUNCTION", "RUN", "POLICY", "WOULD BE", "APPROVALS", "BY", "UNTIL")
	for _, r := range all {
		until, given, by := "", 0, r.Group
		if r.ExpiresAt != nil {
			until = command.Moment(*r.ExpiresAt)
		}
		for _, a := range r.Answers {
			if a.Approves {
				given++
			}
		}
		approvals := ""
		if r.Quorum > 0 {
			approvals = fmt.Sprintf("%d of %d", given, r.Quorum)
		}
		command.Row(w, r.ID, journal.Human(r.State), r.Function, r.WorkflowID, r.Policy, journal.Human(r.WouldBe), approvals, by, until)
	}
}

func (c commands) answer() *cobra.Command {
	var approve, refuse bool
	var reason string
	cmd := c.Asking("answer REQUEST", "Approve or refuse a call of a Function that waits for an approval",
		"  lockstep policy answer callrequest_7 --approve --reason 'as agreed with finance'\n"+
			"  lockstep policy answer callrequest_7 --refuse --reason 'not before Monday'",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			if approve == refuse {
				return fault.New(fault.Invalid, "found both or neither of --approve and --refuse; expected one of them")
			}
			one, err := api.AnswerCall(cmd.Context(), args[0], approve, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { callTable(w, []client.CallRequest{one}) })
		})
	cmd.Flags().BoolVar(&approve, "approve", false, "the call may be made, as far as people decide")
	cmd.Flags().BoolVar(&refuse, "refuse", false, "the call fails")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with the answer")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// explainCall shows a decision about a call.
func (c commands) explainCall(cmd *cobra.Command, api *client.Client, id string) error {
	r, err := api.CallRequest(cmd.Context(), id)
	if err != nil {
		return err
	}
	return c.Print(r, func(w io.Writer) {
		callTable(w, []client.CallRequest{r})
		command.Row(w, "")
		command.Row(w, "BECAUSE", r.Reason)
		command.Row(w, "")
		rulings(w, r.Rulings)
		command.Row(w, "")
		command.Row(w, "ANSWER", "BY", "AT", "REASON")
		for _, a := range r.Answers {
			command.Row(w, map[bool]string{true: "approved", false: "refused"}[a.Approves], a.Author, command.Moment(a.At), a.Reason)
		}
		command.Row(w, "")
		command.Row(w, "ASKED", command.Compact(r.Request))
	})
}

// rulings are what each policy decided.
func rulings(w io.Writer, all []client.PolicyRuling) {
	command.Row(w, "POLICY", "LINE", "VERDICT", "COUNTS", "SENTENCE")
	for _, r := range all {
		line, counts := "", "yes"
		if r.Line != nil {
			line = command.Number(*r.Line)
		}
		if r.DryRun {
			counts = "no"
		}
		command.Row(w, strings.TrimSuffix(r.Set+"/"+r.Policy, "/"), line, journal.Human(r.Verdict), counts, r.Sentence)
	}
}
