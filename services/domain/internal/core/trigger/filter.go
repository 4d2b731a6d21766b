package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// What a version trigger requires of what is new: of which services and sources it is, in which range, and for images their labels, and
// what verified evidence states (D58, D52). A filter only keeps a rollout from beginning by itself; policies decide what may be deployed.

// facts is what a version trigger requires of every new image, by the names that policies have for it.
type facts struct {
	SignedBy     []string `json:"signed_by,omitempty"`
	Builders     []string `json:"builders,omitempty"`
	Repositories []string `json:"repositories,omitempty"`
	BuildLevel   int      `json:"build_level,omitempty"`
	SBOMFormats  []string `json:"sbom_formats,omitempty"`
	Critical     *int     `json:"critical,omitempty"`
	High         *int     `json:"high,omitempty"`
}

const (
	// maxLevel is the highest level of a build, and mostFound how many vulnerabilities a filter may permit.
	maxLevel  = 4
	mostFound = 10_000
)

// sbomFormats are those in which images have lists of their components.
func sbomFormats() []string { return []string{"CycloneDX", "SPDX"} }

// factsSchema describes facts, without its braces.
func factsSchema() json.RawMessage {
	most := func(name, what string) string {
		return property(name, fmt.Sprintf(`"type":"integer","minimum":0,"maximum":%d,"description":"How many %s vulnerabilities it may have at most, by a verified scan."`,
			mostFound, what))
	}
	inside := strings.Join([]string{
		property("signed_by", patterns("One of these configured signers has signed it; * stands for any text.")),
		property("builders", patterns("All its builders are among these, by verified provenance; * stands for any text.")),
		property("repositories", patterns("All repositories that it was built from are among these, by verified provenance; * stands for any text.")),
		property("build_level", fmt.Sprintf(`"type":"integer","minimum":1,"maximum":%d,"description":"The least SLSA level of its build."`, maxLevel)),
		property("sbom_formats", `"type":"array","maxItems":2,"items":{"enum":["CycloneDX","SPDX"]},"description":"It has a verified list of its components in one of these formats."`),
		most("critical", "critical"), most("high", "high"),
	}, ",")
	return json.RawMessage(fmt.Sprintf(`"type":"object","additionalProperties":false,"minProperties":1,`+
		`"description":"What verified evidence has to state about every new image. What is not known does not fit.","properties":{%s}`, inside))
}

// checkLabels checks the labels of a filter.
func (c config) checkLabels() (found []fault.Field) {
	if len(c.Labels) > maxMembers {
		found = append(found, fault.Field{
			Name: "/config/labels", Problem: fmt.Sprintf("found %d labels; expected at most %d", len(c.Labels), maxMembers),
		})
	}
	for key, want := range c.Labels {
		if key == "" || len(key) > maxPattern || len(want) > maxPattern {
			found = append(found, fault.Field{
				Name:    "/config/labels",
				Problem: fmt.Sprintf("found %.100q; expected the key of a label with a value, each of at most %d bytes", key, maxPattern),
			})
		}
	}
	return found
}

// check finds what is wrong with facts.
func (f facts) check() (found []fault.Field) {
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: "/config/facts" + field, Problem: fmt.Sprintf(format, args...)})
	}
	for _, of := range []struct {
		field string
		list  []string
	}{{"signed_by", f.SignedBy}, {"builders", f.Builders}, {"repositories", f.Repositories}} {
		if len(of.list) > maxPatterns {
			wrong("/"+of.field, "found %d; expected at most %d", len(of.list), maxPatterns)
		}
		for i, one := range of.list {
			if one == "" || len(one) > maxPattern {
				wrong(fmt.Sprintf("/%s/%d", of.field, i), "found %d bytes; expected 1 to %d", len(one), maxPattern)
			}
		}
	}
	if f.BuildLevel < 0 || f.BuildLevel > maxLevel {
		wrong("/build_level", "found %d; expected 1 to %d", f.BuildLevel, maxLevel)
	}
	for i, one := range f.SBOMFormats {
		if !slices.Contains(sbomFormats(), one) {
			wrong(fmt.Sprintf("/sbom_formats/%d", i), "found %.100q; expected %s", one, strings.Join(sbomFormats(), " or "))
		}
	}
	for field, most := range map[string]*int{"critical": f.Critical, "high": f.High} {
		if most != nil && (*most < 0 || *most > mostFound) {
			wrong("/"+field, "found %d; expected 0 to %d", *most, mostFound)
		}
	}
	return found
}

