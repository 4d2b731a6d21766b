package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// checked is a guarded shop of dev, test and prod, by a clock of the test's: every environment has the active check healthy, and prod
// has the proposed check deployment-freeze, as in the worked example of GitOps Promoter's documentation (R3-01, R3-05).
type checked struct {
	winter
	places map[string]core.Environment
}

func promoter(t *testing.T, extra string) checked {
	t.Helper()
	w := frozen(t)
	c := checked{w, map[string]core.Environment{}}
	var steps []string
	for _, name := range []string{"dev", "test", "prod"} {
		e := w.environment(name, core.TierStaging)
		w.report(event.EnvironmentReady{EnvironmentID: e.ID})
		own := ""
		if name == "prod" {
			own = `"checks":{"proposed":[{"key":"deployment-freeze"}]},`
		}
		steps = append(steps, fmt.Sprintf(`{"type":"deploy","environment":%q,%s"config":%s}`, name, own, appEnvConfig(name)))
		c.places[name] = e
	}
	_, err := w.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: w.application.ID,
		Definition:    json.RawMessage(`{"checks":{"active":[{"key":"healthy"}` + extra + `]},"steps":[` + join(steps) + `]}`),
	})
	w.ok(err)
	w.makeReady()
	return c
}

// reports a status by a machine of a number.
func (c checked) reports(reporter int64, environment string, set core.VersionSet, key string, phase core.CheckPhase) {
	c.t.Helper()
	a := core.Actor{
		Organization: org, Type: core.PrincipalAgent, ID: reporter, Name: fmt.Sprintf("ci-%d", reporter),
		Permissions: core.PermissionsOf(core.MayRead, core.MayReport),
	}
	_, err := c.checks.ReportCheck(c.t.Context(), a, check.Report{
		ApplicationID: c.application.ID, EnvironmentID: c.places[environment].ID, VersionSetID: set.ID, Key: key, Phase: phase,
	})
	c.ok(err)
	c.review()
}

// complete is what the program reports of an environment.
func (c checked) complete(r core.Rollout, environment string) {
	c.t.Helper()
	for _, e := range c.stops(r) {
		if e.EnvironmentID != c.places[environment].ID {
			continue
		}
		for _, d := range c.deployments(e) {
			c.report(event.DeploymentStarted{DeploymentID: d.ID}, event.DeploymentHealthy{DeploymentID: d.ID})
		}
		c.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	}
}

