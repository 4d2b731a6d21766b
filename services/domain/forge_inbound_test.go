package domain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// derives gives hooks secrets, as the registry service does.
type derives struct {
	err error
	// changed counts the hints that there are other hooks; it may be nil.
	changed *atomic.Int64
}

func (d derives) ForgeRefusals(_ context.Context, _ int64, keys []string) (map[string][]forge.Refusal, error) {
	all := map[string][]forge.Refusal{}
	for i, key := range keys {
		all[key] = []forge.Refusal{{What: "sha", Reason: "found nothing", Times: 1, LastAt: time.Unix(int64(i), 0).UTC()}}
	}
	return all, nil
}

func (d derives) ForgeHook(_ context.Context, organization int64, key, of string) (path, secret string, err error) {
	return fmt.Sprintf("/v1/forge/%s/%d-%s", of, organization, key), "secret of " + key, d.err
}

func (d derives) Changed() {
	if d.changed != nil {
		d.changed.Add(1)
	}
}

// hooked is a shop to whose organization a forge reports.
type hooked struct {
	published
	hook forge.MadeHook
	// hints counts those that there are other hooks.
	hints *atomic.Int64
}

func reported(t *testing.T, extra string) hooked {
	t.Helper()
	h := hooked{published: publishing(t, extra), hints: &atomic.Int64{}}
	h.forges = forge.New(forge.Deps{
		Store: h.store.ForForge(), Pipelines: bundle.Flows{}, Engine: h.at, Checks: h.view, Secrets: derives{changed: h.hints}, Clock: h.now,
	})
	h.on = events.New(h.intake, h.rollouts, h.forges, h.chats, h.inbox)
	var err error
	h.hook, err = h.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{"git.test/shop/*"}, Reason: "e2e"})
	h.ok(err)
	return h
}

// status is one of a commit, at a second.
func (h hooked) status(commit int, name, phase string, second, sequence int64) event.CommitStatusReported {
	return event.CommitStatusReported{
		Hook: h.hook.Key, Repository: "https://git.test/Shop/config.git", Commit: shaOf(commit), Context: name, Phase: phase,
		Description: "112 tests",
		Link:        "https://ci.test/7", ObservedAt: time.Unix(1_700_000_000+second, 0).UTC().Format(time.RFC3339), Sequence: sequence,
	}
}

func (h hooked) event(data event.CommitStatusReported) event.Event {
	h.t.Helper()
	h.mu.Lock()
	h.count++
	id := fmt.Sprintf("%s/status/%d", h.t.Name(), h.count)
	h.mu.Unlock()
	e, err := event.New(event.Header{ID: id, Source: event.SourceRegistry, Organization: org, Time: h.now.Now()}, data)
	h.ok(err)
	return e
}

// receives delivers statuses, has them counted, and evaluates passages.
func (h hooked) receives(all ...event.CommitStatusReported) {
	h.t.Helper()
	for _, data := range all {
		h.publish(h.event(data))
	}
	h.work()
	h.review()
}

// e2e are the checks of that key with what they have come to.
func (h hooked) e2e(r core.Rollout) (lines []string) {
	h.t.Helper()
	all, err := h.view.RolloutChecks(h.t.Context(), org, []int64{r.ID})
	h.ok(err)
	for _, s := range all[r.ID] {
		if s.Key == "e2e" && s.EnvironmentID == h.places["dev"].ID {
			lines = append(lines, fmt.Sprintf("%s: %s", s.Phase, s.Detail))
		}
	}
	return lines
}

// e2e is about the repository of the manifests: where the images of the shop come from is not known.
const e2e = `,{"key":"e2e","with":{"context":"ci/e2e","repository":"git.test/shop/config"}}`

