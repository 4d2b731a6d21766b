package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Scope says to which environments of the pipeline a rollout goes, by name. The zero value is all of them.
type Scope struct {
	// Only are those that it goes to; empty for all but Except.
	Only []string
	// Except are those that it leaves out.
	Except []string
}

// all reports whether nothing was chosen.
func (s Scope) all() bool { return len(s.Only)+len(s.Except) == 0 }

// check refuses environments that the pipeline does not go to, and a choice that leaves none.
func (s Scope) check(flow core.Flow) error {
	known := make([]string, len(flow.Deploys))
	for i, step := range flow.Deploys {
		known[i] = step.Environment
	}
	var found []fault.Field
	for field, names := range map[string][]string{"/environments": s.Only, "/exclude": s.Except} {
		for i, name := range names {
			if !slices.Contains(known, name) {
				found = append(found, fault.Field{Name: fmt.Sprintf("%s/%d", field, i), Problem: fmt.Sprintf(
					"found %q; expected an environment of the pipeline: %s", name, strings.Join(known, ", "),
				)})
			}
		}
	}
	if len(found) == 0 && !slices.ContainsFunc(known, s.includes) {
		found = append(
			found, fault.Field{Name: "/exclude", Problem: "found every environment that the rollout would go to; expected at least one to be left"},
		)
	}
	if len(found) > 0 {
		slices.SortFunc(found, func(a, b fault.Field) int { return strings.Compare(a.Name, b.Name) })
		return fault.InvalidFields(found...)
	}
	return nil
}

// checkScope checks a scope against the pipeline that a rollback would go by, before anything is searched within it.
func (u *UseCases) checkScope(ctx context.Context, t *tree, s Scope) error {
	if s.all() {
		return nil
	}
	latest, err := t.tx.LatestFlowDefinitions(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID})
	if err != nil {
		return err
	}
	definition := latest[t.rollout.ApplicationID]
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	return s.check(flow)
}

func (s Scope) includes(environment string) bool {
	return (len(s.Only) == 0 || slices.Contains(s.Only, environment)) && !slices.Contains(s.Except, environment)
}

// checkForward refuses to enter an environment without one before it: its approvals, gates and active checks guard what comes after it, and
// would be left out with it.
func (s Scope) checkForward(flow core.Flow) error {
	left := ""
	for _, step := range flow.Deploys {
		switch {
		case !s.includes(step.Environment):
			left = step.Environment
		case left != "":
			return fault.InvalidFields(fault.Field{Name: "/environments", Problem: fmt.Sprintf(
				"found %s without %s, which the pipeline has before it; only a rollback leaves out an environment before one that it goes to",
				step.Environment, left,
			)})
		}
	}
	return nil
}

// rollbackOf makes a plan that of a rollback, or of a rollout to a part of the pipeline.
type rollbackOf struct {
	// of is the rollout that it takes back; 0 for a preview.
	of    int64
	scope Scope
	// forward reports whether nothing is taken back: the rollout ends before environments that it was not to go to.
	forward bool
	// repair reports whether what is live is deployed again, in some environments only: what the pipeline has before them
	// has been passed already.
	repair bool
	// again reports whether the scope is of the record, and may name what has left the pipeline since.
	again bool
	// instead is what else there is to do where the rollout has changed nothing; empty for nothing.
	instead string
}

// skips finds out which environments of the pipeline a rollback, or a rollout to a part of it, leaves out, by name; none for any other one.
func (p *plan) skips(flow core.Flow, environments map[string]core.BoundEnvironment) (map[string]core.SkipCause, error) {
	skipped := map[string]core.SkipCause{}
	if p.back == nil {
		return skipped, nil
	}
	if !p.back.again {
		if err := p.back.scope.check(flow); err != nil {
			return nil, err
		}
	}
	if p.back.forward && !p.back.repair {
		if err := p.back.scope.checkForward(flow); err != nil {
			return nil, err
		}
	}
	for _, step := range flow.Deploys {
		switch id := environments[step.Environment].ID; {
		case !p.back.scope.includes(step.Environment):
			skipped[step.Environment] = core.SkipExcluded
		case !p.back.forward && p.unchanged(id) && !p.behind[id]:
			skipped[step.Environment] = core.SkipUnchanged
		}
	}
	if len(skipped) == len(flow.Deploys) {
		return nil, fault.New(
			fault.Refused, "%s is live already in every environment that this would go to; there is nothing to roll back%s", p.versionSet.Name,
			p.back.instead,
		)
	}
	return skipped, nil
}

// unchanged reports whether the plan's version set is live in an environment, and nothing has been changed there
// since it was completed.
func (p *plan) unchanged(environment int64) bool {
	return p.live[environment] == p.versionSet.ID && !p.touched[environment]
}

// liveEverywhere reports whether the plan would change no environment.
func (p *plan) liveEverywhere() bool {
	return !slices.ContainsFunc(p.stops, func(s stop) bool { return !p.unchanged(s.environment.ID) })
}

