package intake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// NewCurated is a version set that is put together of recorded versions.
type NewCurated struct {
	Application int64
	// From is the set whose versions it begins with; 0 for none.
	From    int64
	Choices []Choice
	// Name is what it is called beside the name of the set; empty for nothing.
	Name, Reason string
}

// Choice is the version of a service in a curated set.
type Choice struct {
	// Service is its name.
	Service string
	// Version is the name of a version, or VersionID its number.
	Version   string
	VersionID int64
}

// maxChoices bounds the versions that are named in one request.
const maxChoices = 1000

// maxCurated bounds how often sets of an application are put together: each is kept with the set.
const maxCurated = 1000

// CreateVersionSet puts a version set together of recorded versions (D57). It is no newest set, and begins nothing by itself. A set of the
// same versions is the same set, which keeps both names. Repeating it is a no-op.
func (u *UseCases) CreateVersionSet(ctx context.Context, a core.Actor, n NewCurated) (core.VersionSet, error) {
	if err := n.check(); err != nil {
		return core.VersionSet{}, err
	}
	var made core.VersionSet
	err := core.Within(ctx, u.store, a, core.ActionCreateVersionSet, func(ctx context.Context, tx Tx) error {
		app, err := tx.LockApplication(ctx, n.Application)
		if err != nil {
			return err
		}
		if err := mayDeploy(ctx, tx, a, n.Application); err != nil {
			return err
		}
		if err := core.RefuseArchived(app); err != nil {
			return err
		}
		c, err := newCuration(ctx, tx, a.Organization, app)
		if err != nil {
			return err
		}
		entries, err := c.compose(ctx, tx, n)
		if err != nil {
			return err
		}
		if made, err = c.keep(ctx, tx, entries); err != nil {
			return err
		}
		curated := core.Curated{
			ApplicationID: app.ID, VersionSetID: made.ID, FromSetID: n.From, Name: n.Name, Reason: n.Reason, Principal: a.Principal(),
			PrincipalName: a.DisplayName(),
		}
		same, items, err := tx.CuratedBefore(ctx, curated, maxCurated)
		if err != nil || same {
			return err
		}
		if items >= maxCurated {
			return fault.New(fault.Refused, "version sets of %q were put together %d times already; at most %d are kept", app.Name, items, maxCurated)
		}
		if err := tx.AddCurated(ctx, curated); fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "a version set of %q is called %q already", app.Name, n.Name)
		} else if err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionCreateVersionSet, ApplicationID: app.ID, Reason: n.Reason,
			Subject: core.AccessSubject{Kind: core.ChangedVersionSet, ID: made.ID, Name: strings.TrimSpace(made.Name + " " + n.Name)},
		}, nil, c.state(n, entries))
	})
	return made, err
}

func (n NewCurated) check() error {
	var found []fault.Field
	if n.Name != "" {
		found = core.CheckName("/name", n.Name)
	}
	if strings.HasPrefix(n.Name, setPrefix) {
		found = append(found, fault.Field{
			Name:    "/name",
			Problem: fmt.Sprintf("found %q; expected another beginning than %q, which is that of every set's own name", n.Name, setPrefix),
		})
	}
	if len(n.Choices) == 0 && n.From == 0 {
		found = append(found, fault.Field{Name: "/versions", Problem: "found none; expected versions, or a set to begin with"})
	}
	if len(n.Choices) > maxChoices {
		found = append(found, fault.Field{Name: "/versions", Problem: fmt.Sprintf("found %d; expected at most %d", len(n.Choices), maxChoices)})
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return core.CheckReason(n.Reason)
}

// mayDeploy is nil when an actor may deploy the application somewhere.
func mayDeploy(ctx context.Context, tx Tx, a core.Actor, application int64) error {
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err = a.MayIn(core.ActionCreateVersionSet, t); err == nil {
			return nil
		}
	}
	return err
}

// curation is what a curated set of an application is put together of.
type curation struct {
	app          core.Application
	organization int64
	services     map[int64]core.Service
	// slots are the sources of services in service, and those that they replace.
	slots []slot
}

