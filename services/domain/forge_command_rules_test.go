package domain

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
)

// D63: who has requested a rollout does not approve it, also in a comment and as one of the group.
func TestTheRequesterApprovesNothingByComment(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.people(1)
	_, err := c.access.SetGroupMembers(t.Context(), user(), c.groupID("release"), []int64{1, 7})
	c.ok(err)
	c.links(10, "owner", user())
	approve := fmt.Sprintf("/lockstep approve %d", c.question())
	c.writing(10, "owner", approve, "refused", "the rules do not let this account")
	c.want(c.approvals(), 0)
	c.links(70, "ann", person(7))
	c.writing(70, "ann", approve, "answered", "approved production")
	c.want(c.approvals(), 1)
}

// D63: one account approves once, however often it writes that; a quorum takes another one.
func TestAQuorumIsReachedByComments(t *testing.T) {
	t.Parallel()
	c := commentsOn(t, `"group":"release","quorum":2`)
	c.links(70, "ann", person(7))
	c.links(80, "bob", person(8))
	approve := fmt.Sprintf("/lockstep approve %d", c.question())
	c.writing(70, "ann", approve, "answered", "")
	c.writing(70, "ann", approve, "refused", "the rules do not let this account")
	c.want(c.approvals(), 1)
	c.writing(80, "bob", approve, "answered", "approved production")
	c.want(c.approvals(), 2)
}

// D63: an account at a forge is not good for what no comment does, and is not asked to be linked again for it.
func TestAnAccountAtAForgeBeginsNoRollout(t *testing.T) {
	t.Parallel()
	c := comments(t)
	_, err := c.pool.Exec(t.Context(), `UPDATE cd_members SET role = 'owner' WHERE id = 7`)
	c.ok(err)
	c.links(70, "ann", person(7))
	all, err := c.chats.ForgeAccounts(t.Context(), person(7))
	c.ok(err)
	c.want(all[0].Permissions, core.PermissionsOf(core.MayRead, core.MayApprove, core.MayFreeze))
	c.writing(70, "ann", "/lockstep rollout shop set-1", "refused", "expected one of")
}

// D63: a code links an account at the hook for which it was made, and at no other one: that one's maker could have written the comment.
func TestACodeIsForItsHook(t *testing.T) {
	t.Parallel()
	c := comments(t)
	made, err := c.chats.MakeCode(t.Context(), person(7), c.hook.ID, "ann")
	c.ok(err)
	own := c.hook
	c.hook = c.hooks("git.test/*", true)
	c.writing(70, "ann", made.Comment(), "refused", "")
	c.writing(70, "ann", fmt.Sprintf("/lockstep approve %d", c.question()), "unlinked", "not linked")
	c.want([]any{c.approvals(), c.countOf(`SELECT count(*) FROM cd_chat_accounts WHERE kind = 'forge'`)}, []any{0, 0})
	c.hook = own
	c.writing(70, "ann", made.Comment(), "linked", "linked now")
}

// D63: who knows the secret of a hook may name any number of accounts, and writes no more rows for that.
func TestCommandsAreBoundedByPullRequest(t *testing.T) {
	t.Parallel()
	c := comments(t)
	write := func(n int64) {
		for author := int64(1000); author < 1000+n; author++ {
			c.publish(c.brings(org, c.written(author, "eve", "/lockstep status")))
		}
	}
	write(chat.PerPull + 5)
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments`), chat.PerPull)
	c.now.Advance(2 * time.Minute)
	write(1)
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments`), chat.PerPull+1)
}
