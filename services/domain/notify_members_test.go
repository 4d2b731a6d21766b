package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// R4-29, D62: all members of a channel together receive a bounded number of messages a minute, each in its turn: a mail server is not
// flooded by what concerns very many, nothing is lost, and one that happens meanwhile overtakes nobody.
func TestMembersTogetherAreNoFlood(t *testing.T) {
	long(t)
	t.Parallel()
	m := subscribing(t)
	m.channel("mail", core.NotifyEmail, strings.Replace(mailbox, "{", `{"members_rate":60,`, 1), 0)
	m.subscribers(1, 40)
	_, err := m.pool.Exec(t.Context(), `UPDATE cd_notification_recipients SET verified_at = $1 WHERE email <> ''`, m.now.Now())
	m.ok(err)
	lab := m.environment("lab", core.TierDevelopment)
	m.ok(m.fails(lab.ID))
	m.work()
	m.want(len(m.sent()), 16) // a quarter of a minute's at once, and the one of this moment
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state = 'pending' AND slotted`), 24)
	m.want(m.countOf(`SELECT count(DISTINCT due_at) FROM cd_notification_messages WHERE state = 'pending'`), 24)
	m.want(m.work(), []string(nil))
	m.now.Advance(time.Second)
	m.work()
	m.want(len(m.sent()), 17)
	// Another one queues up behind those that wait for members who have received the first; for the others it is a part of what waits.
	m.ok(m.fails(m.environment("other", core.TierDevelopment).ID))
	m.work()
	m.want(len(m.sent()), 17)
	for range 2 * 60 {
		m.now.Advance(time.Second)
		before := len(m.sent())
		m.work()
		if n := len(m.sent()) - before; n > 1 {
			t.Fatalf("found %d messages in a second; want at most one", n)
		}
	}
	all := m.received()
	m.want(len(all), 40)
	counts := map[string]int{}
	for _, titles := range all {
		counts[strings.Join(titles, ", ")]++
	}
	m.want(counts, map[string]int{"lab: its agent is offline, other: its agent is offline": 17, "Lockstep: 2 notifications": 23})
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state NOT IN ('sent', 'digested')`), 0)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE slotted`), 0)
}

// limited is a channel whose members together receive a number of messages a minute, of those with a subscription to everything.
func limited(t *testing.T, rate, members int) mine {
	t.Helper()
	m := subscribing(t)
	m.limit(rate, true)
	m.subscribers(1, members)
	_, err := m.pool.Exec(t.Context(), `UPDATE cd_notification_recipients SET verified_at = $1 WHERE email <> ''`, m.now.Now())
	m.ok(err)
	return m
}

func (m mine) limit(rate int, enabled bool) {
	m.t.Helper()
	_, err := m.notify.PutChannel(m.t.Context(), user(), notify.NewChannel{
		Name: "mail", Kind: core.NotifyEmail, Enabled: enabled,
		Config: json.RawMessage(strings.Replace(mailbox, "{", fmt.Sprintf(`{"members_rate":%d,`, rate), 1)),
	})
	m.ok(err)
}

// R4-29, D62: however much happens, a member has one turn: nobody waits longer than it takes to write to each once.
// A question does not wait.
func TestANoisySourceHoldsBackNobody(t *testing.T) {
	t.Parallel()
	m := limited(t, 10, 6)
	ann := m.member("ann", core.RoleViewer, "ann@example.com")
	m.subscribe(ann, "only", "mail", `{"events":["rollout_began","approval_needed"]}`)
	for i := range 20 {
		m.ok(m.fails(m.environment(fmt.Sprintf("flood-%d", i), core.TierDevelopment).ID))
	}
	m.work()
	r := m.begin(user())
	m.work()
	m.want(m.countOf(`SELECT count(DISTINCT due_at) FROM cd_notification_messages WHERE state = 'pending' AND slotted`), 7)
	var last time.Time
	m.ok(m.pool.QueryRow(t.Context(), `SELECT max(due_at) FROM cd_notification_messages WHERE state = 'pending'`).Scan(&last))
	if wait := last.Sub(m.now.Now()); wait > 7*6*time.Second {
		t.Fatalf("found the last turn in %s; want seven turns of 6 s at most", wait)
	}
	before := len(m.sent())
	_, err := m.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, rollout_id, application_id, subject)
		VALUES ($1, 'approval_needed', 'gate', $2, $2, $3, $4, 'g')`, org, m.now.Now(), r.ID, r.ApplicationID)
	m.ok(err)
	m.work()
	m.want(len(m.sent()), before+7) // the message about the rollout says it, with what else it has to say
	for range 7 {
		m.now.Advance(6 * time.Second)
		m.work()
	}
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state NOT IN ('sent', 'digested')`), 0)
	m.want(len(m.sent()) < before+7+8, true)
}

// D62: another rate counts at once, also for what waits by the former one.
func TestASlipOfTheRateIsMended(t *testing.T) {
	t.Parallel()
	m := limited(t, 1, 40)
	m.ok(m.fails(m.environment("lab", core.TierDevelopment).ID))
	m.work()
	m.want(len(m.sent()), 1)
	m.limit(1200, true)
	m.work()
	for range 60 {
		m.now.Advance(time.Second)
		m.work()
	}
	m.want(len(m.sent()), 40)
}

// D62: a turn ends with a failure: what is sent afterwards gets another one, so that a channel that is on again floods nobody.
func TestATurnEndsWithAFailure(t *testing.T) {
	t.Parallel()
	m := limited(t, 60, 40)
	r := m.begin(user())
	m.work()
	m.want(len(m.sent()), 16)
	m.limit(60, false)
	m.now.Advance(10 * time.Minute)
	m.work()
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state = 'failed'`), 24)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE slotted`), 0)
	m.limit(60, true)
	m.succeed(r)
	m.work()
	m.want(len(m.sent()), 16+16)
}

// D62: a run that another release has begun with another program is asked what came of it: what was sent is no dead letter.
func TestAMessageBetweenTwoReleasesIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	m := limited(t, 60, 1)
	m.ok(m.fails(m.environment("lab", core.TierDevelopment).ID))
	m.post.away = fault.New(fault.Conflict, "it was started with another program")
	m.work()
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state = 'sent'`), 1)
}

