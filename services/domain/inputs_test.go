package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

const regionInputs = `"inputs":{"required":["region"],"properties":{
	"region":{"type":"string","enum":["eu","us"]},"count":{"type":"integer","maximum":5,"default":2}}},`

// given makes a rollout with inputs.
func (s *shop) given(set core.VersionSet, inputs string) (core.Rollout, error) {
	s.t.Helper()
	made, err := s.rollouts.CreateRollout(s.t.Context(), user(), rollout.NewRollout{VersionSetID: set.ID, Inputs: json.RawMessage(inputs)})
	if made.Rollout == nil {
		return core.Rollout{}, err
	}
	return *made.Rollout, err
}

// hasInputs checks that a rollout has inputs, everywhere that shows them.
func (s *shop) hasInputs(r core.Rollout, want string) {
	s.t.Helper()
	var found, expected any
	s.ok(json.Unmarshal(s.reload(r).Inputs, &found))
	s.ok(json.Unmarshal([]byte(want), &expected))
	s.want(found, expected)
	var run struct {
		Rollout struct {
			Inputs any `json:"inputs"`
		} `json:"rollout"`
	}
	s.ok(json.Unmarshal(s.inputsOfRun(r), &run))
	s.want(run.Rollout.Inputs, expected)
	if row := s.planned(r); !strings.HasSuffix(row, "; inputs: "+want) {
		s.t.Errorf("rollout_%d: the journal has %q; expected the inputs %s", r.ID, row, want)
	}
}

// inputsOfRun are the inputs of the program that carries out a rollout.
func (s *shop) inputsOfRun(r core.Rollout) []byte {
	s.t.Helper()
	var inputs []byte
	s.ok(s.pool.QueryRow(s.t.Context(), `SELECT inputs FROM cd_handoffs WHERE workflow_id = $1`, fmt.Sprintf("rollout-%d", r.ID)).Scan(&inputs))
	return inputs
}

// R4-09: inputs are checked when a rollout is made, pinned, given to its program and kept in the journal; a retry keeps them.
func TestARolloutHasInputs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.given(s.set, `{"region":"eu"}`)
	s.refusedAt(err, "/inputs/region", "the pipeline has none")
	s.weighted(regionInputs)
	for inputs, problem := range map[string]string{
		``:                          "/inputs/region: found nothing; expected a value",
		`{"region":"mars"}`:         `/inputs/region: found "mars"; expected one of "eu", "us"`,
		`{"region":"eu","count":6}`: "/inputs/count: found 6; expected at most 5",
	} {
		_, err := s.given(s.set, inputs)
		at, text, _ := strings.Cut(problem, ": ")
		s.refusedAt(err, at, text)
	}
	s.want(s.countOf(`SELECT count(*) FROM cd_rollouts`), 0)
	r, err := s.given(s.set, `{"region":"us"}`)
	s.ok(err)
	s.hasInputs(r, `{"count":2,"region":"us"}`)
	if _, err := s.pool.Exec(t.Context(), `UPDATE cd_rollouts SET inputs = '{}' WHERE id = $1`, r.ID); err == nil || !strings.Contains(err.Error(), "inputs") {
		t.Errorf("the inputs of a rollout were changed: %v", err)
	}
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "x"})
	again, err := s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.hasInputs(again, `{"count":2,"region":"us"}`)
	s.report(event.RolloutFailed{RolloutID: again.ID, Reason: "x"})
	s.weighted(strings.Replace(regionInputs, `"us"`, `"asia"`, 1))
	_, err = s.rollouts.RetryRollout(t.Context(), user(), again.ID, "")
	if !fault.Is(err, fault.Refused) || !strings.Contains(fault.Public(err), "do not fit the pipeline, which has changed since") {
		t.Errorf("retry with inputs that the pipeline refuses: found %v", err)
	}
	s.verifyJournal(r)
}

// R4-09: what is live everywhere is deployed again with inputs, and an empty object has none.
func TestNoInputsAreGiven(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted(`"inputs":{"properties":{"count":{"type":"integer","default":2}}},`)
	s.succeed(s.rollout(s.set))
	for _, inputs := range []string{``, `{}`, ` { } `, `null`, `{"count":null}`} {
		_, err := s.given(s.set, inputs)
		s.refused(err, "is live already in every environment")
	}
	r, err := s.given(s.set, `{"count":2}`)
	s.ok(err)
	s.hasInputs(r, `{"count":2}`)
}

