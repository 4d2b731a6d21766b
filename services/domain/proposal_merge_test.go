package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// merges is what the engine reports of the pull request of an environment that a person has merged.
func (c *commenting) merges(environment, login string, user int64, change func(*event.DeploymentProposed)) event.DeploymentProposed {
	return c.proposes(environment, "merged", func(d *event.DeploymentProposed) {
		d.Branch, d.By, d.ByID, d.Commit = "main", login, user, strings.Repeat("7", 40)
		if change != nil {
			change(d)
		}
	})
}

// approved are the approvals of the rollout, in their order, and what the gate of production says of the merge; "closed" without one.
func (c *commenting) approved() (approvals []string, note string) {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `SELECT principal_type || ' ' || coalesce(principal_id::text, '') || ' ' || gate_id || ': ' || coalesce(reason, '')
		FROM cd_rollout_transitions WHERE event = 'approve' AND rollout_id = $1 ORDER BY id`, c.rollout.ID)
	c.ok(err)
	defer rows.Close()
	for rows.Next() {
		var one string
		c.ok(rows.Scan(&one))
		approvals = append(approvals, one)
	}
	c.ok(rows.Err())
	gate, open := c.gates(c.rollout)["production"]
	if !open {
		return approvals, "closed"
	}
	all, err := c.view.Waits(c.t.Context(), org, []int64{c.rollout.ID})
	c.ok(err)
	for _, w := range all[c.rollout.ID] {
		if w.GateID == "production" && !strings.Contains(w.Detail, gate.MergeNote()) {
			c.t.Errorf("found %q, expected what the gate says of the merge: %q", w.Detail, gate.MergeNote())
		}
	}
	return approvals, gate.MergeNote()
}

func (c *commenting) counts(note string, approvals ...string) {
	c.t.Helper()
	got, found := c.approved()
	if diff := cmp.Diff(approvals, got); diff != "" || found != note {
		c.t.Errorf("found the note %q, expected %q; approvals (-want +got):\n%s", found, note, diff)
	}
}

// merging is comments with environments that declare their files, each those of its own folder.
func merging(t *testing.T) *commenting {
	t.Helper()
	c := comments(t)
	c.declares()
	return c
}

func mergingOn(t *testing.T, entry string) *commenting {
	t.Helper()
	c := commentsOn(t, entry)
	c.declares()
	return c
}

func (c *commenting) declares() {
	c.t.Helper()
	_, err := c.pool.Exec(c.t.Context(), `ALTER TABLE cd_rollout_places DISABLE TRIGGER USER;
		UPDATE cd_rollout_places p SET places = jsonb_build_array(jsonb_build_object(
			'repository', 'https://git.test/shop/config', 'branch', 'main', 'path', e.name))
		FROM cd_environments e WHERE e.organization_id = p.organization_id AND e.id = p.environment_id`)
	c.ok(err)
}

const byAnn = "user 7 production: pull request #3 was merged on the forge, as Ann"

