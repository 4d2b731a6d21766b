package core

import (
	"context"
	"fmt"
	"regexp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// nameForm is what everything people name is called: it goes into identifiers, gates and paths unescaped.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const maxDescription = 4096

// checkName finds what is wrong with a name.
func checkName(field, name string) []fault.Field {
	if nameForm.MatchString(name) {
		return nil
	}
	return []fault.Field{{Name: field, Problem: fmt.Sprintf("found %.100q; expected 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", name)}}
}

func checkDescription(field, text string) []fault.Field {
	if len(text) <= maxDescription {
		return nil
	}
	return []fault.Field{{Name: field, Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(text), maxDescription)}}
}

// CreateApplication records an application with its services and their sources, all or nothing (E52).
func (d *Domain) CreateApplication(ctx context.Context, a Actor, n NewApplication) (Application, error) {
	keys, err := n.check(d.sources)
	if err != nil {
		return Application{}, err
	}
	var made Application
	err = d.by(ctx, a, ActionCreateApplication, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddApplication(ctx, Application{Name: n.Name, Description: n.Description})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "an application named %q exists already", n.Name)
		}
		if err != nil {
			return err
		}
		for i, ns := range n.Services {
			s, err := tx.AddService(ctx, Service{ApplicationID: made.ID, Name: ns.Name, Description: ns.Description})
			if err != nil {
				return err
			}
			for j, src := range ns.ArtifactSources {
				if _, err := tx.AddArtifactSource(ctx, ArtifactSource{ServiceID: s.ID, Ref: src.Ref, Config: src.Config}, keys[[2]int{i, j}]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		d.watch.Changed()
	}
	return made, err
}

// check finds everything that is wrong, and the match key of each source, by service and source.
func (n NewApplication) check(sources Sources) (map[[2]int]string, error) {
	found := append(checkName("/name", n.Name), checkDescription("/description", n.Description)...)
	keys := map[[2]int]string{}
	if len(n.Services) == 0 {
		found = append(found, fault.Field{Name: "/services", Problem: "found none; expected at least one"})
	}
	names := map[string]int{}
	for i, s := range n.Services {
		at := fmt.Sprintf("/services/%d", i)
		found = append(found, checkName(at+"/name", s.Name)...)
		found = append(found, checkDescription(at+"/description", s.Description)...)
		if first, taken := names[s.Name]; taken {
			found = append(found, fault.Field{Name: at + "/name", Problem: fmt.Sprintf("found %q, which /services/%d has already; expected another name", s.Name, first)})
		} else {
			names[s.Name] = i
		}
		if len(s.ArtifactSources) == 0 {
			found = append(found, fault.Field{Name: at + "/artifactSources", Problem: "found none; expected at least one"})
		}
		taken := map[string]int{}
		for j, src := range s.ArtifactSources {
			at := fmt.Sprintf("%s/artifactSources/%d", at, j)
			key, wrong := sources.Key(src.Ref, src.Config)
			for _, f := range wrong {
				found = append(found, fault.Field{Name: at + f.Name, Problem: f.Problem})
			}
			if first, twice := taken[key]; twice && key != "" {
				found = append(found, fault.Field{Name: at, Problem: fmt.Sprintf("found the same artifacts as source %d; expected one source for them, however many slots it fills", first)})
			}
			taken[key] = j
			keys[[2]int{i, j}] = key
		}
	}
	if len(found) > 0 {
		return nil, fault.InvalidFields(found...)
	}
	return keys, nil
}
