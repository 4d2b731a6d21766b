package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Who may report a change (D47). All runs of an organization share the source of the workflow service, and the catalogue only says that
// programs emit a type: so the run that emitted an event, its correlation, is compared with the run that was started for the row that the
// event would change. A change cannot be made without saying so, because Change requires it.

// reporter is who may report a change.
type reporter struct {
	// run reports whether the run of the id may, and expected names it in errors. For a deployment, it is the run of its rollout.
	run        func(id string) bool
	expected   string
	deployment int64
	// targets reports whether the runs of targets of the deployment's environment, which are children of the run of the rollout, may report
	// it, too.
	targets bool
	// observed is what a standing report is about, which is looked up for the run that registered it; nil for what needs no look.
	observed *Observed
}

// Observed is what a standing report is about: a service in an environment, an application environment, or else an environment.
type Observed struct{ Environment, Service, ApplicationEnvironment int64 }

// anyRun may report what changes no row.
func anyRun() reporter { return reporter{run: func(string) bool { return true }} }

// theRun is one run.
func theRun(run string) reporter {
	return reporter{run: func(other string) bool { return other == run }, expected: "run " + run}
}

// ofRollout is the run of a rollout.
func ofRollout(rollout int64) reporter { return theRun(id.RolloutRun(rollout)) }

// ofDeployment is the run of the rollout that a deployment belongs to.
func ofDeployment(deployment int64) reporter { return reporter{deployment: deployment} }

// observers are standing reports of runs that were started for what they are about. What an earlier release has registered does not say by
// which run; it is believed until the next deployment, setup or onboarding registers it again.
func observers(about Observed) reporter {
	r := reporter{expected: "a standing report that a run registered about what it was started for"}
	r.run = func(correlation string) bool {
		run, standing := id.ObserverRun(correlation)
		return standing && (run == "" || about.ApplicationEnvironment == 0 && about.Service == 0 && id.OnboardingAttempt(run, about.Environment) > 0)
	}
	if about.Service != 0 || about.ApplicationEnvironment != 0 {
		r.observed = &about
	}
	return r
}

// mayReport compares the run that emitted an event with that of the row that it would change. The error is Invalid, about the attribute
// correlationid: the event can never be applied, and its sender gets a receipt for it.
func mayReport(ctx context.Context, tx Tx, c cause, in core.Inbound, ch Change) error {
	r := ch.reporter()
	if r.deployment != 0 {
		rollout, err := rolloutOf(ctx, tx, c, r.deployment)
		if err != nil {
			return err
		}
		deployment, targets := r.deployment, r.targets
		r = ofRollout(rollout)
		if parent, environment, agent, _ := id.TargetRun(in.Correlation); targets && parent == id.RolloutRun(rollout) {
			may, err := tx.IsTarget(ctx, deployment, environment, agent)
			if err != nil || may {
				return err
			}
		}
	}
	if r.run(in.Correlation) {
		return nil
	}
	if run, standing := id.ObserverRun(in.Correlation); standing && r.observed != nil {
		may, err := tx.MayObserve(ctx, id.Rollout(run), id.ApplicationEnvironment(run), *r.observed)
		if err != nil || may {
			return err
		}
	}
	return fault.InvalidFields(fault.Field{
		Name:    "correlationid",
		Problem: fmt.Sprintf("found %s of run %q, expected it of %s, whose row it would change", in.Type, in.Correlation, r.expected),
	})
}

func (Noted) reporter() reporter { return anyRun() }

func (m Moved) reporter() reporter { return ofRollout(m.RolloutID) }

func (m EnvironmentMoved) reporter() reporter { return ofRollout(m.RolloutID) }

func (m GateReached) reporter() reporter { return ofRollout(m.RolloutID) }

func (m DeploymentProposed) reporter() reporter { return ofRollout(m.RolloutID) }

func (m PassageRequested) reporter() reporter { return ofRollout(m.RolloutID) }

func (m ApprovalRequested) reporter() reporter { return ofRollout(m.RolloutID) }

func (m Aborted) reporter() reporter { return ofRollout(m.RolloutID) }

func (m DeploymentMoved) reporter() reporter { return ofDeployment(m.DeploymentID) }

func (m GatePassage) reporter() reporter { return ofDeployment(m.DeploymentID) }

func (m DeploymentCommitted) reporter() reporter {
	return reporter{deployment: m.DeploymentID, targets: true}
}

