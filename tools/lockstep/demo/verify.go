package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

// Commits counts the commits of the repository by the environment whose files they changed.
func (w *World) Commits(ctx context.Context) (map[string]int, error) {
	commits, err := gitserver.Log(ctx, w.Stack.GitDir(), w.Scenario.Application)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, c := range commits[:len(commits)-1] { // the last one brought the manifests
		folders := map[string]bool{}
		for _, path := range c.Paths {
			folder, _, _ := strings.Cut(path, "/")
			folders[folder] = true
		}
		for folder := range folders {
			counts[folder]++
		}
		if len(folders) != 1 {
			return nil, fmt.Errorf("commit %s: found changes in %q, expected one environment", c.SHA, c.Paths)
		}
	}
	return counts, nil
}

// ExpectCommits compares the commits since before with those wanted, by environment.
func (w *World) ExpectCommits(ctx context.Context, before, want map[string]int) error {
	now, err := w.Commits(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, stage := range w.Scenario.Stages {
		name := stage.Environment
		if found := now[name] - before[name]; found != want[name] {
			errs = append(errs, fmt.Errorf("git: found %d new commits for %s, expected %d", found, name, want[name]))
		}
	}
	return errors.Join(errs...)
}

// ExpectHealthy checks in the cluster itself that every service of an environment runs the version of the set, and nothing else.
func (w *World) ExpectHealthy(ctx context.Context, stage Stage, set client.VersionSet) error {
	for _, entry := range set.Entries {
		var p position
		err := w.insist(ctx, "the cluster to answer", func() (err error) {
			p, err = w.cluster.rollout(ctx, w.Scenario.Namespace(stage), entry.Service.Name)
			return err
		})
		if err != nil {
			return err
		}
		if p.digest() != entry.Version.Digest || p.Phase != "Healthy" || !p.Stable {
			return fmt.Errorf("cluster: %s/%s: found %s %s (stable: %t), expected Healthy with %s",
				stage.Environment, entry.Service.Name, p.Phase, p.Image, p.Stable, entry.Version.Digest)
		}
	}
	return nil
}

// ExpectJournal checks the journal by itself: every subject's rows form one chain of states that ends where the object stands, each
// request for approval has exactly one answer, and the gates follow expectGates.
func ExpectJournal(r client.Rollout) error {
	state := map[string]string{}
	open := map[string]int{}
	for i, t := range r.Journal {
		if t.FromState != "" && !strings.EqualFold(state[t.Subject], t.FromState) {
			return fmt.Errorf("journal of %s, row %d: %s goes from %q, expected %q", r.ID, i+1, t.Subject, t.FromState, state[t.Subject])
		}
		state[t.Subject] = t.ToState
		switch t.Event {
		case "request_approval":
			open[t.GateID]++
		case "approve", "reject":
			open[t.GateID]--
		}
	}
	for gate, n := range open {
		if n != 0 && r.State == "COMPLETED" {
			return fmt.Errorf("journal of %s: gate %q has %d requests more than answers", r.ID, gate, n)
		}
	}
	if !strings.EqualFold(state[r.ID], r.State) {
		return fmt.Errorf("journal of %s ends with %q, the rollout is %q", r.ID, state[r.ID], r.State)
	}
	for _, e := range r.Environments {
		for _, d := range e.Deployments {
			if !strings.EqualFold(state[d.ID], d.State) {
				return fmt.Errorf("journal of %s ends with %q for %s/%s, which is %q", r.ID, state[d.ID], e.Environment.Name, d.Service.Name, d.State)
			}
		}
		if err := expectGates(r, e); err != nil {
			return err
		}
	}
	return nil
}

// expectGates checks what the journal says of the gates of one environment: no deployment comes to one, or goes past it, twice, and
// none goes past one before all that come to it have come.
func expectGates(r client.Rollout, e client.RolloutEnvironment) error {
	name := map[string]string{}
	for _, d := range e.Deployments {
		name[d.ID] = e.Environment.Name + "/" + d.Service.Name
	}
	seen := map[string]bool{}     // subject, verb, gate
	passed := map[string]string{} // gate → who went past it first
	for _, t := range r.Journal {
		if t.Subject == r.ID && t.Event == "retry" { // it begins again at its first gate
			clear(seen)
			clear(passed)
		}
		if name[t.Subject] == "" || t.GateID == "" {
			continue
		}
		what := name[t.Subject] + " " + t.Event + " " + t.GateID
		if seen[what] {
			return fmt.Errorf("journal of %s: found %q twice", r.ID, what)
		}
		seen[what] = true
		switch {
		case t.Event == "pass_gate" && !seen[name[t.Subject]+" reach_gate "+t.GateID]:
			return fmt.Errorf("journal of %s: %s passes gate %s without having reached it", r.ID, name[t.Subject], t.GateID)
		case t.Event == "pass_gate" && passed[t.GateID] == "":
			passed[t.GateID] = name[t.Subject]
		case t.Event == "reach_gate" && passed[t.GateID] != "":
			return fmt.Errorf("journal of %s: %s had passed gate %s when %s reached it", r.ID, passed[t.GateID], t.GateID, name[t.Subject])
		}
	}
	return nil
}

// ExpectGates checks that the journal has every deployment past every gate of the scenario.
func (w *World) ExpectGates(r client.Rollout) error {
	for _, stage := range w.Scenario.Stages {
		for _, e := range r.Environments {
			if e.Environment.Name != stage.Environment {
				continue
			}
			for _, gate := range stage.Gates {
				id := fmt.Sprintf("%s/%d", stage.Environment, gate)
				want := slices.Repeat([]string{"pass_gate", "reach_gate"}, len(e.Deployments))
				if found := events(r, id); !slices.Equal(slices.Sorted(slices.Values(found)), slices.Sorted(slices.Values(want))) {
					return fmt.Errorf("journal of %s: gate %s has %q, expected each of %d deployments to reach and to pass it", r.ID, id, found,
						len(e.Deployments))
				}
			}
		}
	}
	return nil
}

// ExpectState checks a rollout's state and those of its deployments: want has environment/service.
func ExpectState(r client.Rollout, state string, want map[string]string) error {
	if r.State != state {
		return fmt.Errorf("%s: found %s, expected %s", r.ID, describe(r), state)
	}
	for _, e := range r.Environments {
		for _, d := range e.Deployments {
			name := e.Environment.Name + "/" + d.Service.Name
			if w, ok := want[name]; ok && w != d.State {
				return fmt.Errorf("%s: %s is %s, expected %s", r.ID, name, d.State, w)
			}
		}
	}
	return ExpectJournal(r)
}

// events are the verbs of a journal about one gate, in order: what deployments did there, and what people decided. The rollout's own
// passage is left out because it follows from them; so is its request for passage while the gate was held, which depends on timing.
func events(r client.Rollout, gate string) []string {
	var verbs []string
	for _, t := range r.Journal {
		if t.GateID == gate && (t.Subject != r.ID || !strings.HasSuffix(t.Event, "_gate") && t.Event != "request_passage") {
			verbs = append(verbs, t.Event)
		}
	}
	return slices.Clip(verbs)
}
