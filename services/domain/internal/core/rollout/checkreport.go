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
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

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
