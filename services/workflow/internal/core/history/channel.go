package history

import (
	"crypto/rand"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A channel is an address that a program makes and hands out: only a holder of its token can answer the run
// (D19). What is sent is kept until the program receives it.
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
	// Ref is the handle of the run whose inbox Token is; empty for a channel that a program has made.
	Ref string
	// Call is set if the sender waits for an answer. The IDs of calls are apart from those of other messages.
	Call bool
}

// inboxPrefix begins the token of an inbox. It is no token that a program or a caller can write (IsToken).
const inboxPrefix = "inbox:"

// InboxToken is the address of what is sent to a run by its id. The handle may be that of an attempt or a generation.
func InboxToken(ref string) string {
	ref, _, _ = strings.Cut(ref, "~")
	return inboxPrefix + ref
}

// tokenForm is what newToken makes.
var tokenForm = regexp.MustCompile(`^ch_[A-Z2-7]{26}$`)

// NewToken makes the token of a channel: 128 random bits.
func NewToken() string { return "ch_" + rand.Text() }

// tokenWithin is a token anywhere in a text.
var tokenWithin = regexp.MustCompile(`ch_[A-Z2-7]{26}`)

// ConcealTokens takes the tokens of channels out of a text for readers.
func ConcealTokens(text string) string { return tokenWithin.ReplaceAllString(text, Redacted) }

// ReplaceTokens replaces the tokens of channels in a text.
func ReplaceTokens(text []byte, by func(token string) string) []byte {
	return tokenWithin.ReplaceAllFunc(text, func(token []byte) []byte { return []byte(by(string(token))) })
}

// pseudonym begins what stands for a token in an export.
const pseudonym = "ch_EXPORTED"

// Pseudonym stands for the nth token of an export, from 0. It has the form of a token, and no channel has it but by a chance of 2^-40.
func Pseudonym(n int) string {
	const digits, letters = 18, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	text := make([]byte, digits)
	for i := digits - 1; i >= 0; i-- {
		text[i] = letters[n%len(letters)]
		n /= len(letters)
	}
	return pseudonym + string(text)
}

// HasPseudonym reports whether a text has something that stands for a token.
func HasPseudonym(text []byte) bool { return strings.Contains(string(text), pseudonym) }

// IsToken reports whether a text can be a channel's token.
func IsToken(s string) bool { return tokenForm.MatchString(s) }

// Event is the message as it is stored.
func (m Message) Event() (Event, error) {
	data := m.Data
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	content, source := map[string]any{"channel": m.Token, "data": data}, "/channels/"+m.Token
	if m.Call {
		content["call"], source = true, source+"/calls"
	}
	body, err := json.Marshal(content)
	if err != nil {
		return Event{}, fault.InvalidFields(fault.Field{Name: "data", Problem: "found something else, expected JSON"})
	}
	return Event{Organization: m.Organization, Source: source, ID: m.ID, Type: TypeMessage, Data: body, Time: m.Time}, nil
}

// channelFilter is what the messages of a channel have in common.
func channelFilter(token string) Filter {
	value, _ := Scalar(token) // a string is one
	return Filter{"channel": value}
}

// Answer is what a program has answered to a call: a value, or why it has none.
type Answer struct {
	// Value is JSON; nil where Error is set.
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// AnswerSource is the source under which the answers to the calls of a channel are kept, by the IDs of the calls. They are messages that
// no wait finds, because they are to no channel.
func AnswerSource(token string) string { return "/channels/" + token + "/answers" }
