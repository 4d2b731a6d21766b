package drivertest

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

// times is how often each test is made: once without crashes, and then with the crashes of the seeds 1, 2 and so on.
const times = 3

// only is a seed to repeat; without it, the seeds follow from -count.
var only = flag.Int64("drivertest.seed", -1, "make tests with the crashes of this `seed` alone; 0: without crashes")

func TestMain(m *testing.M) {
	flag.Parse()
	count := flag.Lookup("test.count")
	if *only < 0 && count.Value.String() == "1" {
		if err := count.Value.Set(fmt.Sprint(times)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// rounds counts, by name, how often a test was made. Rounds follow each other: a name has one test at a time.
var rounds = struct {
	sync.Mutex
	of map[string]*round
}{of: map[string]*round{}}

type round struct {
	test   *testing.T
	number uint64
}

// seedOf is the seed of the crashes of a test: 0, for none, when it is made the first time.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	if *only >= 0 {
		return uint64(*only)
	}
	rounds.Lock()
	defer rounds.Unlock()
	switch last := rounds.of[t.Name()]; {
	case last == nil:
		rounds.of[t.Name()] = &round{test: t}
	case last.test != t:
		rounds.of[t.Name()] = &round{test: t, number: last.number + 1}
	}
	return rounds.of[t.Name()].number
}
