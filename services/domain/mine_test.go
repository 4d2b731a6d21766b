package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// mine is a shop with a channel for members, who have signed in at an identity provider.
type mine struct{ postal }

const (
	mailbox = `{"url":"smtps://mail.example.com","from":"cd@example.com","personal":true}`
	direct  = `{"account":"slack-bot","workspace":"T1","personal":true}`
)

func subscribing(t *testing.T) mine {
	t.Helper()
	m := joined(t)
	m.channel("mail", core.NotifyEmail, mailbox, 0)
	return m
}

// joined is a shop whose user is its first member.
func joined(t *testing.T) mine {
	t.Helper()
	m := mine{notifying(t)}
	m.member("owner", core.RoleOwner, "")
	return m
}

// member is one who has signed in with an address; without one, the provider vouches for none.
func (m mine) member(name string, role core.Role, email string) core.Actor {
	m.t.Helper()
	made, err := m.access.CreateMember(m.t.Context(), user(), access.NewMember{Name: name, Kind: core.PrincipalUser, Role: role})
	m.ok(err)
	m.signIn(name, email)
	return core.Actor{Organization: org, Type: core.PrincipalUser, ID: made.ID, Name: name, Permissions: role.Permissions()}
}

func (m mine) signIn(name, email string) {
	m.t.Helper()
	_, _, err := m.access.StartIdentitySession(m.t.Context(), org, access.Identity{
		Issuer: "https://id.example.com", Subject: "sub-of-" + name, Name: name, NameIsVerified: true, Email: email,
	})
	m.ok(err)
}

func (m mine) subscribe(a core.Actor, name, channel, config string) {
	m.t.Helper()
	_, err := m.notify.PutMine(m.t.Context(), a, notify.NewSubscription{
		Name: name, Channel: channel, Config: json.RawMessage(config), Enabled: true,
	})
	m.ok(err)
}

// settle sends everything that is due, and takes up what became of it.
func (m mine) settle() {
	m.t.Helper()
	for range 3 {
		m.work()
		m.now.Advance(6 * time.Second)
	}
}

// received are the titles of what was sent to each address, in order.
func (m mine) received() map[string][]string {
	m.t.Helper()
	all := map[string][]string{}
	for _, s := range m.sent() {
		var in struct {
			Request struct {
				To      []string
				Subject string
				URL     string
				JSON    struct{ Channel, Text string }
			}
		}
		m.ok(json.Unmarshal([]byte(s), &in))
		to := strings.Join(in.Request.To, ",") + in.Request.JSON.Channel
		title, _, _ := strings.Cut(in.Request.Subject+in.Request.JSON.Text, "\n")
		all[to] = append(all[to], title)
	}
	return all
}

func (m mine) begin(a core.Actor) core.Rollout {
	m.t.Helper()
	r, err := m.rollouts.CreateRollout(m.t.Context(), a, rollout.NewRollout{VersionSetID: m.set.ID, Reason: "test", Again: true})
	m.ok(err)
	return *r.Rollout
}

