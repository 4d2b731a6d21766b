package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// gauged is the shop of the worked example, where the check gauge of a kind that is data guards what is active everywhere and what is
// proposed for prod.
func gauged(t *testing.T) (checked, core.Rollout) {
	t.Helper()
	c := promoter(t, "")
	_, err := c.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: c.application.ID, Definition: gaugedPipeline(`{"most":5}`, `{"most":7}`),
	})
	c.ok(err)
	c.makeReady()
	return c, c.rollout(c.set)
}

// gaugedPipeline has the check in both places, with these configurations.
func gaugedPipeline(active, proposed string) json.RawMessage {
	return json.RawMessage(`{"checks":{"active":[{"key":"gauge","kind":"gauge","with":` + active + `}]},"steps":[` +
		`{"type":"deploy","environment":"dev","config":` + appEnvConfig("dev") + `},` +
		`{"type":"deploy","environment":"prod","checks":{"proposed":[{"key":"ticket","kind":"gauge@1","with":` + proposed + `}]},"config":` +
		appEnvConfig("prod") + `}]}`)
}

// program reports as the run of a check's program.
func (c checked) program(run int64, phase core.CheckPhase, description string) {
	c.t.Helper()
	c.ok(c.reportOf(id.CheckRun(run), event.CheckReported{CheckRunID: run, Phase: string(phase), Description: description}))
	c.review()
}

// reportOf delivers an event of a run, and returns its outcome.
func (c checked) reportOf(run string, data event.Data) error {
	c.t.Helper()
	e := c.emit(data, "-")
	e.SetExtension(event.ExtensionCorrelation, run)
	return c.on.Domain(c.t.Context(), []bus.Delivery{{Event: e, Attempt: 1}})[0]
}

// programs are the starts of programs of checks that were handed over, by run.
func (c checked) programs() map[string]handoff.Workflow {
	c.t.Helper()
	c.handOver()
	all := map[string]handoff.Workflow{}
	for _, w := range c.engine.started {
		if id.Check(w.ID) != 0 {
			all[w.ID] = w
		}
	}
	return all
}

// D48: the domain opens the run of a check's program once its passage is requested and there is what it is about, each once; what the
// program reports decides; and the run is ended when the passage has been granted.
func TestTheProgramOfACheckDecides(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	c.enter(r, "dev")
	c.enter(r, "prod") // before dev is complete: there is nothing yet that the active check is about
	started := c.programs()
	if len(started) != 1 {
		t.Fatalf("started %v", started)
	}
	var in struct {
		Check struct {
			RunID  int64 `json:"run_id"`
			Key    string
			Target string
			Kind   string
		}
		Config  struct{ Most int }
		Subject struct {
			Application, Environment struct{ Name string }
			Environments             []struct{ Name string }
			VersionSet               struct {
				ID       int64
				Versions []struct{ Digest string }
			} `json:"version_set"`
		}
	}
	c.ok(json.Unmarshal(started["check-1"].Inputs, &in))
	if in.Check.RunID != 1 || in.Check.Key != "ticket" || in.Check.Target != "proposed" || in.Check.Kind != "gauge@1" || in.Config.Most != 7 ||
		in.Subject.Environment.Name != "prod" || in.Subject.Application.Name != "shop" || len(in.Subject.Environments) != 2 ||
		in.Subject.VersionSet.ID != c.set.ID || len(in.Subject.VersionSet.Versions) == 0 {
		t.Errorf("inputs: %s", started["check-1"].Inputs)
	}
	if source := string(started["check-1"].Program.Source); !strings.Contains(source, "report(check") ||
		started["check-1"].Program.Modules["lockstep:check@1"] == nil {
		t.Errorf("program: %s", source)
	}
	c.program(1, core.CheckSuccess, "7 of 7")
	c.complete(r, "dev")
	c.review()
	c.want(c.waits(r, "check"), []string{
		`check: passage "prod" needs check "gauge" of "dev", which is pending: its program runs, and has not reported yet`,
	})
	c.review() // nothing is opened twice
	if started = c.programs(); len(started) != 2 {
		t.Fatalf("started %v", started)
	}
	c.program(2, core.CheckFailure, "9 of 5")
	c.want(c.waits(r, "check"), []string{
		`check: passage "prod" needs check "gauge" of "dev", which is failure: failure by gauge@1: 9 of 5`,
	})
	c.program(2, core.CheckFailure, "9 of 5") // repeats
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 2)
	c.program(2, core.CheckSuccess, "5 of 5")
	c.want(c.granted(), []string{"dev", "prod"})
	c.want(c.passed(r)[1], "prod (no approval required; check gauge: success; check ticket: success)")
	c.verifyJournal(r)
	c.handOver()
	slices.Sort(c.engine.cancels)
	c.want(c.engine.cancels, []string{"check-1", "check-2"})
	c.program(2, core.CheckFailure, "late") // the check is no longer required
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 3)
	// R3-47: what was recorded is counted, and nothing else.
	counts := map[core.CheckPhase]uint64{}
	for _, l := range c.rollouts.CheckLatencies() {
		counts[l.Phase] += l.Count
		c.want([]any{l.Kind, l.Within[86400]}, []any{core.CheckKind("gauge@1"), l.Count})
	}
	c.want(counts, map[core.CheckPhase]uint64{core.CheckSuccess: 2, core.CheckFailure: 1})
}

