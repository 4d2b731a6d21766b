package domain

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// nudges counts the events that wake programs of deployments.
func (c checked) nudges() int {
	return c.countOf(`SELECT count(*) FROM outbox WHERE event->>'type' = 'com.gitlab.cd.deployment.nudged'`)
}

// submitted is a deployment whose program has submitted a Workflow.
func submitted(t *testing.T) (checked, core.Rollout, core.Deployment) {
	t.Helper()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	d := c.deployments(c.stops(r)[0])[0]
	c.report(event.DeploymentStarted{DeploymentID: d.ID})
	c.report(event.DeploymentSubmitted{DeploymentID: d.ID, Name: "deploy-api", Namespace: "shop", Status: "Submitted"})
	return c, r, d
}

// R2-30: a report over HTTP wakes the program of the deployment, once for each phase. A repeated report, one that is sent again later, one
// about another Workflow and one after the end of the deployment wake nobody. Nothing else changes.
func TestAReportWakesTheProgramOfADeployment(t *testing.T) {
	t.Parallel()
	c, r, d := submitted(t)
	send := func(name, phase string, woken bool, nudges int) {
		t.Helper()
		code, answer := c.post(api.ReportDeploymentPath, "nudges", "application/json",
			fmt.Sprintf(`{"deployment":"%d","name":%q,"namespace":"shop","phase":%q}`, d.ID, name, phase))
		if want := fmt.Sprintf("{\"woken\":%t}\n", woken); code != http.StatusAccepted || answer != want {
			t.Errorf("%s %s: found %d %s, expected %s", name, phase, code, answer, want)
		}
		c.want(c.nudges(), nudges)
	}
	before := c.story(r)
	send("deploy-api", "Running", true, 1)
	send("deploy-api", "Running", false, 1)
	send("deploy-other", "Succeeded", false, 1)
	send("deploy-api", "Succeeded", true, 2)
	send("deploy-api", "Running", false, 2)
	c.want(c.story(r), before)
	c.want(c.countOf(`SELECT count(*) FROM outbox WHERE event->>'type' = 'com.gitlab.cd.deployment.nudged' AND event->'data'->>'watch' = '`+
		fmt.Sprintf("deployment/%d", d.ID)+`' AND event->'data'->>'rollout_id' = '`+fmt.Sprint(r.ID)+`'`), 2)
	// A retry is another Workflow, and the phase of the same one is kept when it is shown again.
	c.report(event.DeploymentSubmitted{DeploymentID: d.ID, Name: "deploy-api", Namespace: "shop", Status: "Failed"})
	send("deploy-api", "Succeeded", false, 2)
	c.report(event.DeploymentSubmitted{DeploymentID: d.ID, Name: "deploy-api-2", Namespace: "shop", Status: "Submitted"})
	send("deploy-api", "Failed", false, 2)
	send("deploy-api-2", "Running", true, 3)
	c.report(event.DeploymentHealthy{DeploymentID: d.ID})
	send("deploy-api-2", "Succeeded", false, 3)
	c.verifyJournal(r)
}