// narrow leaves out of a plan what is skipped: its stops are not planned in the first place, this is about the steps between them.
func (p *plan) narrow(flow core.Flow, skipped map[string]core.SkipCause) error {
	p.program = p.definition.Definition
	if len(skipped) == 0 {
		return nil
	}
	kept := keptSteps(flow.Steps, skipped)
	var err error
	if p.program, err = flow.Keep(kept); err != nil {
		return fmt.Errorf("narrow flow definition %d: %w", p.definition.ID, err)
	}
	p.approvals = nil
	for _, asks := range flow.Approvals {
		if !kept[asks.Step] {
			continue
		}
		// What stands between environments guards the next one that it leads to.
		asks.Before = ""
		for i := asks.Step; i < len(flow.Steps) && asks.Before == ""; i++ {
			if kept[i] {
				asks.Before = flow.Steps[i].Environment
			}
		}
		p.approvals = append(p.approvals, asks)
	}
	return nil
}

// keptSteps says which steps of a pipeline are left when environments are skipped.
func keptSteps(steps []core.FlowStep, skipped map[string]core.SkipCause) []bool {
	kept := make([]bool, len(steps))
	for i, s := range steps {
		if s.Environment != "" {
			kept[i] = skipped[s.Environment] == ""
		}
	}
	for i, s := range steps {
		if s.Environment == "" {
			kept[i] = keepsBetween(steps, kept, skipped, i)
		}
	}
	return kept
}

// keepsBetween reports whether a step between environments is left. What only asks or waits about skipped environments goes with them;
// but an approval stays as long as anything that it leads to is entered, unless all that it leads to before the next approval has the
// version set already: leaving environments out by request never takes an approval from those that are left.
func keepsBetween(steps []core.FlowStep, kept []bool, skipped map[string]core.SkipCause, at int) bool {
	before := -1
	for i := at - 1; i >= 0 && before < 0; i-- {
		if steps[i].Environment != "" {
			before = i
		}
	}
	ahead, entered, unchanged, section := false, false, true, true
	for i := at + 1; i < len(steps); i++ {
		switch {
		case steps[i].Environment != "":
			ahead, entered = true, entered || kept[i]
			unchanged = unchanged && (!section || skipped[steps[i].Environment] == core.SkipUnchanged)
		case steps[i].Asks && ahead:
			section = false
		}
	}
	leftBehind := before >= 0 && !kept[before]
	switch {
	case !ahead: // after the last environment it is about that one
		return !leftBehind
	case !entered:
		return false
	case steps[at].Asks:
		return !unchanged
	default: // time, or an analysis, after an environment that was not entered
		return !leftBehind
	}
}

// recordSkips writes what a rollout leaves out, for people and for its retry.
func (p plan) recordSkips(ctx context.Context, t *tree) error {
	for _, s := range p.skipped {
		s.RolloutID = t.rollout.ID
		if err := t.tx.AddRolloutSkip(ctx, s.SkippedEnvironment); err != nil {
			return err
		}
		why := s.name + " is left out by request"
		if s.Cause == core.SkipUnchanged {
			why = fmt.Sprintf("%s has %s already; nothing is deployed there, and no approval is asked for it", s.name, p.versionSet.Name)
		}
		if err := t.request(ctx, core.VerbSkip, "", why); err != nil {
			return err
		}
	}
	for _, why := range p.left {
		if err := t.request(ctx, core.VerbSkip, "", why); err != nil {
			return err
		}
	}
	return nil
}

// namedSkip is a skipped environment of a plan.
type namedSkip struct {
	core.SkippedEnvironment
	name string
}

// scopeOf is the scope of a rollout that was made before, for its retry: what was unchanged then need not be now.
func (t *tree) scopeOf(ctx context.Context) (Scope, error) {
	skips, err := t.tx.SkipsByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return Scope{}, err
	}
	var ids []int64
	for _, s := range skips[t.rollout.ID] {
		if s.Cause == core.SkipExcluded {
			ids = append(ids, s.EnvironmentID)
		}
	}
	environments, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	var scope Scope
	for _, id := range ids {
		scope.Except = append(scope.Except, environments[id].Name)
	}
	return scope, err
}

// mostCommits is how many commits may have come since what is live: of more it is not known what they change.
const mostCommits = 100

// skipSteps leaves those pauses and jobs out of the program that the pipeline wants left out because of what is new (R4-26). What is not
// known to be covered is done. A rollback leaves nothing out.
func (p *plan) skipSteps(ctx context.Context, tx Tx, organization int64, w wish) error {
	if p.flow.Skip == nil || w.commit != nil || w.again || p.back != nil && !p.back.forward {
		return nil
	}
	if same, err := p.onlyVersions(ctx, tx, organization); err != nil || !same {
		return err
	}
	news, err := p.news(ctx, tx, organization, w)
	if err != nil {
		return err
	}
	program, left, err := p.flow.Skip(p.program, news)
	if err != nil {
		return fmt.Errorf("skip steps of flow definition %d: %w", p.definition.ID, err)
	}
	if len(left) > 0 {
		p.program, p.left = program, left
	}
	return nil
}

// mostRollouts is among how many rollouts the last one is searched for that was completed in an environment.
const mostRollouts = 100