// R4-29, D62: members receive what they have subscribed to, at their own address, and nobody else does.
func TestMembersReceiveWhatTheyHaveSubscribedTo(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	ann := m.member("ann", core.RoleDeployer, "ann@example.com")
	bob := m.member("bob", core.RoleViewer, "bob@example.com")
	cid := m.member("cid", core.RoleViewer, "cid@example.com")
	dan := m.member("dan", core.RoleViewer, "dan@example.com")
	m.environment("lab", core.TierQA)
	m.subscribe(ann, "begun", "mail", `{"only":"begun","application":"shop"}`)
	m.subscribe(bob, "production", "mail", `{"tiers":["production"],"events":["rollout_began"],"severities":["low"]}`)
	m.subscribe(cid, "elsewhere", "mail", `{"environment":"lab"}`)
	m.subscribe(cid, "b-high", "mail", `{"severities":["high"]}`)
	m.subscribe(dan, "off", "mail", `{}`)
	_, err := m.notify.PutMine(t.Context(), dan, notify.NewSubscription{Name: "off", Channel: "mail"})
	m.ok(err)
	m.succeed(m.begin(user()))
	m.settle()
	m.want(m.received(), map[string][]string{"bob@example.com": {"shop: rollout to " + m.set.Name + ", completed"}})
	m.succeed(m.begin(ann))
	m.settle()
	m.want(len(m.received()["ann@example.com"]), 1) // what happened meanwhile is one message
	m.want(len(m.messages("")), 0)                  // they are nobody else's
	own, err := m.notify.MyMessages(t.Context(), ann, 50)
	m.ok(err)
	m.want(len(own), 1)
	m.want([]any{own[0].State, own[0].MemberID}, []any{core.MessageSent, ann.ID})
	m.ok(m.fails(m.environment("desk", core.TierDevelopment).ID))
	m.settle()
	m.want(m.received()["cid@example.com"], []string{"desk: its agent is offline"})
	m.want(len(m.received()), 3)

	if last := m.sent()[len(m.sent())-1]; !strings.Contains(last, "https://cd.example.com/my-notifications") {
		t.Errorf("found %s; expected the page where it is changed", last)
	}
}

// D62: of two subscriptions that match one is sent, by name, and a digest is one message.
func TestASubscriptionCollectsADigest(t *testing.T) {
	t.Parallel()
	m := subscribing(t) // 2027-01-15 08:00 UTC
	ann := m.member("ann", core.RoleViewer, "ann@example.com")
	m.subscribe(ann, "a-daily", "mail", `{"digest_minutes":60,"severities":["low","normal"]}`)
	m.subscribe(ann, "b-all", "mail", `{"quiet":{"from":"07:00","to":"08:30","time_zone":"UTC"}}`)
	m.succeed(m.begin(user()))
	m.ok(m.fails(m.environment("desk", core.TierDevelopment).ID))
	m.settle()
	m.want(m.received()["ann@example.com"], []string{"desk: its agent is offline"})
	m.now.Advance(time.Hour)
	m.settle()
	m.want(m.received()["ann@example.com"], []string{"desk: its agent is offline", "Lockstep: 2 notifications"})
}

// D62, D63: those who want only questions that they may answer receive those, by the rules of approvals.
func TestQuestionsReachThoseWhoMayAnswerThem(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	m.group("release", 1)
	ann := m.member("ann", core.RoleMaintainer, "ann@example.com") // asks, and is in the group
	bob := m.member("bob", core.RoleApprover, "bob@example.com")   // is in the group
	cid := m.member("cid", core.RoleApprover, "cid@example.com")   // is in no group
	dan := m.member("dan", core.RoleViewer, "dan@example.com")     // may approve nothing
	eve := m.member("eve", core.RoleViewer, "eve@example.com")     // may, by a grant, in production
	fay := m.member("fay", core.RoleViewer, "fay@example.com")     // may, by a grant, elsewhere
	var group int64
	m.ok(m.pool.QueryRow(t.Context(), `SELECT id FROM cd_groups WHERE organization_id = $1 AND name = 'release'`, org).Scan(&group))
	_, err := m.access.SetGroupMembers(t.Context(), user(), group, []int64{ann.ID, bob.ID, dan.ID, eve.ID, fay.ID})
	m.ok(err)
	grant := func(to core.Actor, environment string) {
		_, err := m.pool.Exec(t.Context(), `INSERT INTO cd_grants (organization_id, member_id, permissions, environments)
			SELECT $1, $2, $3, array_agg(id) FROM cd_environments WHERE organization_id = $1 AND name = $4`,
			org, to.ID, int(core.MayApprove), environment)
		m.ok(err)
	}
	grant(eve, "production")
	grant(fay, "staging")
	for _, one := range []core.Actor{ann, bob, cid, dan, eve, fay} {
		m.subscribe(one, "asked", "mail", `{"only":"may_approve"}`)
	}
	m.asking("", `"group":"release"`, "")
	r := m.begin(ann)
	m.report(event.RolloutStarted{RolloutID: r.ID})
	m.settle()
	m.want(len(m.received()), 0) // that it began is no question
	m.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
	m.settle()
	var who []string
	for to := range m.received() {
		who = append(who, to)
	}
	slices.Sort(who)
	m.want(who, []string{"bob@example.com", "eve@example.com"})
}

