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
	// Another one queues up behind those that wait, also for members who have received the first.
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
	for to, titles := range all {
		m.want([]any{to, titles}, []any{to, []string{"lab: its agent is offline", "other: its agent is offline"}})
	}
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state <> 'sent'`), 0)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE slotted`), 0)
}

// D62: what is wrong with the rate of all members is refused.
func TestTheRateOfAllMembersIsChecked(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	for config, want := range map[string]string{
		`{"url":"smtps://m.example.com","from":"cd@example.com","personal":true,"members_rate":1201}`:          "expected 1 to 1200",
		`{"url":"smtps://m.example.com","from":"cd@example.com","personal":true,"members_rate":-1}`:            "expected 1 to 1200",
		`{"url":"smtps://m.example.com","from":"cd@example.com","to":["a@example.com"],"members_rate":5}`:      "found without personal",
		`{"url":"smtps://m.example.com","from":"cd@example.com","to":["a@example.com"],"members_rate":"many"}`: "expected a int",
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
