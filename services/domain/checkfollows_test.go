package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// drawn is a guarded shop of environments, each with what it follows as in a pipeline; "" for the one before it. Each has the active check
// healthy.
func drawn(t *testing.T, environments ...[2]string) checked {
	t.Helper()
	w := frozen(t)
	c := checked{w, map[string]core.Environment{}}
	for _, e := range environments {
		c.places[e[0]] = w.environment(e[0], core.TierStaging)
		w.report(event.EnvironmentReady{EnvironmentID: c.places[e[0]].ID})
	}
	w.ok(c.draw(environments...))
	w.makeReady()
	return c
}

func (c checked) draw(environments ...[2]string) error {
	c.t.Helper()
	var steps []string
	for _, e := range environments {
		follows := ""
		if e[1] != "" {
			follows = `"follows":` + e[1] + `,`
		}
		steps = append(steps, fmt.Sprintf(`{"type":"deploy","environment":%q,%s"config":%s}`, e[0], follows, appEnvConfig(e[0])))
	}
	_, err := c.setup.CreateFlowDefinition(c.t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: c.application.ID,
		Definition:    json.RawMessage(`{"checks":{"active":[{"key":"healthy"}]},"steps":[` + join(steps) + `]}`),
	})
	return err
}

// R3-16, D32: an environment that follows several is entered once the active checks of all of them are green, and one that does not follow
// the environment before it is not held by that one. A red one closes it again as long as it has not been entered.
func TestAnEnvironmentFollowsSeveral(t *testing.T) {
	t.Parallel()
	for _, red := range []string{"", "eu", "us"} {
		t.Run("red: "+red, func(t *testing.T) {
			t.Parallel()
			c := drawn(t, [2]string{"dev", ""}, [2]string{"eu", ""}, [2]string{"us", `["dev"]`}, [2]string{"prod", `["eu","us"]`})
			r := c.rollout(c.set)
			c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
			for _, name := range []string{"dev", "eu", "us"} { // nothing is known of eu, which us does not follow
				c.enter(r, name)
				c.complete(r, name)
			}
			c.want(c.granted(), []string{"dev", "eu", "us"})
			c.enter(r, "prod")
			needs := func(environment, phase, detail string) string {
				return fmt.Sprintf(`check: passage "prod" needs check "healthy" of %q, which is %s: %s`, environment, phase, detail)
			}
			none := "no report about this version set yet"
			c.want(c.waits(r, "check"), []string{needs("eu", "pending", none), needs("us", "pending", none)})
			for _, name := range []string{"us", "eu"} {
				phase := core.CheckSuccess
				if name == red {
					phase = core.CheckFailure
				}
				c.reports(1, name, c.set, "healthy", phase)
			}
			if red != "" {
				c.want(c.granted(), []string{"dev", "eu", "us"})
				c.want(c.waits(r, "check"), []string{needs(red, "failure", "failure by ci-1")})
				c.reports(1, red, c.set, "healthy", core.CheckSuccess)
			}
			c.want(c.granted(), []string{"dev", "eu", "us", "prod"})
			c.want(c.passed(r)[3], "prod (no approval required; check healthy: success; check healthy: success)")
			c.verifyJournal(r)
		})
	}
}