func (m DeploymentSubmitted) reporter() reporter {
	return reporter{deployment: m.Link.DeploymentID, targets: true}
}

// The run of a target reports its own end only. The run of the rollout reports the failure of one that does not: it has deployed nothing
// itself, so it cannot know that a target is healthy.
func (m TargetEnded) reporter() reporter {
	run := id.RolloutRun(m.RolloutID)
	expected := fmt.Sprintf("the child of run %s for target %d, attempt %d", run, m.AgentID, m.Attempt)
	if m.State == core.TargetFailed {
		expected += ", or that run"
	}
	return reporter{
		run: func(other string) bool {
			parent, environment, agent, attempt := id.TargetRun(other)
			return other == run && m.State == core.TargetFailed ||
				parent == run && environment == m.EnvironmentID && agent == m.AgentID && attempt == m.Attempt
		},
		expected: expected,
	}
}

func (m Previewed) reporter() reporter { return theRun(id.PreviewRun(m.PreviewID)) }

func (m PullRead) reporter() reporter { return theRun(id.ForgePullRun(m.PullID, m.Run)) }

func (m CheckReported) reporter() reporter { return theRun(id.CheckRun(m.RunID)) }

// An older attempt may report, too; its findings are ignored where they are applied.
func (m EnvironmentReadiness) reporter() reporter {
	return reporter{
		run:      func(run string) bool { return id.OnboardingAttempt(run, m.EnvironmentID) > 0 },
		expected: fmt.Sprintf("an onboarding of environment %d", m.EnvironmentID),
	}
}

func (m ApplicationEnvironmentReadiness) reporter() reporter {
	return reporter{
		run:      func(run string) bool { return id.SetupAttempt(run, m.ApplicationEnvironmentID) > 0 },
		expected: fmt.Sprintf("a setup of application environment %d", m.ApplicationEnvironmentID),
	}
}

// The engine reports what policies decided about a call as the run that makes it.
func (m CallReported) reporter() reporter { return theRun(m.WorkflowID) }

// The engine reports the end of a run as that run.
func (m WorkflowEnded) reporter() reporter { return theRun(m.WorkflowID) }

func (h HealthSeen) reporter() reporter {
	return observers(Observed{Environment: h.EnvironmentID, Service: h.ServiceID})
}

func (r Reconciled) reporter() reporter {
	return observers(Observed{ApplicationEnvironment: r.ApplicationEnvironmentID})
}

func (o ContactSeen) reporter() reporter { return observers(Observed{Environment: o.EnvironmentID}) }

// CheckReported is what the program of a check has found out.
type CheckReported struct {
	RunID             int64
	Phase             core.CheckPhase
	Description, Link string
	// Asks reports whether a person has to decide.
	Asks bool
	// Environments are the phases of environments by name, if it has found them out together.
	Environments map[string]core.CheckPhase
	// Output is what it keeps for the runs of the same check in other environments; nil for nothing.
	Output json.RawMessage
}

// outputMost is how many bytes the output of the program of a check may have.
const outputMost = 16 << 10

func (m CheckReported) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	run, err := tx.CheckRun(ctx, m.RunID)
	if err != nil || run.EndedAt != nil { // it came too late: the check is no longer required
		return err
	}
	if m.Link != "" && !core.PlainLink(m.Link) {
		// Recorded and not rejected: the author of the program looks here, and the passage must not wait for nothing.
		m = CheckReported{RunID: m.RunID, Phase: core.CheckFailure, Description: fmt.Sprintf(
			"its program has reported the link %.100q; expected an http or https address without credentials", m.Link,
		)}
	}
	m = m.withPlainOutput()
	// What an answer says may be in the description, and no column has it.
	m.Description = strings.ReplaceAll(m.Description, "\x00", "\uFFFD")
	t, err := lockTree(ctx, tx, c, run.RolloutID)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	strange, err := t.strangeEnvironment(ctx, m.Environments)
	if err != nil {
		return err
	}
	if strange != "" {
		m = CheckReported{RunID: m.RunID, Phase: core.CheckFailure, Description: fmt.Sprintf(
			"its program has reported the environment %.100q; expected one of the rollout", strange,
		)}
	}
	if len(m.Output) > 0 {
		if err := tx.SetCheckOutput(ctx, run.ID, m.Output); err != nil {
			return err
		}
	}
	return t.recordCheck(ctx, run, m)
}

