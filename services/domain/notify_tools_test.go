package domain

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/cdevents"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// flood stores so many moments of one artifact.
func (p postal) flood(many int) {
	p.t.Helper()
	var version int64
	p.ok(p.pool.QueryRow(p.t.Context(), `SELECT max(id) FROM cd_versions`).Scan(&version))
	_, err := p.pool.Exec(p.t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, subject_id, subject)
		SELECT $1, 'artifact_published', 'flood:' || i, $2, $2, $3, $4, 'x' FROM generate_series(1, $5::int) i`, org, p.now.Now(),
		p.application.ID, version, many)
	p.ok(err)
}

// busy is a shop whose channel for tools is sent so many messages a minute.
func busy(t *testing.T, rate int) postal {
	t.Helper()
	p := present(t).posting()
	p.notify = notify.New(notify.Deps{
		Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com", Events: cdevents.Writer{},
	})
	p.channel("tools", core.NotifyWebhook, `{"url":"https://hooks.example.com/cd","sign":["new","old"],"payload":"cdevents"}`, rate)
	return p
}

// published are the events about artifacts since a run, each once; it fails where one came twice.
func (p postal) published(since int) int {
	p.t.Helper()
	all, ids := p.events(since)
	seen := map[string]bool{}
	for i, one := range all {
		if !strings.HasPrefix(one, "artifact.published") || seen[ids[i]] {
			p.t.Errorf("found %s as %s; want an artifact, once", one, ids[i])
		}
		seen[ids[i]] = true
	}
	return len(seen)
}

// D62: no event about an artifact is lost, however many there are: what a channel may not be sent within a minute waits. So it is with a
// route that collects what happens.
func TestNoEventForToolsIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, route := range []string{forTools, strings.TrimSuffix(forTools, "}") + `,"digest_minutes":5}`} {
		p := busy(t, 20)
		p.route("tools", "tools", route)
		p.release(70)
		p.work()
		p.now.Advance(10 * time.Minute)
		p.work()
		before := len(p.post.order)
		p.flood(100)
		for range 10 {
			p.work()
			p.now.Advance(2 * time.Minute)
		}
		p.want(p.published(before), 100)
		p.want(len(p.messages(core.MessagePending)), 0)
	}
}

// D62: what people are asked is sent before the rest of a flood of artifacts is routed, also what is asked later.
func TestQuestionsDoNotWaitForThingsForTools(t *testing.T) {
	t.Parallel()
	p := busy(t, 20)
	p.route("tools", "tools", forTools)
	p.channel("team", core.NotifyWebhook, `{"url":"https://team.example.com"}`, 0)
	p.work()
	p.flood(300)
	p.now.Advance(time.Second)
	_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, subject)
		VALUES ($1, 'breach', 'asked', $2, $2, $3, 'x')`, org, p.now.Now(), p.application.ID)
	p.ok(err)
	sent := 0
	for range 20 { // much less than the flood has
		_, _, err := p.notify.WorkDue(t.Context())
		p.ok(err)
		if sent = p.countOf(`SELECT count(*) FROM cd_notification_messages m JOIN cd_notification_channels c ON c.id = m.channel_id
			WHERE c.name = 'team' AND m.state <> 'pending'`); sent > 0 {
			break
		}
	}
	p.want(sent, 1)
	p.want(p.countOf(`SELECT count(*) FROM cd_notifications WHERE routed_at IS NULL AND moment = 'artifact_published'`) >= 280, true)
}

// D62: what is done to environments is stored only while a route names it, as with artifacts: replicas of before would send it to all.
func TestEnvironmentsAreStoredWhileARouteNamesThem(t *testing.T) {
	t.Parallel()
	p := busy(t, 20)
	p.route("all", "tools", `{}`)
	stored := func() int {
		return p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = 'environment_changed'`)
	}
	change := func(owner string) {
		of := core.Detailed{Kind: core.ChangedEnvironment, ID: p.production.ID}
		p.ok(p.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{Of: of, Owner: &owner}))
	}
	change("web")
	p.want(stored(), 0)
	p.route("tools", "tools", `{"events":["environment_changed"]}`)
	change("shop")
	p.want(stored(), 1)
}
