package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// smithy is an engine with forges behind it: what runs have published there, in their order.
type smithy struct {
	mu      sync.Mutex
	started map[string]json.RawMessage
	order   []string
	// written are the statuses as the forges have them: name, state and description.
	written []string
	// away is what the next starts answer; answer what a run reports, nil for that the forge has the status. Without an outcome it runs still.
	away   error
	answer func(inputs string) map[string]any
	// deployed are the numbers of deployments by environment and key; they begin at 41.
	deployed map[string]int64
}

var _ forge.Engine = (*smithy)(nil)

func (s *smithy) Start(_ context.Context, w handoff.Workflow) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return "", s.away
	}
	if known, again := s.started[w.ID]; again && string(known) != string(w.Inputs) {
		return "", fault.New(fault.Conflict, "%s was started with other inputs", w.ID)
	} else if again {
		return "run-of-" + w.ID, nil
	}
	s.started[w.ID], s.order = w.Inputs, append(s.order, w.ID)
	if s.answer == nil || s.answer(string(w.Inputs))["outcome"] == "sent" {
		var in struct {
			Status     map[string]string
			Deployment *forgeDeployment
		}
		if err := json.Unmarshal(w.Inputs, &in); err != nil {
			return "", err
		}
		if in.Deployment != nil {
			s.written = append(s.written, s.deploy(*in.Deployment))
			return "run-of-" + w.ID, nil
		}
		s.written = append(s.written, fmt.Sprintf("%s %s: %s", in.Status["name"], in.Status["state"], in.Status["description"]))
	}
	return "run-of-" + w.ID, nil
}

func (s *smithy) WorkflowByID(_ context.Context, _ int64, id string) (handoff.WorkflowRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inputs, known := s.started[id]
	if !known {
		return handoff.WorkflowRun{}, fault.New(fault.NotFound, "no run %s", id)
	}
	answer := map[string]any{"outcome": "sent"}
	if s.answer != nil {
		answer = s.answer(string(inputs))
	}
	var in struct{ Deployment *forgeDeployment }
	if _ = json.Unmarshal(inputs, &in); in.Deployment != nil && answer["outcome"] == "sent" {
		answer["number"] = s.deployed[in.Deployment.Environment+in.Deployment.Key]
	}
	run := handoff.WorkflowRun{ID: id, State: handoff.WorkflowCompleted, CreatedAt: time.Unix(1_800_000_000, 0)}
	if answer["outcome"] == nil {
		run.State = handoff.WorkflowRunning
	}
	for key, value := range answer {
		text, _ := json.Marshal(value)
		run.Status = append(run.Status, handoff.WorkflowPair{Key: key, Value: string(text)})
	}
	return run, nil
}

// names are the names of what the forges have, in the order in which it was published, since the last call.
func (s *smithy) since() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.written
	s.written = nil
	return all
}

// published is a shop whose environments have a check, and whose manifests' commits have statuses.
type published struct {
	checked
	at  *smithy
	set core.VersionSet
}

func publishing(t *testing.T, extra string) published {
	t.Helper()
	p := published{checked: promoter(t, extra), at: &smithy{started: map[string]json.RawMessage{}}}
	p.forges = forge.New(forge.Deps{
		Store: p.store.ForForge(), Pipelines: bundle.Flows{}, Engine: p.at, Checks: p.view, Clock: p.now, URL: "https://cd.example.com/",
	})
	p.withManifests()
	p.set = p.commit(901)
	return p
}

func (p published) mirror(enabled bool, environments ...string) {
	p.t.Helper()
	_, err := p.forges.PutMirror(p.t.Context(), user(), forge.NewMirror{
		Application: p.application.Name, Environments: environments, Enabled: enabled, Reason: "statuses",
	})
	p.ok(err)
}

