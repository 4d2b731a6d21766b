package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

const (
	alerts   = `{"account":"pagerduty-key"}`
	threaded = `{"account":"slack-bot","target":"C1","details":true}`
)

// present is a shop whose time is that of the database: what is older than 30 days is deleted by it.
func present(t *testing.T) winter {
	t.Helper()
	now := clocktest.New(clock.System().Now().UTC().Truncate(time.Second))
	return winter{shopOf(setupAt(t, now)), now}
}

// posting is another shop that notifies, by the same stub of an engine.
func (w winter) posting() postal {
	p := postal{w, &post{started: map[string]json.RawMessage{}}}
	p.notify = notify.New(notify.Deps{Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com"})
	p.post.answer = func(string) [4]string { return [4]string{"sent", "171.5", "", "0"} }
	return p
}

// last is what was sent last, and has fails the test unless that has all texts.
func (p postal) last() string {
	all := p.sent()
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func (p postal) has(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.last(), text) {
			p.t.Errorf("found %s; want %q in it", p.last(), text)
		}
	}
}

// later works once time has passed.
func (p postal) later(d time.Duration) {
	p.t.Helper()
	p.now.Advance(d)
	p.work()
}

// R4-29: the message of a rollout is updated with what happens to it, merged, within half of what the channel receives; an alert is left
// alone, what is asked stays the title, and details are replies where the channel wants them.
func TestTheMessageOfARolloutFollowsEachTransition(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 0)
	p.channel("thread", core.NotifySlack, threaded, 0)
	p.channel("ops", core.NotifyPagerDuty, alerts, 0)
	p.route("all", "ops", `{"events":["rollout_began"]}`)
	r := p.rollout(p.set)
	p.work()
	p.want(len(p.sent()), 3)
	stops := p.stops(r)
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: stops[0].EnvironmentID})
	p.work()
	p.want(len(p.sent()), 3) // not yet: several are one update
	p.later(5 * time.Second)
	p.later(5 * time.Second)
	p.want(len(p.sent()), 5)
	updated := strings.Join(p.sent()[3:], "\n")
	for _, want := range []string{"chat.update", "in progress", "began the rollout", `"further":[`, `"thread_ts":"171.5"`} {
		if !strings.Contains(updated, want) {
			t.Errorf("found %s; want %q in it", updated, want)
		}
	}
	p.want(strings.Count(updated, `"further":[`), 1)
	before := len(p.sent())
	p.succeed(r)
	p.work()
	p.has("completed")
	p.want(len(p.sent()), before+3) // the alert is resolved as well
	after := len(p.sent())
	p.later(time.Minute)
	p.want(len(p.sent()), after) // what happened before the end adds nothing
	m := p.messages(core.MessageSent)
	p.want(len(m), 3)
}

// R4-29: what only updates messages leaves half of a channel's rate to what people are to read, and is no part of a digest.
func TestUpdatesLeaveRoomForMessages(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 2)
	r := p.rollout(p.set)
	p.work()
	p.want(len(p.sent()), 1)
	p.report(event.RolloutStarted{RolloutID: r.ID})
	p.later(5 * time.Second)
	p.later(5 * time.Second)
	p.want(len(p.sent()), 1) // one of two in this minute
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	p.work()
	p.want(len(p.sent()), 2)
	p.has("its agent is offline")
	p.later(time.Minute)
	p.want(len(p.sent()), 3)
	p.has("chat.update", "it started")
}

