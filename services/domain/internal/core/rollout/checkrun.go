package rollout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// A check whose kind is a bundle is decided by a program (D48). Its run is opened when the passage that it guards is requested and there
// is what it is about, and ended when the passage has been granted or the rollout is over: the program reports, and the domain decides.

// pinCheck keeps a check of a rollout, with the bundle of its kind as it is now (D7). Its configuration is checked again: that of an
// environment may have been accepted by another release, whose kind knows more.
func (p plan) pinCheck(ctx context.Context, tx Tx, rollout int64, c core.PinnedCheck) error {
	if c.Kind.Program() {
		kind, err := p.drivers.LookupCheck(string(c.Kind))
		if err == nil {
			err = p.drivers.ValidateCheck(string(c.Kind), string(c.Target), c.Config)
		}
		if err != nil {
			return fault.Because(err, fault.Refused, "check %q: %s", c.Key, fault.Public(err))
		}
		content, err := p.drivers.Export(kind.Ref)
		if err != nil {
			return err
		}
		if err := tx.KeepBundle(ctx, kind.Digest, kind.Ref, content); err != nil {
			return err
		}
		c.Digest = kind.Digest
	}
	return tx.PinCheck(ctx, rollout, c)
}

// openCheckRuns opens the runs of the programs that a requested passage waits for, each once.
func (p passages) openCheckRuns(ctx context.Context, gate string) error {
	for _, s := range p.entering(gate) {
		if !s.Kind.Program() || s.Run != nil || !s.Due {
			continue
		}
		if err := p.openCheckRun(ctx, s.PinnedCheck, 1); err != nil {
			return err
		}
	}
	return nil
}

// openCheckRun opens the run of a number.
func (p passages) openCheckRun(ctx context.Context, c core.PinnedCheck, number int) error {
	subject, err := p.subjectOf(ctx, c)
	if err != nil {
		return fmt.Errorf("describe the subject of check %s: %w", c.Key, err)
	}
	run, err := p.tx.AddCheckRun(ctx, core.CheckRun{
		RolloutID: p.rollout.ID, EnvironmentID: c.EnvironmentID, Target: c.Target, Key: c.Key, Own: c.Own, Number: number, CreatedAt: p.cause.at,
	})
	if err != nil {
		return err
	}
	in := checkInput{
		Check:  checkedInput{RunID: run.ID, Key: c.Key, Kind: c.Kind, Target: c.Target, Number: number, Before: []checkedBefore{}},
		Config: c.Config, Subject: subject,
	}
	together, elsewhere, err := p.foundElsewhere(ctx, c, subject.Environments)
	if err != nil {
		return err
	}
	in.Check.Elsewhere = elsewhere
	if number == 1 {
		in.Check.Before = together
	}
	if len(in.Config) == 0 {
		in.Config = json.RawMessage(`{}`)
	}
	inputs, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode inputs of run %d of check %s: %w", run.ID, c.Key, err)
	}
	return p.tx.AddHandoff(ctx, core.Handoff{
		Kind: core.HandoffStart, WorkflowID: id.CheckRun(run.ID), Subject: core.HandoffCheck, SubjectID: run.ID, Program: core.ProgramCheck,
		DriverDigest: c.Digest, Inputs: inputs, DueAt: p.cause.at,
	})
}

// elsewhereMost is how many bytes the outputs have that a run begins with. Those of the oldest reports beyond it are omitted.
const elsewhereMost = 256 << 10