// D55: merging the proposal by hand is the approval of the member who has linked the account, if the member may approve; otherwise the
// rollout waits, and says why.
func TestMergingTheRequestApprovesTheGate(t *testing.T) {
	t.Parallel()
	const no = "the merge of pull request #3 on the forge by %s is no approval: %s"
	tests := map[string]struct {
		merged func(c *commenting) event.DeploymentProposed
		note   string
		want   []string
	}{
		"by a member who may approve": {
			func(c *commenting) event.DeploymentProposed { return c.merges("production", "Ann", 70, nil) }, "closed", []string{byAnn},
		},
		"by a member who may not": {
			func(c *commenting) event.DeploymentProposed { return c.merges("production", "Eve", 90, nil) },
			fmt.Sprintf(no, "Eve", "this member is in no group that approves it"), nil,
		},
		"by an account that nobody has linked": {
			func(c *commenting) event.DeploymentProposed { return c.merges("production", "Bob", 71, nil) },
			fmt.Sprintf(no, "Bob", "no member has linked this account for the repository"), nil,
		},
		"by the name of another account": {
			func(c *commenting) event.DeploymentProposed { return c.merges("production", "Ann", 0, nil) },
			fmt.Sprintf(no, "Ann", "no member has linked this account for the repository"), nil,
		},
		"by whom the forge does not say": {
			func(c *commenting) event.DeploymentProposed { return c.merges("production", "", 0, nil) },
			"the merge of pull request #3 on the forge is no approval: the forge does not say who has merged it", nil,
		},
		"of what others have pushed": {
			func(c *commenting) event.DeploymentProposed {
				return c.merges("production", "Ann", 70, func(d *event.DeploymentProposed) { d.Head = strings.Repeat("5", 40) })
			},
			fmt.Sprintf(no, "Ann", "another commit was merged than was proposed"), nil,
		},
		"of what is not known": {
			func(c *commenting) event.DeploymentProposed {
				return c.merges("production", "Ann", 70, func(d *event.DeploymentProposed) { d.Head = "" })
			},
			fmt.Sprintf(no, "Ann", "it cannot be shown that the proposed commit was merged"), nil,
		},
		"into another branch": {
			func(c *commenting) event.DeploymentProposed {
				return c.merges("production", "Ann", 70, func(d *event.DeploymentProposed) { d.Branch = "scratch" })
			},
			fmt.Sprintf(no, "Ann", "it was merged into another branch than it was proposed for"), nil,
		},
		"reported by a workflow service of before": {
			func(c *commenting) event.DeploymentProposed {
				return c.merges("production", "Ann", 70, func(d *event.DeploymentProposed) { d.Branch = "" })
			},
			fmt.Sprintf(no, "Ann", "it was read by a replica that does not know into which branch"), nil,
		},
		"of another number": {
			func(c *commenting) event.DeploymentProposed {
				return c.merges("production", "Ann", 70, func(d *event.DeploymentProposed) { d.Number = 4 })
			}, "", nil,
		},
		"for another environment": {
			func(c *commenting) event.DeploymentProposed { return c.merges("staging", "Ann", 70, nil) }, "", nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := merging(t)
			c.links(70, "Ann", person(7))
			c.links(90, "Eve", person(9))
			c.report(c.proposes("staging", "open", nil), c.proposes("production", "open", nil))
			c.counts("")
			merged := c.emit(test.merged(c), "")
			c.deliver(merged)
			c.counts(test.note, test.want...)
			c.deliver(merged, c.emit(test.merged(c), "")) // again, and seen again
			c.counts(test.note, test.want...)
			c.want(c.ended()[0], "in_progress")
			c.verifyJournal(c.rollout)
		})
	}
}

// D55: a branch alone is merged by nobody that Git knows, which its gate says; the merge by the run itself says nothing.
func TestABranchAloneThatIsMergedIsNoApproval(t *testing.T) {
	t.Parallel()
	c := merging(t)
	c.links(70, "Ann", person(7))
	const note = "a merge of the proposed branch by hand is no approval: Git does not say who has done it"
	alone := func(d *event.DeploymentProposed) {
		d.Number, d.Branch, d.Paths = 0, "main", []string{"production/api.yaml"}
	}
	c.report(c.proposes("production", "open", alone))
	c.counts(note)
	c.report(c.merges("production", "Ann", 70, func(d *event.DeploymentProposed) { d.Number = 0 }))
	c.counts("")
}

