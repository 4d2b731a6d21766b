package store

import (
	"flag"
	"regexp"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

var update = flag.Bool("update", false, "rewrite schema.sql")

// TestSchemaFile compares schema.sql, which is written for readers, with what the migrations make.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	pgtest.GoldenSchema(t, "schema.sql", *update, pgtest.Migration{Name: "workflow", FS: Migrations()})
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	t.Parallel()
	pgtest.DownAndUp(t, pgtest.Migration{Name: "workflow", FS: Migrations()})
}

// TestTablesFromBeforeTheBaselineAreLeftAlone: those of builds before version 0.1.0 cannot be upgraded.
func TestTablesFromBeforeTheBaselineAreLeftAlone(t *testing.T) {
	t.Parallel()
	pgtest.LeavesOldTables(t, "execution", pgtest.Migration{Name: "workflow", FS: Migrations()})
}

// TestEveryInstallationHasANumber: the tables are made with it.
func TestEveryInstallationHasANumber(t *testing.T) {
	t.Parallel()
	number, err := newTestStore(t).Installation(t.Context())
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(number) {
		t.Errorf("the installation is %q, %v", number, err)
	}
}
