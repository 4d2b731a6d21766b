package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// D63: what a program or a check says is in the blocks of an answer as text, which Slack reads no markup, link or mention out of; only the
// links that Lockstep has made are links.
func TestAnswersInSlackArePlain(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	const detail = "*bold* _it_ `code` https://evil.example/?a=1&b <!channel> <https://evil.example|ok>"
	deps := c.chats.Deps
	deps.View = waiting{deps.View, detail}
	c.linkByCommand("U7", person(7))
	c.chats = chat.New(deps)
	shown := func(taken chat.Taken) (text string, links []string, message map[string]any) {
		t.Helper()
		encoded, err := json.Marshal(taken.Message())
		c.ok(err)
		var m struct {
			Blocks []struct {
				Type     string
				Elements []struct {
					Type     string
					Elements []map[string]string
				}
			}
		}
		c.ok(json.Unmarshal(encoded, &m))
		c.want([]any{len(m.Blocks), m.Blocks[0].Type, m.Blocks[0].Elements[0].Type}, []any{1, "rich_text", "rich_text_section"})
		for _, e := range m.Blocks[0].Elements[0].Elements {
			switch e["type"] {
			case "text":
				text += e["text"]
			case "link":
				links = append(links, e["url"])
			default:
				t.Errorf("found an element %v; want text and links", e)
			}
		}
		return text, links, taken.Message()
	}
	text, links, message := shown(c.order("U7", "why "+c.application()))
	c.want(strings.Contains(text, detail), true)
	c.want(links, []string{fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", c.rollout.ID)})
	plain, _ := message["text"].(string)
	c.want([]any{message["mrkdwn"], strings.ContainsAny(plain, "<>")}, []any{false, false})
	unlinked := c.order("U9", "status")
	text, links, _ = shown(unlinked)
	c.want(links, []string{"https://cd.example.com/chat-account#" + c.tokenIn(unlinked.Text)})
	c.want(strings.Contains(text, "chat-account"), false)
}

// waiting is a view where a rollout waits for what a check says.
type waiting struct {
	chat.View
	detail string
}

func (w waiting) Waits(_ context.Context, _ int64, rollouts []int64) (map[int64][]view.Wait, error) {
	return map[int64][]view.Wait{rollouts[0]: {{Detail: w.detail}}}, nil
}

// D63: an application may be called everything; a freeze of all applications has a form that no name has, also as keyboards change it.
func TestAFreezeOfAllHasNoName(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release"`)
	c.maintains(1)
	c.linkByCommand("U1", user())
	c.expect(c.order("U1", "freeze everything 2h x"), "refused", "everything")
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes`), 0)
	_, err := c.pool.Exec(t.Context(), `INSERT INTO cd_applications (organization_id, name) VALUES ($1, 'everything')`, org)
	c.ok(err)
	c.expect(c.order("U1", "freeze everything 2h x"), "answered", "stops the rollouts of everything until")
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes WHERE cardinality(application_ids) = 1`), 1)
	for _, all := range []string{"--all", "—all", "–all"} {
		c.expect(c.order("U1", "freeze "+all+" 2h x"), "answered", "stops the rollouts of all applications until")
	}
}

// D63: the limit of a user counts presses and commands together, and nothing over it is kept.
func TestALimitCountsPressesAndKeepsNothingOverIt(t *testing.T) {
	t.Parallel()
	c := chats(t, core.NotifySlack, slackCommands, `"group":"release","quorum":2`)
	c.linkByCommand("U7", person(7))
	c.now.Advance(time.Hour)
	before := c.countOf(`SELECT count(*) FROM cd_chat_requests`)
	for i := range 40 {
		c.now.Advance(time.Second)
		if i%2 == 0 {
			c.command(ordered("U7", "status", signing, c.now.Now()))
		} else {
			c.take(c.pressed("U7", "reject-nothing", "x", signing, c.now.Now()))
			c.take(c.pressed("U7", "approve", fmt.Sprintf("1:%d:gate", c.question()+1), signing, c.now.Now()))
		}
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_chat_requests`)-before, 30)
	c.expect(c.press("U7", "approve"), "refused", "more than 30 presses and commands within a minute")
	c.want(len(c.gates(c.rollout)["production"].Approvals), 0)
	c.now.Advance(time.Minute)
	c.expect(c.press("U7", "approve"), "answered")
}
