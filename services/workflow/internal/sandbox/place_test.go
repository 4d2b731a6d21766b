package sandbox

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// TestWhoMakesRoomForWhom has children of several organizations hold more than all may. An organization that holds no more than its share
// is not ended for one that does, however long ago that one began; and the oldest request comes to its end.
func TestWhoMakesRoomForWhom(t *testing.T) {
	t.Parallel()
	const budget = 512
	type child struct {
		organization, bytes, begun int64
		idle                       bool
	}
	for name, tt := range map[string]struct {
		children []child
		want     int // -1 for none
	}{
		"an idle one before any that works":          {[]child{{1, 300, 1, false}, {1, 250, 2, false}, {2, 20, 0, true}}, 2},
		"the later one of an organization that hogs": {[]child{{1, 250, 1, false}, {1, 250, 2, false}, {2, 20, 3, false}}, 1},
		"the same in any order":                      {[]child{{2, 20, 3, false}, {1, 250, 2, false}, {1, 250, 1, false}}, 1},
		"many small ones of others": {[]child{
			{1, 250, 1, false},
			{1, 250, 2, false},
			{2, 20, 3, false},
			{3, 20, 4, false},
			{4, 20, 5, false},
		}, 1},
		"a hog that began last":                          {[]child{{2, 20, 1, false}, {1, 250, 2, false}, {1, 260, 3, false}}, 2},
		"the later one where both hold more than theirs": {[]child{{1, 300, 1, false}, {2, 300, 2, false}}, 1},
		"not the oldest, whatever it holds":              {[]child{{1, 300, 1, false}, {2, 240, 2, false}}, 1},
		"the only one that works stays":                  {[]child{{1, 600, 1, false}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, held := make([]*tenement, len(tt.children)), map[*tenement]int64{}
			for i, c := range tt.children {
				all[i] = &tenement{process: &process{}, organization: c.organization, used: time.Unix(c.begun, 0)}
				if !c.idle {
					all[i].pinned = 1
				}
				all[i].begun.Store(c.begun)
				held[all[i]] = c.bytes
			}
			found := victim(held, budget)
			for i, c := range all {
				if (c == found) != (i == tt.want) {
					t.Errorf("child %d: ended %t, expected %t", i, c == found, i == tt.want)
				}
			}
		})
	}
}

// TestARequestDuringTheLastLookIsLookedAt has a request begin and end while watch looks what the children hold, with none under way before
// and after. What that request took is seen, too.
func TestARequestDuringTheLastLookIsLookedAt(t *testing.T) {
	t.Parallel()
	home := &tenement{process: &process{cmd: &exec.Cmd{Process: &os.Process{}}}, organization: 1, started: make(chan struct{})}
	close(home.started)
	looks := 0
	p := &places{children: []*tenement{home}, most: 1, share: 1, clock: clock.System(), budget: 1, watching: true}
	p.resident = func(int) int64 {
		if looks++; looks == 1 {
			p.begin(home)
			p.done(home)
		}
		return 1
	}
	p.watch()
	if looks != 2 || p.watching {
		t.Errorf("looked %d times, and watches: %t; expected to look twice and then to end", looks, p.watching)
	}
}
