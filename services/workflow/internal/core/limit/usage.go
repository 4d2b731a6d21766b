package limit

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// average is a rate per second over about the last averagedOver.
type average struct {
	perSecond float64
	at        time.Time
}

const averagedOver = 30 * time.Second

// add counts something now.
func (a *average) add(n int, now time.Time) {
	a.perSecond, a.at = a.now(now)+float64(n)/averagedOver.Seconds(), now
}

// now is the rate as it has fallen since something was counted.
func (a *average) now(now time.Time) float64 {
	if a.at.IsZero() {
		return 0
	}
	return a.perSecond * math.Exp(-max(0, now.Sub(a.at).Seconds())/averagedOver.Seconds())
}

// ratesOf are the rates of an organization. A process knows its own part, and assumes that the others have as much.
func (l *Limiter) ratesOf(organization int64) (rates [kinds]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, now := l.tenant(organization), l.clock.Now()
	for kind := range rates {
		rates[kind] = t.used[kind].now(now) * float64(l.processes)
	}
	return rates
}

// Use is how much of one limit an organization uses.
type Use struct {
	Organization int64
	// Kind is an index of Names.
	Kind int
	Used float64
	// Most is the limit, above 0.
	Most int64
}

// Share is the used part of the limit.
func (u Use) Share() float64 { return u.Used / float64(u.Most) }

// Nearest returns which organizations use at least a share of one of their limits, the highest shares first, at most so many. Each replica
// knows open runs and storage of all, some seconds or minutes late, and rates as ratesOf says.
func (l *Limiter) Nearest(share float64, most int) []Use {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	var all []Use
	for organization, t := range l.tenants {
		of := l.of(organization)
		calls := of.CallsPerSecond
		if calls == 0 {
			calls = callsDefault * l.processes
		}
		limits := [kinds]int64{of.OpenRuns, of.StartsPerSecond, of.EventsPerSecond, of.StorageBytes, calls}
		used := [kinds]float64{OpenRuns: float64(t.open + t.claimed), Storage: float64(t.stored)}
		for _, kind := range []int{Starts, Events, Calls} {
			used[kind] = t.used[kind].now(now) * float64(l.processes)
		}
		for kind, limit := range limits {
			if u := (Use{organization, kind, used[kind], limit}); limit > 0 && u.Share() >= share {
				all = append(all, u)
			}
		}
	}
	slices.SortFunc(all, func(a, b Use) int {
		return cmp.Or(cmp.Compare(b.Share(), a.Share()), cmp.Compare(a.Organization, b.Organization), cmp.Compare(a.Kind, b.Kind))
	})
	return all[:min(len(all), most)]
}
