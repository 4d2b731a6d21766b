package workflow

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// timelineWidth is how many characters wide the bars of a timeline are.
const timelineWidth = 40

func (e *Engine) timeline() *cobra.Command {
	var request autoflowv1.GetTimelineRequest
	cmd := e.asking("timeline ID", "Show when each operation of a workflow began and ended, branch by branch",
		"  lockstep workflow timeline rollout-12\n  lockstep workflow timeline rollout-12 --before 200 --without-inputs -o json", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			request.OrganizationId, request.WorkflowId = e.organization, args[0]
			found, err := client.GetTimeline(ctx, &request)
			if err != nil {
				return err
			}
			now := e.Clock.Now()
			return e.Print(message{found}, func(w io.Writer) { timelineTable(w, found, now) })
		})
	flags := cmd.Flags()
	flags.Int32Var(&request.PageSize, "limit", 0, "the newest operations that have ended, at most this `number`; 100 by default, at most 1000")
	flags.Int64Var(&request.BeforeSequence, "before", 0, "only operations before this history `entry`")
	flags.BoolVar(&request.WithoutInputs, "without-inputs", false, "leave arguments out")
	return cmd
}

// timelineTable writes the operations of each branch below each other, in the order in which they began, with a bar from beginning to end.
func timelineTable(w io.Writer, found *autoflowv1.GetTimelineResponse, now time.Time) {
	steps := slices.Clone(found.GetSteps())
	slices.SortStableFunc(steps, func(a, b *autoflowv1.TimelineStep) int {
		return cmp.Or(cmp.Compare(a.GetBranch(), b.GetBranch()), began(a).Compare(began(b)))
	})
	var first, last time.Time
	for _, s := range steps {
		if b := began(s); first.IsZero() || b.Before(first) {
			first = b
		}
		if end := ended(s, now); end.After(last) {
			last = end
		}
	}
	command.Row(w, "BRANCH", "OPERATION", "BEGAN", "TOOK", "", "RESULT", "AT")
	for _, s := range steps {
		what := s.GetKind()
		for _, part := range []string{s.GetName(), s.GetChild()} {
			if part != "" {
				what += " " + part
			}
		}
		result := s.GetOutput()
		switch {
		case s.GetCode() != "":
			result = s.GetCode() + ": " + result
		case s.GetEndedAt() == nil:
			result = "open"
		}
		took := ended(s, now).Sub(began(s)).Round(time.Millisecond)
		command.Row(w, command.Number(int(s.GetBranch())), what, command.Moment(began(s)), took.String(),
			bar(began(s), ended(s, now), first, last), clipped(result), s.GetPosition())
		retriesTable(w, s)
	}
	if found.GetEarlier() && len(found.GetSteps()) > 0 {
		command.Row(w, "earlier operations: --before "+command.Number(int(found.GetSteps()[0].GetSequence())))
	}
	if gap := found.GetGap(); gap != "" {
		command.Row(w, gap)
	}
}

// retriesTable writes the failed attempts of a step below it.
func retriesTable(w io.Writer, s *autoflowv1.TimelineStep) {
	hidden := int(s.GetRetriesCount()) - len(s.GetRetries())
	for i, r := range s.GetRetries() {
		if hidden > 0 && i == keptFirst {
			command.Row(w, "", "  "+command.Number(hidden)+" other failed attempts")
		}
		took := ""
		at := r.GetEndedAt().AsTime()
		if r.GetBeganAt() != nil {
			at = r.GetBeganAt().AsTime()
			took = r.GetEndedAt().AsTime().Sub(at).Round(time.Millisecond).String()
		}
		command.Row(w, "", "  attempt "+command.Number(int(r.GetNumber()))+" failed", command.Moment(at), took, "", clipped(r.GetCode()+": "+r.GetMessage()), "")
	}
	if n := len(s.GetRetries()); n > 0 && s.GetEndedAt() == nil && s.GetRetries()[n-1].GetNextAt() != nil {
		command.Row(w, "", "  next attempt", command.Moment(s.GetRetries()[n-1].GetNextAt().AsTime()), "", "", "", "")
	}
}

// keptFirst is how many of many failed attempts are the first ones; the others are the last.
const keptFirst = 3

// began is when a step began; when it ended where its beginning is not known.
func began(s *autoflowv1.TimelineStep) time.Time {
	if s.GetBeganAt() == nil {
		return s.GetEndedAt().AsTime()
	}
	return s.GetBeganAt().AsTime()
}

// ended is when a step ended; now for one that is open.
func ended(s *autoflowv1.TimelineStep, now time.Time) time.Time {
	if s.GetEndedAt() == nil {
		return now
	}
	return s.GetEndedAt().AsTime()
}

// bar draws from one moment to another within a span, at least one character.
func bar(from, to, first, last time.Time) string {
	span := max(last.Sub(first), 1)
	at := func(t time.Time) int {
		return min(int(int64(timelineWidth)*int64(t.Sub(first)/time.Microsecond)/max(int64(span/time.Microsecond), 1)), timelineWidth-1)
	}
	begin, end := max(at(from), 0), max(at(to), 0)
	end = max(begin, end)
	return strings.Repeat("·", begin) + strings.Repeat("█", end-begin+1) + strings.Repeat("·", timelineWidth-1-end)
}

// clipped is a value as a table shows it.
func clipped(value string) string {
	const most = 60
	if runes := []rune(value); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return value
}
