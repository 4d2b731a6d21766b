package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// D63: where the forge does not say whether an App has written a command for the user, as in reviews at GitHub, it shows what it would in a
// comment, and decides nothing; where it does, a review is as good as a comment. A review and a comment of one number are two.
func TestCommandsInReviews(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7, "release"))
	review := func(first int64, maybeApp bool, text string) (outcome, answer string) {
		c.now.Advance(3 * time.Second)
		data := c.written(70, "ann", text)
		data.CommentID = first + 5000
		c.comment++
		c.publish(c.brings(org, inReview(data, maybeApp)))
		return c.kept(data.CommentID)
	}
	outcome, answer := review(id.Reviews, true, "/lockstep status")
	c.hears("answered", "staging", outcome, answer)
	outcome, answer = review(id.ReviewComments, true, "/lockstep why")
	c.hears("answered", "production", outcome, answer)
	approve := fmt.Sprintf("/lockstep approve %d", c.question())
	for first, text := range map[int64]string{
		id.Reviews + 1: approve, id.Reviews + 2: strings.Replace(approve, "approve", "reject", 1), id.ReviewComments + 3: "/lockstep freeze 2h x",
		id.ReviewComments + 4: "/lockstep link ABCDEFGH",
	} {
		outcome, answer = review(first, true, text)
		c.hears("refused", "does not say of a review whether an App has written it", outcome, answer)
	}
	c.want(c.approvals(), 0)
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes`), 0)
	outcome, answer = review(id.Reviews+6, true, "/lockstep approve") // what asks
	c.hears("answered", "production", outcome, answer)
	outcome, answer = review(id.Reviews+7, false, approve)
	c.hears("answered", "", outcome, answer)
	c.want(c.approvals(), 1)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'approve' AND reason LIKE '%in review 5007 on git.test/shop/config#3 as ann%'`), 1)
}

// inReview is a command in a review.
func inReview(data event.PullRequestCommented, maybeApp bool) event.PullRequestReviewed {
	return event.PullRequestReviewed{
		Hook: data.Hook, Repository: data.Repository, Number: data.Number, CommentID: data.CommentID, AuthorID: data.AuthorID,
		Author: data.Author,
		MadeAt: data.MadeAt, Text: data.Text, MaybeApp: maybeApp,
	}
}

// D63: a review that two hooks bring is refused once.
func TestAReviewIsRefusedOnce(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7, "release"))
	data := c.written(70, "ann", "/lockstep freeze 2h x")
	data.CommentID = id.Reviews + 5000
	c.publish(c.brings(org, inReview(data, true)))
	data.Hook = c.hooks("git.test/shop/*", true).Key
	c.publish(c.brings(org, inReview(data, true)))
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments WHERE answer LIKE 'Nothing was done%'`), 1)
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes`), 0)
}

// D63: the pages of the console that an answer names can be followed from the comment, below the block of code in which nothing is a link.
func TestAnswersInCommentsHaveLinks(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7, "release"))
	c.writing(70, "ann", "/lockstep why", "answered", "production")
	c.workForge()
	blocks := strings.Split(c.at.comments[3], "```")
	c.want(strings.TrimSpace(blocks[len(blocks)-1]), fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", c.rollout.ID))
}