// nothing reports whether a member of a configuration requires nothing.
func nothing(given json.RawMessage) bool {
	var value any
	if json.Unmarshal(given, &value) != nil {
		return false
	}
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// checkFilters refuses labels and facts that require nothing, and facts that a filter does not have: who has misspelt one would think that
// something is required.
func checkFilters(given map[string]json.RawMessage) error {
	for _, name := range []string{"labels", "facts"} {
		if of, is := given[name]; is && nothing(of) {
			return invalid("/config/"+name, "found nothing that is required; expected something, or leave it out")
		}
	}
	return checkFacts(given["facts"])
}

func checkFacts(given json.RawMessage) error {
	var members map[string]json.RawMessage
	if len(given) > 0 {
		_ = json.Unmarshal(given, &members) // what is no object is found when it is read
	}
	known := []string{"build_level", "builders", "critical", "high", "repositories", "sbom_formats", "signed_by"}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, name) {
			return invalid("/config/facts/"+name, "there is no such fact; expected %s", either(known))
		}
		if nothing(members[name]) || name == "build_level" && strings.TrimSpace(string(members[name])) == "0" {
			return invalid("/config/facts/"+name, "found nothing that is required; expected something, or leave it out")
		}
	}
	return nil
}

// matches reports whether one of some patterns matches a text.
func matches(all []string, text string) bool {
	return slices.ContainsFunc(all, func(p string) bool { return pattern.Match(p, text) })
}

// or is a list for a sentence.
func or(all []string) string { return strings.Join(all, " or ") }

// refuses is what a verified report lacks, as found and expected; empty for nothing. A nil report states nothing.
func (f facts) refuses(report *provenance.Report) string {
	of := provenance.Sum([]*provenance.Report{report})
	if report == nil {
		return "nothing is known of it"
	}
	listed := func(all []string) string {
		if len(all) == 0 {
			return "none"
		}
		return strings.Join(all[:min(len(all), 3)], ", ")
	}
	outside := func(allowed, all []string) bool {
		return len(allowed) > 0 && (len(all) == 0 || slices.ContainsFunc(all, func(one string) bool { return !matches(allowed, one) }))
	}
	if len(f.SignedBy) > 0 && !slices.ContainsFunc(of.SignedBy, func(one string) bool { return matches(f.SignedBy, one) }) {
		return fmt.Sprintf("signed_by is %s; expected %s", listed(of.SignedBy), or(f.SignedBy))
	}
	if outside(f.Builders, of.Builders) {
		return fmt.Sprintf("builders is %s; expected %s", listed(of.Builders), or(f.Builders))
	}
	if outside(f.Repositories, of.Repositories) {
		return fmt.Sprintf("repositories is %s; expected %s", listed(of.Repositories), or(f.Repositories))
	}
	if of.BuildLevel < f.BuildLevel {
		return fmt.Sprintf("build_level is %d; expected at least %d", of.BuildLevel, f.BuildLevel)
	}
	has := func(format string) bool { return slices.Contains(of.SBOMFormats, format) }
	if len(f.SBOMFormats) > 0 && !slices.ContainsFunc(f.SBOMFormats, has) {
		return fmt.Sprintf("sbom_formats is %s; expected %s", listed(of.SBOMFormats), or(f.SBOMFormats))
	}
	for _, one := range []struct {
		name string
		most *int
		all  []string
	}{{"critical", f.Critical, of.Critical}, {"high", f.High, of.High}} {
		switch {
		case one.most == nil:
		case !of.Scanned:
			return fmt.Sprintf("%s is not known: there is no verified scan; expected at most %d", one.name, *one.most)
		case len(one.all) > *one.most:
			return fmt.Sprintf("%s is %d; expected at most %d", one.name, len(one.all), *one.most)
		}
	}
	return ""
}