// D47, D48: only the run of the check reports about it, and what the run of another rollout of the same version set has found out decides
// nothing.
func TestOnlyItsOwnRunDecidesACheck(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	c.enter(r, "dev")
	c.enter(r, "prod")
	for _, other := range []string{id.RolloutRun(r.ID), id.CheckRun(2), "mine", ""} {
		err := c.reportOf(other, event.CheckReported{CheckRunID: 1, Phase: "success"})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "expected it of run check-1") {
			t.Errorf("reported by %q: %v", other, err)
		}
	}
	if err := c.reportOf(id.CheckRun(99), event.CheckReported{CheckRunID: 99, Phase: "success"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that does not exist: %v", err)
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 0)
	c.program(1, core.CheckSuccess, "")
	_, err := c.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	c.ok(err)
	c.want(c.countOf(`SELECT count(*) FROM cd_check_runs WHERE ended_at IS NULL`), 0)
	again := c.rollout(c.set)
	c.enter(again, "dev")
	c.enter(again, "prod")
	c.complete(again, "dev")
	c.review()
	c.program(3, core.CheckSuccess, "") // the active one
	waits := c.waits(again, "check")
	if len(waits) != 1 || !strings.Contains(waits[0], `check "ticket" of "prod", which is pending: its program runs, and has not reported yet`) {
		t.Errorf("waits %q", waits)
	}
}

// D48: a program that ends without a decision, or fails, fails its check with the reason, and the check can be evaluated again (R3-49); a
// program that runs is nudged.
func TestACheckWhoseProgramHasEnded(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name string
		end  event.Data
		want string
	}{
		{"completed", event.WorkflowCompleted{WorkflowID: "check-1"}, "failure by gauge@1: its program has ended without a decision"},
		{
			"failed",
			event.WorkflowFailed{WorkflowID: "check-1", Error: "no such gauge"},
			"failure by gauge@1: its program has ended without a decision: no such gauge",
		},
		{"cancelled", event.WorkflowCancelled{WorkflowID: "check-1", Reason: "by hand"}, "failure by gauge@1: its program has ended without a decision: by hand"},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			c, r := gauged(t)
			c.enter(r, "dev")
			named := rollout.CheckNamed{RolloutID: r.ID, EnvironmentID: c.places["prod"].ID, Key: "ticket"}
			if _, err := c.rollouts.EvaluateCheck(t.Context(), user(), named); !fault.Is(err, fault.Refused) {
				t.Errorf("evaluated before its passage is requested: %v", err)
			}
			c.enter(r, "prod")
			_, err := c.rollouts.EvaluateCheck(t.Context(), user(), named)
			c.ok(err)
			c.want(c.countOf(`SELECT count(*) FROM outbox WHERE event->>'type' = 'com.gitlab.cd.check.nudged'`), 1)
			c.program(1, core.CheckPending, "reading")
			c.ok(c.reportOf("check-1", one.end))
			c.review()
			waits := c.waits(r, "check")
			if !slices.ContainsFunc(waits, func(w string) bool { return strings.Contains(w, one.want) }) {
				t.Errorf("waits %q, expected %q", waits, one.want)
			}
			_, err = c.rollouts.EvaluateCheck(t.Context(), user(), named)
			c.ok(err)
			if _, again := c.programs()["check-2"]; !again {
				t.Error("the program was not started again")
			}
			c.program(2, core.CheckSuccess, "")
			c.complete(r, "dev")
			c.review()
			c.program(3, core.CheckSuccess, "")
			c.want(c.granted(), []string{"dev", "prod"})
		})
	}
}

// A program that has decided may end: its decision stays.
func TestADecisionOutlivesItsProgram(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	c.enter(r, "dev")
	c.enter(r, "prod")
	c.program(1, core.CheckSuccess, "")
	c.ok(c.reportOf("check-1", event.WorkflowCompleted{WorkflowID: "check-1"}))
	c.complete(r, "dev")
	c.review()
	c.handOver()
	c.program(2, core.CheckSuccess, "")
	c.want(c.granted(), []string{"dev", "prod"})
	c.handOver()
	c.want(c.engine.cancels, []string{"check-2"})
}