// R2-30: reports that arrive at the same time wake the program once.
func TestReportsAtOnceWakeOnce(t *testing.T) {
	t.Parallel()
	c, _, d := submitted(t)
	var all sync.WaitGroup
	woken := make([]bool, 8)
	for i := range woken {
		all.Go(func() {
			var err error
			woken[i], err = c.rollouts.NudgeDeployment(t.Context(), user(), rollout.OutsideReport{
				DeploymentID: d.ID, Name: "deploy-api", Namespace: "shop", Phase: "Succeeded",
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	for _, w := range woken {
		if w {
			n++
		}
	}
	c.want(n, 1)
	c.want(c.nudges(), 1)
}

// R2-30: a report needs a token with the permission to nudge, in the application and environment of the deployment. Tokens of another
// organization, of another environment and of checks are refused, each with its reason, and so is a body that cannot be meant.
func TestReportsOfStrangersWakeNobody(t *testing.T) {
	t.Parallel()
	c, _, d := submitted(t)
	good := fmt.Sprintf(`{"deployment":"deployment_%d","name":"deploy-api","namespace":"shop","phase":"Running"}`, d.ID)
	for _, one := range []struct {
		name, token, body string
		code              int
		text              string
	}{
		{"no token", "", good, 401, "bearer token"},
		{"a guessed token", "guessed", good, 401, "authorization"},
		{"no right", "deploys", good, 403, `\"nudge\"`},
		{"of checks only", "reports", good, 403, `\"nudge\"`},
		{"another organization", "other", good, 404, "does not exist"},
		{"no deployment", "nudges", `{"name":"deploy-api","phase":"Running"}`, 400, `/deployment: found \"\"; expected the number of a deployment`},
		{"a number", "nudges", `{"deployment":7,"name":"n","phase":"Running"}`, 400, "/deployment: found a number; expected a string"},
		{"one that does not exist", "nudges", `{"deployment":"999999","name":"n","phase":"Running"}`, 404, "does not exist"},
		{"no name", "nudges", `{"deployment":"1","phase":"Running"}`, 400, "/name: found 0 bytes; expected 1 to 255"},
		{"another phase", "nudges", `{"deployment":"1","name":"n","phase":"Done"}`, 400, `/phase: found \"Done\"; expected one of Pending, Running, Succeeded, Failed, Error`},
		{"more than is read", "nudges", `{"deployment":"1","name":"n","phase":"Running","result":"success"}`, 400, "unknown field"},
	} {
		if code, answer := c.post(api.ReportDeploymentPath, one.token, "application/json", one.body); code != one.code || !strings.Contains(answer, one.text) {
			t.Errorf("%s: found %d %s; expected %d with %s", one.name, code, answer, one.code, one.text)
		}
	}
	report := rollout.OutsideReport{DeploymentID: d.ID, Name: "deploy-api", Namespace: "shop", Phase: "Running"}
	limited := func(environment string, keys ...string) core.Actor {
		return core.Actor{
			Organization: org, Type: core.PrincipalAgent, ID: 9, Name: "argo", CheckKeys: keys, Permissions: core.PermissionsOf(core.MayRead),
			Grants: []core.Grant{{
				Permissions:  core.PermissionsOf(core.MayNudge),
				Applications: []int64{c.application.ID}, Environments: []int64{c.places[environment].ID},
			}},
		}
	}
	for name, actor := range map[string]core.Actor{"of another environment": limited("prod"), "of checks": limited("dev", "healthy")} {
		if _, err := c.rollouts.NudgeDeployment(t.Context(), actor, report); !fault.Is(err, fault.Denied) {
			t.Errorf("a token %s: found %v, expected that it is denied", name, err)
		}
	}
	c.want(c.nudges(), 0)
	woken, err := c.rollouts.NudgeDeployment(t.Context(), limited("dev"), report)
	c.ok(err)
	c.want(woken, true)
}

// R2-30: who reads the token of a sensor in the cluster that is deployed to can open no gate: it reports and evaluates no check.
func TestATokenOfASensorReportsNoCheck(t *testing.T) {
	t.Parallel()
	c, _, _ := submitted(t)
	for path, body := range map[string]string{
		api.ChecksPath:        `{"application":"shop","environment":"dev","version_set":"versionset_1","key":"healthy","phase":"success"}`,
		api.EvaluateCheckPath: `{"application":"shop","environment":"dev","key":"healthy"}`,
	} {
		for token, refused := range map[string]bool{"nudges": true, "reports": false} {
			code, answer := c.post(path, token, "application/json", body)
			if is := code == http.StatusForbidden && strings.Contains(answer, `needs the permission \"report\"`); is != refused {
				t.Errorf("%s with the token %s: found %d %s, expected a refusal %t", path, token, code, answer, refused)
			}
		}
	}
}

// R2-30: a member who reports all the time has to wait, and nothing is read for it.
func TestReportsHaveABound(t *testing.T) {
	t.Parallel()
	asked := 0
	none := http.NotFoundHandler()
	h := api.NewHandler(api.Deps{
		GraphQL: none, Console: none, Deployments: counted{&asked}, Clock: clocktest.New(time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)),
		Tokens: api.Tokens{"argo": {Organization: org, Type: core.PrincipalAgent, ID: 1, Permissions: core.PermissionsOf(core.MayNudge)}},
	})
	last := 0
	for range 301 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, api.ReportDeploymentPath,
			strings.NewReader(`{"deployment":"1","name":"n","phase":"Running"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer argo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		last = w.Code
	}
	if asked != 300 || last != http.StatusTooManyRequests {
		t.Errorf("found %d reports and the status %d, expected 300 and 429", asked, last)
	}
}

// counted counts reports.
type counted struct{ n *int }

func (c counted) NudgeDeployment(context.Context, core.Actor, rollout.OutsideReport) (bool, error) {
	*c.n++
	return false, nil
}
