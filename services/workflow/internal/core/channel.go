package core

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A channel is an address that a program makes and hands out: whoever has its token can answer the run, and nobody else
// can (D19). What is sent is kept until the program receives it.
//
// A message is stored as an event of TypeMessage and found by the index that events are found by: of a run its order,
// its being consumed once and its race with receive() are those of events and waits.

// TypeMessage is the type under which messages are stored. No program can wait for it, and none leaves this service.
const TypeMessage = "com.gitlab.cd.workflow.message"

// Message is something sent to a channel.
type Message struct {
	Organization int64
	// Token names the channel. It is the right to send to it, so it is no part of any error or log.
	Token string
	// ID identifies the message within its channel: the same again changes nothing.
	ID string
	// Data is any JSON value; nil is null.
	Data json.RawMessage
	Time time.Time
}

// tokenForm is what newToken makes.
var tokenForm = regexp.MustCompile(`^ch_[A-Z2-7]{26}$`)

// newToken makes the token of a channel: 128 random bits.
func newToken() string { return "ch_" + rand.Text() }

// tokenWithin is a token anywhere in a text.
var tokenWithin = regexp.MustCompile(`ch_[A-Z2-7]{26}`)

// ConcealTokens takes the tokens of channels out of a text for readers.
func ConcealTokens(text string) string { return tokenWithin.ReplaceAllString(text, Redacted) }

// IsToken reports whether a text can be a channel's token.
func IsToken(s string) bool { return tokenForm.MatchString(s) }

// Event is the message as it is stored.
func (m Message) Event() (Event, error) {
	data := m.Data
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	body, err := json.Marshal(map[string]any{"channel": m.Token, "data": data})
	if err != nil {
		return Event{}, fault.InvalidFields(fault.Field{Name: "data", Problem: "found something else, expected JSON"})
	}
	return Event{Organization: m.Organization, Source: "/channels/" + m.Token, ID: m.ID, Type: TypeMessage, Data: body, Time: m.Time}, nil
}

// channelFilter is what the messages of a channel have in common.
func channelFilter(token string) Filter {
	value, _ := Scalar(token) // a string is one
	return Filter{"channel": value}
}

// maxMessageID bounds the identifier of a message, in characters.
const maxMessageID = 255

// SendToChannel hands a message to the run that made the channel. It answers once the message is stored, and true if it
// was there already. A channel that there is not, or whose run has ended, is fault.NotFound.
func (s *Service) SendToChannel(ctx context.Context, m Message) (duplicate bool, err error) {
	var fields []fault.Field
	if !IsToken(m.Token) {
		fields = append(fields, fault.Field{Name: "token", Problem: "expected the token of a channel"})
	}
	if n := utf8.RuneCountInString(m.ID); n < 1 || n > maxMessageID || storable(m.ID) != m.ID {
		fields = append(fields, fault.Field{Name: "message_id", Problem: fmt.Sprintf("found %d characters, expected 1 to %d of text", n, maxMessageID)})
	}
	if len(m.Data) > 0 {
		fields = append(fields, fault.FieldsOf(MessageDoor.CheckField("data", m.Data))...)
	}
	if len(fields) > 0 {
		return false, fault.InvalidFields(fields...)
	}
	m.Time = s.clock.Now()
	_, duplicate, err = s.store.Send(ctx, m)
	return duplicate, err
}

// Want is one kind of event that satisfies an operation.
type Want struct {
	Type   string
	Filter Filter
}

// Wants are the events of which the first ends the operation; none unless it waits.
func (o Op) Wants() []Want {
	var wants []Want
	for _, t := range o.Types {
		wants = append(wants, Want{t, o.Filter})
	}
	for _, token := range o.Channels {
		wants = append(wants, Want{TypeMessage, channelFilter(token)})
	}
	return wants
}
