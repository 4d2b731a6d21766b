package domain

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

const slackCommands = `{"account":"slack-bot","target":"C1","answers":"slack-signing","commands":"slack-signing"}`

// ordered is what Slack sends when a user sends a slash command, signed with a secret at an instant.
func ordered(user, text, secret string, at time.Time) chat.Request {
	return signed([]byte(url.Values{
		"token": {"gIkuvaNzQIHg97ATvDxqgjtO"}, "team_id": {"T1"}, "team_domain": {"d"}, "channel_id": {"C9"}, "channel_name": {"random"},
		"user_id": {user}, "user_name": {"name-of-" + user}, "command": {"/lockstep"}, "text": {text}, "api_app_id": {"A1"},
		"is_enterprise_install": {"false"}, "response_url": {"https://hooks.slack.com/commands/T1/1/" + user}, "trigger_id": {"1.2." + user},
	}.Encode()), secret, at)
}

// order sends a command.
func (c *chatting) order(user, text string) chat.Taken {
	c.t.Helper()
	c.now.Advance(time.Second)
	return c.command(ordered(user, text, signing, c.now.Now()))
}

func (c *chatting) command(r chat.Request) chat.Taken {
	c.t.Helper()
	taken, err := c.chats.Command(c.t.Context(), r)
	c.ok(err)
	return taken
}

// linkByCommand links a chat account to a member, by the link that a command is answered with.
func (c *chatting) linkByCommand(user string, a core.Actor) {
	c.t.Helper()
	_, err := c.chats.Link(c.t.Context(), a, c.tokenIn(c.order(user, "status").Text))
	c.ok(err)
}

// expect fails unless a command has that outcome and those texts in its answer.
func (c *chatting) expect(taken chat.Taken, outcome string, want ...string) {
	c.t.Helper()
	if taken.Outcome != outcome {
		c.t.Errorf("found the outcome %s (%s); want %s", taken.Outcome, taken.Text, outcome)
	}
	for _, text := range want {
		if !strings.Contains(taken.Text, text) {
			c.t.Errorf("found %q; want %q in it", taken.Text, text)
		}
	}
}

// application is the name of the application of the test.
func (c *chatting) application() (name string) {
	c.t.Helper()
	c.ok(c.pool.QueryRow(c.t.Context(), `SELECT name FROM cd_applications WHERE organization_id = $1 AND id = $2`, org, c.rollout.ApplicationID).Scan(&name))
	return name
}

// maintains makes a member a maintainer, who may freeze.
func (c *chatting) maintains(member int64) {
	c.t.Helper()
	_, err := c.pool.Exec(c.t.Context(), `UPDATE cd_members SET role = 'maintainer' WHERE id = $1`, member)
	c.ok(err)
}

func (c *chatting) question() int64 { return c.gates(c.rollout)["production"].RequestID }