// D62: those who take part in a rollout hear how it continues.
func TestWhoHasApprovedHearsHowItContinues(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	m.group("release", 1)
	ann := m.member("ann", core.RoleApprover, "ann@example.com")
	bob := m.member("bob", core.RoleApprover, "bob@example.com")
	m.subscribe(ann, "part", "mail", `{"only":"waiting","events":["rollout_completed"]}`)
	m.subscribe(bob, "part", "mail", `{"only":"waiting","events":["rollout_completed"]}`)
	m.asking("", `"quorum":1`, "")
	r := m.begin(user())
	m.report(event.RolloutStarted{RolloutID: r.ID})
	m.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
	m.ok(m.approve(ann, r, "production"))
	m.ok(m.ends(r))
	m.settle()
	m.want(m.received()["ann@example.com"] != nil, true)
	m.want(m.received()["bob@example.com"], []string(nil))
}

// ends stores that a rollout has completed.
func (m mine) ends(r core.Rollout) error {
	_, err := m.pool.Exec(m.t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, rollout_id)
		VALUES ($1, 'rollout_completed', 'end', $2, $2, $3)`, org, m.now.Now(), r.ID)
	return err
}

// R4-29: who has left, or whose address is not proved any more, receives nothing more, also of what is on its way.
func TestWhoHasLeftReceivesNothingMore(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	leave := map[string]func(core.Actor){
		"removed": func(a core.Actor) {
			_, err := m.access.RemoveMember(t.Context(), user(), a.ID)
			m.ok(err)
		},
		"unverified": func(a core.Actor) { m.signIn(a.Name, "") },
		"grouped": func(a core.Actor) { // is in no group any more that gives a role
			_, _, err := m.access.StartIdentitySession(t.Context(), org, access.Identity{
				Issuer: "https://id.example.com", Subject: "sub-of-" + a.Name, Name: a.Name, NameIsVerified: true, Email: a.Name + "@example.com",
				GroupsDecide: true,
			})
			if err == nil {
				t.Error("signed in without a role")
			}
		},
		"silent": func(a core.Actor) { // has not signed in for long
			_, err := m.pool.Exec(t.Context(), `UPDATE cd_notification_recipients SET verified_at = $2 WHERE member_id = $1`, a.ID, m.now.Now().Add(-91*24*time.Hour))
			m.ok(err)
		},
		"forged": func(a core.Actor) { // what no provider has written
			_, err := m.pool.Exec(t.Context(), `UPDATE cd_notification_recipients SET email = E'x@example.com\r\nBcc: y@example.com' WHERE member_id = $1`, a.ID)
			m.ok(err)
		},
	}
	all := map[string]core.Actor{}
	for name := range leave {
		all[name] = m.member(name, core.RoleViewer, name+"@example.com")
		m.subscribe(all[name], "all", "mail", `{}`)
	}
	m.ok(m.fails(m.environment("desk", core.TierDevelopment).ID))
	for range len(leave) + 1 { // routed, and one of the messages is being sent
		if _, worked, err := m.notify.WorkDue(t.Context()); err != nil || worked && len(m.sent()) > 0 {
			m.ok(err)
			break
		}
	}
	before := len(m.sent())
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE member_id IS NOT NULL`), len(leave))
	for name, do := range leave {
		do(all[name])
	}
	m.settle()
	m.ok(m.fails(m.environment("bench", core.TierDevelopment).ID))
	m.settle()
	m.want(len(m.sent()), before)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_subscriptions WHERE member_id = $1`, all["removed"].ID), 0)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_recipients WHERE member_id = $1`, all["removed"].ID), 0)
	m.signIn("silent", "silent@example.com")
	own, err := m.notify.MyMessages(t.Context(), all["silent"], 50)
	m.ok(err)
	m.want(own[0].State, core.MessageFailed)
	m.want(strings.Contains(own[0].Error, "not signed in"), true)
	_, err = m.notify.RetryMine(t.Context(), all["grouped"], own[0].ID)
	m.refusedAs(err, "does not exist") // another one's
	_, err = m.notify.Retry(t.Context(), user(), own[0].ID)
	m.refusedAs(err, "does not exist")
	_, err = m.notify.RetryMine(t.Context(), all["silent"], own[0].ID)
	m.ok(err)
	m.settle()
	m.want(len(m.sent()), before+1)
}

