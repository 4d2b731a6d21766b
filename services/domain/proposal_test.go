package domain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// proposedHead is the commit that Lockstep proposes.
var proposedHead = strings.Repeat("4", 40)

// proposes is what the engine reports of the pull request of an environment.
func (c *commenting) proposes(environment, state string, change func(*event.DeploymentProposed)) event.DeploymentProposed {
	d := event.DeploymentProposed{
		RolloutID: c.rollout.ID, Name: environment, Repository: proposed, Number: 3, State: state, Head: proposedHead,
	}
	if state == "open" {
		d.Branch, d.Paths = "main", []string{environment + "/api.yaml"}
	}
	if change != nil {
		change(&d)
	}
	return d
}

func closedBy(login string, user int64) func(*event.DeploymentProposed) {
	return func(d *event.DeploymentProposed) { d.By, d.ByID = login, user }
}

// ended is how the rollout is, and why, with who has rejected its gate, if anyone has.
func (c *commenting) ended() []string {
	c.t.Helper()
	var state, reason, rejected string
	c.ok(c.pool.QueryRow(c.t.Context(), `SELECT state FROM cd_rollouts WHERE id = $1`, c.rollout.ID).Scan(&state))
	c.ok(c.pool.QueryRow(c.t.Context(), `SELECT coalesce(max(reason) FILTER (WHERE event = 'cancel'), ''),
		coalesce(max(principal_type || ' ' || coalesce(principal_id::text, '') || ' ' || gate_id || `+
		`': ' || reason) FILTER (WHERE event = 'reject'), '')
		FROM cd_rollout_transitions WHERE rollout_id = $1`, c.rollout.ID).Scan(&reason, &rejected))
	return []string{state, reason, rejected}
}

// D55: closing the pull request of an environment rejects its gate, as a person does in the console: the rollout is cancelled, with who has
// done it, and nothing is rolled back, since nothing was deployed there.
func TestClosingTheRequestRejectsTheGate(t *testing.T) {
	t.Parallel()
	const rejected = `gate "production" was rejected: `
	tests := map[string]struct {
		by   func(*event.DeploymentProposed)
		want []string
	}{
		"by a member who may answer": {closedBy("Ann", 70), []string{
			"cancelled", rejected + "pull request #3 was closed on the forge, as Ann", "user 7 production: pull request #3 was closed on the forge, as Ann",
		}},
		"by a member who may not answer": {closedBy("Eve", 90), []string{
			"cancelled", rejected + "pull request #3 was closed on the forge by Eve", "system  production: pull request #3 was closed on the forge by Eve",
		}},
		"by nobody we know": {closedBy("Bob", 71), []string{
			"cancelled", rejected + "pull request #3 was closed on the forge by Bob", "system  production: pull request #3 was closed on the forge by Bob",
		}},
		"by a name that others have at the forge": {closedBy("Ann", 0), []string{
			"cancelled", rejected + "pull request #3 was closed on the forge by Ann", "system  production: pull request #3 was closed on the forge by Ann",
		}},
		"by whom the forge does not say": {nil, []string{
			"cancelled", rejected + "pull request #3 was closed on the forge", "system  production: pull request #3 was closed on the forge",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := comments(t)
			c.links(70, "Ann", person(7))
			c.links(90, "Eve", person(9))
			c.report(c.proposes("production", "open", nil))
			c.want(c.ended(), []string{"in_progress", "", ""})
			c.report(c.proposes("production", "closed", test.by))
			if diff := cmp.Diff(test.want, c.ended()); diff != "" {
				t.Errorf("the rollout (-want +got):\n%s", diff)
			}
			// What the program reports then comes too late.
			c.report(event.RolloutEnvironmentFailed{RolloutID: c.rollout.ID, EnvironmentID: c.production.ID, Reason: "closed"},
				event.RolloutFailed{RolloutID: c.rollout.ID, Reason: "closed"})
			c.want(c.countOf(`SELECT count(*) FROM cd_automatic_rollbacks`), 0)
			c.want(c.ended()[0], "cancelled")
			c.verifyJournal(c.rollout)
		})
	}
}

