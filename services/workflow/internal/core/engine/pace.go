package engine

import "time"

// A program that calls continue_with in a loop, without waiting for anything, would use all of a machine for ever: every generation is a
// commit, a row and a replay. So a run may begin Settings.Generations of them within paceWindow. The next one is held back: it is stored
// with the time from which it may run, occupies no place until then whichever process owns it, and reports what it waits for.

// paceWindow is the time in which a run may begin Settings.Generations generations.
const paceWindow = time.Minute

// heldUntil is from when on the generation may run that begins now; zero: at once. before is when the one began that is
// Settings.Generations earlier.
func (e *Engine) heldUntil(before, now time.Time) time.Time {
	if e.Settings.Generations <= 0 || before.IsZero() {
		return time.Time{}
	}
	until := before.Add(paceWindow)
	if !until.After(now) {
		return time.Time{}
	}
	e.held.Add(1)
	return until
}

// Held is how many generations have been held back.
func (e *Engine) Held() int64 { return e.held.Load() }
