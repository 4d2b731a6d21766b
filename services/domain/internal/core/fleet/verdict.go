package fleet

import (
	"fmt"
	"strconv"
	"time"
)

// Wave is how the targets of a wave have ended so far.
type Wave struct {
	Number, Targets, Healthy, Failed int
	// FinishedAt is when the last of its targets has ended; nil while some have not.
	FinishedAt *time.Time
	// Paused reports whether a person has paused it.
	Paused bool
	// Begun reports whether it was let begin before: a retry begins it again.
	Begun bool
}

// Verdict is whether a wave may begin.
type Verdict struct {
	// Begins reports whether it may, and Why how the wave before has ended.
	Begins bool
	Why    string
	// Stops is why it may never begin: which threshold was missed; empty if it may later.
	Stops string
	// Waits is what it waits for, and Until when that passes by itself; nil if it does not.
	Waits string
	Until *time.Time
}

// Decide says whether the wave of a number may begin; one more than there are is the end of all of them.
func (s Spec) Decide(waves []Wave, next int, now time.Time) Verdict {
	last := next > len(waves)
	var before *Wave
	for i := range waves[:min(next-1, len(waves))] {
		if before = &waves[i]; before.FinishedAt == nil {
			return Verdict{Waits: fmt.Sprintf("%d of %d targets of wave %d have not ended", before.Targets-before.Healthy-before.Failed,
				before.Targets, before.Number)}
		}
	}
	if stops := s.stops(waves, before, last); stops != "" {
		return Verdict{Stops: stops}
	}
	for _, w := range waves[:min(next, len(waves))] {
		if w.Paused {
			return Verdict{Waits: fmt.Sprintf("wave %d is paused", w.Number)}
		}
	}
	if before == nil {
		return Verdict{Begins: true, Why: fmt.Sprintf("wave 1 of %d begins", len(waves))}
	}
	if !last && !waves[next-1].Begun { // one that begins again has begun in time
		if begins := before.FinishedAt.Add(time.Duration(s.IntervalSeconds) * time.Second); now.Before(begins) {
			return Verdict{Waits: "the interval after wave " + strconv.Itoa(before.Number), Until: &begins}
		}
		fresh := time.Duration(s.FreshnessSeconds) * time.Second
		if fresh > 0 && now.Sub(*before.FinishedAt) > fresh {
			return Verdict{Stops: fmt.Sprintf("freshness: wave %d ended at %s, and wave %d had to begin within %s", before.Number,
				before.FinishedAt.UTC().Format(time.RFC3339), next, fresh)}
		}
	}
	return Verdict{Begins: true, Why: fmt.Sprintf("wave %d: %d of %d targets healthy", before.Number, before.Healthy, before.Targets)}
}

// stops is why a wave may not begin after the one before; empty for nothing. Waves that are judged at the end are all judged there.
func (s Spec) stops(waves []Wave, before *Wave, last bool) string {
	switch {
	case before == nil || s.AtEnd && !last:
		return ""
	case !s.AtEnd:
		return s.misses(waves, *before)
	}
	for _, w := range waves {
		if stops := s.misses(waves, w); stops != "" {
			return stops
		}
	}
	return ""
}

// misses is which threshold the waves so far have missed; empty for none.
func (s Spec) misses(waves []Wave, ended Wave) string {
	success := s.Success
	if success == nil || success.Wave == nil && success.Overall == nil {
		all := 100
		success = &Success{Wave: &Threshold{MinHealthyPercent: &all}}
	}
	if stops := success.Wave.misses(fmt.Sprintf("wave %d", ended.Number), ended.Targets, ended.Failed); stops != "" {
		return stops
	}
	var targets, failed int
	for _, w := range waves {
		targets += w.Targets
		if w.Number <= ended.Number {
			failed += w.Failed
		}
	}
	return success.Overall.misses("overall", targets, failed)
}

// misses is what a threshold has against so many failures; those that have not failed count as healthy, or as able to become so.
func (t *Threshold) misses(what string, targets, failed int) string {
	if t == nil {
		return ""
	}
	if t.MaxFailed != nil && failed > *t.MaxFailed {
		return fmt.Sprintf("%s: %d of %d targets failed; expected at most %d", what, failed, targets, *t.MaxFailed)
	}
	if p := t.MinHealthyPercent; p != nil && (targets-failed)*100 < targets**p {
		return fmt.Sprintf("%s: %d of %d targets failed; expected at least %d %% healthy", what, failed, targets, *p)
	}
	return ""
}
