package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rendering"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// An organization may write what a channel says of a moment (D62). What its templates make is text, as the defaults are: each kind of
// channel escapes it in its own way, so no template makes markup, a link or a mention. A template that cannot be filled in loses no
// message: the default is sent, and the failure is shown.

const (
	// maxTemplate bounds a template, in bytes, and maxTemplateWork what it may compute: some milliseconds.
	maxTemplate     = 4 << 10
	maxTemplateWork = 128 << 10
	// maxTemplateLines is how many lines of a template are shown.
	maxTemplateLines = 12
)

// The parts of a message that a template may write.
const (
	partTitle = "title"
	partText  = "text"
)

// templates are those of a channel: by moment and part.
type templates map[core.NotificationMoment]map[string]string

// fill fills in a template: its lines without those that are empty, or what is wrong with it.
func fill(template string, data map[string]any) ([]string, error) {
	out, err := rendering.Render(rendering.Request{
		Template: template, Data: data, Delimiters: rendering.Square, Strict: true, Work: maxTemplateWork,
	})
	if failed, ok := errors.AsType[*rendering.Error](err); ok {
		return nil, fault.New(fault.Invalid, "%s", failed.Message)
	} else if err != nil {
		return nil, fmt.Errorf("fill in a template: %w", err)
	}
	var lines []string
	for one := range strings.SplitSeq(out, "\n") {
		if one = line(one); one != "" && len(lines) < maxTemplateLines {
			lines = append(lines, one)
		}
	}
	if len(lines) == 0 {
		return nil, fault.New(fault.Invalid, "found a template that makes no text; expected at least a word")
	}
	return lines, nil
}

// check finds templates that cannot be filled in. Made-up data has all that real data has, so most mistakes are found before they matter.
func (t templates) check(ctx context.Context, found *problems) {
	for moment, parts := range t {
		at := "/config/templates/" + string(moment)
		if !slices.Contains(core.AllNotificationMoments(), moment) {
			found.add(at, "found no event; expected one such as %s", core.MomentApprovalNeeded)
			continue
		}
		s := sampleOf(moment)
		lines, err := sentences(ctx, s, 0, s.notification, s.rollout)
		for part, template := range parts {
			switch {
			case part != partTitle && part != partText:
				found.add(at+"/"+part, "found a setting that does not exist here; expected title or text")
			case template == "":
				found.add(at+"/"+part, "found nothing; expected a template, or leave it out")
			case len(template) > maxTemplate:
				found.add(at+"/"+part, "found %d bytes; expected at most %d", len(template), maxTemplate)
			case err == nil:
				if _, err := fill(template, templateData(s.notification, s.rollout, "title", lines, "")); err != nil {
					found.add(at+"/"+part, "found a template that cannot be filled in: %s", cut(fault.Public(err), maxLine))
				}
			}
		}
	}
}

// write has the template of a moment write a part of a message. Without one, and if it cannot be filled in, the part is the default.
func (c *content) write(t templates, n core.Notification, r Rollout, part, title string, lines []string, link string) []string {
	preset := lines
	if part == partTitle {
		preset = []string{title}
	}
	template := t[n.Moment][part]
	if template == "" || c.templateError != "" { // one that fails may have cost all the work that it may
		return preset
	}
	written, err := fill(template, templateData(n, r, title, lines, link))
	if err != nil {
		c.templateError = cut(fmt.Sprintf("the %s of %s: %s", part, n.Moment, fault.Public(err)), maxLine)
		return preset
	}
	return written
}

// templateData is what a template may say: what the default message has, and no more. It has nothing of another organization, no secret,
// and no signed link.
func templateData(n core.Notification, r Rollout, title string, lines []string, link string) map[string]any {
	environments, changes := []any{}, []any{}
	for _, e := range r.Environments {
		environments = append(environments, map[string]any{"name": e.Name, "tier": string(e.Tier), "state": e.State.Words()})
	}
	for _, c := range r.Changes[:min(len(r.Changes), maxChanges)] {
		changes = append(changes, map[string]any{"service": c.Service, "version": c.Version, "previous": c.Previous})
	}
	texts := make([]any, len(lines))
	for i, l := range lines {
		texts[i] = l
	}
	return map[string]any{
		"event": string(n.Moment), "severity": n.Moment.Severity().String(), "at": n.At.UTC().Format(time.RFC3339),
		"application": cmp.Or(n.Application, r.Application), "environment": n.Environment, "rollout": rolloutName(n.RolloutID),
		"version_set": r.VersionSet, "asked_by": r.AskedBy, "environments": environments, "changes": changes,
		"subject": n.Subject, "reason": cut(n.Reason, 1000), "principal": n.PrincipalName, "link": link,
		// The defaults, so that a template can add to them.
		"title": title, "lines": texts,
	}
}

// subjects is what is read to say what a moment is about.
type subjects interface {
	NotifiedRollout(ctx context.Context, id int64) (Rollout, error)
	NotifiedGate(ctx context.Context, rollout int64, gate string) (Gate, error)
	NotifiedFreeze(ctx context.Context, id int64) (Freeze, error)
	NotifiedCredential(ctx context.Context, id int64) (Credential, error)
	CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error)
}