// R4-09: a rollback has the inputs of what it goes back to, whatever the pipeline says of them by then.
func TestARollbackKeepsInputs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted(regionInputs)
	first, err := s.given(s.set, `{"region":"us","count":1}`)
	s.ok(err)
	s.succeed(first)
	// Who may deploy only to staging decides nothing about production.
	made, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: s.set.ID, Scope: rollout.Scope{Only: []string{"staging"}}, Inputs: json.RawMessage(`{"region":"eu","count":4}`),
	})
	s.ok(err)
	s.succeed(*made.Rollout)
	lost, err := s.given(s.set, `{"region":"eu","count":5}`) // it changes nothing
	s.ok(err)
	_, err = s.rollouts.CancelRollout(t.Context(), user(), lost.ID, "wrong")
	s.ok(err)
	second, err := s.given(s.release(2), `{"region":"eu","count":3}`)
	s.ok(err)
	s.begin(second, 0)
	s.begin(second, 1)
	s.weighted(`"inputs":{"required":["zone"],"properties":{"zone":{"type":"string"},"count":{"type":"integer","default":9}}},`)
	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: second.ID})
	s.ok(err)
	s.hasInputs(back, `{"count":1,"region":"us"}`)
	s.verifyJournal(back)
}

// R4-09: a rollback to what has never been in the last environment of the rollout has the defaults.
func TestARollbackToWhatWasNeverThere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted(regionInputs)
	made, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: s.set.ID, Scope: rollout.Scope{Only: []string{"staging"}}, Inputs: json.RawMessage(`{"region":"eu","count":4}`),
	})
	s.ok(err)
	s.succeed(*made.Rollout)
	second, err := s.given(s.release(2), `{"region":"us","count":3}`)
	s.ok(err)
	s.begin(second, 0)
	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{
		RolloutID: second.ID, VersionSetID: s.set.ID, Scope: rollout.Scope{Only: []string{"staging", "production"}},
	})
	s.ok(err)
	s.hasInputs(back, `{"count":2}`)
}

// R4-09: what waits in the queue keeps its inputs, and inputs that do not fit are refused before it waits.
func TestQueuedInputs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.people(1)
	s.weighted(regionInputs)
	_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(), core.RolloutPolicy{
		ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerQueued,
	})
	s.ok(err)
	first, err := s.given(s.set, `{"region":"us"}`)
	s.ok(err)
	next := s.release(2)
	_, err = s.given(next, `{"region":"mars"}`)
	s.refusedAt(err, "/inputs/region", `found "mars"`)
	_, err = s.given(next, `{"region":"eu"}`)
	s.ok(err)
	s.succeed(first)
	q, began, err := s.rollouts.BeginQueued(t.Context())
	s.ok(err)
	s.want(began, true)
	s.want(q.Outcome, "")
	s.hasInputs(core.Rollout{ID: q.MadeRolloutID}, `{"count":2,"region":"eu"}`)
}

// R4-09, D58: a trigger gives fixed inputs. Inputs that the pipeline refuses are refused when the trigger is saved, and what a later
// pipeline refuses begins nothing.
func TestATriggerGivesInputs(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.weighted(regionInputs)
	_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "nightly", Kind: core.TriggerVersion, Config: json.RawMessage(`{"inputs":{"region":"mars"}}`), Enabled: true,
	})
	w.refusedAt(err, "/config/inputs/region", `found "mars"`)
	_, err = w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "nightly", Kind: core.TriggerVersion, Config: json.RawMessage(`{"inputs":["eu"]}`), Enabled: true,
	})
	w.refusedAt(err, "/config/inputs", "expected an object")
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"inputs":{"region":"eu","count":4}}`)
	set := w.release(2)
	w.want(w.decide(), []string{"began: " + set.Name + " is new"})
	r := w.active()
	w.hasInputs(r, `{"count":4,"region":"eu"}`)
	w.succeed(r)
	w.weighted(strings.Replace(regionInputs, `"eu"`, `"asia"`, 1))
	w.release(3)
	if got := w.decide(); len(got) != 1 || !strings.HasPrefix(got[0], "declined: ") || !strings.Contains(got[0], `inputs/region`) {
		t.Errorf("a trigger with inputs that the pipeline refuses: found %q", got)
	}
}

// R4-09, D51: policies see the inputs, also where they decide about passages.
func TestPoliciesSeeInputs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted(regionInputs)
	_, err := s.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{
		Name: "regions", Mode: core.PolicyEnforced, Reason: "test", Text: `@id("all") permit (principal, action, resource);
@id("not-five") forbid (principal, action == Action::"rollout.create", resource) when { context.inputs.contains("count=5") };`,
	})
	s.ok(err)
	_, err = s.given(s.set, `{"region":"us","count":5.0}`)
	if !fault.Is(err, fault.Refused) || !strings.Contains(fault.Public(err), "policies do not allow the rollout") {
		t.Errorf("a rollout that a policy forbids by its inputs: found %v", err)
	}
	r, err := s.given(s.set, `{"region":"us","count":4}`)
	s.ok(err)
	s.hasInputs(r, `{"count":4,"region":"us"}`)
}