// D48, D52: a check that names no repository is not green while it is not known where an image of the version set comes from.
func TestACheckWaitsForTheCommitsOfAllVersions(t *testing.T) {
	t.Parallel()
	h := reported(t, `,{"key":"e2e","with":{"context":"ci/e2e"}}`)
	r := h.rollout(h.set)
	h.receives(h.status(901, "ci/e2e", "success", 1, 1))
	if lines := h.e2e(r); len(lines) != 1 || !strings.HasPrefix(lines[0], "pending: pending by forge: waits for provenance of ") {
		t.Errorf("found %q; want that it waits for the provenance of an image", lines)
	}
	h.receives(h.status(901, "ci/e2e", "failure", 2, 2))
	h.want(h.e2e(r), []string{"failure: failure by forge: ci/e2e of git.test/shop/config@000000000000: 112 tests"})
}

// D48: a status that a forge reports counts for the checks that name its context, whether it comes before the version that is built from
// the commit is rolled out, or after; it opens the passage, and the journal says who has reported it.
func TestAStatusOfAForgeCountsForAStatusCheck(t *testing.T) {
	t.Parallel()
	h := reported(t, e2e)
	h.receives(h.status(901, "ci/e2e", "success", 1, 1))
	h.want(h.countOf(`SELECT count(*) FROM cd_check_statuses`), 0)
	r := h.rollout(h.set)
	h.want(h.e2e(r), []string{"pending: no report about this version set yet"})
	h.work()
	h.want(h.e2e(r), []string{"success: success by forge: ci/e2e of git.test/shop/config@000000000000: 112 tests"})
	h.receives(h.status(901, "ci/e2e", "pending", 2, 2)) // it runs again
	h.want(h.e2e(r), []string{"pending: pending by forge: ci/e2e of git.test/shop/config@000000000000: 112 tests"})
	h.reports(1, "dev", h.set, "healthy", core.CheckSuccess)
	h.enter(r, "dev", "test")
	h.complete(r, "dev")
	h.review()
	h.want(h.granted(), []string{"dev"})
	h.receives(h.status(901, "ci/e2e", "success", 3, 3))
	h.want(h.granted(), []string{"dev", "test"})
	h.want(h.countOf(`SELECT count(*) FROM cd_check_statuses WHERE principal_type = 'system' AND principal_id = 0 AND principal_name = 'forge' AND key = 'e2e'
		AND environment_id = `+itoa(h.places["dev"].ID)), 3)
	h.want(h.forges.Reported(), map[string]int64{"taken": 3, "old": 0, "ignored": 0})
	h.verifyJournal(r)
}

// D48, D52: provenance that comes later has checks looked at again, in its transaction: the commit that it states was waited for, and
// another commit closes a check that was green.
func TestProvenanceHasChecksLookedAt(t *testing.T) {
	t.Parallel()
	h := reported(t, `,{"key":"e2e","with":{"context":"ci/e2e"}}`)
	u, registry := h.proving()
	r := h.rollout(h.set)
	h.receives(h.status(901, "ci/e2e", "success", 1, 1), h.status(903, "ci/e2e", "pending", 1, 1))
	h.want(h.e2e(r)[0][:7], "pending")
	from := func(commits ...int) (report provenance.Report) {
		for _, n := range commits {
			report.Sources = append(report.Sources, provenance.Source{Repository: "https://git.test/shop/config", Revision: shaOf(n)})
		}
		return report
	}
	for _, c := range []struct {
		commits []int
		want    string
	}{{[]int{901}, "success"}, {[]int{901, 903}, "pending"}, {[]int{901}, "success"}, {nil, "pending"}} {
		registry.reports(from(c.commits...), false, nil)
		h.again(u)
		h.work()
		h.want(h.e2e(r)[0][:7], c.want)
	}
	_, err := h.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	h.ok(err)
	h.work()
	registry.reports(from(901), false, nil)
	h.again(u)
	h.want(h.countOf(`SELECT count(*) FROM cd_forge_marks`), 0) // nothing is decided any more
}

