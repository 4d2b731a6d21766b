package chat

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// recentSets is among how many of the newest version sets of an application one is found by its name.
const recentSets = 100

// begin begins a rollout of a version set (R4-09). Without one it shows the newest, and how to begin: a set is shown before it is begun.
func (u *UseCases) begin(ctx context.Context, a core.Actor, p Press, o order, s *reply) error {
	app, err := u.application(ctx, a, o)
	if err != nil {
		return err
	}
	if len(o.args) == 1 {
		return u.beginnings(ctx, a, app, s)
	}
	set, err := u.setOf(ctx, a, app, o.args[1])
	if err != nil {
		return err
	}
	inputs, why := givenInputs(o.args[2:])
	made, err := u.Rollouts.CreateRollout(ctx, a, rollout.NewRollout{
		VersionSetID: set.ID, Inputs: inputs, Reason: core.Because("asked for "+p.where(p.Channel), strings.Join(why, " ")),
	})
	if slices.ContainsFunc(fault.FieldsOf(err), func(f fault.Field) bool { return strings.HasPrefix(f.Name, "/inputs") }) {
		return fault.Because(err, fault.Invalid, "%s; inputs of the pipeline stand behind the version set, as in /lockstep rollout %s %s region=eu count=2",
			fault.Public(err), app.Name, set.Name)
	}
	if err != nil {
		return err
	}
	if made.Rollout == nil {
		s.add("%s of %s waits for its turn, as %s: a rollout is under way.", set.Name, app.Name, a.DisplayName())
		return nil
	}
	s.add("You began %s of %s with %s, as %s.", named(*made.Rollout), app.Name, set.Name, a.DisplayName())
	s.rollout(u.URL, *made.Rollout)
	return nil
}

// givenInput is one input, such as region=eu.
var givenInput = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*)=(.*)$`)

// givenInputs are the inputs that words begin with, nil for none, and the words behind them. A value that is JSON is taken as such; any
// other is text.
func givenInputs(words []string) (inputs json.RawMessage, rest []string) {
	given := map[string]json.RawMessage{}
	for ; len(words) > 0; words = words[1:] {
		one := givenInput.FindStringSubmatch(words[0])
		if one == nil {
			break
		}
		value := []byte(one[2])
		if !json.Valid(value) {
			value, _ = json.Marshal(one[2]) // a text always is
		}
		given[one[1]] = value
	}
	if len(given) > 0 {
		inputs, _ = json.Marshal(given) // valid JSON all of it
	}
	return inputs, words
}

// beginnings shows the newest version set of an application, and what runs where.
func (u *UseCases) beginnings(ctx context.Context, a core.Actor, app core.Application, s *reply) error {
	newest, err := u.View.NewestVersionSets(ctx, a.Organization, []int64{app.ID})
	if err != nil {
		return err
	}
	set, is := newest[app.ID]
	if !is {
		return fault.New(fault.Refused, "%s has no version set yet", app.Name)
	}
	cells, err := u.View.CellsByApplication(ctx, a.Organization, []int64{app.ID})
	if err != nil {
		return err
	}
	s.add("%s is the newest of %s, since %s.", set.Name, app.Name, moment(set.CreatedAt))
	for _, c := range cells[app.ID][:min(len(cells[app.ID]), maxLines)] {
		if c.Live != nil {
			s.add("%s has %s now.", core.ShownName(c.Environment.Name, c.Environment.DisplayName), c.Live.Name)
		}
	}
	s.add("To begin its rollout: /lockstep rollout %s %s", app.Name, set.Name)
	return nil
}

// setOf is a version set of an application, by its identifier, or by its name if it is one of the newest.
func (u *UseCases) setOf(ctx context.Context, a core.Actor, app core.Application, name string) (core.VersionSet, error) {
	if number, err := id.Parse("versionset", name); err == nil {
		found, err := u.View.VersionSetsByID(ctx, a.Organization, []int64{number})
		if set, is := found[number]; err != nil || is && set.ApplicationID == app.ID {
			return set, err
		}
	}
	pages, err := u.View.VersionSetsByApplication(ctx, a.Organization, []int64{app.ID}, core.Page{First: recentSets})
	if err != nil {
		return core.VersionSet{}, err
	}
	all := pages[app.ID].Nodes
	if i := slices.IndexFunc(all, func(s core.VersionSet) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	return core.VersionSet{}, fault.New(fault.Refused, "found %.100q, expected one of the %d newest version sets of %s; /lockstep rollout %s shows the newest",
		name, len(all), app.Name, app.Name)
}
