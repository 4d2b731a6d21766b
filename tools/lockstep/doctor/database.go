package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// oldest is the server_version_num of the first PostgreSQL that Lockstep is tested with.
const oldest = 150000

func errorsAs[E error](err error) (E, bool) { return errors.AsType[E](err) }

// database looks at PostgreSQL: its version, its clock, room for connections, and how far the tables of each schema are.
func (c Config) database(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return []Finding{wrong("database", c.withoutPassword(err), connectRemedy(err))}
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var version, used, most int
	var name string
	var now time.Time
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'), clock_timestamp(),
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), current_setting('max_connections')::int`).
		Scan(&version, &name, &now, &used, &most)
	if err != nil {
		return []Finding{wrong("database", err.Error(), "the account has to be able to sign in and to ask")}
	}
	findings := c.compare("clock of the database", now)
	if version < oldest {
		findings = append(findings, wrong("database", "PostgreSQL "+name, "upgrade it to 15 or later"))
	} else {
		findings = append(findings, ok("database", "PostgreSQL "+name))
	}
	connections := fmt.Sprintf("%d of %d are used", used, most)
	if used*10 > most*9 {
		findings = append(findings, warning("connections of the database", connections, "raise max_connections, or lower those of the services (max_connections, database_connections)"))
	} else {
		findings = append(findings, ok("connections of the database", connections))
	}
	for _, schema := range c.Schemas {
		findings = append(findings, migrations(ctx, conn, schema))
	}
	return findings
}

// migrations says how far the tables of a schema are: each set has a table goose_<set> of its own.
func migrations(ctx context.Context, conn *pgx.Conn, schema string) Finding {
	check := "tables of schema " + schema
	remedy := "start the service, or run its `migrate`, with an account that may create tables there"
	rows, err := conn.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'goose\_%' ORDER BY 1`, schema)
	if err != nil {
		return wrong(check, err.Error(), remedy)
	}
	sets, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return wrong(check, err.Error(), remedy)
	case len(sets) == 0:
		return wrong(check, "there are none", remedy)
	}
	var found []string
	for _, set := range sets {
		var at int64
		err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+pgx.Identifier{schema, set}.Sanitize()).Scan(&at)
		if err != nil {
			return wrong(check, err.Error(), "the account has to own the tables, or be allowed to read them")
		}
		name := strings.TrimPrefix(set, "goose_")
		if at == 0 {
			return wrong(check, name+" has been begun, and not finished", remedy)
		}
		found = append(found, fmt.Sprintf("%s is at %d", name, at))
	}
	return ok(check, strings.Join(found, ", "))
}

// connectRemedy tells apart why nobody could connect.
func connectRemedy(err error) string {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pe.Code {
		case "28P01", "28000":
			return "user or password are wrong: compare the Secret with the server's roles"
		case "3D000":
			return "create the database, and give it to the account"
		case "53300":
			return "every connection is taken: raise max_connections"
		}
	}
	return "is PostgreSQL up, and do name, port, TLS and network policy fit? sslmode=verify-full needs the authority's certificate"
}

// withoutPassword is an error that may quote the URL.
func (c Config) withoutPassword(err error) string {
	text := err.Error()
	if config, parseErr := pgx.ParseConfig(c.DatabaseURL); parseErr == nil && config.Password != "" {
		text = strings.ReplaceAll(text, config.Password, "***")
	}
	return excerpt(text)
}