// D48: a status has nothing looked at whose rollouts are over, however many there were; it counts for the next rollout.
func TestAStatusOfWhatIsNotRolledOut(t *testing.T) {
	t.Parallel()
	h := reported(t, e2e)
	r := h.rollout(h.set)
	h.receives(h.status(901, "ci/e2e", "pending", 1, 1))
	_, err := h.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	h.ok(err)
	h.work()
	h.publish(h.event(h.status(901, "ci/e2e", "success", 2, 2)))
	h.want(h.forges.Reported()["taken"], int64(2))
	h.want(h.countOf(`SELECT count(*) FROM cd_forge_marks`), 0)
	r = h.rollout(h.set)
	h.work()
	h.want(h.e2e(r)[0][:7], "success")
	h.publish(h.event(h.status(901, "ci/e2e", "failure", 3, 3)))
	h.want(h.countOf(`SELECT count(*) FROM cd_forge_marks`), 1)
}

// D48: a check that is green does not wait again because what it follows from is old; what counts for nothing is forgotten.
func TestWhatAGreenCheckFollowsFromStays(t *testing.T) {
	t.Parallel()
	h := reported(t, e2e)
	r := h.rollout(h.set)
	h.receives(h.status(901, "ci/e2e", "success", 1, 1), h.status(909, "ci/e2e", "success", 1, 1))
	_, err := h.pool.Exec(t.Context(), `ALTER TABLE cd_forge_reports DISABLE TRIGGER cd_forge_reports_touch`)
	h.ok(err)
	_, err = h.pool.Exec(t.Context(), `UPDATE cd_forge_reports SET updated_at = $1`, h.now.Now().Add(-91*24*time.Hour))
	h.ok(err)
	h.receives(h.status(901, "ci/other", "success", 2, 2))
	h.want(h.countOf(`SELECT count(*) FROM cd_forge_reports WHERE commit_sha = $1`, shaOf(909)), 0)
	h.want(h.countOf(`SELECT count(*) FROM cd_forge_reports WHERE counted`), 2)
	h.want(h.e2e(r)[0][:7], "success")
	_, err = h.forges.RemoveHook(t.Context(), user(), h.hook.ID, "stolen")
	h.ok(err)
	h.work()
	h.want(h.e2e(r)[0][:7], "pending")
}

// D48: the latest status by the time of the forge counts, in whatever order and however often they come. Of two within a second the one
// with the higher number counts.
func TestOlderStatusesOfAForgeOverwriteNothing(t *testing.T) {
	t.Parallel()
	all := []struct {
		phase            string
		second, sequence int64
	}{{"pending", 1, 1}, {"failure", 2, 2}, {"pending", 3, 3}, {"success", 3, 4}}
	h := reported(t, e2e)
	r := h.rollout(h.set)
	for _, order := range [][]int{{3, 2, 1, 0}, {0, 3, 1, 2}, {1, 1, 3, 0, 3}} {
		_, err := h.pool.Exec(t.Context(), `DELETE FROM cd_forge_reports`)
		h.ok(err)
		for _, i := range order {
			h.receives(h.status(901, "ci/e2e", all[i].phase, all[i].second, all[i].sequence))
		}
		h.want(h.e2e(r), []string{"success: success by forge: ci/e2e of git.test/shop/config@000000000000: 112 tests"})
	}
	failures := `SELECT count(*) FROM cd_check_statuses WHERE phase = 'failure' AND environment_id = ` + itoa(h.places["dev"].ID)
	before := h.countOf(failures)
	again := h.event(h.status(901, "ci/e2e", "failure", 9, 9))
	h.publish(again, again)
	h.work()
	h.want(h.countOf(failures)-before, 1)
	h.receives(h.status(901, "ci/e2e", "success", 9, 9)) // of one number at one time a failure counts
	h.want(h.e2e(r)[0][:7], "failure")
}