// withPlainOutput is the same with the output in its compact form, without escapes that JSON does not need. One that cannot be kept is left
// out, and the description says so: what the program has decided counts all the same.
func (m CheckReported) withPlainOutput() CheckReported {
	if len(m.Output) == 0 {
		return m
	}
	plain, nul, err := plainJSON(m.Output)
	note := ""
	switch {
	case err != nil:
		note = "its output is not kept: found no JSON"
	case len(plain) > outputMost:
		note = fmt.Sprintf("its output is not kept: found %d bytes; expected at most %d", len(plain), outputMost)
	case nul: // the inputs of a run cannot have it
		note = "its output is not kept: found a NUL character; expected text without"
	}
	m.Output = plain
	if note != "" {
		const most = 1000
		if m.Output = nil; m.Description != "" {
			note = "; " + note
		}
		m.Description = strings.ToValidUTF8(m.Description[:min(len(m.Description), most-len(note))], "") + note
	}
	return m
}

// plainJSON is the compact form of a JSON text, without the escapes that some encoders write for the sake of HTML. nul reports whether a
// string in it has a NUL character.
func plainJSON(raw json.RawMessage) (plain json.RawMessage, nul bool, err error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, false, err
	}
	const escape = len(`\u0000`)
	for text := compact.Bytes(); len(text) > 0; {
		n := 1
		if text[0] == '\\' { // which is in a string, and has one more behind it at least
			if n = 2; text[1] == 'u' {
				n = escape
			}
		}
		switch one := strings.ToLower(string(text[:n])); one {
		case `\u003c`, `\u003e`, `\u0026`, `\u2028`, `\u2029`:
			character, _ := strconv.ParseUint(one[2:], 16, 32)
			plain = utf8.AppendRune(plain, rune(character))
		default:
			nul = nul || one == `\u0000`
			plain = append(plain, text[:n]...)
		}
		text = text[n:]
	}
	return plain, nul, nil
}

// strangeEnvironment is the name of an environment that the rollout does not have; empty for none.
func (t *tree) strangeEnvironment(ctx context.Context, reported map[string]core.CheckPhase) (string, error) {
	if len(reported) == 0 {
		return "", nil
	}
	var ids []int64
	for _, b := range t.environments {
		ids = append(ids, b.EnvironmentID)
	}
	all, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	if err != nil {
		return "", err
	}
	names := map[string]bool{}
	for _, e := range all {
		names[e.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		if !names[name] {
			return name, nil
		}
	}
	return "", nil
}

// recordCheck records a status by a run, unless it repeats the one before, and has the passages evaluated that it may open.
func (t *tree) recordCheck(ctx context.Context, run core.CheckRun, m CheckReported) error {
	c, err := t.tx.Checks(ctx, t.rollout.ID, t.rollout.VersionSetID)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(c.Pinned, run.Of)
	if at < 0 {
		return fault.New(fault.NotFound, "check %q of rollout %d does not exist", run.Key, t.rollout.ID)
	}
	reporter := run.Reporter(c.Pinned[at].Kind)
	for _, r := range c.Reports {
		same := r.EnvironmentID == run.EnvironmentID && r.Key == run.Key && r.Reporter.Principal == reporter.Principal
		alike := r.Phase == m.Phase && r.Description == m.Description && r.Link == m.Link && r.Asks == m.Asks
		if same && alike && maps.Equal(r.Environments, m.Environments) {
			return nil
		}
	}
	_, err = t.tx.AddCheckReport(ctx, core.CheckReport{
		ApplicationID: t.rollout.ApplicationID, EnvironmentID: run.EnvironmentID, VersionSetID: t.rollout.VersionSetID, Key: run.Key,
		Phase: m.Phase, Description: m.Description, Link: m.Link, Reporter: reporter, ObservedAt: t.cause.at, CreatedAt: t.cause.at,
		Asks: m.Asks && m.Phase == core.CheckPending, Environments: m.Environments,
	})
	if err != nil {
		return err
	}
	if counted := t.cause.reported; counted != nil {
		*counted = append(*counted, checkOutcome{c.Pinned[at].Kind, m.Phase, t.cause.at.Sub(run.CreatedAt)})
	}
	if m.Phase != core.CheckSuccess {
		return nil
	}
	return t.tx.ScheduleReview(ctx, t.rollout.ID, t.cause.at)
}