// D62: what a personal channel would send shows what a member would see.
func TestAPreviewOfAPersonalChannel(t *testing.T) {
	t.Parallel()
	m := joined(t)
	m.channel("direct", core.NotifyMattermost, `{"url":"https://chat.example.com","account":"bot","personal":true}`, 0)
	p, err := m.notify.Preview(t.Context(), user(), notify.NewPreview{Channel: "direct", Moment: core.MomentDrift})
	m.ok(err)
	if text := string(p.Message); !strings.Contains(text, "You have subscribed to this.") {
		t.Errorf("found %s; want what a member would see", text)
	}
}

// D62: who may not save a channel has no template filled in.
func TestNoTemplateIsFilledInForAViewer(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	viewer := user()
	viewer.Permissions = core.RoleViewer.Permissions()
	_, err := p.notify.PutChannel(t.Context(), viewer, notify.NewChannel{
		Name: "team", Kind: core.NotifySlack, Config: json.RawMessage(`{"account":"a","templates":{"drift":{"text":"{[ nope ]}"}}}`),
	})
	p.want(fault.ClassOf(err), fault.Denied)
}

// D62: what is wrong with the rate of all members is refused.
func TestTheRateOfAllMembersIsChecked(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	for config, want := range map[string]string{
		`{"url":"smtps://m.example.com","from":"cd@example.com","personal":true,"members_rate":1201}`:          "expected 1 to 1200",
		`{"url":"smtps://m.example.com","from":"cd@example.com","personal":true,"members_rate":-1}`:            "expected 1 to 1200",
		`{"url":"smtps://m.example.com","from":"cd@example.com","to":["a@example.com"],"members_rate":5}`:      "found without personal",
		`{"url":"smtps://m.example.com","from":"cd@example.com","to":["a@example.com"],"members_rate":"many"}`: "expected a whole number",
	} {
		err := m.saved(core.NotifyEmail, config)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: found %v; want %s", config, err, want)
		}
	}
}

