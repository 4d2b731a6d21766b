package rollout

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// approvalOf says what an open gate waits for.
func approvalOf(g client.Gate) string {
	text := "approval of " + g.GateID
	if len(g.Requirements) > 1 {
		return text + " (" + requirements(g.Requirements) + ")"
	}
	if g.Quorum > 1 {
		text += fmt.Sprintf(" (%d of %d)", len(g.Approvals), g.Quorum)
	}
	if g.Group != "" {
		text += " by " + g.Group
	}
	return text
}

// requirements says how far each of several requirements of an approval is met.
func requirements(all []client.GateRequirement) string {
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = fmt.Sprintf("%d of %d", one.Given, one.Quorum)
		switch {
		case one.Group != "":
			parts[i] += " by " + one.Group
		case len(all) > 1:
			parts[i] += " by people"
		}
	}
	return strings.Join(parts, ", ")
}

// rolloutTable lists rollouts, after those that wait in queues.
func rolloutTable(w io.Writer, all []client.Rollout, queued ...client.QueuedRollout) {
	command.Row(w, "ID", "APPLICATION", "VERSION SET", "STATE", "WAITS FOR", "CREATED", "FINISHED")
	for _, q := range queued {
		command.Row(w, q.ID, q.Application.Name, q.VersionSet.Name, journal.Human(q.State), q.Words(),
			command.Moment(q.RequestedAt), "")
	}
	for _, r := range all {
		command.Row(w, r.ID, r.Application.Name, r.VersionSet.Name, standing(r), strings.Join(waitsFor(r), ", "), command.Moment(r.CreatedAt),
			command.Optional(r.FinishedAt))
	}
}

func queueTable(w io.Writer, all []client.QueuedRollout) {
	command.Row(w, "ID", "APPLICATION", "VERSION SET", "STATE", "WHY", "ASKED FOR", "BY")
	for _, q := range all {
		by := q.PrincipalType
		if q.Principal != nil {
			by = q.Principal.Name
		}
		command.Row(w, q.ID, q.Application.Name, q.VersionSet.Name, journal.Human(q.State), q.Words(),
			command.Moment(q.RequestedAt), by)
	}
}

// standing is a rollout's state for people, with what they should not overlook.
func standing(r client.Rollout) string {
	text := journal.Human(r.Status)
	if r.PauseRequested {
		text += ", will pause"
	}
	if r.BreakGlass != nil {
		text += ", BREAK-GLASS"
	}
	if a := r.AutomaticRollback; a != nil && a.DueAt != nil {
		text += ", rolls back at " + command.Moment(*a.DueAt)
	}
	return text
}

