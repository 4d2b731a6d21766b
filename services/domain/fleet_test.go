package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// fleets is a shop whose pipeline goes to an environment of many clusters.
type fleets struct {
	winter
	edge   core.Environment
	agents []int64
}

// newFleets has five clusters with the label region=eu, in the waves that the fleet names, and one without.
func newFleets(t *testing.T, members string) *fleets {
	t.Helper()
	w := clocked(t)
	_, err := w.pool.Exec(t.Context(), `DROP TRIGGER earlier_release ON cd_rollouts`)
	w.ok(err)
	return fleetsOf(w, members)
}

// fleetsOf is newFleets in a shop whose rollouts need no passages; without members the environment has one cluster.
func fleetsOf(w winter, members string) *fleets {
	t, f := w.t, &fleets{winter: w}
	t.Helper()
	var err error
	for i := range 6 {
		agent, _, err := f.access.RegisterAgent(t.Context(), user(), fmt.Sprintf("c%d", i+1))
		f.ok(err)
		if i < 5 {
			_, err = f.access.SetAgentLabels(t.Context(), user(), agent.ID, map[string]string{"region": "eu"})
			f.ok(err)
		}
		f.agents = append(f.agents, agent.ID)
	}
	f.edge, err = f.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
		Name: "edge", Tier: core.TierQA, DriverRef: "kubernetes@1", Fleet: json.RawMessage(members),
		DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.agents[5])),
	})
	f.ok(err)
	_, err = f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: f.application.ID, Definition: json.RawMessage(`{"steps":[{"type":"deploy","environment":"edge","config":{
			"repository_url":"https://git.test/shop","files":["all.yaml"],"namespace":"shop",
			"services":[{"service":"api","container":"api"},{"service":"web","container":"web"}]}}]}`),
	})
	f.ok(err)
	f.report(event.EnvironmentReady{EnvironmentID: f.edge.ID})
	known, err := f.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{f.application.ID})
	f.ok(err)
	for _, ae := range known[f.application.ID] {
		if ae.EnvironmentID == f.edge.ID {
			f.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: ae.ID})
		}
	}
	return f
}

const twoWaves = `{"selector":{"region":"eu"},"waves":[{"targets":2},{"percent":100}],"success":{"wave":{"max_failed":1}}}`

func (f *fleets) ask(r core.Rollout, gate string) {
	f.t.Helper()
	f.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate, EnvironmentID: f.edge.ID})
}

// enters begins a rollout and enters the environment.
func (f *fleets) enters() core.Rollout {
	f.t.Helper()
	return f.entersWith(f.set)
}

// entersWith is enters with a version set.
func (f *fleets) entersWith(set core.VersionSet) core.Rollout {
	f.t.Helper()
	r := f.rollout(set)
	f.ask(r, "edge")
	f.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: f.edge.ID})
	for _, d := range f.deployments(f.stops(r)[0]) {
		f.report(event.DeploymentStarted{DeploymentID: d.ID})
	}
	return r
}

// ended is the report of the run of a target.
func (f *fleets) ended(r core.Rollout, target, attempt int, result string) event.Event {
	f.t.Helper()
	agent := f.agents[target-1]
	child, err := id.ChildRun(id.RolloutRun(r.ID), "key", fmt.Sprintf("e%d.t%d.%d", f.edge.ID, agent, attempt))
	f.ok(err)
	e := event.RolloutEnvironmentTargetEnded{RolloutID: r.ID, EnvironmentID: f.edge.ID, AgentID: agent, Attempt: attempt, Result: result}
	if result == "failed" {
		e.Reason = "crashed"
	}
	return f.emit(e, child)
}

// waves are what the record says of them: number, healthy, failed and targets, and whether it has begun.
func (f *fleets) waves(r core.Rollout) []string {
	f.t.Helper()
	stop := f.stops(r)[0]
	waves, err := f.view.RolloutWaves(f.t.Context(), org, []int64{stop.ID})
	f.ok(err)
	var all []string
	for _, w := range waves[stop.ID] {
		all = append(all, fmt.Sprintf("%d: %d+%d/%d #%d", w.Number, w.Healthy, w.Failed, w.Targets, w.Attempt))
	}
	return all
}