// D48, R3-06: a status counts for nothing that is about an older commit, another repository, a context that nobody names, or is published
// by Lockstep itself; that comes for a hook that there is not, or that may not report the repository or the check.
func TestStatusesOfForgesThatCountForNothing(t *testing.T) {
	t.Parallel()
	h := reported(t, e2e)
	old := h.set
	h.receives(h.status(901, "ci/e2e", "success", 1, 1))
	set := h.commit(902)
	r := h.rollout(set)
	for _, change := range []func(*event.CommitStatusReported){
		func(s *event.CommitStatusReported) { s.Commit = shaOf(901) },
		func(s *event.CommitStatusReported) { s.Repository = "https://git.test/shop/other" },
		func(s *event.CommitStatusReported) { s.Repository = "https://git.test/others/config" },
		func(s *event.CommitStatusReported) { s.Repository = "https://evil.test/shop/config" },
		func(s *event.CommitStatusReported) { s.Repository = "https://git.test@evil.test/shop/config" },
		func(s *event.CommitStatusReported) { s.Context = "e2e" },
		func(s *event.CommitStatusReported) { s.Context = "lockstep/shop/dev/e2e" },
		func(s *event.CommitStatusReported) { s.Hook = strings.Repeat("0", 32) },
	} {
		s := h.status(902, "ci/e2e", "success", 2, 2)
		change(&s)
		h.receives(s)
	}
	h.want(h.e2e(r), []string{"pending: no report about this version set yet"})
	h.want(h.countOf(`SELECT count(*) FROM cd_forge_reports WHERE context LIKE 'lockstep/%'`), 0)
	h.want(h.forges.Reported()["ignored"], int64(5))
	_, err := h.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	h.ok(err)
	r = h.rollout(old)
	h.work()
	h.want(h.e2e(r)[0][:7], "success")
	// What the hook has reported counts no more once it is removed: the check waits.
	_, err = h.forges.RemoveHook(t.Context(), user(), h.hook.ID, "stolen")
	h.ok(err)
	h.work()
	h.want(h.e2e(r), []string{"pending: pending by forge: no forge reports ci/e2e of git.test/shop/config@000000000000 any more"})
	h.receives(h.status(901, "ci/e2e", "success", 5, 5))
	h.want(h.e2e(r)[0][:7], "pending")
	// A hook for other checks does not count for this one.
	other, err := h.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "github", Repositories: []string{"git.test/*"}, CheckKeys: []string{"lint"}})
	h.ok(err)
	s := h.status(901, "ci/e2e", "success", 6, 6)
	s.Hook = other.Key
	h.receives(s)
	h.want(h.e2e(r)[0][:7], "pending")
	// Nor does one of another organization.
	e, err := event.New(event.Header{ID: "foreign", Source: event.SourceRegistry, Organization: 2, Time: h.now.Now()}, s)
	h.ok(err)
	h.publish(e)
	h.want(h.forges.Reported()["ignored"], int64(7))
	e, err = event.New(event.Header{ID: "nobodys", Source: event.SourceRegistry, Time: h.now.Now()}, s)
	h.ok(err)
	if err := h.receive(e)[0]; !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v; want a status without an organization refused", err)
	}
	e, err = event.New(event.Header{ID: "forged", Source: event.SourceWorkflow, Organization: org, Time: h.now.Now()}, s)
	h.ok(err)
	if err := h.receive(e)[0]; !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v; want a status of another service refused", err)
	}
}