// D63: a command shows what is so, and answers a question that it has shown, as the member who has linked the account.
func TestACommandAnswers(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	app := c.application()
	first := c.order("U7", "status")
	c.want(first.Outcome, "unlinked")
	c.want(strings.Contains(first.Text, "send the command again"), true)
	_, err := c.chats.Link(t.Context(), person(7), c.tokenIn(first.Text))
	c.ok(err)
	c.expect(c.order("U7", ""), "answered", "/lockstep approve APPLICATION NUMBER")
	c.expect(c.order("U7", "status"), "answered", app, fmt.Sprintf("rollout_%d", c.rollout.ID), "in progress")
	c.expect(c.order("U7", "status "+app), "answered", "production", "nothing yet", fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", c.rollout.ID))
	c.expect(c.order("U7", "WHY  "+app), "answered", `gate "production" asks for approval`, `in the group "release"`)
	shown := c.order("U7", "approve "+app)
	c.expect(shown, "answered", "brings", fmt.Sprintf("/lockstep approve %s %d", app, c.question()))
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0) // looking decides nothing
	taken := c.order("U7", fmt.Sprintf("approve %s %d looks good", app, c.question()))
	c.expect(taken, "answered", "You approved production of", "as person-7.")
	c.want(taken.Member, int64(7))
	c.want(len(c.gates(c.rollout)), 0)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'approve' AND principal_id = 7
		AND reason = 'approved in Slack (channel team) as name-of-U7: looks good'`), 1)
	c.expect(c.order("U7", "approve "+app), "refused", "asks for no approval now")
	c.work()
	last := c.sent()[len(c.sent())-1]
	c.want(strings.Contains(last, "person-7 approved production"), true) // the message with the question shows it, too
	c.want(c.chats.CommandCounts()["answered"], int64(6))
	c.want(c.chats.Counts()["answered"], int64(0))
}

// D63: the rules are those of the console: the group, different people, not the requester, the rights of the moment, and the question that
// was shown.
func TestACommandFollowsTheRulesOfTheConsole(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release","quorum":2,"requester_may_approve":false`)
	app, question := c.application(), c.question()
	for user, id := range map[string]int64{"U1": 1, "U7": 7, "U8": 8, "U9": 9} {
		c.linkByCommand(user, person(id))
	}
	_, err := c.access.SetGroupMembers(t.Context(), user(), c.groupID("release"), []int64{1, 7, 8})
	c.ok(err)
	approve := fmt.Sprintf("approve %s %d", app, question)
	c.expect(c.order("U9", approve), "refused", `for the group "release" to answer`)
	c.expect(c.order("U1", approve), "refused", "so someone else must approve")
	c.expect(c.order("U7", fmt.Sprintf("approve %s %d", app, question+1)), "refused", "no question of "+app+" that is open now")
	c.expect(c.order("U7", "approve "+app+" production"), "refused", "no question of")
	c.expect(c.order("U7", approve), "answered")
	c.expect(c.order("U7", approve), "refused", "has approved gate")
	_, err = c.access.SetMemberRole(t.Context(), user(), 8, core.RoleViewer)
	c.ok(err)
	c.expect(c.order("U8", approve), "refused", `needs the permission "approve"`)
	c.expect(c.order("U8", "why "+app), "answered", "asks for approval, and has 1 of 2")
	_, err = c.access.SetMemberRole(t.Context(), user(), 8, core.RoleApprover)
	c.ok(err)
	c.expect(c.order("U8", fmt.Sprintf("reject %s %d too early", app, question)), "answered", "You rejected production")
	c.want(c.reload(c.rollout).State, core.RolloutCancelled)
	c.expect(c.order("U8", approve), "refused", "no rollout of "+app+" is under way")
	for text, want := range map[string]string{
		"why": "found no application", "why nothing": "nothing", "dance " + app: `expected one of status, why`, "freeze " + app: "found 1 words after freeze",
		"freeze " + app + " soon why": "expected how long", "freeze " + app + " 0d why": "expected how long", "freeze " + app + " 31d why": "at most 30 days",
		"freeze " + app + " 1h " + strings.Repeat("x", core.MaxReason): "expected at most 1000", strings.Repeat("x", 2001): "found a command of 2001 bytes",
	} {
		c.expect(c.order("U1", text), "refused", "Nothing was done", want)
	}
}

