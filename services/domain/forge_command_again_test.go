package domain

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// answersAndDies answers questions, and is gone before it can say so.
type answersAndDies struct{ chat.Rollouts }

func (d answersAndDies) ApproveGate(ctx context.Context, a core.Actor, r rollout.Resolution) (core.Rollout, error) {
	if _, err := d.Rollouts.ApproveGate(ctx, a, r); err != nil {
		return core.Rollout{}, err
	}
	return core.Rollout{}, fault.New(fault.Unavailable, "killed")
}

func (d answersAndDies) RejectGate(ctx context.Context, a core.Actor, r rollout.Resolution) (core.Rollout, error) {
	if _, err := d.Rollouts.RejectGate(ctx, a, r); err != nil {
		return core.Rollout{}, err
	}
	return core.Rollout{}, fault.New(fault.Unavailable, "killed")
}

// D63: after a crash between a decision and the answer about it, the comment does not say that nothing was done.
func TestAnAnswerAfterACrashIsTrue(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"approve", "reject"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			c := comments(t)
			c.links(70, "ann", person(7))
			deps := c.chats.Deps
			deps.Rollouts = answersAndDies{deps.Rollouts}
			data := c.written(70, "ann", fmt.Sprintf("/lockstep %s %d because", verb, c.question()))
			e := c.brings(org, data)
			err := chat.New(deps).ReportComments(t.Context(), []chat.CommentReport{c.reports(e, data)})[0]
			if !fault.Is(err, fault.Unavailable) {
				t.Fatalf("found %v; want that it was killed", err)
			}
			c.publish(e)
			outcome, answer := c.kept(data.CommentID)
			c.hears("answered", "It may have been done before", outcome, answer)
			c.hears("answered", fmt.Sprintf("rollout_%d", c.rollout.ID), outcome, answer)
			c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = $1`, verb), 1)
		})
	}
}

// D63: a comment that two hooks bring is performed once, and a hook that brings one first, for an account of its own or with another text,
// suppresses nothing at another hook.
func TestAHookSuppressesNoCommandOfAnother(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.maintains(7)
	genuine, other := c.hook, c.hooks("git.test/*", true)
	c.links(70, "ann", person(7))
	c.hook = other
	c.links(70, "ann", person(9))
	c.hook = genuine
	data := c.written(70, "ann", "/lockstep freeze 2h incident 7")
	forged := data
	forged.Hook, forged.Text = other.Key, "/lockstep why"
	c.publish(c.brings(org, forged))
	forged.Text = data.Text
	c.publish(c.brings(org, forged))
	freezes := func() int { return c.countOf(`SELECT count(*) FROM cd_freezes WHERE reason LIKE 'incident 7 %'`) }
	c.want(freezes(), 0)
	c.publish(c.brings(org, data))
	c.want(freezes(), 1)
	c.hook = c.hooks("git.test/shop/conf*", true)
	c.links(70, "ann", person(7))
	again := data
	again.Hook = c.hook.Key
	c.publish(c.brings(org, again))
	c.want([]any{freezes(), c.chats.CommentCounts()["repeated"]}, []any{1, int64(2)})
	// An account that only one of the hooks knows is not asked by the others to link itself.
	c.hook = c.hooks("git.test/shop/con*", true)
	again.Hook = c.hook.Key
	c.publish(c.brings(org, again))
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments WHERE outcome = 'unlinked'`), 0)
	c.want(strings.Contains(fmt.Sprint(c.kept(data.CommentID)), "hook_"), false)
}
