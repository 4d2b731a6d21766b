package domain

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// signing is the secret of the chat servers of these tests.
const signing = "8f742231b10e8888abcd99yyyzzz85a5"

// chatting is a shop with a channel whose messages have buttons, and a question that is open.
type chatting struct {
	postal
	rollout core.Rollout
	chats   *chat.UseCases
	mu      sync.Mutex
	// replies are what Slack was to show to those who pressed, with where.
	replies [][2]string
}

const slackBot = `{"account":"slack-bot","target":"C1","answers":"slack-signing"}`

func chats(t *testing.T, kind core.NotificationKind, config, entry string) *chatting {
	t.Helper()
	c := &chatting{postal: notifying(t)}
	sealer := keysetFile(t)
	secrets := credential.New(credential.Deps{Store: c.store.ForCredential(), Sealer: sealer, Clock: c.now})
	c.credentials = secrets
	c.notify = notify.New(notify.Deps{
		Store: c.store.ForNotify(), Engine: c.post, Clock: c.now, URL: "https://cd.example.com", Sealer: sealer, Secrets: secrets,
	})
	c.chats = chat.New(chat.Deps{
		Store: c.store.ForChat(), Rollouts: c.rollouts, Calls: c.policies, Freezes: c.freezes, View: c.view, Secrets: secrets, Sealer: sealer,
		Clock: c.now,
		URL:   "https://cd.example.com", Reply: func(_ context.Context, to string, t chat.Taken) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.replies = append(c.replies, [2]string{to, t.Text})
		},
	})
	c.secret(user(), "slack-signing", signing)
	c.group("release", 2)
	c.people(7, 8, 9)
	_, err := c.access.SetGroupMembers(t.Context(), user(), c.groupID("release"), []int64{7, 8})
	c.ok(err)
	c.asking("", entry, "")
	c.channel("team", kind, config, 0)
	c.route("questions", "team", `{"events":["approval_needed","call_requested"]}`)
	c.post.answer = func(string) [4]string { return [4]string{"sent", "171.5", "", "0"} }
	c.rollout = c.postal.rollout(c.set)
	c.report(event.RolloutStarted{RolloutID: c.rollout.ID}, event.ApprovalRequested{RolloutID: c.rollout.ID, GateID: "production"})
	c.work()
	return c
}

func (c *chatting) secret(a core.Actor, name, value string) {
	c.t.Helper()
	_, err := c.credentials.Create(c.t.Context(), a, credential.NewCredential{
		Terms:    sealing.Terms{Name: name, Kind: sealing.HTTP, URLPrefixes: []string{"https://slack.com/", "https://chat.example.com/"}},
		NewValue: credential.NewValue{Value: credential.Value(value)},
	})
	c.ok(err)
}

func (c *chatting) groupID(name string) (id int64) {
	c.t.Helper()
	c.ok(c.pool.QueryRow(c.t.Context(), `SELECT id FROM cd_groups WHERE organization_id = $1 AND name = $2`, org, name).Scan(&id))
	return id
}

// value is what the buttons of the open question carry.
func (c *chatting) value() string {
	return fmt.Sprintf("1:%d:gate", c.gates(c.rollout)["production"].RequestID)
}

// pressed is what Slack sends when a user presses a button, signed with a secret at an instant.
func (c *chatting) pressed(user, action, value, secret string, at time.Time) chat.Request {
	c.t.Helper()
	payload, err := json.Marshal(map[string]any{
		"type": "block_actions", "api_app_id": "A1", "token": "x", "trigger_id": "1.2." + user,
		"user": map[string]any{"id": user, "username": "name-of-" + user, "name": "name", "team_id": "T1"}, "team": map[string]any{"id": "T1", "domain": "d"},
		"container":    map[string]any{"type": "message", "message_ts": "171.5", "channel_id": "C1"},
		"channel":      map[string]any{"id": "C1", "name": "team"},
		"response_url": "https://hooks.slack.com/actions/T1/1/" + user,
		"actions":      []any{map[string]any{"type": "button", "action_id": action, "block_id": "b", "value": value, "action_ts": "1"}},
	})
	c.ok(err)
	return signed([]byte(url.Values{"payload": {string(payload)}}.Encode()), secret, at)
}

