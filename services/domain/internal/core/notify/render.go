package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
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
	// details are what happened since the message was sent last, a line each, where its channel wants them as replies.
	details []string
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
func line(text string) string { return cut(flat(text), maxLine) }

// sequence is what changes colours in a terminal: outputs of programs have it.
var sequence = regexp.MustCompile("\x1b\\[[0-9;?]*[@-~]")

// flat is a text without lines, and without what is no text: control characters, and those that change the direction of what follows.
func flat(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) {
			return ' '
		}
		return c
	}, sequence.ReplaceAllString(text, ""))
	return strings.Join(strings.Fields(text), " ")
}

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
	open, err := questions(ctx, tx, organization, all, u.clock.Now())
	if err != nil {
		return r, err
	}
	if strings.HasPrefix(m.Key, "digest:") {
		if len(open) > 0 { // a link opens one question: the latest, which the last line names
			q := open[len(open)-1]
			made.link = cmp.Or(u.signedLink(ctx, organization, m, q), u.linkOf(core.Notification{
				RolloutID: q.RolloutID, SubjectID: q.RequestID,
				Moment: core.MomentCallRequested,
			}), made.link)
			made.lines = append(made.lines, line("The link opens the latest question: "+q.what))
		}
	} else {
		if made.open = open; len(open) > 0 {
			made.link = cmp.Or(u.signedLink(ctx, organization, m, open[len(open)-1]), made.link)
			made.callback = fmt.Sprintf("%s%sorganization_%d/%s", strings.TrimSuffix(u.url, "/"), CallbackPath, organization, c.Name)
		}
	}
	if config.Details && m.Ref != "" {
		if made.details, err = u.details(ctx, tx, organization, m, all, made.rollout); err != nil {
			return r, err
		}
	}
	made.id = fmt.Sprintf("lockstep-%d-%d-%s", organization, c.ID, strings.ReplaceAll(m.Key, ":", "-"))
	config.origin = origin(u.url)
	config, m = u.directed(c.Kind, config, m, &made, to)
	r.title, r.templateError = made.title, made.templateError
	request := requestFor(c.Kind, config, organization, m, made)
	if config.Payload == PayloadCDEvents { // only webhooks and subjects have it
		if request, err = u.interchange(ctx, tx, organization, c.Kind, config, m, made); err != nil {
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
	digest := strings.HasPrefix(m.Key, "digest:") && len(all)+m.LeftOut > 1 // one of one is what it is
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
	lasting, latest := latestAdvance(all)
	listed := lasting[max(0, len(lasting)-shown):]
	hidden := m.LeftOut + len(lasting) - len(listed)
	if latest != nil && !digest {
		listed = append(slices.Clone(listed), *latest)
	}
	for _, n := range listed {
		lines, err := u.entry(ctx, tx, organization, &c, n, rollouts[n.RolloutID], own, digest)
		if err != nil {
			return c, err
		}
		if n.RolloutID != 0 && m.RolloutID != 0 && n.RolloutID != m.RolloutID { // it has made up for the message's own
			lines[0] = line(fmt.Sprintf("%s, %s: %s", rollouts[n.RolloutID].name(), rollouts[n.RolloutID].VersionSet, lines[0]))
		}
		c.lines = append(c.lines, lines...)
	}
	if hidden > 0 {
		c.lines = append([]string{fmt.Sprintf("%d more are not shown.", hidden)}, c.lines...)
	}
	switch {
	case digest:
		c.title = fmt.Sprintf("Lockstep: %d notifications", len(all)+m.LeftOut)
	case len(all) == 0: // they were deleted
		c.title = cmp.Or(m.Title, "Lockstep: a notification from more than 30 days ago")
	default:
		last := current(lasting, latest)
		r := rollouts[cmp.Or(m.RolloutID, last.RolloutID)]
		var err error
		if c.title, c.over, err = titleOf(ctx, tx, organization, last, r); err != nil {
			return c, err
		}
		if m.RolloutID != 0 {
			other := func(n core.Notification) bool { return n.RolloutID != m.RolloutID } // it has made up for the message's own
			c.rollout, c.over = r, c.over || slices.ContainsFunc(all, other)
			c.lines = append(c.lines, r.summary()...)
		} else {
			c.over = all[0].Moment == core.MomentFreezeEnded || last.Moment == core.MomentProceeded ||
				last.Moment == core.MomentCredentialReplaced || last.Moment.Ends() != ""
		}
		if todo := whatToDo(last, r); todo != "" && !c.over && own[last.Moment][partText] == "" {
			c.lines = append(c.lines, "What to do: "+todo)
		}
		c.link = u.linkOf(all[0])
		c.title = c.write(own, last, r, partTitle, c.title, c.lines, c.link)[0]
	}
	c.title = cut(flat(c.title), maxTitle)
	return c, nil
}

// latestAdvance leaves out what only updates a message; of that the latest is shown, if nothing else has happened since.
func latestAdvance(all []core.Notification) (lasting []core.Notification, latest *core.Notification) {
	for i, n := range all {
		if n.Moment != core.MomentAdvanced {
			lasting, latest = append(lasting, n), nil
		} else {
			latest = &all[i]
		}
	}
	return lasting, latest
}

// current is the moment that a message is at: the last that it was sent for, unless the rollout has continued since. A step ends no
// question.
func current(lasting []core.Notification, latest *core.Notification) core.Notification {
	i := len(lasting) - 1
	for i >= 0 && lasting[i].Moment.IsStep() {
		i--
	}
	if latest == nil && i < len(lasting)-1 {
		latest = &lasting[len(lasting)-1]
	}
	if i < 0 {
		return *latest
	}
	last := lasting[i]
	if latest == nil {
		return last
	}
	switch last.Moment { //nolint:exhaustive // the others are as long as nothing ends them
	case core.MomentRolloutBegan, core.MomentRollbackBegan, core.MomentProceeded, core.MomentCheckPassed, core.MomentFreezeBypassed:
		return *latest
	case core.MomentRolloutStopped:
		if verbOf(last) == core.VerbStopPassage && verbOf(*latest) == core.VerbPassGate {
			return *latest
		}
	}
	return last
}

// details are the lines about what happened since a message was sent last.
func (u *UseCases) details(
	ctx context.Context, tx subjects, organization int64, m core.NotificationMessage, all []core.Notification, r Rollout,
) ([]string, error) {
	fresh := m.NotificationIDs[min(m.SentCount, len(m.NotificationIDs)):]
	var lines []string
	for _, n := range all {
		if !slices.Contains(fresh, n.ID) || n.RolloutID != r.ID || len(lines) >= shown {
			continue
		}
		sentence, err := sentences(ctx, tx, organization, n, r)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line(n.At.UTC().Format("15:04:05 MST")+" "+sentence[0]))
	}
	return lines, nil
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
	case n.Moment.OfQueue() && n.Application != "":
		return base + "/applications/" + url.PathEscape(n.Application)
	case n.Moment.OfEnvironment() && n.Environment != "":
		return base + "/environments/" + url.PathEscape(n.Environment)
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
		case core.MomentFreezeBypassed:
			if what = "let past a freeze"; verbOf(last) == core.VerbPassGate {
				what = "let past a check"
			}
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
	case core.MomentAgentOnline:
		return n.Environment + ": its agent is back"
	case core.MomentDrift:
		return fmt.Sprintf("%s: %s differs from what was deployed", n.Application, n.Environment)
	case core.MomentDriftEnded:
		return fmt.Sprintf("%s: %s is as it was deployed", n.Application, n.Environment)
	case core.MomentCheckPassed:
		return fmt.Sprintf("%s: check %s passes in %s", n.Application, n.Subject, n.Environment)
	case core.MomentCredentialExpires:
		return fmt.Sprintf("Credential %s: its value ends soon", n.Subject)
	case core.MomentCredentialReplaced:
		return fmt.Sprintf("Credential %s: replaced or revoked", n.Subject)
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
	case core.MomentEnvironmentCreated, core.MomentEnvironmentChanged, core.MomentEnvironmentArchived, core.MomentEnvironmentRestored:
		return n.Environment + ": environment " + ofEnvironment(n.Moment)
	case core.MomentRolloutQueued:
		return fmt.Sprintf("%s: a rollout to %s is pending", n.Application, n.Subject)
	case core.MomentRolloutDropped:
		return fmt.Sprintf("%s: the rollout to %s that was pending does not begin", n.Application, n.Subject)
	case core.MomentArtifactPublished:
		return fmt.Sprintf("%s: %s was published", n.Application, n.Subject)
	case core.MomentArtifactDeleted:
		return fmt.Sprintf("%s: %s was deleted from its registry", n.Application, n.Subject)
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
		switch verbOf(last) { // the others cannot be undone by people
		case core.VerbStopPassage:
			return "nothing if that is meant: it continues by itself once what stops it ends. Otherwise end that, or cancel the rollout."
		case core.VerbAbort:
			return "begin it again, roll it back, or cancel it."
		default:
			return "resume it, or cancel it."
		}
	case core.MomentCredentialExpires:
		return "replace its value before that; what needs it fails afterwards."
	case core.MomentRolloutFailed:
		return "find out why it failed, then begin another rollout or roll it back."
	case core.MomentFreezeBypassed:
		if verbOf(last) == core.VerbPassGate {
			return "nothing if that was agreed; otherwise pause it, and find out what the checks have found."
		}
		return "nothing if that was agreed; otherwise pause it. The freeze still stops all others."
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
	case core.MomentArtifactDeleted:
		return "publish it again, or roll out another version where it runs: what restarts there may find no image."
	default:
		return ""
	}
}
