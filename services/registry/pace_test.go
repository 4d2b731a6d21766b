package registry

import (
	"fmt"
	"testing"
	"time"
)

func TestAllowances(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	pace := newPace(10)
	for range 10 {
		if wait := pace("r.example.com", now); wait != 0 {
			t.Fatalf("within the allowance: wait %s", wait)
		}
	}
	for n := range 3 { // a waiting source has a turn of its own
		if wait, want := pace("r.example.com", now), time.Duration(n+1)*100*time.Millisecond; wait != want {
			t.Errorf("wait %s, want %s", wait, want)
		}
	}
	if wait := pace("other.example.com", now); wait != 0 {
		t.Errorf("another place: wait %s", wait)
	}
	a := newAsked(20)
	for range sourceAtOnce {
		if wait := a.of(1, 7, now); wait != 0 {
			t.Fatalf("within the allowance: wait %s", wait)
		}
	}
	for range 3 { // a refused poll uses nothing up
		if wait := a.of(1, 7, now); wait != sourceEvery {
			t.Errorf("wait %s, want %s", wait, sourceEvery)
		}
	}
	if a.of(1, 8, now) != 0 || a.of(2, 7, now) != 0 || a.of(1, 7, now.Add(sourceEvery)) != 0 {
		t.Error("another source, another organization, and a later look are refused")
	}
	for i := range organizationAtOnce {
		if wait := a.at(1, fmt.Sprint(i), now); wait != 0 {
			t.Fatalf("within the allowance: wait %s", wait)
		}
	}
	if a.at(1, "x", now) == 0 || a.at(2, "x", now) != 0 {
		t.Error("an organization may scan, or keeps another one from looking")
	}
	for range 40 {
		a.at(3, "shared.example.com", now)
	}
	if a.at(4, "shared.example.com", now) == 0 {
		t.Error("a place is asked more often when several organizations ask")
	}
}

// TestAllowancesForgetNames: names come from tenants.
func TestAllowancesForgetNames(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	a := newAllowances(1, 1)
	for i := range 10 * fewBuckets {
		a.take(fmt.Sprint(i), now.Add(time.Duration(i)*10*time.Millisecond))
	}
	if n := len(a.buckets); n > 2*fewBuckets {
		t.Errorf("%d names are kept", n)
	}
	if a.take(fmt.Sprint(10*fewBuckets-1), now.Add((10*fewBuckets)*10*time.Millisecond)) == 0 {
		t.Error("an allowance that is used up was forgotten")
	}
}
