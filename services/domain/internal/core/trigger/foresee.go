package trigger

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// A change of a repository that is no version yet, as in a pull request, is foreseen by the same rules by which its commits would be
// decided about once they are at the head of the branch: which files count is up to the sources, what begins is up to the triggers, and how
// is up to the planner (D60). Nothing is written.

// The bounds of a change.
const (
	maxPaths      = 5000
	maxPath       = 4096
	maxMessage    = 4096
	maxBranch     = 255
	maxSources    = 5000
	maxForeseen   = 50
	foreseenFiles = 500
)

// Change is a change of a repository that is not on the branch yet.
type Change struct {
	// Repository is its URL, or its host and path; Branch is where the change would go to.
	Repository, Branch string
	// Paths are the files that it changes, from the top of the repository.
	Paths []string
	// SHA and Message are those of its last commit.
	SHA, Message string
}

// Touched is an application that a change would touch, and what one trigger would begin. Where several would, it is listed once for each.
type Touched struct {
	Application core.Application
	// Files are those that count for it, in order: the first ones, of FileCount.
	Files     []string
	FileCount int
	// Trigger is the trigger that would begin a rollout, nil for none, and Begins says so in one sentence.
	Trigger *core.Trigger
	Begins  string
	rollout.Foreseen
}

func (c Change) check() error {
	var found []fault.Field
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
	}
	if c.Branch == "" || len(c.Branch) > maxBranch {
		wrong("/branch", "found %d bytes; expected the name of the branch that the change goes to, of at most %d", len(c.Branch), maxBranch)
	}
	if len(c.Paths) > maxPaths {
		wrong("/paths", "found %d; expected at most %d changed files", len(c.Paths), maxPaths)
	}
	for i, p := range c.Paths[:min(len(c.Paths), maxPaths)] {
		if p == "" || len(p) > maxPath {
			wrong(fmt.Sprintf("/paths/%d", i), "found %d bytes; expected 1 to %d", len(p), maxPath)
		}
	}
	if len(c.SHA) > 64 {
		wrong("/sha", "found %d characters; expected at most 64", len(c.SHA))
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// Foresee returns the applications that a change would touch, by labels and name, each with what would begin and what it would have to
// pass; more is that there are others. A message is cut as that of a version is.
func (u *UseCases) Foresee(ctx context.Context, a core.Actor, c Change) (all []Touched, more bool, err error) {
	if err := c.check(); err != nil {
		return nil, false, err
	}
	name := u.sources.Name(c.Repository)
	if name == "" {
		return nil, false, invalid("/repository", "found %.200q; expected a URL such as https://git.example.com/shop/config.git, or git.example.com/shop/config",
			c.Repository)
	}
	c.Message = c.Message[:min(len(c.Message), maxMessage)]
	var sources []core.ServiceSource
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) (err error) {
		sources, err = tx.SourcesOfRepository(ctx, a.Organization, u.sources.KeyPrefix(name), maxSources+1)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	more = len(sources) > maxSources
	c.Paths = slices.Compact(slices.Sorted(slices.Values(c.Paths)))
	applications, others, err := u.touching(ctx, c, sources)
	if err != nil {
		return nil, false, err
	}
	more = more || others
	for _, touched := range applications {
		if len(all) >= maxForeseen {
			more = true
			break
		}
		var some []Touched
		err := u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) (err error) {
			some, err = u.foresee(ctx, tx, a, c, name, touched)
			return err
		})
		if err != nil {
			return nil, false, err
		}
		all = append(all, some...)
	}
	if len(all) > maxForeseen {
		all, more = all[:maxForeseen], true
	}
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error { return sortTouched(ctx, tx, a.Organization, all) })
	return all, more, err
}

// sortTouched sorts applications by their labels, so that those that belong together are together, and then by name (R4-27). Those without
// labels come first.
func sortTouched(ctx context.Context, tx Tx, organization int64, all []Touched) error {
	of := make([]core.Detailed, len(all))
	for i, t := range all {
		of[i] = core.Detailed{Kind: core.ChangedApplication, ID: t.Application.ID}
	}
	details, err := tx.Details(ctx, organization, of)
	if err != nil {
		return err
	}
	labels := func(t Touched) string {
		var pairs []string
		for key, value := range details[core.Detailed{Kind: core.ChangedApplication, ID: t.Application.ID}].Labels {
			pairs = append(pairs, key+"="+value)
		}
		slices.Sort(pairs)
		return strings.Join(pairs, ",")
	}
	slices.SortStableFunc(all, func(a, b Touched) int {
		return cmp.Or(strings.Compare(labels(a), labels(b)), strings.Compare(a.Application.Name, b.Application.Name))
	})
	return nil
}

// Follows reports whether an application has a source for a repository, given its URL.
func (u *UseCases) Follows(ctx context.Context, organization int64, repository string) (bool, error) {
	name := u.sources.Name(repository)
	if name == "" {
		return false, nil
	}
	follows := false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		sources, err := tx.SourcesOfRepository(ctx, organization, u.sources.KeyPrefix(name), 1)
		follows = len(sources) > 0
		return err
	})
	return follows, err
}