// D62: an alert ends with what it is about: the agent is back, nothing differs any more, and another rollout has completed where one
// failed.
func TestAlertsAreResolved(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.route("alerts", "ops", `{"severities":["high","normal"]}`)
	contact := func(reachable bool) {
		p.now.Advance(time.Second)
		p.report(event.EnvironmentContactChanged{
			EnvironmentID: p.staging.ID, Reachable: reachable, Reason: "no heartbeat", ObservedAt: p.now.Now().UTC().Format(time.RFC3339Nano),
		})
		p.work()
	}
	alert := func(action string, texts ...string) {
		t.Helper()
		for _, s := range p.sent()[max(0, len(p.sent())-2):] {
			if strings.Contains(s, `"event_action"`) {
				for _, want := range append(texts, `"event_action":"`+action+`"`) {
					if !strings.Contains(s, want) {
						t.Errorf("found %s; want %q in it", s, want)
					}
				}
				return
			}
		}
		t.Errorf("found no alert; want %s", action)
	}
	contact(true)
	p.want(len(p.sent()), 0) // it had not been away
	contact(false)
	alert("trigger", "its agent is offline", "no heartbeat")
	contact(false)
	p.want(len(p.sent()), 2)
	contact(true)
	alert("resolve", "its agent is back")
	p.want(len(p.sent()), 4)
	all, err := p.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{p.application.ID})
	p.ok(err)
	drift := func(what string) {
		p.now.Advance(time.Second)
		p.report(event.ApplicationEnvironmentReconciled{
			ApplicationEnvironmentID: all[p.application.ID][0].ID, Revision: "abc", ExpectedRevision: "abc", Drift: what,
			ObservedAt: p.now.Now().UTC().Format(time.RFC3339Nano),
		})
		p.work()
	}
	drift("")
	p.want(len(p.sent()), 4)
	drift("api has 5 replicas")
	alert("trigger", "differs from what was deployed")
	drift("")
	alert("resolve", "is as it was deployed")
	drift("")
	p.want(len(p.sent()), 8)
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutEnvironmentStarted{
		RolloutID:     r.ID,
		EnvironmentID: p.stops(r)[0].EnvironmentID,
	},
		event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"})
	p.later(time.Minute)
	alert("trigger", "failed", "sync failed")
	again := p.rollout(p.set)
	p.work()
	sent := len(p.sent())
	p.succeed(again)
	p.work()
	ended := strings.Join(p.sent()[sent:], "\n")
	for _, want := range []string{`"event_action":"resolve"`, fmt.Sprintf("-rollout-%d\"", r.ID), fmt.Sprintf("rollout_%d, ", again.ID)} {
		if !strings.Contains(ended, want) {
			t.Errorf("found %s; want that the alert of rollout %d is resolved: %q", ended, r.ID, want)
		}
	}
}