// sample is a moment of a made-up rollout, as previews and checks of templates have it.
type sample struct {
	notification core.Notification
	rollout      Rollout
}

func sampleOf(moment core.NotificationMoment) sample {
	s := sample{
		notification: core.Notification{
			ID: 1, Moment: moment, At: time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC), RolloutID: 12, Application: "shop", Environment: "production",
			Tier: core.TierProduction, Subject: "production", Reason: "as planned", PrincipalName: "Ann",
		},
		rollout: Rollout{
			ID: 12, Application: "shop", VersionSet: "1.4.2", AskedBy: "Ann", State: core.RolloutInProgress,
			Environments: []RolloutEnvironment{
				{ID: 1, Name: "staging", Tier: core.TierStaging, State: core.RolloutCompleted},
				{ID: 2, Name: "production", Tier: core.TierProduction, State: core.RolloutInProgress},
			},
			Changes: []Change{{"api", "1.4.2", "1.4.1"}, {"worker", "1.4.2", ""}},
		},
	}
	last := &s.rollout.Environments[1]
	switch moment { //nolint:exhaustive // the others are as above
	case core.MomentRolloutFailed:
		s.rollout.State, last.State, s.notification.Reason = core.RolloutFailed, core.RolloutFailed,
			"worker is degraded: 2 of 3 pods do not start"
	case core.MomentBreach:
		s.notification.Reason = "production reached 50 %"
	case core.MomentRolloutCompleted:
		s.rollout.State, last.State = core.RolloutCompleted, core.RolloutCompleted
	case core.MomentRolloutQueued:
		s.notification.RolloutID, s.notification.Environment, s.notification.Subject = 0, "", "1.4.2"
		s.notification.Reason = "it waits for the end of rollout_11; asked for: as planned"
	case core.MomentRolloutDropped:
		s.notification.RolloutID, s.notification.Environment, s.notification.Subject = 0, "", "1.4.2"
		s.notification.Reason = "cancelled by Ann: the fix has to wait; asked for: as planned"
	case core.MomentRolloutPlanned:
		s.notification.Environment, s.notification.Reason = "", "pipeline: the image of Deployment shop/api changes"
	case core.MomentEnvironmentFailed:
		last.State, s.notification.Reason = core.RolloutFailed, "worker is degraded: 2 of 3 pods do not start"
	case core.MomentEnvironmentEntered, core.MomentEnvironmentCompleted, core.MomentRolloutStarted:
		s.notification.Reason = ""
	case core.MomentRolloutStopped, core.MomentFreezeBypassed:
		s.notification.Reason = "payments are slow"
	case core.MomentRollbackBegan:
		s.rollout.RollbackOf = 11
	case core.MomentRolledBack:
		s.rollout.RollbackOf, s.rollout.State, last.State = 11, core.RolloutCompleted, core.RolloutCompleted
	case core.MomentFreezeBegan, core.MomentFreezeEnded, core.MomentAgentOffline, core.MomentAgentOnline, core.MomentDrift,
		core.MomentDriftEnded, core.MomentTriggerDeclined, core.MomentCredentialExpires, core.MomentCredentialReplaced:
		s.notification.RolloutID, s.notification.SubjectID, s.notification.Subject = 0, 3, "nightly"
		s.notification.Reason = cmp.Or(map[core.NotificationMoment]string{
			core.MomentAgentOffline: "no heartbeat for 90 s", core.MomentDrift: "Deployment api has 5 replicas instead of 3",
			core.MomentTriggerDeclined: "rollout_11 is under way",
		}[moment], s.notification.Reason)
		if moment.Ends() != "" || moment == core.MomentCredentialExpires {
			s.notification.Reason = ""
		}
		if moment == core.MomentCredentialExpires {
			s.notification.Subject, s.notification.Application, s.notification.Environment = "registry-token", "", ""
			s.notification.Cause = fmt.Sprintf("credential:3:1:%d:7", s.notification.At.Add(7*24*time.Hour).Unix())
		}
	case core.MomentTest:
		s.notification.RolloutID, s.notification.Subject, s.notification.Reason = 0, "production", ""
	case core.MomentEnvironmentCreated, core.MomentEnvironmentChanged, core.MomentEnvironmentArchived, core.MomentEnvironmentRestored:
		s.notification.RolloutID, s.notification.Application, s.notification.Subject = 0, "", ""
	case core.MomentArtifactPublished, core.MomentArtifactDeleted:
		s.notification.RolloutID, s.notification.SubjectID, s.notification.Subject, s.notification.Reason = 0, 3, "api 1.4.2", ""
		s.notification.Environment, s.notification.Tier, s.notification.PrincipalName = "", "", "the system"
	case core.MomentCallRequested, core.MomentCallUnanswered:
		s.notification.RolloutID, s.notification.SubjectID, s.notification.Subject = 0, 3, "http.request"
	case core.MomentCheckFailed:
		s.notification.Subject, s.notification.Reason = "e2e", "2 of 140 tests failed"
	case core.MomentCheckPassed:
		s.notification.Subject, s.notification.Reason = "e2e", ""
	}
	if s.notification.RolloutID == 0 {
		s.rollout = Rollout{}
	}
	return s
}