// work does what is due until nothing is, and has every run that was begun looked at.
func (p published) work() (did []string) {
	p.t.Helper()
	for range 2000 {
		w, worked, err := p.forges.WorkDue(p.t.Context())
		if err != nil && !fault.Is(err, fault.Unavailable) {
			p.ok(err)
		}
		if !worked {
			return did
		}
		if w.What == "read pipelines" { // for pull requests
			continue
		}
		did = append(did, w.What)
		if w.What == "send" && w.State == forge.Sending {
			for _, s := range p.statuses("") { // the event that its run has ended
				if s.ID == w.Status && s.Started {
					run := id.ForgeStatusRun(s.ID, s.Run)
					p.deliver(p.emit(event.WorkflowCompleted{WorkflowID: run}, run))
				}
			}
		}
	}
	p.t.Fatal("statuses do not come to an end")
	return nil
}

func (p published) statuses(state forge.State) []forge.Status {
	p.t.Helper()
	all, err := p.forges.Statuses(p.t.Context(), org, forge.Filter{State: state, Most: forge.MaxStatuses})
	p.ok(err)
	return all
}

func (p published) host(name string) forge.Host {
	p.t.Helper()
	all, err := p.forges.Hosts(p.t.Context(), org)
	p.ok(err)
	for _, h := range all {
		if h.Host == name {
			return h
		}
	}
	p.t.Fatalf("found %+v; want %s", all, name)
	return forge.Host{}
}

// row stores a status as if a check had come to it.
func (p published) row(host, name string) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), `INSERT INTO cd_forge_statuses
			(organization_id, repository, host, commit_sha, name, application_id, environment_id, version_set_id, phase, credential, due_at)
		VALUES ($1, 'https://' || $2 || '/shop', $2, $3, 'lockstep/shop/dev/' || $4, $5, $6, 1, 'success', '', $7)`,
		org, host, shaOf(7), name, p.application.ID, p.places["dev"].ID, p.now.Now())
	p.ok(err)
}

// R3-09, D48, D64: nothing is published, and nothing stored for it, unless an application switches it on. Then checks are published as they
// change, with the environment and a link, and what was deployed where; each once.
func TestChecksArePublishedAsStatusesOfCommits(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.reports(1, "dev", p.set, "healthy", core.CheckPending)
	p.want(p.work(), []string(nil))
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_marks`), 0)
	p.mirror(true)
	p.want(p.work(), []string(nil)) // nothing of it is live or rolled out
	p.reports(1, "dev", p.set, "healthy", core.CheckFailure)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/dev/healthy failure: failure by ci-1"})
	r := p.rollout(p.set)
	p.work()
	p.at.since()
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutPassageRequested{RolloutID: r.ID, GateID: "dev"})
	p.complete(r, "dev")
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess)
	p.work()
	got := p.at.since()
	slices.Sort(got)
	p.want(got, []string{
		"lockstep/shop/dev success: in dev since 2027-01-15 08:00 UTC (" + p.set.Name + ")", "lockstep/shop/dev/healthy success: success by ci-1",
	})
	for _, s := range p.statuses(forge.Sent) {
		p.want([]string{s.Repository, s.Commit, s.Host}, []string{"https://git.test/shop/config", shaOf(901), "git.test"})
		p.want(s.Link, fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", r.ID))
	}
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess) // what repeats a status is none
	p.work()
	p.want(p.at.since(), []string(nil))
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putForgeMirror' AND before IS NULL AND reason = 'statuses'`), 1)
	p.verifyJournal(r)
}

// R3-06: reporters that contradict each other are published as a failure. An environment that is not named is not published, and a status
// about an older version set of the same commit changes nothing.
func TestWhatIsPublished(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true, "test")
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess)
	p.reports(1, "test", p.set, "healthy", core.CheckSuccess)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/test/healthy success: success by ci-1"})
	newer := p.release(77) // an image; the commit is the same
	p.reports(1, "test", newer, "healthy", core.CheckPending)
	p.reports(2, "test", newer, "healthy", core.CheckSuccess)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/test/healthy failure: the reporters contradict each other: pending by ci-1, success by ci-2"})
	p.reports(3, "test", p.set, "healthy", core.CheckFailure)
	p.work()
	p.want(p.at.since(), []string(nil))
}