// foundElsewhere is what the runs of the same check in other environments have reported last, the latest report last: of those that are
// configured alike, and whose kind was pinned alike. together are the phases of environments that the latest report of all has.
func (p passages) foundElsewhere(
	ctx context.Context, c core.PinnedCheck, environments []environmentSeen,
) (together []checkedBefore, elsewhere []checkedElsewhere, err error) {
	together, elsewhere = []checkedBefore{}, []checkedElsewhere{}
	known, err := p.tx.Checks(ctx, p.rollout.ID, p.rollout.VersionSetID)
	if err != nil || len(known.Runs) == 0 {
		return together, elsewhere, err
	}
	type found struct {
		run    core.CheckRun
		report core.CheckReport
	}
	var all []found
	for _, run := range known.Runs {
		at := slices.IndexFunc(known.Pinned, run.Of)
		if at < 0 || run.EnvironmentID == c.EnvironmentID {
			continue
		}
		other := known.Pinned[at]
		if other.Key != c.Key || other.Target != c.Target || other.Digest != c.Digest || !bytes.Equal(other.Config, c.Config) {
			continue
		}
		for _, r := range known.Reports {
			if r.Reporter.Principal == run.Reporter(c.Kind).Principal && r.EnvironmentID == run.EnvironmentID && r.Key == run.Key {
				all = append(all, found{run, r})
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.report.ID, b.report.ID) })
	var newest []int64
	for _, one := range slices.Backward(all) {
		newest = append(newest, one.run.ID)
	}
	outputs, err := p.tx.CheckOutputs(ctx, newest, elsewhereMost)
	if err != nil {
		return together, elsewhere, err
	}
	for i, one := range all {
		output, kept := outputs[one.run.ID]
		omitted := kept && len(output) == 0
		if len(output) == 0 {
			output = json.RawMessage(`{}`)
		}
		for _, e := range environments {
			if e.ID == one.run.EnvironmentID {
				elsewhere = append(elsewhere, checkedElsewhere{
					Environment: e.Name, Phase: one.report.Phase, Output: output, Omitted: omitted,
				})
			}
		}
		if i < len(all)-1 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(one.report.Environments)) {
			together = append(together, checkedBefore{name, one.report.Environments[name]})
		}
	}
	return together, elsewhere, nil
}

// subjectOf is what a check is about.
func (p passages) subjectOf(ctx context.Context, c core.PinnedCheck) (subjectInput, error) {
	organization := p.cause.Organization
	in := subjectInput{
		Rollout: checkedRollout{ID: p.rollout.ID}, Inputs: p.rollout.Inputs, Commits: []string{}, Repositories: []string{},
	}
	applications, err := p.tx.ApplicationsByID(ctx, organization, []int64{p.rollout.ApplicationID})
	if err != nil {
		return in, err
	}
	in.Application = setup.Named{ID: p.rollout.ApplicationID, Name: applications[p.rollout.ApplicationID].Name}
	if in.VersionSet, in.Sources, err = p.describeSet(ctx, p.rollout.VersionSetID); err != nil {
		return in, err
	}
	var places, deployments []int64
	for _, b := range p.environments {
		places = append(places, b.EnvironmentID)
		for _, d := range b.deployments {
			if b.EnvironmentID == c.EnvironmentID {
				deployments = append(deployments, d.ID)
			}
		}
	}
	environments, err := p.tx.EnvironmentsByID(ctx, organization, places)
	if err != nil {
		return in, err
	}
	for _, b := range p.environments {
		e := environments[b.EnvironmentID]
		one := environmentSeen{ID: e.ID, Name: e.Name, Tier: string(e.Tier), VersionSetID: b.PreviousVersionSetID}
		if in.Environments = append(in.Environments, one); e.ID == c.EnvironmentID {
			in.Environment = one
		}
	}
	if p.rollout.RollbackOf != 0 {
		ran, err := p.tx.EnvironmentsThatRan(ctx, p.rollout.VersionSetID)
		if err != nil {
			return in, err
		}
		in.Rollout.Rollback = ran[c.EnvironmentID]
	}
	if before := in.Environment.VersionSetID; c.Target == core.CheckProposed && before != 0 {
		in.Live = &liveInput{}
		if in.Live.VersionSet, in.Live.Sources, err = p.describeSet(ctx, before); err != nil {
			return in, err
		}
	}
	pinned, _, err := p.tx.PinnedPlaces(ctx, p.rollout.ID, c.EnvironmentID)
	if err != nil {
		return in, err
	}
	for _, place := range pinned {
		if place.AgentID != 0 && !slices.Contains(in.Environment.Agents, place.AgentID) {
			in.Environment.Agents = append(in.Environment.Agents, place.AgentID)
		}
		if place.Repository != "" && place.Repository != "*" && !slices.Contains(in.Repositories, place.Repository) {
			in.Repositories = append(in.Repositories, place.Repository)
		}
	}
	slices.Sort(in.Environment.Agents)
	snapshots, err := p.tx.SnapshotsByDeployment(ctx, organization, deployments)
	for _, d := range deployments {
		if sha := snapshots[d].CommitSHA; sha != "" && !slices.Contains(in.Commits, sha) {
			in.Commits = append(in.Commits, sha)
		}
	}
	return in, err
}