// D63: who may freeze does so from a chat, and the journal has through which channel.
func TestACommandFreezes(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	app := c.application()
	c.maintains(1)
	c.linkByCommand("U1", user())
	c.linkByCommand("U7", person(7).LimitedTo(core.RoleApprover.Permissions()))
	c.expect(c.order("U1", "freeze "+app+" 2h payment incident"), "answered", "stops the rollouts of "+app)
	c.expect(c.order("U1", "freeze --all 3d <!channel> holiday"), "answered", "stops the rollouts of all applications")
	c.want(c.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'startFreeze' AND principal_id = 1
		AND reason = 'payment incident (in Slack (channel team) as name-of-U1)'`), 1)
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes WHERE ends_at - starts_at = interval '3 days'`), 1)
	_, err := c.access.SetMemberRole(t.Context(), user(), 7, core.RoleApprover)
	c.ok(err)
	c.expect(c.order("U7", "freeze "+app+" 2h mine"), "refused", `needs the permission "freeze"`)
	why := c.order("U7", "why "+app)
	if text, _ := why.Message()["text"].(string); text == "" || strings.Contains(text, "<!channel>") {
		t.Errorf("a reason mentions everybody: %s", text)
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes`), 2)
}

// D63: an account is good for what that was good for which linked it: a token does not become more by a chat.
func TestAnAccountIsGoodForWhatLinkedIt(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	app := c.application()
	approve := fmt.Sprintf("approve %s %d", app, c.question())
	c.linkByCommand("U7", person(7).LimitedTo(core.PermissionsOf(core.MayRead)))
	c.expect(c.order("U7", "status "+app), "answered")
	again := c.order("U7", approve)
	c.expect(again, "unlinked", `were not signed in with the permission "approve"`)
	c.expect(c.press("U7", "approve"), "unlinked", `were not signed in with the permission "approve"`)
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0)
	_, err := c.chats.Link(t.Context(), person(7).LimitedTo(core.PermissionsOf(core.MayRead, core.MayApprove)), c.tokenIn(again.Text))
	c.ok(err)
	c.expect(c.order("U7", "freeze "+app+" 2h why"), "unlinked", `were not signed in with the permission "freeze"`)
	c.expect(c.order("U7", approve), "answered")
	// Accounts of before this was kept are good for what they were good for: to read and to approve.
	_, err = c.pool.Exec(t.Context(), `INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, linked_at)
		SELECT organization_id, kind, workspace, 'U8', 'old', 8, key_digest, linked_at FROM cd_chat_accounts WHERE removed_at IS NULL AND
			member_id = 7`)
	c.ok(err)
	c.expect(c.order("U8", "approve "+app), "refused", "asks for no approval now")
	c.expect(c.order("U8", "freeze "+app+" 2h why"), "unlinked")
}

// D63: what no chat server has proved is performed by nobody, and says nothing of what exists.
func TestForgedCommandsAreRefused(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.channel("buttons", core.NotifySlack, slackBot, 0)
	c.linkByCommand("U7", person(7))
	c.now.Advance(time.Minute)
	now := c.now.Now()
	text := fmt.Sprintf("approve %s %d", c.application(), c.question())
	good := ordered("U7", text, signing, now)
	for name, change := range map[string]func(r *chat.Request){
		"another secret":   func(r *chat.Request) { *r = ordered("U7", text, strings.Repeat("x", 32), now) },
		"no secret":        func(r *chat.Request) { *r = ordered("U7", text, "", now) },
		"no signature":     func(r *chat.Request) { r.Signature = "" },
		"half a signature": func(r *chat.Request) { r.Signature = r.Signature[:20] },
		"expired":          func(r *chat.Request) { *r = ordered("U7", text, signing, now.Add(-5*time.Minute-time.Second)) },
		"from the future":  func(r *chat.Request) { *r = ordered("U7", text, signing, now.Add(5*time.Minute+time.Second)) },
		"a later time":     func(r *chat.Request) { r.Timestamp = fmt.Sprint(now.Unix() + 1) },
		"another identity": func(r *chat.Request) { r.Body = []byte(strings.ReplaceAll(string(r.Body), "U7", "U8")) },
		"another command":  func(r *chat.Request) { r.Body = []byte(strings.ReplaceAll(string(r.Body), "approve", "reject")) },
		"more than was signed": func(r *chat.Request) {
			r.Body = append(r.Body, "&user_id=U8"...)
		},
		"another organization":       func(r *chat.Request) { r.Organization = 2 },
		"an organization of nobody":  func(r *chat.Request) { r.Organization = 99 },
		"a channel of nobody":        func(r *chat.Request) { r.Channel = "nowhere" },
		"a channel without commands": func(r *chat.Request) { r.Channel = "buttons" },
		"Mattermost's token":         func(r *chat.Request) { r.Body, r.Signature = []byte("command=/lockstep&token="+signing), "" },
	} {
		r := good
		r.Body = slices.Clone(good.Body)
		change(&r)
		taken, err := c.chats.Command(t.Context(), r)
		if !fault.Is(err, fault.Unauthenticated) || taken.Text != "" || !strings.Contains(fault.Public(err), "found no proof of a chat server") {
			t.Errorf("%s: found %+v, %v; want that it is refused like everything else", name, taken, err)
		}
	}
	// A signed request that is no command does nothing, and one that says two things neither.
	for body, want := range map[string]string{
		"ssl_check=1&token=x": "", "command=%2Flockstep&user_id=U7&user_id=U8&team_id=T1&text=" + url.QueryEscape(text): "found user_id twice",
		"command=/lockstep&text=why&team_id=T1": "found no user", string(c.pressed("U7", "approve", c.value(), signing, now).Body): "",
	} {
		taken, err := c.chats.Command(t.Context(), signed([]byte(body), signing, now))
		if want == "" && (err != nil || taken.Outcome != "ignored") || want != "" && !strings.Contains(fault.Public(err), want) {
			t.Errorf("%s: found %+v, %v; want %q", body, taken, err, want)
		}
	}
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0)
	c.want(c.command(good).Outcome, "answered")
}

// D63: a command that comes twice, also at once or at the address of another channel, is performed once.
func TestACommandIsTakenOnce(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.channel("other", core.NotifySlack, slackCommands, 0)
	c.maintains(1)
	c.linkByCommand("U1", user())
	c.now.Advance(time.Second)
	r := ordered("U1", "freeze --all 2h incident", signing, c.now.Now())
	var wait sync.WaitGroup
	outcomes := make(chan string, 6)
	for i := range 6 {
		wait.Go(func() {
			one := r
			one.Channel = []string{"team", "other"}[i%2]
			taken, err := c.chats.Command(t.Context(), one)
			if err != nil {
				t.Error(err)
			}
			outcomes <- taken.Outcome
		})
	}
	wait.Wait()
	close(outcomes)
	got := map[string]int{}
	for o := range outcomes {
		got[o]++
	}
	c.want(got, map[string]int{"answered": 1, "repeated": 5})
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes`), 1)
}

