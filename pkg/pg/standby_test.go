package pg_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// replicated is a real primary with a real standby, and a table of fruit.
type replicated struct {
	*testing.T

	pair    *postgres.Pair
	primary *pgxpool.Pool
	standby *pg.Standby
}

func replicate(t *testing.T) *replicated {
	t.Helper()
	pair, err := postgres.StartPair(t.Context(), t.TempDir(), [2]string{freePort(t), freePort(t)}, bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Stop)
	r := &replicated{T: t, pair: pair}
	if r.primary, err = pg.Open(t.Context(), pg.Config{URL: pair.URL()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.primary.Close)
	if _, err := r.primary.Exec(t.Context(), "CREATE TABLE fruit (name text)"); err != nil {
		t.Fatal(err)
	}
	r.follow(pair.StandbyURL())
	return r
}

func freePort(t *testing.T) string {
	t.Helper()
	_, number, err := net.SplitHostPort(porttest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// follow has reads go to a standby from now on.
func (r *replicated) follow(url string) {
	r.Helper()
	standby, err := pg.OpenStandby(r.Context(), pg.Config{URL: url}, r.primary, time.Hour, clock.System())
	if err != nil {
		r.Fatal(err)
	}
	r.standby = standby
	r.Cleanup(standby.Close)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	done := make(chan error, 1)
	go func() { done <- standby.Run(ctx) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Error(err)
		}
	})
	wait.For(r.T, "the standby is known to be fresh", func() bool {
		_, known := standby.Lag()
		return known
	})
}

// store adds a fruit and answers its position.
func (r *replicated) store(name string) string {
	r.Helper()
	if _, err := r.primary.Exec(r.Context(), "INSERT INTO fruit VALUES ($1)", name); err != nil {
		r.Fatal(err)
	}
	position, err := r.standby.Position(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return position
}

// read finds whether a fruit exists, and whether it is the standby that says so.
func (r *replicated) read(ctx context.Context, name string) (found, there bool) {
	r.Helper()
	err := pg.Read(ctx, r.primary, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM fruit WHERE name = $1), pg_is_in_recovery()", name).Scan(&found, &there)
		return pg.Classify(err, "look for a %s", name)
	})
	if err != nil {
		r.Fatal(err)
	}
	return found, there
}

func (r *replicated) begin(after string) context.Context {
	r.Helper()
	ctx, err := r.standby.Begin(r.Context(), after)
	if err != nil {
		r.Fatal(err)
	}
	return ctx
}

// Requirement D65: read replicas with bounded staleness, and with read-your-writes by a token, on real servers.
func TestReadsGoToAStandbyThatHasWhatTheReaderHasSeen(t *testing.T) {
	t.Parallel()
	r := replicate(t)

	fig := r.store("fig")
	wait.For(t, "the standby takes a read that needs the fig", func() bool {
		found, there := r.read(r.begin(fig), "fig")
		if !found {
			t.Fatal("a read after its position does not find the fig")
		}
		return there
	})
	if found, there := r.read(r.Context(), "fig"); !found || there {
		t.Errorf("without a position: found %v on the standby %v, expected the primary", found, there)
	}

	if err := r.pair.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	plum := r.store("plum")
	if found, there := r.read(r.begin(plum), "plum"); !found || there {
		t.Errorf("a standby that lacks the plum: found %v on the standby %v, expected it on the primary", found, there)
	}
	if found, there := r.read(r.begin(pg.Now), "plum"); !found || there {
		t.Errorf("what is committed now: found %v on the standby %v, expected it on the primary", found, there)
	}
	older := r.begin(fig)
	if found, there := r.read(older, "plum"); found || !there {
		t.Errorf("a reader who has seen the fig only: found %v on the standby %v, expected the standby, without the plum", found, there)
	}
	if ctx := r.begin(fig); ctx != t.Context() {
		pg.Leave(ctx)
		if found, there := r.read(ctx, "plum"); !found || there {
			t.Errorf("a reader that decides: found %v on the standby %v, expected the primary", found, there)
		}
	}
	if seen, err := r.standby.Position(older); err != nil || position(t, seen) < position(t, fig) || position(t, seen) >= position(t, plum) {
		t.Errorf("what was read there: position %s (%v), expected one from %s and before %s", seen, err, fig, plum)
	}
	if err := r.pair.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the standby has the plum", func() bool {
		_, there := r.read(r.begin(plum), "plum")
		return there
	})
}

