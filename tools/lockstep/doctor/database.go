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
		if remedy, is := untrusted(err); is != nil {
			return []Finding{wrong("database", c.withoutPassword(is), remedy+"; for PostgreSQL, sslrootcert in the URL names the authority's file")}
		}
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
	findings := append(c.compare("clock of the database", now), c.certificate("certificate of the database", stateOf(conn.PgConn().Conn()))...)
	if version < oldest {
		findings = append(findings, wrong("database", "PostgreSQL "+name, "upgrade it to 15 or later"))
	} else {
		findings = append(findings, ok("database", "PostgreSQL "+name))
	}
	connections := fmt.Sprintf("%d of %d are used", used, most)
	if used*10 > most*9 {
		findings = append(findings, warning("connections of the database", connections,
			"raise max_connections of the server, or lower those of the services"))
	} else {
		findings = append(findings, ok("connections of the database", connections))
	}
	findings = append(findings, c.storage(ctx, conn)...)
	for _, schema := range c.Schemas {
		findings = append(findings, c.migrations(ctx, conn, schema))
		findings = append(findings, outbox(ctx, conn, schema)...)
		findings = append(findings, rejected(ctx, conn, schema)...)
	}
	return findings
}

// migrations says how far the tables of a schema are: each set has a table goose_<set> of its own.
func (c Config) migrations(ctx context.Context, conn *pgx.Conn, schema string) Finding {
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
	var found, behind, ahead []string
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
		switch newest, known := c.Newest[name]; {
		case known && at < newest:
			behind = append(behind, fmt.Sprintf("%s is at %d, this release has %d", name, at, newest))
		case known && at > newest:
			ahead = append(ahead, fmt.Sprintf("%s is at %d, this release has %d", name, at, newest))
		}
	}
	switch {
	case len(behind) > 0:
		return wrong(check, strings.Join(behind, ", "),
			"upgrade the service to the release of this command, or take the command of the service's release; "+remedy)
	case len(ahead) > 0:
		return warning(check, strings.Join(ahead, ", "),
			"a newer release has changed the tables: take its command, and finish the upgrade if older pods are left")
	}
	return ok(check, strings.Join(found, ", "))
}

// lagging is how long an event may wait in an outbox before an operator should look: one that is confirmed at once takes well under a
// second.
const lagging = time.Minute

// outbox says how many events of a schema wait to be published or confirmed, and for how long. A schema without an outbox has nothing
// to say.
func outbox(ctx context.Context, conn *pgx.Conn, schema string) []Finding {
	check := "outbox of schema " + schema
	var there bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`,
		pgx.Identifier{schema, "outbox"}.Sanitize()).Scan(&there); err != nil || !there {
		return nil // the finding about the tables says why
	}
	var waiting int64
	var seconds float64
	var problem string
	err := conn.QueryRow(ctx, `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(added_at)), 0)::float8,
		coalesce((array_agg(last_error ORDER BY id) FILTER (WHERE last_error IS NOT NULL))[1], '') FROM `+pgx.Identifier{
		schema,
		"outbox",
	}.Sanitize()).
		Scan(&waiting, &seconds, &problem)
	if err != nil {
		return []Finding{wrong(check, err.Error(), "the account has to own the tables, or be allowed to read them")}
	}
	age := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	found := fmt.Sprintf("%d events wait", waiting)
	if waiting > 0 {
		found += fmt.Sprintf(", the oldest for %v", age)
	}
	if age <= lagging {
		return []Finding{ok(check, found)}
	}
	if problem != "" {
		found += ": " + excerpt(problem)
	}
	return []Finding{warning(check, found, "is the service that sends them up, and the one that receives them, and NATS between them? "+
		"Nothing is lost: they are sent until they are confirmed")}
}

// rejected reports how many events a service has refused permanently within a week: dead letters, which are kept in its inbox with the
// reason. A schema without an inbox has nothing to report.
func rejected(ctx context.Context, conn *pgx.Conn, schema string) []Finding {
	check := "refused events of schema " + schema
	table := pgx.Identifier{schema, "inbox"}.Sanitize()
	var there bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, table).Scan(&there); err != nil || !there {
		return nil // the finding about the tables says why
	}
	var count int64
	var reason string
	err := conn.QueryRow(ctx, `SELECT count(*), coalesce((array_agg(source || ' ' || event_id || ': ' || rejected_reason ORDER BY claimed_at DESC))[1], '')
		FROM `+table+` WHERE rejected_reason IS NOT NULL AND claimed_at > now() - interval '7 days'`).Scan(&count, &reason)
	switch {
	case err != nil:
		return []Finding{wrong(check, err.Error(), "the account has to own the tables, or be allowed to read them")}
	case count == 0:
		return []Finding{ok(check, "none within a week")}
	}
	return []Finding{warning(check, fmt.Sprintf("%d within a week, the last one %s", count, excerpt(reason)),
		"docs/how-to/respond-to-alerts.md, LockstepEventsGivenUp, says what follows from one; the table inbox has them all, with their reasons")}
}

// connectRemedy says what to do about each reason why connecting fails.
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
	return "is PostgreSQL up, and do name, port, TLS and network policy fit?"
}

// withoutPassword is an error that may quote the URL.
func (c Config) withoutPassword(err error) string {
	text := err.Error()
	if config, parseErr := pgx.ParseConfig(c.DatabaseURL); parseErr == nil && config.Password != "" {
		text = strings.ReplaceAll(text, config.Password, "***")
	}
	return excerpt(text)
}
