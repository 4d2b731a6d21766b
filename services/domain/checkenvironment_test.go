package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

func (c checked) requires(environment, checks string) {
	c.t.Helper()
	_, err := c.setup.SetEnvironmentChecks(c.t.Context(), user(), c.places[environment].ID, json.RawMessage(checks))
	c.ok(err)
}

// D48: an environment has checks of its own, which no pipeline can weaken: a shorter timer with the same key does not replace the
// environment's, and a pipeline without checks does not go around them. They are pinned when the rollout is created (D46).
func TestAnEnvironmentRequiresChecksOfItsOwn(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"key":"soak","kind":"timer","duration":60}`)
	before := c.rollout(c.set)
	c.requires("dev", `{"active":[{"key":"soak","kind":"timer","duration":3600}]}`)
	c.requires("test", `{"proposed":[{"key":"tickets"}]}`)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(before, "dev", "test")
	c.complete(before, "dev")
	c.now.Advance(time.Minute)
	c.review()
	c.want(c.granted(), []string{"dev", "test"}) // it exists already, and keeps the conditions that it was created with
	_, err := c.rollouts.CancelRollout(t.Context(), user(), before.ID, "")
	c.ok(err)

	set := c.release(2)
	r := c.rollout(set)
	c.reports(1, "dev", set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	c.now.Advance(time.Minute)
	c.review()
	c.want(c.waits(r, "check"), []string{
		`check: passage "test" needs check "soak" of "dev", which is pending: requires 1 h, of which at most 59m0s remain`,
		`check: passage "test" needs check "tickets" of "test", which is pending: no report about this version set yet`,
	})
	c.reports(1, "test", set, "tickets", core.CheckSuccess)
	c.now.Advance(time.Hour)
	c.review()
	c.want(c.granted(), []string{"dev", "test", "dev", "test"})

	all, err := c.view.RolloutChecks(t.Context(), org, []int64{r.ID})
	c.ok(err)
	var lines []string
	for _, s := range all[r.ID] {
		by := "pipeline"
		if s.Own {
			by = "environment"
		}
		lines = append(lines, strings.Join([]string{string(s.Target), s.Key, by, string(s.Phase)}, " "))
	}
	c.want(lines, []string{
		"active healthy pipeline success", "active soak pipeline success", "active soak environment success",
		"proposed tickets environment success", "active healthy pipeline pending", "active soak pipeline pending",
		"proposed deployment-freeze pipeline pending", "active healthy pipeline pending", "active soak pipeline pending",
	})
	c.verifyJournal(r)

	// Removed: the next rollout does not need them.
	for _, name := range []string{"dev", "test"} {
		c.requires(name, `null`)
	}
	known, err := c.view.EnvironmentChecks(t.Context(), org, []int64{c.places["dev"].ID, c.places["test"].ID})
	c.ok(err)
	c.want(len(known), 0)
}

// Checks of environments are validated like those of pipelines, take the permission to configure, and belong to one organization.
func TestChecksOfAnEnvironmentAreRefused(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	for name, one := range map[string]struct {
		checks, want string
		class        fault.Class
		change       func(*core.Actor)
	}{
		"an unknown kind":     {`{"active":[{"key":"a","kind":"magic"}]}`, "/checks/active/0/kind", fault.Invalid, nil},
		"an unknown target":   {`{"later":[]}`, "/checks/later", fault.Invalid, nil},
		"a list":              {`[]`, "/checks", fault.Invalid, nil},
		"a key with capitals": {`{"active":[{"key":"A"}]}`, "/checks/active/0/key", fault.Invalid, nil},
		"windows that never open": {
			`{"proposed":[{"key":"a","kind":"schedule","schedule":{"exclude":[{"cron":"* * * * *","duration":60}]}}]}`, "never open", fault.Invalid, nil,
		},
		"text that is not JSON": {`{"active"`, "not JSON", fault.Invalid, nil},
		"a second definition":   {`{}},"steps":[{"type":"pause","duration":1}],"x":{`, "not JSON", fault.Invalid, nil},
		"a deployer":            {`{"active":[{"key":"a"}]}`, "configure", fault.Denied, func(a *core.Actor) { a.Permissions = core.RoleDeployer.Permissions() }},
		"another organization":  {`{"active":[{"key":"a"}]}`, "does not exist", fault.NotFound, func(a *core.Actor) { a.Organization = 2 }},
	} {
		a := user()
		if one.change != nil {
			one.change(&a)
		}
		_, err := c.setup.SetEnvironmentChecks(t.Context(), a, c.places["dev"].ID, json.RawMessage(one.checks))
		if !fault.Is(err, one.class) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: found %v (%v); expected %v with %s", name, err, fault.ClassOf(err), one.class, one.want)
		}
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_environment_checks`), 0)
}

// D48, R3-28: what an environment requires is validated again when it is pinned. Another release may have accepted a configuration that the
// kind as it is here does not know, and a program that does not know it would judge something else.
func TestChecksOfAnEnvironmentAreValidatedWhenTheyArePinned(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	c.requires("dev", `{"proposed":[{"key":"g","kind":"gauge","with":{"most":5}}]}`)
	stored := func(with string) {
		_, err := c.pool.Exec(t.Context(), `UPDATE cd_environment_checks SET checks = $1`, `{"proposed":[{"key":"g","kind":"gauge","with":`+with+`}]}`)
		c.ok(err)
	}
	for with, want := range map[string]string{`{"most":5,"about":"live"}`: "about", `{"most":0}`: "most"} {
		stored(with)
		_, err := c.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: c.set.ID, Reason: "test"})
		if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), `check "g": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v (%v); expected it to be refused with %s", with, err, fault.ClassOf(err), want)
		}
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_rollouts`), 0)
	stored(`{"most":5}`)
	c.enter(c.rollout(c.set), "dev")
	c.want(len(c.programs()), 1)
}

// D46: an environment with checks of its own is protected from changes that belong to no rollout, and its change is in the journal.
func TestAnEnvironmentWithChecksIsProtected(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	c.want(c.announced()["dev"].Protected, false)
	c.requires("dev", `{"active":[{"key":"a"}]}`)
	c.want(c.announced()["dev"].Protected, true)
	c.want(c.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'setEnvironmentChecks'`), 1)
	// A key that only the environment has is reported like any other.
	_, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
		Application: c.application.Name, Environment: "dev", VersionSetID: c.set.ID, Key: "a", Phase: core.CheckSuccess,
	})
	c.ok(err)
	c.requires("dev", `{}`)
	c.want(c.announced()["dev"].Protected, false)
}
