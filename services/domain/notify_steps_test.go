package domain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

const everyStep = `{"events":["rollout_queued","rollout_planned","rollout_started","environment_entered","environment_completed","environment_failed"]}`

// steps are the moments of all steps that are stored, in their order.
func (p postal) steps() (all []string) {
	p.t.Helper()
	rows, err := p.pool.Query(p.t.Context(), `SELECT n.moment || COALESCE(' ' || e.name, '') FROM cd_notifications n
		LEFT JOIN cd_environments e ON e.organization_id = n.organization_id AND e.id = n.environment_id
		WHERE n.cause LIKE '%:step' ORDER BY n.id`)
	p.ok(err)
	defer rows.Close()
	for rows.Next() {
		var one string
		p.ok(rows.Scan(&one))
		all = append(all, one)
	}
	p.ok(rows.Err())
	return all
}

// R4-29: each transition of a rollout can be subscribed to, from the queue to the end of each environment; without a route or subscription
// that names one, nothing is stored of it, and nobody hears of it.
func TestEachStepOfARolloutCanBeSubscribedTo(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 0)
	r := p.rollout(p.set)
	p.succeed(r)
	p.work()
	p.want([]any{len(p.steps()), len(p.sent())}, []any{0, 1}) // it began and completed, as one message
	p.channel("steps", core.NotifyWebhook, hook, 0)
	p.route("steps", "steps", everyStep)
	r = p.rollout(p.set)
	p.now.Advance(time.Second)
	p.succeed(r)
	want := []string{
		"rollout_planned", "rollout_started", "environment_entered staging", "environment_completed staging", "environment_entered production",
		"environment_completed production",
	}
	p.want(p.steps(), want)
	before := len(p.sent())
	p.later(time.Minute)
	sent := strings.Join(p.sent()[before:], "\n")
	for _, text := range []string{
		"the rollout is planned: ", "the rollout is under way", "it entered staging", "it completed in staging", "it entered production", `"event":"environment_completed"`,
	} {
		if !strings.Contains(sent, text) {
			t.Errorf("found %s; want %q", sent, text)
		}
	}
	p.succeed(r) // reports that are repeated are no other steps
	p.want(p.steps(), want)

	r = p.rollout(p.set)
	p.report(
		event.RolloutStarted{RolloutID: r.ID},
		event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: p.stops(r)[0].EnvironmentID},
		event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: p.stops(r)[0].EnvironmentID, Reason: "no quota"})
	p.later(time.Minute)
	p.want(p.steps()[len(want):], []string{"rollout_planned", "rollout_started", "environment_entered staging", "environment_failed staging"})
	p.want(strings.Contains(strings.Join(p.sent(), "\n"), "it failed in staging: no quota"), true)
}

// R4-29, R4-03: a rollout that waits in the queue is announced with what it waits for; a rollback has the same steps.
func TestWhatWaitsInTheQueueIsAnnounced(t *testing.T) {
	t.Parallel()
	now := clocktest.New(clock.System().Now().UTC().Truncate(time.Second))
	w := winter{shopOf(setupAt(t, now)), now}
	p := w.posting()
	p.channel("team", core.NotifySlack, bot, 0)
	p.route("queue", "team", `{"events":["rollout_queued"]}`)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"until":"production"}`)
	r := w.rollout(w.set)
	set := w.release(2)
	w.want(w.decide(), []string{"queued: " + set.Name + " is new; it is in the queue of the application"})
	p.later(time.Second)
	p.has("a rollout of shop to "+set.Name+" is pending", "it waits for the end of rollout_", "asked for: ")
	p.want(p.steps(), []string{"rollout_queued"})
	w.succeed(r)
	_, _, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	p.later(time.Minute)
	p.want(p.steps(), []string{"rollout_queued"})
}

// R4-29: in a message that is updated, a step replaces the update that its row would be, also as a reply, and ends no question.
func TestAStepAndAnUpdateAreOne(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("thread", core.NotifySlack, threaded, 0)
	p.route("all", "thread", `{"events":["rollout_began","rollout_started","environment_entered"]}`)
	r := p.rollout(p.set)
	p.work()
	p.report(
		event.RolloutStarted{RolloutID: r.ID},
		event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: p.stops(r)[0].EnvironmentID},
	)
	for range 4 {
		p.later(5 * time.Second)
	}
	p.has("it entered staging", "in progress")
	updates := strings.Join(p.sent(), "\n")
	if strings.Contains(updates, "it started") || strings.Contains(updates, "staging started") {
		t.Errorf("found %s; want each step once", updates)
	}
}

// R4-29: members may subscribe to steps by naming them; a subscription without events has none, as tools' events are for none of them.
func TestMembersNameSteps(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	ann, bob := m.member("ann", core.RoleViewer, "ann@example.com"), m.member("bob", core.RoleViewer, "bob@example.com")
	m.subscribe(ann, "entered", "mail", `{"events":["environment_entered"],"environment":"production"}`)
	m.subscribe(bob, "all", "mail", `{}`)
	r := m.rollout(m.set)
	m.succeed(r)
	m.settle()
	m.want(m.steps(), []string{"environment_entered staging", "environment_entered production"})
	sent := slices.DeleteFunc(m.sent(), func(s string) bool { return !strings.Contains(s, "it entered") })
	m.want(len(sent), 1)
	if len(sent) == 1 && (!strings.Contains(sent[0], "ann@example.com") || !strings.Contains(sent[0], "it entered production")) {
		t.Errorf("found %s; want what ann asked for", sent[0])
	}
	_, err := m.notify.PutMine(t.Context(), ann, notify.NewSubscription{Name: "tools", Channel: "mail", Config: []byte(`{"events":["artifact_deleted"]}`)})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("an event for tools: found %v; want Invalid", err)
	}
}
