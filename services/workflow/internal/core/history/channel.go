package history

import (
	"crypto/rand"
	"encoding/json"
	"regexp"
	"time"

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

// NewToken makes the token of a channel: 128 random bits.
func NewToken() string { return "ch_" + rand.Text() }

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
