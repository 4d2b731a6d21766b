package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// killed has a process that notifies die at each statement until nothing is due any more, and answers how often it died.
func (p postal) killed() int {
	p.t.Helper()
	mortal, died := p.mortal(p.now)
	mortal.notify = notify.New(notify.Deps{Store: mortal.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com"})
	return p.diesAt(died, func() error {
		for range 200 {
			p.now.Advance(time.Second) // what a death has begun is looked at again
			_, worked, err := mortal.notify.WorkDue(p.t.Context())
			if err != nil && !fault.Is(err, fault.Unavailable) {
				return err
			}
			if !worked {
				return nil
			}
		}
		return fmt.Errorf("it does not come to an end")
	}, func() { // no message is sent by two runs, or by one with other inputs
		p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state = 'failed'`), 0)
		p.now.Advance(time.Minute)
	})
}

// D62: a process that is killed at any statement between a moment and the end of the run that sends it loses nothing: each moment is in its
// message once, runs are begun again with the same inputs, and a digest, an escalation and what members are sent are made once.
func TestDeliverySurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	for _, one := range []struct {
		name  string
		setUp func(p postal)
		check func(p postal)
	}{
		{"a message that is updated", func(p postal) {
			p.channel("team", core.NotifySlack, bot, 60)
			r := p.rollout(p.set)
			p.report(event.RolloutStarted{RolloutID: r.ID})
		}, func(p postal) {
			p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages WHERE key LIKE 'rollout:%' AND state = 'sent' AND sent_revision = revision`), 1)
			p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages WHERE cardinality(notification_ids) <> 2`), 0)
		}},
		{"a digest of a flood", func(p postal) {
			p.channel("team", core.NotifyWebhook, hook, 2)
			for i := range 6 {
				p.ok(p.fails(p.environment(fmt.Sprintf("lab-%d", i), core.TierQA).ID))
			}
		}, func(p postal) {
			ids := p.countOf(`SELECT count(DISTINCT i) FROM cd_notification_messages m, unnest(m.notification_ids) i WHERE m.state = 'sent'`)
			p.want(ids, 6)
			p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state NOT IN ('sent', 'digested')`), 0)
		}},
		{"messages to members, and their digest", func(p postal) {
			m := mine{p}
			m.member("owner", core.RoleOwner, "")
			m.channel("mail", core.NotifyEmail, mailbox, 0)
			m.subscribe(m.member("ann", core.RoleViewer, "ann@example.com"), "all", "mail", `{}`)
			m.subscribe(m.member("bob", core.RoleViewer, "bob@example.com"), "hourly", "mail", `{"digest_minutes":1}`)
			for i := range 3 {
				p.ok(p.fails(p.environment(fmt.Sprintf("lab-%d", i), core.TierQA).ID))
			}
			p.now.Advance(2 * time.Minute) // the digest is due as well
		}, func(p postal) {
			for _, member := range []string{"ann", "bob"} {
				p.want(p.countOf(`SELECT count(DISTINCT i) FROM cd_notification_messages o JOIN cd_members m ON m.organization_id = o.organization_id
					AND m.id = o.member_id, unnest(o.notification_ids) i WHERE o.state = 'sent' AND m.name = '`+member+`'`), 3)
			}
			p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state NOT IN ('sent', 'digested')`), 0)
		}},
		{"an escalation", func(p postal) {
			p.asking("", "", "")
			p.channel("team", core.NotifySlack, bot, 60)
			p.channel("ops", core.NotifyWebhook, hook, 60)
			p.route("questions", "team", `{"events":["approval_needed"],"escalate":[{"after_minutes":1,"channel":"ops"}]}`)
			p.route("nothing", "ops", `{"events":["drift"]}`)
			r := p.rollout(p.set)
			p.report(event.RolloutStarted{RolloutID: r.ID}, event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
			p.work()
			p.now.Advance(time.Minute)
		}, func(p postal) {
			p.want(p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = 'approval_unanswered'`), 1)
			p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages m JOIN cd_notification_channels c ON c.id = m.channel_id
				WHERE c.name = 'ops' AND m.state = 'sent' AND cardinality(m.notification_ids) = 1`), 1)
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			p := present(t).posting()
			one.setUp(p)
			if kills := p.killed(); kills < 10 {
				t.Errorf("died %d times; want at many statements", kills)
			}
			p.later(time.Minute)
			p.later(time.Minute)
			one.check(p)
			for _, run := range p.post.order {
				if !strings.HasPrefix(run, "notification-") {
					t.Errorf("found run %s; want that of a message", run)
				}
			}
		})
	}
}