// D63: a process that is killed at any statement while it performs a command performs it at most once, however often it comes.
func TestACommandSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.maintains(1)
	c.linkByCommand("U1", user())
	mortal, died := c.mortal(c.now)
	deps := c.chats.Deps
	deps.Store, deps.Freezes, deps.View = mortal.store.ForChat(), mortal.freezes, mortal.view
	taker := chat.New(deps)
	lost := 0
	for n := int64(2); ; n++ {
		c.now.Advance(3 * time.Second)
		r := ordered("U1", fmt.Sprintf("freeze %s 2h incident-%d", c.application(), n), signing, c.now.Now())
		died.left.Store(n)
		_, err := taker.Command(t.Context(), r)
		through := died.left.Load() > 1
		died.left.Store(0)
		again, repeated := taker.Command(t.Context(), r)
		c.ok(repeated)
		made := c.countOf(`SELECT count(*) FROM cd_freezes WHERE reason LIKE $1`, fmt.Sprintf("incident-%d %%", n))
		if made > 1 || made == 0 && again.Outcome == "answered" {
			t.Fatalf("found %d freezes after a kill at statement %d, %s; want one at most", made, n, again.Outcome)
		}
		if lost += 1 - made; err == nil && through {
			break
		}
		if n == 200 {
			t.Fatalf("the command does not get through: %v", err)
		}
	}
	if lost == 0 {
		t.Error("no kill was between the two transactions")
	}
}

// D63: who has left gets no answers by commands, neither do machines, and nobody who sends very many.
func TestACommandOfNobody(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.linkByCommand("U7", person(7))
	c.linkByCommand("U8", person(8))
	_, err := c.access.RemoveMember(t.Context(), user(), 7)
	c.ok(err)
	approve := fmt.Sprintf("approve %s %d", c.application(), c.question())
	for _, text := range []string{"status", "why " + c.application(), approve, "freeze --all 2h x"} {
		taken := c.order("U7", text)
		c.expect(taken, "unlinked", "has left Lockstep")
		c.want(strings.Contains(taken.Text, c.application()), false)
	}
	_, err = c.pool.Exec(t.Context(), `UPDATE cd_members SET kind = 'agent' WHERE id = 8`)
	c.ok(err)
	c.expect(c.order("U8", approve), "unlinked", "Machines do not answer")
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0)
	c.now.Advance(time.Hour)
	for i := range 32 {
		c.now.Advance(time.Millisecond)
		r := signed(append(ordered("U9", "status", signing, c.now.Now()).Body, fmt.Appendf(nil, "&n=%d", i)...), signing, c.now.Now())
		if taken := c.command(r); i == 31 {
			c.expect(taken, "refused", "more than 30 commands within a minute")
		}
	}
	c.now.Advance(time.Minute + time.Second)
	c.expect(c.order("U9", "status"), "unlinked")
}