// D48: two reports of one reporter at the same moment are recorded one after the other, so a repetition is found although the first report
// has not been committed when the second one arrives.
func TestReportsOfOneReporterAreRecordedInTurn(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	blocker, err := c.pool.Begin(t.Context())
	c.ok(err)
	defer func() { _ = blocker.Rollback(t.Context()) }()
	_, err = blocker.Exec(t.Context(), `LOCK TABLE cd_check_statuses IN SHARE MODE`) // statuses can be read, not added
	c.ok(err)
	reported := make(chan error)
	for range 2 {
		go func() {
			_, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
				ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, VersionSetID: c.set.ID, Key: "healthy",
				Phase: core.CheckSuccess,
			})
			reported <- err
		}()
	}
	c.blocks(blocker.Conn().PgConn().PID(), 2)
	c.ok(blocker.Commit(t.Context()))
	c.ok(<-reported)
	c.ok(<-reported)
	var rows int
	c.ok(c.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_check_statuses`).Scan(&rows))
	c.want(rows, 1)
}

// blocks waits until sessions wait for the one with a PID, or for each other behind it.
func (f *fixture) blocks(pid uint32, sessions int) {
	f.t.Helper()
	for deadline := clock.System().Now().Add(20 * time.Second); ; {
		var waiting int
		f.ok(f.pool.QueryRow(f.t.Context(), `WITH RECURSIVE blocked AS (
			SELECT $1::int AS pid UNION SELECT a.pid FROM pg_stat_activity a JOIN blocked b ON b.pid = ANY (pg_blocking_pids(a.pid))
		) SELECT count(*) - 1 FROM blocked`, pid).Scan(&waiting))
		if waiting >= sessions {
			return
		}
		if clock.System().Now().After(deadline) {
			f.t.Fatalf("%d sessions wait, expected %d", waiting, sessions)
		}
	}
}

// status is one of the worked example's, and where the change stops without it.
type status struct{ environment, key, stops string }

// R3-02, R3-03, R3-04, R3-07, R3-11, R3-12: with exactly the set that the worked example names green, a change crosses all
// environments; with any one of them red, stale or missing it stops exactly where the example says. The status of the last environment
// is for information (R3-13): nothing comes after it.
func TestTheWorkedExampleOfGitOpsPromoter(t *testing.T) {
	t.Parallel()
	example := []status{
		{"dev", "healthy", "test"}, {"test", "healthy", "prod"}, {"prod", "deployment-freeze", "prod"}, {"prod", "healthy", ""},
	}
	for _, fault := range []string{"", "red", "pending", "stale", "missing", "elsewhere"} {
		for i, wrong := range example {
			if fault == "" && i > 0 {
				break // all are green: once is enough
			}
			t.Run(fmt.Sprintf("%s %s of %s", fault, wrong.key, wrong.environment), func(t *testing.T) {
				t.Parallel()
				c := promoter(t, "")
				stale := c.set
				set := c.release(2)
				for _, s := range example {
					switch {
					case fault == "" || s != wrong:
						c.reports(1, s.environment, set, s.key, core.CheckSuccess)
					case fault == "red":
						c.reports(1, s.environment, set, s.key, core.CheckFailure)
					case fault == "pending":
						c.reports(1, s.environment, set, s.key, core.CheckPending)
					case fault == "stale":
						c.reports(1, s.environment, stale, s.key, core.CheckSuccess)
					case fault == "elsewhere": // right key and version set, another environment's subject
						for _, other := range example {
							if other.key == s.key && other.environment != s.environment {
								c.reports(1, other.environment, set, s.key, core.CheckSuccess)
							}
						}
					}
				}
				want := []string{"dev", "test", "prod"}
				if at := slices.Index(want, wrong.stops); fault != "" && at >= 0 {
					want = want[:at]
				}
				r := c.rollout(set)
				for _, environment := range []string{"dev", "test", "prod"} {
					c.enter(r, environment)
					if !slices.Contains(c.granted(), environment) {
						break
					}
					c.complete(r, environment)
				}
				c.want(c.granted(), want)
				if len(want) == 3 {
					return
				}
				waits := c.waits(r, "check")
				if len(waits) != 1 || !strings.Contains(waits[0], fmt.Sprintf("passage %q needs check %q of %q", wrong.stops, wrong.key, wrong.environment)) {
					t.Errorf("waits: %q", waits)
				}
				c.reports(1, wrong.environment, set, wrong.key, core.CheckSuccess) // a report is all that it needs (R3-15)
				c.want(c.granted(), append(want, wrong.stops))
				c.verifyJournal(r)
			})
		}
	}
}

// A reporter that alternates does not fill the table: of each key, subject and reporter the last 20 statuses are kept, and no other row
// goes.
func TestStatusesEnd(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	c.enter(r, "test")
	c.reports(2, "dev", c.set, "healthy", core.CheckPending)
	for i := range 50 {
		c.reports(1, "dev", c.set, "healthy", []core.CheckPhase{core.CheckFailure, core.CheckSuccess}[i%2])
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 21)
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses WHERE phase = 'pending'`), 1)
	if _, err := c.pool.Exec(t.Context(), `DELETE FROM cd_check_statuses`); err == nil {
		t.Error("the last statuses of reporters were deleted")
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 21)
}

// R3-06, and the known bug of two statuses for one key: reporters that contradict each other are a failure that names both, never a
// coin toss; the latest report of each counts.
func TestReportersThatContradictEachOther(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	c.enter(r, "test")
	c.reports(1, "dev", c.set, "healthy", core.CheckFailure)
	c.reports(2, "dev", c.set, "healthy", core.CheckSuccess)
	c.want(c.granted(), []string{"dev"})
	waits := c.waits(r, "check")
	if len(waits) != 1 || !strings.Contains(waits[0], "the reporters contradict each other: failure by ci-1, success by ci-2") {
		t.Errorf("%q", waits)
	}
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.want(c.granted(), []string{"dev", "test"})
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess) // a repetition is no further row
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 3)
	c.want(c.passed(r)[1], "test (no approval required; check healthy: success)")
}