func (m mine) refusedAs(err error, text string) {
	m.t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		m.t.Errorf("found %v; expected %q", err, text)
	}
}

// D63: a personal channel in Slack writes to the account that the member has linked there, each time another message.
func TestADirectMessageGoesToTheLinkedAccount(t *testing.T) {
	t.Parallel()
	m := joined(t)
	m.channel("direct", core.NotifySlack, direct, 0)
	ann := m.member("ann", core.RoleApprover, "")
	bob := m.member("bob", core.RoleApprover, "")
	for workspace, a := range map[string]core.Actor{"T1": ann, "T2": bob} {
		_, err := m.pool.Exec(t.Context(), `INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at)
			VALUES ($1, 'slack', $2, $3, $4, $5, sha256('1'), now())`, org, workspace, "U"+a.Name, a.Name, a.ID)
		m.ok(err)
		m.subscribe(a, "all", "direct", `{"application":"shop"}`)
	}
	m.post.answer = func(string) [4]string { return [4]string{"sent", "171.5", "", "0"} }
	r := m.begin(user())
	m.settle()
	m.succeed(r)
	m.settle()
	m.want(len(m.received()["Uann"]), 2)
	m.want(len(m.received()), 1) // the account of another workspace is not written to
	for _, s := range m.sent() {
		if !strings.Contains(s, "chat.postMessage") || strings.Contains(s, `"ts":`) {
			t.Errorf("found %s; expected a message of its own", s)
		}
	}
	all, err := m.notify.MyChannels(t.Context(), bob)
	m.ok(err)
	m.want([]string{all[0].Name, all[0].Reaches}, []string{"direct", ""})
	m.want(strings.Contains(all[0].Problem, "T1"), true)
	if all, err = m.notify.MyChannels(t.Context(), ann); err != nil || all[0].Reaches != "ann" {
		t.Errorf("found %+v, %v; expected the account", all, err)
	}
	_, err = m.pool.Exec(t.Context(), `UPDATE cd_chat_accounts SET removed_at = now()`)
	m.ok(err)
	m.succeed(m.begin(user()))
	m.settle()
	m.want(len(m.received()["Uann"]), 2)
}

// D62: a member receives at most the rate of a channel within a minute, whatever others receive, and what is for a channel goes first.
func TestAFloodOfAMemberIsADigest(t *testing.T) {
	t.Parallel()
	m := joined(t)
	m.channel("mail", core.NotifyEmail, mailbox, 2)
	ann := m.member("ann", core.RoleViewer, "ann@example.com")
	bob := m.member("bob", core.RoleViewer, "bob@example.com")
	desk := m.environment("desk", core.TierDevelopment)
	m.subscribe(ann, "all", "mail", `{}`)
	m.subscribe(bob, "last", "mail", `{"environment":"desk"}`)
	for i := range 9 {
		m.ok(m.fails(m.environment(fmt.Sprintf("flood-%d", i), core.TierDevelopment).ID))
	}
	m.ok(m.fails(desk.ID))
	m.channel("team", core.NotifyWebhook, hook, 0)
	m.work()
	m.want(m.received()["ann@example.com"][1], "Lockstep: 9 notifications")
	m.want(len(m.received()["ann@example.com"]), 2)
	m.want(m.received()["bob@example.com"], []string{"desk: its agent is offline"})
	for i, s := range m.sent() {
		if i < 10 != strings.Contains(s, "hooks.example.com") {
			t.Fatalf("message %d: found %s; expected those of the channel first", i, s)
		}
	}
}

