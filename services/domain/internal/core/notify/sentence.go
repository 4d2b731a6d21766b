package notify

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// sentences say what happened: the first what, the others what is needed to decide.
func sentences(ctx context.Context, tx subjects, organization int64, n core.Notification, r Rollout) ([]string, error) {
	because := func(what string) []string { return []string{core.Because(what, n.Reason)} }
	kind := "rollout"
	if r.RollbackOf != 0 {
		kind = fmt.Sprintf("rollback of rollout_%d", r.RollbackOf)
	}
	switch n.Moment {
	case core.MomentApprovalNeeded, core.MomentApprovalUnanswered:
		lines, err := approval(ctx, tx, n, r)
		return unanswered(n, lines), err
	case core.MomentRolloutBegan, core.MomentRollbackBegan:
		if r.RollbackOf != 0 && n.By.Type == core.PrincipalPolicy { // the reason says of which one
			return []string{core.Because("it began by itself", n.Reason), "It brings " + r.changes()}, nil
		}
		return []string{core.Because(fmt.Sprintf("%s began the %s", n.PrincipalName, kind), n.Reason), "It brings " + r.changes()}, nil
	case core.MomentRolloutStopped:
		return because(stopped(n)), nil
	case core.MomentAdvanced:
		return because(advanced(n)), nil
	case core.MomentRolloutQueued:
		return because(fmt.Sprintf("a rollout of %s to %s is pending", n.Application, n.Subject)), nil
	case core.MomentRolloutDropped:
		return because(fmt.Sprintf("a rollout of %s to %s does not begin", n.Application, n.Subject)), nil
	case core.MomentRolloutPlanned:
		return because("the " + kind + " is planned"), nil
	case core.MomentRolloutStarted:
		return because("the " + kind + " is under way"), nil
	case core.MomentEnvironmentEntered:
		return because("it entered " + n.Environment), nil
	case core.MomentEnvironmentCompleted:
		return because("it completed in " + n.Environment), nil
	case core.MomentEnvironmentFailed:
		return because("it failed in " + n.Environment), nil
	case core.MomentRolloutFailed:
		return because("the " + kind + " failed"), nil
	case core.MomentBreach:
		return because("it advanced beyond a passage that was not granted"), nil
	case core.MomentRolledBack, core.MomentRolloutCompleted:
		return because("the " + kind + " completed"), nil
	case core.MomentCallRequested, core.MomentCallUnanswered:
		lines, err := callLines(ctx, tx, organization, n)
		return unanswered(n, lines), err
	case core.MomentProceeded:
		return because(proceeded(n)), nil
	case core.MomentCheckFailed:
		return because(fmt.Sprintf("check %s failed in %s", n.Subject, n.Environment)), nil
	case core.MomentCheckPassed:
		return because(fmt.Sprintf("check %s passes in %s again", n.Subject, n.Environment)), nil
	case core.MomentFreezeBypassed:
		if verbOf(n) == core.VerbPassGate {
			return because(n.PrincipalName + " broke the glass: it entered " + n.Subject + " past checks that are not green"), nil
		}
		return because(n.PrincipalName + " let it past the freezes that are in force"), nil
	case core.MomentFreezeBegan, core.MomentFreezeEnded:
		f, err := tx.NotifiedFreeze(ctx, n.SubjectID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		what := "began, until " + f.EndsAt.UTC().Format("2006-01-02 15:04 MST")
		if n.Moment == core.MomentFreezeEnded {
			what = "ended"
		}
		of := "everything"
		if len(f.Scope) > 0 {
			of = strings.Join(f.Scope, ", ")
		}
		return []string{core.Because(fmt.Sprintf("the freeze of %s, set by %s, %s", of, f.Author, what), f.Reason)}, nil
	case core.MomentAgentOffline:
		return because(n.Environment + " cannot be reached"), nil
	case core.MomentAgentOnline:
		return because(n.Environment + " can be reached again"), nil
	case core.MomentDrift:
		return because(fmt.Sprintf("%s differs in %s", n.Application, n.Environment)), nil
	case core.MomentDriftEnded:
		return because(fmt.Sprintf("%s in %s is as it was deployed again", n.Application, n.Environment)), nil
	case core.MomentCredentialExpires:
		c, err := tx.NotifiedCredential(ctx, n.SubjectID)
		if fault.Is(err, fault.NotFound) || err == nil && !c.warnedOf(n) { // it was revoked or replaced since
			return []string{"the value of credential " + n.Subject + " was to end soon"}, nil
		}
		return []string{fmt.Sprintf("the value of credential %s ends at %s", n.Subject, c.ExpiresAt.UTC().Format("2006-01-02 15:04 MST"))}, err
	case core.MomentCredentialReplaced:
		return because(fmt.Sprintf("credential %s has another value or was revoked", n.Subject)), nil
	case core.MomentTriggerDeclined:
		return because(fmt.Sprintf("trigger %s of %s did not begin a rollout", n.Subject, n.Application)), nil
	case core.MomentEnvironmentCreated, core.MomentEnvironmentChanged, core.MomentEnvironmentArchived, core.MomentEnvironmentRestored:
		return because(fmt.Sprintf("%s %s environment %s", n.PrincipalName, ofEnvironment(n.Moment), n.Environment)), nil
	case core.MomentArtifactPublished:
		return because(fmt.Sprintf("%s of %s was published", n.Subject, n.Application)), nil
	case core.MomentArtifactDeleted:
		return because(fmt.Sprintf("the registry of %s does not have %s any more", n.Application, n.Subject)), nil
	case core.MomentTest:
		return []string{fmt.Sprintf("%s tests route %s. No action is needed.", n.PrincipalName, n.Subject)}, nil
	default:
		return because(string(n.Moment)), nil
	}
}

// ofEnvironment is what was done to an environment.
func ofEnvironment(m core.NotificationMoment) string {
	switch m {
	case core.MomentEnvironmentCreated:
		return "created"
	case core.MomentEnvironmentArchived:
		return "archived"
	case core.MomentEnvironmentRestored:
		return "restored"
	default:
		return "changed"
	}
}

// approval says what changes, who asked, and until when it can be answered.
func approval(ctx context.Context, tx subjects, n core.Notification, r Rollout) ([]string, error) {
	g, err := tx.NotifiedGate(ctx, n.RolloutID, n.Subject)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	what := fmt.Sprintf("approval %s is needed", n.Subject)
	at := r.before(n.Subject, g)
	for _, e := range r.Environments {
		if e.ID == at {
			what += " before " + e.Name
		}
	}
	who := "asked for by " + r.AskedBy
	if g.Group != "" {
		who += ", to be given by " + g.Group
	}
	if g.Quorum > 1 {
		who += fmt.Sprintf(" (%d of them)", g.Quorum)
	}
	until := "It does not expire"
	if g.ExpiresAt != nil {
		until = "It expires at " + g.ExpiresAt.UTC().Format("2006-01-02 15:04 MST")
	}
	return []string{core.Because(what+", "+who, cmp.Or(g.Reason, n.Reason)), "It brings " + r.changes(), until}, nil
}

// unanswered are the lines of a question, which begin with that nobody has answered it if that is why it is sent.
func unanswered(n core.Notification, lines []string) []string {
	if (n.Moment == core.MomentApprovalUnanswered || n.Moment == core.MomentCallUnanswered) && len(lines) > 0 {
		lines[0] = "nobody has answered: " + lines[0]
	}
	return lines
}

// callLines say which call waits for people, and until when.
func callLines(ctx context.Context, tx subjects, organization int64, n core.Notification) ([]string, error) {
	all, err := tx.CallRequestsByID(ctx, organization, []int64{n.SubjectID})
	if err != nil {
		return nil, err
	}
	c := all[n.SubjectID]
	what := fmt.Sprintf("a call of %s by %s needs an approval", n.Subject, cmp.Or(c.WorkflowID, "a run"))
	if c.Group != "" {
		what += ", to be given by " + c.Group
	}
	if c.Quorum > 1 {
		what += fmt.Sprintf(" (%d of them)", c.Quorum)
	}
	until := "It does not expire"
	if c.ExpiresAt != nil {
		until = "Without an answer it is refused at " + c.ExpiresAt.UTC().Format("2006-01-02 15:04 MST")
	}
	return []string{core.Because(what, n.Reason), until}, nil
}

// verbOf is the verb of the journal that a moment is of, which is in its cause; empty for one that is of no row of it.
func verbOf(n core.Notification) core.Verb {
	kind, rest, _ := strings.Cut(n.Cause, ":")
	_, rest, _ = strings.Cut(rest, ":")
	verb, _, _ := strings.Cut(rest, ":")
	if kind != "rollout" && kind != "environment" {
		return ""
	}
	return core.Verb(verb)
}

// stopped is who or what stopped a rollout.
func stopped(n core.Notification) string {
	switch verbOf(n) { // the others are pauses
	case core.VerbStopPassage:
		return fmt.Sprintf("it may not pass %s now", n.Subject)
	case core.VerbAbort:
		return n.PrincipalName + " aborted it"
	case core.VerbCancel:
		return n.PrincipalName + " cancelled it"
	default:
		return n.PrincipalName + " stopped it"
	}
}

// proceeded is what was done that has something proceed, and by whom: the verb of the journal, or of the answer to a call.
func proceeded(n core.Notification) string {
	verb, what := verbOf(n), n.Subject
	if n.SubjectID != 0 {
		verb, what = core.Verb(n.Subject), "the call"
	}
	switch verb { // no other answers a question
	case core.VerbApprove:
		return n.PrincipalName + " approved " + what
	case core.VerbReject:
		return n.PrincipalName + " rejected " + what
	case core.VerbResume:
		return n.PrincipalName + " resumed it"
	case core.VerbRetry:
		return n.PrincipalName + " began it again"
	case core.VerbExpire: // the reason says what that means
		return "approval " + what + " expired without enough answers"
	case core.VerbBreakGlass:
		if what == "" {
			return n.PrincipalName + " broke the glass: it is an emergency, and approvals may be passed"
		}
		return n.PrincipalName + " broke the glass, and passed approval " + what
	default:
		return n.PrincipalName + " answered, and it proceeds"
	}
}

// advanced is what else happened to a rollout, or to one of its environments.
func advanced(n core.Notification) string {
	what := "it"
	if n.EnvironmentID != 0 {
		what = n.Environment
	}
	switch verb := verbOf(n); verb { // the others have moments of their own
	case core.VerbStart:
		return what + " started"
	case core.VerbDegrade:
		return what + " is degraded"
	case core.VerbComplete:
		return what + " completed"
	case core.VerbFail:
		return what + " failed"
	case core.VerbCancel:
		return what + " was cancelled"
	case core.VerbSkip:
		return what + " skips something"
	case core.VerbReachGate:
		return what + " reached gate " + n.Subject
	case core.VerbPassGate:
		return what + " passed gate " + n.Subject
	case core.VerbRequestPassage:
		return what + " waits to pass " + n.Subject
	case core.VerbStartJob:
		return "job " + n.Subject + " began"
	case core.VerbEndJob:
		return "job " + n.Subject + " ended"
	case core.VerbStopRollback:
		return "its automatic rollback was called off"
	default:
		return what + ": " + strings.ReplaceAll(string(verb), "_", " ")
	}
}

// stamp is an instant for data.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
