package transport

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Streams counts the subscriptions that are open, so that one member, with however many tokens, does not use up a process.
// It is a Prometheus collector.
type Streams struct {
	most    int
	mu      sync.Mutex
	open    map[follower]int
	refused prometheus.Counter
	gauge   prometheus.GaugeFunc
}

var _ prometheus.Collector = (*Streams)(nil)

// follower is whose subscription it is.
type follower struct {
	organization int64
	kind         core.PrincipalType
	id           int64
}

// defaultStreams is how many a member may have where nothing is configured: the console has one for each tab.
const defaultStreams = 100

// NewStreams lets each member have at most so many subscriptions in this process; 0 for the usual hundred, below 0 for any number.
func NewStreams(most int) *Streams {
	if most == 0 {
		most = defaultStreams
	}
	s := &Streams{most: most, open: map[follower]int{}, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lockstep_subscriptions_refused_total",
		Help: "GraphQL subscriptions that were refused because their member had max_subscriptions open.",
	})}
	s.gauge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lockstep_subscriptions", Help: "Open GraphQL subscriptions."},
		func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := 0
			for _, of := range s.open {
				n += of
			}
			return float64(n)
		})
	return s
}

// begin counts one more of an actor, until done is called; false when there are as many as allowed.
func (s *Streams) begin(a core.Actor) (done func(), ok bool) {
	m := follower{a.Organization, a.Type, a.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 0 && s.open[m] >= s.most {
		s.refused.Inc()
		return nil, false
	}
	s.open[m]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[m]--; s.open[m] == 0 {
			delete(s.open, m)
		}
	}), true
}

// Describe implements prometheus.Collector.
func (s *Streams) Describe(ch chan<- *prometheus.Desc) {
	s.refused.Describe(ch)
	s.gauge.Describe(ch)
}

// Collect implements prometheus.Collector.
func (s *Streams) Collect(ch chan<- prometheus.Metric) {
	s.refused.Collect(ch)
	s.gauge.Collect(ch)
}