// R3-09: only the newest phase of a status is sent, also of one that is being sent.
func TestIntermediatePhasesAreNotSent(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	for _, phase := range []core.CheckPhase{core.CheckPending, core.CheckFailure, core.CheckSuccess} {
		p.reports(1, "dev", p.set, "healthy", phase)
	}
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/dev/healthy success: success by ci-1"})
	p.at.answer = func(string) map[string]any { return map[string]any{} }
	p.reports(1, "dev", p.set, "healthy", core.CheckFailure)
	p.work()
	p.want(p.statuses("")[0].State, forge.Sending)
	for _, phase := range []core.CheckPhase{core.CheckPending, core.CheckFailure, core.CheckPending} {
		p.reports(1, "dev", p.set, "healthy", phase)
		p.now.Advance(2 * time.Hour) // however long the run takes, no other one overtakes it
		p.work()
	}
	p.want(len(p.at.order), 2)
	p.at.answer = nil
	p.now.Advance(time.Minute)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/dev/healthy pending: pending by ci-1"})
	p.want(len(p.at.order), 3)
}

// R3-09: a forge that is away is asked by one status at a time, with growing pauses, and loses nothing; another forge and the rollout do
// not notice.
func TestAForgeThatIsAway(t *testing.T) {
	long(t)
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	away := true
	p.at.answer = func(inputs string) map[string]any {
		if away && strings.Contains(inputs, "broken.test") {
			return map[string]any{"outcome": "away", "why": "unreachable: no answer"}
		}
		return map[string]any{"outcome": "sent"}
	}
	for i := range 30 {
		p.row("broken.test", fmt.Sprint(i))
	}
	p.row("fine.test", "a")
	p.work()
	p.want(len(p.statuses(forge.Sent)), 1)
	before := len(p.at.order)
	if before > 12 {
		t.Errorf("found %d runs; want at most those that are sent together", before)
	}
	h := p.host("broken.test")
	p.want([]any{h.Problem, h.Waiting, h.PausedUntil.After(p.now.Now())}, []any{"unreachable: no answer", 30, true})
	for range 36 { // for six hours
		p.now.Advance(10*time.Minute + time.Second)
		p.work()
	}
	if n := len(p.at.order) - before; n > 40 {
		t.Errorf("found %d runs within six hours; want about one in ten minutes", n)
	}
	p.want(len(p.statuses(forge.Failed)), 0)
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutPassageRequested{RolloutID: r.ID, GateID: "dev"})
	p.complete(r, "dev")
	away = false
	p.now.Advance(10*time.Minute + time.Second)
	p.work()
	p.now.Advance(10 * time.Second)
	p.work()
	p.want(p.host("broken.test").Waiting, 0)
}

// R3-09: what a forge says about its limits is kept to: Retry-After, and the requests that are left, of which a tenth is for rollouts.
func TestAForgeThatLimits(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	resets := p.now.Now().Add(30 * time.Minute)
	answer := map[string]any{"outcome": "limited", "why": "status 429", "wait": 600}
	p.at.answer = func(string) map[string]any { return answer }
	p.row("git.test", "a")
	p.work()
	p.now.Advance(9 * time.Minute)
	p.want(p.work(), []string(nil))
	answer = map[string]any{"outcome": "sent", "limit": 100, "remaining": 9, "resets_at": resets.UTC().Format(time.RFC3339)}
	p.now.Advance(time.Minute)
	p.work()
	h := p.host("git.test")
	p.want([]any{h.Quota.Limit, h.Quota.Remaining, h.PausedUntil.Equal(resets), h.Problem}, []any{int64(100), int64(9), true, ""})
	p.row("git.test", "b")
	p.work()
	p.want(p.statuses("")[0].State, forge.Pending)
	p.now.Advance(20 * time.Minute)
	p.work()
	p.want(p.statuses("")[0].State, forge.Sent)
	p.want(p.forges.Counts()["limited"], int64(1))
}

