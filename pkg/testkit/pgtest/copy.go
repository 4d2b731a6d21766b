package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// copiedSchema is the schema of every database that is a copy: functions have its name in them (SET search_path FROM CURRENT), so it is
// the template's.
const copiedSchema = "lockstep_test"

// longestTemplate bounds how long migrations may take. The first test that needs them applies them, and others wait for it: they do not end
// with that test.
const longestTemplate = 5 * time.Minute

// templates are the databases of this process that others are copied from: by name, what makes each when it is called first.
var templates sync.Map

// copied is a database of the test's own that has the migrations, given a configuration for the server and how it copies.
func copied(tb testing.TB, c pg.Config, strategy string, migrate []Migration) pg.Config {
	tb.Helper()
	key, err := fingerprint(migrate)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	made, _ := templates.LoadOrStore(key, sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), longestTemplate) //nolint:usetesting // it is for other tests as well
		defer cancel()
		return migrated(ctx, c.URL, key, migrate)
	}))
	if err := made.(func() error)(); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	name := c.Schema
	create(tb, c.URL, "DATABASE", name, " TEMPLATE "+pgx.Identifier{key}.Sanitize()+strategy, "WITH (FORCE)")
	c.Schema = copiedSchema
	if c.URL, err = within(c.URL, name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return c
}

// asFiles has a server copy a database file by file: the fastest way for files that are in memory. On a disk it is faster to copy what they
// hold through the log, which is what a server does by itself.
const asFiles = " STRATEGY FILE_COPY"

// migrated makes the database that others are copied from. Nothing may be connected to it while it is copied: PostgreSQL waits for what is
// about to go away.
func migrated(ctx context.Context, server, name string, migrate []Migration) error {
	if err := execute(ctx, server, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create the database to copy: %w", err)
	}
	inside, err := within(server, name)
	if err != nil {
		return err
	}
	return apply(ctx, pg.Config{URL: inside, Schema: copiedSchema}, migrate)
}

// within is the URL of another database of a server. Its connections have the database's name, as others have their schema's.
func within(server, database string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("database URL: %w", err)
	}
	u.Path = "/" + database
	q := u.Query()
	q.Set("application_name", "lockstep/"+database)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// fingerprint names migrations by what is in them: the same ones are the same template, whichever test asks.
func fingerprint(migrate []Migration) (string, error) {
	h := sha256.New()
	for _, m := range migrate {
		_, _ = fmt.Fprintf(h, "set %q %t\n", m.Name, m.Then != nil) // never fails
		err := fs.WalkDir(m.FS, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(m.FS, path)
			if err == nil {
				_, err = fmt.Fprintf(h, "file %q of %d\n%s", path, len(content), content)
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("read migrations %s: %w", m.Name, err)
		}
	}
	return "template_" + hex.EncodeToString(h.Sum(nil)[:16]), nil
}
