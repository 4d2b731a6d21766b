package main

import (
	"fmt"
	"slices"
)

// verdict is what came of a series.
type verdict string

const (
	flat  verdict = "flat"
	grows verdict = "grows"
	// record is what has a row for each rollout for ever, by design: shown, and not judged.
	record verdict = "record"
)

// kind says how a series is read.
type kind struct {
	unit string
	// floor and share are by how much it may grow over the whole soak: the larger one of floor, and share of its median.
	floor, share float64
	record       bool
}

// kinds by the end of a series' name. The floors are what one more cache or pool that fills up may take; what leaks with each of a few
// hundred rollouts is far above.
func kinds() map[string]kind {
	const mebibyte = 1 << 20
	return map[string]kind{
		"live heap":   {unit: "bytes", floor: 3 * mebibyte, share: 0.1},
		"memory":      {unit: "bytes", floor: 12 * mebibyte, share: 0.1},
		"goroutines":  {unit: "goroutines", floor: 8, share: 0.05},
		"open files":  {unit: "files", floor: 6, share: 0.05},
		"sockets":     {unit: "sockets", floor: 6, share: 0.05},
		"connections": {unit: "connections", floor: 4, share: 0.05},
		"waiting":     {unit: "events", floor: 25, share: 0.1},
		"queues":      {unit: "bytes", floor: 4 * mebibyte, share: 0.25},
		"rows":        {unit: "rows", floor: 25, share: 0.1},
		"records":     {unit: "rows", record: true},
		"messages":    {unit: "messages", record: true},
	}
}

// point is one sample of a series.
type point struct {
	// At is in seconds since the first rollout.
	At    float64 `json:"at"`
	Value float64 `json:"value"`
}

// line is a series and what came of it.
type line struct {
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Verdict verdict `json:"verdict"`
	// First and Last are the medians of the first and the last third of what was judged.
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	// Growth is the slope times the time that was judged; Allowed is how much that may be.
	Growth  float64 `json:"growth"`
	Allowed float64 `json:"allowed"`
	Points  []point `json:"points"`
}

func (l line) allowance() string {
	if l.Verdict == record {
		return "–"
	}
	return fmt.Sprintf("%.1f", l.Allowed)
}

// judge says whether a series grows. The first quarter is left out, in which pools and caches fill. The slope is the median of those
// between every two points (Theil and Sen), which a few odd samples do not move; a series that only goes up and down has none.
func judge(name string, k kind, points []point) line {
	l := line{Name: name, Unit: k.unit, Verdict: flat, Points: points}
	judged := points[len(points)/4:]
	values := make([]float64, len(judged))
	for i, p := range judged {
		values[i] = p.Value
	}
	third := max(1, len(values)/3)
	l.First, l.Last = median(values[:third]), median(values[len(values)-third:])
	l.Growth = slope(judged) * (judged[len(judged)-1].At - judged[0].At)
	l.Allowed = max(k.floor, k.share*median(values))
	switch {
	case k.record:
		l.Verdict = record
	case l.Growth > l.Allowed:
		l.Verdict = grows
	}
	return l
}

// slope is by how much a series grows in a second.
func slope(points []point) float64 {
	var slopes []float64
	for i, a := range points {
		for _, b := range points[i+1:] {
			if b.At > a.At {
				slopes = append(slopes, (b.Value-a.Value)/(b.At-a.At))
			}
		}
	}
	return median(slopes)
}

// median of no values is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