// R3-09: no forge is flooded: 60 statuses a minute.
func TestAForgeIsNotFlooded(t *testing.T) {
	long(t)
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	for i := range 70 {
		p.row("git.test", fmt.Sprint(i))
	}
	p.work()
	p.want(len(p.at.order), 60)
	p.now.Advance(time.Minute)
	p.work()
	p.want(len(p.at.order), 70)
}

// others makes two more organizations like the first one, and gives each as many statuses as are named.
func (p published) others(statuses ...string) {
	p.t.Helper()
	for _, organization := range []int64{2, 3} {
		apart := organization * 1000
		for _, copied := range []string{
			`cd_organizations SELECT (jsonb_populate_record(a, jsonb_build_object('id', $1::bigint, 'name', 'o' || ($1::bigint + $2::bigint)))).* FROM cd_organizations a WHERE id = 1
				ON CONFLICT (id) DO NOTHING`,
			`cd_applications SELECT (jsonb_populate_record(a, jsonb_build_object('organization_id', $1::bigint, 'id', a.id + $2::bigint))).* FROM cd_applications a
				WHERE organization_id = 1`,
			`cd_environments SELECT (jsonb_populate_record(a, jsonb_build_object('organization_id', $1::bigint, 'id', a.id + $2::bigint))).* FROM cd_environments a
				WHERE organization_id = 1`,
			`cd_forge_mirrors SELECT (jsonb_populate_record(a, jsonb_build_object('organization_id', $1::bigint, 'application_id', a.application_id + $2::bigint))).*
				FROM cd_forge_mirrors a WHERE organization_id = 1`,
		} {
			table, from, _ := strings.Cut(copied, " ")
			_, err := p.pool.Exec(p.t.Context(), "INSERT INTO "+table+" OVERRIDING SYSTEM VALUE "+from, organization, apart)
			p.ok(err)
		}
		for _, name := range statuses {
			_, err := p.pool.Exec(p.t.Context(), `INSERT INTO cd_forge_statuses
					(organization_id, repository, host, commit_sha, name, application_id, environment_id, version_set_id, phase, credential, due_at)
				VALUES ($1, 'https://git.test/shop', 'git.test', $2, 'lockstep/shop/dev/' || $3, $4, $5, 1, 'success', '', $6)`,
				organization, shaOf(7), name, p.application.ID+apart, p.places["dev"].ID+apart, p.now.Now())
			p.ok(err)
		}
	}
}