// waitsFor lists what a rollout waits for, in a few words each; what several services wait for is listed once.
func waitsFor(r client.Rollout) []string {
	gates := map[string]client.Gate{}
	for _, g := range r.OpenGates {
		gates[g.GateID] = g
	}
	var all []string
	moving := map[string]int{} // services by environment
	for _, one := range r.WaitingOn {
		if one.Kind == "HEALTH" && one.Environment != nil {
			moving[one.Environment.Name]++
		}
	}
	for _, one := range r.WaitingOn {
		text := waitFor(r, one, gates, moving)
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

func waitFor(r client.Rollout, one client.Wait, gates map[string]client.Gate, moving map[string]int) string {
	where := ""
	if one.Environment != nil {
		where = one.Environment.Name
	}
	switch one.Kind {
	case "APPROVAL":
		if g, open := gates[one.GateID]; open {
			return approvalOf(g)
		}
		return "approval of " + one.GateID
	case "PAUSE":
		if r.Status == "ABORTED" {
			return "retry, rollback or cancel"
		}
		return "resume"
	case "SOAK":
		text := "soak at " + one.GateID
		if one.Until != nil {
			text += " until " + one.Until.Local().Format("15:04:05")
		}
		return text
	case "HEALTH":
		verb := " to be healthy in "
		if r.Status == "ABORTING" {
			verb = " to be taken back in "
		}
		switch n := moving[where]; {
		case n > 1:
			return fmt.Sprintf("%d services%s%s", n, verb, where)
		case one.Service != nil:
			return one.Service.Name + verb + where
		}
		return one.Detail
	case "HAND_OVER":
		return "the workflow engine"
	case "AGENT":
		return "the agent of " + where
	case "ENVIRONMENT":
		return where + " to be ready"
	default: // a kind that a newer installation has
		return one.Detail
	}
}

func rolloutDetail(w io.Writer, r client.Rollout) {
	rolloutTable(w, []client.Rollout{r})
	rolloutMarks(w, r)
	fmt.Fprintln(w)
	command.Row(w, "ENVIRONMENT", "STATE", "SERVICE", "STATE", "PROGRESS", "VERSION", "COMMIT")
	for _, e := range r.Environments {
		for _, d := range e.Deployments {
			versions := make([]string, len(d.Versions))
			for i, v := range d.Versions {
				versions[i] = v.Name
			}
			commit := ""
			if d.Snapshot != nil {
				commit = d.Snapshot.CommitSHA[:min(10, len(d.Snapshot.CommitSHA))]
			}
			command.Row(w, e.Environment.Name, journal.Human(e.Status), d.Service.Name, journal.Human(d.Status), progress(d),
				strings.Join(versions, ","), commit)
		}
	}
	for _, s := range r.Skipped {
		why := "has this version set already"
		if s.Cause == "EXCLUDED" {
			why = "left out by request"
		}
		command.Row(w, s.Environment.Name, "skipped", why)
	}
	deadlineTable(w, r)
	linkTable(w, r)
	attemptTable(w, r)
	if len(r.WaitingOn) == 0 {
		return
	}
	fmt.Fprintln(w)
	waitTable(w, r.WaitingOn)
}

// strategyOf says how a rollout goes and why; empty if it was not planned.
func strategyOf(r client.Rollout) string {
	switch r.Strategy {
	case "":
		return ""
	case "QUICK":
		return "quick sync: " + r.StrategyReason
	default:
		return journal.Human(r.Strategy) + ": " + r.StrategyReason
	}
}

// strategyLine is strategyOf below a table.
func strategyLine(w io.Writer, r client.Rollout) {
	if line := strategyOf(r); line != "" {
		fmt.Fprintln(w)
		fmt.Fprintln(w, line)
	}
	if len(r.Inputs) > 0 && string(r.Inputs) != "{}" {
		fmt.Fprintln(w)
		command.Row(w, "inputs: "+string(r.Inputs))
	}
}

// near is how much of a default deadline may be left for it to be shown: before that it says nothing.
const near = time.Hour

// deadlineTable prints the deadlines that can still pass, and those that have; nothing for a rollout without any. Default ones are left out
// while they are far away.
func deadlineTable(w io.Writer, r client.Rollout) {
	r.Deadlines = slices.DeleteFunc(slices.Clone(r.Deadlines), func(d client.RolloutDeadline) bool {
		return d.AtWork && d.State != "PASSED" && (d.RemainingSeconds == nil || time.Duration(*d.RemainingSeconds)*time.Second > near)
	})
	if len(r.Deadlines) == 0 {
		return
	}
	fmt.Fprintln(w)
	command.Row(w, "DEADLINE OF", "STATE", "PASSES", "REMAINING", "THEN")
	for _, d := range r.Deadlines {
		of := "the " + strings.ToLower(d.Kind)
		if d.Environment != nil {
			of = d.Environment.Name
		}
		if d.AtWork {
			of += " (at work)"
		}
		remaining := ""
		if d.RemainingSeconds != nil {
			remaining = (time.Duration(*d.RemainingSeconds) * time.Second).String()
		}
		command.Row(w, of, journal.Human(d.State), command.Optional(d.DueAt), remaining, journal.Human(d.Action))
	}
}

// linkTable prints what the deployments are outside of Lockstep. Those of an environment may be one thing, such as a pull request.
func linkTable(w io.Writer, r client.Rollout) {
	headed := false
	for _, e := range r.Environments {
		shown := map[client.DeploymentLink]bool{}
		for _, d := range e.Deployments {
			if d.Link == nil || shown[*d.Link] {
				continue
			}
			if !headed {
				fmt.Fprintln(w)
				command.Row(w, "ENVIRONMENT", "OUTSIDE", "STATUS", "URL")
			}
			headed, shown[*d.Link] = true, true
			name := d.Link.Name
			if d.Link.Namespace != "" {
				name = d.Link.Namespace + "/" + name
			}
			command.Row(w, e.Environment.Name, name, d.Link.Status, d.Link.URL)
		}
	}
}

// attemptTable prints what attempts of deployments before the latest had committed.
func attemptTable(w io.Writer, r client.Rollout) {
	headed := false
	for _, e := range r.Environments {
		for _, d := range e.Deployments {
			if d.Snapshot == nil {
				continue
			}
			for _, before := range d.Snapshot.Earlier {
				if !headed {
					fmt.Fprintln(w)
					command.Row(w, "ENVIRONMENT", "SERVICE", "EARLIER ATTEMPT", "COMMIT OR MANIFEST")
				}
				headed = true
				at := before.CommittedAt.Format(time.RFC3339)
				command.Row(w, e.Environment.Name, d.Service.Name, at, cmp.Or(before.CommitSHA, before.ManifestDigest))
			}
		}
	}
}

// waitTable prints what a rollout waits for, in full.
func waitTable(w io.Writer, all []client.Wait) {
	command.Row(w, "WAITS FOR", "STATUS", "SINCE", "UNTIL", "RESOLVED BY")
	for _, one := range all {
		resolver := one.Resolver
		if len(one.Approvers) > 0 {
			names := make([]string, len(one.Approvers))
			for i, m := range one.Approvers {
				names[i] = m.Name
			}
			resolver += ": " + strings.Join(names, ", ")
		}
		command.Row(w, one.Detail, journal.Human(one.Status), command.Optional(one.Since), command.Optional(one.Until), resolver)
	}
}

// rolloutMarks prints what nobody should overlook: approvals that were bypassed, and rollbacks.
func rolloutMarks(w io.Writer, r client.Rollout) {
	var lines []string
	if row, ok := r.Breach(); ok {
		lines = append(lines, "BREACH at "+command.Moment(row.CreatedAt)+": "+row.Reason)
	}
	if g := r.BreakGlass; g != nil {
		by := "an unknown user"
		if g.Principal != nil {
			by = g.Principal.Name
		}
		lines = append(lines, fmt.Sprintf("BREAK-GLASS by %s at %s: %s", by, command.Moment(g.At), g.Reason))
	}
	if line := strategyOf(r); line != "" {
		lines = append(lines, line)
	}
	if r.RollbackOf != nil {
		lines = append(lines, "rolls back "+r.RollbackOf.ID)
	}
	if r.RolledBackBy != nil {
		lines = append(lines, "rolled back by "+r.RolledBackBy.ID)
	}
	if a := r.AutomaticRollback; a != nil {
		switch {
		case a.DueAt != nil:
			lines = append(lines, fmt.Sprintf("rolls back automatically at %s: %s; `lockstep rollout keep %s` stops that",
				command.Moment(*a.DueAt), a.Why, r.ID))
		case a.State == "DROPPED":
			lines = append(lines, "does not roll back by itself: "+a.Outcome)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintln(w)
	}
	for _, line := range lines {
		command.Row(w, line)
	}
	causeTable(w, r)
}

// causeTable prints what led to a rollout; nothing if it was its requester alone.
func causeTable(w io.Writer, r client.Rollout) {
	if len(r.Causes) == 0 || len(r.Causes) == 1 && r.Causes[0].TriggeredBy == "" {
		return
	}
	fmt.Fprintln(w)
	command.Row(w, "WHAT LED TO IT", "SUBJECT", "EVENT", "BY", "WHY")
	for _, row := range r.Causes {
		by := row.PrincipalType
		if row.Principal != nil {
			by = row.Principal.Name
		}
		why := row.Reason
		if row.TriggeredBy != "" {
			why = strings.TrimPrefix(why+"; "+row.TriggeredBy, "; ")
		}
		command.Row(w, command.Moment(row.CreatedAt), row.Subject, row.Event, by, why)
	}
}

// progress is how far a deployment has come, by the gates that it has reached.
func progress(d client.Deployment) string {
	if d.State == "HEALTHY" {
		return "100 %"
	}
	text := ""
	for _, g := range d.Gates {
		switch {
		case g.PassedAt != nil:
			text = fmt.Sprintf("past %d %%", g.Weight)
		case g.ReachedAt != nil:
			text = fmt.Sprintf("at %d %%", g.Weight)
		}
	}
	return text
}