// D48: a kind that is not installed, a configuration that does not fit, and two configurations of one key are refused when they are
// written, each with its place; so is a link of a program that nobody should follow.
func TestChecksOfKindsAreValidated(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	for _, one := range []struct{ definition, want string }{
		{string(gaugedPipeline(`{"most":0}`, `{"most":1}`)), "/definition/checks/active/0/with/most: "},
		{string(gaugedPipeline(`{}`, `{"most":1}`)), "/definition/checks/active/0/with/most"},
		{string(gaugedPipeline(`{"most":1,"least":2}`, `{"most":1}`)), "/definition/checks/active/0/with/least"},
		{strings.Replace(string(gaugedPipeline(`{"most":1}`, `{"most":1}`)), "gauge@1", "gouge", 1), `/definition/steps/1/checks/proposed/0/kind: found "gouge", which is not installed; expected one of status, timer, schedule, health, `},
		{strings.Replace(string(gaugedPipeline(`{"most":1}`, `{"most":1}`)), `"kind":"gauge@1"`, `"kind":"status"`, 1), "/definition/steps/1/checks/proposed/0/with"},
		{strings.Replace(string(gaugedPipeline(`{"most":1}`, `{"most":1}`)), "gauge@1", "paper", 1), "which is not installed"},
	} {
		_, err := c.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: c.application.ID, Definition: json.RawMessage(one.definition),
		})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("found %v, expected %q", err, one.want)
		}
	}
	_, err := c.setup.SetEnvironmentChecks(t.Context(), user(), c.places["prod"].ID, json.RawMessage(`{"active":[{"key":"g","kind":"gauge"}]}`))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "/checks/active/0/with/most") {
		t.Errorf("checks of an environment: %v", err)
	}
	c.enter(r, "dev")
	c.enter(r, "prod")
	c.ok(c.reportOf("check-1", event.CheckReported{CheckRunID: 1, Phase: "success", Link: "javascript:alert(1)"}))
	c.review()
	if waits := c.waits(r, "check"); !strings.Contains(strings.Join(waits, "\n"), "expected an http or https address without credentials") {
		t.Errorf("waits %q", waits)
	}
	kinds := c.setup.CheckKinds()
	if !slices.ContainsFunc(kinds, func(k core.InstalledCheckKind) bool { return k.Ref == "gauge@1" && k.Origin == "folder" }) {
		t.Errorf("kinds %v", kinds)
	}
	for _, d := range c.setup.Drivers() {
		if strings.HasPrefix(d.Ref, "gauge") {
			t.Error("a check kind is among the drivers")
		}
	}
}

// R3-44: a program that finds out about all environments with one call reports them together, and the run of the same check in the next
// environment begins with that. One that is asked for begins without, and an environment that the rollout does not have is an error.
func TestOneCallIsForAllEnvironments(t *testing.T) {
	t.Parallel()
	const shared = `"checks":{"proposed":[{"key":"ticket","kind":"gauge@1","with":{"most":%s}}]}`
	for name, most := range map[string]string{"configured alike": "7", "configured otherwise": "8"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := promoter(t, "")
			_, err := c.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
				ApplicationID: c.application.ID, Definition: json.RawMessage(`{"steps":[` +
					`{"type":"deploy","environment":"dev",` + strings.Replace(shared, "%s", "7", 1) + `,"config":` + appEnvConfig("dev") + `},` +
					`{"type":"deploy","environment":"prod",` + strings.Replace(shared, "%s", most, 1) + `,"config":` + appEnvConfig("prod") + `}]}`),
			})
			c.ok(err)
			c.makeReady()
			r := c.rollout(c.set)
			before := func(run string) string {
				t.Helper()
				var in struct {
					Check struct {
						Before []struct{ Environment, Phase string }
					}
				}
				c.ok(json.Unmarshal(c.programs()[run].Inputs, &in))
				return fmt.Sprint(in.Check.Before)
			}
			together := func(run int64, phase string, environments ...event.CheckedEnvironment) {
				t.Helper()
				c.ok(c.reportOf(id.CheckRun(run), event.CheckReported{CheckRunID: run, Phase: phase, Environments: environments}))
				c.review()
			}
			dev, prod := event.CheckedEnvironment{Environment: "dev", Phase: "success"}, event.CheckedEnvironment{Environment: "prod", Phase: "pending"}
			c.enter(r, "dev")
			c.want(before("check-1"), "[]")
			together(1, "pending", event.CheckedEnvironment{Environment: "mars", Phase: "success"})
			c.want(c.waits(r, "check"), []string{
				`check: passage "dev" needs check "ticket" of "dev", which is failure: failure by gauge@1: ` +
					`its program has reported the environment "mars"; expected one of the rollout`,
			})
			together(1, "pending", dev, prod)
			prod.Phase = "success"
			statuses := c.countOf(`SELECT count(*) FROM cd_check_statuses`)
			together(1, "pending", dev, prod) // other phases of others are news
			together(1, "pending", prod, dev) // the same again is not
			c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), statuses+1)
			together(1, "success", dev, prod)
			c.want(c.granted(), []string{"dev"})
			c.complete(r, "dev")
			c.enter(r, "prod")
			want := "[]"
			if most == "7" {
				want = "[{dev success} {prod success}]"
			}
			c.want(before("check-2"), want)
			c.want(c.granted(), []string{"dev"}) // the program decides, and not what it begins with
			c.ok(c.reportOf("check-2", event.WorkflowFailed{WorkflowID: "check-2", Error: "no such gauge"}))
			named := rollout.CheckNamed{RolloutID: r.ID, EnvironmentID: c.places["prod"].ID, Key: "ticket"}
			_, err = c.rollouts.EvaluateCheck(t.Context(), user(), named)
			c.ok(err)
			c.want(before("check-3"), "[]") // its caller wants a new answer
			c.ok(c.reportOf(id.CheckRun(3), event.CheckReported{CheckRunID: 3, Phase: "success"}))
			c.review()
			c.want(c.granted(), []string{"dev", "prod"})
			c.verifyJournal(r)
		})
	}
}