// granted are the passages that the journal has as granted.
func (f *fleets) granted(r core.Rollout) []string {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `SELECT gate_id FROM cd_rollout_transitions WHERE rollout_id = $1 AND event = 'pass_gate' ORDER BY id`, r.ID)
	f.ok(err)
	var all []string
	for rows.Next() {
		var gate string
		f.ok(rows.Scan(&gate))
		all = append(all, gate)
	}
	f.ok(rows.Err())
	return all
}

// D61: targets are pinned when the rollout is created; a wave begins when all reports about the one before are in the record, in whatever
// order they come, and repeated reports change nothing.
func TestARolloutGoesInWaves(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	_, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[5], map[string]string{"region": "eu"}) // too late for this rollout
	f.ok(err)
	f.want(f.waves(r), []string{"1: 0+0/2 #0", "2: 0+0/3 #0"})
	f.ask(r, "edge/wave-1")
	f.want(f.waves(r), []string{"1: 0+0/2 #1", "2: 0+0/3 #0"})
	one, two := f.ended(r, 1, 1, "failed"), f.ended(r, 2, 1, "healthy")
	f.deliver(one)
	f.ask(r, "edge/wave-2") // ahead of the report about the second target
	f.want(f.granted(r), []string{"edge", "edge/wave-1"})
	f.deliver(two, one, two)
	f.deliver(f.ended(r, 1, 1, "healthy")) // a second report about the same attempt
	f.want(f.granted(r), []string{"edge", "edge/wave-1", "edge/wave-2"})
	f.want(f.waves(r), []string{"1: 1+1/2 #1", "2: 0+0/3 #1"})

	// Nobody passes the end before all have ended.
	for target := 3; target <= 5; target++ {
		f.deliver(f.ended(r, target, 1, "healthy"))
	}
	f.ask(r, "edge/waves")
	f.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: f.edge.ID})
	f.want(f.stops(r)[0].State, core.RolloutCompleted)
	f.verifyJournal(r)

	stop := f.stops(r)[0]
	page, err := f.view.RolloutTargets(t.Context(), org, stop.ID, core.TargetFilter{}, core.Page{First: 2})
	f.ok(err)
	f.want([]string{page.Nodes[0].Name, string(page.Nodes[0].State), page.Nodes[0].Reason}, []string{"c1", "failed", "crashed"})
	n, err := f.view.CountRolloutTargets(t.Context(), org, stop.ID, core.TargetFilter{State: core.TargetHealthy})
	f.ok(err)
	f.want(n, 4)
}

// D61: a wave that misses its threshold ends the environment, once, with a sentence; a program that continues all the same is in breach.
func TestAThresholdStopsTheRollout(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	f.ask(r, "edge/wave-1")
	f.deliver(f.ended(r, 1, 1, "failed"), f.ended(r, 2, 1, "failed"))
	f.ask(r, "edge/wave-2")
	f.ask(r, "edge/wave-2")
	f.want(f.granted(r), []string{"edge", "edge/wave-1"})
	stop := f.stops(r)[0]
	f.want(stop.State, core.RolloutFailed)
	var reason string
	f.ok(f.pool.QueryRow(t.Context(),
		`SELECT reason FROM cd_rollout_environment_transitions WHERE rollout_environment_id = $1 AND event = 'fail'`, stop.ID).Scan(&reason))
	f.want(reason, "wave 1: 2 of 2 targets failed; expected at most 1")
	f.want(f.countOf(`SELECT count(*) FROM cd_rollout_environment_transitions WHERE event = 'fail'`), 1)
	f.report(event.RolloutFailed{RolloutID: r.ID, Reason: reason})
	f.verifyJournal(r)
}

func TestAProgramThatLeavesWavesOutIsInBreach(t *testing.T) { // D61, D46
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	f.ask(r, "edge/wave-1")
	f.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: f.edge.ID})
	f.want(f.reload(r).State, core.RolloutFailed)
}