// sentBy are how many statuses each of the three organizations has sent.
func (p published) sentBy() (all []int) {
	for organization := 1; organization <= 3; organization++ {
		all = append(all, p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE organization_id = $1 AND run > 0`, organization))
	}
	return all
}

// workAll does what is due until nothing is; runs are looked at when they are due.
func (p published) workAll() {
	p.t.Helper()
	for range 5000 {
		_, worked, err := p.forges.WorkDue(p.t.Context())
		p.ok(err)
		if !worked {
			return
		}
	}
	p.t.Fatal("statuses do not come to an end")
}

// own gives an organization a credential for a repository, and no other.
func (p published) own(organization int, name, repository string) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id,
			principal_type, principal_id, principal_name, changed_at)
		VALUES ($1, $2, 'git', ARRAY[$3], 'bot', '', 'github', 1, 'env:TOKEN', 0, 'user', 1, 'ann', now())`, organization, name, repository)
	p.ok(err)
}

// R3-09, D64: with the credentials of the operator, 120 statuses a minute of all organizations, of which each gets its part; one with
// credentials of its own has its own 60. What pauses the account of the operator pauses all who share it, and nobody else.
func TestOrganizationsShareTheBudgetOfTheOperator(t *testing.T) {
	long(t)
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	shared := true
	p.at.answer = func(string) map[string]any { return map[string]any{"outcome": "sent", "shared": shared} }
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
		p.row("git.test", fmt.Sprint(i))
	}
	p.others(names...)
	for range 5 { // within the minute: each has ten under way at once
		p.workAll()
		p.now.Advance(6 * time.Second)
	}
	got := p.sentBy()
	p.want(got[0]+got[1]+got[2], 120)
	for i, n := range got {
		if n < 30 || n > 60 {
			t.Errorf("organization %d has sent %d of 120; want about a third", i+1, n)
		}
	}
	shared = false // from now on they have credentials of their own
	for organization := 1; organization <= 3; organization++ {
		p.own(organization, "theirs", "https://git.test/shop")
	}
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_forge_hosts SET window_count = 0`)
	p.ok(err)
	before := p.sentBy()
	for range 8 {
		p.workAll()
		p.now.Advance(6 * time.Second)
	}
	for i, n := range p.sentBy() {
		if want := min(60, 100-before[i]); n-before[i] < want {
			t.Errorf("organization %d has sent %d; want %d of its own", i+1, n-before[i], want)
		}
	}
}

// D64: the operator's account has accepted no more requests: who shares it waits without asking, and who has another account does not.
func TestALimitOfTheOperatorPausesAllWhoShareIt(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.at.answer = func(string) map[string]any {
		return map[string]any{"outcome": "limited", "why": "status 429", "wait": 600, "shared": true}
	}
	p.row("git.test", "a")
	p.work()
	p.others("b")
	p.own(3, "theirs", "https://git.test/elsewhere")
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_forge_statuses SET credential = 'theirs' WHERE organization_id = 3`)
	p.ok(err)
	p.at.answer = func(string) map[string]any { return map[string]any{"outcome": "sent"} }
	p.workAll()
	p.want(p.sentBy(), []int{1, 0, 1})
	hosts, err := p.forges.Hosts(t.Context(), 2)
	p.ok(err)
	p.want([]any{hosts[0].PausedUntil.After(p.now.Now()), strings.Contains(hosts[0].Problem, "all organizations together")}, []any{true, true})
	p.now.Advance(10 * time.Minute)
	p.workAll()
	p.want(p.sentBy(), []int{1, 1, 1})
}

// D64: what an organization used last says nothing of the next status: that of a credential of its own is not counted, and that without one
// is, unless its run has not used the account of the operator. What nobody uses is deleted.
func TestWhatCountsInTheBudgetOfTheOperator(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.own(1, "theirs", "https://git.test/elsewhere")
	_, err := p.pool.Exec(t.Context(), `INSERT INTO forge_budgets (host, window_at, paused_until) VALUES ('old.test', $1, 'epoch'), ('paused.test', 'epoch', $2)`,
		p.now.Now().Add(-25*time.Hour), p.now.Now())
	p.ok(err)
	count := func() int { return p.countOf(`SELECT COALESCE(sum(window_count), 0) FROM forge_budgets`) }
	for i, one := range []struct {
		credential string
		shared     any
		want       int
		outcome    string
	}{
		{"theirs", false, 0, "sent"},
		{"", true, 1, "sent"},
		{"theirs", false, 1, "sent"},
		{"", true, 2, "sent"},
		{"", false, 2, "sent"},
		{"", nil, 3, "sent"},
		{"none", false, 3, "sent"},
		{"", false, 3, "refused"}, // no forge is configured: nothing was sent
	} {
		p.at.answer = func(string) map[string]any {
			if one.shared == nil {
				return map[string]any{"outcome": one.outcome}
			}
			return map[string]any{"outcome": one.outcome, "shared": one.shared}
		}
		p.row("git.test", fmt.Sprint(i))
		_, err := p.pool.Exec(t.Context(), `UPDATE cd_forge_statuses SET credential = $1 WHERE state = 'pending'`, one.credential)
		p.ok(err)
		p.work()
		p.want([]any{i, count()}, []any{i, one.want})
	}
	p.want(p.countOf(`SELECT count(*) FROM forge_budgets WHERE host = 'old.test'`), 0)
	p.want(p.countOf(`SELECT count(*) FROM forge_budgets`), 2)
}

