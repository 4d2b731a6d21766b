package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// shown is how many notifications a message lists.
	shown = 12
	// maxTitle and maxLine bound texts, in characters: those of Slack's headers are the shortest.
	maxTitle = 140
	maxLine  = 300
	// maxChanges is how many changed versions a message lists.
	maxChanges = 8
)

// content is what a message says, whatever its channel.
type content struct {
	// title is one line without markup; lines are sentences, oldest first.
	title    string
	lines    []string
	severity core.NotificationSeverity
	link     string
	// over is that nothing more is to happen: an alert is resolved.
	over bool
	// moments are what the message is about, for channels that read data.
	moments []core.Notification
	rollout Rollout
	// open are the questions that it asks, oldest first, and callback is where a chat sends answers to.
	open     []openQuestion
	callback string
	// id is the same for all that updates one message.
	id string
	// templateError is why a template could not be filled in; empty if it could.
	templateError string
}

// text is all of it as plain text.
func (c content) text() string {
	parts := append([]string{c.title}, c.lines...)
	if c.link != "" {
		parts = append(parts, c.link)
	}
	return strings.Join(parts, "\n")
}

func cut(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// line is a text in one line.
func line(text string) string { return cut(strings.Join(strings.Fields(text), " "), maxLine) }

// rendered is a message as it is sent: the inputs of the run that sends it, its title, and why a template of it could not be filled in.
type rendered struct {
	inputs               json.RawMessage
	title, templateError string
}

// render makes what is sent. It goes to an address of a member, or where the channel is.
func (u *UseCases) render(
	ctx context.Context, tx Tx, organization int64, c core.NotificationChannel, m core.NotificationMessage, to string,
) (r rendered, err error) {
	var config channelConfig
	if err := json.Unmarshal(c.Config, &config); err != nil {
		return r, fmt.Errorf("read channel %q: %w", c.Name, err)
	}
	ids := m.NotificationIDs
	if !updates(c) && m.SentCount < len(ids) { // it has the others already, and cannot be changed
		ids = ids[m.SentCount:]
	}
	all, err := tx.NotificationsByID(ctx, ids)
	if err != nil {
		return r, err
	}
	made, err := u.compose(ctx, tx, organization, m, all, config.Templates)
	if err != nil {
		return r, err
	}
	if !strings.HasPrefix(m.Key, "digest:") {
		open, err := questions(ctx, tx, organization, all, u.clock.Now())
		if err != nil {
			return r, err
		}
		if made.open = open; len(open) > 0 {
			made.link = cmp.Or(u.signedLink(ctx, organization, m, open[len(open)-1]), made.link)
			made.callback = fmt.Sprintf("%s%sorganization_%d/%s", strings.TrimSuffix(u.url, "/"), CallbackPath, organization, c.Name)
		}
	}
	made.id = fmt.Sprintf("lockstep-%d-%d-%s", organization, c.ID, strings.ReplaceAll(m.Key, ":", "-"))
	config, m = u.directed(c.Kind, config, m, &made, to)
	r.title, r.templateError = made.title, made.templateError
	request := requestFor(c.Kind, config, organization, m, made)
	if c.Kind == core.NotifyWebhook && config.Payload == PayloadCDEvents {
		if request, err = u.interchange(ctx, tx, organization, config, m, made); err != nil {
			return r, err
		}
	}
	r.inputs, err = json.Marshal(request)
	if err != nil {
		return r, fmt.Errorf("write notification_%d: %w", m.ID, err)
	}
	return r, nil
}

// compose says what happened.
func (u *UseCases) compose(
	ctx context.Context, tx subjects, organization int64, m core.NotificationMessage, all []core.Notification, own templates,
) (content, error) {
	c := content{severity: m.Severity, moments: all}
	c.link = u.url
	digest := strings.HasPrefix(m.Key, "digest:")
	rollouts := map[int64]Rollout{}
	for _, n := range all {
		if _, known := rollouts[n.RolloutID]; known || n.RolloutID == 0 {
			continue
		}
		r, err := tx.NotifiedRollout(ctx, n.RolloutID)
		if err != nil {
			return c, err
		}
		rollouts[n.RolloutID] = r
	}
	listed := all[max(0, len(all)-shown):]
	for _, n := range listed {
		lines, err := u.entry(ctx, tx, organization, &c, n, rollouts[n.RolloutID], own, digest)
		if err != nil {
			return c, err
		}
		c.lines = append(c.lines, lines...)
	}
	if hidden := m.LeftOut + len(all) - len(listed); hidden > 0 {
		c.lines = append([]string{fmt.Sprintf("%d more are not shown.", hidden)}, c.lines...)
	}
	switch {
	case digest:
		c.title = fmt.Sprintf("Lockstep: %d notifications", len(all)+m.LeftOut)
	case len(all) == 0: // they were deleted
		c.title = cmp.Or(m.Title, "Lockstep: a notification from more than 30 days ago")
	default:
		last := all[len(all)-1] // without a rollout, only a call has several
		r := rollouts[last.RolloutID]
		var err error
		if c.title, c.over, err = titleOf(ctx, tx, organization, last, r); err != nil {
			return c, err
		}
		if m.RolloutID != 0 {
			c.rollout = r
			c.lines = append(c.lines, r.summary()...)
		} else {
			c.over = all[0].Moment == core.MomentFreezeEnded || last.Moment == core.MomentProceeded
		}
		if todo := whatToDo(last, r); todo != "" && !c.over && own[last.Moment][partText] == "" {
			c.lines = append(c.lines, "What to do: "+todo)
		}
		c.link = u.linkOf(all[0])
		c.title = c.write(own, last, r, partTitle, c.title, c.lines, c.link)[0]
	}
	c.title = cut(strings.Join(strings.Fields(c.title), " "), maxTitle)
	return c, nil
}

// entry is what a message says of one of the moments that it is about.
func (u *UseCases) entry(
	ctx context.Context, tx subjects, organization int64, c *content, n core.Notification, r Rollout, own templates, digest bool,
) ([]string, error) {
	lines, err := sentences(ctx, tx, organization, n, r)
	if err != nil {
		return nil, err
	}
	title, _, err := titleOf(ctx, tx, organization, n, r)
	if err != nil {
		return nil, err
	}
	lines = c.write(own, n, r, partText, title, lines, u.linkOf(n))
	if digest {
		lines = lines[:1]
		if r.ID != 0 {
			lines[0] = fmt.Sprintf("%s, %s: %s", r.Application, r.name(), lines[0])
		}
	}
	lines[0] = n.At.UTC().Format("15:04 MST") + " " + lines[0]
	for i := range lines {
		lines[i] = line(lines[i])
	}
	return lines, nil
}

// titleOf is the title of a message whose latest moment it is, and whether nothing more is to happen.
func titleOf(
	ctx context.Context, tx subjects, organization int64, n core.Notification, r Rollout,
) (title string, over bool, err error) {
	switch {
	case n.RolloutID != 0:
		title, over = r.title(n)
	case n.Moment == core.MomentFreezeBegan, n.Moment == core.MomentFreezeEnded:
		f, err := tx.NotifiedFreeze(ctx, n.SubjectID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return "", false, err
		}
		title = f.title(n.Moment == core.MomentFreezeEnded)
	case n.Moment == core.MomentProceeded:
		// Its subject is the answer. The request, which may have been deleted, has the Function.
		all, err := tx.CallRequestsByID(ctx, organization, []int64{n.SubjectID})
		if err != nil {
			return "", false, err
		}
		if title = headline(n); all[n.SubjectID].Function != "" {
			title = fmt.Sprintf("Call of %s: answered", all[n.SubjectID].Function)
		}
	default:
		title = headline(n)
	}
	return title, over, nil
}

// maxScope is how many of the names of what a freeze stops its title has.
const maxScope = 3

// title is what is frozen, for how long, and why.
func (f Freeze) title(ended bool) string {
	of := "Everything"
	if more := len(f.Scope) - maxScope; more > 0 {
		of = fmt.Sprintf("%s and %d more", strings.Join(f.Scope[:maxScope], ", "), more)
	} else if len(f.Scope) > 0 {
		of = strings.Join(f.Scope, ", ")
	}
	if ended {
		return core.Because(of+": freeze ended", f.Reason)
	}
	return core.Because(fmt.Sprintf("%s: frozen until %s", of, f.EndsAt.UTC().Format("2006-01-02 15:04 MST")), f.Reason)
}

// linkOf is where the console shows what a moment is about.
func (u *UseCases) linkOf(n core.Notification) string {
	base := strings.TrimSuffix(u.url, "/")
	switch {
	case u.url == "":
		return ""
	case ofCall(n) && n.RolloutID == 0:
		return base + "/waiting"
	case n.RolloutID != 0:
		return fmt.Sprintf("%s/rollouts/rollout_%d", base, n.RolloutID)
	default:
		return u.url
	}
}

func (r Rollout) name() string { return fmt.Sprintf("rollout_%d", r.ID) }

// title is what the rollout is at.
func (r Rollout) title(last core.Notification) (title string, over bool) {
	what := r.State.Words()
	kind := "rollout"
	if r.RollbackOf != 0 {
		kind = "rollback"
	}
	if !r.State.Terminal() {
		switch last.Moment { //nolint:exhaustive // the state shows the others
		case core.MomentApprovalNeeded, core.MomentCallRequested, core.MomentApprovalUnanswered, core.MomentCallUnanswered:
			what = "approval needed"
		case core.MomentCheckFailed:
			what = "a check failed"
		case core.MomentBreach:
			what = "advanced without a grant"
		case core.MomentRolloutStopped:
			what = "stopped"
		case core.MomentRolloutBegan, core.MomentRollbackBegan:
			what = "began"
		}
	}
	return fmt.Sprintf("%s: %s to %s, %s", r.Application, kind, r.VersionSet, what), r.State.Terminal() && r.State != core.RolloutFailed
}

// summary is where it is, and what it changes.
func (r Rollout) summary() (lines []string) {
	var places []string
	for _, e := range r.Environments {
		places = append(places, fmt.Sprintf("%s: %s", e.Name, e.State.Words()))
	}
	if len(places) > 0 {
		lines = append(lines, line(strings.Join(places, "; ")))
	}
	return lines
}

// changes are what a rollout brings, in one line.
func (r Rollout) changes() string {
	var all []string
	for i, c := range r.Changes {
		if i == maxChanges {
			all = append(all, "and more")
			break
		}
		if c.Previous == "" {
			all = append(all, c.Service+" "+c.Version)
		} else {
			all = append(all, fmt.Sprintf("%s %s → %s", c.Service, c.Previous, c.Version))
		}
	}
	if len(all) == 0 {
		return "no new version"
	}
	return strings.Join(all, ", ")
}

// headline is the title of what is about no rollout.
func headline(n core.Notification) string {
	switch n.Moment {
	case core.MomentAgentOffline:
		return n.Environment + ": its agent is offline"
	case core.MomentDrift:
		return fmt.Sprintf("%s: %s differs from what was deployed", n.Application, n.Environment)
	case core.MomentCheckFailed:
		return fmt.Sprintf("%s: check %s failed in %s", n.Application, n.Subject, n.Environment)
	case core.MomentTriggerDeclined:
		return fmt.Sprintf("%s: trigger %s did not begin a rollout", n.Application, n.Subject)
	case core.MomentCallRequested, core.MomentCallUnanswered:
		return fmt.Sprintf("Call of %s: approval needed", n.Subject)
	case core.MomentProceeded:
		return fmt.Sprintf("Call callrequest_%d: answered", n.SubjectID)
	case core.MomentTest:
		return "Test of route " + n.Subject
	default:
		return strings.ReplaceAll(string(n.Moment), "_", " ")
	}
}

// whatToDo is what people can do about the latest moment of a message; empty for nothing.
func whatToDo(last core.Notification, r Rollout) string {
	switch last.Moment {
	case core.MomentApprovalNeeded, core.MomentApprovalUnanswered:
		if r.State.Terminal() {
			return ""
		}
		return "look at what changes, then approve or reject it."
	case core.MomentCallRequested, core.MomentCallUnanswered:
		return "look at what it calls, then approve or reject it."
	case core.MomentRolloutStopped:
		return "resume it, or cancel it."
	case core.MomentRolloutFailed:
		return "find out why it failed, then begin another rollout or roll it back."
	case core.MomentRollbackBegan:
		return "nothing while it proceeds; find out why it was needed before the next rollout."
	case core.MomentCheckFailed:
		return "repair what the check has found, then have it evaluated again."
	case core.MomentBreach:
		return "find out what has advanced it, and roll it back if that must not run."
	case core.MomentAgentOffline:
		return "check the relay there and its connection; nothing is deployed there before it is back."
	case core.MomentDrift:
		return "take the difference back, or roll out what is wanted."
	case core.MomentTriggerDeclined:
		return "begin a rollout yourself if there should be one."
	default:
		return ""
	}
}

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
		return []string{core.Because(fmt.Sprintf("%s began the %s", n.PrincipalName, kind), n.Reason), "It brings " + r.changes()}, nil
	case core.MomentRolloutStopped:
		return because(n.PrincipalName + " stopped it"), nil
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
		return because(n.PrincipalName + " " + proceeded(n)), nil
	case core.MomentCheckFailed:
		return because(fmt.Sprintf("check %s failed in %s", n.Subject, n.Environment)), nil
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
	case core.MomentDrift:
		return because(fmt.Sprintf("%s differs in %s", n.Application, n.Environment)), nil
	case core.MomentTriggerDeclined:
		return because(fmt.Sprintf("trigger %s of %s did not begin a rollout", n.Subject, n.Application)), nil
	case core.MomentTest:
		return []string{fmt.Sprintf("%s tests route %s. There is nothing to do.", n.PrincipalName, n.Subject)}, nil
	default:
		return because(string(n.Moment)), nil
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

// proceeded is what was done that has something proceed: the verb of the journal, which is in the cause of a rollout's moment.
func proceeded(n core.Notification) string {
	verb, what := n.Subject, "the call"
	if n.SubjectID == 0 {
		_, rest, _ := strings.Cut(strings.TrimPrefix(n.Cause, "rollout:"), ":")
		verb, _, _ = strings.Cut(rest, ":")
		what = n.Subject
	}
	switch core.Verb(verb) {
	case core.VerbApprove:
		return "approved " + what
	case core.VerbReject:
		return "rejected " + what
	case core.VerbResume:
		return "resumed it"
	case core.VerbRetry:
		return "began it again"
	default:
		return "answered, and it proceeds"
	}
}

// stamp is an instant for data.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