// D63: what others have written is text in an answer, and nothing that the chat acts on.
func TestAnswersToCommandsAreEscaped(t *testing.T) {
	t.Parallel()
	for kind, want := range map[core.NotificationKind]string{
		core.NotifySlack: "&lt;!channel&gt; *x* &amp;", core.NotifyMattermost: `\<\!channel\> \*x\* &`,
	} {
		if got := notify.Markup(kind, "<!channel> *x* &"); got != want {
			t.Errorf("%s: found %q; want %q", kind, got, want)
		}
	}
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.maintains(1)
	c.linkByCommand("U1", user())
	taken := c.order("U1", "why <https://evil.example|shop>\n<@U8>")
	c.expect(taken, "refused", "<https://evil.example|shop>")
	text, _ := taken.Message()["text"].(string)
	c.want([]any{strings.Contains(text, "&lt;https://evil.example|shop&gt;"), strings.ContainsAny(text, "<>")}, []any{true, false})
}

const mattermostCommands = `{"url":"https://chat.example.com","account":"bot","target":"C1","answers":"slack-signing","commands":"mattermost-command"}`

// D63: Mattermost proves a command by its token, which is another secret than that of the buttons: an account is linked by each, and has
// both.
func TestACommandInMattermostAnswers(t *testing.T) {
	t.Parallel()
	const token = "xr3j5x3p4pfk7kk6ck7b4e6ghh"
	c := chats(t, core.NotifyMattermost, `{"url":"https://chat.example.com","account":"bot","target":"C1","answers":"slack-signing"}`, `"group":"release"`)
	c.secret(user(), "mattermost-command", token)
	c.channel("team", core.NotifyMattermost, mattermostCommands, 0)
	n := 0
	order := func(user, text, token string, at time.Time) chat.Request {
		n++
		trigger := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "id%d:%s:%d:c2ln", n, user, at.UnixMilli()))
		return chat.Request{Organization: org, Channel: "team", Body: []byte(url.Values{
			"token": {token}, "team_id": {"t"}, "team_domain": {"d"}, "channel_id": {"c"}, "channel_name": {"town-square"}, "user_id": {user},
			"user_name": {"bob"}, "command": {"/lockstep"}, "text": {text}, "trigger_id": {trigger}, "response_url": {"https://chat.example.com/hooks/x"},
		}.Encode())}
	}
	now := c.now.Now
	first := c.command(order("u7", "status", token, now()))
	c.want(first.Outcome, "unlinked")
	_, err := c.chats.Link(t.Context(), person(7), c.tokenIn(first.Text))
	c.ok(err)
	app := c.application()
	c.expect(c.command(order("u7", "why "+app, token, now())), "answered", "asks for approval")
	for name, r := range map[string]chat.Request{
		"no token": order("u7", "why "+app, "", now()), "another token": order("u7", "why "+app, token+"x", now()),
		"the secret of the buttons": order("u7", "why "+app, signing, now()), "expired": order("u7", "why "+app, token, now().Add(-6*time.Minute)),
		"another's trigger": func() chat.Request {
			r := order("u8", "why "+app, token, now())
			r.Body = []byte(strings.ReplaceAll(string(r.Body), "user_id=u8", "user_id=u7"))
			return r
		}(),
		"two tokens": {Organization: org, Channel: "team", Body: append(order("u7", "why "+app, "x", now()).Body, "&token="+token...)},
		"JSON":       {Organization: org, Channel: "team", Body: []byte(`{"token":"` + token + `","command":"/lockstep"}`)},
	} {
		if taken, err := c.chats.Command(t.Context(), r); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: found %+v, %v; want that it is refused", name, taken, err)
		}
	}
	// A button has another secret, so the account is linked by it as well, and is good for both then.
	n++
	value := c.value()
	press := func() chat.Request {
		n++
		return chat.Request{Organization: org, Channel: "team", Body: fmt.Appendf(nil, `{"user_id":"u7","user_name":"bob","channel_id":"C1",
			"post_id":"171.5","trigger_id":"trigger-%d","context":{"token":%q,"decision":"approve","question":%q}}`, n, signing, value)}
	}
	pressed := c.take(press())
	c.want(pressed.Outcome, "unlinked")
	_, err = c.chats.Link(t.Context(), person(7), c.tokenIn(pressed.Text))
	c.ok(err)
	c.expect(c.command(order("u7", "why "+app, token, now())), "answered")
	approve := order("u7", fmt.Sprintf("approve %s %d", app, c.question()), token, now())
	c.expect(c.command(approve), "answered", "You approved production")
	c.expect(c.command(approve), "repeated")
	c.expect(c.take(press()), "refused", "not open any more")
	// Another token has proved nothing yet.
	_, err = c.credentials.Rotate(t.Context(), user(), "mattermost-command", credential.NewValue{Value: credential.Value(strings.Repeat("n", 26))})
	c.ok(err)
	other := c.command(order("u7", "status", strings.Repeat("n", 26), now()))
	c.expect(other, "unlinked", "was replaced since you linked")
	_, err = c.chats.Link(t.Context(), person(7), c.tokenIn(other.Text))
	c.ok(err)
	c.expect(c.command(order("u7", "status", strings.Repeat("n", 26), now())), "answered")
	c.expect(c.take(press()), "refused", "not open any more") // the account has the secret of the buttons still
	_, err = c.credentials.Rotate(t.Context(), user(), "mattermost-command", credential.NewValue{Value: credential.Value(token)})
	c.ok(err)
	c.expect(c.command(order("u7", "status", token, now())), "unlinked") // and the first token is good for nothing
}