// R3-09: what a forge refuses is tried again with growing pauses, then given up and shown, and can be sent again.
func TestARefusedStatusIsShown(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.at.answer = func(string) map[string]any { return map[string]any{"outcome": "refused", "why": "unauthorized: no"} }
	p.row("git.test", "a")
	p.work()
	p.want([]any{p.statuses("")[0].State, p.statuses("")[0].Error}, []any{forge.Pending, "unauthorized: no"})
	for range 20 {
		p.now.Advance(10 * time.Minute)
		p.work()
	}
	s := p.statuses(forge.Failed)
	p.want(len(s), 1)
	p.want([]any{s[0].Attempts, s[0].Error, len(p.at.order)}, []any{10, "unauthorized: no; it was tried 10 times", 10})
	p.at.answer = nil
	_, err := p.forges.Retry(t.Context(), user(), s[0].ID+1, "")
	p.refused(err, "only what has failed can be sent again")
	retried, err := p.forges.Retry(t.Context(), user(), 0, "new token")
	p.ok(err)
	p.want(retried, forge.Retried{Count: 1})
	p.work()
	p.want(p.statuses("")[0].State, forge.Sent)
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'retryForgeStatuses' AND reason = 'new token'`), 1)
}

// What was switched off publishes nothing more, and what it had to say is published once it is switched on again. The same holds for an
// environment that is no longer named.
func TestSwitchingOff(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess)
	_, _, err := p.forges.WorkDue(t.Context()) // the mark
	p.ok(err)
	p.mirror(false)
	p.work()
	p.want(p.at.since(), []string(nil))
	p.want(p.statuses("")[0].Error, "publishing was switched off")
	p.mirror(true)
	p.reports(1, "dev", p.set, "healthy", core.CheckPending)
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/dev/healthy success: success by ci-1"})
	p.reports(1, "dev", p.set, "healthy", core.CheckFailure)
	_, _, err = p.forges.WorkDue(t.Context())
	p.ok(err)
	p.mirror(true, "test")
	p.work()
	p.want(p.at.since(), []string(nil))
	p.want(p.statuses("")[0].Error, "publishing was switched off")
}

// R3-09: statuses about an environment that was archived are not sent any more, neither those that wait nor new ones.
func TestArchivedEnvironmentsAreNotPublished(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess)
	_, _, err := p.forges.WorkDue(t.Context()) // the mark
	p.ok(err)
	_, err = p.setup.ArchiveEnvironment(t.Context(), user(), p.places["dev"].ID, "moved")
	p.ok(err)
	p.work()
	p.want([]any{p.statuses("")[0].State, p.statuses("")[0].Error}, []any{forge.Failed, "its environment was archived"})
	p.mirror(true) // marks what is live
	p.work()
	p.want(p.at.since(), []string(nil))
	_, err = p.setup.RestoreEnvironment(t.Context(), user(), p.places["dev"].ID, "back")
	p.ok(err)
	_, err = p.forges.Retry(t.Context(), user(), 0, "")
	p.ok(err)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/dev/healthy success: success by ci-1"})
	_, err = p.setup.ArchiveApplication(t.Context(), user(), p.application.ID, "over")
	p.ok(err)
	p.row("git.test", "a")
	p.work()
	p.want(p.statuses("")[0].Error, "its application was archived")
}

// R3-09: a status that its server fails at for a day is given up and shown, and slows its neighbours down no longer. It can be sent again.
func TestAStatusThatOnlyFailsIsGivenUp(t *testing.T) {
	long(t)
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.at.answer = func(inputs string) map[string]any {
		if strings.Contains(inputs, "poison") {
			return map[string]any{"outcome": "away", "why": "internal: status 500"}
		}
		return map[string]any{"outcome": "sent"}
	}
	p.row("git.test", "poison")
	for i := range 150 { // for 25 hours, during which the server takes others
		p.row("git.test", fmt.Sprint(i))
		p.now.Advance(10*time.Minute + time.Second)
		p.work()
		if i == 140 {
			p.want(len(p.statuses(forge.Failed)), 0)
		}
	}
	failed := p.statuses(forge.Failed)
	p.want(len(failed), 1)
	p.want(failed[0].Error, "internal: status 500; it was tried for 24h0m0s")
	p.now.Advance(10*time.Minute + time.Second)
	p.work()
	p.want(p.host("git.test").Waiting, 0)
	p.at.answer = nil
	_, err := p.forges.Retry(t.Context(), user(), failed[0].ID, "")
	p.ok(err)
	p.work()
	p.want(len(p.statuses(forge.Failed)), 0)
}

// R3-09: sending again what was given up is bounded, and says that there is more.
func TestSendingAgainIsBounded(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_forge_statuses
			(organization_id, repository, host, commit_sha, name, application_id, environment_id, phase, credential, due_at, state, error, attempts)
		SELECT $1, 'https://git.test/shop', 'git.test', $2, 'lockstep/shop/dev/' || n, $3, $4, 'success', '', $5, 'failed', 'no', 10
		FROM generate_series(1, 501) n`, org, shaOf(7), p.application.ID, p.places["dev"].ID, p.now.Now())
	p.ok(err)
	for _, want := range []forge.Retried{{Count: 500, More: true}, {Count: 1}, {}} {
		retried, err := p.forges.Retry(t.Context(), user(), 0, "")
		p.ok(err)
		p.want(retried, want)
	}
}