// R4-29, R3-17: a health check that turns to failure is notified once, however many services and observations it is of, and so is its end.
func TestAFailingHealthCheckIsNotifiedOnce(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"kind":"health"}`)
	p := c.posting()
	p.channel("team", core.NotifySlack, bot, 60)
	p.route("checks", "team", `{"events":["check_failed","check_passed"]}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	p.later(time.Minute)
	p.want(len(p.sent()), 0)
	count := func(moment string) int {
		return p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = '` + moment + `'`)
	}
	for i, reason := range []string{"CrashLoopBackOff", "2 of 3 pods crash", "ImagePullBackOff"} {
		c.observed("dev", "degraded", reason, time.Duration(i)*time.Second)
	}
	p.work()
	p.want([]int{count("check_failed"), count("check_passed")}, []int{1, 0})
	p.has("check argocd-health failed in dev", "CrashLoopBackOff")
	p.now.Advance(time.Minute)
	c.observed("dev", "healthy", "", 0)
	c.observed("dev", "healthy", "", time.Second)
	p.work()
	p.want([]int{count("check_failed"), count("check_passed")}, []int{1, 1})
	p.has("check argocd-health passes in dev again")
	p.now.Advance(time.Minute)
	c.observed("dev", "degraded", "again", 0)
	p.want(count("check_failed"), 2)
}

// R4-29, R3-06: a check that is reported fails once for each failure, not for each description; reporters that contradict each other are a
// failure as well.
func TestAReportedCheckIsNotifiedOncePerFailure(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	p := c.posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	count := func() int { return p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = 'check_failed'`) }
	for i, one := range []struct {
		reporter int64
		phase    core.CheckPhase
		failures int
	}{
		{1, core.CheckSuccess, 0},
		{2, core.CheckFailure, 1},
		{2, core.CheckFailure, 1},
		{2, core.CheckSuccess, 1},
		{1, core.CheckFailure, 2},
		{2, core.CheckFailure, 2},
		{1, core.CheckPending, 2},
		{2, core.CheckSuccess, 2},
		{1, core.CheckSuccess, 2},
	} {
		p.now.Advance(time.Second)
		c.reports(one.reporter, "dev", c.set, "healthy", one.phase)
		if n := count(); n != one.failures {
			t.Errorf("report %d: found %d failures; want %d", i, n, one.failures)
		}
	}
	p.want(p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = 'check_failed' AND reason LIKE 'the reporters contradict%'`), 2)
	p.work()
	p.want(strings.Contains(strings.Join(p.sent(), "\n"), "the reporters contradict each other: failure by"), true)
}

// D62: a credential whose value ends is notified 14, 7 and 1 day before, once each, and not after it was replaced.
func TestACredentialThatEndsIsNotified(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	add := func(name string, in time.Duration) {
		_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge,
			version, reference,
			key_id, expires_at, principal_type, principal_id, principal_name, changed_at)
			VALUES ($1, $2, 'http', '{https://a.example.com/}', '', '', '', 1, 'env:A', 0, $3, 'user', 1, 'Ann', $4)`,
			org, name, p.now.Now().Add(in), p.now.Now())
		p.ok(err)
	}
	begin := p.now.Now()
	add("bot", 20*24*time.Hour)
	add("late", 2*24*time.Hour)
	p.work()
	p.want(len(p.sent()), 1) // late has 2 days: the warning of 7 days, and not that of 14
	p.has("Credential late: its value ends soon", "What to do")
	for _, days := range []int{6, 13, 19} { // from the beginning: 14, 7 and 1 day before its end
		p.now.Advance(begin.Add(time.Duration(days) * 24 * time.Hour).Sub(p.now.Now()))
		before := len(p.sent())
		for range 3 {
			p.later(11 * time.Minute)
		}
		p.want(len(p.sent()), before+1)
	}
	p.has("credential bot ends at")
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_credentials SET version = 2, expires_at = $1 WHERE name = 'bot'`,
		p.now.Now().Add(15*24*time.Hour))
	p.ok(err)
	before := len(p.sent())
	p.later(24*time.Hour + time.Minute)
	_, err = p.pool.Exec(t.Context(), `UPDATE cd_credentials SET version = 3, expires_at = NULL WHERE name = 'bot'`)
	p.ok(err)
	p.later(time.Hour)
	p.want(len(p.sent()), before+1)
}

// D62: what stops a rollout says what ends that; a freeze does not end by resuming.
func TestWhatStopsARolloutHasAdvice(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 60)
	_, err := p.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Reason: "fair", EndsAt: p.now.Now().Add(time.Hour)})
	p.ok(err)
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID})
	p.enter(r, "staging")
	p.review()
	p.work()
	p.has("it may not pass staging now", "fair", "it continues by itself once what stops it ends")
	p.want(strings.Contains(p.last(), "resume it"), false)
}

// D62: an expression that cannot be evaluated matches nothing, and its route says why until it is saved again.
func TestARouteHasTheReasonWhyItsExpressionFails(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	problem := func() string {
		all, err := p.notify.Routes(t.Context(), org)
		p.ok(err)
		return all[0].Problem
	}
	p.route("third", "team", `{"expression":"environments[2] == 'production'"}`)
	p.want(problem(), "")
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	p.work()
	p.want(len(p.sent()), 0)
	if found := problem(); !strings.HasPrefix(found, "event agent_offline at ") || !strings.Contains(found, "index") {
		t.Errorf("found %q; want the event, and that the index is out of range", found)
	}
	p.route("third", "team", `{"expression":"size(environments) > 2 && environments[2] == 'production'"}`)
	p.want(problem(), "")
}

// D62: routes match by the labels of the application, as they are then, also in an expression.
func TestRoutesMatchByLabels(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	var app int64
	p.ok(p.pool.QueryRow(t.Context(), `INSERT INTO cd_details (organization_id, application_id, labels)
		SELECT $1, min(id), '{"team":"payments"}' FROM cd_applications RETURNING application_id`, org).Scan(&app))
	n := 0
	for config, sends := range map[string]bool{
		`{"labels":{"team":"payments"}}`: true, `{"labels":{"team":"search"}}`: false, `{"labels":{"team":"payments","tier":"1"}}`: false,
		`{"expression":"'team' in labels && labels.team == 'payments'"}`: true, `{"expression":"'tier' in labels"}`: false,
	} {
		p.route("one", "team", config)
		p.now.Advance(time.Minute)
		_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, subject_id, subject)
			VALUES ($1, 'trigger_declined', $2, $3, $3, $4, 1, 'nightly')`, org, config, p.now.Now(), app)
		p.ok(err)
		p.work()
		if sends {
			n++
		}
		if len(p.sent()) != n {
			t.Fatalf("%s: found %d messages; want %d", config, len(p.sent()), n)
		}
	}
	_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: "two", Channel: "team", Config: json.RawMessage(`{"labels":{"no key!":"x"}}`)})
	p.wrong(err, "/config/labels")
}

