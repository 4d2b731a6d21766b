package git

import (
	"testing"
	"time"
)

// waits has the clock move on whenever an operation pauses, until the returned function is called, which says how often that was.
func (g *gitHubApp) waits() (stop func() (pauses int)) {
	end, ended, count := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(ended)
		for {
			g.now.AwaitTimers(1)
			select {
			case <-end:
				return
			default:
			}
			count++
			g.now.Advance(firstSettling << (count - 1))
		}
	}()
	return func() int {
		close(end)
		g.now.NewTimer(time.Hour) // for it to see that
		<-ended
		return count
	}
}

// D56: a server that does not know a token yet that was just issued is asked again with it, also by another operation.
func TestAGitHubAppsTokenIsNotYetKnown(t *testing.T) {
	t.Parallel()
	for _, forge := range []string{"", GitHub} {
		for pauses, known := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 7 * time.Second} {
			g := newGitHubApp(t, forge)
			g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
			g.set(func() { g.knownAfter = known })
			waited := g.waits()
			g.read(g.forge, 1)
			if found := waited(); found != pauses {
				t.Errorf("forge %q: found %d pauses; want %d", forge, found, pauses)
			}
		}
	}
}
