package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// forgeDeployment are the arguments of the program that publishes a deployment.
type forgeDeployment struct {
	RepoURL     string  `json:"repo_url"`
	Commit      string  `json:"commit"`
	Environment string  `json:"environment"`
	Key         string  `json:"key"`
	Number      int64   `json:"number"`
	Taken       []int64 `json:"taken"`
	State       string  `json:"state"`
	Description string  `json:"description"`
	URL         string  `json:"url"`
	Production  bool    `json:"production"`
}

// deploy is what a forge does with a deployment: it has one of a key in an environment. It returns how a test reads it.
func (s *smithy) deploy(d forgeDeployment) string {
	if s.deployed == nil {
		s.deployed = map[string]int64{}
	}
	place := d.Environment + d.Key
	if s.deployed[place] == 0 {
		s.deployed[place] = int64(41 + len(s.deployed))
	}
	return fmt.Sprintf("%s %s #%d: %s", d.Environment, d.State, d.Number, d.Description)
}

// deploys switches publishing of deployments on or off.
func (p published) deploys(on bool, environments ...string) {
	p.t.Helper()
	_, err := p.forges.PutMirror(p.t.Context(), user(), forge.NewMirror{
		Application: p.application.Name, Environments: environments, Enabled: true, Deployments: &on, Reason: "deployments",
	})
	p.ok(err)
}

// deployments are what forges were given about deployments since the last call; without the time at which something came to an end.
func (p published) deployments() (all []string) {
	p.t.Helper()
	p.work()
	for _, one := range p.at.since() {
		if strings.Contains(one, " #") {
			before, _, _ := strings.Cut(one, ", since ")
			all = append(all, before)
		}
	}
	slices.Sort(all)
	return all
}

func (p published) begin(r core.Rollout, environment string) {
	p.t.Helper()
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutPassageRequested{RolloutID: r.ID, GateID: environment},
		event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: p.places[environment].ID})
}

// cancel ends a rollout where it is, so that another one can begin.
func (p published) cancel(r core.Rollout) {
	p.t.Helper()
	_, err := p.rollouts.CancelRollout(p.t.Context(), user(), r.ID, "")
	p.ok(err)
	run := fmt.Sprintf("rollout-%d", r.ID)
	p.deliver(p.emit(event.WorkflowCancelled{WorkflowID: run}, run))
}

// D64: deployments are published where that is switched on, and only there: one for each commit, environment and rollout, as it proceeds;
// what replaces another one makes it inactive. The number that a forge has given is known from then on.
func TestDeploymentsArePublished(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	first := p.rollout(p.set)
	p.want(p.deployments(), []string(nil))
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE kind = 'deployment'`), 0)
	p.deploys(true)
	app, what := p.application.Name, fmt.Sprintf("rollout_%d of %s", first.ID, p.set.Name)
	p.want(p.deployments(), []string{app + "/dev queued #0: " + what})
	p.begin(first, "dev")
	p.want(p.deployments(), []string{app + "/dev in_progress #41: " + what})
	p.complete(first, "dev")
	p.want(p.deployments(), []string{app + "/dev success #41: " + what, app + "/test queued #0: " + what})

	p.cancel(first)
	p.want(p.deployments(), []string{app + "/test inactive #42: " + what + ": it ended before it was done"})
	set := p.commit(902)
	second := p.rollout(set)
	other := fmt.Sprintf("rollout_%d of %s", second.ID, set.Name)
	p.begin(second, "dev")
	p.complete(second, "dev")
	got := p.deployments()
	for _, want := range []string{
		app + "/dev success #0: " + other, app + "/test queued #0: " + other, app + "/dev inactive #41: " + what + ": it was replaced by " + set.Name,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("found %q; want %q among them", got, want)
		}
	}
	all, err := p.forges.Statuses(t.Context(), org, forge.Filter{Kind: forge.PublishedDeployment, Most: 100})
	p.ok(err)
	for _, s := range all {
		p.want([]any{s.Kind, s.Stage != "", s.RolloutID != 0, s.ForgeNumber > 40, s.State}, []any{forge.PublishedDeployment, true, true, true, forge.Sent})
		p.want(s.Link, fmt.Sprintf("https://cd.example.com/rollouts/rollout_%d", s.RolloutID))
	}
	p.want(p.forges.DeploymentCounts()["sent"] > 5, true)
	p.want(p.deployments(), []string(nil))
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putForgeMirror' AND after->>'deployments' = 'true'`), 1)
}