// D61, D47: a run reports the end of its own target only, and only a target of its rollout.
func TestReportsAboutOtherTargetsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	f.ask(r, "edge/wave-1")
	good := f.ended(r, 1, 1, "healthy")
	other, err := id.ChildRun(id.RolloutRun(r.ID+1), "key", fmt.Sprintf("e%d.t%d.1", f.edge.ID, f.agents[0]))
	f.ok(err)
	child, err := id.ChildRun(id.RolloutRun(r.ID), "key", fmt.Sprintf("e%d.t%d.1", f.edge.ID, f.agents[1]))
	f.ok(err)
	report := event.RolloutEnvironmentTargetEnded{
		RolloutID: r.ID, EnvironmentID: f.edge.ID, AgentID: f.agents[0], Attempt: 1, Result: "failed",
	}
	stranger, healthy := report, report
	stranger.AgentID, healthy.Result = f.agents[5], "healthy"
	committed := event.DeploymentCommitted{
		DeploymentID: f.deployments(f.stops(r)[0])[0].ID, CommitSHA: strings.Repeat("0", 40), ManifestDigest: digestOf(1),
		Parameters: []byte(`{}`),
	}
	named := func(name string) string {
		child, err := id.ChildRun(id.RolloutRun(r.ID), "key", name)
		f.ok(err)
		return child
	}
	for name, e := range map[string]event.Event{
		"the run of another rollout": f.emit(report, other), "the run of another target": f.emit(report, child),
		"no target": f.emit(stranger, ""), "healthy, by the run of the rollout": f.emit(healthy, id.RolloutRun(r.ID)),
		"a commit of another child":       f.emit(committed, named("job")),
		"a commit of no target":           f.emit(committed, named(fmt.Sprintf("e%d.t%d.1", f.edge.ID, f.agents[5]))),
		"a commit in another environment": f.emit(committed, named(fmt.Sprintf("e%d.t%d.1", f.edge.ID+1, f.agents[0]))),
	} {
		err := f.on.Domain(t.Context(), []bus.Delivery{{Event: e, Attempt: 1}})[0]
		if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.deliver(good, f.emit(committed, child))
	f.want(f.waves(r)[0], "1: 1+0/2 #1")
}

// wave is what the next wave of a rollout waits for, as everything that explains a rollout says it.
func (f *fleets) wave(r core.Rollout) string {
	f.t.Helper()
	all, err := f.view.Waits(f.t.Context(), org, []int64{r.ID})
	f.ok(err)
	for _, w := range all[r.ID] {
		if strings.Contains(w.Detail, " waits: ") {
			return fmt.Sprintf("%s %s: %s", w.Kind, w.Status, w.Detail)
		}
	}
	return ""
}

// D61: a paused wave does not begin, nor does a later one; the interval passes by the clock, and a wave that waits too long is not fresh.
func TestWavesArePausedAndWait(t *testing.T) {
	t.Parallel()
	f := newFleets(t, `{"selector":{"region":"eu"},"waves":[{"targets":2},{"percent":100}],"interval_seconds":60,"freshness_seconds":3600}`)
	r := f.enters()
	hold := rollout.WaveHold{RolloutID: r.ID, EnvironmentID: f.edge.ID, Wave: 1, Reason: "look"}
	viewer := user()
	viewer.Permissions = core.RoleViewer.Permissions()
	if _, err := f.rollouts.PauseWave(t.Context(), viewer, hold); !fault.Is(err, fault.Denied) {
		t.Errorf("without the right: %v", err)
	}
	missing := hold
	missing.Wave = 3
	if _, err := f.rollouts.PauseWave(t.Context(), user(), missing); !fault.Is(err, fault.NotFound) {
		t.Errorf("a wave that does not exist: %v", err)
	}
	for range 2 {
		_, err := f.rollouts.PauseWave(t.Context(), user(), hold)
		f.ok(err)
	}
	f.ask(r, "edge/wave-1")
	f.want(f.granted(r), []string{"edge"})
	f.want(f.wave(r), `pause stopped: wave 1 of 2 of "edge" waits: wave 1 is paused; 0 of 5 targets are healthy, 0 failed`)
	_, err := f.rollouts.ResumeWave(t.Context(), user(), hold)
	f.ok(err)
	f.want(f.granted(r), []string{"edge", "edge/wave-1"})
	f.want(slices.DeleteFunc(f.ownStory(r), func(line string) bool { return !strings.Contains(line, "_wave") }),
		[]string{"rollout pause_wave in_progress→in_progress", "rollout resume_wave in_progress→in_progress"})

	f.deliver(f.ended(r, 1, 1, "healthy"), f.ended(r, 2, 1, "healthy"))
	f.ask(r, "edge/wave-2")
	f.want(len(f.granted(r)), 2)
	hold.Wave = 2
	_, err = f.rollouts.PauseWave(t.Context(), user(), hold)
	f.ok(err)
	f.now.Advance(2 * time.Hour)
	f.review()
	f.want(f.stops(r)[0].State, core.RolloutInProgress) // what is paused waits
	_, err = f.rollouts.ResumeWave(t.Context(), user(), hold)
	f.ok(err)
	f.want(f.stops(r)[0].State, core.RolloutFailed) // and is not fresh any more
}