// R3-27: when the window of a schedule closes, the forge has it, although nothing else happens.
func TestAClosingWindowIsPublished(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	begin := p.now.Now().UTC()
	p.requires("test", fmt.Sprintf(`{"proposed":[{"key":"hours","kind":"schedule","schedule":{"allow":[{"cron":"%d %d * * *","duration":3600}]}}]}`,
		begin.Minute(), begin.Hour()))
	p.rollout(p.set)
	p.work()
	hours := func() (got []string) {
		for _, one := range p.at.since() {
			if strings.Contains(one, "hours") {
				got = append(got, one)
			}
		}
		return got
	}
	p.want(hours(), []string{"lockstep/shop/test/hours success: open (0 8 * * *) until " + begin.Add(time.Hour).Format(time.RFC3339)})
	p.now.Advance(time.Hour - time.Second)
	p.work()
	p.want(hours(), []string(nil))
	p.now.Advance(time.Second)
	p.work()
	p.want(hours(), []string{"lockstep/shop/test/hours pending: closed, opens at " + begin.Add(24*time.Hour).Format(time.RFC3339)})
}

// What is wrong is refused with where it is, and only those may change it who may configure the application everywhere.
func TestMirrorsAreChecked(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	for want, n := range map[string]forge.NewMirror{
		"does not exist": {Application: "nothing"},
		`/environments/0: found "moon", which does not exist; expected the name of an environment`: {Application: "shop", Environments: []string{"moon"}},
		`/credential: found "a b"; expected the name of a credential`:                              {Application: "shop", Credential: "a b"},
		"/environments: found 101; expected at most 100":                                           {Application: "shop", Environments: make([]string, 101)},
		"/reason: found 1001 bytes":                                                                {Application: "shop", Reason: strings.Repeat("a", 1001)},
	} {
		n.Application = strings.Replace(n.Application, "shop", p.application.Name, 1)
		if _, err := p.forges.PutMirror(t.Context(), user(), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v; want %q", err, want)
		}
	}
	_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference,
			sealed, key_id, principal_type, principal_id, principal_name, changed_at)
		VALUES ($1, 'tea', 'git', '{https://git.test}', 'bot', '', 'gitea', 1, 'file:/token', NULL, 0, 'user', 1, 'ann', now())`, org)
	p.ok(err)
	on := true
	tea := forge.NewMirror{Application: p.application.Name, Credential: "tea", Enabled: true, Deployments: &on}
	if _, err := p.forges.PutMirror(t.Context(), user(), tea); err == nil || !strings.Contains(err.Error(),
		"/deployments: found true with the credential tea of a Gitea or Forgejo, which have no interface for deployments; expected false, or a credential of GitHub or GitLab") {
		t.Errorf("found %v; want that a Gitea has no deployments (D64)", err)
	}
	reader := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 9, Name: "eve", Permissions: core.PermissionsOf(core.MayRead, core.MayReport)}
	if _, err := p.forges.PutMirror(t.Context(), reader, forge.NewMirror{Application: p.application.Name}); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want it denied", err)
	}
	if _, err := p.forges.Retry(t.Context(), reader, 0, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want it denied", err)
	}
	other := user()
	other.Organization = 2
	if _, err := p.forges.PutMirror(t.Context(), other, forge.NewMirror{Application: p.application.Name}); !fault.Is(err, fault.NotFound) {
		t.Errorf("found %v; want that another organization does not find it", err)
	}
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_mirrors`), 0)
}