// D55, R38: a merge is one approval of several, and the member's only one: in the console, in a comment and by the merge, a person counts
// once.
func TestAMergeIsOneApprovalOfSeveral(t *testing.T) {
	t.Parallel()
	resolution := func(c *commenting) rollout.Resolution {
		return rollout.Resolution{RolloutID: c.rollout.ID, GateID: "production"}
	}
	t.Run("the merge first", func(t *testing.T) {
		t.Parallel()
		c := mergingOn(t, `"group":"release","quorum":2`)
		c.links(70, "Ann", person(7))
		c.report(c.proposes("production", "open", nil), c.merges("production", "Ann", 70, nil))
		c.counts("", byAnn)
		if _, err := c.rollouts.ApproveGate(t.Context(), person(7, "release"), resolution(c)); err == nil {
			t.Error("one person has approved twice")
		}
		_, err := c.rollouts.ApproveGate(t.Context(), person(8, "release"), resolution(c))
		c.ok(err)
		c.counts("closed", byAnn, "user 8 production: ")
		c.verifyJournal(c.rollout)
	})
	t.Run("the merge last", func(t *testing.T) {
		t.Parallel()
		c := mergingOn(t, `"group":"release","quorum":2`)
		c.links(70, "Ann", person(7))
		c.report(c.proposes("production", "open", nil))
		_, err := c.rollouts.ApproveGate(t.Context(), person(7, "release"), resolution(c))
		c.ok(err)
		c.report(c.merges("production", "Ann", 70, nil))
		c.counts("the merge of pull request #3 on the forge by Ann is no approval: this member has approved it already, and counts once", "user 7 production: ")
	})
}

// D55, D46: who has asked for the rollout does not approve it with a merge either.
func TestWhoHasAskedForTheRolloutDoesNotApproveByMerging(t *testing.T) {
	t.Parallel()
	c := merging(t)
	c.links(70, "Ann", person(7))
	_, err := c.pool.Exec(t.Context(), `ALTER TABLE cd_rollout_transitions DISABLE TRIGGER USER;
		UPDATE cd_rollout_transitions SET principal_type = 'user', principal_id = 7 WHERE event = 'create';
		ALTER TABLE cd_rollout_gates DISABLE TRIGGER USER; UPDATE cd_rollout_gates SET requester_may_approve = false`)
	c.ok(err)
	c.report(c.proposes("production", "open", nil), c.merges("production", "Ann", 70, nil))
	c.counts("the merge of pull request #3 on the forge by Ann is no approval: who has asked for the rollout may not approve it")
}

// D55: what counts is what the member may do when the approval is recorded.
func TestAMemberWhoMayNoLongerApproveDoesNotByMerging(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why    string
		revoke func(c *commenting)
	}{
		"unlinked": {"no member has linked this account for the repository", func(c *commenting) {
			accounts, err := c.chats.ForgeAccounts(c.t.Context(), person(7))
			c.ok(err)
			for _, a := range accounts {
				_, err := c.chats.UnlinkForge(c.t.Context(), person(7), a.ID, "")
				c.ok(err)
			}
			c.want(len(accounts), 1)
		}},
		"removed": {"the member who had linked this account has left", func(c *commenting) {
			_, err := c.access.RemoveMember(c.t.Context(), user(), 7)
			c.ok(err)
		}},
		"no longer in the group": {"this member is in no group that approves it", func(c *commenting) {
			_, err := c.access.SetGroupMembers(c.t.Context(), user(), c.groupID("release"), []int64{8})
			c.ok(err)
		}},
		"linked without the right": {"this account was linked by a sign-in that may not approve, so it has to be linked again", func(c *commenting) {
			_, err := c.pool.Exec(c.t.Context(), `UPDATE cd_chat_accounts SET permissions = 1`)
			c.ok(err)
		}},
		"the secret was replaced": {"the secret was replaced since this account was linked, so it has to be linked again", func(c *commenting) {
			_, err := c.pool.Exec(c.t.Context(), `UPDATE cd_chat_accounts SET key_digest = decode(repeat('00', 32), 'hex')`)
			c.ok(err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := commentsBefore(t)
			c.links(70, "Ann", person(7))
			c.report(c.proposes("production", "open", nil), c.merges("production", "Ann", 70, nil))
			test.revoke(c)
			c.asks()
			c.counts("the merge of pull request #3 on the forge by Ann is no approval: " + test.why)
		})
	}
}

