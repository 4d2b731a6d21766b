package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// CreateApplication records an application with its services and their sources, all or nothing (E52).
func (u *UseCases) CreateApplication(ctx context.Context, a core.Actor, n NewApplication) (core.Application, error) {
	keys, err := n.check(u.sources)
	if err != nil {
		return core.Application{}, err
	}
	var made core.Application
	err = core.By(ctx, u.store, a, core.ActionCreateApplication, func(ctx context.Context, tx Tx) error {
		if err := endAlias(ctx, tx, a, 0, n.Name, ""); err != nil {
			return err
		}
		var err error
		made, err = tx.AddApplication(ctx, core.Application{Name: n.Name, Description: n.Description})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "an application named %q exists already", n.Name)
		}
		if err != nil {
			return err
		}
		for i, ns := range n.Services {
			s, err := tx.AddService(ctx, core.Service{ApplicationID: made.ID, Name: ns.Name, Description: ns.Description})
			if err != nil {
				return err
			}
			for j, src := range ns.ArtifactSources {
				source := core.ArtifactSource{ServiceID: s.ID, Ref: src.Ref, Config: src.Config}
				if _, err := tx.AddArtifactSource(ctx, source, keys[i][j]); err != nil {
					return err
				}
			}
		}
		err = core.Record(ctx, tx, a, core.Change{
			Action: core.ActionCreateApplication, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: made.ID, Name: made.Name},
			ApplicationID: made.ID,
		}, nil, n.state())
		if err != nil {
			return err
		}
		return u.follow(ctx, tx, a, made, "", slices.Concat(keys...)...)
	})
	if err == nil {
		u.status.Changed()
	}
	return made, err
}

// state is what the journal of changes keeps of a new application.
func (n NewApplication) state() map[string]any {
	services := make([]map[string]any, len(n.Services))
	for i, s := range n.Services {
		services[i] = s.state()
	}
	return map[string]any{"name": n.Name, "description": n.Description, "services": services}
}

// state is what the journal of changes keeps of a new service.
func (n NewService) state() map[string]any {
	sources := make([]map[string]any, len(n.ArtifactSources))
	for j, src := range n.ArtifactSources {
		sources[j] = map[string]any{"kind": src.Ref, "config": src.Config}
	}
	return map[string]any{"name": n.Name, "description": n.Description, "sources": sources}
}

// check finds everything that is wrong, and the match keys of the sources of each service.
func (n NewApplication) check(sources Sources) ([][]string, error) {
	found := append(core.CheckName("/name", n.Name), core.CheckDescription("/description", n.Description)...)
	keys := make([][]string, len(n.Services))
	if len(n.Services) == 0 {
		found = append(found, fault.Field{Name: "/services", Problem: "found none; expected at least one"})
	}
	names := map[string]int{}
	for i, s := range n.Services {
		at := fmt.Sprintf("/services/%d", i)
		if first, taken := names[s.Name]; taken {
			found = append(found, fault.Field{
				Name: at + "/name", Problem: fmt.Sprintf("found %q, which /services/%d has already; expected another name", s.Name, first),
			})
		} else {
			names[s.Name] = i
		}
		var wrong []fault.Field
		keys[i], wrong = s.check(sources)
		for _, f := range wrong {
			found = append(found, fault.Field{Name: at + f.Name, Problem: f.Problem})
		}
	}
	if len(found) > 0 {
		return nil, fault.InvalidFields(found...)
	}
	return keys, nil
}

// check finds everything that is wrong, and the match key of each source.
func (n NewService) check(sources Sources) ([]string, []fault.Field) {
	found := append(core.CheckName("/name", n.Name), core.CheckDescription("/description", n.Description)...)
	if len(n.ArtifactSources) == 0 {
		found = append(found, fault.Field{Name: "/artifactSources", Problem: "found none; expected at least one"})
	}
	keys, taken := make([]string, len(n.ArtifactSources)), map[string]int{}
	for j, src := range n.ArtifactSources {
		at := fmt.Sprintf("/artifactSources/%d", j)
		key, wrong := sources.Key(src.Ref, src.Config)
		for _, f := range wrong {
			found = append(found, fault.Field{Name: at + f.Name, Problem: f.Problem})
		}
		if first, twice := taken[key]; twice && key != "" {
			found = append(found, fault.Field{Name: at, Problem: fmt.Sprintf(
				"found the same artifacts as source %d; expected one source for them, however many slots it fills", first,
			)})
		}
		taken[key] = j
		keys[j] = key
	}
	return keys, found
}

// NewApplication is an application with its services and their sources, created together (E52).
type NewApplication struct {
	Name        string
	Description string
	Services    []NewService
}

// NewService is one service of a NewApplication.
type NewService struct {
	Name            string
	Description     string
	ArtifactSources []NewArtifactSource
}

// NewArtifactSource is one source of a NewService.
type NewArtifactSource struct {
	Ref string
	// Config is of the kind that Ref names; see Sources.
	Config json.RawMessage
}
