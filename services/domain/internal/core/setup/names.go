package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Displaying gives an environment or a service another display name; its own name takes the display name away.
type Displaying struct {
	ID          int64
	DisplayName string
	Reason      string
}

func (n Displaying) check() error {
	if found := core.CheckName("/displayName", n.DisplayName); len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return core.CheckReason(n.Reason)
}

// RenameEnvironment has people see, and write, another name for an environment (D57). The name that it was made with stays what gates,
// pipelines, policies, programs and configurations go by. Repeating it is a no-op.
func (u *UseCases) RenameEnvironment(ctx context.Context, a core.Actor, n Displaying) (core.Environment, error) {
	if err := n.check(); err != nil {
		return core.Environment{}, err
	}
	a = a.Proposing(n)
	var renamed core.Environment
	err := core.Within(ctx, u.store, a, core.ActionRenameEnvironment, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, n.ID)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionRenameEnvironment, e.Target(0)); err != nil {
			return err
		}
		renamed = e.Environment
		if e.DisplayName == n.DisplayName {
			return nil
		}
		made := environmentChange(core.ActionRenameEnvironment, e.Environment)
		made.Reason = n.Reason
		if err := core.Record(ctx, tx, a, made, displayState(e.DisplayName), displayState(n.DisplayName)); err != nil {
			return err
		}
		if err := taken(tx.RenameEnvironment(ctx, e.ID, other(n.DisplayName, e.Name)), "an environment", n.DisplayName); err != nil {
			return err
		}
		renamed.DisplayName = n.DisplayName
		return u.notify(ctx, tx, a, e.ID, core.MomentEnvironmentChanged, n.Reason)
	})
	u.wake()
	return renamed, err
}

// RenameService is RenameEnvironment for a service.
func (u *UseCases) RenameService(ctx context.Context, a core.Actor, n Displaying) (core.Service, error) {
	if err := n.check(); err != nil {
		return core.Service{}, err
	}
	a = a.Proposing(n)
	var renamed core.Service
	err := core.Within(ctx, u.store, a, core.ActionRenameService, func(ctx context.Context, tx Tx) error {
		s, err := serviceOf(ctx, tx, a.Organization, n.ID)
		if err != nil {
			return err
		}
		app, err := tx.LockApplication(ctx, s.ApplicationID)
		if err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionRenameService, app.ID); err != nil {
			return err
		}
		if s, err = serviceOf(ctx, tx, a.Organization, n.ID); err != nil { // as it is behind the lock
			return err
		}
		renamed = s
		if s.DisplayName == n.DisplayName {
			return nil
		}
		made := serviceChange(core.ActionRenameService, s, n.Reason)
		if err := core.Record(ctx, tx, a, made, displayState(s.DisplayName), displayState(n.DisplayName)); err != nil {
			return err
		}
		renamed.DisplayName = n.DisplayName
		what := fmt.Sprintf("a service of %q", app.Name)
		return taken(tx.RenameService(ctx, s.ID, other(n.DisplayName, s.Name)), what, n.DisplayName)
	})
	u.wake()
	return renamed, err
}

// other is a display name; nil for the name itself.
func other(display, name string) *string {
	if display == name {
		return nil
	}
	return &display
}

func displayState(name string) map[string]any { return map[string]any{"display_name": name} }

// taken says of a conflict which name is taken.
func taken(err error, what, name string) error {
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	return fault.WithFields(fault.Conflict, fmt.Sprintf("%s is called %q already, by its name or as it is shown", what, name), fault.Field{
		Name: "/displayName", Problem: fmt.Sprintf("%q is taken", name),
	})
}

// byNames is a pipeline with the names of its environments where its author has written what they are shown as: what is stored never
// follows a display name. All else stays as it was written, to the byte, and what is no pipeline stays as it is, for those who check it.
func byNames(ctx context.Context, r core.ShownReads, organization int64, definition json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(definition) { // nested too deeply, among others
		return definition, nil
	}
	var places []writtenName
	var written []string
	err := walk(json.NewDecoder(bytes.NewReader(definition)), "", func(path string, one writtenName) {
		if path == "/steps//environment" || path == "/steps//follows/" {
			places, written = append(places, one), append(written, one.text)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("find the environments of a pipeline: %w", err)
	}
	names, err := r.EnvironmentsShownAs(ctx, organization, written)
	if err != nil || len(names) == 0 {
		return definition, err
	}
	var named []byte
	end := int64(0)
	for _, one := range places {
		name, shown := names[one.text]
		if !shown {
			continue
		}
		text, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("write the name of an environment: %w", err)
		}
		// What stands between a token and the one before it is space, a colon or a comma.
		from := one.behind + int64(bytes.IndexByte(definition[one.behind:], '"'))
		named = append(append(named, definition[end:from]...), text...)
		end = one.end
	}
	return append(named, definition[end:]...), nil
}

// writtenName is a text of a document: behind which byte it is, and where it ends.
type writtenName struct {
	text        string
	behind, end int64
}

// walk finds the texts of a document, each with its path, in which an element of a list has no name.
func walk(d *json.Decoder, path string, found func(path string, one writtenName)) error {
	behind := d.InputOffset()
	token, err := d.Token()
	if err != nil {
		return err
	}
	if text, ok := token.(string); ok {
		found(path, writtenName{text, behind, d.InputOffset()})
	}
	begins, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	for d.More() {
		at := path + "/"
		if begins == '{' {
			member, err := d.Token()
			if err != nil {
				return err
			}
			at += fmt.Sprint(member)
		}
		if err := walk(d, at, found); err != nil {
			return err
		}
	}
	_, err = d.Token() // where it ends
	return err
}