// question is what a sample asks.
func (s sample) question() openQuestion {
	q := core.Question{RolloutID: s.notification.RolloutID, GateID: s.notification.Subject, RequestID: 4711}
	if q.RolloutID == 0 {
		q.GateID = ""
	}
	return openQuestion{Question: q, what: s.notification.Subject}
}

func (s sample) NotifiedRollout(context.Context, int64) (Rollout, error) { return s.rollout, nil }

func (s sample) NotifiedGate(context.Context, int64, string) (Gate, error) {
	expires := s.notification.At.Add(time.Hour)
	return Gate{EnvironmentID: 2, Quorum: 2, Group: "release", ExpiresAt: &expires}, nil
}

func (s sample) NotifiedFreeze(context.Context, int64) (Freeze, error) {
	return Freeze{StartsAt: s.notification.At, EndsAt: s.notification.At.Add(48 * time.Hour), Reason: "holidays", Author: "Ann", Scope: []string{"production"}}, nil
}

func (s sample) NotifiedCredential(context.Context, int64) (Credential, error) {
	return Credential{Version: 1, ExpiresAt: s.notification.At.Add(7 * 24 * time.Hour)}, nil
}

func (s sample) CallRequestsByID(context.Context, int64, []int64) (map[int64]core.CallRequest, error) {
	expires := s.notification.At.Add(time.Hour)
	return map[int64]core.CallRequest{s.notification.SubjectID: {WorkflowID: "nightly-backup", Group: "release", Quorum: 1, ExpiresAt: &expires}}, nil
}

// NewPreview is what to preview.
type NewPreview struct {
	// Channel is the name of the channel.
	Channel string
	Moment  core.NotificationMoment
	// Title and Text are templates in place of those that the channel has; nil for these.
	Title, Text *string
}

// Preview is what a channel would say of a moment.
type Preview struct {
	Title string
	Lines []string
	// Problem is why a template cannot be filled in, so that the default is shown; empty if it can.
	Problem string
	// Message is what would be sent, in the format of the channel.
	Message json.RawMessage
}

// Preview shows what a channel would say of a moment, with made-up data. Nothing is sent or stored.
func (u *UseCases) Preview(ctx context.Context, a core.Actor, n NewPreview) (p Preview, err error) {
	if err := a.May(core.ActionPutNotifyChannel); err != nil { // those who may save templates
		return p, err
	}
	channels, err := u.store.NotificationChannels(ctx, a.Organization)
	if err != nil {
		return p, err
	}
	i := slices.IndexFunc(channels, func(c core.NotificationChannel) bool { return c.Name == n.Channel })
	if i < 0 {
		return p, fault.New(fault.NotFound, "channel %.100q does not exist", n.Channel)
	}
	var config channelConfig
	if err := json.Unmarshal(channels[i].Config, &config); err != nil {
		return p, fmt.Errorf("read channel %q: %w", n.Channel, err)
	}
	parts := map[string]string{}
	for part, given := range map[string]*string{partTitle: n.Title, partText: n.Text} {
		if parts[part] = config.Templates[n.Moment][part]; given != nil {
			parts[part] = *given
		}
		if len(parts[part]) > maxTemplate {
			return p, invalid("/"+part, "found %d bytes; expected at most %d", len(parts[part]), maxTemplate)
		}
	}
	s := sampleOf(n.Moment)
	m := core.NotificationMessage{
		ID: 1, Key: "preview", RolloutID: s.notification.RolloutID, Severity: n.Moment.Severity(), Revision: 1, NotificationIDs: []int64{1},
	}
	made, err := u.compose(ctx, s, a.Organization, m, []core.Notification{s.notification}, templates{n.Moment: parts})
	if err != nil {
		return p, err
	}
	made.id = "lockstep-preview"
	if n.Moment.Asks() {
		made.open = []openQuestion{s.question()}
		made.callback = fmt.Sprintf("%s%sorganization_%d/%s", strings.TrimSuffix(u.url, "/"), CallbackPath, a.Organization, n.Channel)
	}
	if _, personal := isPersonal(channels[i]); personal {
		config, m = u.directed(channels[i].Kind, config, m, &made, "member")
	}
	p.Title, p.Lines, p.Problem = made.title, made.lines, made.templateError
	request := requestFor(channels[i].Kind, config, a.Organization, m, made).Request
	what := request["json"]
	if channels[i].Kind == core.NotifyEmail {
		what = object{"subject": request["subject"], "text": request["text"], "html": request["html"]}
	}
	if p.Message, err = json.Marshal(what); err != nil {
		return p, fmt.Errorf("write a preview: %w", err)
	}
	return p, nil
}
