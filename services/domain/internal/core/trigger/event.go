package trigger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The bounds of an event.
const (
	maxEventName = 256
	maxEventData = 64 << 10
	// maxLeaves is how many members of an event's data conditions may name: each is looked up.
	maxLeaves = 2000
	// maxPending is the most undecided signals that a trigger may have.
	maxPending = 500
)

// Event is a CloudEvent as triggers see it.
type Event struct {
	// ID and Source identify it: the same event is decided once.
	ID, Source, Type string
	// Time is the attribute as it was sent, empty for none. Triggers do not read it.
	Time string
	// Data is a JSON object; empty for none.
	Data json.RawMessage
}

func (e Event) check() error {
	var found []fault.Field
	for field, text := range map[string]string{"/id": e.ID, "/source": e.Source, "/type": e.Type} {
		switch {
		case text == "" || len(text) > maxEventName:
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %d bytes; expected 1 to %d", len(text), maxEventName)})
		case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %.100q; expected UTF-8 without control characters", text)})
		}
	}
	if len(e.Data) > maxEventData {
		found = append(found, fault.Field{Name: "/data", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(e.Data), maxEventData)})
	}
	slices.SortFunc(found, func(a, b fault.Field) int { return strings.Compare(a.Name, b.Name) })
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// escaped writes the id of an event such that the last slash of its cause is the one before it.
//
//nolint:gochecknoglobals // a table
var escaped = strings.NewReplacer("%", "%25", "/", "%2F")

// cause identifies an event to a trigger: no other source and id have the same. It is shown to people.
func (e Event) cause() string {
	id := escaped.Replace(e.ID)
	if len(id) > maxEventName {
		id = fmt.Sprintf("%%sha256:%x", sha256.Sum256([]byte(e.ID)))
	}
	return "event:" + e.Source + "/" + id
}

// Delivery says which triggers have an event.
type Delivery struct {
	// Triggers is how many decide about it, or have; Full how many others match that have too much to decide about to take it now.
	Triggers, Full int
}

// SendEvent delivers an event to the matching triggers of applications that the actor may deploy. It is Limited if all of these have too
// much to decide about.
func (u *UseCases) SendEvent(ctx context.Context, a core.Actor, e Event) (Delivery, error) {
	var sent Delivery
	if err := a.MaySomewhere(core.ActionSendEvent); err != nil {
		return sent, err
	}
	if err := e.check(); err != nil {
		return sent, err
	}
	data, err := e.object()
	if err != nil {
		return sent, err
	}
	types, details := e.keys(data)
	if err := checkKeys(details); err != nil {
		return sent, err
	}
	err = core.Within(ctx, u.store, a, core.ActionSendEvent, func(ctx context.Context, tx Tx) error {
		sent = Delivery{}
		all, err := tx.TriggersOfEvent(ctx, a.Organization, types, details, maxPending)
		if err != nil {
			return err
		}
		reached, full, err := u.reached(ctx, tx, a, e, data, all)
		sent = Delivery{Triggers: len(reached), Full: full}
		if err != nil || len(reached) == 0 {
			return err
		}
		return tx.AddEvents(ctx, e.cause(), u.clock.Now(), reached)
	})
	u.wake()
	if err == nil && sent.Triggers == 0 && sent.Full > 0 {
		err = fault.New(fault.Limited, "each of the %d triggers that it matches has %d events to decide about; send the event again later",
			sent.Full, maxPending)
	}
	return sent, err
}

