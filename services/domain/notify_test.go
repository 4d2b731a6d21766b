package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// post is an engine that sends messages: what it was asked to run, and what comes of each.
type post struct {
	mu sync.Mutex
	// started are the inputs of runs by their ids, order the ids as they came first, and calls how many starts there were.
	started map[string]json.RawMessage
	order   []string
	calls   int
	// away is what the next starts answer; answer what a run reports: outcome, ref, why, wait. It is still running without an outcome.
	away   error
	answer func(inputs string) [4]string
}

var _ notify.Engine = (*post)(nil)

func (p *post) Start(_ context.Context, w handoff.Workflow) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if known, again := p.started[w.ID]; again && string(known) != string(w.Inputs) {
		return "", fault.New(fault.Conflict, "%s was started with other inputs", w.ID)
	} else if !again {
		p.started[w.ID], p.order = w.Inputs, append(p.order, w.ID)
	}
	return "run-of-" + w.ID, p.away
}

func (p *post) WorkflowByID(_ context.Context, _ int64, id string) (handoff.WorkflowRun, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inputs, known := p.started[id]
	if !known {
		return handoff.WorkflowRun{}, fault.New(fault.NotFound, "no run %s", id)
	}
	a := [4]string{"sent", "", "", "0"}
	if p.answer != nil {
		a = p.answer(string(inputs))
	}
	run := handoff.WorkflowRun{ID: id, State: handoff.WorkflowCompleted, CreatedAt: time.Unix(1_800_000_000, 0)}
	if a[0] == "" {
		run.State = handoff.WorkflowRunning
	}
	for i, key := range []string{"outcome", "ref", "why"} {
		run.Status = append(run.Status, handoff.WorkflowPair{Key: key, Value: fmt.Sprintf("%q", a[i])})
	}
	run.Status = append(run.Status, handoff.WorkflowPair{Key: "wait", Value: a[3]})
	return run, nil
}

// postal is a shop that notifies through an engine of the test's.
type postal struct {
	winter
	post *post
}