// commentsBefore is comments where nobody has asked for the approval yet.
func commentsBefore(t *testing.T) *commenting {
	t.Helper()
	c := comments(t)
	c.rollout = c.another(c.rollout)
	c.declares()
	return c
}

// another cancels a rollout, and begins one like it that has asked for nothing.
func (c *commenting) another(r core.Rollout) core.Rollout {
	c.t.Helper()
	_, err := c.rollouts.CancelRollout(c.t.Context(), user(), r.ID, "")
	c.ok(err)
	next := c.postal.rollout(c.set)
	c.report(event.RolloutStarted{RolloutID: next.ID})
	return next
}

// asks has the program ask for the approval.
func (c *commenting) asks() {
	c.t.Helper()
	c.report(event.ApprovalRequested{RolloutID: c.rollout.ID, GateID: "production"})
}

// D55: a merge that comes before the gate is asked for counts when it is, once.
func TestAMergeBeforeTheGateIsAskedFor(t *testing.T) {
	t.Parallel()
	t.Run("by the program", func(t *testing.T) {
		t.Parallel()
		c := commentsBefore(t)
		c.links(70, "Ann", person(7))
		c.report(c.proposes("production", "open", nil), c.merges("production", "Ann", 70, nil))
		c.counts("closed")
		c.asks()
		c.counts("closed", byAnn)
		c.verifyJournal(c.rollout)
	})
	t.Run("by the passage", func(t *testing.T) {
		t.Parallel()
		c := commentsBefore(t)
		c.links(70, "Ann", person(7))
		c.report(c.proposes("production", "open", nil), c.merges("production", "Ann", 70, nil))
		c.report(event.RolloutPassageRequested{RolloutID: c.rollout.ID, EnvironmentID: c.production.ID, GateID: "production"})
		c.counts("closed", byAnn)
		c.want(c.countOf(fmt.Sprintf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'pass_gate' AND rollout_id = %d AND principal_type = 'system'`,
			c.rollout.ID)), 1)
		c.verifyJournal(c.rollout)
	})
}

// D55, D49: a merge passes no freeze.
func TestAMergePassesNoFreeze(t *testing.T) {
	t.Parallel()
	c := commentsBefore(t)
	c.links(70, "Ann", person(7))
	c.report(
		event.RolloutPassageRequested{RolloutID: c.rollout.ID, EnvironmentID: c.production.ID, GateID: "production"},
		c.proposes("production", "open", nil),
	)
	_, err := c.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Reason: "sale", EndsAt: c.now.Now().Add(time.Hour)})
	c.ok(err)
	c.report(c.merges("production", "Ann", 70, nil))
	c.counts("closed", byAnn)
	c.want(c.countOf(fmt.Sprintf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'pass_gate' AND rollout_id = %d`, c.rollout.ID)), 0)
}

// D55: a merge after the gate was answered is no approval of what is asked after an abort.
func TestAMergeAfterTheGateWasAnsweredApprovesNothingLater(t *testing.T) {
	t.Parallel()
	c := merging(t)
	c.links(70, "Ann", person(7))
	c.report(c.proposes("production", "open", nil))
	_, err := c.rollouts.ApproveGate(t.Context(), person(8, "release"), rollout.Resolution{RolloutID: c.rollout.ID, GateID: "production"})
	c.ok(err)
	c.report(c.merges("production", "Ann", 70, nil))
	c.counts("closed", "user 8 production: ")
	c.asks()
	c.counts("", "user 8 production: ")
}

// D55: nor is one that is read after an abort, however the gate was answered before; one that comes before any answer is.
func TestAMergeThatIsReadAfterAnAbort(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"after the gate was answered": true, "before it was": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := merging(t)
			c.links(70, "Ann", person(7))
			c.report(c.proposes("production", "open", nil))
			if answered {
				_, err := c.rollouts.ApproveGate(t.Context(), person(8, "release"), rollout.Resolution{RolloutID: c.rollout.ID, GateID: "production"})
				c.ok(err)
			}
			c.report(event.DeploymentStarted{DeploymentID: c.deployments(c.stops(c.rollout)[0])[0].ID})
			_, err := c.rollouts.AbortRollout(t.Context(), user(), c.rollout.ID, "bad")
			c.ok(err)
			c.report(c.merges("production", "Ann", 70, nil), event.RolloutAborted{RolloutID: c.rollout.ID, EnvironmentID: c.staging.ID, Reason: "aborted"})
			_, err = c.rollouts.RetryRollout(t.Context(), user(), c.rollout.ID, "")
			c.ok(err)
			c.asks()
			if answered {
				c.counts("the merge of pull request #3 on the forge by Ann is no approval: "+
					"the gate was answered before, and a merge counts only for the first answer", "user 8 production: ")
			} else {
				c.counts("closed", byAnn)
			}
			c.verifyJournal(c.rollout)
		})
	}
}