func TestTheIntervalOfAWavePasses(t *testing.T) { // D61
	t.Parallel()
	f := newFleets(t, `{"selector":{"region":"eu"},"waves":[{"targets":2},{"percent":100}],"interval_seconds":60}`)
	r := f.enters()
	f.ask(r, "edge/wave-1")
	f.deliver(f.ended(r, 1, 1, "healthy"), f.ended(r, 2, 1, "healthy"))
	f.want(f.wave(r), `soak pending: wave 2 of 2 of "edge" waits: the interval after wave 1; 2 of 5 targets are healthy, 0 failed`)
	f.ask(r, "edge/wave-2")
	f.review()
	f.want(len(f.granted(r)), 2)
	f.now.Advance(61 * time.Second)
	f.review()
	f.want(f.granted(r), []string{"edge", "edge/wave-1", "edge/wave-2"})
	f.want(f.wave(r), `health pending: the end of "edge" waits: 3 of 3 targets of wave 2 have not ended; 2 of 5 targets are healthy, 0 failed`)
}

// D61, E73: after a retry the wave begins again, with what was not healthy; a late report of the first attempt counts for nothing.
func TestAWaveBeginsAgainAfterARetry(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	f.ask(r, "edge/wave-1")
	f.deliver(f.ended(r, 1, 1, "healthy"))
	late := f.ended(r, 2, 1, "failed")
	_, err := f.rollouts.AbortRollout(t.Context(), user(), r.ID, "errors")
	f.ok(err)
	f.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: f.edge.ID, Reason: "aborted: errors"})
	_, err = f.rollouts.RetryRollout(t.Context(), user(), r.ID, "fixed")
	f.ok(err)
	f.ask(r, "edge/wave-1")
	f.want(f.waves(r)[0], "1: 1+0/2 #2")
	f.deliver(late)
	f.want(f.waves(r)[0], "1: 1+0/2 #2")
	f.deliver(f.ended(r, 2, 2, "healthy"))
	f.want(f.waves(r)[0], "1: 2+0/2 #2")
	f.verifyJournal(r)
}

// D61, D16: a process that is killed at any statement of the last report of a wave has recorded all of it or nothing; the next wave begins
// once.
func TestTheEndOfAWaveSurvivesAKillAtEachStatement(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	f.ask(r, "edge/wave-1")
	f.deliver(f.ended(r, 1, 1, "healthy"))
	f.ask(r, "edge/wave-2")
	last := f.ended(r, 2, 1, "healthy")
	mortal, died := f.mortal(f.now)
	on := events.New(mortal.intake, mortal.rollouts, mortal.forges, mortal.chats, mortal.inbox)
	kills := f.diesAt(died, func() error { return on.Domain(t.Context(), []bus.Delivery{{Event: last, Attempt: 1}})[0] }, func() {
		ended := f.countOf(`SELECT healthy FROM cd_rollout_waves WHERE wave = 1`) - 1
		f.want(f.countOf(`SELECT attempt FROM cd_rollout_waves WHERE wave = 2`), ended)
		f.want(f.countOf(`SELECT count(*) FROM cd_rollout_targets WHERE state = 'deploying' AND wave = 2`), 3*ended)
	})
	if kills < 5 {
		t.Errorf("died %d times; want at many statements", kills)
	}
	f.deliver(last)
	f.want(f.waves(r), []string{"1: 2+0/2 #1", "2: 0+0/3 #1"})
	f.want(f.granted(r), []string{"edge", "edge/wave-1", "edge/wave-2"})
	f.verifyJournal(r)
}

