package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// escalating is a shop with a question that is sent to two more channels after 30 and 60 minutes.
func escalating(t *testing.T) (postal, core.Rollout) {
	t.Helper()
	p := notifying(t)
	p.group("release", 2)
	p.people(7, 8)
	p.asking("", `"group":"release","quorum":2`, "")
	p.channel("team", core.NotifySlack, bot, 0)
	p.channel("ops", core.NotifyWebhook, `{"url":"https://hooks.example.com/ops"}`, 0)
	p.channel("pager", core.NotifyPagerDuty, `{"account":"key"}`, 0)
	for _, other := range []string{"ops", "pager"} {
		p.route("only-"+other, other, `{"events":["drift"]}`)
	}
	p.route("questions", "team",
		`{"events":["approval_needed","call_requested"],"escalate":[{"after_minutes":30,"channel":"ops"},{"after_minutes":60,"channel":"pager"}]}`)
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
	p.work()
	p.want(p.channelsSent(), "slack.com")
	return p, r
}

// channelsSent are the hosts of the messages that were sent, in order.
func (p postal) channelsSent() string {
	var all []string
	for _, s := range p.sent() {
		for _, host := range []string{"slack.com", "hooks.example.com", "events.pagerduty.com"} {
			if strings.Contains(s, `"url":"https://`+host) {
				all = append(all, host)
			}
		}
	}
	return strings.Join(all, " ")
}

// D62: a question that nobody answers is sent to the next channels at their times, once, whatever is restarted between.
func TestAQuestionThatNobodyAnswersEscalates(t *testing.T) {
	t.Parallel()
	p, r := escalating(t)
	p.now.Advance(29*time.Minute + 59*time.Second)
	asked := p.channelsSent()
	p.work()
	p.want(p.channelsSent(), asked)
	p.ok(p.approve(person(7, "release"), r, "production")) // one of two: it is open still
	p.work()
	before := p.channelsSent()
	p.now.Advance(time.Second)
	// Another process: what is due is in the database.
	p.notify = notify.New(notify.Deps{Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com"})
	p.work()
	p.want(p.channelsSent(), before+" hooks.example.com")
	last := p.sent()[len(p.sent())-1]
	p.want(strings.Contains(last, "nobody has answered: approval production is needed before production"), true)
	p.want(p.work(), []string(nil))
	p.now.Advance(3 * time.Hour) // the process was stopped for long
	p.work()
	p.want(p.channelsSent(), before+" hooks.example.com events.pagerduty.com")
	p.now.Advance(24 * time.Hour)
	p.want(p.work(), []string(nil))
	p.want(p.notify.Counts()["escalated"], int64(2))
}

// D62: what is answered, or over, goes nowhere, and neither does what the route no longer says.
func TestWhatIsAnsweredDoesNotEscalate(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p postal, r core.Rollout){
		"answered": func(p postal, r core.Rollout) {
			p.ok(p.approve(person(7, "release"), r, "production"))
			p.ok(p.approve(person(8, "release"), r, "production"))
		},
		"cancelled": func(p postal, r core.Rollout) {
			_, err := p.rollouts.CancelRollout(p.t.Context(), user(), r.ID, "")
			p.ok(err)
		},
		"without escalation": func(p postal, _ core.Rollout) { p.route("questions", "team", `{"events":["approval_needed"]}`) },
		"without the route": func(p postal, _ core.Rollout) {
			_, err := p.notify.RemoveRoute(p.t.Context(), user(), "questions", "")
			p.ok(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, r := escalating(t)
			end(p, r)
			p.work()
			before := p.channelsSent()
			p.now.Advance(2 * time.Hour)
			p.work()
			p.want(p.channelsSent(), before)
			p.want(p.notify.Counts()["escalated"], int64(0))
		})
	}
}

// D62: a call that waits for people escalates as a gate does.
func TestACallEscalates(t *testing.T) {
	t.Parallel()
	p, r := escalating(t)
	p.ok(p.approve(person(7, "release"), r, "production"))
	p.ok(p.approve(person(8, "release"), r, "production"))
	p.asksForCall("nightly-1", "x/0.0!9", "", 1, 1)
	p.work()
	p.now.Advance(30 * time.Minute)
	p.work()
	last := p.sent()[len(p.sent())-1]
	for _, want := range []string{"hooks.example.com/ops", "nobody has answered: a call of http.request by nightly-1 needs an approval"} {
		if !strings.Contains(last, want) {
			t.Errorf("found %s; want %q in it", last, want)
		}
	}
}

// D62: escalations are checked when the route is saved, and their channels stay.
func TestEscalationsAreChecked(t *testing.T) {
	t.Parallel()
	p, _ := escalating(t)
	for config, field := range map[string]string{
		`{"escalate":[{"after_minutes":0,"channel":"ops"}]}`:                                       "/config/escalate/0/after_minutes",
		`{"escalate":[{"after_minutes":10081,"channel":"ops"}]}`:                                   "/config/escalate/0/after_minutes",
		`{"escalate":[{"after_minutes":5,"channel":"ops"},{"after_minutes":5,"channel":"pager"}]}`: "/config/escalate/1/after_minutes",
		`{"escalate":[{"after_minutes":5,"channel":"nowhere"}]}`:                                   "/config/escalate/0/channel",
		`{"escalate":[{"after_minutes":5,"channel":"team"}]}`:                                      "/config/escalate/0/channel",
		`{"escalate":[{"after_minutes":5,"channel":"A b"}]}`:                                       "/config/escalate/0/channel",
	} {
		_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: "x", Channel: "team", Config: json.RawMessage(config), Enabled: true})
		p.wrong(err, field)
	}
	_, err := p.notify.RemoveChannel(t.Context(), user(), "ops", "")
	p.refused(err, `route "questions" escalates to channel "ops"`)
}