// refusesLabels is which label does not fit, as found and expected; empty for none.
func (c config) refusesLabels(labels map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		found, has := labels[key]
		switch {
		case !has:
			return fmt.Sprintf("it has no label %s; expected %s", key, c.Labels[key])
		case !pattern.Match(c.Labels[key], found):
			return fmt.Sprintf("label %s is %.100s; expected %s", key, found, c.Labels[key])
		}
	}
	return ""
}

// sourceNames are the images and repositories of the sources of services, by source.
func (u *UseCases) sourceNames(ctx context.Context, tx Tx, organization int64, services []int64) (map[int64]string, error) {
	all, err := tx.ArtifactSourcesByService(ctx, organization, core.Distinct(services))
	names := map[int64]string{}
	for _, of := range all {
		for _, s := range of {
			names[s.ID] = u.sources.SourceName(s.Ref, s.Config)
		}
	}
	return names, err
}

// reactsToSource reports whether new versions of a service and a source count.
func (c config) reactsToSource(service, source string) bool {
	return (len(c.Services) == 0 || matches(c.Services, service)) && (len(c.Sources) == 0 || matches(c.Sources, source))
}

// about are the services and sources that a trigger is about, for a sentence.
func (c config) about() string {
	switch {
	case len(c.Sources) == 0:
		return strings.Join(c.Services, ", ")
	case len(c.Services) == 0:
		return strings.Join(c.Sources, ", ")
	}
	return strings.Join(c.Sources, ", ") + " in " + strings.Join(c.Services, ", ")
}

// filter returns why the new versions of the set begin no rollout; empty if they do. Until is when to look again where an image has not
// been looked up yet; zero if that is not waited for.
func (d *decision) filter(ctx context.Context) (refused string, until time.Time, err error) {
	if ours, err := d.onlyRecorded(ctx); err != nil || ours {
		return d.set.Name + " has nothing new but commits that deployments have recorded already wherever the trigger goes", until, err
	}
	c := d.config
	if len(c.Services) == 0 && len(c.Sources) == 0 && c.Versions == "" && len(c.Labels) == 0 && c.Facts == nil {
		return "", until, nil
	}
	services, versions, err := d.fresh(ctx)
	if err != nil {
		return "", until, err
	}
	names, err := d.tx.ServicesByID(ctx, d.organization, services)
	if err != nil {
		return "", until, err
	}
	found, err := d.tx.VersionsByID(ctx, d.organization, versions)
	if err != nil {
		return "", until, err
	}
	var sources map[int64]string
	if len(c.Sources) > 0 {
		if sources, err = d.u.sourceNames(ctx, d.tx, d.organization, services); err != nil {
			return "", until, err
		}
	}
	var images []int64
	counts := len(c.Services) == 0 && len(c.Sources) == 0
	for i, id := range versions {
		v, service := found[id], names[services[i]].Name
		if !c.reactsToSource(service, sources[v.ArtifactSourceID]) {
			continue
		}
		counts = true
		if c.Versions != "" && !d.u.ranges.Contains(c.Versions, v.Name) {
			return fmt.Sprintf("%s of %s in %s is not in the range %s", v.Name, service, d.set.Name, c.Versions), until, nil
		}
		if v.IsImage() {
			images = append(images, id)
		}
	}
	if !counts {
		return fmt.Sprintf("%s has no new version of %s", d.set.Name, c.about()), until, nil
	}
	if len(images) == 0 || len(c.Labels) == 0 && c.Facts == nil {
		return "", until, nil
	}
	refused, until, err = d.evidence(ctx, images, func(id int64) string {
		return fmt.Sprintf("%s of %s in %s", found[id].Name, names[services[slices.Index(versions, id)]].Name, d.set.Name)
	})
	d.lacks = refused != ""
	return refused, until, err
}