// reached returns those of some triggers that match an event and decide about it, and how many match but have too much to decide about.
func (u *UseCases) reached(
	ctx context.Context, tx Tx, a core.Actor, e Event, data map[string]any, all []core.ReachedTrigger,
) (some []core.ReachedTrigger, full int, err error) {
	everywhere := a.May(core.ActionSendEvent) == nil
	for _, r := range all {
		c, err := u.read(r.Kind, r.Config)
		if err != nil || !c.matches(e, data) { // what cannot be read is decided about by nobody
			continue
		}
		if !everywhere {
			targets, err := core.ApplicationTargets(ctx, tx, a.Organization, r.ApplicationID)
			if err != nil {
				return nil, 0, err
			}
			if a.MayIn(core.ActionSendEvent, targets...) != nil {
				continue
			}
		}
		if r.Pending >= maxPending {
			full++
			continue
		}
		if c.Edit != nil {
			if r.Edit, err = c.Edit.prepare(r.Trigger, e, data); err != nil {
				r.Edit = &core.TriggerEdit{Inputs: json.RawMessage(`{}`), State: core.EditFailed, Why: err.Error()}
			}
		}
		some = append(some, r)
	}
	return some, full, nil
}

// object reads the data. Numbers stay as they are written: those of builds are longer than a floating-point number is exact.
func (e Event) object() (data map[string]any, err error) {
	if len(e.Data) == 0 {
		return nil, nil
	}
	numbers := json.NewDecoder(bytes.NewReader(e.Data))
	numbers.UseNumber()
	if !json.Valid(e.Data) || numbers.Decode(&data) != nil {
		return nil, invalid("/data", "found no JSON object")
	}
	return data, nil
}

// matches reports whether the trigger reacts to an event.
func (c config) matches(e Event, data map[string]any) bool {
	if !slices.ContainsFunc(c.Types, func(p string) bool { return pattern.Match(p, e.Type) }) {
		return false
	}
	if len(c.Sources) > 0 && !slices.ContainsFunc(c.Sources, func(p string) bool { return pattern.Match(p, e.Source) }) {
		return false
	}
	for path, want := range c.Data {
		if found, exists := member(data, path); !exists || !pattern.Match(want, found) {
			return false
		}
	}
	return true
}

// member is a value of an event's data as text; false where there is none, or it is an object or a list.
func member(data map[string]any, path string) (string, bool) {
	var at any = data
	for _, name := range strings.Split(path, ".") {
		object, is := at.(map[string]any)
		if !is {
			return "", false
		}
		if at, is = object[name]; !is {
			return "", false
		}
	}
	switch v := at.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	default:
		return "", false
	}
}

// keys are those that a trigger which matches the event has in the store, as cd_key_trigger of its database writes them: one of types, for
// the type, and one of details, for the rarest condition. A trigger has them only if it may match, so the cost of an event does not depend
// on those that cannot.
func (e Event) keys(data map[string]any) (types, details []string) {
	types, details = beginnings(e.Type), []string{""}
	for _, key := range beginnings(e.Source) {
		details = append(details, "s"+key)
	}
	return types, leaves(details, data, "", maxDepth)
}

// checkKeys refuses an event that would be looked up too often.
func checkKeys(details []string) error {
	if len(details) > maxLeaves {
		return invalid("/data", "found more than %d members that conditions may name; send the ones that triggers need", maxLeaves)
	}
	return nil
}

// beginnings are the keys of the patterns that may match a text: the text itself, and where a pattern has an asterisk, what stands before
// it, cut to a power of two.
func beginnings(text string) []string {
	runes := []rune(text)
	all := []string{"=" + text, "^"}
	for n := 1; n <= len(runes); n *= 2 {
		all = append(all, "^"+string(runes[:n]))
	}
	return all
}

// maxDepth is how deep a member of an event's data may be that a condition names.
const maxDepth = 10

// leaves adds the keys of the members of an event's data that conditions may name.
func leaves(all []string, data map[string]any, path string, depth int) []string {
	for name, value := range data {
		if len(all) > maxLeaves {
			return all // it is refused
		}
		if at := path + name; memberPath.MatchString(at) && !strings.Contains(name, ".") {
			if inner, is := value.(map[string]any); is && depth > 1 {
				all = leaves(all, inner, at+".", depth-1)
			} else if text, is := member(data, name); is && len(text) <= maxPattern && !strings.Contains(text, "\x00") {
				all = append(all, "d"+at+"="+text)
			}
		}
	}
	return all
}