// D62: routes match by application, environment and severity; one that is switched off is as if it did not exist, but for the defaults.
func TestRoutesMatchByEachFilter(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	lab := p.environment("lab-1", core.TierQA).ID
	n := 0
	for config, sends := range map[string]bool{
		`{"environments":["lab-*"]}`: true, `{"environments":["prod*"]}`: false, `{"severities":["high"]}`: true, `{"severities":["low"]}`: false,
		`{"applications":["shop"]}`: false, `{"events":["agent_offline"],"tiers":["qa"]}`: true, `{"tiers":["production"]}`: false,
	} {
		p.route("one", "team", config)
		p.now.Advance(time.Minute)
		_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, environment_id)
			VALUES ($1, 'agent_offline', $2, $3, $3, $4)`, org, config, p.now.Now(), lab)
		p.ok(err)
		p.work()
		if sends {
			n++
		}
		if len(p.sent()) != n {
			t.Fatalf("%s: found %d messages; want %d", config, len(p.sent()), n)
		}
	}
	_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: "one", Channel: "team", Config: json.RawMessage(`{}`)})
	p.ok(err)
	p.now.Advance(time.Minute)
	p.ok(p.fails(lab))
	p.work()
	p.want(len(p.sent()), n)
	p.want(notify.Defaults(core.NotifyPagerDuty), []core.NotificationMoment{
		core.MomentRolloutFailed, core.MomentRollbackBegan, core.MomentBreach, core.MomentAgentOffline,
	})
	// Without declined triggers, what is for tools, and steps.
	p.want(len(notify.Defaults(core.NotifySlack)), len(core.AllNotificationMoments())-14)
}

// D62: what waits for a channel that is removed is a dead letter that says so.
func TestWhatWaitsForARemovedChannelIsADeadLetter(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("mail", core.NotifyEmail, `{"url":"smtps://mail.example.com","from":"cd@example.com","to":["team@example.com"]}`, 0)
	p.route("hourly", "mail", `{"digest_minutes":60}`)
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	p.work()
	p.want(len(p.messages(core.MessagePending)), 1)
	_, err := p.notify.RemoveChannel(t.Context(), user(), "mail", "moved")
	p.ok(err)
	p.later(time.Hour)
	dead := p.messages(core.MessageFailed)
	p.want(len(dead), 1)
	p.want(strings.Contains(dead[0].Error, "channel mail was removed by"), true)
	p.want(len(p.sent()), 0)
}

// R4-29, R4-02: that a rollback begins by itself is a message of its own, which says what it takes back, what it brings and that nothing is
// to be done, and which is updated until it has ended.
func TestAnAutomaticRollbackIsNotifiedWhenItBegins(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	r := p.upgrade()
	p.channel("team", core.NotifySlack, bot, 60)
	p.route("rollbacks", "team", `{"events":["rollback_began"]}`)
	p.report(event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"})
	p.close()
	if _, worked := p.due(); !worked {
		t.Fatal("found no automatic rollback")
	}
	p.work()
	p.want(len(p.sent()), 1)
	p.has("chat.postMessage", ": rollback to ", fmt.Sprintf("it began by itself: automatic rollback of rollout_%d", r.ID), "It brings",
		"What to do: nothing while it proceeds")
	p.succeed(p.active())
	p.work()
	p.want(len(p.sent()), 2)
	p.has("chat.update", "completed")
}

// D62, D46: a rollout that advances without a grant is notified as a breach, from what its program really reported.
func TestABreachIsNotified(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	r := s.rollout(s.set)
	s.handOver()
	p := winter{s, clocktest.New(clock.System().Now().Add(time.Hour))}.posting()
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	s.pass(r, "staging", "release")
	s.report(event.RolloutHealthy{RolloutID: r.ID})
	p.work() // the shop's own clock is the machine's
	p.has(`"event_action":"trigger"`, "it advanced beyond a passage that was not granted", "breach: its program reported its end")
}

// D62: a trigger that decides not to begin is notified where a route wants it, and by no default.
func TestATriggerThatDeclinesIsNotified(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	p := w.posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.channel("triggers", core.NotifyWebhook, hook, 60)
	p.route("declined", "triggers", `{"events":["trigger_declined"]}`)
	p.trigger(core.TriggerSchedule, `{"cron":"0 6 * * *","time_zone":"Europe/Berlin","until":"staging"}`)
	p.now.Advance(21 * time.Hour)
	p.want(p.decide(), []string{"declined: " + p.set.Name + " is live already wherever the trigger goes"})
	p.work()
	p.has("did not begin a rollout")
	p.want(p.countOf(`SELECT count(*) FROM cd_notification_messages m JOIN cd_notifications n ON n.id = ANY(m.notification_ids) WHERE
		n.moment = 'trigger_declined'`), 1)
}
