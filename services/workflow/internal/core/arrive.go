package core

import (
	"context"
	"time"
)

// await returns what has arrived, after a result of this process, a wake-up, or a while.
func (d *driver) await(ctx context.Context) ([]Arrival, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(d.answered) > 0 {
		answered := d.answered
		d.answered = nil
		for _, c := range answered {
			d.complete(c)
		}
		d.moreResults()
		return nil, nil
	}
	// Nothing runs: then the turn was cut short, or something had come that kept it from parking. Look at once.
	if len(d.running) > 0 {
		// What is there goes first: which of two comes first is not left to chance, so that a schedule can be run again.
		if d.moreResults() {
			return nil, nil
		}
		t := d.engine.Clock.NewTimer(d.patience())
		defer t.Stop()
		select {
		case c := <-d.results:
			d.complete(c)
			d.moreResults()
			return nil, nil // whatever else has come raises woken
		case <-d.woken:
		case <-t.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	_, arrived, err := d.look(ctx)
	return arrived, err
}

// moreResults takes the results that have come meanwhile, so that they share the commit, and reports whether there were some.
func (d *driver) moreResults() (some bool) {
	for len(d.running) > 0 {
		select {
		case c := <-d.results:
			d.complete(c)
			some = true
		default:
			return some
		}
	}
	return some
}

// patience is how long to wait for the Functions under way before a look at the store, and before those become known
// to it that are not.
func (d *driver) patience() time.Duration {
	patience, now := d.engine.Settings.Poll, d.engine.Clock.Now()
	for ref := range d.running {
		if known := d.open[ref]; !known.stored {
			patience = min(patience, known.intended().Sub(now))
		}
	}
	return max(patience, time.Millisecond)
}

// told takes what came with the wake-up. all says that it is everything that has come since the run parked: the counter of
// arrivals then stands one higher than at that time. It is what a look at the moment of its commit would have read, so the
// fence and the counter of the next commit say whether anything has happened after it, as they do after a look.
func (d *driver) told() (came Arrival, all bool) {
	c := d.came
	d.came = nil
	if c == nil || c.Wakes != d.loaded.Wakes+1 {
		return Arrival{}, false
	}
	d.touched, d.loaded.Wakes = true, c.Wakes
	return c.Arrival, true
}

// look reads what has come for the execution. A Parked one has nothing: a wake-up was late.
func (d *driver) look(ctx context.Context) (State, []Arrival, error) {
	d.touched = true
	// The counter is read before the arrivals. What comes after it makes it differ, and the next commit does not park.
	standing, arrived, err := d.engine.Store.Arrivals(ctx, d.loaded.ID)
	d.loaded.Wakes = standing.Wakes
	return standing.State, arrived, err
}
