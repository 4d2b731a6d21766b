// Package storetest has what tests of the domain's tables have in common.
package storetest

import (
	"context"
	"errors"

	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

const (
	// Role is what the service works as, behind the walls (R5).
	Role = "lockstep_domain"
	// Name is that of the service's own migrations.
	Name = "domain"
)

// EarlierRelease has the tables of the service as its start leaves them, with one difference: rollouts are those of an earlier release,
// whose programs report what workflows do without requesting passages first, as most tests do. A test of passages drops the trigger of that
// name.
func EarlierRelease() []pgtest.Migration {
	return []pgtest.Migration{
		{Name: "outbox", FS: outbox.Migrations()},
		{Name: Name, FS: store.Migrations(), Then: earlierRelease},
	}
}

func earlierRelease(ctx context.Context, c pg.Config) error {
	if err := errors.Join(pg.EnsureRole(ctx, c, Role), store.Protect(ctx, c, Role)); err != nil {
		return err
	}
	pool, err := pg.Open(ctx, c)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `CREATE FUNCTION earlier_release() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.passages := false; RETURN NEW; END $$;
		CREATE TRIGGER earlier_release BEFORE INSERT ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION earlier_release()`)
	return err
}
