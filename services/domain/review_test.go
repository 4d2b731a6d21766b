package domain

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// R3-27: a review that fails is postponed, and delays no other organization. One of a rollout that does not exist ends.
func TestAReviewThatFailsIsPostponed(t *testing.T) {
	t.Parallel()
	c := scheduled(t, `{"proposed":[{"key":"hours","kind":"schedule","schedule":{"allow":[{"cron":"0 9 * * *","duration":28800}]}}]}`, `{}`)
	r := c.rollout(c.set)
	c.review()
	for _, statement := range []string{
		`INSERT INTO cd_organizations (id, name) OVERRIDING SYSTEM VALUE VALUES (77, 'an-organization-more')`,
		`INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) VALUES (77, 4711, 'epoch')`,
		`INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) SELECT organization_id, id, 'epoch' FROM cd_rollouts`,
		`ALTER TABLE cd_rollout_checks DISABLE TRIGGER USER`, // its rows never change otherwise
		`UPDATE cd_rollout_checks SET windows = '5'`,
	} {
		_, err := c.pool.Exec(t.Context(), statement)
		c.ok(err)
	}
	due := func() (bool, bool) {
		t.Helper()
		_, worked, err := c.rollouts.ReviewDue(t.Context())
		return worked, err != nil
	}
	worked, failed := due()
	c.want([]bool{worked, failed}, []bool{false, true})
	c.want(c.countOf(`SELECT count(*) FROM cd_passage_reviews WHERE organization_id = 77`), 0)
	worked, failed = due()
	c.want([]bool{worked, failed}, []bool{false, false}) // not at once
	c.now.Advance(10 * time.Second)
	worked, failed = due()
	c.want([]bool{worked, failed}, []bool{false, true})
	_, err := c.pool.Exec(t.Context(), `UPDATE cd_rollout_checks SET windows = '{}'`)
	c.ok(err)
	c.now.Advance(10 * time.Second)
	c.want(c.review(), 1)
	c.verifyJournal(r)
}

// R3-27: nobody who reviews waits for a rollout that is busy.
func TestARolloutThatIsBusyIsReviewedLater(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.review()
	_, err := c.pool.Exec(t.Context(), `INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) VALUES ($1, $2, 'epoch')`, org, r.ID)
	c.ok(err)
	busy, err := c.pool.Begin(t.Context())
	c.ok(err)
	defer func() { _ = busy.Rollback(t.Context()) }()
	_, err = busy.Exec(t.Context(), `SELECT FROM cd_rollouts WHERE id = $1 FOR NO KEY UPDATE`, r.ID)
	c.ok(err)
	ctx, cancel := context.WithDeadline(t.Context(), clock.System().Now().Add(20*time.Second))
	defer cancel()
	_, worked, err := c.rollouts.ReviewDue(ctx)
	c.ok(err)
	c.want(worked, false)
	c.ok(busy.Rollback(t.Context()))
	c.want(c.review(), 1)
}