// D64: a forge that keeps no keys answers with the deployment of another organization's rollout: its number is stored once, and the program
// learns which are taken.
func TestNoTwoRolloutsHaveOneDeployment(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	p.others("x")
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_forge_statuses SET kind = 'deployment', stage = 'in_progress', rollout_id = 5, forge_number = 41, state = 'sent',
		name = 'lockstep/' || $1::text || '/dev#rollout_5', repository = $2`, p.application.Name, "https://git.test/shop/config")
	p.ok(err)
	p.rollout(p.set)
	p.work()
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE organization_id = 1 AND repository = 'https://git.test/shop/config' AND kind = 'deployment'`), 1)
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE organization_id = 1 AND forge_number = 41`), 0)
	learned := 0
	for _, inputs := range p.at.started {
		if strings.Contains(string(inputs), `"taken": [41, 41]`) {
			learned++
		}
	}
	p.want(learned, 1)
}

// D64: what fails is a failure, what was cancelled inactive, and what had not been published is not published for its end.
func TestDeploymentsThatEnd(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	app := p.application.Name
	first := p.rollout(p.set)
	p.begin(first, "dev")
	p.work()
	p.at.since()
	p.report(event.RolloutFailed{RolloutID: first.ID, Reason: "no"})
	p.want(p.deployments(), []string{fmt.Sprintf("%s/dev failure #41: rollout_%d of %s: it has failed", app, first.ID, p.set.Name)})

	set := p.commit(902)
	second := p.rollout(set)
	p.want(len(p.deployments()), 1)
	p.cancel(second)
	got := p.deployments()
	p.want(len(got), 1)
	p.want(strings.HasPrefix(got[0], app+"/dev inactive #42: "), true)
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE kind = 'deployment' AND name LIKE '%/test#%'`), 0)
}

// D64: the same version set is rolled out again: each rollout has a deployment of its own, and the older one is inactive.
func TestEachRolloutHasADeployment(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	first := p.rollout(p.set)
	p.begin(first, "dev")
	p.complete(first, "dev")
	p.work()
	p.cancel(first)
	p.work()
	p.at.since()
	second := p.rollout(p.set)
	p.begin(second, "dev")
	p.complete(second, "dev")
	got := p.deployments()
	want := []string{
		fmt.Sprintf("%s/dev inactive #41: rollout_%d of %s: it was replaced by rollout_%d", p.application.Name, first.ID, p.set.Name, second.ID),
		fmt.Sprintf("%s/dev success #0: rollout_%d of %s", p.application.Name, second.ID, p.set.Name),
	}
	for _, one := range want {
		if !slices.Contains(got, one) {
			t.Errorf("found %q; want %q among them", got, one)
		}
	}
}

// D64: a forge without deployments is asked once, and says why nothing is shown there. It can be sent again.
func TestAForgeHasNoDeployments(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.at.answer = func(inputs string) map[string]any {
		if strings.Contains(inputs, `"deployment"`) {
			return map[string]any{"outcome": "unsupported", "why": "it is a Gitea"}
		}
		return map[string]any{"outcome": "sent"}
	}
	p.deploys(true)
	p.rollout(p.set)
	p.work()
	for range 5 {
		p.now.Advance(time.Hour)
		p.work()
	}
	failed := p.statuses(forge.Failed)
	p.want(len(failed), 1)
	deployed := 0
	for _, inputs := range p.at.started {
		if strings.Contains(string(inputs), `"deployment"`) {
			deployed++
		}
	}
	p.want([]any{failed[0].Error, deployed, p.forges.DeploymentCounts()["failed"]}, []any{"it is a Gitea", 1, int64(1)})
	p.want(p.host("git.test").Problem, "")
	p.at.answer = nil
	_, err := p.forges.Retry(t.Context(), user(), failed[0].ID, "")
	p.ok(err)
	p.want(len(p.deployments()), 1)
}

// D64: what was switched off is not sent any more, and is sent once it is switched on again. Statuses do not notice.
func TestSwitchingDeploymentsOff(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	r := p.rollout(p.set)
	_, _, err := p.forges.WorkDue(t.Context()) // the mark
	p.ok(err)
	p.deploys(false)
	p.want(p.deployments(), []string(nil))
	p.want(p.statuses(forge.Failed)[0].Error, "publishing of deployments was switched off")
	p.reports(1, "dev", p.set, "healthy", core.CheckSuccess)
	p.work()
	p.want(p.at.since(), []string{"lockstep/shop/dev/healthy success: success by ci-1"})
	p.mirror(true) // leaves it as it is
	p.begin(r, "dev")
	p.want(p.deployments(), []string(nil))
	p.deploys(true)
	p.want(p.deployments(), []string{fmt.Sprintf("%s/dev in_progress #0: rollout_%d of %s", p.application.Name, r.ID, p.set.Name)})
	p.deploys(true, "test") // not dev
	p.complete(r, "dev")
	p.want(p.deployments(), []string{fmt.Sprintf("%s/test queued #0: rollout_%d of %s", p.application.Name, r.ID, p.set.Name)})
}

// D64: what was replaced while publishing was off is inactive once it is on again.
func TestDeploymentsReplacedWhilePublishingWasOff(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	first := p.rollout(p.set)
	p.begin(first, "dev")
	p.complete(first, "dev")
	p.work()
	p.cancel(first)
	p.work()
	p.deploys(false)
	p.work()
	set := p.commit(902)
	second := p.rollout(set)
	p.begin(second, "dev")
	p.complete(second, "dev")
	p.work()
	p.at.since()
	p.deploys(true)
	got, want := p.deployments(), fmt.Sprintf("%s/dev inactive #41: rollout_%d of %s: it was replaced by %s", p.application.Name, first.ID, p.set.Name, set.Name)
	if !slices.Contains(got, want) {
		t.Errorf("found %q; want %q among them", got, want)
	}
}

