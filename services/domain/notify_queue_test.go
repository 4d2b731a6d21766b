package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// queueing has newer version sets wait for the end of the active rollout.
func (p postal) queueing() {
	p.t.Helper()
	_, err := p.rollouts.SetRolloutPolicy(p.t.Context(), user(), core.RolloutPolicy{
		ApplicationID: p.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerQueued,
	})
	p.ok(err)
}

// queues asks for a rollout that has to wait.
func (p postal) queues(a core.Actor, set core.VersionSet) {
	p.t.Helper()
	p.now.Advance(time.Second)
	made, err := p.rollouts.CreateRollout(p.t.Context(), a, rollout.NewRollout{VersionSetID: set.ID})
	p.ok(err)
	p.want(made.Queued != nil, true)
}

// R4-29: what waits in the queue goes to environments and was asked for by a member, so routes and subscriptions match by them.
func TestWhatWaitsInTheQueueIsMatchedByWhereItGoesAndWhoAskedForIt(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	m.environment("lab", core.TierQA)
	m.queueing()
	for name, config := range map[string]string{
		"production": `"environments":["prod*"]`, "tier": `"tiers":["production"]`, "lab": `"environments":["lab"]`, "qa": `"tiers":["qa"]`,
		"expression": `"expression":"'staging' in environments && 'staging' in tiers"`,
	} {
		m.channel(name, core.NotifyWebhook, `{"url":"https://`+name+`.example.com/"}`, 60)
		m.route(name, name, `{"events":["rollout_queued"],`+config+`}`)
	}
	ann := m.member("ann", core.RoleDeployer, "ann@example.com")
	for name, config := range map[string]string{
		"bob": `"only":"begun"`, "cid": `"environment":"production"`, "dan": `"environment":"lab"`, "eve": `"tiers":["staging"]`, "fay": `"tiers":["qa"]`,
	} {
		m.subscribe(m.member(name, core.RoleViewer, name+"@example.com"), "queue", "mail", `{"events":["rollout_queued"],`+config+`}`)
	}
	m.subscribe(ann, "begun", "mail", `{"events":["rollout_queued"],"only":"begun"}`)
	gus := m.member("gus", core.RoleDeployer, "gus@example.com")
	m.subscribe(gus, "waiting", "mail", `{"events":["rollout_queued"],"only":"waiting"}`)
	m.begin(user())
	heard := func(after int) (who []string) {
		m.settle()
		sent := strings.Join(m.sent()[after:], "\n")
		for _, one := range []string{
			"https://production.", "https://tier.", "https://lab.", "https://qa.", "https://expression.", "ann@", "bob@", "cid@", "dan@", "eve@", "fay@", "gus@",
		} {
			if strings.Contains(sent, one) {
				who = append(who, one)
			}
		}
		return who
	}
	m.queues(ann, m.release(2))
	everywhere := []string{"https://production.", "https://tier.", "https://expression.", "ann@", "cid@", "eve@"}
	m.want(heard(0), everywhere)
	after := len(m.sent())
	m.queues(gus, m.release(3))
	m.want(heard(after), []string{"https://production.", "https://tier.", "https://expression.", "cid@", "eve@", "gus@"})

	// One that goes to a part of the pipeline does not concern those who follow the rest, also if another one takes its place
	// before it is routed.
	_, err := m.pool.Exec(t.Context(), `UPDATE cd_queued_rollouts SET state = 'dropped', outcome = 'x' WHERE state = 'pending'`)
	m.ok(err)
	m.trigger(core.TriggerVersion, `{"quiet_seconds":0,"until":"staging"}`)
	m.release(4)
	m.decide()
	m.want(m.countOf(`SELECT count(*) FROM cd_queued_rollouts WHERE state = 'pending' AND environments = '{staging}'`), 1)
	_, err = m.pool.Exec(t.Context(), `UPDATE cd_queued_rollouts SET environments = '{production}' WHERE state = 'pending'`)
	m.ok(err)
	after = len(m.sent())
	m.want(heard(after), []string{"https://expression.", "eve@"})
}

// R4-29: four releases behind one rollout are one that waits: each message says whose place it takes.
func TestTheMessageOfTheQueueNamesWhosePlaceIsTaken(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.queueing()
	p.people(1)
	p.channel("team", core.NotifyWebhook, hook, 0)
	p.route("queue", "team", `{"events":["rollout_queued"]}`)
	p.rollout(p.set)
	second, third := p.release(2), p.release(3)
	for i, step := range []struct {
		set  core.VersionSet
		want string
	}{
		{second, ""},
		{third, "it takes the place of " + second.Name + " in the queue"},
		{third, "it takes the place of an earlier request for the same version set"},
		{p.release(4), "it takes the place of " + third.Name + " in the queue"},
	} {
		p.queues(user(), step.set)
		p.later(time.Minute)
		p.want(len(p.sent()), i+1)
		p.has("a rollout of shop to "+step.set.Name+" is pending", "it waits for the end of rollout_", step.want)
		p.want(strings.Contains(p.last(), "it takes the place of"), step.want != "")
	}
}

