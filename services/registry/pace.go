package registry

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// allowances are token buckets by name. Names come out of what tenants configure and ask for, so that those go which say
// nothing any more: a full bucket is like a new one.
type allowances struct {
	limit rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	// sweepAt is how many there are when full ones are looked for next. It doubles with what is left, so that looking costs
	// little for each.
	sweepAt int
}

// fewBuckets is how many are kept without looking.
const fewBuckets = 1024

func newAllowances(limit rate.Limit, burst int) *allowances {
	return &allowances{limit: limit, burst: burst, buckets: map[string]*rate.Limiter{}, sweepAt: fewBuckets}
}

// of is the bucket of a name. The caller holds mu.
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

// reserve takes one, and answers how long to wait until it is there. Who waits need not ask again.
func (a *allowances) reserve(name string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of(name, now).ReserveN(now, 1).DelayFrom(now)
}

// take takes one if it is there, and otherwise answers how long that will be.
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

// newPace gives every place as many looks a second, and no more at once.
func newPace(perSecond int) func(place string, now time.Time) time.Duration {
	return newAllowances(rate.Limit(perSecond), perSecond).reserve
}

// What people may ask for, and scripts of theirs, whatever the pace of looks by time is: of one source some looks in a row
// and then one every few seconds; over all of an organization's, because trying one address after the other is scanning,
// more in a row and then one a second.
const (
	sourceAtOnce       = 10
	sourceEvery        = 5 * time.Second
	organizationAtOnce = 60
	organizationEvery  = time.Second
)

// asked are the looks on demand. They are not taken from those by time: people must not wait for ten thousand sources, nor
// those for people.
type asked struct{ sources, organizations, places *allowances }

// newAsked gives every place as many looks on demand a second, over all organizations.
func newAsked(perSecond int) *asked {
	return &asked{
		sources:       newAllowances(rate.Every(sourceEvery), sourceAtOnce),
		organizations: newAllowances(rate.Every(organizationEvery), organizationAtOnce),
		places:        newAllowances(rate.Limit(perSecond), perSecond),
	}
}

// of takes a look at one source.
func (a *asked) of(organization, source int64, now time.Time) time.Duration {
	return a.sources.take(fmt.Sprintf("%d/%d", organization, source), now)
}

// at takes a look of an organization at a place.
func (a *asked) at(organization int64, place string, now time.Time) time.Duration {
	if wait := a.organizations.take(strconv.FormatInt(organization, 10), now); wait > 0 {
		return wait
	}
	return a.places.take(place, now)
}