// D61: what does not fit is refused where it is written, and a selector without agents when a rollout is created.
func TestFleetsThatDoNotFit(t *testing.T) {
	t.Parallel()
	f := newFleets(t, `{"selector":{"region":"mars"},"waves":[{"targets":2}]}`)
	_, err := f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: f.set.ID, Again: true})
	f.refused(err, "no agent has the labels region=mars")
	for _, n := range []setup.NewEnvironment{
		{Name: "a", Tier: core.TierQA, DriverRef: paper, DriverConfig: json.RawMessage(`{"drawer":3}`), Fleet: json.RawMessage(twoWaves)},
		{
			Name: "b", Tier: core.TierQA, DriverRef: "kubernetes@1", Fleet: json.RawMessage(`{"selector":{}}`),
			DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.agents[0])),
		},
		{
			Name: "c", Tier: core.TierQA, DriverRef: "flux@1", Fleet: json.RawMessage(twoWaves),
			DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.agents[0])),
		},
	} {
		_, err := f.setup.CreateEnvironment(t.Context(), user(), n)
		if fields := fault.FieldsOf(err); len(fields) == 0 || !strings.HasPrefix(fields[0].Name, "/fleet") {
			t.Errorf("environment %s: %v, fields %v", n.Name, err, fields)
		}
	}
	// Flux would deploy the commit of the first wave in the clusters of all waves: neither a new environment nor one that was a fleet gets it.
	flux := "flux@1"
	_, err = f.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{
		ID: f.edge.ID, DriverRef: &flux, DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.agents[0])),
	})
	const problem = "found driver flux@1, which changes all clusters at once"
	if fields := fault.FieldsOf(err); len(fields) != 1 || !strings.Contains(fields[0].Problem, problem) {
		t.Errorf("the driver of a fleet becomes flux@1: %v, fields %v", err, fields)
	}
	// An environment stops being a fleet.
	_, err = f.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{ID: f.edge.ID, Fleet: json.RawMessage(`{}`)})
	f.ok(err)
	bindings, err := f.view.DriverBindingsByEnvironment(t.Context(), org, []int64{f.edge.ID})
	f.ok(err)
	f.want([]int{len(bindings[f.edge.ID]), len(bindings[f.edge.ID][0].Fleet)}, []int{2, 0})
}

// opens are what the granted passages open, in their order: the gate with the numbers of clusters, c1 to c6.
func (f *fleets) opens() []string {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `SELECT event->'data' FROM outbox WHERE event->>'type' = $1 ORDER BY id`,
		event.TypeRolloutPassageGranted)
	f.ok(err)
	grants, err := pgx.CollectRows(rows, pgx.RowTo[event.RolloutPassageGranted])
	f.ok(err)
	var all []string
	for _, g := range grants {
		clusters := []int{}
		for _, p := range g.Places {
			if n := slices.Index(f.agents, p.AgentID) + 1; n > 0 && !slices.Contains(clusters, n) {
				clusters = append(clusters, n)
			}
		}
		slices.Sort(clusters)
		all = append(all, fmt.Sprintf("%s #%d %v", g.GateID, g.Wave, clusters))
	}
	return all
}

// D61, D46: the entrance opens what the environment has by itself, and each wave its own targets, so a program that starts all targets at
// once changes none of a wave that has not begun. What a threshold stops is closed, whatever the program does.
func TestAWaveOpensItsOwnTargets(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	r := f.enters()
	f.want(f.opens(), []string{"edge #0 [6]"})
	f.ask(r, "edge/wave-2") // nothing of the first wave has ended
	f.want(f.opens(), []string{"edge #0 [6]"})
	f.ask(r, "edge/wave-1")
	f.want(f.opens(), []string{"edge #0 [6]", "edge/wave-1 #1 [1 2]"})
	f.deliver(f.ended(r, 1, 1, "healthy"), f.ended(r, 2, 1, "failed"))
	f.want(f.opens(), []string{"edge #0 [6]", "edge/wave-1 #1 [1 2]", "edge/wave-2 #2 [3 4 5]"})
	for _, target := range []int{3, 4, 5} {
		f.deliver(f.ended(r, target, 1, "failed"))
	}
	const revoked = `SELECT count(*) FROM outbox WHERE event->>'type' = 'com.gitlab.cd.rollout.passages_revoked'`
	f.want(f.countOf(revoked), 0)
	f.ask(r, "edge/waves")
	f.want(f.stops(r)[0].State, core.RolloutFailed)
	f.want([]any{f.countOf(revoked), f.reload(r).State}, []any{1, core.RolloutInProgress})
}