// D62: only people subscribe, for themselves, to channels that are for it; what cannot work is refused.
func TestSubscriptionsAreCheckedWhenTheyAreSaved(t *testing.T) {
	t.Parallel()
	m := subscribing(t)
	ann := m.member("ann", core.RoleViewer, "ann@example.com")
	m.channel("team", core.NotifyWebhook, hook, 0)
	for field, config := range map[string]string{
		"/config/only": `{"only":"mine"}`, "/config/application": `{"application":"nowhere"}`, "/config/environment": `{"environment":"nowhere"}`,
		"/config/expression": `{"expression":"true"}`, "/config/escalate": `{"escalate":[]}`, "/config/events/0": `{"events":["lunch"]}`,
		"/config/digest_minutes": `{"digest_minutes":-1}`, "/config": `{"tiers":["qa"` + strings.Repeat(`,"qa"`, 1000) + `]}`,
	} {
		_, err := m.notify.PutMine(t.Context(), ann, notify.NewSubscription{Name: "a", Channel: "mail", Config: json.RawMessage(config)})
		m.wrong(err, field)
	}
	_, err := m.notify.PutMine(t.Context(), ann, notify.NewSubscription{Name: "a", Channel: "team"})
	m.wrong(err, "/channel")
	_, err = m.notify.PutMine(t.Context(), ann, notify.NewSubscription{Name: "A", Channel: "mail"})
	m.wrong(err, "/name")
	machine := ann
	machine.Type = core.PrincipalAgent
	_, err = m.notify.PutMine(t.Context(), machine, notify.NewSubscription{Name: "a", Channel: "mail"})
	m.refusedAs(err, "is for people")
	for field, n := range map[string]notify.NewChannel{
		"/config/personal":  {Kind: core.NotifyEmail, Config: json.RawMessage(`{"url":"smtps://m","from":"a@b.c","to":["x@y.z"],"personal":true}`)},
		"/config/workspace": {Kind: core.NotifySlack, Config: json.RawMessage(`{"account":"bot","personal":true}`)},
		"/config/to":        {Kind: core.NotifyEmail, Config: json.RawMessage(`{"url":"smtps://m","from":"a@b.c"}`)},
	} {
		n.Name = "p"
		_, err := m.notify.PutChannel(t.Context(), user(), n)
		m.wrong(err, field)
	}
	_, err = m.notify.PutChannel(t.Context(), user(), notify.NewChannel{
		Name: "p", Kind: core.NotifyDiscord, Config: json.RawMessage(`{"account":"bot","personal":true}`),
	})
	m.wrong(err, "/config/personal")
	_, err = m.notify.PutRoute(t.Context(), user(), notify.NewRoute{Name: "r", Channel: "mail"})
	m.wrong(err, "/channel")
	_, err = m.notify.PutRoute(t.Context(), user(), notify.NewRoute{
		Name: "r", Channel: "team", Config: json.RawMessage(`{"escalate":[{"after_minutes":1,"channel":"mail"}]}`),
	})
	m.wrong(err, "/config/escalate/0/channel")
	for i := range 20 {
		m.subscribe(ann, fmt.Sprintf("s-%d", i), "mail", `{}`)
	}
	_, err = m.notify.PutMine(t.Context(), ann, notify.NewSubscription{Name: "more", Channel: "mail"})
	m.refused(err, "at most 20")
	removed, err := m.notify.RemoveMine(t.Context(), ann, "s-0")
	m.ok(err)
	m.want(removed.Name, "s-0")
	_, err = m.notify.RemoveMine(t.Context(), ann, "s-0")
	m.refusedAs(err, "no subscription")
	m.want(m.countOf(`SELECT count(*) FROM cd_changes WHERE principal_id = $1 AND action = 'putMyNotification' AND before IS NULL AND after IS NOT NULL`, ann.ID), 20)
	m.want(m.countOf(`SELECT count(*) FROM cd_changes WHERE principal_id = $1 AND action = 'removeMyNotification' AND after IS NULL`, ann.ID), 1)
	_, err = m.notify.RemoveChannel(t.Context(), user(), "mail", "")
	m.ok(err)
	left, err := m.notify.MySubscriptions(t.Context(), ann)
	m.ok(err)
	m.want(len(left), 0)
}