func position(t *testing.T, text string) pg.Position {
	t.Helper()
	p, err := pg.ParsePosition(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A standby that answers nothing, not even with an error, holds up no read for long: who waits for it asks the primary instead, and so does
// everybody behind.
func TestAReadLeavesAStandbyThatGoesSilent(t *testing.T) {
	t.Parallel()
	r := replicate(t)
	fig := r.store("fig")
	wait.For(t, "the standby has the fig", func() bool {
		_, there := r.read(r.begin(fig), "fig")
		return there
	})
	under := r.begin(fig)
	if err := r.pair.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found, there := r.read(under, "fig"); !found || there {
		t.Errorf("found %v on the standby %v, expected the primary", found, there)
	}
	if found, there := r.read(under, "fig"); !found || there {
		t.Errorf("the next read of the request: found %v on the standby %v, expected the primary again", found, there)
	}
	plum := r.store("plum")
	if found, there := r.read(r.begin(plum), "plum"); !found || there {
		t.Errorf("the next request: found %v on the standby %v, expected the primary", found, there)
	}
}

// A server that was promoted is no standby any more.
func TestAServerThatTakesWritesIsNoStandby(t *testing.T) {
	t.Parallel()
	r := replicate(t)
	wait.For(t, "the standby takes reads", func() bool {
		_, there := r.read(r.begin("0/0"), "fig")
		return there
	})
	under := r.begin("0/0")
	if _, there := r.read(under, "fig"); !there {
		t.Fatal("a request that begins before: found it at the primary, expected the standby")
	}
	if err := r.pair.KillPrimary(); err != nil {
		t.Fatal(err)
	}
	if err := r.pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the promoted server takes the write", func() bool {
		_, err := r.primary.Exec(t.Context(), "INSERT INTO fruit VALUES ('fig')")
		return err == nil
	})
	if found, there := r.read(under, "fig"); !found || there {
		t.Errorf("a request that began before: found %v on the standby %v, expected the primary", found, there)
	}
	wait.For(t, "it is asked as the primary", func() bool {
		ctx, err := r.standby.Begin(t.Context(), pg.Now)
		return err == nil && ctx == t.Context()
	})
}

func TestPositionsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]pg.Position{"0/0": 0, "16/B374D848": 0x16B374D848, "FFFFFFFF/FFFFFFFF": 0xFFFFFFFFFFFFFFFF} {
		p, err := pg.ParsePosition(text)
		if err != nil || p != want || p.String() != text {
			t.Errorf("%s: found %s (%v)", text, p, err)
		}
	}
	for _, text := range []string{"", "/", "1", "1/", "/1", "100000000/0", "0/100000000", "-1/0", "x/y", "1/2/3", " 1/2"} {
		if p, err := pg.ParsePosition(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: found %s (%v), expected a refusal", text, p, err)
		}
	}
}

// A standby that stays with the server that was the primary before shows what is no longer so, however fresh it says that it is.
func TestAStandbyOfAnotherTimelineIsNotRead(t *testing.T) {
	t.Parallel()
	r := replicate(t)
	left, err := r.pair.Another(t.Context(), freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	r.follow(left)
	fig := r.store("fig")
	wait.For(t, "the standby that is left behind takes reads", func() bool {
		_, there := r.read(r.begin(fig), "fig")
		return there
	})
	if err := r.pair.KillPrimary(); err != nil {
		t.Fatal(err)
	}
	if err := r.pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the promoted server takes the write", func() bool {
		_, err := r.primary.Exec(t.Context(), "INSERT INTO fruit VALUES ('plum')")
		return err == nil
	})
	wait.For(t, "the primary is asked", func() bool {
		_, there := r.read(r.begin("0/0"), "plum")
		return !there
	})
	for range 20 {
		if found, there := r.read(r.begin("0/0"), "plum"); !found || there {
			t.Fatalf("found %v on the standby %v, expected the primary", found, there)
		}
	}
}