// D61: what is being deployed when its environment ends has failed, for the reason of that end, and is counted.
func TestTargetsEndWithTheirEnvironment(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fleets, core.Rollout){
		"the environment was cancelled: the rollout was cancelled: enough": func(f *fleets, r core.Rollout) {
			_, err := f.rollouts.CancelRollout(t.Context(), user(), r.ID, "enough")
			f.ok(err)
		},
		"the environment has failed: broken": func(f *fleets, r core.Rollout) {
			f.report(event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: f.edge.ID, Reason: "broken"})
		},
		"the environment was cancelled: the rollout failed: broken": func(f *fleets, r core.Rollout) {
			f.report(event.RolloutFailed{RolloutID: r.ID, Reason: "broken"})
			f.now.Advance(time.Hour)
			_, _, err := f.rollouts.CloseDue(t.Context())
			f.ok(err)
		},
	} {
		f := newFleets(t, twoWaves)
		r := f.enters()
		f.ask(r, "edge/wave-1")
		f.deliver(f.ended(r, 1, 1, "healthy"))
		end(f, r)
		f.want(f.waves(r), []string{"1: 1+1/2 #1", "2: 0+0/3 #0"})
		stop := f.stops(r)[0]
		page, err := f.view.RolloutTargets(t.Context(), org, stop.ID, core.TargetFilter{}, core.Page{First: 10})
		f.ok(err)
		f.want([]string{page.Nodes[0].Name, string(page.Nodes[0].State), page.Nodes[0].Reason}, []string{"c2", "failed", name})
		fleets, err := f.view.RolloutFleets(t.Context(), org, []int64{stop.ID})
		f.ok(err)
		f.want([]int{fleets[stop.ID].Healthy, fleets[stop.ID].Failed}, []int{1, 1})
		f.deliver(f.ended(r, 2, 1, "healthy")) // late
		f.want(f.waves(r)[0], "1: 1+1/2 #1")
	}
}

// D61: labels are set and ended one by one, so that those that another request has set meanwhile stay.
func TestLabelsAreMerged(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	set := func(labels map[string]string, unset ...string) map[string]string {
		t.Helper()
		a, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[0], labels, unset...)
		f.ok(err)
		return a.Labels
	}
	f.want(set(map[string]string{"ring": "1"}), map[string]string{"region": "eu", "ring": "1"})
	f.want(set(map[string]string{"kind": "store"}, "ring", "none"), map[string]string{"region": "eu", "kind": "store"})
	f.want(set(nil, "kind"), map[string]string{"region": "eu"})
	for at, one := range map[string]struct {
		set   map[string]string
		unset []string
	}{
		"/set":      {},
		"/set/ring": {set: map[string]string{"ring": ""}},
		"/unset/0":  {set: map[string]string{"ring": "1"}, unset: []string{"ring"}},
	} {
		_, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[0], one.set, one.unset...)
		if fields := fault.FieldsOf(err); len(fields) != 1 || fields[0].Name != at {
			t.Errorf("%s: %v, fields %v", at, err, fields)
		}
	}
	many := map[string]string{}
	for i := range 50 {
		many[fmt.Sprint("l", i)] = "x"
	}
	if _, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[0], many); !fault.Is(err, fault.Invalid) {
		t.Errorf("one label too many: %v", err)
	}
}

// D51, D61: policies see the targets of a fleet before the rollout pins them.
func TestPoliciesSeeTheTargetsOfAFleetThatIsPlanned(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	f.put(policy.NewPolicySet{Text: allowed + `@id("not-c3") @message("c3 is being moved")
forbid (principal, action == Action::"rollout.create", resource)
when { context.environments.contains(Environment::"edge") && Environment::"edge".agents.contains(Agent::"c3") };`})
	_, err := f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: f.set.ID})
	f.refused(err, "c3 is being moved")
	_, err = f.access.SetAgentLabels(t.Context(), user(), f.agents[2], map[string]string{"region": "us"})
	f.ok(err)
	f.rollout(f.set)
}
