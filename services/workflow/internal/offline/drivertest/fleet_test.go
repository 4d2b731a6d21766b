package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// fleetInputs are those of a rollout to an environment of three clusters, in two waves.
func fleetInputs() object {
	in := plainInputs(nil)
	environment := in["rollout"].(object)["environments"].([]any)[0].(object)
	environment["fleet"] = object{
		"agents": []any{"cluster_agent_id"}, "deadline": 600,
		"waves": []any{
			[]any{object{"agent_id": 51, "name": "eu-1"}},
			[]any{object{"agent_id": 52, "name": "eu-2"}, object{"agent_id": 53, "name": "eu-3"}},
		},
	}
	return in
}

// fleetShop is a shop of several clusters; those of ill do not take what is applied, and those of mute never answer.
func fleetShop(t *testing.T, ill, mute []string) *world {
	t.Helper()
	w := plainShop(t)
	w.fail = func(name string, args object) *history.FunctionError {
		agent := fmt.Sprint(args["agent_id"])
		if name == "k8s.apply" && slices.Contains(ill, agent) {
			return &history.FunctionError{Code: "conflict", Message: "agent " + agent + " refuses"}
		}
		if name == "k8s.health" && slices.Contains(mute, agent) {
			return &history.FunctionError{Code: "timeout", Message: "no answer"}
		}
		return nil
	}
	return w
}

// reports are what was reported about targets, by agent.
func (w *world) reports() map[int64][]event.RolloutEnvironmentTargetEnded {
	all := map[int64][]event.RolloutEnvironmentTargetEnded{}
	for _, e := range w.targets {
		all[e.AgentID] = append(all[e.AgentID], e)
	}
	return all
}

// D61: the targets of a wave are deployed at once, each by a run with its own agent; the next wave begins when all have ended.
func TestAFleetIsDeployedWaveByWave(t *testing.T) {
	t.Parallel()
	w := fleetShop(t, nil, nil)
	if failure := w.run(driver.Deploy, fleetInputs()); failure != "" {
		t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
	}
	var agents []string
	for _, call := range w.plain.calls {
		agents = append(agents, fmt.Sprint(call["agent_id"]))
	}
	if slices.Sort(agents[1:]); fmt.Sprint(agents) != "[51 52 53]" {
		t.Errorf("applied to %v, expected each target once, the first wave first", agents)
	}
	for agent, reports := range w.reports() {
		if len(reports) != 1 || reports[0].Result != "healthy" || reports[0].Attempt != 1 {
			t.Errorf("agent %d: %+v, expected one report that it is healthy", agent, reports)
		}
	}
	var gates []string
	for _, line := range w.story {
		if strings.HasPrefix(line, "deployment.healthy") || strings.HasPrefix(line, "deployment.started") {
			gates = append(gates, line)
		}
	}
	if len(gates) != 4 {
		t.Errorf("found %v, expected each deployment to start and to end once for all targets", gates)
	}
}

// D61: a target that fails, or never ends, keeps no other from being deployed; whether the next wave begins is for the domain service to
// say.
func TestATargetThatFailsOrNeverEndsIsReported(t *testing.T) {
	t.Parallel()
	w := fleetShop(t, []string{"51"}, []string{"52"})
	began, last := w.now, w.now
	fail := w.fail
	w.fail = func(name string, args object) *history.FunctionError {
		if fmt.Sprint(args["agent_id"]) == "52" {
			last = w.now
		}
		return fail(name, args)
	}
	in := fleetInputs()
	in["rollout"].(object)["environments"].([]any)[0].(object)["application_environment"].(object)["config"].(object)["deadline"] = 4000
	w.answers["staging/waves"], w.approvals["staging/waves"] = "rejected", true
	failure := w.run(driver.Deploy, in)
	if !strings.Contains(failure, "staging: because") {
		t.Errorf("failure %q, expected the reason of the domain service", failure)
	}
	all := w.reports()
	for agent, want := range map[int64]string{51: "agent 51 refuses", 52: "it did not become healthy within 600 seconds"} {
		if len(all[agent]) == 0 || all[agent][0].Result != "failed" || !strings.Contains(all[agent][0].Reason, want) {
			t.Errorf("agent %d: %+v, expected %q", agent, all[agent], want)
		}
	}
	if after := last.Sub(began); after < 500*time.Second || after > 700*time.Second {
		t.Errorf("the last call of agent 52 was made after %s, expected none long after the deadline", after)
	}
	if len(all[53]) != 1 || all[53][0].Result != "healthy" {
		t.Errorf("agent 53: %+v, expected one report that it is healthy", all[53])
	}
	if !strings.Contains(strings.Join(w.story, "\n"), "deployment.failed deployment_id=11 reason=staging: because") {
		t.Errorf("story:\n%s", strings.Join(w.story, "\n"))
	}
}

