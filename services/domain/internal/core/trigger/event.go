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
	maxSubject   = 4096
	maxEventData = 64 << 10
	// maxLeaves is how many members of an event's data conditions may name: each is looked up.
	maxLeaves = 2000
	// maxBatchLeaves is how many those of a batch may be together.
	maxBatchLeaves = 5000
	// maxPending is the most undecided signals that a trigger may have.
	maxPending = 500
	// MaxBatch is how many events are sent at once at most, and maxReached how many signals of triggers come of several.
	MaxBatch   = 100
	maxReached = 2000
	// storedAtOnce is how many signals one statement stores.
	storedAtOnce = 100
)

// Event is a CloudEvent as triggers see it.
type Event struct {
	// ID and Source identify it: the same event is decided once.
	ID, Source, Type string
	// Time is the attribute as it was sent, empty for none. Triggers do not read it.
	Time string
	// Subject is read for the commits that it names only.
	Subject string
	// Data is a JSON object; empty for none.
	Data json.RawMessage
}

func (e Event) check() error {
	var found []fault.Field
	if len(e.Subject) > maxSubject {
		found = append(found, fault.Field{Name: "/subject", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(e.Subject), maxSubject)})
	}
	for field, text := range map[string]string{"/id": e.ID, "/source": e.Source, "/type": e.Type} {
		switch {
		case text == "" || len(text) > maxEventName:
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %d bytes; expected 1 to %d", len(text), maxEventName)})
		case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %.100q; expected UTF-8 without control characters", text)})
		}
	}
	if problem := e.ours(); problem != "" {
		found = append(found, fault.Field{Name: "/type", Problem: problem})
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

// What notifications of Lockstep have as their type and source when a channel sends them as CloudEvents.
const (
	ownTypes   = "com.lockstep."
	ownSources = "/lockstep/organizations/"
)

// ours is why an event is refused that a channel of Lockstep sends; empty for another.
func (e Event) ours() string {
	if strings.HasPrefix(e.Type, ownTypes) || strings.HasPrefix(e.Source, ownSources) {
		return fmt.Sprintf("found an event of type %.100q and source %.100q, which a notification channel of Lockstep sends; expected one of others: "+
			"what a trigger begins would have the next one sent. Use a trigger of kind chain to follow rollouts", e.Type, e.Source)
	}
	return ""
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
	sent, err := u.deliver(ctx, a, []Event{e}, func(err error, _ int) error { return err })
	if len(sent) == 0 {
		return Delivery{}, err
	}
	return sent[0], err
}

// SendEvents delivers events, at most MaxBatch, in one transaction, and returns the delivery of each. One that is wrong refuses all; its
// error is Numbered. It is Limited if there is one whose triggers all have too much to decide about: the others are delivered nevertheless,
// and all of them may be sent again.
func (u *UseCases) SendEvents(ctx context.Context, a core.Actor, events []Event) ([]Delivery, error) {
	return u.deliver(ctx, a, events, Numbered)
}

func (u *UseCases) deliver(ctx context.Context, a core.Actor, events []Event, about func(err error, i int) error) ([]Delivery, error) {
	if err := a.MaySomewhere(core.ActionSendEvent); err != nil {
		return nil, err
	}
	all, err := arrive(events, about)
	if err != nil {
		return nil, err
	}
	var sent []Delivery
	err = core.Within(ctx, u.store, a, core.ActionSendEvent, func(ctx context.Context, tx Tx) error {
		d := delivering{
			u: u, tx: tx, actor: a, sent: make([]Delivery, len(events)), allowed: map[int64]bool{}, mentions: map[int][]string{},
			reached: map[int64]*reached{},
		}
		sent = d.sent
		for _, one := range all {
			if err := d.match(ctx, one); err != nil {
				return err
			}
		}
		return d.all(ctx)
	})
	if err != nil {
		return nil, err
	}
	u.wake()
	for i, d := range sent {
		if d.Triggers == 0 && d.Full > 0 {
			return sent, about(fault.New(fault.Limited,
				"each of the %d triggers that it matches has %d events to decide about; send the event again later", d.Full, maxPending), i)
		}
	}
	return sent, nil
}

// arrival is an event that was read, with its place among those that were sent.
type arrival struct {
	Event

	place int
	cause string
	data  map[string]any
}

// arrivals are those of one type, and the keys of triggers that may match one of them.
type arrivals struct {
	events         []arrival
	types, details []string
}

// arrive reads events, and returns them by type.
func arrive(events []Event, about func(err error, i int) error) ([]*arrivals, error) {
	if len(events) == 0 || len(events) > MaxBatch {
		return nil, fault.New(fault.Invalid, "found %d events; expected 1 to %d", len(events), MaxBatch)
	}
	var all []*arrivals
	of := map[string]*arrivals{}
	members := 0
	for i, e := range events {
		at := arrival{Event: e, place: i, cause: e.cause()}
		err := e.check()
		if err == nil {
			at.data, err = e.object()
		}
		if err != nil {
			return nil, about(err, i)
		}
		types, details := e.keys(at.data)
		if err := checkKeys(details); err != nil {
			return nil, about(err, i)
		}
		for _, d := range details {
			if strings.HasPrefix(d, ofData) {
				members++
			}
		}
		if members > maxBatchLeaves {
			return nil, fault.New(fault.Invalid, "found more than %d members that conditions may name in the first %d events; send fewer at once",
				maxBatchLeaves, i+1)
		}
		one, known := of[e.Type]
		if !known {
			one = &arrivals{types: types}
			of[e.Type], all = one, append(all, one)
		}
		one.events, one.details = append(one.events, at), append(one.details, details...)
	}
	for _, one := range all {
		slices.Sort(one.details)
		one.details = slices.Compact(one.details)
	}
	return all, nil
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

// delivering is the state of delivering events, in one transaction.
type delivering struct {
	u     *UseCases
	tx    Tx
	actor core.Actor
	sent  []Delivery
	// allowed has, by application, whether the actor may send it events.
	allowed map[int64]bool
	// mentions has, by place, the commits that events name.
	mentions map[int][]string
	// matched are the events that triggers match, reached these triggers by number, and some what is to be stored.
	matched []matched
	reached map[int64]*reached
	some    []core.ReachedTrigger
}

// matched is an event that a trigger matches.
type matched struct {
	arrival

	*reached

	edit *edit
}

// reached is a trigger that events match, with their causes, and those of them that it is known to have.
type reached struct {
	trigger core.ReachedTrigger
	causes  []string
	known   map[string]bool
}

// match finds the triggers that events of one type match.
func (d *delivering) match(ctx context.Context, all *arrivals) error {
	candidates, err := d.tx.TriggersOfEvent(ctx, d.actor.Organization, all.types, all.details, maxPending)
	if err != nil {
		return err
	}
	for _, t := range candidates {
		c, err := d.u.read(t.Kind, t.Config)
		if err != nil {
			continue // what cannot be read is decided about by nobody
		}
		var some []matched
		for _, e := range all.events {
			if c.matches(e.Event, e.data) {
				some = append(some, matched{arrival: e, edit: c.Edit})
			}
		}
		may, err := d.may(ctx, t.ApplicationID, len(some) > 0)
		if err != nil {
			return err
		}
		if may {
			if err := d.add(t, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// may reports whether the actor may send events to an application, if that is asked.
func (d *delivering) may(ctx context.Context, application int64, asked bool) (bool, error) {
	if !asked || d.actor.May(core.ActionSendEvent) == nil {
		return asked, nil
	}
	may, known := d.allowed[application]
	if !known {
		targets, err := core.ApplicationTargets(ctx, d.tx, d.actor.Organization, application)
		if err != nil {
			return false, err
		}
		may = d.actor.MayIn(core.ActionSendEvent, targets...) == nil
		d.allowed[application] = may
	}
	return may, nil
}

// add adds events that a trigger matches.
func (d *delivering) add(t core.ReachedTrigger, events []matched) error {
	if len(d.matched)+len(events) > maxReached && len(d.sent) > 1 {
		return fault.New(fault.Invalid, "found events that reach more than %d triggers together; send fewer at once", maxReached)
	}
	of, exists := d.reached[t.ID]
	if !exists {
		of = &reached{trigger: t, known: map[string]bool{}}
		d.reached[t.ID] = of
	}
	for _, e := range events {
		of.causes = append(of.causes, e.cause)
		e.reached = of
		d.matched = append(d.matched, e)
	}
	return nil
}

// know looks which of the events triggers have already, where there is not room for all: those take none.
func (d *delivering) know(ctx context.Context) error {
	for _, of := range d.reached {
		if of.trigger.Pending+len(of.causes) <= maxPending {
			continue
		}
		found, err := d.tx.KnownCauses(ctx, of.trigger.ID, of.causes)
		if err != nil {
			return err
		}
		for _, cause := range found {
			of.known[cause] = true
		}
	}
	return nil
}

// all delivers what was matched, in the order in which it was sent, which is the order of decisions.
func (d *delivering) all(ctx context.Context) error {
	if err := d.know(ctx); err != nil {
		return err
	}
	slices.SortStableFunc(d.matched, func(a, b matched) int { return a.place - b.place })
	for _, m := range d.matched {
		if !m.known[m.cause] && m.trigger.Pending >= maxPending {
			d.sent[m.place].Full++
			continue
		}
		d.sent[m.place].Triggers++
		if m.known[m.cause] {
			continue
		}
		m.known[m.cause] = true
		m.trigger.Pending++
		one := m.trigger
		one.Cause, one.Sender = m.cause, core.AuthorOf(d.actor)
		if m.edit != nil {
			var err error
			if one.Edit, err = m.edit.prepare(one.Trigger, m.Event, m.data); err != nil {
				one.Edit = &core.TriggerEdit{Inputs: json.RawMessage(`{}`), State: core.EditFailed, Why: err.Error()}
			} else {
				one.Edit.Mentions = d.mentioned(m)
			}
		}
		if d.some = append(d.some, one); len(d.some) >= storedAtOnce {
			if err := d.store(ctx); err != nil {
				return err
			}
		}
	}
	return d.store(ctx)
}

// mentioned are the commits that an event names, which are searched for once, or the one of the member that the trigger has for it.
func (d *delivering) mentioned(m matched) []string {
	if m.edit.Commit != "" {
		return m.edit.built(m.data)
	}
	found, known := d.mentions[m.place]
	if !known {
		found = m.mentions()
		d.mentions[m.place] = found
	}
	return found
}

// store stores what has been collected: with what they edit, signals are large.
func (d *delivering) store(ctx context.Context) error {
	if len(d.some) == 0 {
		return nil
	}
	err := d.tx.AddEvents(ctx, d.u.clock.Now(), d.some)
	d.some = d.some[:0]
	return err
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