func signed(body []byte, secret string, at time.Time) chat.Request {
	stamp := strconv.FormatInt(at.Unix(), 10)
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(m, "v0:%s:%s", stamp, body)
	return chat.Request{Organization: org, Channel: "team", Timestamp: stamp, Signature: "v0=" + hex.EncodeToString(m.Sum(nil)), Body: body}
}

func (c *chatting) press(user, action string) chat.Taken {
	c.t.Helper()
	c.now.Advance(time.Second) // no two presses are of the same second
	return c.take(c.pressed(user, action, c.value(), signing, c.now.Now()))
}

func (c *chatting) take(r chat.Request) chat.Taken {
	c.t.Helper()
	taken, err := c.chats.Take(c.t.Context(), r)
	c.ok(err)
	return taken
}

var accountLink = regexp.MustCompile(`https://cd\.example\.com/chat-account#([A-Za-z0-9_-]+)\.`)

// tokenIn is the token of the link in a text.
func (c *chatting) tokenIn(text string) string {
	c.t.Helper()
	found := accountLink.FindStringSubmatch(text)
	if found == nil {
		c.t.Fatalf("found %q; want a link for linking the account", text)
	}
	return found[1]
}

// link links a chat account to a member.
func (c *chatting) link(user string, a core.Actor) chat.Account {
	c.t.Helper()
	linked, err := c.chats.Link(c.t.Context(), a, c.tokenIn(c.press(user, "approve").Text))
	c.ok(err)
	return linked
}

// D63: a button answers for the member who has linked the chat account, and the answer is shown in the message, which has no buttons then.
func TestAButtonAnswers(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	asked := c.sent()[0]
	for _, want := range []string{`"action_id":"approve"`, `"action_id":"reject"`, `"value":"` + c.value() + `"`, `"text":"Approve production"`} {
		if !strings.Contains(asked, want) {
			t.Errorf("found %s; want %s in it", asked, want)
		}
	}
	if strings.Contains(asked, signing) || strings.Contains(asked, "slack-signing") {
		t.Errorf("the secret, or its name, is in the message: %s", asked)
	}
	first := c.press("U7", "approve")
	c.want(first.Outcome, "unlinked")
	token := c.tokenIn(first.Text)
	c.want(c.replies, [][2]string{{"https://hooks.slack.com/actions/T1/1/U7", first.Text}})
	candidate, err := c.chats.Candidate(t.Context(), person(7), token)
	c.ok(err)
	c.want([]any{candidate.User, candidate.Name, candidate.Workspace}, []any{"U7", "name-of-U7", "T1"})
	c.want(c.countOf(`SELECT count(*) FROM cd_chat_accounts`), 0) // looking links nothing
	linked, err := c.chats.Link(t.Context(), person(7), token)
	c.ok(err)
	c.want([]any{linked.User, linked.MemberID}, []any{"U7", int64(7)})
	c.want(len(c.gates(c.rollout)), 1)
	answered := c.press("U7", "approve")
	c.want([]any{answered.Outcome, answered.Member}, []any{"answered", int64(7)})
	c.want(strings.Contains(answered.Text, "You approved production, as person-7."), true)
	c.want(len(c.gates(c.rollout)), 0)
	c.work()
	last := c.sent()[len(c.sent())-1]
	for _, want := range []string{"chat.update", "person-7 approved production: approved in Slack (channel team) as name-of-U7"} {
		if !strings.Contains(last, want) {
			t.Errorf("found %s; want %q in it", last, want)
		}
	}
	c.want(strings.Contains(last, "action_id"), false)
	c.want(c.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'linkChatAccount' AND principal_id = 7 AND after ->> 'user' = 'U7'`), 1)
	c.want(c.chats.Counts()["answered"], int64(1))
}

// D63: the rules are those of the console: the group, different people, not the requester, and the rights that the member has at that
// moment.
func TestAButtonFollowsTheRulesOfTheConsole(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release","quorum":2,"requester_may_approve":false`)
	for user, id := range map[string]int64{"U1": 1, "U7": 7, "U8": 8, "U9": 9} {
		c.link(user, person(id))
	}
	refused := func(user, want string) {
		t.Helper()
		taken := c.press(user, "approve")
		if taken.Outcome != "refused" || !strings.Contains(taken.Text, want) {
			t.Errorf("%s: found %+v; want %q", user, taken, want)
		}
	}
	_, err := c.access.SetGroupMembers(t.Context(), user(), c.groupID("release"), []int64{1, 7, 8})
	c.ok(err)
	refused("U9", `for the group "release" to answer`)
	refused("U1", "so someone else must approve")
	c.want(c.press("U7", "approve").Outcome, "answered")
	refused("U7", "has approved gate")
	_, err = c.access.SetMemberRole(t.Context(), user(), 8, core.RoleViewer)
	c.ok(err)
	refused("U8", `needs the permission "approve"`)
	_, err = c.access.SetMemberRole(t.Context(), user(), 8, core.RoleApprover)
	c.ok(err)
	c.want(c.press("U8", "approve").Outcome, "answered")
	c.want(len(c.gates(c.rollout)), 0)
	c.want(c.reload(c.rollout).State.Terminal(), false)
}