// saved is what saving a channel answers.
func (m mine) saved(kind core.NotificationKind, config string) error {
	_, err := m.notify.PutChannel(m.t.Context(), user(), notify.NewChannel{
		Name: "other", Kind: kind, Config: json.RawMessage(config), Enabled: true,
	})
	return err
}

// D63: a personal channel in Mattermost writes to the account that the member has linked at that server, of no other server, each time
// another message.
func TestADirectMessageInMattermost(t *testing.T) {
	t.Parallel()
	m := joined(t)
	m.channel("direct", core.NotifyMattermost, `{"url":"https://chat.example.com/","account":"bot","personal":true}`, 0)
	ann, bob := m.member("ann", core.RoleViewer, ""), m.member("bob", core.RoleViewer, "")
	for i, server := range []string{"https://chat.example.com", "https://elsewhere.example.com"} {
		who := []core.Actor{ann, bob}[i]
		_, err := m.pool.Exec(t.Context(), `INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at)
			VALUES ($1, 'mattermost', $2, $3, $4, $5, sha256('1'), now())`, org, server, "user-"+who.Name, who.Name, who.ID)
		m.ok(err)
		m.subscribe(who, "all", "direct", `{}`)
	}
	m.post.answer = func(string) [4]string { return [4]string{"sent", "post1", "", "0"} }
	r := m.begin(user())
	m.settle()
	m.succeed(r)
	m.settle()
	all := m.sent()
	m.want(len(all), 2)
	for _, sent := range all {
		for _, want := range []string{`"direct":"user-ann"`, `"url":"https://chat.example.com/api/v4/posts"`, `"method":"POST"`, `"credential":"bot"`} {
			if !strings.Contains(sent, want) {
				t.Errorf("found %s; want %s in it", sent, want)
			}
		}
		if strings.Contains(sent, "channel_id") || strings.Contains(sent, "actions") {
			t.Errorf("found %s; want no channel and no buttons", sent)
		}
	}
	failed, err := m.notify.MyMessages(t.Context(), bob, 10)
	m.ok(err)
	m.want(failed[0].Error, "no chat account of workspace https://chat.example.com in Mattermost is linked to the member")
	for config, want := range map[string]string{
		`{"url":"https://chat.example.com","account":"bot","personal":true,"target":"C1"}`:    "/config/personal",
		`{"url":"https://chat.example.com","account":"bot","personal":true,"workspace":"T1"}`: "/config/workspace",
	} {
		if err := m.saved(core.NotifyMattermost, config); !fault.Is(err, fault.Invalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: found %v; want %s", config, err, want)
		}
	}
}

