package core

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
)

// Order is what a list goes by, and which way. Every list has an order of its own, which the empty one stands for.
type Order string

// The orders. Not every list has every one.
const (
	OrderCreated      Order = "created"
	OrderCreatedDesc  Order = "created_desc"
	OrderName         Order = "name"
	OrderNameDesc     Order = "name_desc"
	OrderFinished     Order = "finished"
	OrderFinishedDesc Order = "finished_desc"
)

// descending ends the names of orders that begin with the greatest.
const descending = "_desc"

// key is what the order goes by, whichever way.
func (o Order) key() Order { return Order(strings.TrimSuffix(string(o), descending)) }

// falls reports whether the greatest comes first.
func (o Order) falls() bool { return strings.HasSuffix(string(o), descending) }

const (
	usualPage = 50
	// fullPage is more than what any client may ask for: what reads whole lists goes by it.
	fullPage = 500
)

// Page asks for one page of a list by keyset, from the front (First, After) or, with Last, from the back (Last, Before).
// Both cursors together bound a stretch of the list.
type Page struct {
	// First is how many at most; below 1 means 50, above 500 means 500. Last takes its place when it is above 0.
	First, Last int
	// After and Before are cursors of items of the list in this order, which are not shown themselves; empty for its ends.
	// Anything else is Invalid, also a cursor of another list.
	After, Before string
	// Order is the list's own when empty.
	Order Order
}

// Slice is one page of a list.
type Slice[T any] struct {
	Nodes []T
	// Cursors are those of the nodes, one each.
	Cursors []string
	// HasNext and HasPrevious report whether the list continues behind and before the page. Beyond a cursor that was given there is at
	// least the item of the cursor.
	HasNext, HasPrevious bool
}

// StartCursor is that of the first node; empty when there is none.
func (s Slice[T]) StartCursor() string {
	if len(s.Cursors) == 0 {
		return ""
	}
	return s.Cursors[0]
}

// EndCursor is that of the last node; empty when there is none.
func (s Slice[T]) EndCursor() string {
	if len(s.Cursors) == 0 {
		return ""
	}
	return s.Cursors[len(s.Cursors)-1]
}

// Position is where an item stands in a list. Of its fields those count that the list's key goes by.
type Position struct {
	// Number is the item's own number, or that of what it belongs to; Minor then distinguishes those of one owner.
	Number, Minor int64
	// Name is for OrderName: names are unique.
	Name string
	// At is for OrderFinished, before Number.
	At time.Time
}

// Never is when what is not over was over, for lists that go by that.
func Never() time.Time { return time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC) }

// Window is a Page as it is read: a stretch of a list between two positions, neither of which belongs to it.
type Window struct {
	Key          Order
	Above, Below Position
	// Falling is the way in which rows are read, and Turned whether that is against the order of the list.
	Falling, Turned bool
	// Shown is how many items the page has at most.
	Shown int
	page  Page
	// issuer begins the cursors of this list in this order.
	issuer string
}

// Limit is how many rows to read: one more than are shown, to see whether there are more.
func (w Window) Limit() int { return w.Shown + 1 }

// Open reads a page of a list that goes by usual where nothing else is asked for. What is shown does not shift when items are added, and a
// page costs the same however deep it is: a cursor says where an item stands, not how many are before it. The list's name is in its
// cursors, which no list of another name takes.
func (p Page) Open(list string, usual Order) (Window, error) {
	order := p.Order
	if order == "" {
		order = usual
	}
	w := Window{
		Key: order.key(), Turned: p.Last > 0, Shown: min(p.First, fullPage), page: p, issuer: issuerMark + list + "/" + string(order) + "/",
		Above: Position{At: time.Time{}}, Below: Position{Number: math.MaxInt64, Minor: math.MaxInt64, At: Never().AddDate(0, 0, 1)},
	}
	if w.Turned {
		w.Shown = min(p.Last, fullPage)
	}
	if w.Shown < 1 {
		w.Shown = usualPage
	}
	w.Falling = order.falls() != w.Turned
	after, before := &w.Above, &w.Below
	if order.falls() {
		after, before = before, after
	}
	for _, end := range []struct {
		name, cursor string
		at           *Position
	}{{"after", p.After, after}, {"before", p.Before, before}} {
		if end.cursor == "" {
			continue
		}
		position, ok := w.position(end.cursor)
		if !ok {
			return w, fault.InvalidFields(
				fault.Field{Name: "/" + end.name, Problem: "found a cursor of another list or order; expected one that this list has given in this order"},
			)
		}
		if w.Key == OrderName {
			end.at.Name = position.Name // numbers stay as wide as they are
			continue
		}
		*end.at = position
	}
	return w, nil
}

