package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// policiesAbout are 200 policies about calls: one permits, one forbids what the probe calls, and the others are about so many Functions,
// the one of the steps among them, and do not match.
func policiesAbout(functions int) string {
	var text strings.Builder
	text.WriteString(`@id("calls") permit (principal, action == Action::"function.call", resource);
@id("probe") forbid (principal, action == Action::"function.call", resource) when { context.arguments.contains("state.probe=yes") };
`)
	for i := range 198 {
		name := "checkpoint"
		if other := i % functions; other > 0 {
			name = fmt.Sprint("other.", other)
		}
		_, _ = fmt.Fprintf(&text, `@id("p%d") forbid (principal, action == Action::"function.call", resource == Function::%q)
when { context.arguments.contains("state.tenant=%d") && context.time.hour < 24 };
`, i, name, i)
	}
	return text.String()
}

// probeProgram calls what the policies forbid.
const probeProgram = "run(\"checkpoint\", {\"state\": {\"probe\": \"yes\"}})\n"

// policyTurns is how often steps are measured with policies and without, in turn.
const policyTurns = 7

// policed is B22: steps a second with 200 policies about calls and without, in turn in one run, so that both see the same machine.
func policed(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	sets := []struct {
		name, mode string
		functions  int
	}{{"without policies", "off", 1}, {"200 policies about 20 Functions", "enforce", 20}, {"200 policies about this one", "enforce", 1}}
	ratios := make([][]float64, len(sets))
	for turn := range policyTurns {
		without := 0.0
		for i, s := range sets {
			if err := w.policies(ctx, len(sets)*turn+i+1, s.mode, policiesAbout(s.functions)); err != nil {
				return err
			}
			m := row{Scenario: "10-step, " + s.name, Clients: 64, N: w.scaled(1500), Unit: "workflows"}
			err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, j int) (time.Duration, error) {
				began := now()
				err := complete(ctx, client, fmt.Sprintf("policed-%d-%d-%d", turn, i, j), stepsProgram, `{"steps": 10}`)
				return now().Sub(began), err
			})
			if err != nil {
				return err
			}
			perSecond := 10 * r.Rows[len(r.Rows)-1].PerSecond
			if i == 0 {
				without = perSecond
			}
			ratios[i] = append(ratios[i], perSecond/without)
		}
	}
	for i, s := range sets[1:] {
		slices.Sort(ratios[i+1])
		r.add(row{Scenario: s.name, Engine: "lockstep", N: policyTurns, Note: fmt.Sprintf(
			"%.0f %% of the steps/s without, median (goal: 90 %%); %.0f to %.0f", 100*ratios[i+1][policyTurns/2], 100*ratios[i+1][0],
			100*ratios[i+1][policyTurns-1],
		)})
	}
	return nil
}

// policies puts a version of the set into force in a mode, and returns when the service decides by it.
func (w *world) policies(ctx context.Context, version int, mode, text string) error {
	_, err := w.db.Exec(ctx, `INSERT INTO `+schema+`.call_policy
			(organization, name, version, mode, time_zone, policies, application, environment)
		VALUES ($1, 'bench', $2, $3, 'UTC', $4, 0, 0)
		ON CONFLICT (organization, name) DO UPDATE SET version = excluded.version, mode = excluded.mode, policies = excluded.policies`,
		int64(organization), version, mode, text)
	if err != nil {
		return fmt.Errorf("store policies: %w", err)
	}
	client, err := w.client()
	if err != nil {
		return err
	}
	// Two sets that are enforced after one another forbid the same, so there the service is given the time in which it reads them.
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	for try := range 200 {
		err := complete(ctx, client, fmt.Sprintf("probe-%d-%d", version, try), probeProgram, `{}`)
		if (err != nil) == (mode == "enforce") {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("policies are not %s after 20 s", mode)
}