// D48: hooks are made by those who may configure everything, each change is in the journal, and the secret is nowhere.
func TestHooksAreChecked(t *testing.T) {
	t.Parallel()
	h := reported(t, "")
	h.want([]any{h.hook.Path, h.hook.Secret}, []any{"/v1/forge/gitea/1-" + h.hook.Key, "secret of " + h.hook.Key})
	for want, n := range map[string]forge.NewHook{
		`/forge: found "svn"; expected one of github, gitlab, gitea`: {Forge: "svn", Repositories: []string{"a.test/b"}},
		"/repositories: found 0; expected 1 to 20":                   {Forge: "github"},
		`/repositories/0: found "*"; expected a host and a path`:     {Forge: "github", Repositories: []string{"*"}},
		`/repositories/0: found "https://a.test/b"`:                  {Forge: "github", Repositories: []string{"https://a.test/b"}},
		`/repositories/0: found "*.test/b"`:                          {Forge: "github", Repositories: []string{"*.test/b"}},
		`/checkKeys/0: found "E2E"`:                                  {Forge: "github", Repositories: []string{"a.test/b"}, CheckKeys: []string{"E2E"}},
		"/reason: found 1001 bytes":                                  {Forge: "github", Repositories: []string{"a.test/b"}, Reason: strings.Repeat("a", 1001)},
	} {
		if _, err := h.forges.AddHook(t.Context(), user(), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v; want %q", err, want)
		}
	}
	good := forge.NewHook{Forge: "github", Repositories: []string{"a.test/b"}}
	reader := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 9, Name: "eve", Permissions: core.PermissionsOf(core.MayRead, core.MayReport)}
	if _, err := h.forges.AddHook(t.Context(), reader, good); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want it denied", err)
	}
	if _, err := h.forges.RemoveHook(t.Context(), reader, h.hook.ID, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want it denied", err)
	}
	other := user()
	other.Organization = 2
	if _, err := h.forges.RemoveHook(t.Context(), other, h.hook.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("found %v; want that another organization does not find it", err)
	}
	away := forge.New(forge.Deps{
		Store: h.store.ForForge(), Pipelines: bundle.Flows{}, Secrets: derives{err: fault.New(fault.Unavailable, "no registry")}, Clock: h.now,
	})
	if _, err := away.AddHook(t.Context(), user(), good); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v; want that no hook is made without a secret", err)
	}
	all, err := h.forges.Hooks(t.Context(), org)
	h.ok(err)
	h.want(len(all), 1)
	h.want(h.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'addForgeHook' AND before IS NULL AND reason = 'e2e' AND after::text NOT LIKE '%secret%'`), 1)
	for range 49 {
		_, err := h.forges.AddHook(t.Context(), user(), good)
		h.ok(err)
	}
	_, err = h.forges.AddHook(t.Context(), user(), good)
	h.refused(err, "expected at most 50")
	_, err = h.forges.RemoveHook(t.Context(), user(), h.hook.ID, "")
	h.ok(err)
	_, err = h.forges.RemoveHook(t.Context(), user(), h.hook.ID, "")
	h.want(fault.Is(err, fault.NotFound), true)
	h.want(h.hints.Load(), int64(1+49+1)) // one for each that was added or removed, and none for what was refused
	placed, err := h.forges.HooksAfter(t.Context(), 0, 100)
	h.ok(err)
	h.want(len(placed), 49)
	h.want([]any{placed[0].Organization, placed[0].ID > h.hook.ID, len(placed[0].Key)}, []any{int64(org), true, 32})
	placed, err = h.forges.HooksAfter(t.Context(), placed[46].ID, 100)
	h.ok(err)
	h.want(len(placed), 2)
	h.want(h.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'removeForgeHook' AND after IS NULL`), 1)
}

// D48: the pipeline may say which status counts, and only for checks of kind status.
func TestTheContextOfAStatusIsChecked(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	for checks, want := range map[string]string{
		`{"active":[{"key":"a","with":{"context":"lockstep/shop/dev/a"}}]}`:                  "/checks/active/0/with/context",
		`{"active":[{"key":"a","with":{"contxt":"x"}}]}`:                                     "/checks/active/0/with/contxt",
		`{"proposed":[{"key":"a","with":{"repository":"https://github.com/shop/api"}}]}`:     "/checks/proposed/0/with/repository",
		`{"active":[{"key":"a","kind":"timer","duration":60,"with":{"context":"x"}}]}`:       "/checks/active/0/with",
		`{"active":[{"key":"a","with":{"context":"x"}},{"key":"a","with":{"context":"y"}}]}`: "/checks/active",
	} {
		if err := c.author(`{}`, checks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v; want %q", checks, err, want)
		}
	}
	c.ok(c.author(`{}`, `{"active":[{"key":"a","with":{"context":"ci/e2e (push)","repository":"github.com/shop/api"}}],"proposed":[{"key":"b","with":{}}]}`))
}