// describeSet is a version set, and what its versions were built from.
func (p passages) describeSet(ctx context.Context, id int64) (set versionSetInput, sources []sourceInput, err error) {
	organization := p.cause.Organization
	set, sources = versionSetInput{ID: id, Versions: []versionInput{}}, []sourceInput{}
	sets, err := p.tx.VersionSetsByID(ctx, organization, []int64{id})
	if err != nil {
		return set, sources, err
	}
	set.Name = sets[id].Name
	entries, err := p.tx.EntriesByVersionSet(ctx, organization, []int64{id})
	if err != nil {
		return set, sources, err
	}
	var ids []int64
	for _, e := range entries[id] {
		ids = append(ids, e.VersionID)
	}
	versions, err := p.tx.VersionsByID(ctx, organization, ids)
	if err != nil {
		return set, sources, err
	}
	origins, err := p.tx.Origins(ctx, organization, ids)
	if err != nil {
		return set, sources, err
	}
	for _, v := range ids {
		set.Versions = append(set.Versions, describeVersion(versions[v]))
		if report := origins[v].Report; report != nil {
			for _, s := range report.Sources {
				sources = append(sources, sourceInput{Version: versions[v].Name, Repository: s.Repository, Revision: s.Revision})
			}
		}
	}
	return set, sources, nil
}

