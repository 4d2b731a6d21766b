package registry

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// allowances holds token buckets by name. Names come from tenants, so full buckets, which equal new ones, are removed.
type allowances struct {
	limit rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	// sweepAt is the number of buckets at which full ones are removed next. It doubles with the number that is left, so that the cost per
	// bucket is small.
	sweepAt int
}

// fewBuckets is the number of buckets that are kept without sweeping.
const fewBuckets = 1024

func newAllowances(limit rate.Limit, burst int) *allowances {
	return &allowances{limit: limit, burst: burst, buckets: map[string]*rate.Limiter{}, sweepAt: fewBuckets}
}

// of returns the bucket of a name. The caller holds mu.
func (a *allowances) of(name string, now time.Time) *rate.Limiter {
	l, ok := a.buckets[name]
	if !ok {
		if len(a.buckets) >= a.sweepAt {
			maps.DeleteFunc(a.buckets, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= float64(a.burst) })
			a.sweepAt = max(fewBuckets, 2*len(a.buckets))
		}
		l = rate.NewLimiter(a.limit, a.burst)
		a.buckets[name] = l
	}
	return l
}

// reserve takes a token, and returns how long to wait until it is available. The caller need not ask again.
func (a *allowances) reserve(name string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of(name, now).ReserveN(now, 1).DelayFrom(now)
}

// take takes a token if one is available; otherwise it returns how long that will take.
func (a *allowances) take(name string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.of(name, now).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// newPace gives every host so many polls a second, without bursts.
func newPace(perSecond int) func(place string, now time.Time) time.Duration {
	return newAllowances(rate.Limit(perSecond), perSecond).reserve
}

// The limits of polls on demand, independent of scheduled polls: per source some in a row and then one every few seconds; per organization,
// because trying one address after the other is scanning, more in a row and then one a second.
const (
	sourceAtOnce       = 10
	sourceEvery        = 5 * time.Second
	organizationAtOnce = 60
	organizationEvery  = time.Second
)

// asked limits polls on demand. They do not count against scheduled polls: people must not wait for ten thousand sources, nor the sources
// for people.
type asked struct{ sources, organizations, places *allowances }

// newAsked gives every host so many polls on demand a second, over all organizations.
func newAsked(perSecond int) *asked {
	return &asked{
		sources:       newAllowances(rate.Every(sourceEvery), sourceAtOnce),
		organizations: newAllowances(rate.Every(organizationEvery), organizationAtOnce),
		places:        newAllowances(rate.Limit(perSecond), perSecond),
	}
}

// of takes a poll of one source.
func (a *asked) of(organization, source int64, now time.Time) time.Duration {
	return a.sources.take(fmt.Sprintf("%d/%d", organization, source), now)
}

// at takes a poll of an organization at a host.
func (a *asked) at(organization int64, place string, now time.Time) time.Duration {
	if wait := a.organizations.take(strconv.FormatInt(organization, 10), now); wait > 0 {
		return wait
	}
	return a.places.take(place, now)
}