// since is when the version set that is decided about arrived; if it did before, when that became due about which it is decided.
func (d *decision) since() time.Time {
	last, set := d.signals[len(d.signals)-1].At, time.Time{}
	for _, s := range d.signals {
		if strings.HasPrefix(s.Cause, "set:") && s.At.After(set) {
			set = s.At
		}
	}
	if set.IsZero() {
		return last
	}
	return set
}

// evidence is filter for what is looked up of images.
func (d *decision) evidence(
	ctx context.Context, images []int64, what func(version int64) string,
) (refused string, until time.Time, err error) {
	origins, err := d.tx.Origins(ctx, d.organization, images)
	if err != nil {
		return "", until, err
	}
	for _, id := range images {
		report := origins[id].Report
		if report == nil || len(d.config.Labels) > 0 && report.Labels == nil {
			if report != nil && origins[id].NextAt == nil { // an old one, looked up before labels were read
				if err := d.tx.RequestLookup(ctx, id, d.now); err != nil {
					return "", until, err
				}
			}
			why := "it was not looked up"
			if problem := origins[id].Problem; problem != "" {
				why = "looking it up failed: " + problem
			}
			if d.now.Sub(d.since()) < patience {
				return fmt.Sprintf("it waits for the labels and facts of %s: %s", what(id), why), d.now.Add(again), nil
			}
			return fmt.Sprintf("the labels and facts of %s are not known after %s: %s; expected a lookup, after which it is decided about again",
				what(id), patience, why), until, nil
		}
		if why := d.config.refusesLabels(report.Labels); why != "" {
			return fmt.Sprintf("%s does not fit: %s", what(id), why), until, nil
		}
		if d.config.Facts == nil {
			continue
		}
		if why := d.config.Facts.refuses(report); why != "" {
			return fmt.Sprintf("%s does not fit: %s", what(id), why), until, nil
		}
	}
	return "", until, nil
}

// checkSources refuses services and sources that the application does not have: such a trigger would never begin anything. What was saved
// before may be saved again.
func (u *UseCases) checkSources(ctx context.Context, tx Tx, organization int64, saved core.Trigger, c config, before *core.Trigger) error {
	if saved.Kind != core.TriggerVersion || len(c.Services) == 0 && len(c.Sources) == 0 {
		return nil
	}
	var known config
	if before != nil {
		known, _ = u.read(before.Kind, before.Config) // what cannot be read any more excuses nothing
	}
	services, err := tx.ServicesByApplication(ctx, organization, []int64{saved.ApplicationID})
	if err != nil {
		return err
	}
	var ids []int64
	var names, sources []string
	for _, s := range services[saved.ApplicationID] {
		if s.RetiredAt == nil {
			ids, names = append(ids, s.ID), append(names, s.Name)
		}
	}
	all, err := tx.ArtifactSourcesByService(ctx, organization, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		for _, s := range all[id] {
			if s.RemovedAt == nil {
				sources = append(sources, u.sources.SourceName(s.Ref, s.Config))
			}
		}
	}
	found := unknown("services", "service", c.Services, known.Services, names)
	found = append(found, unknown("sources", "source", c.Sources, known.Sources, sources)...)
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// unknown are the patterns of a list that match nothing that an application has.
func unknown(field, what string, all, before, has []string) (found []fault.Field) {
	slices.Sort(has)
	has = slices.Compact(has)
	expected := "it has none"
	if len(has) > 0 {
		expected = "expected one of " + strings.Join(has[:min(len(has), 10)], ", ")
	}
	for i, p := range all {
		if !slices.Contains(before, p) && !slices.ContainsFunc(has, func(one string) bool { return pattern.Match(p, one) }) {
			found = append(found, fault.Field{
				Name:    fmt.Sprintf("/config/%s/%d", field, i),
				Problem: fmt.Sprintf("found %.100q, which no %s of the application matches; %s", p, what, expected),
			})
		}
	}
	return found
}
