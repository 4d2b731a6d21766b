package domain

import (
	"log/slog"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// mortal is a process of the service on the same tables, which dies at the statement for which the crash is set.
func (f *fixture) mortal(now clock.Clock) (*service, *crash) {
	f.t.Helper()
	died := &crash{}
	config := pgtest.As(f.t, f.db, role).Config()
	config.ConnConfig.Tracer = died
	pool, err := pgxpool.NewWithConfig(f.t.Context(), config)
	f.ok(err)
	f.t.Cleanup(pool.Close)
	drivers, err := givenDrivers(f.t.Context(), Config{DriverDir: filepath.Join("testdata", "drivers")}, slog.New(slog.DiscardHandler))
	f.ok(err)
	s, err := assemble(pool, noBus{}, drivers, nil, now, Config{}, slog.New(slog.DiscardHandler))
	f.ok(err)
	return s, died
}

// diesAt has a process die at each statement of a piece of work, one after the other, until the work gets through, and answers how often it
// died. check is called after each death.
func (f *fixture) diesAt(died *crash, work func() error, check func()) (deaths int) {
	f.t.Helper()
	for n := int64(2); n < 400; n++ {
		died.left.Store(n)
		err := work()
		through := died.left.Load() > 1
		died.left.Store(0)
		if err == nil && through {
			return deaths
		}
		deaths++
		check()
	}
	f.t.Fatal("the work does not get through")
	return deaths
}
