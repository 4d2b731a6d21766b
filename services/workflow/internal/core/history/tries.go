package history

import (
	"slices"
	"strings"
	"time"
)

// Try is an attempt at a call that failed, and after which there was another one.
type Try struct {
	// Number counts the attempts at the call from 1. Of an attempt whose worker or relay never answered there is no Try.
	Number int
	// Began is when it began, where that is known, Ended when it failed, and Next from when on the next one was made.
	Began time.Time `json:",omitzero"`
	Ended time.Time
	Next  time.Time
	// Code and Message are the error's. The message is short, and has no token and nothing that looks like a secret.
	Code, Message string
}

// Tries are those of a call. Of many only the first and the last are kept.
type Tries struct {
	// Count is how many there were.
	Count int
	List  []Try
}

const (
	// firstTries and lastTries are how many are kept of each end.
	firstTries, lastTries = 3, 20
	// tryMessage is where a message is cut, in bytes.
	tryMessage = 240
)

// NewTry is an attempt that failed with an error from which known secrets have been removed.
func NewTry(number int, began, ended, next time.Time, e *FunctionError) Try {
	message, _ := Redact(ConcealTokens(e.Message))
	if len(message) > tryMessage {
		message = strings.ToValidUTF8(message[:tryMessage], "") + "…"
	}
	return Try{Number: number, Began: began, Ended: ended, Next: next, Code: e.Code, Message: message}
}

// With returns the tries with one more. Those before, which others may read at the same time, stay as they are.
func (t *Tries) With(one Try) *Tries {
	if t == nil {
		return &Tries{Count: 1, List: []Try{one}}
	}
	list := append(slices.Clone(t.List), one)
	if len(list) > firstTries+lastTries {
		list = slices.Delete(list, firstTries, firstTries+1)
	}
	return &Tries{Count: t.Count + 1, List: list}
}

// Failed is how many there were; none are 0.
func (t *Tries) Failed() int {
	if t == nil {
		return 0
	}
	return t.Count
}

// Size is about how many bytes they take in the store.
func (t *Tries) Size() int64 {
	if t == nil {
		return 0
	}
	const ofOne = 150 // numbers and times
	size := int64(0)
	for _, one := range t.List {
		size += ofOne + int64(len(one.Code)+len(one.Message))
	}
	return size
}