// D63: Reject ends the rollout, and a question that is over has no answer any more.
func TestAButtonRejects(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.link("U7", person(7))
	value := c.value()
	c.want(c.press("U7", "reject").Outcome, "answered")
	c.want(c.reload(c.rollout).State, core.RolloutCancelled)
	c.now.Advance(time.Second)
	late := c.take(c.pressed("U7", "approve", value, signing, c.now.Now()))
	c.want([]any{late.Outcome, strings.Contains(late.Text, "not open any more")}, []any{"refused", true})
	c.work()
	last := c.sent()[len(c.sent())-1]
	c.want(strings.Contains(last, "person-7 rejected production"), true)
}

// D63: a press that comes twice, also at once, is one answer.
func TestAPressIsTakenOnce(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release","quorum":2`)
	c.link("U7", person(7))
	c.now.Advance(time.Second)
	r := c.pressed("U7", "approve", c.value(), signing, c.now.Now())
	var wait sync.WaitGroup
	outcomes := make(chan string, 5)
	for range 5 {
		wait.Go(func() {
			taken, err := c.chats.Take(t.Context(), r)
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
	c.want([]any{got["answered"], got["repeated"] + got["refused"]}, []any{1, 4}) // refused is who has answered already
	c.want(len(c.gates(c.rollout)["production"].Approvals), 1)
	r.Signature = strings.ToUpper(r.Signature[:3]) + r.Signature[3:]
	if _, err := c.chats.Take(t.Context(), r); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("another spelling: %v", err)
	}
	r.Signature = "v0=" + strings.ToUpper(r.Signature[3:])
	c.want(c.take(r).Outcome, "repeated")
}

// D63: a process that is killed at any statement while it takes a press loses nothing: the same press, sent again, is one answer.
func TestAPressSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release","quorum":2`)
	c.link("U7", person(7))
	mortal, died := c.mortal(c.now)
	deps := c.chats.Deps
	deps.Store, deps.Rollouts = mortal.store.ForChat(), mortal.rollouts
	taker := chat.New(deps)
	c.now.Advance(time.Second)
	r := c.pressed("U7", "approve", c.value(), signing, c.now.Now())
	for n := int64(2); ; n++ {
		died.left.Store(n)
		_, err := taker.Take(t.Context(), r)
		through := died.left.Load() > 1
		died.left.Store(0)
		if given := len(c.gates(c.rollout)["production"].Approvals); given > 1 {
			t.Fatalf("found %d approvals after a kill at statement %d; want at most one", given, n)
		}
		if err == nil && through {
			break
		}
		if n == 200 {
			t.Fatalf("the press does not get through: %v", err)
		}
	}
	c.want(len(c.gates(c.rollout)["production"].Approvals), 1)
	c.want(c.take(r).Outcome, "repeated")
}

// D63: what no chat server has proved changes nothing, and says nothing of what exists.
func TestForgedPressesAreRefused(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.link("U7", person(7))
	c.now.Advance(time.Minute)
	now := c.now.Now()
	good := c.pressed("U7", "approve", c.value(), signing, now)
	another := user()
	another.Organization = 2
	c.secret(another, "slack-signing", strings.Repeat("x", 32))
	for name, change := range map[string]func(r *chat.Request){
		"another secret":   func(r *chat.Request) { *r = c.pressed("U7", "approve", c.value(), strings.Repeat("x", 32), now) },
		"no secret":        func(r *chat.Request) { *r = c.pressed("U7", "approve", c.value(), "", now) },
		"no signature":     func(r *chat.Request) { r.Signature = "" },
		"half a signature": func(r *chat.Request) { r.Signature = r.Signature[:20] },
		"another version":  func(r *chat.Request) { r.Signature = "v1=" + r.Signature[3:] },
		"stale": func(r *chat.Request) {
			*r = c.pressed("U7", "approve", c.value(), signing, now.Add(-5*time.Minute-time.Second))
		},
		"from the future": func(r *chat.Request) {
			*r = c.pressed("U7", "approve", c.value(), signing, now.Add(5*time.Minute+time.Second))
		},
		"a later time than signed":   func(r *chat.Request) { r.Timestamp = strconv.FormatInt(now.Unix()+1, 10) },
		"another spelling of a time": func(r *chat.Request) { r.Timestamp = "0" + r.Timestamp },
		"another user than signed": func(r *chat.Request) {
			r.Body = []byte(strings.ReplaceAll(string(r.Body), "U7", "U8"))
		},
		"another button than signed": func(r *chat.Request) { r.Body = []byte(strings.ReplaceAll(string(r.Body), "approve", "reject")) },
		"more than was signed":       func(r *chat.Request) { r.Body = append(r.Body, "&payload={}"...) },
		"another organization":       func(r *chat.Request) { r.Organization = 2 },
		"an organization of nobody":  func(r *chat.Request) { r.Organization = 99 },
		"a channel of nobody":        func(r *chat.Request) { r.Channel = "nowhere" },
		"Mattermost's form":          func(r *chat.Request) { r.Body = []byte(`{"user_id":"U7","context":{"token":"` + signing + `"}}`) },
	} {
		r := good
		r.Body = append([]byte{}, good.Body...)
		change(&r)
		taken, err := c.chats.Take(t.Context(), r)
		if !fault.Is(err, fault.Unauthenticated) || taken.Text != "" || !strings.Contains(fault.Public(err), "found no proof of a chat server") {
			t.Errorf("%s: found %+v, %v; want that it is refused like everything else", name, taken, err)
		}
	}
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0)
	c.want(c.take(good).Outcome, "answered")
}

