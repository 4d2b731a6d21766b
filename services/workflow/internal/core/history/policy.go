package history

import (
	"cmp"
	"slices"
	"time"
)

// The pause between attempts of an in-process Function grows from the first to the second. It lives in memory only:
// after a crash the next owner begins with the first again.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// RetryPolicy says how often and after which pauses a Function's retryable errors are tried again. The zero value of a field
// means the engine's own: no bound but the deadline, 200 ms, twice as long each time, 30 s.
type RetryPolicy struct {
	// Attempts is how often it is tried at most, the first time included.
	Attempts int `json:"attempts,omitempty"`
	// Initial is the pause after the first attempt, Longest after any.
	Initial time.Duration `json:"initial,omitempty"`
	Longest time.Duration `json:"longest,omitempty"`
	// Backoff is by what each pause is longer than the one before; at least 1.
	Backoff float64 `json:"backoff,omitempty"`
	// Final are codes of errors that are not tried again, whatever the Function says.
	Final []string `json:"final,omitempty"`
}

// Pause is how long to wait after so many failed attempts, the last one with the code; false: not at all.
func (r *RetryPolicy) Pause(failed int, code string) (time.Duration, bool) {
	p := RetryPolicy{Initial: firstRetry, Longest: lastRetry, Backoff: 2}
	if r != nil {
		p.Attempts, p.Final = r.Attempts, r.Final
		p.Initial = cmp.Or(r.Initial, p.Initial)
		p.Longest = cmp.Or(r.Longest, p.Longest)
		p.Backoff = cmp.Or(r.Backoff, p.Backoff)
	}
	if slices.Contains(p.Final, code) || (p.Attempts > 0 && failed >= p.Attempts) {
		return 0, false
	}
	pause := float64(p.Initial)
	for range failed - 1 {
		if pause *= p.Backoff; pause >= float64(p.Longest) {
			break
		}
	}
	return time.Duration(min(pause, float64(p.Longest))), true
}