// D64: deployments and statuses have one budget, and a live deployment is not forgotten, so that what replaces it can end it.
func TestDeploymentsShareTheBudgetAndStay(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	r := p.rollout(p.set)
	p.begin(r, "dev")
	p.complete(r, "dev")
	p.work()
	_, err := p.pool.Exec(t.Context(), `UPDATE cd_forge_hosts SET window_at = $1, window_count = 60`, p.now.Now())
	p.ok(err)
	p.at.since()
	p.cancel(r)
	set := p.commit(902)
	second := p.rollout(set)
	p.begin(second, "dev")
	p.want(p.deployments(), []string(nil))
	p.now.Advance(time.Minute)
	p.want(len(p.deployments()), 2) // the cancelled one, and the new one

	p.now.Advance(40 * 24 * time.Hour)
	_, err = p.pool.Exec(t.Context(), `ALTER TABLE cd_forge_statuses DISABLE TRIGGER cd_forge_statuses_touch`)
	p.ok(err)
	_, err = p.pool.Exec(t.Context(), `UPDATE cd_forge_statuses SET updated_at = $1`, p.now.Now().Add(-35*24*time.Hour))
	p.ok(err)
	p.complete(second, "dev")
	got := p.deployments()
	if !slices.ContainsFunc(got, func(one string) bool { return strings.Contains(one, "/dev inactive #41: ") }) {
		t.Errorf("found %q; want that the first one is inactive", got)
	}
}

// D64: a process that is killed at any statement, and an engine that is away, publish each stage at most once and the last one in any case.
func TestDeploymentsSurviveAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	p := publishing(t, "")
	p.deploys(true)
	mortal, died := p.mortal(p.now)
	mortal.forges = forge.New(forge.Deps{
		Store: mortal.store.ForForge(), Pipelines: bundle.Flows{}, Engine: p.at, Checks: mortal.view, Clock: p.now,
	})
	crashes, got := 0, []string{}
	settle := func() {
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
			if err == nil && through && !worked && n > 100 && len(p.statuses(forge.Pending))+len(p.statuses(forge.Sending)) == 0 {
				break
			}
			if !worked {
				p.now.Advance(time.Minute)
			}
		}
		for _, one := range p.at.since() {
			if strings.Contains(one, "/dev ") && strings.Contains(one, " #") {
				before, _, _ := strings.Cut(one, ":")
				got = append(got, before)
			}
		}
	}
	r := p.rollout(p.set)
	settle()
	p.begin(r, "dev")
	settle()
	p.complete(r, "dev")
	settle()
	if crashes < 20 {
		t.Errorf("found %d crashes; want more", crashes)
	}
	app := p.application.Name
	p.want(got, []string{app + "/dev queued #0", app + "/dev in_progress #41", app + "/dev success #41"})
}

// D64: a forge is given where the application is reached in an environment, for those that have an address. Others change it only by giving
// addresses, and what is no address of a page is refused.
func TestDeploymentsHaveTheAddressOfTheApplication(t *testing.T) {
	t.Parallel()
	p := publishing(t, "")
	p.mirror(true)
	p.deploys(true)
	put := func(addresses map[string]string) error {
		_, err := p.forges.PutMirror(t.Context(), user(), forge.NewMirror{Application: p.application.Name, Enabled: true, Addresses: addresses})
		return err
	}
	for _, one := range []string{"shop.example.com", "ftp://shop.example.com", "https://ann:x@shop.example.com", "javascript:alert(1)", "https://a\nb", "https://"} {
		p.want(fault.FieldsOf(put(map[string]string{"dev": one}))[0].Name, "/addresses")
	}
	p.want(fault.FieldsOf(put(map[string]string{"moon": "https://shop.example.com"}))[0].Name, "/addresses")
	p.ok(put(map[string]string{"dev": "https://dev.shop.example.com/?a=b"}))
	p.ok(put(nil)) // leaves them as they are
	r := p.rollout(p.set)
	p.begin(r, "dev")
	p.complete(r, "dev")
	p.deployments()
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE kind = 'deployment' AND name LIKE '%/dev#%' AND
		inputs->'deployment'->>'environment_url' = 'https://dev.shop.example.com/?a=b'`) > 0, true)
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_statuses WHERE kind = 'deployment' AND name LIKE '%/test#%' AND inputs->'deployment' ? 'environment_url'`), 0)
	all, err := p.forges.Mirrors(t.Context(), org)
	p.ok(err)
	p.want(all[0].AddressOf, map[string]string{"dev": "https://dev.shop.example.com/?a=b"})
	p.ok(put(map[string]string{}))
	p.want(p.countOf(`SELECT count(*) FROM cd_forge_mirrors WHERE addresses = '{}'`), 1)
	p.want(p.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putForgeMirror' AND after->'addresses' ? 'dev'`), 2)
}
