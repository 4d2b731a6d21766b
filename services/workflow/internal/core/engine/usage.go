package engine

// Usage is what an engine has in its process at one moment, for operators.
type Usage struct {
	// Running are executions that are driven, Queued those that wait in memory for a place, Parked those that wait for something and are kept.
	Running, Queued, Parked int
	// ParkedBytes is what Parked take of Settings.Cache.
	ParkedBytes int64
	// Functions is how many attempts at Functions are under way, and QueuedFunctions how many wait for a place, or for others of their
	// organization.
	Functions, QueuedFunctions int
	// Deliveries is the same of runs that only report to the outside what happens, and MostDeliveries how many places there are for them.
	Deliveries, MostDeliveries int
	// LongHistories is how often the history of a run was found to be close to Settings.History; a run is counted once for as long as it stays
	// in memory. Quarantined is how many executions this process has set aside. Both only grow.
	LongHistories, Quarantined int64
}

// Usage says what the engine has in memory now.
func (e *Engine) Usage() Usage {
	u := e.places.usage()
	u.Functions = e.Settings.Activities - e.activities.Free()
	u.QueuedFunctions = int(e.queued.Load())
	u.MostDeliveries = e.Settings.deliveries()
	u.Deliveries = u.MostDeliveries - e.deliveries.Free()
	u.LongHistories, u.Quarantined = e.longHistories.Load(), e.quarantined.Load()
	return u
}

// deliveries is how many Functions of runs may be under way that only report to the outside what happens: half as many as others, beside
// them.
func (s Settings) deliveries() int { return max(1, s.Activities/2) }

func (p *scheduler) usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Running: len(p.live), Queued: len(p.queued), Parked: len(p.parked.byID), ParkedBytes: p.parked.bytes}
}