// D48: a process that is killed at any statement loses no status and counts none twice.
func TestReceivingStatusesSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	h := reported(t, e2e)
	r := h.rollout(h.set)
	h.work()
	mortal, died := h.mortal(h.now)
	crashes := 0
	for second, phase := range []string{"pending", "failure", "success"} {
		r := forge.Report{
			In: core.Inbound{Organization: org, Envelope: h.event(h.status(901, "ci/e2e", phase, int64(second), int64(second)))}, Hook: h.hook.Key,
			Repository: "https://git.test/shop/config", Commit: shaOf(901), Context: "ci/e2e", Phase: core.CheckPhase(phase), Description: "tests",
			ObservedAt: time.Unix(1_700_000_000+int64(second), 0), Sequence: int64(second),
		}
		alive := false
		for n := int64(2); !alive; n++ {
			died.left.Store(n)
			errs := mortal.forges.ReportStatuses(t.Context(), []forge.Report{r})
			_, _, err := mortal.forges.WorkDue(t.Context())
			alive = died.left.Load() > 1
			died.left.Store(0)
			if errors.Join(append(errs, err)...) != nil {
				crashes++
			}
			if n > 200 {
				t.Fatal("found no end")
			}
		}
		h.work()
	}
	if crashes < 20 {
		t.Errorf("found %d crashes; want more", crashes)
	}
	h.want(h.e2e(r), []string{"success: success by forge: ci/e2e of git.test/shop/config@000000000000: tests"})
	var phases []string
	rows, err := h.pool.Query(t.Context(), `SELECT phase FROM cd_check_statuses WHERE key = 'e2e' AND environment_id = $1 ORDER BY id`, h.places["dev"].ID)
	h.ok(err)
	defer rows.Close()
	for rows.Next() {
		var phase string
		h.ok(rows.Scan(&phase))
		phases = append(phases, phase)
	}
	h.want(phases, []string{"pending", "failure", "success"})
	h.want(slices.Contains(phases, ""), false)
}

// TestHooksAreBoundedAlsoAtTheSameTime: of many that are added at once, those find room that there is room for (D48).
func TestHooksAreBoundedAlsoAtTheSameTime(t *testing.T) {
	t.Parallel()
	const bound, asked = 50, 60
	h := reported(t, "")
	var added, refused atomic.Int64
	var all sync.WaitGroup
	for range asked {
		all.Go(func() {
			_, err := h.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{"git.test/*"}})
			switch {
			case err == nil:
				added.Add(1)
			case fault.Is(err, fault.Refused):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	hooks, err := h.forges.Hooks(t.Context(), org)
	if err != nil || len(hooks) != bound || added.Load() != bound-1 || refused.Load() != asked-bound+1 { // the loop began with one
		t.Errorf("found %d hooks, %d added, %d refused, %v; expected %d hooks", len(hooks), added.Load(), refused.Load(), err, bound)
	}
}

// D48: what forges have reported is listed, the newest first and by commit, and what was left out of their deliveries to those who may
// configure the organization. Nothing is listed of a hook that was removed.
func TestReportsAndRefusalsOfForgesAreListed(t *testing.T) {
	t.Parallel()
	h := reported(t, e2e)
	h.rollout(h.set)
	for i := range 3 {
		h.receives(h.status(i, "ci/e2e", "pending", int64(i), int64(i)))
	}
	h.receives(h.status(1, "ci/e2e", "success", 9, 9)) // replaces what was reported before
	list := func(f forge.ReportFilter) (lines []string) {
		t.Helper()
		all, err := h.forges.Reports(t.Context(), org, f)
		h.ok(err)
		for _, r := range all {
			lines = append(lines, fmt.Sprintf("%s %s %s", r.Commit[36:], r.Context, r.Phase))
		}
		return lines
	}
	last := func(commit int) string { return shaOf(commit)[36:] }
	h.want(list(forge.ReportFilter{Most: 2}), []string{last(2) + " ci/e2e pending", last(1) + " ci/e2e success"})
	all, err := h.forges.Reports(t.Context(), org, forge.ReportFilter{Most: 2})
	h.ok(err)
	h.want(list(forge.ReportFilter{Most: 2, Before: all[1].ID}), []string{last(0) + " ci/e2e pending"})
	h.want(list(forge.ReportFilter{Most: 9, Commit: shaOf(1)}), []string{last(1) + " ci/e2e success"})
	for _, wrong := range []forge.ReportFilter{{Most: 0}, {Most: 101}, {Most: 1, Commit: "main"}} {
		if _, err := h.forges.Reports(t.Context(), org, wrong); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: found %v; expected it to be refused", wrong, err)
		}
	}
	_, err = h.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "github", Repositories: []string{"github.com/shop/*"}})
	h.ok(err)
	refusals, err := h.forges.Refusals(t.Context(), user())
	h.ok(err)
	h.want(len(refusals), 2)
	h.want(refusals[1].HookID, h.hook.ID) // the latest comes first
	viewer := user()
	viewer.Permissions = 0
	if _, err := h.forges.Refusals(t.Context(), viewer); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; expected it to be denied", err)
	}
	_, err = h.forges.RemoveHook(t.Context(), user(), h.hook.ID, "moved")
	h.ok(err)
	h.want(list(forge.ReportFilter{Most: 9}), []string(nil))
}