// R3-16: what an environment requires by itself guards the one behind it whatever the pipeline names, an empty list is none, and one that
// the rollout leaves out is replaced by what it follows.
func TestAPipelineCannotWeakenWhatAnEnvironmentRequires(t *testing.T) {
	t.Parallel()
	c := drawn(t, [2]string{"dev", ""}, [2]string{"eu", ""}, [2]string{"prod", `[]`})
	c.requires("eu", `{"active":[{"key":"scan"}]}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	for _, name := range []string{"dev", "eu"} {
		c.enter(r, name)
		c.complete(r, name)
	}
	c.enter(r, "prod")
	c.want(c.waits(r, "check"), []string{`check: passage "prod" needs check "scan" of "eu", which is pending: no report about this version set yet`})
	c.reports(1, "eu", c.set, "scan", core.CheckSuccess)
	c.want(c.granted(), []string{"dev", "eu", "prod"})
}

// R3-16: a pipeline that names what comes later, does not exist, or is named twice is refused when it is written, with the place.
func TestWhatIsFollowedIsChecked(t *testing.T) {
	t.Parallel()
	c := drawn(t, [2]string{"dev", ""}, [2]string{"eu", ""}, [2]string{"prod", ""})
	for _, one := range []struct{ follows, want string }{
		{`["mars"]`, `/steps/1/follows/0: found "mars"; expected an environment that an earlier step deploys to`},
		{`["dev","prod"]`, `/steps/1/follows/1: found "prod"`},
		{`["eu"]`, `/steps/1/follows/0: found "eu"`},
		{`["dev","dev"]`, `/steps/1/follows`},
		{`"dev"`, `/steps/1/follows`},
		{`[1]`, `/steps/1/follows/0`},
	} {
		err := c.draw([2]string{"dev", ""}, [2]string{"eu", one.follows}, [2]string{"prod", ""})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: found %v; expected %s", one.follows, err, one.want)
		}
	}
}

// D48, R3-12: between the end of an environment and the entrance of the next one, the health of what was deployed is looked at again: what
// has become unhealthy keeps the next one closed, without any check in the pipeline, and its recovery opens it. What is not known, or was
// seen before the deployment ended, keeps nothing closed.
func TestWhatHasBecomeUnhealthyKeepsTheNextEnvironmentClosed(t *testing.T) {
	t.Parallel()
	const needs = `check: passage "test" needs check "previous-environment" of "dev", which is `
	for name, one := range map[string]struct {
		health, want string
		after        time.Duration
	}{
		"degraded":    {"degraded", needs + "failure: api is degraded: CrashLoopBackOff", time.Minute},
		"progressing": {"progressing", needs + "pending: api is progressing: CrashLoopBackOff", time.Minute},
		"unknown":     {"unknown", "", time.Minute},
		"before":      {"degraded", "", -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := promoter(t, "")
			r := c.rollout(c.set)
			c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
			c.enter(r, "dev")
			c.complete(r, "dev")
			c.observed("dev", one.health, "CrashLoopBackOff", one.after)
			c.enter(r, "test")
			if one.want == "" {
				c.want(c.granted(), []string{"dev", "test"})
				return
			}
			c.want(c.granted(), []string{"dev"})
			c.want(c.waits(r, "check"), []string{one.want})
			c.observed("dev", "healthy", "", 2*time.Minute) // nothing else is needed (R3-15)
			c.want(c.granted(), []string{"dev", "test"})
			c.verifyJournal(r)
		})
	}
}

// R3-15: recovery opens the entrance also of a rollout without any check, and so does the loss of the agent that had the word: what is not
// known keeps nothing closed.
func TestHealthAloneHoldsAndOpensTheNextEnvironment(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"healthy", "lost", "lost before"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := frozen(t)
			c := checked{w, map[string]core.Environment{"staging": w.staging, "production": w.production}}
			r := c.rollout(c.set)
			c.enter(r, "staging")
			c.complete(r, "staging")
			c.observed("staging", "degraded", "CrashLoopBackOff", time.Minute)
			if name == "lost before" {
				c.contact("staging", false)
				c.enter(r, "production")
				c.want(c.granted(), []string{"staging", "production"})
				return
			}
			c.enter(r, "production")
			c.want(c.granted(), []string{"staging"})
			if name == "lost" {
				c.contact("staging", false)
			} else {
				c.observed("staging", "healthy", "", 2*time.Minute)
			}
			c.want(c.granted(), []string{"staging", "production"})
			c.verifyJournal(r)
		})
	}
}

// A rollback is how people mend what is degraded: the health of what it has brought to an environment does not hold it.
func TestARollbackIsNotHeldByHealth(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	c := checked{w, map[string]core.Environment{"staging": w.staging, "production": w.production}}
	first := w.rollout(w.set)
	w.pass(first, "staging", "production")
	w.succeed(first)
	second := w.rollout(w.release(2))
	w.pass(second, "staging", "production")
	w.succeed(second)
	back, err := w.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: second.ID, Reason: "down"})
	w.ok(err)
	w.enter(back, "staging")
	c.complete(back, "staging")
	c.observed("staging", "degraded", "CrashLoopBackOff", time.Minute)
	before := len(w.granted())
	w.enter(back, "production")
	w.want(w.granted()[before:], []string{"production"})
}