// D55: where the driver does not say which files are the environment's, a program could propose anything for it: no merge approves that.
func TestAMergeApprovesNothingWherePlacesAreUndeclared(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "Ann", person(7))
	of := func(d *event.DeploymentProposed) { d.Repository = "https://git.test/shop/wiki" }
	c.report(c.proposes("production", "open", of), c.merges("production", "Ann", 70, of))
	c.counts("the merge of pull request #3 on the forge by Ann is no approval: " +
		"the driver of the environment does not declare which files are the environment's, so anything could be proposed for it")
	c.want(c.ended()[0], "in_progress")
}

// D55: what was not known of a merge at first is filled in by a later look; what is known stays.
func TestALaterLookAtAMergeKnowsMore(t *testing.T) {
	t.Parallel()
	const no = "the merge of pull request #3 on the forge by Ann is no approval: "
	c := mergingOn(t, `"group":"release","quorum":2`)
	c.links(70, "Ann", person(7))
	unshown := func(why string) func(*event.DeploymentProposed) {
		return func(d *event.DeploymentProposed) { d.Head, d.Unshown = "", why }
	}
	c.report(c.proposes("production", "open", nil))
	c.report(c.merges("production", "Ann", 0, unshown("it is the account of the repository's credential, with which runs merge")))
	c.counts(no + "it is the account of the repository's credential, with which runs merge")
	c.report(c.merges("production", "Ann", 70, unshown("the commits could not be read: no answer")))
	c.counts(no + "the commits could not be read: no answer")
	c.report(c.merges("production", "Ann", 70, nil))
	c.counts("", byAnn)
	c.report(c.merges("production", "Ann", 70, unshown("the commits could not be read: no answer")), c.merges("production", "Ann", 70, nil))
	c.counts("", byAnn)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_proposals WHERE unshown = '' AND ended_head = head`), 1)
}

// D55, R4-02: a replica of an earlier release leaves nothing of a merge before to the next one, which it does not know enough about.
func TestAnEarlierReleaseLeavesNoBranchOfAMergeBefore(t *testing.T) {
	t.Parallel()
	c := commentsBefore(t)
	c.links(70, "Ann", person(7))
	c.report(c.proposes("production", "open", nil), c.merges("production", "Bob", 71, nil))
	head := strings.Repeat("5", 40)
	for _, set := range []string{"state = 'open', ended_head = '', ended_by = '', ended_by_id = 0", "state = 'merged', ended_head = '" + head + "', ended_by = 'Ann', ended_by_id = 70"} {
		_, err := c.pool.Exec(t.Context(), `UPDATE cd_rollout_proposals SET branch = 'main', number = 4, head = '`+head+`', `+set)
		c.ok(err)
	}
	c.asks()
	c.counts("the merge of pull request #4 on the forge by Ann is no approval: it was read by a replica that does not know into which branch")
}

// D55: what the run withdraws is one proposal, by its repository and number; the program chooses what it says.
func TestAWithdrawalEndsItsOwnProposalAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*event.DeploymentProposed){
		"another number":     func(d *event.DeploymentProposed) { d.Number = 999 },
		"another repository": func(d *event.DeploymentProposed) { d.Repository = "https://git.test/other/repo" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := merging(t)
			c.links(70, "Ann", person(7))
			c.report(c.proposes("production", "withdrawn", change), c.proposes("production", "open", nil), c.proposes("production", "withdrawn", change))
			c.report(c.merges("production", "Ann", 70, nil))
			c.counts("closed", byAnn)
		})
	}
	t.Run("its own", func(t *testing.T) {
		t.Parallel()
		c := merging(t)
		c.links(70, "Ann", person(7))
		c.report(c.proposes("production", "open", nil), c.proposes("production", "withdrawn", nil), c.merges("production", "Ann", 70, nil))
		c.counts("")
	})
}

// D55: a merge that a replica of an earlier release has stored, which does not know into which branch it was, approves nothing.
func TestAMergeThatAnEarlierReleaseHasStored(t *testing.T) {
	t.Parallel()
	c := commentsBefore(t)
	c.links(70, "Ann", person(7))
	c.report(c.proposes("production", "open", nil))
	_, err := c.pool.Exec(t.Context(), `UPDATE cd_rollout_proposals SET state = 'merged', ended_head = head, ended_by = 'Ann', ended_by_id = 70`)
	c.ok(err)
	c.asks()
	c.counts("the merge of pull request #3 on the forge by Ann is no approval: it was read by a replica that does not know into which branch")
}

// D55: one that was merged, taken back and proposed again is merged again, which is another answer.
func TestAProposalThatIsMergedAgain(t *testing.T) {
	t.Parallel()
	c := mergingOn(t, `"group":"release","quorum":2`)
	c.links(70, "Ann", person(7))
	c.links(80, "Bea", person(8))
	next := func(d *event.DeploymentProposed) { d.Head, d.Number = strings.Repeat("5", 40), 4 }
	c.report(c.proposes("production", "open", nil), c.merges("production", "Ann", 70, nil), c.proposes("production", "open", next))
	c.counts("", byAnn)
	c.report(c.merges("production", "Ann", 70, nil)) // what was proposed before
	c.counts("", byAnn)
	c.report(c.merges("production", "Bea", 80, next))
	c.counts("closed", byAnn, "user 8 production: pull request #4 was merged on the forge, as Bea")
}

// D55, R4-02: a process that dies at any statement of the report has recorded the approval and closed the gate, or neither; two that have
// the report at once record it once.
func TestAMergedRequestSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	c := merging(t)
	c.links(70, "Ann", person(7))
	c.report(c.proposes("production", "open", nil))
	merged := c.emit(c.merges("production", "Ann", 70, nil), "")
	mortal, died := c.mortal(c.now)
	on := events.New(mortal.intake, mortal.rollouts, mortal.forges, mortal.chats, mortal.inbox)
	kills := c.diesAt(died, func() error { return on.Domain(t.Context(), []bus.Delivery{{Event: merged, Attempt: 1}})[0] }, func() {
		approvals, note := c.approved()
		answered := c.countOf(`SELECT count(*) FROM cd_rollout_proposals WHERE answered_head <> ''`)
		if (len(approvals) == 1) != (note == "closed") || len(approvals) != answered {
			t.Fatalf("found %q, %q and %d answers", approvals, note, answered)
		}
	})
	if kills < 5 {
		t.Errorf("found %d deaths", kills)
	}
	c.counts("closed", byAnn)
	c.deliver(merged)
	c.counts("closed", byAnn)
	c.verifyJournal(c.rollout)
}