// issuerMark begins every cursor that says which list it is of. Those of the release before begin with a digit or the name of a key.
const issuerMark = "@"

// JournalList is the name of the organization's journal, of which the journal of a rollout is a part.
const JournalList = "journal"

// cursor is a position in wrapping: opaque to clients, and none of another list's or order's.
func (w Window) cursor(p Position) string {
	text := strconv.FormatInt(p.Number, 10)
	switch w.Key {
	case OrderName:
		text = string(OrderName) + ":" + p.Name
	case OrderFinished:
		text = string(OrderFinished) + ":" + strconv.FormatInt(p.At.UnixMicro(), 10) + "." + text
	default:
		if p.Minor != 0 {
			text += "." + strconv.FormatInt(p.Minor, 10)
		}
	}
	return base64.RawURLEncoding.EncodeToString([]byte(w.issuer + text))
}

// position reads what cursor has written, also that of the release before, which did not say which list it was of.
func (w Window) position(cursor string) (p Position, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return p, false
	}
	written, ours := strings.CutPrefix(string(raw), w.issuer)
	if !ours && strings.HasPrefix(written, issuerMark) {
		return p, false
	}
	if w.Key != OrderCreated {
		if written, ok = strings.CutPrefix(written, string(w.Key)+":"); !ok {
			return p, false
		}
	}
	if w.Key == OrderName {
		_, bad := text.Control(written) // which no name of ours has
		return Position{Name: written}, written != "" && !bad
	}
	major, minor, two := strings.Cut(written, ".")
	a, err := strconv.ParseInt(major, 10, 64)
	b := int64(0)
	if err == nil && two {
		b, err = strconv.ParseInt(minor, 10, 64)
	}
	if w.Key == OrderFinished {
		// PostgreSQL knows more years than this, but no cursor of ours has others.
		inRange := a >= 0 && a <= Never().UnixMicro()
		return Position{At: time.UnixMicro(a).UTC(), Number: b}, err == nil && two && inRange && b >= 0
	}
	return Position{Number: a, Minor: b}, err == nil && a >= 0 && b >= 0
}

// Holds reports whether a position of a list by creation is in the window.
func (w Window) Holds(p Position) bool {
	behind := func(a, b Position) bool { return a.Number > b.Number || a.Number == b.Number && a.Minor > b.Minor }
	return behind(p, w.Above) && behind(w.Below, p)
}

// Cut makes a page of the rows of a window, read with its limit.
func Cut[T any](w Window, rows []T, position func(T) Position) Slice[T] {
	s := Slice[T]{HasNext: w.page.Before != "", HasPrevious: w.page.After != ""}
	if len(rows) > w.Shown {
		rows = rows[:w.Shown]
		if w.Turned {
			s.HasPrevious = true
		} else {
			s.HasNext = true
		}
	}
	if w.Turned {
		slices.Reverse(rows)
	}
	s.Nodes, s.Cursors = rows, make([]string, len(rows))
	for i, row := range rows {
		s.Cursors[i] = w.cursor(position(row))
	}
	return s
}

// CursorOf is the cursor of a row of the journal.
func CursorOf(position int64) string {
	w, _ := Page{}.Open(JournalList, OrderCreated) // only a cursor could be wrong
	return w.cursor(Position{Number: position})
}

// PositionOf reads a cursor of the journal; 0 for none.
func PositionOf(cursor string) (int64, error) {
	w, err := Page{After: cursor}.Open(JournalList, OrderCreated)
	return w.Above.Number, err
}

// Distinct sorts identifiers and leaves out repetitions.
func Distinct(ids []int64) []int64 {
	slices.Sort(ids)
	return append([]int64{}, slices.Compact(ids)...)
}