// D63: a press counts for the question of its message alone: another message, another channel and a question that is over are refused.
func TestAPressCountsForItsMessage(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.link("U7", person(7))
	c.channel("other", core.NotifySlack, `{"account":"slack-bot","target":"C2"}`, 0)
	request := c.gates(c.rollout)["production"].RequestID
	for _, value := range []string{
		fmt.Sprintf("99:%d:gate", request), fmt.Sprintf("1:%d:gate", request-1), fmt.Sprintf("1:%d:call", request),
	} {
		c.now.Advance(time.Second)
		taken := c.take(c.pressed("U7", "approve", value, signing, c.now.Now()))
		if taken.Outcome != "refused" {
			t.Errorf("%s: found %+v; want that it is refused", value, taken)
		}
	}
	for _, value := range []string{"", "1", "1:2:3:gate", "x:1:gate", "-1:1:gate", fmt.Sprintf("1:%d:door", request)} {
		c.now.Advance(time.Second)
		if taken := c.take(c.pressed("U7", "approve", value, signing, c.now.Now())); taken.Outcome != "ignored" {
			t.Errorf("%q: found %+v; want that it is no button of Lockstep's", value, taken)
		}
	}
	c.now.Advance(time.Second)
	r := c.pressed("U7", "approve", c.value(), signing, c.now.Now())
	for _, change := range [][2]string{{"171.5", "171.6"}, {"C1", "C2"}} { // another message or channel of the same app
		moved := signed([]byte(strings.ReplaceAll(string(r.Body), change[0], change[1])), signing, c.now.Now())
		if taken := c.take(moved); taken.Outcome != "refused" {
			t.Errorf("%v: found %+v; want that it is refused", change, taken)
		}
	}
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0)
}