// D55: what is not the proposal of the environment, or is old, or comes after the change was made, rejects nothing.
func TestWhatRejectsNothing(t *testing.T) {
	t.Parallel()
	other := strings.Repeat("5", 40)
	alone := func(c *commenting, state, head string) event.DeploymentProposed {
		return c.proposes("production", state, func(d *event.DeploymentProposed) {
			d.Number, d.Branch, d.Paths, d.Head = 0, "main", []string{"production/api.yaml"}, head
		})
	}
	tests := map[string]func(c *commenting) []event.DeploymentProposed{
		"one that was read and not proposed": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{c.proposes("production", "closed", nil)}
		},
		"another number": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				c.proposes("production", "open", nil),
				c.proposes("production", "closed", func(d *event.DeploymentProposed) { d.Number = 4 }),
			}
		},
		"another repository": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				c.proposes("production", "open", nil),
				c.proposes("production", "closed", func(d *event.DeploymentProposed) { d.Repository = "https://git.evil.example/x" }),
			}
		},
		"a name that is no environment": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{c.proposes("change", "open", nil), c.proposes("change", "closed", nil)}
		},
		"a branch alone that nobody has proposed": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{alone(c, "closed", proposedHead), alone(c, "closed", other)}
		},
		"a branch alone with another head": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{alone(c, "open", proposedHead), alone(c, "closed", other)}
		},
		"a branch alone that the run merges": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				alone(c, "open", proposedHead), c.proposes("production", "merged", func(d *event.DeploymentProposed) { d.Number = 0 }),
				alone(c, "closed", proposedHead),
			}
		},
		"what the run withdraws": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				c.proposes("production", "open", nil), c.proposes("production", "withdrawn", nil),
				c.proposes("production", "closed", closedBy("Ann", 70)), c.proposes("production", "open", nil),
				c.proposes("production", "closed", closedBy("Ann", 70)),
			}
		},
		"what the run withdraws before the answer has come": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				c.proposes("production", "withdrawn", nil), c.proposes("production", "open", nil), c.proposes("production", "closed", nil),
			}
		},
		"one that was merged and then closed": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				c.proposes("production", "open", nil), c.proposes("production", "merged", nil), c.proposes("production", "closed", nil),
			}
		},
		"one that is open, or merged": func(c *commenting) []event.DeploymentProposed {
			return []event.DeploymentProposed{
				c.proposes("production", "open", nil), c.proposes("production", "merged", closedBy("Ann", 70)),
				c.proposes("production", "open", func(d *event.DeploymentProposed) { d.Head = other }),
			}
		},
	}
	for name, reports := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := comments(t)
			c.links(70, "Ann", person(7))
			for _, d := range reports(c) {
				c.report(d)
			}
			c.want(c.ended(), []string{"in_progress", "", ""})
			c.want(c.approvals(), 0)
		})
	}
	t.Run("a change outside of the places of the environment", func(t *testing.T) {
		t.Parallel()
		c := comments(t)
		_, err := c.pool.Exec(t.Context(), `ALTER TABLE cd_rollout_places DISABLE TRIGGER USER;
			UPDATE cd_rollout_places SET places = '[{"repository": "https://git.test/shop/config", "branch": "main", "path": "production"}]'`)
		c.ok(err)
		outside := func(d *event.DeploymentProposed) { d.Paths = append(d.Paths, "staging/api.yaml") }
		c.report(c.proposes("production", "open", outside), c.proposes("production", "closed", nil))
		c.want(c.ended(), []string{"in_progress", "", ""})
		c.report(c.proposes("production", "open", nil), c.proposes("production", "closed", nil))
		c.want(c.ended()[0], "cancelled")
	})
	t.Run("once the change was made", func(t *testing.T) {
		t.Parallel()
		c := comments(t)
		c.report(c.proposes("production", "open", nil))
		c.attemptIn(c.production, 1)
		c.report(c.proposes("production", "closed", nil))
		c.want(c.ended(), []string{"in_progress", "", ""})
	})
	t.Run("a pull request of another server", func(t *testing.T) {
		t.Parallel()
		c := comments(t)
		_, err := c.pool.Exec(t.Context(), `ALTER TABLE cd_rollout_places DISABLE TRIGGER USER;
			UPDATE cd_rollout_places SET places = '[{"repository": "https://git.test/shop/config", "branch": "main", "path": "production"}]'`)
		c.ok(err)
		for _, repository := range []string{"http://git.test/shop/config", "https://git.test:8443/shop/config", "ssh://git@git.test/shop/config"} {
			of := func(d *event.DeploymentProposed) { d.Repository = repository }
			c.report(c.proposes("production", "open", of), c.proposes("production", "closed", of))
			c.want(c.ended(), []string{"in_progress", "", ""})
		}
	})
	t.Run("another run", func(t *testing.T) {
		t.Parallel()
		c := comments(t)
		c.report(c.proposes("production", "open", nil))
		err := c.on.Domain(t.Context(), []bus.Delivery{{Event: c.emit(c.proposes("production", "closed", nil), "rollout-999"), Attempt: 1}})[0]
		if err == nil {
			t.Error("the report of another run was taken")
		}
		c.want(c.ended(), []string{"in_progress", "", ""})
	})
}

