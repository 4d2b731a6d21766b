package domain

import (
	"regexp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

var personalLink = regexp.MustCompile(`https://cd\.example\.com/answer#([A-Za-z0-9_-]+)`)

// R4-29, D63: a question that 10,000 members may answer is routed by the statements of one that ten may answer; each delivery costs the
// same as well, and has a signed link of its own.
func TestAQuestionToTenThousandCostsOneQuery(t *testing.T) {
	long(t)
	t.Parallel()
	m := subscribing(t)
	config := pgtest.As(t, m.db, role).Config()
	counted := &counting{}
	config.ConnConfig.Tracer = counted
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	m.ok(err)
	t.Cleanup(pool.Close)
	m.notify = notify.New(notify.Deps{
		Store: store.New(store.Deps{Pool: pool}).ForNotify(), Engine: m.post, Clock: m.now, URL: "https://cd.example.com", Sealer: keysetFile(t),
	})
	m.asking("", `"quorum":1`, "")
	next := func(what string, moment core.NotificationMoment) []string {
		t.Helper()
		for range 50 {
			counted.names = nil
			w, worked, err := m.notify.WorkDue(t.Context())
			m.ok(err)
			m.want(worked, true)
			if w.What == what && w.Moment == moment {
				return counted.names
			}
		}
		t.Fatalf("found nothing to %s", what)
		return nil
	}
	ask := func() (core.Rollout, []string) {
		r := m.begin(user())
		m.report(event.RolloutStarted{RolloutID: r.ID}, event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
		return r, next("route", core.MomentApprovalNeeded)
	}
	eligible := func(from, to int) {
		m.subscribers(from, to)
		_, err := m.pool.Exec(t.Context(), `UPDATE cd_members SET role = 'approver' WHERE name LIKE 'subscriber %'`)
		m.ok(err)
		_, err = m.pool.Exec(t.Context(), `UPDATE cd_notification_subscriptions SET involvement = 'may_approve'`)
		m.ok(err)
	}
	eligible(1, 10)
	r, few := ask()
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages`), 10)
	var sends [][]string
	for range 5 {
		sends = append(sends, next("send", ""))
	}
	_, err = m.cancel(r, rollout.CancelLeaves)
	m.ok(err)
	m.work()
	eligible(11, 10_000)
	_, many := ask()
	m.want(many, few)
	for _, one := range []string{"NotificationSubscribers", "GrantsByMember", "GroupsByMember", "AttachPersonalNotification"} {
		m.want(len(slices.DeleteFunc(slices.Clone(many), func(name string) bool { return name != one })), 1)
	}
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE state = 'pending'`), 10_000)
	before := len(m.post.order)
	for i := range 100 {
		if names := next("send", ""); i > 1 && !slices.Equal(names, sends[4]) {
			t.Fatalf("delivery %d: found %v; want %v", i, names, sends[4])
		}
	}
	links := map[string]bool{}
	for _, sent := range m.sent()[before:] {
		links[personalLink.FindStringSubmatch(sent)[1]] = true
	}
	m.want(len(links), 100)
}
