package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// readPlaces reads the next pipelines of an organization for what they say of repositories, before any pull request of it is begun: what
// asks for it later reads one index. They are read outside of any transaction; if another one was saved meanwhile, that is read next.
func (u *UseCases) readPlaces(ctx context.Context, organization int64) (Worked, bool, error) {
	w := Worked{Organization: organization, What: "read pipelines"}
	var all []Pipeline
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		all, err = tx.UnreadPipelines(ctx, mostUnread, mostUnreadSize)
		return err
	})
	if err != nil || len(all) == 0 {
		return w, false, err
	}
	for _, p := range all {
		places := u.placesOf(p.Definition)
		if err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			return tx.SaveForgePlaces(ctx, p, places)
		}); err != nil {
			return w, false, fmt.Errorf("save what the pipeline of application %d says of repositories: %w", p.ApplicationID, err)
		}
	}
	return w, true, nil
}

// targets are those of a repository, of applications that plans are about, in the order of their names. What is beyond mostPlaces is left
// out.
func (u *UseCases) targets(ctx context.Context, tx Tx, repository string) ([]target, error) {
	places, err := tx.ForgePlaces(ctx, repository, withoutPort(repository), mostPlaces)
	var all []target
	for _, p := range places {
		var t target
		if err := json.Unmarshal(p.Target, &t); err != nil {
			return nil, fault.Because(err, fault.Invalid, "what is stored of an environment cannot be read")
		}
		t.ApplicationID, t.Environment, t.application = p.ApplicationID, p.Environment, p.Application
		all = append(all, t)
	}
	return all, err
}

// touched are the targets that a change may touch, first those whose own files it changes. If not all of its files are known, that is all
// of its branch.
func touched(all []target, r reading) []target {
	all = slices.DeleteFunc(slices.Clone(all), func(t target) bool { return t.Branch != r.Into })
	wanted := map[string]bool{}
	for _, t := range all {
		for _, at := range slices.Concat(t.Near, t.Under) {
			wanted[at] = false
		}
	}
	hit := func(at string) {
		if _, is := wanted[at]; is {
			wanted[at] = true
		}
	}
	for _, p := range r.Paths {
		p = cleaned(p)
		if isManifest(p) { // what is below the whole repository: not each file, as one with words for people
			hit("")
		}
		for i, c := range p {
			if c == '/' {
				hit(p[:i])
			}
		}
		hit(p)
	}
	some := func(paths []string) bool {
		return slices.ContainsFunc(paths, func(at string) bool { return wanted[at] })
	}
	var near, far []target
	for _, t := range all {
		switch {
		case some(t.Near):
			near = append(near, t)
		case r.More, some(t.Under):
			far = append(far, t)
		}
	}
	return append(near, far...)
}

// isManifest reports whether overlays and charts are made of files with such a name.
func isManifest(p string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json", ".tpl"}, strings.ToLower(path.Ext(p)))
}

// chosen are those of the touched that are rendered.
func chosen(all []target) []target {
	all = slices.DeleteFunc(slices.Clone(all), func(t target) bool { return t.Not != "" })
	return all[:min(len(all), mostRendered)]
}

// matters reports whether there is something to say: what cannot be rendered before, and neither afterwards for the same reason, is not
// about the change.
func (r rendered) matters() bool {
	return len(r.Resources) > 0 || r.Why != r.Before
}

// withTargets is a reading with what is to be shown of overlays and charts: of the rendered ones those of applications that plans are
// about, and how many others of those that the change may touch there are. Where nothing is to be shown, as of a fork, there are none.
func (r reading) withTargets(all []target) reading {
	read := r.Rendered
	r.Rendered, r.Withheld, r.Broken, r.Unrendered = nil, nil, 0, 0
	if r.Base == "" && len(read) == 0 {
		return r
	}
	type place struct {
		application int64
		environment string
	}
	seen := map[place]int{}
	for _, one := range read {
		at := slices.IndexFunc(all, func(t target) bool { return t.ApplicationID == one.ApplicationID })
		if at < 0 {
			continue
		}
		seen[place{one.ApplicationID, one.Environment}]++
		switch one.Application = all[at].application; {
		case one.matters():
			r.Rendered = append(r.Rendered, one)
		case one.Why != "":
			r.Broken++
		default:
			r.Same++
		}
	}
	for _, t := range touched(all, r) {
		at := place{t.ApplicationID, t.Environment}
		switch {
		case t.Not != "":
			r.Withheld = append(r.Withheld, rendered{
				ApplicationID: t.ApplicationID, Environment: t.Environment, Application: t.application, Why: t.Not,
			})
		case seen[at] > 0:
			seen[at]--
		default:
			r.Unrendered++
		}
	}
	return r
}

// differing counts the environments in which something differs.
func (r reading) differing() (n int) {
	for _, one := range r.Rendered {
		if len(one.Resources) > 0 {
			n++
		}
	}
	return n
}

// failing counts those that could not be rendered with the change.
func (r reading) failing() int {
	n := r.Broken
	for _, one := range r.Rendered {
		if one.Why != "" {
			n++
		}
	}
	return n
}

// rendering is how many overlays and charts a run has rendered, could not render, and has left out.
type rendering struct {
	done, failed, left int
	// why is why the first one could not be rendered.
	why string
}

// renderings counts those of what was planned.
func renderings(planned json.RawMessage) (n rendering) {
	var r reading
	if json.Unmarshal(planned, &r) != nil { // it was read before
		return n
	}
	n.left, n.failed, n.done = r.Unrendered+len(r.Withheld), r.Broken, r.Same
	for _, one := range r.Rendered {
		if one.Why == "" {
			n.done++
			continue
		}
		if n.failed++; n.why == "" {
			n.why = line(one.Why)
		}
	}
	return n
}

// words are what became of renderings, behind a sentence; empty if there was nothing to render.
func (n rendering) words() string {
	text := ""
	if n.done > 0 {
		text += fmt.Sprintf("; environments rendered: %d", n.done)
	}
	if n.failed > 0 {
		text += fmt.Sprintf("; not rendered: %d", n.failed)
	}
	if n.why != "" {
		text += ", the first because " + n.why
	}
	if n.left > 0 {
		text += fmt.Sprintf("; left out: %d", n.left)
	}
	return cut(text, maxError/2)
}

// renderings counts what became of them.
func (c *counts) renderings(planned json.RawMessage) {
	n := renderings(planned)
	c.rendered.Add(int64(n.done))
	c.unrendered.Add(int64(n.failed))
	c.unlooked.Add(int64(n.left))
}

// asked is what a run that renders was given: Reading is what an earlier run has read, to be reported again with what was rendered.
type asked struct {
	Reading json.RawMessage `json:"reading"`
}

// readBefore is what was read before the present run, which renders; nil if the present run reads.
func (p Pull) readBefore() json.RawMessage {
	var a asked
	if p.Step != StepRead || json.Unmarshal(p.Inputs, &a) != nil {
		return nil
	}
	return a.Reading
}
