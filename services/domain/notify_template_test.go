package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// worded is a channel of Slack with templates.
func (p postal) worded(name, templates string) {
	p.t.Helper()
	p.channel(name, core.NotifySlack, `{"account":"slack-bot","target":"C1","templates":`+templates+`}`, 0)
}

// D62: an organization writes what a channel says of an event; a template can add to the default, and other events have theirs.
func TestATemplateWritesTheTextOfAMessage(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.worded("team", `{"rollout_began":{
		"title":"{[ .application | upper ]} {[ .version_set ]} is on its way",
		"text":"{[ index .lines 0 ]}\n{[ range .environments ]}{[ .name ]}/{[ .tier ]} {[ end ]}<!channel> {[ .link ]}\n\nAsk #shop, not {[ .principal ]}"}}`)
	p.post.answer = func(string) [4]string { return [4]string{"sent", "1.1", "", "0"} }
	r := p.rollout(p.set)
	p.work()
	p.want(len(p.sent()), 1)
	for _, want := range []string{
		`"text":"SHOP `, ` is on its way"`, "began the rollout", "staging/staging production/production", "&lt;!channel&gt;",
		fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", r.ID), "Ask #shop, not ",
	} {
		if !strings.Contains(p.sent()[0], want) && !strings.Contains(p.sent()[0], strings.NewReplacer("&", `\u0026`).Replace(want)) {
			t.Errorf("found %s; want %q in it", p.sent()[0], want)
		}
	}
	p.now.Advance(time.Minute)
	p.succeed(r)
	p.work()
	last := p.sent()[len(p.sent())-1]
	p.want([]bool{strings.Contains(last, ", completed"), strings.Contains(last, "SHOP")}, []bool{true, false})
	p.want(p.messages("")[0].TemplateError, "")
}

// D62: a template that cannot be filled in loses no message: the default is sent, and the failure is shown and counted. One that is
// repaired has the failure go with the next update.
func TestATemplateThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.worded("team", `{"agent_offline":{"text":"{[ if eq .environment \"production\" ]}{[ .environment ]}{[ else ]}{[ index .changes 5 ]}{[ end ]}"}}`)
	lab := p.environment("lab", core.TierDevelopment)
	p.ok(p.fails(lab.ID))
	p.work()
	m := p.messages(core.MessageSent)
	p.want(len(m), 1)
	if !strings.HasPrefix(m[0].TemplateError, "the text of agent_offline: ") || !strings.Contains(p.sent()[0], "lab cannot be reached") {
		t.Errorf("found %q, sent %s", m[0].TemplateError, p.sent()[0])
	}
	p.want(p.notify.Counts()["template_failed"], int64(1))
	p.worded("team", `{"agent_offline":{"text":"Call the lab."}}`)
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_notification_messages SET state = 'failed', error = 'x' WHERE id = $1`, m[0].ID)
	p.ok(err)
	_, err = p.notify.Retry(t.Context(), user(), m[0].ID)
	p.ok(err)
	p.work()
	p.want(p.messages("")[0].TemplateError, "")
	p.want(strings.Contains(p.sent()[1], "Call the lab."), true)
}

// D62: a template runs neither long nor makes much, and reads nothing but what the message says. What is wrong is refused when it is saved,
// with where; only those who may save channels see a preview.
func TestTemplatesAreRefusedAndBounded(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("team", core.NotifySlack, bot, 0)
	for template, want := range map[string]string{
		`{"rolled_out":{"text":"x"}}`:                                                                      "/config/templates/rolled_out",
		`{"rollout_began":{"subject":"x"}}`:                                                                "/config/templates/rollout_began/subject",
		`{"rollout_began":{"text":""}}`:                                                                    "found nothing",
		`{"rollout_began":{"text":5}}`:                                                                     "/config/templates",
		`{"rollout_began":["x"]}`:                                                                          "/config/templates",
		`{"rollout_began":{"text":"{[ "}}`:                                                                 "/config/templates/rollout_began/text",
		`{"rollout_began":{"text":"{[ .token ]}"}}`:                                                        `no entry for key \"token\"`,
		`{"rollout_began":{"text":"{[ env \"HOME\" ]}"}}`:                                                  `function \"env\" not defined`,
		`{"rollout_began":{"text":"{[ getHostByName \"x\" ]}"}}`:                                           `not defined`,
		`{"rollout_began":{"text":"{[ now ]}"}}`:                                                           `not defined`,
		`{"rollout_began":{"text":" \n{[/* no text */]} "}}`:                                               "makes no text",
		`{"rollout_began":{"text":"{[ repeat 100000000 \"a\" ]}"}}`:                                        "repeat could make",
		`{"rollout_began":{"title":"{[ range until 90000 ]}x{[ end ]}"}}`:                                  "more work",
		`{"rollout_began":{"text":"{[ define \"a\" ]}{[ template \"a\" ]}{[ end ]}{[ template \"a\" ]}"}}`: "more work",
		`{"rollout_began":{"text":"` + strings.Repeat("x", 4097) + `"}}`:                                   "found 4097 bytes",
	} {
		_, err := p.notify.PutChannel(t.Context(), user(), notify.NewChannel{
			Name: "team", Kind: core.NotifySlack, Config: json.RawMessage(`{"account":"a","templates":` + template + `}`), Enabled: true,
		})
		if found := fmt.Sprint(err); !fault.Is(err, fault.Invalid) || !strings.Contains(strings.ReplaceAll(found, `"`, `\"`), want) {
			t.Errorf("%.80s: found %s; want %s", template, found, want)
		}
	}
	nobody := user()
	nobody.Permissions = core.RoleDeployer.Permissions()
	_, err := p.notify.Preview(t.Context(), nobody, notify.NewPreview{Channel: "team", Moment: core.MomentDrift})
	p.want(fault.Is(err, fault.Denied), true)
	other := user()
	other.Organization = 2
	_, err = p.notify.Preview(t.Context(), other, notify.NewPreview{Channel: "team", Moment: core.MomentDrift})
	p.want(fault.Is(err, fault.NotFound), true)
}

