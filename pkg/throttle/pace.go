package throttle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Pace limits how often each client that has proved who it is may do something. Its state is in the memory of one process, within a fixed
// bound. It is safe for concurrent use.
type Pace[K comparable] struct {
	every  time.Duration
	atOnce int

	mu   sync.Mutex
	left map[K]*rate.Limiter
}

// NewPace lets each client do something so many times at once, and once more after every such time.
func NewPace[K comparable](atOnce int, every time.Duration) *Pace[K] {
	return &Pace[K]{every: every, atOnce: atOnce, left: map[K]*rate.Limiter{}}
}

// Take reports whether the client may do it now.
func (p *Pace[K]) Take(now time.Time, client K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.left[client]
	if l == nil {
		if len(p.left) >= most {
			forgetSome(p.left)
		}
		l = rate.NewLimiter(rate.Every(p.every), p.atOnce)
		p.left[client] = l
	}
	return l.AllowN(now, 1)
}