// D55: the order of the reports of a run counts, and no clock; and a branch alone that is deleted is rejected as a pull request is.
func TestClosingTheRequestCountsInTheOrderOfTheReports(t *testing.T) {
	t.Parallel()
	c := comments(t)
	branch := func(d *event.DeploymentProposed) {
		d.Number, d.Branch, d.Paths = 0, "main", []string{"production/api.yaml"}
	}
	opened, closed := c.emit(c.proposes("production", "open", branch), ""), c.emit(c.proposes("production", "closed", branch), "")
	closed.SetTime(opened.Time().Add(-time.Hour))
	c.deliver(opened, closed)
	c.want(c.ended()[1], `gate "production" was rejected: the branch of the proposal was deleted on the forge`)
}

// D55: nobody rejects a gate that nobody has requested: the rollout is cancelled, with the reason.
func TestClosingTheRequestOfAGateThatIsNotRequestedCancels(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "Ann", person(7))
	c.report(c.proposes("production", "open", nil))
	_, err := c.rollouts.ApproveGate(t.Context(), person(7, "release"), rollout.Resolution{RolloutID: c.rollout.ID, GateID: "production"})
	c.ok(err)
	c.report(c.proposes("production", "closed", closedBy("Ann", 70)))
	c.want(c.ended(), []string{"cancelled", "pull request #3 was closed on the forge by Ann", ""})
	c.verifyJournal(c.rollout)
}

// attemptIn records that an attempt of a deployment in an environment has committed something.
func (c *commenting) attemptIn(e core.Environment, n int) {
	c.t.Helper()
	for _, stop := range c.stops(c.rollout) {
		if stop.EnvironmentID == e.ID {
			c.deliver(c.attempt(c.deployments(stop)[0].ID, n, n))
		}
	}
}

// D55, R4-02: a process that dies at any statement of the report has rejected the gate and cancelled the rollout, or neither.
func TestAClosedRequestSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	c := comments(t)
	c.links(70, "Ann", person(7))
	c.report(c.proposes("production", "open", nil))
	closed := c.emit(c.proposes("production", "closed", closedBy("Ann", 70)), "")
	mortal, died := c.mortal(c.now)
	on := events.New(mortal.intake, mortal.rollouts, mortal.forges, mortal.chats, mortal.inbox)
	kills := c.diesAt(died, func() error { return on.Domain(t.Context(), []bus.Delivery{{Event: closed, Attempt: 1}})[0] }, func() {
		if got := c.ended(); (got[0] == "cancelled") != (got[2] != "") {
			t.Fatalf("found %q", got)
		}
	})
	if kills < 5 || c.ended()[2] != "user 7 production: pull request #3 was closed on the forge, as Ann" {
		t.Errorf("found %q after %d deaths", c.ended(), kills)
	}
	c.deliver(closed)
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'reject'`), 1)
}