// A page of reports costs what it shows: what was reported to hooks that were removed, before and after what it shows, costs nothing.
func TestAPageOfReportsCostsWhatItShows(t *testing.T) {
	t.Parallel()
	h := reported(t, e2e)
	old, err := h.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{"git.test/old/*"}, Reason: "e2e"})
	h.ok(err)
	_, err = h.forges.RemoveHook(t.Context(), user(), old.ID, "moved")
	h.ok(err)
	fill := func(hook int64, name string, n int) {
		t.Helper()
		_, err := h.pool.Exec(t.Context(), `INSERT INTO cd_forge_reports (organization_id, hook_id, repository, commit_sha, context, kind, phase, description, link,
				observed_at, sequence, counted)
			SELECT $1, $2, 'git.test/shop', lpad(to_hex(i), 40, '0'), $3, 'status', 'success', '', '', 'epoch', 1, false
			FROM generate_series(1, $4::int) i`,
			org, hook, name, n)
		h.ok(err)
	}
	fill(h.hook.ID, "before", 50)
	fill(old.ID, "old", 5000)
	fill(h.hook.ID, "after", 5)
	_, err = h.pool.Exec(t.Context(), `ANALYZE cd_forge_reports, cd_forge_hooks`)
	h.ok(err)
	config := pgtest.As(t, h.db, role).Config()
	r := &recorder{planned: map[*pgx.Conn]string{}}
	config.ConnConfig.Tracer = r
	reading, err := pgxpool.NewWithConfig(t.Context(), config)
	h.ok(err)
	t.Cleanup(reading.Close)
	drivers, err := givenDrivers(t.Context(), Config{}, slog.New(slog.DiscardHandler))
	h.ok(err)
	s, err := assemble(reading, noBus{}, drivers, nil, h.now, Config{}, slog.New(slog.DiscardHandler))
	h.ok(err)
	var before int64
	for _, filter := range []forge.ReportFilter{{Most: 20}, {Most: 20, Before: -1}, {Most: 20, Commit: strings.Repeat("0", 38) + "05"}} {
		if filter.Before < 0 { // what follows the first page
			filter.Before = before
		}
		r.take()
		page, err := s.forges.Reports(t.Context(), org, filter)
		h.ok(err)
		if filter.Commit == "" {
			h.want(len(page), 20)
			before = page[19].ID
		} else {
			h.want(len(page), 2)
		}
		rows := 0.0
		for _, a := range r.take() {
			n, err := visits(t.Context(), reading, a)
			h.ok(err)
			rows += n
		}
		if rows == 0 || rows > 150 {
			t.Errorf("%+v: visited %.0f rows for a page of %d", filter, rows, len(page))
		}
	}
}