// Only the engine reports the outcome of a status. A forged end of its run is refused, or has the engine asked.
func TestAForgedEndOfAPublicationChangesNothing(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.at.answer = func(string) map[string]any { return map[string]any{} }
	p.row("git.test", "a")
	p.work()
	s := p.statuses("")[0]
	run := id.ForgeStatusRun(s.ID, s.Run)
	errs := p.on.Domain(t.Context(), []bus.Delivery{{Event: p.emit(event.WorkflowCompleted{WorkflowID: run}, "nightly"), Attempt: 1}})
	if !slices.ContainsFunc(errs, func(err error) bool { return fault.Is(err, fault.Invalid) }) {
		t.Errorf("found %v; want that the event is refused", errs)
	}
	p.deliver(p.emit(event.WorkflowCompleted{WorkflowID: run}, run))
	p.work()
	p.want(p.statuses("")[0].State, forge.Sending)
}

// R3-09: a process that is killed at any statement, and an engine that is away, lose nothing and publish nothing twice.
func TestPublishingSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	mortal, died := p.mortal(p.now)
	mortal.forges = forge.New(forge.Deps{
		Store: mortal.store.ForForge(), Pipelines: bundle.Flows{}, Engine: p.at, Checks: mortal.view, Clock: p.now,
	})
	crashes := 0
	for _, phase := range []core.CheckPhase{core.CheckPending, core.CheckFailure, core.CheckSuccess} {
		p.reports(1, "dev", p.set, "healthy", phase)
		p.at.away = fault.New(fault.Unavailable, "no engine")
		for n := int64(2); n < 3000; n++ {
			died.left.Store(n % 60)
			_, worked, err := mortal.forges.WorkDue(t.Context())
			through := died.left.Load() > 1
			died.left.Store(0)
			if err != nil && !errors.Is(err, p.at.away) {
				crashes++
			}
			if n == 100 {
				p.at.away = nil
			}
			if err == nil && through && !worked && len(p.statuses(forge.Sent)) == 1 && len(p.statuses(forge.Pending)) == 0 {
				break
			}
			if !worked {
				p.now.Advance(time.Minute)
			}
		}
	}
	if crashes < 20 {
		t.Errorf("found %d crashes; want more", crashes)
	}
	p.want(p.at.since(), []string{
		"lockstep/shop/dev/healthy pending: pending by ci-1", "lockstep/shop/dev/healthy failure: failure by ci-1", "lockstep/shop/dev/healthy success: success by ci-1",
	})
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_marks`), 0)
}