// D63: a person who left answers nothing, and neither do machines.
func TestAPersonWhoLeftAnswersNothing(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.link("U7", person(7))
	_, err := c.access.RemoveMember(t.Context(), user(), 7)
	c.ok(err)
	gone := c.press("U7", "approve")
	c.want([]any{gone.Outcome, strings.Contains(gone.Text, "has left Lockstep")}, []any{"unlinked", true})
	c.want(len(c.gates(c.rollout)), 1)
	machine := person(8)
	machine.Type = core.PrincipalAgent
	if _, err := c.chats.Link(t.Context(), machine, c.tokenIn(gone.Text)); !fault.Is(err, fault.Denied) {
		t.Errorf("a machine links an account: %v", err)
	}
	linked, err := c.chats.Link(t.Context(), person(8), c.tokenIn(gone.Text)) // the account of one who left may become another's
	c.ok(err)
	c.want(linked.MemberID, int64(8))
	_, err = c.pool.Exec(t.Context(), `UPDATE cd_members SET kind = 'agent' WHERE id = 8`)
	c.ok(err)
	c.want(c.press("U7", "approve").Outcome, "unlinked")
	c.want(len(c.gates(c.rollout)), 1)
}

// D63: links for linking work once, for ten minutes, in their organization; an account is one member's, and a member has one in a
// workspace.
func TestLinkingWithstandsAttacks(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	token := c.tokenIn(c.press("U7", "approve").Text)
	second := c.tokenIn(c.press("U7", "approve").Text)
	refused := func(name string, a core.Actor, token, want string) {
		t.Helper()
		if _, err := c.chats.Link(t.Context(), a, token); err == nil || !strings.Contains(fault.Public(err), want) {
			t.Errorf("%s: found %v; want %q", name, err, want)
		}
	}
	stranger := person(7)
	stranger.Organization = 2
	refused("another organization", stranger, token, "another organization")
	refused("forged", person(7), token[:len(token)-4]+"AAAA", "was not made by this installation")
	refused("a link of a question", person(7), "AAAA", "was not made by this installation")
	_, err := c.chats.Link(t.Context(), person(7), token)
	c.ok(err)
	refused("used twice", person(7), token, "was used before")
	refused("forwarded after use", person(8), token, "was used before")
	refused("another member's account", person(8), second, "is linked to another member, person-7")
	other := c.tokenIn(c.press("U8", "approve").Text)
	refused("a second account of a member", person(7), other, "unlink it first")
	c.now.Advance(10 * time.Minute)
	refused("old", person(8), other, "older than 10 minutes")
	c.want(c.countOf(`SELECT count(*) FROM cd_chat_accounts`), 1)
}