// counting counts the statements of transactions, by name.
type counting struct {
	mu    sync.Mutex
	names []string
}

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasPrefix(d.SQL, "-- name: ") {
		c.names = append(c.names, strings.Fields(d.SQL)[2])
	}
	return ctx
}
func (*counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counting) TraceBatchStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		c.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: q.SQL})
	}
	return ctx
}
func (*counting) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*counting) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// R4-29: 10,000 subscribers of one moment cost one query, and as many deliveries: the statements are those of ten.
func TestTenThousandSubscribersCostOneQuery(t *testing.T) {
	long(t)
	t.Parallel()
	m := subscribing(t)
	config := pgtest.As(t, m.db, role).Config()
	counted := &counting{}
	config.ConnConfig.Tracer = counted
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	m.ok(err)
	t.Cleanup(pool.Close)
	m.notify = notify.New(notify.Deps{Store: store.New(store.Deps{Pool: pool}).ForNotify(), Engine: m.post, Clock: m.now})
	route := func(environment string) []string {
		m.ok(m.fails(m.environment(environment, core.TierDevelopment).ID))
		for {
			counted.names = nil
			w, worked, err := m.notify.WorkDue(t.Context())
			m.ok(err)
			m.want([]any{w.What, worked}, []any{"route", true})
			if w.Moment == core.MomentAgentOffline { // not that the environment was created
				return counted.names
			}
		}
	}
	m.subscribers(1, 10)
	route("first") // which looks for credentials that expire, as others within an hour do not
	few := route("few")
	m.subscribers(11, 10_000)
	many := route("many")
	m.want(many, few)
	m.want(slices.Contains(few, "NotificationSubscribers"), true)
	m.want(m.countOf(`SELECT count(*) FROM cd_notification_messages WHERE member_id IS NOT NULL`), 10_020)
	m.want(m.countOf(`SELECT count(DISTINCT member_id) FROM cd_notification_messages WHERE member_id IS NOT NULL`), 10_000)
}

// subscribers adds members with a subscription to everything.
func (m mine) subscribers(from, to int) {
	m.t.Helper()
	_, err := m.pool.Exec(m.t.Context(), `WITH people AS (
			INSERT INTO cd_members (organization_id, name, kind, role)
			SELECT 1, 'subscriber ' || n, 'user', 'viewer' FROM generate_series($1::integer, $2::integer) n RETURNING id
		), reached AS (
			INSERT INTO cd_notification_recipients (organization_id, member_id, email, verified_at)
			SELECT 1, id, 'm' || id || '@example.com', now() FROM people RETURNING member_id
		)
		INSERT INTO cd_notification_subscriptions (organization_id, member_id, channel_id, name, moments, severities, tiers, involvement, config,
			enabled, changed_at)
		SELECT 1, member_id, 1, 'all', '{}', '{}', '{}', '', '{}', true, now() FROM reached`, from, to)
	m.ok(err)
}
