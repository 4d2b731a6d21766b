package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/cdevents"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

const forTools = `{"events":["environment_created","environment_changed","environment_archived","environment_restored","artifact_published","artifact_deleted"]}`

// D62: what happens to environments and artifacts is sent as events of CDEvents to a route that names it, once for each; no other channel,
// and no route that names no events, receives any of it.
func TestEnvironmentsAndArtifactsAreEventsForTools(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.notify = notify.New(notify.Deps{
		Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com", Events: cdevents.Writer{},
	})
	p.channel("tools", core.NotifyWebhook, `{"url":"https://hooks.example.com/cd","sign":["new","old"],"payload":"cdevents"}`, 60)
	p.channel("default", core.NotifyWebhook, `{"url":"https://hooks.example.com/default"}`, 60)
	p.channel("wide", core.NotifyWebhook, `{"url":"https://hooks.example.com/wide"}`, 60)
	p.route("everything", "wide", `{}`)
	p.release(70)
	p.want(p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment LIKE 'artifact%'`), 0) // no route names it
	p.route("tools", "tools", forTools)
	p.work()
	happens := func(what func(), want ...string) {
		t.Helper()
		before := len(p.post.order)
		p.now.Advance(time.Minute)
		what()
		p.work()
		all, _ := p.events(before)
		for i, one := range all {
			all[i], _, _ = strings.Cut(one, "@sha256:")
		}
		p.want(all, want)
	}
	var lab core.Environment
	happens(func() { lab = p.environment("lab", core.TierQA) }, "environment.created.0.3.0 lab")
	of := core.Detailed{Kind: core.ChangedEnvironment, ID: lab.ID}
	label := setup.ChangedLabels{Of: of, Set: map[string]string{"team": "web"}}
	happens(func() { p.ok(p.setup.SetLabels(t.Context(), user(), label)) }, "environment.modified.0.3.0 lab")
	happens(func() { p.ok(p.setup.SetLabels(t.Context(), user(), label)) }) // nothing has changed
	owner, described := "web", "for trying things"
	happens(func() {
		p.ok(p.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{Of: of, Owner: &owner}))
	}, "environment.modified.0.3.0 lab")
	happens(func() {
		_, err := p.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{ID: lab.ID, Description: &described})
		p.ok(err)
	}, "environment.modified.0.3.0 lab")
	service := core.Detailed{Kind: core.ChangedApplication, ID: p.application.ID}
	happens(func() {
		p.ok(p.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{Of: service, Owner: &owner}))
	})
	happens(func() {
		_, err := p.setup.ArchiveEnvironment(t.Context(), user(), lab.ID, "done with it")
		p.ok(err)
	}, "environment.deleted.0.3.0 lab")
	happens(func() {
		_, err := p.setup.RestoreEnvironment(t.Context(), user(), lab.ID, "")
		p.ok(err)
	}, "environment.created.0.3.0 lab")

	happens(func() { p.release(77) }, "artifact.published.0.3.0 pkg:oci/api", "artifact.published.0.3.0 pkg:oci/web")
	happens(func() { p.release(77) }) // the same digests
	gone := p.removed("registry.test/shop/api", "", 770, int((p.now.Now().Unix()-1_600_000_000)/60)-1)
	happens(func() { p.publish(gone) }, "artifact.deleted.0.2.0 pkg:oci/api")
	happens(func() { p.publish(gone) })
	p.want(strings.Contains(strings.Join(p.sent(), ""), "hooks.example.com/default"), false)
	p.want(strings.Contains(strings.Join(p.sent(), ""), "hooks.example.com/wide"), false)
}

// D62: people read the same in a channel of theirs, if its route names it; nobody subscribes to it for themselves.
func TestEnvironmentsAndArtifactsForPeople(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 60)
	p.route("places", "team", forTools)
	lab := p.environment("lab", core.TierQA)
	_, err := p.setup.ArchiveEnvironment(t.Context(), user(), lab.ID, "done with it")
	p.ok(err)
	p.work()
	p.has("lab: environment archived", "archived environment lab", "done with it", "https://cd.example.com/environments/lab")
	p.release(77)
	p.work()
	p.has("shop: web 1.77 was published")
	for _, event := range []string{"artifact_published", "environment_created"} {
		_, err := p.notify.PutMine(t.Context(), user(), notify.NewSubscription{
			Name: "mine", Channel: "mail", Config: json.RawMessage(`{"events":["breach","` + event + `"]}`), Enabled: true,
		})
		p.wrong(err, "/config/events/1")
	}
}

// D62: what a route has matched is sent, whatever becomes of the route: it decides about what happens while it is switched on. A message
// that the channel has is updated until its rollout has ended.
func TestWhatARouteHasMatchedIsSentAfterItIsSwitchedOff(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]func(p postal, route, config string){
		"switched off": func(p postal, route, config string) {
			_, err := p.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: route, Channel: "team", Config: json.RawMessage(config)})
			p.ok(err)
		},
		"removed": func(p postal, route, _ string) {
			_, err := p.notify.RemoveRoute(t.Context(), user(), route, "not needed")
			p.ok(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := present(t).posting()
			p.later(p.now.Now().Truncate(time.Hour).Add(time.Hour).Sub(p.now.Now())) // digests are due at full hours
			p.channel("team", core.NotifySlack, bot, 60)
			p.route("z-other", "team", `{"events":["drift"]}`) // a channel without routes has what is sent by default
			const hourly, rollouts = `{"events":["agent_offline"],"digest_minutes":60}`, `{"events":["rollout_began"]}`
			p.route("hourly", "team", hourly)
			p.route("rollouts", "team", rollouts)
			p.post.answer = func(string) [4]string { return [4]string{"again", "", "the channel answered with status 503", "0"} }
			r := p.rollout(p.set)
			p.ok(p.fails(p.environment("lab", core.TierQA).ID))
			p.work()
			p.want(len(p.sent()), 1) // it failed, and waits; the digest waits for its hour
			off(p, "hourly", hourly)
			off(p, "rollouts", rollouts)
			p.post.answer = func(string) [4]string { return [4]string{"sent", "171.5", "", "0"} }
			p.ok(p.fails(p.environment("late", core.TierQA).ID)) // after that
			p.later(10 * time.Minute)
			p.want(len(p.sent()), 2)
			p.has("chat.postMessage", "began the rollout")
			p.succeed(r)
			p.later(time.Second)
			p.want(len(p.sent()), 3)
			p.has("chat.update", "completed")
			p.later(time.Hour)
			p.want(len(p.sent()), 4)
			p.has("lab: its agent is offline")
			p.want(strings.Contains(p.last(), "late"), false)
			p.want(len(p.messages(core.MessageFailed)), 0)
		})
	}
}

// D62: a channel that is switched off is sent nothing of what waits for it: that becomes a dead letter, which can be sent once it is on
// again.
func TestWhatWaitsForAChannelThatIsSwitchedOffIsADeadLetter(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 60)
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	put := func(enabled bool) {
		_, err := p.notify.PutChannel(t.Context(), user(), notify.NewChannel{
			Name: "team", Kind: core.NotifySlack, Config: json.RawMessage(bot), Rate: 60, Enabled: enabled,
		})
		p.ok(err)
	}
	for routed := false; !routed; { // and not sent
		w, _, err := p.notify.WorkDue(t.Context())
		p.ok(err)
		routed = w.Moment == core.MomentAgentOffline
	}
	put(false)
	p.work()
	dead := p.messages(core.MessageFailed)
	p.want(len(dead), 1)
	p.want(strings.Contains(dead[0].Error, "channel team was switched off by"), true)
	p.want(len(p.sent()), 0)
	put(true)
	_, err := p.notify.Retry(t.Context(), user(), dead[0].ID)
	p.ok(err)
	p.work()
	p.want(len(p.sent()), 1)
	p.has("lab: its agent is offline")
}