func newCuration(ctx context.Context, tx Tx, organization int64, app core.Application) (*curation, error) {
	c := &curation{app: app, organization: organization, services: map[int64]core.Service{}}
	services, err := tx.ServicesByApplication(ctx, organization, []int64{app.ID})
	if err != nil {
		return nil, err
	}
	for _, s := range services[app.ID] {
		c.services[s.ID] = s
	}
	s, err := readShelves(ctx, tx, []int64{app.ID}, nil)
	if err != nil {
		return nil, err
	}
	c.slots = s.slots[app.ID]
	return c, nil
}

// place is the source whose place in a set a version of a source takes: its own, or that of the source that has replaced it; 0 if it is in
// no new set.
func (c *curation) place(source int64) int64 {
	for {
		i := slices.IndexFunc(c.slots, func(s slot) bool { return s.SourceID == source })
		if i < 0 {
			return 0
		}
		if !c.slots[i].Removed {
			return source
		}
		source = c.slots[i].ReplacedBy
	}
}

// compose works out the entries: those that it begins with, as far as they are in new sets, and the choices in their places.
func (c *curation) compose(ctx context.Context, tx Tx, n NewCurated) ([]core.VersionSetEntry, error) {
	by := map[int64]core.VersionSetEntry{} // by place
	if n.From != 0 {
		sets, err := tx.VersionSetsByID(ctx, c.organization, []int64{n.From})
		if err != nil {
			return nil, err
		}
		if sets[n.From].ApplicationID != c.app.ID {
			return nil, fault.InvalidFields(fault.Field{
				Name: "/fromVersionSetId", Problem: fmt.Sprintf("found no version set %d of %q", n.From, c.app.Name),
			})
		}
		entries, err := tx.EntriesByVersionSet(ctx, c.organization, []int64{n.From})
		if err != nil {
			return nil, err
		}
		for _, e := range entries[n.From] {
			if at := c.place(e.ArtifactSourceID); at != 0 {
				by[at] = core.VersionSetEntry{ServiceID: e.ServiceID, ArtifactSourceID: e.ArtifactSourceID, VersionID: e.VersionID}
			}
		}
	}
	chosen, found, err := c.choose(ctx, tx, n.Choices)
	if err != nil {
		return nil, err
	}
	for at, e := range chosen {
		by[at] = e
	}
	if len(found) == 0 {
		found = c.missing(by)
	}
	if len(found) > 0 {
		return nil, fault.InvalidFields(found...)
	}
	var entries []core.VersionSetEntry
	for _, s := range c.slots {
		if e, ok := by[s.SourceID]; ok {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil, fault.InvalidFields(fault.Field{
			Name: "/versions", Problem: "found no version of a service that is in service; expected at least one",
		})
	}
	return entries, nil
}

// choose finds the versions that are chosen, by the place that they take, and what is wrong with the choices.
func (c *curation) choose(ctx context.Context, tx Tx, choices []Choice) (map[int64]core.VersionSetEntry, []fault.Field, error) {
	var names []string
	var ids []int64
	for _, one := range choices {
		if one.VersionID != 0 {
			ids = append(ids, one.VersionID)
		} else {
			names = append(names, one.Version)
		}
	}
	named, err := tx.VersionsNamed(ctx, c.app.ID, names)
	if err != nil {
		return nil, nil, err
	}
	numbered, err := tx.VersionsByID(ctx, c.organization, ids)
	if err != nil {
		return nil, nil, err
	}
	chosen := map[int64]core.VersionSetEntry{}
	var found []fault.Field
	for i, one := range choices {
		e, at, wrong := c.version(one, named, numbered)
		if _, twice := chosen[at]; twice && wrong.Problem == "" {
			wrong = fault.Field{Name: "/version", Problem: "found a second version of the same source; expected one of each"}
		}
		if wrong.Problem != "" {
			found = append(found, fault.Field{Name: fmt.Sprintf("/versions/%d%s", i, wrong.Name), Problem: wrong.Problem})
			continue
		}
		chosen[at] = e
	}
	return chosen, found, nil
}

// version finds the version of one choice and the place that it takes, or what is wrong.
func (c *curation) version(
	one Choice, named []core.Version, numbered map[int64]core.Version,
) (e core.VersionSetEntry, at int64, wrong fault.Field) {
	var service core.Service
	for _, s := range c.services {
		if s.Name == one.Service || s.DisplayName == one.Service {
			service = s
		}
	}
	if service.ID == 0 {
		return e, 0, fault.Field{Name: "/service", Problem: fmt.Sprintf("found %.100q, which %q does not have", one.Service, c.app.Name)}
	}
	if service.RetiredAt != nil {
		return e, 0, fault.Field{
			Name: "/service", Problem: fmt.Sprintf("found %q, which is retired; expected a service that is in service", service.Name),
		}
	}
	candidates := named
	if one.VersionID != 0 {
		candidates = []core.Version{numbered[one.VersionID]}
	}
	var mine []core.Version
	for _, v := range candidates {
		if one.VersionID == 0 && v.Name != one.Version {
			continue
		}
		i := slices.IndexFunc(c.slots, func(s slot) bool { return s.SourceID == v.ArtifactSourceID && s.ServiceID == service.ID })
		if i >= 0 && c.place(v.ArtifactSourceID) != 0 {
			mine = append(mine, v)
		}
	}
	what := fmt.Sprintf("%.100q", one.Version)
	if one.VersionID != 0 {
		what = fmt.Sprintf("version %d", one.VersionID)
	}
	switch len(mine) {
	case 0:
		return e, 0, fault.Field{Name: "/version", Problem: fmt.Sprintf(
			"found %s; expected a recorded version of service %q of %q", what, service.Name, c.app.Name,
		)}
	case 1:
		source := mine[0].ArtifactSourceID
		return core.VersionSetEntry{ServiceID: service.ID, ArtifactSourceID: source, VersionID: mine[0].ID}, c.place(source), wrong
	default:
		return e, 0, fault.Field{Name: "/version", Problem: fmt.Sprintf(
			"found %s, which several sources of service %q have; expected its identifier", what, service.Name,
		)}
	}
}

// missing are the sources that have versions, and none in the set.
func (c *curation) missing(by map[int64]core.VersionSetEntry) []fault.Field {
	has := map[int64]bool{}
	for _, s := range c.slots {
		if s.HasVersions {
			has[c.place(s.SourceID)] = true
		}
	}
	var found []fault.Field
	for _, s := range c.slots {
		if _, ok := by[s.SourceID]; ok || s.Removed || !has[s.SourceID] {
			continue
		}
		found = append(found, fault.Field{Name: "/versions", Problem: fmt.Sprintf(
			"found no version of service %q (source %d); expected one of each source that has versions", c.services[s.ServiceID].Name, s.SourceID,
		)})
	}
	return found
}

// keep finds the set of some entries, or makes it.
func (c *curation) keep(ctx context.Context, tx Tx, entries []core.VersionSetEntry) (core.VersionSet, error) {
	set := core.VersionSet{ApplicationID: c.app.ID, EntriesDigest: core.EntriesDigest(entries), Curated: true}
	exist, err := tx.VersionSetsTaken(ctx, []core.VersionSet{set})
	if err != nil {
		return set, err
	}
	if len(exist) > 0 {
		set.ID = exist[0].ID
	} else {
		sets := []NewVersionSet{{VersionSet: set, Entries: entries}}
		if err := addMissingSets(ctx, tx, []int64{c.app.ID}, sets); err != nil {
			return set, err
		}
		set.ID = sets[0].ID
	}
	known, err := tx.VersionSetsByID(ctx, c.organization, []int64{set.ID})
	return known[set.ID], err
}

// state is what the journal of changes keeps of a curated set.
func (c *curation) state(n NewCurated, entries []core.VersionSetEntry) map[string]any {
	versions := make([]map[string]any, len(entries))
	for i, e := range entries {
		versions[i] = map[string]any{"service": c.services[e.ServiceID].Name, "version_id": e.VersionID}
	}
	return map[string]any{"name": n.Name, "from": n.From, "versions": versions}
}