// D63: over HTTP: what a command is answered with is for its user alone, and those who prove nothing are slowed down.
func TestTheAddressOfCommands(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.linkByCommand("U7", person(7))
	handler := func(chats api.Chats) http.Handler {
		return api.NewHandler(api.Deps{
			GraphQL: http.NotFoundHandler(), Console: http.NotFoundHandler(), Access: c.access, Clock: c.now, Chats: chats,
			Log: slog.New(slog.DiscardHandler),
		})
	}
	send := func(chats api.Chats, path string, r chat.Request) (int, map[string]string) {
		t.Helper()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(string(r.Body)))
		request.Header.Set("X-Slack-Request-Timestamp", r.Timestamp)
		request.Header.Set("X-Slack-Signature", r.Signature)
		w := httptest.NewRecorder()
		handler(chats).ServeHTTP(w, request)
		answer := map[string]string{}
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		return w.Code, answer
	}
	c.now.Advance(time.Second)
	good := ordered("U7", "status", signing, c.now.Now())
	code, answer := send(c.chats, "/chat/organization_1/team/command", good)
	c.want([]any{code, answer["response_type"], strings.Contains(answer["text"], "is in progress")}, []any{200, "ephemeral", true})
	for _, path := range []string{"/chat/organization_2/team/command", "/chat/organization_1/nowhere/command", "/chat/x/team/command"} {
		if code, answer := send(c.chats, path, good); code != 401 || answer["text"] != "" {
			t.Errorf("%s: found %d %v; want 401", path, code, answer)
		}
	}
	code, _ = send(c.chats, "/chat/organization_1/team", good) // a command is no press
	c.want(code, 400)
	code, _ = send(c.chats, "/chat/organization_1/team/command", signed([]byte(strings.Repeat("x", chat.MaxBody+1)), signing, c.now.Now()))
	c.want(code, 413)
	deps := c.chats.Deps
	deps.View = noView{deps.View}
	c.now.Advance(time.Second)
	unavailable := chat.New(deps)
	code, answer = send(unavailable, "/chat/organization_1/team/command", ordered("U7", "status "+c.application(), signing, c.now.Now()))
	c.want([]any{code, answer["response_type"], strings.Contains(answer["text"], "could not answer in time")}, []any{200, "ephemeral", true})
	c.want(unavailable.CommandCounts(), map[string]int64{"answered": 0, "refused": 0, "unlinked": 0, "repeated": 0, "unproved": 0, "failed": 1})
}

// noView is a view that does not answer.
type noView struct{ chat.View }

func (noView) ApplicationByName(context.Context, int64, string) (core.Application, error) {
	return core.Application{}, fault.New(fault.Unavailable, "the database does not answer")
}

// D63: a channel whose commands could not work is refused when it is saved.
func TestChannelsWithCommandsAreChecked(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.secret(user(), "short", "hunter2")
	c.secret(user(), "token", strings.Repeat("t", 26))
	for _, one := range []struct {
		kind         core.NotificationKind
		config, want string
	}{
		{core.NotifySlack, `{"account":"b","commands":"slack-signing"}`, "without target"},
		{core.NotifySlack, `{"account":"b","target":"C1","commands":"unknown"}`, "has no credential"},
		{core.NotifySlack, `{"account":"b","target":"C1","commands":"token"}`, "found a secret of 26 bytes; expected at least 32"},
		{core.NotifyMattermost, `{"url":"https://chat.example.com","account":"b","target":"C1","commands":"short"}`, "found a secret of 7 bytes; expected at least 26"},
		{core.NotifySlack, `{"account":"b","target":"C1","commands":"https://hooks/x"}`, "no name of a credential"},
	} {
		_, err := c.notify.PutChannel(t.Context(), user(), notify.NewChannel{Name: "x", Kind: one.kind, Config: json.RawMessage(one.config), Enabled: true})
		c.wrong(err, "/config/commands")
		if err == nil || !strings.Contains(fault.FieldsOf(err)[0].Problem, one.want) {
			t.Errorf("%s: found %v; want %q", one.config, err, one.want)
		}
	}
	_, err := c.notify.PutChannel(t.Context(), user(), notify.NewChannel{
		Name: "y", Kind: core.NotifyMattermost, Config: json.RawMessage(`{"url":"https://chat.example.com","account":"b","target":"C1","commands":"token"}`),
	})
	c.ok(err)
}