// D62: every event has a preview in every kind of channel, with the templates that are being written or those that are saved.
func TestAPreviewIsWhatWouldBeSent(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	configs := map[core.NotificationKind]string{
		core.NotifySlack: bot, core.NotifyTeams: `{"url":"https://teams.example.com/","account":"x"}`, core.NotifyWebhook: hook,
		core.NotifyMattermost: `{"url":"https://m.example.com/","account":"x"}`, core.NotifyDiscord: `{"account":"x"}`, core.NotifyPagerDuty: `{"account":"x"}`,
		core.NotifyOpsgenie: `{"account":"x"}`, core.NotifyNATS: `{"url":"tls://nats.example.com","subject":"cd"}`,
		core.NotifyEmail: `{"url":"smtps://m.example.com","from":"cd@example.com","to":["a@example.com"]}`,
	}
	own, broken := "Look: {[ .reason ]} <b>", "{[ .nothing ]}"
	for _, kind := range core.AllNotificationKinds() {
		p.channel(string(kind), kind, configs[kind], 0)
		for _, moment := range core.AllNotificationMoments() {
			preset, err := p.notify.Preview(t.Context(), user(), notify.NewPreview{Channel: string(kind), Moment: moment})
			p.ok(err)
			if preset.Title == "" || len(preset.Lines) == 0 || preset.Problem != "" || strings.Contains(strings.Join(preset.Lines, " "), "%!") {
				t.Errorf("%s %s: found %+v", kind, moment, preset)
			}
			written, err := p.notify.Preview(t.Context(), user(), notify.NewPreview{
				Channel: string(kind), Moment: moment, Text: &own, Title: &broken,
			})
			p.ok(err)
			if written.Title != preset.Title || !strings.Contains(written.Lines[0], "Look: ") || !strings.HasSuffix(written.Lines[0], " <b>") || !strings.HasPrefix(written.Problem, "the title of ") {
				t.Errorf("%s %s: found %+v", kind, moment, written)
			}
			if !json.Valid(written.Message) || !strings.Contains(string(written.Message), "Look: ") {
				t.Errorf("%s %s: found %s", kind, moment, written.Message)
			}
		}
	}
	p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages`), 0)
	p.want(len(p.post.order), 0)
}

// D62: what was saved is in the journal of changes as any change of a channel is, and a channel that was saved before there were templates
// says what it said.
func TestTemplatesAreInTheJournalOfChanges(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("team", core.NotifySlack, bot, 0)
	p.worded("team", `{"drift":{"title":"A person has changed {[ .environment ]}"}}`)
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putNotificationChannel' AND before->'config'->'templates' IS NULL
		AND after->'config'->'templates'->'drift'->>'title' LIKE 'A person%' AND principal_name <> ''`), 1)
	seen, err := p.notify.Preview(t.Context(), user(), notify.NewPreview{Channel: "team", Moment: core.MomentDrift})
	p.ok(err)
	p.want(seen.Title, "A person has changed production")
}