// R3-20 to R3-25: a timer counts from when the rollout has completed in the environment, shows what remains, and opens the passage at its
// time without anybody asking; on the last environment it is for information.
func TestATimerOpensThePassageAtItsTime(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"key":"timer","kind":"timer","duration":3600}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test") // requested before the environment has completed (R3-22)
	c.want(c.waits(r, "check"), []string{
		`check: passage "test" needs check "timer" of "dev", which is pending: requires 1 h; the rollout has not completed there yet`,
	})
	c.complete(r, "dev")
	c.review()
	c.now.Advance(20 * time.Minute)
	c.want(c.waits(r, "check"), []string{
		`check: passage "test" needs check "timer" of "dev", which is pending: requires 1 h, of which at most 40m0s remain`,
	})
	c.want(c.review(), 0)
	c.now.Advance(40 * time.Minute)
	c.want(c.review(), 1)
	c.want(c.granted(), []string{"dev", "test"})
}

// R3-08, R3-10: each mistake in a report has its own error, and changes nothing.
func TestAReportIsRefused(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"key":"soak","kind":"timer","duration":60}`)
	good := check.Report{
		ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, VersionSetID: c.set.ID, Key: "healthy", Phase: core.CheckSuccess,
	}
	other := c.application.ID + 500
	for _, one := range []struct {
		name   string
		change func(*check.Report, *core.Actor)
		class  fault.Class
		text   string
	}{
		{"no right", func(_ *check.Report, a *core.Actor) { a.Permissions = core.RoleApprover.Permissions() }, fault.Denied, `"report"`},
		{"a deployer", func(_ *check.Report, a *core.Actor) { a.Permissions = core.RoleDeployer.Permissions() }, fault.Denied, `"report"`},
		{"another organization", func(_ *check.Report, a *core.Actor) { a.Organization = 2 }, fault.NotFound, "does not exist"},
		{"a key with capitals", func(r *check.Report, _ *core.Actor) { r.Key = "Healthy" }, fault.Invalid, `found "Healthy"`},
		{"a key of 64", func(r *check.Report, _ *core.Actor) { r.Key = strings.Repeat("k", 64) }, fault.Invalid, "expected 1 to 63"},
		{"no key", func(r *check.Report, _ *core.Actor) { r.Key = "" }, fault.Invalid, "/key"},
		{"a key that no check has", func(r *check.Report, _ *core.Actor) { r.Key = "helthy" }, fault.Invalid, `/key: found "helthy", which no check of the application in that environment has; expected "healthy"`},
		{"a key of another environment", func(r *check.Report, _ *core.Actor) { r.Key = "deployment-freeze" }, fault.Invalid, `expected "healthy"`},
		{"the key of a timer", func(r *check.Report, _ *core.Actor) { r.Key = "soak" }, fault.Invalid, `found "soak", a check of kind timer, whose status is not reported`},
		{"a time in the future", func(r *check.Report, _ *core.Actor) { at := c.now.Now().Add(2 * time.Minute); r.ObservedAt = &at }, fault.Invalid, "/observedAt: found 2027-01-15T08:02:00Z, which is in the future"},
		{"a time of long ago", func(r *check.Report, _ *core.Actor) { at := c.now.Now().Add(-31 * 24 * time.Hour); r.ObservedAt = &at }, fault.Invalid, "expected a time of the last 30 days"},
		{"a phase that does not exist", func(r *check.Report, _ *core.Actor) { r.Phase = "green" }, fault.Invalid, "expected pending, success or failure"},
		{"a megabyte", func(r *check.Report, _ *core.Actor) { r.Description = strings.Repeat("d", 1<<20) }, fault.Invalid, "found 1048576 bytes"},
		{"javascript", func(r *check.Report, _ *core.Actor) { r.Link = "javascript:alert(1)" }, fault.Invalid, "expected an http or https address"},
		{"a password in the link", func(r *check.Report, _ *core.Actor) { r.Link = "https://a:b@c.test" }, fault.Invalid, "without credentials"},
		{"a long link", func(r *check.Report, _ *core.Actor) { r.Link = "https://a.test/" + strings.Repeat("l", 2000) }, fault.Invalid, "found 2015 bytes"},
		{"no subject", func(r *check.Report, _ *core.Actor) { r.VersionSetID = 0 }, fault.Invalid, "expected a version set, a commit or a digest"},
		{"two subjects", func(r *check.Report, _ *core.Actor) { r.Commit = strings.Repeat("a", 40) }, fault.Invalid, "one of these only"},
		{"no digest", func(r *check.Report, _ *core.Actor) { r.VersionSetID, r.Digest = 0, "latest" }, fault.Invalid, `/digest: found "latest"; expected sha256:`},
		{"a digest that nobody knows", func(r *check.Report, _ *core.Actor) { r.VersionSetID, r.Digest = 0, "sha256:"+strings.Repeat("a", 64) }, fault.Invalid, "which no version set of the application has"},
		{"a short commit", func(r *check.Report, _ *core.Actor) { r.VersionSetID, r.Commit = 0, "abc123" }, fault.Invalid, "hexadecimal digits"},
		{"a commit that nobody knows", func(r *check.Report, _ *core.Actor) { r.VersionSetID, r.Commit = 0, strings.Repeat("a", 40) }, fault.Invalid, "has recorded"},
		{"an application that does not exist", func(r *check.Report, _ *core.Actor) { r.ApplicationID = other }, fault.NotFound, "application"},
		{"a version set that does not exist", func(r *check.Report, _ *core.Actor) { r.VersionSetID = 999 }, fault.NotFound, "version set"},
	} {
		r, a := good, user()
		one.change(&r, &a)
		_, err := c.checks.ReportCheck(t.Context(), a, r)
		if !fault.Is(err, one.class) || !strings.Contains(err.Error(), one.text) {
			t.Errorf("%s: got %v (%v), expected %v with %q", one.name, err, fault.ClassOf(err), one.class, one.text)
		}
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 0)
	c.want(c.countOf(`SELECT count(*) FROM cd_passage_reviews`), 0)
}

// R3-02, R3-06: a status may name the commit that a deployment has recorded; one of an older commit decides nothing.
func TestAStatusMayNameACommit(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	commit := func(r core.Rollout, sha string) {
		c.report(event.DeploymentCommitted{DeploymentID: c.deployments(c.stops(r)[0])[0].ID, CommitSHA: sha, ManifestDigest: digestOf(1)})
	}
	older, newer := strings.Repeat("a", 40), strings.Repeat("b", 40)
	first := c.rollout(c.set)
	c.enter(first, "dev")
	commit(first, older)
	_, err := c.rollouts.CancelRollout(t.Context(), user(), first.ID, "")
	c.ok(err)
	r := c.rollout(c.release(2))
	c.enter(r, "dev")
	commit(r, newer)
	c.complete(r, "dev")
	c.enter(r, "test")
	by := func(sha string) {
		_, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
			ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, Commit: sha, Key: "healthy", Phase: core.CheckSuccess,
		})
		c.ok(err)
		c.review()
	}
	by(older)
	c.want(c.granted(), []string{"dev", "dev"})
	by(strings.ToUpper(newer))
	c.want(c.granted(), []string{"dev", "dev", "test"})
	_, err = c.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	c.ok(err)
	third := c.rollout(c.release(3))
	c.enter(third, "dev")
	commit(third, newer)
	_, err = c.checks.ReportCheck(t.Context(), user(), check.Report{
		ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, Commit: newer, Key: "healthy", Phase: core.CheckSuccess,
	})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "had for several version sets; expected the version set") {
		t.Errorf("a commit of two version sets: %v", err)
	}
}

// D48, R3-06: a status may name the digest of what a version set consists of, or the commit that it was built from, which provenance has
// stated. It is about that version set alone; what is only a part of one, or of several, is no subject.
func TestAStatusMayNameAnArtifact(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	prove, registry := c.proving()
	older, newer := strings.Repeat("c", 40), strings.Repeat("d", 40)
	built := func(revision string) {
		registry.reports(provenance.Report{Sources: []provenance.Source{{Repository: "https://git.test/shop", Revision: revision}}}, false, nil)
		if c.lookUp(prove) == 0 {
			t.Fatal("looked up nothing")
		}
	}
	built(older)
	at := c.now.Now()
	c.publish(c.artifact("registry.test/shop/api", "1.3", 33, at), c.artifact("registry.test/shop/web", "1.3", 33, at)) // one image for both
	set := c.sets()[0]
	built(newer)
	r := c.rollout(set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	c.enter(r, "test")
	by := func(report check.Report) (core.CheckReport, error) {
		report.ApplicationID, report.EnvironmentID, report.Key, report.Phase = c.application.ID, c.places["dev"].ID, "healthy", core.CheckSuccess
		made, err := c.checks.ReportCheck(t.Context(), user(), report)
		c.review()
		return made, err
	}
	made, err := by(check.Report{Commit: strings.ToUpper(older)})
	c.ok(err)
	c.want(made.VersionSetID, c.set.ID) // which is not what is rolled out
	c.want(c.granted(), []string{"dev"})
	_, err = by(check.Report{Digest: digestOf(10)}) // of the API alone
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "/digest: found "+digestOf(10)+", which is not all that a version set consists of") {
		t.Errorf("a part: %v", err)
	}
	made, err = by(check.Report{Digest: digestOf(33)})
	c.ok(err)
	c.want(made.VersionSetID, set.ID)
	c.want(c.granted(), []string{"dev", "test"})
	made, err = by(check.Report{Commit: newer})
	c.ok(err)
	c.want(made.VersionSetID, set.ID)
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 2)
	c.now.Advance(time.Hour)
	c.publish(c.artifact("registry.test/shop/api", "1.4", 44, c.now.Now()), c.artifact("registry.test/shop/web", "1.4", 44, c.now.Now()))
	built(newer)
	_, err = by(check.Report{Commit: newer})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "which several version sets consist of") {
		t.Errorf("two builds of a commit: %v", err)
	}
}

// D48, R3-06: in one repository of code and configuration, a commit may be what a deployment of one version set has recorded and what
// another one was built from, or a part of it. A status by such a commit is about neither.
func TestACommitOfTwoVersionSetsIsNoSubject(t *testing.T) {
	t.Parallel()
	for _, part := range []bool{false, true} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			c := promoter(t, "")
			prove, registry := c.proving()
			sha := strings.Repeat("e", 40)
			provenances := func(revision string) {
				registry.reports(provenance.Report{Sources: []provenance.Source{{Repository: "https://git.test/shop", Revision: revision}}}, false, nil)
				c.lookUp(prove)
			}
			provenances(strings.Repeat("f", 40))
			r := c.rollout(c.set)
			c.enter(r, "dev")
			c.report(event.DeploymentCommitted{DeploymentID: c.deployments(c.stops(r)[0])[0].ID, CommitSHA: sha, ManifestDigest: digestOf(1)})
			c.complete(r, "dev")
			c.enter(r, "test")
			at := c.now.Now()
			if c.publish(c.artifact("registry.test/shop/api", "1.3", 33, at)); !part {
				c.publish(c.artifact("registry.test/shop/web", "1.3", 34, at))
			}
			other := c.sets()[0]
			provenances(sha)
			_, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
				ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, Commit: sha, Key: "healthy", Phase: core.CheckSuccess,
			})
			c.review()
			want := fmt.Sprintf(`/commit: found %s, which is of several version sets: "dev" had it for version set %d, and version set %d was built from it`, sha, c.set.ID, other.ID)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("found %v; expected %s", err, want)
			}
			c.want(c.granted(), []string{"dev"})
		})
	}
}

// R3-10: the latest observation of a reporter counts: a success that was observed before the last of several failures comes too late, and
// a clock that is ahead hides no failure.
func TestAnOlderObservationDoesNotCountAfterANewerOne(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	start := c.now.Now()
	report := func(phase core.CheckPhase, observed time.Duration) core.CheckPhase {
		at := start.Add(observed)
		made, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
			ApplicationID: c.application.ID, EnvironmentID: c.places["dev"].ID, VersionSetID: c.set.ID, Key: "healthy", Phase: phase,
			ObservedAt: &at,
		})
		c.ok(err)
		return made.Phase
	}
	c.want(report(core.CheckSuccess, 30*time.Second), core.CheckSuccess) // its clock is ahead
	c.now.Advance(10 * time.Second)
	c.want(report(core.CheckFailure, 10*time.Second), core.CheckFailure)
	c.now.Advance(10 * time.Minute)
	c.want(report(core.CheckFailure, 10*time.Minute), core.CheckFailure)
	c.want(report(core.CheckSuccess, 5*time.Minute), core.CheckFailure)
}

// R3-27: outside of its windows a schedule keeps the entrance closed, says when it opens, and opens the passage then unasked.
// A window that closes meanwhile, because something else was missing, is waited for again. The windows of the pipeline and of the step are
// merged, and exclude beats allow; other environments are open.
func TestAScheduleOpensThePassageAtItsTime(t *testing.T) {
	t.Parallel()
	c := scheduled(t, `{"proposed":[{"key":"hours","kind":"schedule","schedule":{"time_zone":"Europe/Berlin",
		"allow":[{"cron":"0 9 * * *","duration":28800,"description":"office hours"}]}}]}`,
		`{"proposed":[{"key":"calendar"},{"key":"hours","kind":"schedule","schedule":{"exclude":[{"cron":"0 11 * * *","duration":3600,"description":"noon, UTC"}]}}]}`)
	// 2027-01-15 08:00 UTC, which is 09:00 in Berlin: dev is open.
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.want(c.granted(), []string{"dev"})
	c.want(c.passed(r)[0], "dev (no approval required; check hours: success)")
	c.complete(r, "dev")
	c.review()
	c.now.Advance(3*time.Hour + 15*time.Minute)
	c.enter(r, "test") // 11:15 UTC
	closed := `check: passage "test" needs check "hours" of "test", which is pending: `
	c.want(c.waits(r, "check")[1:], []string{closed + "closed (noon, UTC), opens at 2027-01-15T12:00:00Z"})
	c.now.Advance(45*time.Minute - time.Second)
	c.want(c.review(), 0)
	c.now.Advance(time.Second)
	c.want(c.review(), 1)
	c.want(c.granted(), []string{"dev"}) // the other check has no report yet
	c.now.Advance(8 * time.Hour)
	c.reports(1, "test", c.set, "calendar", core.CheckSuccess)
	c.want(c.waits(r, "check"), []string{closed + "closed, opens at 2027-01-16T08:00:00Z"})
	c.want(c.granted(), []string{"dev"})
	c.now.Advance(12 * time.Hour)
	c.want(c.review(), 1)
	c.want(c.granted(), []string{"dev", "test"})
	c.verifyJournal(r)
}

// scheduled is a guarded shop of dev and test, with checks of the pipeline and of its step test.
func scheduled(t *testing.T, all, own string) checked {
	t.Helper()
	w := frozen(t)
	c := checked{w, map[string]core.Environment{}}
	for _, name := range []string{"dev", "test"} {
		c.places[name] = w.environment(name, core.TierStaging)
		w.report(event.EnvironmentReady{EnvironmentID: c.places[name].ID})
	}
	w.ok(c.author(all, own))
	w.makeReady()
	return c
}

func (c checked) author(all, own string) error {
	c.t.Helper()
	_, err := c.setup.CreateFlowDefinition(c.t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: c.application.ID,
		Definition: json.RawMessage(fmt.Sprintf(
			`{"checks":%s,"steps":[{"type":"deploy","environment":"dev","config":%s},{"type":"deploy","environment":"test","checks":%s,"config":%s}]}`,
			all, appEnvConfig("dev"), own, appEnvConfig("test"),
		)),
	})
	return err
}

// R3-27: windows that cannot be read or never open are refused when a pipeline is written, with the place of the mistake.
func TestWindowsThatNeverOpenAreRefused(t *testing.T) {
	t.Parallel()
	c := scheduled(t, `{}`, `{}`)
	schedule := func(fields string) string {
		return `{"proposed":[{"key":"hours","kind":"schedule","schedule":` + fields + `}]}`
	}
	for _, one := range []struct{ all, own, want string }{
		{`{}`, schedule(`{"allow":[{"cron":"0 9 * *","duration":60}]}`), `/steps/1/checks/proposed/0/schedule/allow/0/cron: found "0 9 * *"; expected five fields`},
		{`{}`, schedule(`{"time_zone":"Mars","allow":[{"cron":"0 9 * * *","duration":60}]}`), `/steps/1/checks/proposed/0/schedule/time_zone: found "Mars"`},
		{schedule(`{"allow":[{"cron":"0 9 30 2 *","duration":60}]}`), `{}`, `/checks/proposed/0/schedule/allow/0/cron`},
		{`{}`, schedule(`{"exclude":[{"cron":"* * * * *","duration":60}]}`), `/steps/1/checks/proposed: found windows of "hours" that never open`},
		{
			schedule(`{"allow":[{"cron":"0 9 * * *","duration":60}]}`), schedule(`{"exclude":[{"cron":"0 9 * * *","duration":60}]}`),
			`/steps/1/checks/proposed: found windows of "hours" that never open`,
		},
		{schedule(`{"exclude":[{"cron":"0 0 * * *","duration":86400}]}`), `{}`, `/checks/proposed: found windows of "hours" that never open`},
		{`{}`, `{"proposed":[{"key":"hours","kind":"schedule"}]}`, `/steps/1/checks/proposed/0/schedule`},
		{`{}`, `{"proposed":[{"key":"hours","schedule":{"time_zone":"UTC"}}]}`, `/steps/1/checks/proposed/0/schedule`},
		{`{"active":[{"key":"hours","kind":"schedule"}]}`, `{}`, `/checks/active/0/kind`},
	} {
		if err := c.author(one.all, one.own); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s and %s: found %v; want %s", one.all, one.own, err, one.want)
		}
	}
}