// R4-29, D62: a turn that would be within a member's quiet hours goes to the next member at once. What is of high severity passes quiet
// hours.
func TestATurnWithinQuietHoursGoesToTheNext(t *testing.T) {
	t.Parallel()
	m := subscribing(t) // 2027-01-15 08:00 UTC
	m.limit(1, true)
	const quiet = `{"severities":["low","high"],"quiet":{"from":"08:01","to":"08:30","time_zone":"UTC"}}`
	for _, name := range []string{"ann", "bob", "cid", "dan"} {
		config := `{"severities":["low","high"]}`
		if name == "cid" {
			config = quiet
		}
		m.subscribe(m.member(name, core.RoleViewer, name+"@example.com"), "all", "mail", config)
	}
	r := m.begin(user())
	m.report(event.RolloutStarted{RolloutID: r.ID})
	m.work()
	due := func(name string) string {
		t.Helper()
		var at time.Time
		m.ok(m.pool.QueryRow(t.Context(), `SELECT m.due_at FROM cd_notification_messages m JOIN cd_members p ON p.id = m.member_id
			WHERE p.name = $1 AND m.state = 'pending' ORDER BY m.id LIMIT 1`, name).Scan(&at))
		return at.UTC().Format("15:04:05")
	}
	m.want(len(m.received()["ann@example.com"]), 1)
	m.want([]string{due("bob"), due("cid"), due("dan")}, []string{"08:00:45", "08:30:00", "08:01:45"}) // without cid, dan has the turn after bob
	m.now.Advance(2 * time.Minute)
	m.work()
	m.want([]int{len(m.received()["bob@example.com"]), len(m.received()["cid@example.com"]), len(m.received()["dan@example.com"])}, []int{1, 0, 1})
	// What is of high severity has a turn within quiet hours, and takes nothing along that is not.
	m.ok(m.fails(m.environment("desk", core.TierDevelopment).ID))
	for range 6 {
		m.work()
		m.now.Advance(time.Minute)
	}
	m.want(m.received()["cid@example.com"], []string{"desk: its agent is offline"})
	m.now.Advance(30 * time.Minute)
	for range 6 {
		m.work()
		m.now.Advance(time.Minute)
	}
	m.want(len(m.received()["cid@example.com"]), 2)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state NOT IN ('sent', 'digested')`), 0)
}

// D62: what no route asks for follows in a message that waits for the end of quiet hours, and does not end the waiting; what is of high
// severity does. A message that has been sent keeps its quiet hours.
func TestWhatFollowsKeepsQuietHours(t *testing.T) {
	t.Parallel()
	p := notifying(t) // 2027-01-15 08:00 UTC
	p.channel("team", core.NotifySlack, `{"account":"slack-bot","target":"C1"}`, 0)
	p.post.answer = func(string) [4]string { return [4]string{"sent", "171.5", "", "0"} }
	p.route("awake", "team", `{"events":["rollout_began"],"quiet":{"from":"07:00","to":"09:00","time_zone":"UTC"}}`)
	pause := func(r core.Rollout) {
		t.Helper()
		p.now.Advance(time.Minute)
		_, err := p.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
		p.ok(err)
		p.work()
	}
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID})
	p.work()
	p.want(len(p.sent()), 0)
	pause(r)
	p.want(len(p.sent()), 0)
	p.now.Advance(58 * time.Minute) // 08:59
	p.work()
	p.want(len(p.sent()), 0)
	p.now.Advance(time.Minute)
	p.work()
	p.want(len(p.sent()), 1)
	p.now.Advance(23 * time.Hour) // 08:00 of the next day
	p.work()
	_, err := p.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	p.ok(err)
	pause(r)
	p.want(len(p.sent()), 1)
	p.report(event.RolloutFailed{RolloutID: r.ID, Reason: "broken"})
	p.work()
	p.want(len(p.sent()), 2)
	p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state <> 'sent'`), 0)
}

// D62: an attempt that is repeated waits for the end of quiet hours, too, and so does what the engine could not take before them.
func TestARepeatedAttemptKeepsQuietHours(t *testing.T) {
	t.Parallel()
	m := subscribing(t) // 2027-01-15 08:00 UTC
	m.channel("team", core.NotifySlack, `{"account":"slack"}`, 0)
	m.route("awake", "team", `{"events":["rollout_began","agent_offline"],"quiet":{"from":"08:01","to":"09:00","time_zone":"UTC"}}`)
	m.subscribe(m.member("ann", core.RoleViewer, "ann@example.com"), "all", "mail", `{"quiet":{"from":"08:01","to":"09:00","time_zone":"UTC"}}`)
	answer := m.post.answer
	m.post.answer = func(string) [4]string { return [4]string{"failed", "", "status 500", "90"} }
	r := m.begin(user())
	m.report(event.RolloutStarted{RolloutID: r.ID})
	m.work()
	m.now.Advance(6 * time.Second) // until it is looked at what became of it
	m.work()
	tried := len(m.sent())
	m.want(tried, 2)
	m.post.answer = answer
	m.now.Advance(2 * time.Minute)
	m.work()
	m.want(len(m.sent()), tried)
	m.ok(m.fails(m.environment("desk", core.TierDevelopment).ID))
	m.work()
	m.want(len(m.sent()), tried+2)
	m.now.Advance(time.Hour)
	m.work()
	m.want(len(m.sent()), tried+4)
	m.now.Advance(6 * time.Second)
	m.work()
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state <> 'sent'`), 0)
}