// D63: members unlink their own accounts, and those who administer any; what others have does not exist for anybody else.
func TestAccountsAreUnlinked(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	a := c.link("U7", person(7))
	viewer := person(9)
	viewer.Permissions = core.RoleApprover.Permissions()
	seen, err := c.chats.Accounts(t.Context(), viewer)
	c.ok(err)
	c.want(len(seen), 0)
	if _, err := c.chats.Unlink(t.Context(), viewer, a.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("another member's: %v", err)
	}
	own := viewer
	own.ID = 7
	_, err = c.chats.Unlink(t.Context(), own, a.ID, "lost phone")
	c.ok(err)
	c.want(c.press("U7", "approve").Outcome, "unlinked")
	b := c.link("U7", person(8))
	_, err = c.chats.Unlink(t.Context(), user(), b.ID, "")
	c.ok(err)
	c.want(c.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'unlinkChatAccount' AND before IS NOT NULL`), 2)
}

// D63: a member who replaces the secret of a channel speaks for nobody: accounts that were linked with another one have to be linked again.
func TestAnotherSecretSpeaksForNobody(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.link("U7", person(7))
	mine := strings.Repeat("m", 40)
	_, err := c.credentials.Rotate(t.Context(), user(), "slack-signing", credential.NewValue{Value: credential.Value(mine)})
	c.ok(err)
	c.now.Advance(time.Second)
	taken := c.take(c.pressed("U7", "approve", c.value(), mine, c.now.Now()))
	c.want([]any{taken.Outcome, strings.Contains(taken.Text, "was replaced since you linked")}, []any{"unlinked", true})
	c.want(len(c.gates(c.rollout)), 1)
	_, err = c.chats.Link(t.Context(), person(7), c.tokenIn(taken.Text))
	c.ok(err)
	c.now.Advance(time.Second)
	c.want(c.take(c.pressed("U7", "approve", c.value(), mine, c.now.Now())).Outcome, "answered")
}

// D63: replies go to the chat and to nobody else, whatever a request says.
func TestRepliesGoToTheChat(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	for _, to := range []string{"https://evil.example/x", "https://slack.com.evil.example/", "http://hooks.slack.com/x", "https://a@slack.com:1/", "file:///etc", "//slack.com/"} {
		c.now.Advance(time.Second)
		r := c.pressed("U7", "approve", c.value(), signing, c.now.Now())
		form, err := url.ParseQuery(string(r.Body))
		c.ok(err)
		form.Set("payload", strings.Replace(form.Get("payload"), "https://hooks.slack.com/actions/T1/1/U7", to, 1))
		c.take(signed([]byte(form.Encode()), signing, c.now.Now()))
	}
	c.want(len(c.replies), 0)
}

const mattermostBot = `{"url":"https://chat.example.com","account":"bot","target":"C1","answers":"slack-signing"}`

// D63: Mattermost proves a press with the secret that the context of the button has, which is added when the message is sent.
func TestAButtonInMattermostAnswers(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifyMattermost, mattermostBot, `"group":"release"`)
	asked := c.sent()[0]
	for _, want := range []string{
		`"url":"https://cd.example.com/chat/organization_1/team"`, `"/props/attachments/0/actions/0/integration/context/token":"slack-signing"`,
		`"/props/attachments/0/actions/1/integration/context/token":"slack-signing"`, `"question":"` + c.value() + `"`,
	} {
		if !strings.Contains(asked, want) {
			t.Errorf("found %s; want %s in it", asked, want)
		}
	}
	if strings.Contains(asked, signing) {
		t.Errorf("the secret is in what the run is begun with: %s", asked)
	}
	n := 0
	press := func(user, token, decision string) chat.Request {
		n++
		return chat.Request{Organization: org, Channel: "team", Body: fmt.Appendf(nil, `{"user_id":%q,"user_name":"bob","channel_id":"C1","channel_name":"team",
			"team_id":"t","team_domain":"d","post_id":"171.5","trigger_id":"trigger-%d","type":"button","data_source":"",
			"context":{"token":%q,"decision":%q,"question":%q}}`, user, n, token, decision, c.value())}
	}
	first := c.take(press("u7", signing, "approve"))
	c.want([]any{first.Outcome, first.ByAnswer()}, []any{"unlinked", true})
	linked, err := c.chats.Link(t.Context(), person(7), c.tokenIn(first.Text))
	c.ok(err)
	c.want(linked.Workspace, "https://chat.example.com")
	for _, token := range []string{"", "x", signing + "x", signing[1:]} {
		if _, err := c.chats.Take(t.Context(), press("u7", token, "approve")); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("the token %q: found %v; want that it is refused", token, err)
		}
	}
	r := press("u7", signing, "approve")
	c.want(c.take(r).Outcome, "answered")
	c.want(c.take(r).Outcome, "repeated")
	c.want(len(c.gates(c.rollout)), 0)
}

// D63: a call that waits for people is answered by buttons as well.
func TestAButtonAnswersACall(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.link("U7", person(7))
	call := c.asksForCall("nightly-1", "x/0.0!9", "", 1, 1)
	c.work()
	c.now.Advance(time.Second)
	taken := c.take(c.pressed("U7", "approve", fmt.Sprintf("2:%d:call", call.ID), signing, c.now.Now()))
	c.want([]any{taken.Outcome, taken.Text}, []any{"answered", "You approved the call of http.request, as person-7."})
	c.want(c.callOf("x/0.0!9").State, core.CallApproved)
	c.work()
	if last := c.sent()[len(c.sent())-1]; !strings.Contains(last, "Call of http.request: answered") {
		t.Errorf("found %s, expected a title that names the Function", last)
	}
}

// D63: over HTTP: proofs are checked before anything else, bodies are bounded, and those who prove nothing are slowed down.
func TestTheAddressOfAChannel(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	handler := api.NewHandler(api.Deps{
		GraphQL: http.NotFoundHandler(), Console: http.NotFoundHandler(), Access: c.access, Clock: c.now, Chats: c.chats,
		Log: slog.New(slog.DiscardHandler),
	})
	send := func(path string, r chat.Request) (int, string) {
		t.Helper()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(string(r.Body)))
		request.Header.Set("X-Slack-Request-Timestamp", r.Timestamp)
		request.Header.Set("X-Slack-Signature", r.Signature)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		return w.Code, w.Body.String()
	}
	c.now.Advance(time.Second)
	good := c.pressed("U7", "approve", c.value(), signing, c.now.Now())
	code, body := send("/chat/organization_1/team", good)
	c.want([]any{code, strings.TrimSpace(body)}, []any{200, "{}"})
	bulky := signed([]byte(strings.Repeat("x", chat.MaxBody+1)), signing, c.now.Now())
	code, _ = send("/chat/organization_1/team", bulky)
	c.want(code, 413)
	for _, path := range []string{"/chat/organization_2/team", "/chat/organization_1/nowhere", "/chat/0/team", "/chat/x/team", "/chat/-1/team"} {
		if code, body := send(path, good); code != 401 || strings.Contains(body, "channel \"") {
			t.Errorf("%s: found %d %s; want 401", path, code, body)
		}
	}
	noForm := signed([]byte("nothing"), signing, c.now.Now())
	code, _ = send("/chat/organization_1/team", noForm)
	c.want(code, 400)
}

// D63: a channel whose buttons could not work is refused when it is saved, and nobody reads a credential by it.
func TestChannelsWithButtonsAreChecked(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackBot, `"group":"release"`)
	c.secret(user(), "short", "hunter2")
	for config, want := range map[string]string{
		`{"account":"b","answers":"slack-signing"}`:                 "without target",
		`{"account":"b","target":"C1","answers":"unknown"}`:         "has no credential",
		`{"account":"b","target":"C1","answers":"short"}`:           "found a secret of 7 bytes",
		`{"account":"b","target":"C1","answers":"https://hooks/x"}`: "no name of a credential",
	} {
		_, err := c.notify.PutChannel(t.Context(), user(), notify.NewChannel{Name: "x", Kind: core.NotifySlack, Config: json.RawMessage(config), Enabled: true})
		c.wrong(err, "/config/answers")
		if err == nil || !strings.Contains(fault.Public(err), want) && !strings.Contains(fault.FieldsOf(err)[0].Problem, want) {
			t.Errorf("%s: found %v; want %q", config, err, want)
		}
	}
	deployer := user()
	deployer.Permissions = core.RoleDeployer.Permissions()
	_, err := c.notify.PutChannel(t.Context(), deployer, notify.NewChannel{
		Name: "x", Kind: core.NotifySlack, Config: json.RawMessage(`{"account":"b","target":"C1","answers":"unknown"}`),
	})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("without the permission: found %v; want Denied", err)
	}
}