// R4-09, D63: who may deploy begins a rollout from a chat, of a version set that was shown, and the journal has through which channel.
func TestACommandBeginsARollout(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	app := c.application()
	sets, err := c.view.NewestVersionSets(t.Context(), org, []int64{c.rollout.ApplicationID})
	c.ok(err)
	set := sets[c.rollout.ApplicationID]
	c.maintains(1)
	c.linkByCommand("U1", user())
	c.linkByCommand("U7", person(7).LimitedTo(core.PermissionsOf(core.MayRead, core.MayApprove)))
	c.linkByCommand("U8", person(8).LimitedTo(core.PermissionsOf(core.MayRead, core.MayApprove)))
	_, err = c.access.SetMemberRole(t.Context(), user(), 8, core.RoleApprover)
	c.ok(err)
	before := c.countOf(`SELECT count(*) FROM cd_rollouts`)
	c.expect(c.order("U8", "rollout "+app+" "+set.Name), "refused", `needs the permission "deploy"`) // linking again would not help
	c.expect(c.order("U1", "rollout "+app), "answered", set.Name+" is the newest of "+app, "/lockstep rollout "+app+" "+set.Name)
	c.expect(c.order("U7", "rollout "+app+" "+set.Name), "unlinked", `were not signed in with the permission "deploy"`)
	c.expect(c.order("U1", "rollout "+app+" set-99"), "refused", "expected one of the")
	c.expect(c.order("U1", "rollout nothing"), "refused", "nothing")
	c.want(c.countOf(`SELECT count(*) FROM cd_rollouts`), before)
	_, err = c.rollouts.CancelRollout(t.Context(), user(), c.rollout.ID, "room")
	c.ok(err)
	begun := c.order("U1", "rollout "+app+" "+set.Name+" for the <!channel> demo")
	c.expect(begun, "answered", "You began rollout_", "of "+app+" with "+set.Name)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollouts`), before+1)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'create' AND principal_id = 1
		AND reason = 'asked for in Slack (channel team) as name-of-U1: for the <!channel> demo'`), 1)
	again := c.order("U1", fmt.Sprintf("rollout %s versionset_%d", app, set.ID))
	if again.Outcome != "refused" && !strings.Contains(again.Text, "waits for its turn") {
		t.Errorf("found %s: %s; want one rollout at a time", again.Outcome, again.Text)
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_rollouts`), before+1)
}

// R4-09: a rollout that is begun from a chat takes the inputs of the pipeline; without those that it requires, the answer says how to give
// them.
func TestACommandGivesInputs(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	app := c.application()
	sets, err := c.view.NewestVersionSets(t.Context(), org, []int64{c.rollout.ApplicationID})
	c.ok(err)
	c.maintains(1)
	c.linkByCommand("U1", user())
	_, err = c.rollouts.CancelRollout(t.Context(), user(), c.rollout.ID, "room")
	c.ok(err)
	c.weighted(regionInputs)
	begin := "rollout " + app + " " + sets[c.rollout.ApplicationID].Name
	c.expect(c.order("U1", begin), "refused", "region", "/lockstep "+begin+" region=eu count=2")
	c.expect(c.order("U1", begin+" region=moon"), "refused", "region", "region=eu count=2")
	c.expect(c.order("U1", begin+" region=us count=3 the demo=fine"), "answered", "You began rollout_")
	c.want(c.countOf(`SELECT count(*) FROM cd_rollouts WHERE inputs = '{"region":"us","count":3}'`), 1)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'create' AND reason LIKE '%: the demo=fine%'`), 1)
}