func notifying(t *testing.T) postal {
	t.Helper()
	p := postal{clocked(t), &post{started: map[string]json.RawMessage{}}}
	p.notify = notify.New(notify.Deps{Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com"})
	return p
}

func (p postal) channel(name string, kind core.NotificationKind, config string, rate int) core.NotificationChannel {
	p.t.Helper()
	c, err := p.notify.PutChannel(p.t.Context(), user(), notify.NewChannel{
		Name: name, Kind: kind, Config: json.RawMessage(config), Rate: rate, Enabled: true,
	})
	p.ok(err)
	return c
}

func (p postal) route(name, channel, config string) {
	p.t.Helper()
	_, err := p.notify.PutRoute(p.t.Context(), user(), notify.NewRoute{
		Name: name, Channel: channel, Config: json.RawMessage(config), Enabled: true,
	})
	p.ok(err)
}

// work does what is due until nothing is, and looks at every run that was begun.
func (p postal) work() (did []string) {
	p.t.Helper()
	for range 2000 {
		w, worked, err := p.notify.WorkDue(p.t.Context())
		if err != nil && !fault.Is(err, fault.Unavailable) {
			p.ok(err)
		}
		if !worked {
			return did
		}
		did = append(did, w.What)
		if w.What == "send" && w.State == core.MessageSending {
			for _, m := range p.messages("") { // the event that its run has ended
				if m.ID == w.Message && m.Started {
					p.deliver(p.emit(event.WorkflowCompleted{WorkflowID: id.NotificationRun(m.ID, m.Run)}, id.NotificationRun(m.ID, m.Run)))
				}
			}
		}
	}
	p.t.Fatal("notifications do not come to an end")
	return nil
}

func (p postal) messages(state core.NotificationState) []core.NotificationMessage {
	p.t.Helper()
	all, err := p.notify.Messages(p.t.Context(), org, notify.Filter{State: state, Most: notify.MaxMessages})
	p.ok(err)
	return all
}

// sent are the inputs of runs, in their order.
func (p postal) sent() (all []string) {
	for _, run := range p.post.order {
		var b bytes.Buffer
		p.ok(json.Compact(&b, p.post.started[run]))
		all = append(all, b.String())
	}
	return all
}

const (
	bot  = `{"account":"slack-bot","target":"C1"}`
	hook = `{"url":"https://hooks.example.com/cd"}`
)

// D62: without a channel nothing is stored; with one and no route, what matters by default is sent, as one message for a rollout that is
// updated as the rollout proceeds.
func TestAMessageFollowsItsRollout(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.succeed(p.rollout(p.set))
	p.want(p.countOf(`SELECT count(*) FROM cd_notifications`), 0)
	p.channel("team", core.NotifySlack, bot, 0)
	p.post.answer = func(string) [4]string { return [4]string{"sent", "171.5", "", "0"} }
	r := p.rollout(p.set)
	p.work()
	p.now.Advance(time.Minute)
	p.succeed(r)
	p.work()
	all := p.sent()
	p.want(len(all), 2)
	for i, wants := range [][]string{
		{`"url":"https://slack.com/api/chat.postMessage"`, `"channel":"C1"`, "began", "/rollouts/rollout_", `"credential":"slack-bot"`},
		{`"url":"https://slack.com/api/chat.update"`, `"ts":"171.5"`, "completed", "began the rollout"},
	} {
		for _, want := range wants {
			if !strings.Contains(all[i], want) {
				t.Errorf("message %d: found %s; want %s", i, all[i], want)
			}
		}
	}
	m := p.messages(core.MessageSent)
	p.want(len(m), 1)
	p.want([]any{m[0].RolloutID, m[0].Run, m[0].SentRevision}, []any{r.ID, 2, m[0].Revision})
	p.want(p.work(), []string(nil))
}

// D62: an approval is notified with what changes, who asked and until when, and the answer updates the message.
func TestAnApprovalIsNotifiedWithWhatIsNeededToDecide(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.group("release", 1)
	p.asking("", `"group":"release","expires_after":3600`, "")
	p.channel("team", core.NotifySlack, bot, 0)
	p.route("questions", "team", `{"events":["approval_needed"],"tiers":["production"],"expression":"application == 'shop' && severity == 'high'"}`)
	p.post.answer = func(string) [4]string { return [4]string{"sent", "1.1", "", "0"} }
	r := p.rollout(p.set)
	p.work()
	p.want(len(p.sent()), 0)
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
	p.work()
	p.want(len(p.sent()), 1)
	for _, want := range []string{"approval needed", "before production", "to be given by release", "It brings", "It expires at"} {
		if !strings.Contains(p.sent()[0], want) {
			t.Errorf("found %s; want %q in it", p.sent()[0], want)
		}
	}
	p.ok(p.approve(person(7, "release"), r, "production"))
	p.work()
	p.want(len(p.sent()), 2)
	p.want(strings.Contains(p.sent()[1], "chat.update"), true)
}

// D62: a channel that does not work has its messages tried again with growing pauses, and given up as dead letters, which can be sent
// again; another channel and the rollout do not notice.
func TestABrokenChannelDelaysNothingElse(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("broken", core.NotifyTeams, `{"url":"https://teams.example.com/","account":"teams-url"}`, 60)
	p.channel("fine", core.NotifyWebhook, hook, 60)
	broken := true
	p.post.answer = func(inputs string) [4]string {
		if broken && strings.Contains(inputs, "teams-url") {
			return [4]string{"again", "", "the channel answered with status 500", "0"}
		}
		return [4]string{"sent", "", "", "0"}
	}
	r := p.rollout(p.set)
	p.succeed(r)
	p.work()
	p.want(len(p.messages(core.MessageSent)), 1)
	p.want(p.messages(core.MessagePending)[0].Error, "the channel answered with status 500")
	for range 20 {
		p.now.Advance(10 * time.Minute)
		p.work()
	}
	dead := p.messages(core.MessageFailed)
	p.want(len(dead), 1)
	p.want([]any{dead[0].Attempts, dead[0].Error}, []any{10, "the channel answered with status 500; it was tried 10 times"})
	p.want(p.reload(r).State, core.RolloutCompleted)
	broken = false
	_, err := p.notify.Retry(t.Context(), user(), dead[0].ID)
	p.ok(err)
	p.work()
	p.want(len(p.messages(core.MessageFailed)), 0)
	_, err = p.notify.Retry(t.Context(), user(), dead[0].ID)
	p.refused(err, "only what has failed can be sent again")
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'retryNotification' AND before IS NOT NULL AND principal_name <> ''`), 1)
}

// D62: what a channel refuses is a dead letter at once, and an answer to wait is kept to.
func TestARefusalIsADeadLetterAndAWaitIsKept(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("fine", core.NotifyWebhook, hook, 60)
	p.route("all", "fine", `{}`)
	answer := [4]string{"again", "", "the channel answered with status 429", "600"}
	p.post.answer = func(string) [4]string { return answer }
	_, err := p.notify.TestRoute(t.Context(), user(), "all")
	p.ok(err)
	p.work()
	p.now.Advance(9 * time.Minute)
	p.want(p.work(), []string(nil))
	p.now.Advance(time.Minute)
	answer = [4]string{"refused", "", "the channel answered with status 404: gone", "0"}
	p.work()
	p.want(p.messages("")[0].State, core.MessageFailed)
	p.want(p.messages("")[0].Error, "the channel answered with status 404: gone")
}

// D62: a channel receives at most its rate of messages a minute; the last one is a digest of what waits, so nothing is lost.
func TestAFloodIsADigest(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("team", core.NotifyWebhook, hook, 3)
	for i := range 30 {
		environment := p.environment(fmt.Sprintf("flood-%d", i), core.TierDevelopment)
		p.ok(p.fails(environment.ID))
	}
	p.work()
	p.want(len(p.sent()), 3)
	digest := p.sent()[2]
	p.want(strings.Contains(digest, "Lockstep: 28 notifications"), true)
	p.want(len(p.messages(core.MessageDigested)), 28)
	p.want(p.work(), []string(nil))
	p.ok(p.fails(p.environment("after", core.TierDevelopment).ID))
	p.work()
	p.want(len(p.sent()), 3) // the minute is full
	p.now.Advance(time.Minute)
	p.work()
	p.want(len(p.sent()), 4)
}

// fails stores that an environment cannot be reached.
func (p postal) fails(environment int64) error {
	_, err := p.pool.Exec(p.t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, environment_id)
		VALUES ($1, 'agent_offline', 'contact:' || $2::bigint, $3, $3, $2)`, org, environment, p.now.Now())
	return err
}

// D62: organizations take turns, however much one of them has to send.
func TestAFloodOfOneOrganizationDelaysNoOther(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	for organization := range 2 {
		a := user()
		a.Organization = int64(organization + 1)
		_, err := p.notify.PutChannel(t.Context(), a, notify.NewChannel{
			Name: "team", Kind: core.NotifyWebhook, Config: json.RawMessage(hook), Rate: 60, Enabled: true,
		})
		p.ok(err)
		for i := range []int{200, 1}[organization] {
			_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at) VALUES ($1, 'agent_offline', $2, $3, $3)`,
				a.Organization, fmt.Sprint(i), p.now.Now())
			p.ok(err)
		}
	}
	for turn := range 6 {
		w, _, err := p.notify.WorkDue(t.Context())
		p.ok(err)
		if w.Organization == 2 && w.What == "send" {
			return
		}
		if turn == 5 {
			t.Error("the other organization still waits after six turns")
		}
	}
}

// D62: a crash or an engine that is away between any two steps loses nothing, and the same run is begun again with the same inputs; an
// event that comes twice is one.
func TestACrashSendsTheSameAgain(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.post.away = fault.New(fault.Unavailable, "no engine")
	r := p.rollout(p.set)
	for range 3 {
		_, _, err := p.notify.WorkDue(t.Context())
		if err != nil && !errors.Is(err, p.post.away) {
			t.Fatal(err)
		}
	}
	p.succeed(r) // while it is being sent
	p.now.Advance(time.Minute)
	p.post.away = nil
	p.work()
	p.want(p.post.order, []string{id.NotificationRun(1, 1), id.NotificationRun(1, 2)})
	p.want(p.post.calls >= 3, true)
	if first, second := p.sent()[0], p.sent()[1]; strings.Contains(first, "completed") || !strings.Contains(second, "completed") {
		t.Errorf("found %s and then %s; want the beginning and then the end", first, second)
	}
	before := len(p.sent())
	for range 2 {
		run := id.NotificationRun(1, 1)
		p.deliver(p.emit(event.WorkflowCompleted{WorkflowID: run}, run))
	}
	p.want(p.work(), []string(nil))
	p.want(len(p.sent()), before)
}

// D62: what cannot be routed keeps nothing else from being routed: it is tried again later.
func TestANotificationThatFailsDelaysNoOther(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	lab, other := p.environment("lab", core.TierQA).ID, p.environment("other", core.TierQA).ID
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.route("all", "team", `{}`)
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_notification_routes SET config = '{"events": 7}'`)
	p.ok(err)
	p.ok(p.fails(lab))
	if _, _, err := p.notify.WorkDue(t.Context()); err == nil {
		t.Fatal("found no error; want one")
	}
	p.route("all", "team", `{}`)
	p.ok(p.fails(other))
	p.work()
	p.want(len(p.sent()), 1)
	p.now.Advance(time.Minute)
	p.work()
	p.want(len(p.sent()), 2)
}

// D62: only the engine reports the outcome of a message. A forged end of its run is refused, or has the engine asked.
func TestAForgedEndOfARunChangesNothing(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.post.answer = func(string) [4]string { return [4]string{} }
	p.rollout(p.set)
	p.work()
	m := p.messages("")[0]
	p.want(m.State, core.MessageSending)
	run := id.NotificationRun(m.ID, m.Run)
	errs := p.on.Domain(t.Context(), []bus.Delivery{{Event: p.emit(event.WorkflowCompleted{WorkflowID: run}, "nightly"), Attempt: 1}})
	if !slices.ContainsFunc(errs, func(err error) bool { return fault.Is(err, fault.Invalid) }) {
		t.Errorf("found %v; want that the event is refused", errs)
	}
	p.deliver(p.emit(event.WorkflowCompleted{WorkflowID: run}, run))
	p.work()
	p.want(p.messages("")[0].State, core.MessageSending)
	if !id.ReservedRun(run) {
		t.Error("others may start a run of that id")
	}
}

// D62: digests collect, quiet hours hold back what is not of high severity, and freezes are notified when they begin and end.
func TestDigestsQuietHoursAndFreezes(t *testing.T) {
	t.Parallel()
	p := notifying(t) // 2027-01-15 08:00 UTC
	p.channel("mail", core.NotifyEmail, `{"url":"smtps://mail.example.com","from":"cd@example.com","to":["team@example.com"]}`, 0)
	p.channel("team", core.NotifyWebhook, hook, 0)
	p.route("daily", "mail", `{"digest_minutes":60}`)
	p.route("awake", "team", `{"quiet":{"from":"22:00","to":"10:00","time_zone":"Europe/Berlin"}}`)
	_, err := p.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Reason: "fair", EndsAt: p.now.Now().Add(30 * time.Minute)})
	p.ok(err)
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	p.work()
	p.want(len(p.sent()), 1) // in Berlin it is 9:00, and an agent that is offline matters
	p.want(strings.Contains(p.sent()[0], "agent_offline"), true)
	p.now.Advance(31 * time.Minute)
	p.work()
	p.want(len(p.sent()), 1)
	p.now.Advance(30 * time.Minute)
	p.work()
	var subjects []string
	for _, s := range p.sent()[1:] {
		var in struct {
			Request struct {
				Subject string
				JSON    struct{ Data struct{ Title string } }
			}
		}
		p.ok(json.Unmarshal([]byte(s), &in))
		subjects = append(subjects, in.Request.Subject+in.Request.JSON.Data.Title)
	}
	slices.Sort(subjects)
	p.want(subjects, []string{"Everything: freeze ended: fair", "Everything: frozen until 2027-01-15 08:30 UTC: fair", "Lockstep: 3 notifications"})
}

