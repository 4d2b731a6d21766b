package callpolicy

import (
	"sync"
	"time"
)

// sampledAtOnce is how many calls of an organization are sampled without the time between them.
const sampledAtOnce = 20

// sampler chooses the calls that are reported although policies permit them at once, so that a simulation of other policies has some of
// them. Each report is a message and a row, so an organization has few. It is safe for concurrent use.
type sampler struct {
	every time.Duration
	mu    sync.Mutex
	// full is when each organization may have as many at once again as ever.
	full map[int64]time.Time
}

// take reports whether a call is to be reported.
func (s *sampler) take(organization int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := s.full[organization]
	if full.Before(now) {
		full = now
	}
	if full = full.Add(s.every); full.Sub(now) > sampledAtOnce*s.every {
		return false
	}
	s.full[organization] = full
	return true
}

// SampleCalls has so many calls of each organization reported in an hour although policies permit them at once; 0 for none. It is called
// before anything is decided.
func (r *Registry) SampleCalls(perHour int) *Registry {
	r.samples = nil
	if perHour > 0 {
		r.samples = &sampler{every: time.Hour / time.Duration(perHour), full: map[int64]time.Time{}}
	}
	return r
}

// Sample reports whether a call of an organization that policies permit at once is to be reported.
func (r *Registry) Sample(organization int64) bool {
	return r.samples != nil && r.samples.take(organization, r.clock.Now())
}
