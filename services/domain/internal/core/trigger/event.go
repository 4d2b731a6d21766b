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
	// maxBatchLeaves is how many those of a batch may be together.
	maxBatchLeaves = 5000
	// maxPending is the most undecided signals that a trigger may have.
	maxPending = 500
	// MaxBatch is how many events are sent at once at most.
	MaxBatch = 100
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

// SendEvent is SendEvents with one event.
func (u *UseCases) SendEvent(ctx context.Context, a core.Actor, e Event) (Delivery, error) {
	sent, err := u.SendEvents(ctx, a, []Event{e})
	if len(sent) == 0 {
		return Delivery{}, err
	}
	return sent[0], err
}

// SendEvents delivers events, at most MaxBatch, to the matching triggers of applications that the actor may deploy, in one transaction, and
// returns the delivery of each. One that is wrong refuses all. It is Limited if there is one whose triggers all have too much to decide
// about: the others are delivered nevertheless, and all of them may be sent again.
func (u *UseCases) SendEvents(ctx context.Context, a core.Actor, events []Event) ([]Delivery, error) {
	if err := a.MaySomewhere(core.ActionSendEvent); err != nil {
		return nil, err
	}
	if len(events) == 0 || len(events) > MaxBatch {
		return nil, fault.New(fault.Invalid, "found %d events; expected 1 to %d", len(events), MaxBatch)
	}
	all := make([]arrival, len(events))
	keys := keySet{}
	members := 0
	for i, e := range events {
		var err error
		var n int
		if all[i], n, err = arrive(e, keys); err != nil {
			return nil, oneOf(events, i, err)
		}
		if members += n; members > maxBatchLeaves {
			return nil, fault.New(fault.Invalid, "found more than %d members that conditions may name in the first %d events; send fewer at once",
				maxBatchLeaves, i+1)
		}
	}
	types, details := keys.columns()
	var sent []Delivery
	err := core.Within(ctx, u.store, a, core.ActionSendEvent, func(ctx context.Context, tx Tx) error {
		sent = make([]Delivery, len(all))
		candidates, err := tx.TriggersOfEvents(ctx, a.Organization, types, details, maxPending)
		if err != nil {
			return err
		}
		var signals []core.ReachedTrigger
		for _, t := range candidates {
			reached, err := u.reached(ctx, tx, a, t, all, sent)
			if err != nil {
				return err
			}
			signals = append(signals, reached...)
		}
		if len(signals) == 0 {
			return nil
		}
		return tx.AddEvents(ctx, u.clock.Now(), signals)
	})
	if err != nil {
		return nil, err
	}
	u.wake()
	for i, d := range sent {
		if d.Triggers == 0 && d.Full > 0 {
			return sent, oneOf(events, i, fault.New(fault.Limited,
				"each of the %d triggers that it matches has %d events to decide about; send the event again later", d.Full, maxPending))
		}
	}
	return sent, nil
}

// oneOf says which of some events an error is about, if there are several.
func oneOf(events []Event, i int, err error) error {
	if len(events) == 1 {
		return err
	}
	return Numbered(err, i)
}

// arrival is an event that was read.
type arrival struct {
	Event

	cause string
	data  map[string]any
}

// arrive reads an event, adds its keys to those of others, and returns how many members of its data have one.
func arrive(e Event, keys keySet) (at arrival, members int, err error) {
	at = arrival{Event: e, cause: e.cause()}
	if err = e.check(); err == nil {
		at.data, err = e.object()
	}
	if err != nil {
		return at, 0, err
	}
	types, details := e.keys(at.data)
	if err := checkKeys(details); err != nil {
		return at, 0, err
	}
	keys.add(types, details)
	for _, d := range details {
		if strings.HasPrefix(d, ofData) {
			members++
		}
	}
	return at, members, nil
}

// keySet has pairs of keys, one of a type and one of a detail, each once: a trigger that may match an event has one of the event's pairs.
type keySet map[[2]string]struct{}

func (s keySet) add(types, details []string) {
	for _, t := range types {
		for _, d := range details {
			s[[2]string{t, d}] = struct{}{}
		}
	}
}

// columns returns the pairs as the store takes them, in no order.
func (s keySet) columns() (types, details []string) {
	types, details = make([]string, 0, len(s)), make([]string, 0, len(s))
	for pair := range s {
		types, details = append(types, pair[0]), append(details, pair[1])
	}
	return types, details
}

// Numbered says which event of a batch an error is about.
func Numbered(err error, i int) error {
	found := fault.FieldsOf(err)
	if len(found) == 0 {
		return fault.Because(err, fault.ClassOf(err), "/%d: %s", i, fault.Public(err))
	}
	named := make([]fault.Field, len(found))
	for n, f := range found {
		named[n] = fault.Field{Name: fmt.Sprintf("/%d%s", i, f.Name), Problem: f.Problem}
	}
	return fault.InvalidFields(named...)
}

// reached returns what a trigger decides about: those of the events that match, each with its edit. It adds to their deliveries. What cannot
// be read is decided about by nobody.
func (u *UseCases) reached(
	ctx context.Context, tx Tx, a core.Actor, t core.ReachedTrigger, events []arrival, sent []Delivery,
) (some []core.ReachedTrigger, err error) {
	c, err := u.read(t.Kind, t.Config)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	asked := a.May(core.ActionSendEvent) == nil
	for i, e := range events {
		if !c.matches(e.Event, e.data) {
			continue
		}
		if !asked {
			targets, err := core.ApplicationTargets(ctx, tx, a.Organization, t.ApplicationID)
			if err != nil || a.MayIn(core.ActionSendEvent, targets...) != nil {
				return nil, err
			}
			asked = true
		}
		if t.Pending >= maxPending {
			sent[i].Full++
			continue
		}
		sent[i].Triggers++
		t.Pending++
		one := t
		if one.Cause = e.cause; c.Edit != nil {
			if one.Edit, err = c.Edit.prepare(t.Trigger, e.Event, e.data); err != nil {
				one.Edit = &core.TriggerEdit{Inputs: json.RawMessage(`{}`), State: core.EditFailed, Why: err.Error()}
			}
		}
		some = append(some, one)
	}
	return some, nil
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

// ofData begins the key of a member of an event's data.
const ofData = "d"

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
				all = append(all, ofData+at+"="+text)
			}
		}
	}
	return all
}