// R3-34, R3-35, R3-36, R3-38: what a program keeps is for the runs of the same check in other environments, the latest report last, also if
// the check decides for one environment only. It is replaced by what is kept next, left by a report without one, and bounded.
func TestOutputsOfACheckAreReadElsewhere(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	step := func(environment, most string) string {
		return `{"type":"deploy","environment":"` + environment + `","config":` + appEnvConfig(environment) +
			`,"checks":{"proposed":[{"key":"ticket","kind":"gauge@1","with":{"most":` + most + `}}]}}`
	}
	_, err := c.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: c.application.ID,
		Definition:    json.RawMessage(`{"steps":[` + step("dev", "7") + `,` + step("test", "7") + `,` + step("prod", "8") + `]}`),
	})
	c.ok(err)
	c.makeReady()
	r := c.rollout(c.set)
	elsewhere := func(run string) string {
		t.Helper()
		var in struct {
			Check struct {
				Elsewhere []struct {
					Environment, Phase string
					Output             map[string]string
				}
			}
		}
		c.ok(json.Unmarshal(c.programs()[run].Inputs, &in))
		return fmt.Sprint(in.Check.Elsewhere)
	}
	reported := func(phase, output string) {
		t.Helper()
		c.ok(c.reportOf("check-1", event.CheckReported{CheckRunID: 1, Phase: phase, Output: json.RawMessage(output)}))
		c.review()
	}
	c.enter(r, "dev")
	c.want(elsewhere("check-1"), "[]")
	reported("pending", `{"long":"`+strings.Repeat("x", 16<<10)+`"}`)
	c.want(c.waits(r, "check"), []string{
		`check: passage "dev" needs check "ticket" of "dev", which is pending: pending by gauge@1: ` +
			`its output is not kept: found 16395 bytes; expected at most 16384`,
	})
	reported("pending", `{"text":"a\u0000b"}`)
	c.want(c.waits(r, "check"), []string{
		`check: passage "dev" needs check "ticket" of "dev", which is pending: pending by gauge@1: ` +
			`its output is not kept: found a NUL character; expected text without`,
	})
	// Encoders write some characters with escapes, for HTML. A backslash before u0000 is no NUL character.
	reported("pending", `{ "text": "a\\u0000b`+strings.Repeat(`\u003C`, 16<<10-40)+`" }`)
	c.want(c.countOf(`SELECT count(*) FROM cd_check_runs WHERE output::text LIKE '%u0000b<<<%'`), 1)
	c.ok(c.reportOf("check-1", event.CheckReported{CheckRunID: 1, Phase: "pending", Description: "a\x00b"}))
	c.review()
	c.want(c.waits(r, "check"), []string{`check: passage "dev" needs check "ticket" of "dev", which is pending: pending by gauge@1: a` + "\uFFFD" + `b`})
	reported("pending", `{"ticket":"CHG-6"}`)
	statuses := c.countOf(`SELECT count(*) FROM cd_check_statuses`)
	reported("pending", `{"ticket":"CHG-7"}`) // no status of its own
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), statuses)
	reported("success", "")
	c.complete(r, "dev")
	c.enter(r, "test")
	c.want(elsewhere("check-2"), "[{dev success map[ticket:CHG-7]}]")
	c.want(c.granted(), []string{"dev"}) // what is read elsewhere decides nothing
	c.ok(c.reportOf("check-2", event.CheckReported{CheckRunID: 2, Phase: "success"}))
	c.review()
	c.complete(r, "test")
	c.enter(r, "prod")
	c.want(elsewhere("check-3"), "[]") // it is configured otherwise
	c.verifyJournal(r)
}