// touched are the sources of an application for which a file of a change counts. The bits of files are those of the change's paths: a
// name is kept once, however many sources it counts for.
type touched struct {
	sources []core.ServiceSource
	files   *big.Int
}

// shown are the first files, and how many there are.
func (t touched) shown(paths []string) (first []string, count int) {
	for i, file := range paths {
		if t.files.Bit(i) == 0 {
			continue
		}
		if count++; count <= foreseenFiles {
			first = append(first, file)
		}
	}
	return first, count
}

// touching returns the applications that a change touches, in the order of the sources, which are by application; more is that there are
// others. Files are compared once with each filter, whatever the number of sources that have it.
func (u *UseCases) touching(ctx context.Context, c Change, sources []core.ServiceSource) (all []touched, more bool, err error) {
	known := map[string]*big.Int{}
	for _, s := range sources {
		if err := ctx.Err(); err != nil { // nobody waits for it any more
			return nil, false, err
		}
		filter, counts := u.sources.Filter(s.Ref, s.Config, c.Branch)
		if counts == nil {
			continue
		}
		files, compared := known[filter]
		if !compared {
			files = counting(c.Paths, counts)
			known[filter] = files
		}
		if files.Sign() == 0 {
			continue
		}
		last := len(all) - 1
		if last < 0 || all[last].sources[0].ApplicationID != s.ApplicationID {
			if len(all) == maxForeseen {
				return all, true, nil
			}
			all, last = append(all, touched{files: new(big.Int)}), last+1
		}
		all[last].sources = append(all[last].sources, s)
		all[last].files.Or(all[last].files, files)
	}
	return all, false, nil
}

// counting are the bits of the files that count.
func counting(paths []string, counts func(file string) bool) *big.Int {
	files := new(big.Int)
	for i, file := range slices.Backward(paths) {
		if counts(file) {
			files.SetBit(files, i, 1)
		}
	}
	return files
}

// foresee is Foresee for one application: what each trigger that reacts would begin, or what a request would.
func (u *UseCases) foresee(
	ctx context.Context, tx Tx, a core.Actor, c Change, repository string, t touched,
) ([]Touched, error) {
	id := t.sources[0].ApplicationID
	found, err := tx.ApplicationsByID(ctx, a.Organization, []int64{id})
	if err != nil {
		return nil, err
	}
	one := Touched{Application: found[id]}
	change := rollout.Unreleased{SHA: c.SHA, Message: c.Message}
	var services []string
	for _, s := range t.sources {
		change.Sources, services = append(change.Sources, s.ID), append(services, s.Service)
	}
	one.Files, one.FileCount = t.shown(c.Paths)
	saved, err := tx.Triggers(ctx, a.Organization, []int64{id})
	if err != nil {
		return nil, err
	}
	newest, err := tx.NewestVersionSets(ctx, a.Organization, []int64{id})
	if err != nil {
		return nil, err
	}
	set, exists := newest[id]
	plan := func(one Touched, change rollout.Unreleased) (Touched, error) {
		if !exists {
			one.Refused = "the application has no version set yet: there is one once each of its sources has a version"
			return one, nil
		}
		change.VersionSetID = set.ID
		var err error
		one.Foreseen, err = u.rollouts.Foresee(ctx, tx, a, change)
		return one, err
	}
	var all []Touched
	for _, t := range saved[id] {
		own, reacts := u.reacts(t, repository, services)
		if !reacts {
			continue
		}
		change.Triggered, change.Until, change.Inputs = true, own.Until, own.Inputs
		one.Trigger = &t
		one.Begins = fmt.Sprintf("trigger %s (%s) begins a rollout once the change is at the head of %s", t.Name, t.Kind, c.Branch)
		planned, err := plan(one, change)
		if err != nil {
			return nil, err
		}
		all = append(all, planned)
	}
	if len(all) > 0 {
		return all, nil
	}
	one.Begins = fmt.Sprintf("no trigger begins a rollout once the change is at the head of %s; it waits for a request", c.Branch)
	one, err = plan(one, change)
	return []Touched{one}, err
}

// reacts reports whether a trigger begins a rollout of a new commit, with its configuration. One that waits for a range of versions does
// not: a commit of a branch is in none.
func (u *UseCases) reacts(t core.Trigger, repository string, services []string) (config, bool) {
	c, err := u.read(t.Kind, t.Config)
	if err != nil || !t.Enabled || t.Removed {
		return c, false
	}
	switch t.Kind {
	case core.TriggerGit:
		return c, c.reactsTo(repository)
	case core.TriggerVersion:
		fits := func(service string) bool { return c.reactsToSource(service, repository) }
		return c, c.Versions == "" && slices.ContainsFunc(services, fits)
	case core.TriggerManual, core.TriggerDrift, core.TriggerSchedule, core.TriggerEvent, core.TriggerChain:
	}
	return c, false
}

// reactsTo reports whether commits of a repository begin rollouts.
func (c config) reactsTo(repository string) bool {
	fits := func(p string) bool { return pattern.Match(p, repository) }
	return len(c.Repositories) == 0 || slices.ContainsFunc(c.Repositories, fits)
}