// D61: a wave that may not begin ends the rollout, and starts no run.
func TestAWaveThatMayNotBegin(t *testing.T) {
	t.Parallel()
	w := fleetShop(t, nil, nil)
	w.answers["staging/wave-2"], w.approvals["staging/wave-2"] = "rejected", true
	if failure := w.run(driver.Deploy, fleetInputs()); !strings.Contains(failure, "staging: because") {
		t.Errorf("failure %q", failure)
	}
	if len(w.plain.calls) != 1 {
		t.Errorf("applied %d times, expected the first wave only", len(w.plain.calls))
	}
}

// D61, E73: after an abort and a retry the wave begins again.
func TestAnAbortedWaveBeginsAgain(t *testing.T) {
	t.Parallel()
	w := fleetShop(t, nil, nil)
	w.plain.takes = time.Minute
	w.asks = map[string]map[string]time.Duration{
		"deployment.started deployment_id=12": {event.TypeRolloutAbortRequested: time.Second},
		hasAborted:                            {event.TypeRolloutRetryRequested: time.Hour},
	}
	in := fleetInputs()
	in["rollout"].(object)["environments"].([]any)[0].(object)["application_environment"].(object)["config"].(object)["deadline"] = 500
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
	}
	story := strings.Join(w.story, "\n")
	if !strings.Contains(story, hasAborted) || !strings.HasSuffix(story, "rollout.healthy") {
		t.Errorf("story:\n%s", story)
	}
}

// D61: a target whose run has not ended gets no second one beside it: after an abort and a retry it fails, unless the run has ended
// meanwhile.
func TestNoSecondRunBesideOneThatHasNotEnded(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{time.Minute: "the run of an earlier attempt has not ended", 2 * time.Hour: ""} {
		w := fleetShop(t, nil, nil)
		w.patient = true
		began := w.now
		w.fail = func(name string, _ object) *history.FunctionError {
			if name == "git.read_file" && w.now.Sub(began) < 90*time.Minute {
				return &history.FunctionError{Code: "unreachable", Message: "no route", Retryable: true}
			}
			return nil
		}
		w.asks = map[string]map[string]time.Duration{
			"deployment.started deployment_id=12": {event.TypeRolloutAbortRequested: time.Second},
			hasAborted:                            {event.TypeRolloutRetryRequested: after},
		}
		if failure := w.run(driver.Deploy, fleetInputs()); failure != "" {
			t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
		}
		var first, second string
		for _, r := range w.reports()[51] {
			if r.Attempt == 1 && first == "" {
				first = r.Reason
			} else if r.Attempt == 2 {
				second = r.Reason
			}
		}
		if first != "its run did not end in time" || second != want {
			t.Errorf("retried after %s: reports %q and %q, expected the second one to be %q", after, first, second, want)
		}
	}
}

// D61: what is observed of one target wakes its own run only, and an abort reaches all of them.
func TestATargetWaitsForItsOwnWatches(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.watching = true
	var subjects []string
	w.fail = func(name string, args object) *history.FunctionError {
		if name == "k8s.watch" {
			subjects = append(subjects, fmt.Sprint(args["agent_id"], " ", args["subject"]))
		}
		return nil
	}
	filters := map[string]bool{}
	w.wanted = func(want history.Want) {
		if want.Type == event.TypeRolloutAbortRequested || want.Type == agent.TypeRolloutStatusChanged {
			filters[strings.TrimPrefix(want.Type, "com.gitlab.cd.")+" "+want.Filter.String()] = true
		}
	}
	in := inputs(2, func(_, environment object) {
		environment["gates"] = []any{}
		environment["fleet"] = object{
			"agents": []any{"cluster_agent_id"}, "deadline": 3600, "waves": []any{
				[]any{object{"agent_id": 51, "name": "eu-1"}}, []any{object{"agent_id": 52, "name": "eu-2"}},
			},
		}
	})
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
	}
	slices.Sort(subjects)
	found := fmt.Sprint(slices.Compact(subjects), slices.Sorted(maps.Keys(filters)))
	if want := "[51 map[rollout_id:7 target:51] 52 map[rollout_id:7 target:52]] " +
		"[argo.rollout.status_changed rollout_id=7, target=51 rollout.abort_requested rollout_id=7]"; found != want {
		t.Errorf("watches and waits %s, expected %s", found, want)
	}
}