// onlyVersions reports whether nothing but versions may be new: in each environment pipeline, inputs, driver and its configuration are
// those of the rollout that was completed there last, no rollout has touched it since, and no service of what is live is missing.
func (p *plan) onlyVersions(ctx context.Context, tx Tx, organization int64) (bool, error) {
	latest, err := tx.RolloutsByApplication(ctx, organization, []int64{p.application.ID}, core.Page{First: mostRollouts})
	if err != nil {
		return false, err
	}
	rollouts := latest[p.application.ID].Nodes
	ids := make([]int64, len(rollouts))
	for i, r := range rollouts {
		ids[i] = r.ID
	}
	went, err := tx.RolloutEnvironmentsByRollout(ctx, organization, ids)
	if err != nil {
		return false, err
	}
	live, err := tx.EntriesByVersionSet(ctx, organization, core.Distinct(slices.Collect(maps.Values(p.live))))
	if err != nil {
		return false, err
	}
	for _, s := range p.stops {
		completed := func(e core.RolloutEnvironment) bool {
			return e.EnvironmentID == s.environment.ID && e.State == core.RolloutCompleted
		}
		at := slices.IndexFunc(rollouts, func(r core.Rollout) bool { return slices.ContainsFunc(went[r.ID], completed) })
		if at < 0 || p.touched[s.environment.ID] || p.behind[s.environment.ID] {
			return false, nil
		}
		last := rollouts[at]
		e := went[last.ID][slices.IndexFunc(went[last.ID], completed)]
		if last.FlowDefinitionID != p.definition.ID || e.DriverBindingID != s.environment.Binding.ID || e.DriverDigest != s.driver.Digest ||
			!sameInputs(last.Inputs, p.inputs) {
			return false, nil
		}
		gone := func(was core.VersionSetEntry) bool {
			return !slices.ContainsFunc(p.entries, func(is core.VersionSetEntry) bool { return is.ArtifactSourceID == was.ArtifactSourceID })
		}
		if slices.ContainsFunc(live[p.live[s.environment.ID]], gone) {
			return false, nil
		}
	}
	return true, nil
}

// sameInputs compares objects of JSON; none is an empty one.
func sameInputs(a, b json.RawMessage) bool {
	x, y := map[string]any{}, map[string]any{}
	if len(a) > 0 && json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return len(x) == 0 && len(y) == 0 || reflect.DeepEqual(x, y)
}

// news are the commits between what is live and what would be, in all environments that the rollout goes to; zero if something else is new
// as well, or if a commit is not known. Messages do not decide about what was requested (R4-22).
func (p *plan) news(ctx context.Context, tx Tx, organization int64, w wish) (core.News, error) {
	var news core.News
	messages, files := w.triggered, true
	for _, s := range p.stops {
		live, err := tx.EntriesByVersionSet(ctx, organization, []int64{p.live[s.environment.ID]})
		if err != nil {
			return core.News{}, err
		}
		for _, e := range p.entries {
			ran := slices.IndexFunc(live[p.live[s.environment.ID]], func(l core.VersionSetEntry) bool {
				return l.ArtifactSourceID == e.ArtifactSourceID
			})
			if ran < 0 {
				return core.News{}, nil // nothing of it is live there
			}
			from := live[p.live[s.environment.ID]][ran].VersionID
			if from == e.VersionID {
				continue
			}
			commits, known, err := p.between(ctx, tx, organization, from, e.VersionID)
			if err != nil || !known {
				return core.News{}, err
			}
			for _, c := range commits {
				news.Messages, news.Files = append(news.Messages, c.Change.Messages...), append(news.Files, c.Change.Files...)
				messages, files = messages && len(c.Change.Messages) > 0, files && c.Change.Since != ""
			}
		}
	}
	if !messages {
		news.Messages = nil
	}
	if !files {
		news.Files = nil
	}
	return news, nil
}

// between are the commits that came after one version of a source, up to another one; known is false where they are not, and for images.
func (p *plan) between(ctx context.Context, tx Tx, organization, from, to int64) (commits []core.Version, known bool, err error) {
	if p.versions[to].IsImage() {
		return nil, false, nil
	}
	live, err := tx.VersionsByID(ctx, organization, []int64{from})
	if err != nil {
		return nil, false, err
	}
	commits, err = tx.CommitsSince(ctx, to, live[from].Digest, mostCommits)
	if err != nil || len(commits) == 0 {
		return nil, false, err
	}
	return commits, commits[len(commits)-1].Change.Since == live[from].Digest, nil
}

// stepCounts count the steps that commits could have had skipped, in this process.
type stepCounts struct{ skipped, kept atomic.Int64 }

// count counts the steps of a rollout that begins. A decision that is tried again counts again.
func (c *stepCounts) count(p plan) {
	c.skipped.Add(int64(len(p.left)))
	if len(p.left) == 0 && p.flow.Skip != nil {
		c.kept.Add(1)
	}
}

// Skips are the steps that were skipped by commits, and the rollouts that could have skipped some and did not.
func (u *UseCases) Skips() map[string]int64 {
	return map[string]int64{"skipped": u.skipped.skipped.Load(), "kept": u.skipped.kept.Load()}
}