// R4-29: a message has room for what people have to know, however many steps its rollout has.
func TestStepsLeaveRoomForWhatMatters(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	m.channel("team", core.NotifyWebhook, hook, 60)
	m.channel("bot", core.NotifySlack, bot, 60)
	events := `{"events":["rollout_began","environment_entered","approval_needed","rollout_failed"]}`
	m.route("team", "team", events)
	m.route("bot", "bot", events)
	m.subscribe(m.member("ann", core.RoleViewer, "ann@example.com"), "all", "mail", events)
	r := m.begin(user())
	m.settle()
	happens := func(moment string, from, to int) {
		t.Helper()
		_, err := m.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, rollout_id, application_id, environment_id, subject)
			SELECT $1, $2, $2 || ':' || n || ':step', $3, $3, $4, $5, $6, 'subject-' || n FROM generate_series($7::integer, $8::integer) n`,
			org, moment, m.now.Now(), r.ID, r.ApplicationID, m.stops(r)[0].EnvironmentID, from, to)
		m.ok(err)
		m.settle()
	}
	happens("environment_entered", 1, 120) // sent
	happens("environment_entered", 121, 230)
	for i := range 20 {
		happens("approval_needed", i, i)
		happens("environment_entered", 231+i, 231+i)
	}
	before := len(m.sent())
	happens("rollout_failed", 1, 1)
	m.want(len(m.sent()), before+3)
	for _, sent := range m.sent()[before:] {
		if !strings.Contains(sent, "the rollout failed") {
			t.Errorf("found %s; want what has failed", sent)
		}
	}
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE rollout_id = $1`, r.ID), 3)
	rows, err := m.pool.Query(t.Context(), `SELECT cardinality(notification_ids), sent_count, left_out,
		(SELECT count(*) FROM cd_notifications n WHERE n.id = ANY(notification_ids) AND n.moment IN ('approval_needed', 'rollout_failed')),
		(SELECT max(split_part(n.cause, ':', 2)::integer) FROM cd_notifications n
			WHERE n.id = ANY(notification_ids) AND n.moment = 'environment_entered')
		FROM cd_notification_messages WHERE rollout_id = $1`, r.ID)
	m.ok(err)
	defer rows.Close()
	for rows.Next() {
		var found [5]int
		m.ok(rows.Scan(&found[0], &found[1], &found[2], &found[3], &found[4]))
		// 149 moments, the latest step, and all that matters; of 121 to 230, which came at once, 149 minus 121 were kept, and the latest.
		m.want(found, [5]int{149 + 1 + 21, 149 + 1 + 21, 230 - 121 - 28, 21, 250})
	}
	m.ok(rows.Err())
	happens("environment_entered", 251, 251)
	for _, sent := range m.sent()[before+3:] {
		if strings.Contains(sent, "hooks.example.com") && strings.Count(sent, `"event":"environment_entered"`) != 1 {
			t.Errorf("found %s; want the new step alone", sent)
		}
	}
	m.want(len(m.sent()), before+6)
}

// R4-29: nothing would end an alert about what waits in the queue, so there is none; steps of rollouts end with them.
func TestNoAlertWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.queueing()
	p.people(1)
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	p.channel("genie", core.NotifyOpsgenie, `{"account":"genie"}`, 60)
	for _, channel := range []string{"ops", "genie"} {
		for _, moment := range []string{"rollout_queued", "rollout_dropped"} {
			_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{
				Name: "queue", Channel: channel, Config: json.RawMessage(`{"events":["rollout_failed","` + moment + `"]}`), Enabled: true,
			})
			p.wrong(err, "/config/events/1")
			p.want(strings.Contains(fmt.Sprint(err), moment), true)
		}
		p.route(channel, channel, `{"events":["environment_entered"]}`)
	}
	// One that was saved before is passed over.
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_notification_routes SET config = '{"events":["environment_entered","rollout_queued"]}'`)
	p.ok(err)
	r := p.rollout(p.set)
	p.queues(user(), p.release(2))
	p.later(time.Minute)
	p.want(p.steps(), []string{"rollout_queued"})
	p.want(len(p.sent()), 0)
	p.succeed(r)
	p.later(time.Minute)
	p.want(len(p.alertsOpen(0)), 0)
	p.want(len(p.sent()) > 0, true)
}
