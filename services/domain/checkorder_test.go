package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
)

// orders are all orders of some numbers.
func orders(of []int) [][]int {
	if len(of) < 2 {
		return [][]int{of}
	}
	var all [][]int
	for i := range of {
		rest := append(append([]int{}, of[:i]...), of[i+1:]...)
		for _, order := range orders(rest) {
			all = append(all, append([]int{of[i]}, order...))
		}
	}
	return all
}

// R3-15, and the known bug of an aggregate that stays pending although everything is green (gitops-promoter#1109): whatever arrives last
// opens the passage, in any order, and everything twice.
func TestNoOrderOfInputsLeavesAPassagePending(t *testing.T) {
	t.Parallel()
	for _, order := range orders([]int{0, 1, 2, 3}) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			c := promoter(t, `,{"kind":"health"},{"key":"scan"}`)
			r := c.rollout(c.set)
			c.enter(r, "dev")
			c.contact("dev", false)
			c.now.Advance(time.Second)
			inputs := []func(){
				func() { c.enter(r, "test") },
				func() { c.complete(r, "dev"); c.review() },
				func() {
					c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
					c.reports(2, "dev", c.set, "scan", core.CheckSuccess)
				},
				func() { c.contact("dev", true) },
			}
			for i, input := range order {
				inputs[input]()
				inputs[input]()
				want := []string{"dev"}
				if i == len(order)-1 {
					want = []string{"dev", "test"}
				}
				if got := c.granted(); len(got) < len(want) || i < len(order)-1 && len(got) > 1 {
					t.Errorf("after %v: found %v, expected %v", order[:i+1], got, want)
				}
			}
			c.verifyJournal(r)
		})
	}
}

// R3-04, R3-12: a check guards one entrance. What turns red behind it undoes nothing, and what is red in the environment that was entered
// since keeps the one behind that closed.
func TestWhatTurnsRedAfterTheEntranceUndoesNothing(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	c.enter(r, "test")
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.want(c.granted(), []string{"dev", "test"})
	c.reports(1, "dev", c.set, "healthy", core.CheckFailure)
	c.enter(r, "test") // once more, as after a crash of the program
	c.want(c.waits(r, "check"), []string{})
	c.want(c.granted(), []string{"dev", "test", "test"}) // it is answered again
	c.complete(r, "test")
	c.reports(1, "prod", c.set, "deployment-freeze", core.CheckSuccess)
	c.reports(1, "test", c.set, "healthy", core.CheckFailure)
	c.enter(r, "prod")
	c.want(c.waits(r, "check"), []string{`check: passage "prod" needs check "healthy" of "test", which is failure: failure by ci-1`})
	c.reports(1, "test", c.set, "healthy", core.CheckSuccess)
	c.want(c.granted(), []string{"dev", "test", "test", "prod"})
	c.want(c.passed(r)[1], "test (no approval required; check healthy: success)")
	c.verifyJournal(r)
}

// A known bug of others: a timer for a branch whose name does not match any waits for ever. A pipeline that names an environment that does
// not exist is refused when it is written, and a check of an environment that the pipeline does not go to guards nothing.
func TestATimerOfAnEnvironmentThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	c := scheduled(t, `{}`, `{}`)
	found, err := c.setup.CheckFlowDefinition(t.Context(), user(), []byte(
		`{"steps":[{"type":"deploy","environment":"staging-2","checks":{"active":[{"kind":"timer","duration":60}]},"config":{}}]}`,
	))
	c.ok(err)
	if len(found) == 0 || !strings.Contains(fmt.Sprint(found), `found "staging-2"; expected an environment that exists`) {
		t.Errorf("found %v", found)
	}
}

// Decisions cost in proportion to what may change: a status that is no success opens nothing, so no passage is evaluated for it, also by
// the program of a check; what is shown follows it all the same.
func TestWhatOpensNothingIsNotEvaluated(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	c.enter(r, "test")
	c.review()
	report := func(phase core.CheckPhase, want int) {
		t.Helper()
		_, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
			ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, VersionSetID: c.set.ID, Key: "healthy", Phase: phase,
		})
		c.ok(err)
		if waits := c.waits(r, "check"); phase != core.CheckSuccess && (len(waits) != 1 || !strings.Contains(waits[0], fmt.Sprintf("which is %s: %s by", phase, phase))) {
			t.Errorf("waits %q", waits)
		}
		c.want(c.countOf(`SELECT count(*) FROM cd_passage_reviews`), want)
	}
	report(core.CheckPending, 0)
	report(core.CheckFailure, 0)
	report(core.CheckPending, 0)
	report(core.CheckSuccess, 1)
	c.want(c.review(), 1)
	c.want(c.granted(), []string{"dev", "test"})

	g, of := gauged(t)
	g.enter(of, "dev", "prod")
	g.review()
	for _, phase := range []core.CheckPhase{core.CheckPending, core.CheckFailure} {
		g.ok(g.reportOf(id.CheckRun(1), event.CheckReported{CheckRunID: 1, Phase: string(phase)}))
		g.want(g.countOf(`SELECT count(*) FROM cd_passage_reviews`), 0)
	}
	g.ok(g.reportOf(id.CheckRun(1), event.CheckReported{CheckRunID: 1, Phase: "success"}))
	g.want(g.countOf(`SELECT count(*) FROM cd_passage_reviews`), 1)
}