// D62: what cannot work is refused when it is saved, with what was found and expected; only those who configure change anything, and each
// change is in the journal.
func TestChannelsAndRoutesAreCheckedWhenTheyAreSaved(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	channels := map[string]notify.NewChannel{
		"/name":            {Name: "A b", Kind: core.NotifyWebhook, Config: json.RawMessage(hook)},
		"/kind":            {Name: "a", Kind: "fax", Config: json.RawMessage(`{}`)},
		"/rate":            {Name: "a", Kind: core.NotifyWebhook, Config: json.RawMessage(hook), Rate: 61},
		"/config/url":      {Name: "a", Kind: core.NotifyWebhook, Config: json.RawMessage(`{"url":"https://ann:x@hooks.example.com/"}`)},
		"/config/account":  {Name: "a", Kind: core.NotifySlack, Config: json.RawMessage(`{"account":"https://hooks.slack.com/services/T/B/secret"}`)},
		"/config/target":   {Name: "a", Kind: core.NotifySlack, Config: json.RawMessage(`{"account":"bot","target":"#general"}`)},
		"/config/to/0":     {Name: "a", Kind: core.NotifyEmail, Config: json.RawMessage(`{"url":"smtp://m.example.com","from":"a@b.c","to":["x\r\nBcc: y@z"]}`)},
		"/config/password": {Name: "a", Kind: core.NotifyEmail, Config: json.RawMessage(`{"password":"x"}`)},
	}
	for field, n := range channels {
		_, err := p.notify.PutChannel(t.Context(), user(), n)
		p.wrong(err, field)
	}
	p.channel("team", core.NotifyWebhook, hook, 0)
	routes := map[string]string{
		"/config/events/0": `{"events":["lunch"]}`, "/config/tiers/0": `{"tiers":["moon"]}`, "/config/severities/0": `{"severities":["urgent"]}`,
		"/config/expression": `{"expression":"team == 1"}`, "/config/digest_minutes": `{"digest_minutes":-1}`,
		"/config/quiet/time_zone": `{"quiet":{"from":"22:00","to":"06:00","time_zone":"Mars/Base"}}`, "/config/label": `{"label":"x"}`,
	}
	for _, field := range slices.Sorted(maps.Keys(routes)) {
		_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: "a", Channel: "team", Config: json.RawMessage(routes[field])})
		p.wrong(err, field)
	}
	_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: "a", Channel: "nowhere"})
	p.wrong(err, "/channel")
	viewer := user()
	viewer.Permissions = core.RoleDeployer.Permissions()
	for name, do := range map[string]func() error{
		"put": func() error {
			_, err := p.notify.PutChannel(t.Context(), viewer, notify.NewChannel{
				Name: "b", Kind: core.NotifyWebhook, Config: json.RawMessage(hook),
			})
			return err
		},
		"remove": func() error { _, err := p.notify.RemoveChannel(t.Context(), viewer, "team", ""); return err },
		"route": func() error {
			_, err := p.notify.PutRoute(t.Context(), viewer, notify.NewRoute{Name: "b", Channel: "team"})
			return err
		},
		"test":  func() error { _, err := p.notify.TestRoute(t.Context(), viewer, "a"); return err },
		"retry": func() error { _, err := p.notify.Retry(t.Context(), viewer, 1); return err },
	} {
		if err := do(); !fault.Is(err, fault.Denied) {
			t.Errorf("%s without the permission: found %v; want Denied", name, err)
		}
	}
	p.route("all", "team", `{}`)
	_, err = p.notify.RemoveChannel(t.Context(), user(), "team", "moved")
	p.ok(err)
	left, err := p.notify.Routes(t.Context(), org)
	p.ok(err)
	p.want(len(left), 0)
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE subject_kind = 'notifications' AND (before IS NOT NULL OR after IS NOT NULL)`), 4)
}

// wrong fails the test unless an error is about a field.
func (p postal) wrong(err error, field string) {
	p.t.Helper()
	for _, f := range fault.FieldsOf(err) {
		if f.Name == field {
			return
		}
	}
	p.t.Errorf("found %v; want that %s is at fault", err, field)
}
