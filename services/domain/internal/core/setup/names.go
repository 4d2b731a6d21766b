package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
//
// It takes a member who may configure the whole organization: others write the name where they freeze, grant and deploy, and it may be one
// that an environment is to be made with.
func (u *UseCases) RenameEnvironment(ctx context.Context, a core.Actor, n Displaying) (core.Environment, error) {
	if err := n.check(); err != nil {
		return core.Environment{}, err
	}
	a = a.Proposing(n)
	var renamed core.Environment
	err := core.By(ctx, u.store, a, core.ActionRenameEnvironment, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, n.ID)
		if err != nil {
			return err
		}
		renamed = e.Environment
		if e.DisplayName == n.DisplayName {
			return nil
		}
		known, err := tx.EnvironmentByName(ctx, a.Organization, n.DisplayName)
		if err == nil && known.ID != e.ID { // before anybody is asked to confirm it
			return taken("environment "+core.ShownName(known.Name, known.DisplayName), n.DisplayName)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		made := environmentChange(core.ActionRenameEnvironment, e.Environment)
		made.Reason = n.Reason
		if err := core.Record(ctx, tx, a, made, displayState(e.DisplayName), displayState(n.DisplayName)); err != nil {
			return err
		}
		err = tx.RenameEnvironment(ctx, e.ID, other(n.DisplayName, e.Name))
		if fault.Is(err, fault.Conflict) {
			return taken("another environment", n.DisplayName)
		}
		if err != nil {
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
		all, err := tx.ServicesByApplication(ctx, a.Organization, []int64{app.ID})
		if err != nil {
			return err
		}
		for _, one := range all[app.ID] {
			if one.ID != s.ID && (strings.EqualFold(one.Name, n.DisplayName) || strings.EqualFold(one.DisplayName, n.DisplayName)) {
				return taken("service "+core.ShownName(one.Name, one.DisplayName), n.DisplayName)
			}
		}
		made := serviceChange(core.ActionRenameService, s, n.Reason)
		if err := core.Record(ctx, tx, a, made, displayState(s.DisplayName), displayState(n.DisplayName)); err != nil {
			return err
		}
		renamed.DisplayName = n.DisplayName
		return tx.RenameService(ctx, s.ID, other(n.DisplayName, s.Name))
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

// taken is the conflict of a name that something else has, or is shown as.
func taken(by, name string) error {
	return fault.WithFields(fault.Conflict, fmt.Sprintf("%s is called %q already, by its name or as it is shown", by, name), fault.Field{
		Name: "/displayName", Problem: fmt.Sprintf("%q is taken", name),
	})
}

// byNames is a pipeline with the names of its environments where its author has written what they are shown as: what is stored never
// follows a display name. All else stays as it was written, to the byte, and what is no pipeline stays as it is, for those who check it.
func byNames(ctx context.Context, r core.ShownReads, organization int64, definition json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(definition) { // nested too deeply, among others
		return definition, nil
	}
	places, err := environmentsIn(definition)
	if err != nil {
		return nil, fmt.Errorf("find the environments of a pipeline: %w", err)
	}
	written := make([]string, len(places))
	for i, one := range places {
		written[i] = one.text
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

// environmentsIn finds the names of environments that a pipeline has: environment, and the items of follows, of each member of steps.
func environmentsIn(definition json.RawMessage) (found []writtenName, err error) {
	d := json.NewDecoder(bytes.NewReader(definition))
	err = members(d, func(member string) error {
		if member != "steps" {
			return skip(d)
		}
		return members(d, func(string) error {
			return members(d, func(member string) error {
				switch member {
				case "environment":
					return text(d, &found)
				case "follows":
					return members(d, func(string) error { return text(d, &found) })
				default:
					return skip(d)
				}
			})
		})
	})
	return found, err
}

// members calls each for the members of the object or list that comes next, with the name of a member of an object, which has to read its
// value. Anything else is read.
func members(d *json.Decoder, each func(name string) error) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	begins, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	for d.More() {
		name := ""
		if begins == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ = token.(string)
		}
		if err := each(name); err != nil {
			return err
		}
	}
	_, err = d.Token() // where it ends
	return err
}

// text adds the value that comes next if it is a text.
func text(d *json.Decoder, found *[]writtenName) error {
	behind := d.InputOffset()
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return err
	}
	var text string
	if json.Unmarshal(value, &text) == nil && len(value) > 0 && value[0] == '"' {
		*found = append(*found, writtenName{text, behind, d.InputOffset()})
	}
	return nil
}

// skip reads the value that comes next.
func skip(d *json.Decoder) error {
	var value json.RawMessage
	return d.Decode(&value)
}
