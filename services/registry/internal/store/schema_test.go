package store

import (
	"flag"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

var update = flag.Bool("update", false, "rewrite schema.sql")

// TestSchemaFile compares schema.sql, which is written for readers, with what the migrations make.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	pgtest.GoldenSchema(t, "schema.sql", *update, pgtest.Migration{Name: HookMigrationName, FS: HookMigrations()})
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	t.Parallel()
	pgtest.DownAndUp(t, pgtest.Migration{Name: HookMigrationName, FS: HookMigrations()})
}

// TestTablesFromBeforeTheBaselineAreLeftAlone: those of builds before version 0.1.0 cannot be upgraded.
func TestTablesFromBeforeTheBaselineAreLeftAlone(t *testing.T) {
	t.Parallel()
	pgtest.LeavesOldTables(t, "hint", pgtest.Migration{Name: HookMigrationName, FS: HookMigrations()})
}
