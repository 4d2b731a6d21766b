package outbox

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The extension attributes that a Sender puts on what it publishes; doc.go says what they mean.
const (
	ExtensionSender   = "outboxsender"
	ExtensionEpoch    = "outboxepoch"
	ExtensionPosition = "outboxposition"
	ExtensionBase     = "outboxbase"
)

// sequence is one run of positions.
type sequence struct{ sender, epoch string }

// place is where in a sequence an event is. Its zero value is that of an event that came from no outbox.
type place struct {
	sequence
	position, base int64
}

// put is e with the place on it, whatever place it had.
func (p place) put(e event.Sealed) (event.Sealed, error) {
	return e.With(
		event.Attribute{Name: ExtensionSender, Value: p.sender},
		event.Attribute{Name: ExtensionEpoch, Value: p.epoch},
		event.Attribute{Name: ExtensionPosition, Value: strconv.FormatInt(p.position, 10)},
		event.Attribute{Name: ExtensionBase, Value: strconv.FormatInt(p.base, 10)},
	)
}

// placeOf reads the place of e. The error is Invalid.
func placeOf(e event.Event) (place, error) {
	if event.Extension(e, ExtensionPosition) == "" {
		return place{}, nil
	}
	p := place{sequence: sequence{sender: event.Extension(e, ExtensionSender), epoch: event.Extension(e, ExtensionEpoch)}}
	if p.sender == "" {
		p.sender = e.Source()[strings.LastIndexByte(e.Source(), '/')+1:]
	}
	if !serviceName.MatchString(p.sender) {
		return place{}, fault.InvalidFields(fault.Field{
			Name:    ExtensionSender,
			Problem: fmt.Sprintf("found %q; expected the name of a service", p.sender),
		})
	}
	var err error
	if p.position, err = number(e, ExtensionPosition); err != nil {
		return place{}, err
	}
	p.base = 1
	if event.Extension(e, ExtensionBase) != "" {
		if p.base, err = number(e, ExtensionBase); err != nil {
			return place{}, err
		}
	}
	if p.base > p.position {
		return place{}, fault.InvalidFields(fault.Field{
			Name:    ExtensionBase,
			Problem: fmt.Sprintf("found %d; expected at most the position, %d", p.base, p.position),
		})
	}
	return p, nil
}

func number(e event.Event, extension string) (int64, error) {
	s := event.Extension(e, extension)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fault.InvalidFields(fault.Field{Name: extension, Problem: fmt.Sprintf("found %q; expected a number above zero", s)})
	}
	return n, nil
}

// serviceName is what may stand in a subject as one token.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// receiptSubject is where the sender listens for receipts.
func receiptSubject(sender string) string { return "cd.receipt." + sender }

// receipt means that a receiver has everything up to the mark. It travels as JSON.
type receipt struct {
	Sender   string `json:"sender"`
	Receiver string `json:"receiver"`
	Epoch    string `json:"epoch"`
	Mark     int64  `json:"mark"`
}