// endCheckRuns ends the runs of the checks that guard a passage.
func (p passages) endCheckRuns(ctx context.Context, gate string) error {
	var open []int64
	for _, s := range p.entering(gate) {
		if s.Run != nil && s.Run.EndedAt == nil {
			open = append(open, s.Run.ID)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return p.stopCheckRuns(ctx, open, "the passage has been granted")
}

// stopCheckRuns ends runs of checks of the rollout that are open, all of them for nil, and has their programs stopped.
func (t *tree) stopCheckRuns(ctx context.Context, runs []int64, why string) error {
	ended, err := t.tx.EndCheckRuns(ctx, t.rollout.ID, runs, t.cause.at)
	if err != nil {
		return err
	}
	for _, r := range ended {
		// As for the run of a rollout: once a start was claimed, only a cancellation is safe.
		withdrawn, err := t.tx.WithdrawStart(ctx, id.CheckRun(r.ID))
		if err == nil && !withdrawn {
			err = t.tx.AddHandoff(ctx, core.Handoff{
				Kind: core.HandoffCancel, WorkflowID: id.CheckRun(r.ID), Subject: core.HandoffCheck, SubjectID: r.ID, Reason: why, DueAt: t.cause.at,
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRunEnded closes the run of a check whose program has ended. One that has decided leaves its decision; any other has failed.
func (u *UseCases) checkRunEnded(ctx context.Context, tx Tx, c cause, id int64, verb core.Verb, reason string) error {
	run, err := tx.CheckRun(ctx, id)
	if err != nil || run.EndedAt != nil {
		return err
	}
	t, err := lockTree(ctx, tx, c, run.RolloutID)
	if err != nil {
		return err
	}
	ended, err := tx.EndCheckRuns(ctx, run.RolloutID, []int64{id}, c.at)
	if err != nil || len(ended) == 0 || t.rollout.State.Terminal() {
		return err
	}
	why := core.Because("its program has ended without a decision", reason)
	if verb == core.VerbComplete {
		states, err := tx.Checks(ctx, t.rollout.ID, t.rollout.VersionSetID)
		if err != nil {
			return err
		}
		by := run.Reporter("").Principal
		decided := slices.ContainsFunc(states.Reports, func(r core.CheckReport) bool {
			return r.Reporter.Principal == by && r.Key == run.Key && r.EnvironmentID == run.EnvironmentID && r.Phase != core.CheckPending
		})
		if decided {
			return nil
		}
	}
	const most = 1000
	why = strings.ToValidUTF8(why[:min(len(why), most)], "")
	return t.recordCheck(ctx, run, CheckReported{RunID: id, Phase: core.CheckFailure, Description: why})
}

// CheckNamed names a check of a rollout.
type CheckNamed struct {
	// RolloutID may be 0 where the application's name is given: then it is its active rollout.
	RolloutID   int64
	Application string
	// EnvironmentID may be 0 where the name is given.
	EnvironmentID int64
	Environment   string
	Key           string
}

// find is the same with the numbers of what it names.
func (n CheckNamed) find(ctx context.Context, tx Tx, organization int64) (CheckNamed, error) {
	if n.RolloutID == 0 {
		application, err := tx.ApplicationByName(ctx, organization, n.Application)
		if err != nil {
			return n, err
		}
		active, err := tx.ActiveRollouts(ctx, organization, []int64{application.ID})
		if err != nil {
			return n, err
		}
		r, busy := active[application.ID]
		if !busy {
			return n, fault.New(fault.Refused, "application %q has no active rollout", n.Application)
		}
		n.RolloutID = r.ID
	}
	if n.EnvironmentID == 0 {
		e, err := tx.EnvironmentByName(ctx, organization, n.Environment)
		if err != nil {
			return n, err
		}
		n.EnvironmentID = e.ID
	}
	return n, nil
}

// EvaluateCheck has a check whose kind is a bundle evaluated now (R3-49): its program is nudged, or started again if it has ended. It is
// refused while its passage is not requested.
func (u *UseCases) EvaluateCheck(ctx context.Context, a core.Actor, n CheckNamed) (core.Rollout, error) {
	// Before names are looked up, which would reveal what exists.
	if err := a.MaySomewhere(core.ActionEvaluateCheck); err != nil {
		return core.Rollout{}, err
	}
	if err := a.MayReportKey(n.Key); err != nil {
		return core.Rollout{}, err
	}
	return u.onCheck(ctx, a, core.ActionEvaluateCheck, n, func(ctx context.Context, t *tree, n CheckNamed) error {
		return t.evaluateCheck(ctx, n)
	})
}

// evaluateCheck is EvaluateCheck for a rollout that is locked.
func (t *tree) evaluateCheck(ctx context.Context, n CheckNamed) error {
	p, err := t.passages(ctx)
	if err != nil {
		return err
	}
	found := false
	for _, gate := range p.hold.Asking {
		for _, s := range p.entering(gate) {
			if s.Key != n.Key || s.EnvironmentID != n.EnvironmentID || !s.Kind.Program() || !s.Due || t.rollout.State.Terminal() {
				continue
			}
			found = true
			switch {
			case s.Run != nil && s.Run.EndedAt == nil:
				err = t.tx.Nudge(ctx, Nudge{Organization: t.cause.Organization, RolloutID: t.rollout.ID, RunID: s.Run.ID, At: t.cause.at})
			case s.Run != nil:
				err = p.openCheckRun(ctx, s.PinnedCheck, s.Run.Number+1)
			default:
				err = p.openCheckRun(ctx, s.PinnedCheck, 1)
			}
			if err != nil {
				return err
			}
		}
	}
	if !found {
		return fault.New(fault.Refused, "no requested passage of %s waits for a check %q there whose program decides", t.name(), n.Key)
	}
	return nil
}

// DecideCheck is the answer of a person to a check whose program asks (D48), since what it has found is inconclusive or it has no data. It
// counts until the program begins again.
func (u *UseCases) DecideCheck(
	ctx context.Context, a core.Actor, n CheckNamed, phase core.CheckPhase, reason string,
) (core.Rollout, error) {
	// Before names are looked up, which would reveal what exists.
	if err := a.MaySomewhere(core.ActionDecideCheck); err != nil {
		return core.Rollout{}, err
	}
	if phase != core.CheckSuccess && phase != core.CheckFailure {
		return core.Rollout{}, fault.InvalidFields(fault.Field{
			Name: "/phase", Problem: fmt.Sprintf("found %q; expected success or failure", string(phase)),
		})
	}
	if strings.TrimSpace(reason) == "" {
		return core.Rollout{}, fault.InvalidFields(fault.Field{Name: "/reason", Problem: "missing; expected why"})
	}
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.onCheck(ctx, a, core.ActionDecideCheck, n, func(ctx context.Context, t *tree, n CheckNamed) error {
		return t.decideCheck(ctx, n, phase, reason)
	})
}

// decideCheck is DecideCheck for a rollout that is locked.
func (t *tree) decideCheck(ctx context.Context, n CheckNamed, phase core.CheckPhase, reason string) error {
	p, err := t.passages(ctx)
	if err != nil {
		return err
	}
	for _, gate := range p.hold.Asking {
		for _, s := range p.entering(gate) {
			if s.Key != n.Key || s.EnvironmentID != n.EnvironmentID || !s.Asks || t.rollout.State.Terminal() {
				continue
			}
			if err := p.mayDecide(ctx, gate, s, phase); err != nil {
				return err
			}
			_, err := t.tx.AddCheckReport(ctx, core.CheckReport{
				ApplicationID: t.rollout.ApplicationID, EnvironmentID: s.EnvironmentID, VersionSetID: t.rollout.VersionSetID, Key: s.Key,
				Phase: phase, Description: reason, Reporter: core.AuthorOf(t.cause.Actor), ObservedAt: t.cause.at, CreatedAt: t.cause.at,
			})
			if err == nil {
				err = core.Record(ctx, t.tx, t.cause.Actor, core.Change{
					Action: core.ActionDecideCheck, ApplicationID: t.rollout.ApplicationID, EnvironmentID: s.EnvironmentID, Reason: reason,
					Subject: core.AccessSubject{Kind: core.ChangedRollout, ID: t.rollout.ID, Name: t.name()},
					Detail:  fmt.Sprintf("check %s at passage %q: %s", s.Key, gate, phase),
				}, map[string]any{"check": s.Key, "phase": core.CheckPending}, map[string]any{"check": s.Key, "phase": phase})
			}
			if err != nil {
				return err
			}
			return t.tx.ScheduleReview(ctx, t.rollout.ID, t.cause.at)
		}
	}
	return fault.New(fault.Refused, "no requested passage of %s waits for a check %q there that asks a person", t.name(), n.Key)
}

// mayDecide is nil, or a Refused that says why this actor may not let a check pass that asks a person. As with approvals, it is not the
// person who requested the rollout, unless the rule of the passage allows it; without one, the tier of the environment decides. To fail the
// check makes nothing easier, so everybody who may approve may do that.
func (p passages) mayDecide(ctx context.Context, gate string, s core.CheckState, phase core.CheckPhase) error {
	requester, err := p.tx.PolicyRequester(ctx, p.rollout.ID)
	if err != nil || phase != core.CheckSuccess || requester.Principal() != p.cause.Principal() {
		return err
	}
	rule, pinned := p.rules[gate]
	if !pinned {
		environments, err := p.tx.EnvironmentsByID(ctx, p.cause.Organization, []int64{s.EnvironmentID})
		if err != nil {
			return err
		}
		rule.GateRule = core.RuleOf(core.Approval{}, environments[s.EnvironmentID].Tier)
	}
	if rule.RequesterMayApprove {
		return nil
	}
	return fault.New(
		fault.Refused, "%s requested %s, so someone else must decide its check %q", p.cause.DisplayName(), p.name(), s.Key,
	)
}

// onCheck does something about a check of a rollout, for an actor that may do it in the check's environment.
func (u *UseCases) onCheck(
	ctx context.Context, a core.Actor, action core.Action, n CheckNamed, do func(context.Context, *tree, CheckNamed) error,
) (core.Rollout, error) {
	var result core.Rollout
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		n, err := n.find(ctx, tx, a.Organization)
		if err != nil {
			return err
		}
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, n.RolloutID)
		if err != nil {
			return err
		}
		environments, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{n.EnvironmentID})
		if err != nil {
			return err
		}
		e, ok := environments[n.EnvironmentID]
		if !ok {
			return fault.New(fault.NotFound, "environment %d does not exist", n.EnvironmentID)
		}
		if err := a.MayIn(action, e.Target(t.rollout.ApplicationID)); err != nil {
			return err
		}
		if err := do(ctx, t, n); err != nil {
			return err
		}
		after, err := tx.RolloutsByID(ctx, a.Organization, []int64{n.RolloutID})
		result = after[n.RolloutID]
		return err
	})
	u.wake()
	return result, err
}
