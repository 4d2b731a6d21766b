package pg

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Behind a pooler that gives each transaction a connection of its own to the server, as PgBouncer with pool_mode=transaction, a session is
// not what it seems: what a connection has set, locked, prepared or listens to belongs to whichever connection to the server it had at the
// time. So with Config.DirectURL
//
//   - what needs a session has a connection past the pooler: migrations, leaders, the sender of an outbox, LISTEN (Session)
//   - what every connection sets is set by the pooler, and only checked here (Config.PoolerEntry)
//   - statements have no name on the server, unless the URL says default_query_exec_mode: PgBouncer keeps names from 1.21 on
//
// Everything else is in transactions, with locks that end with them.

// directly is the configuration of connections past the pooler.
func (c Config) directly() Config {
	if c.DirectURL != "" {
		c.URL, c.DirectURL = c.DirectURL, ""
	}
	return c
}

// sessionsMost bounds the connections past the pooler that a process holds beside those of its leaders.
const sessionsMost = 4

// Session is a connection for what belongs to a session, as a lock of it or LISTEN: past the pooler if the pool is behind one. The caller
// releases or hijacks it.
func Session(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	if t, ours := pool.Config().ConnConfig.Tracer.(tracer); ours && t.sessions != nil {
		pool = t.sessions
	}
	conn, err := pool.Acquire(ctx)
	return conn, Classify(err, "take a connection")
}

// sessions opens the pool past the pooler, which connects when it is used and ends with ctx.
func (c Config) sessions(ctx context.Context) (*pgxpool.Pool, error) {
	direct := c.directly()
	direct.MaxConns = sessionsMost
	pc, err := poolConfig(direct)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, Classify(err, "open database pool past the pooler")
	}
	context.AfterFunc(ctx, pool.Close)
	return pool, nil
}

// parameters are what every connection has set.
func (c Config) parameters() map[string]string {
	all := map[string]string{}
	if c.Schema != "" {
		all["search_path"] = pgx.Identifier{c.Schema}.Sanitize()
	}
	if c.Role != "" {
		all["role"] = c.Role
	}
	maps.Copy(all, c.Settings)
	return all
}

// pooled adapts the configuration of a pool to a pooler, which refuses parameters that it does not keep apart.
func (c Config) pooled(pc *pgxpool.Config) {
	want := c.parameters()
	for name := range want {
		delete(pc.ConnConfig.RuntimeParams, name)
	}
	if !strings.Contains(c.URL, "default_query_exec_mode") {
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return checkParameters(ctx, conn, want) }
}

// checkParameters is the error where the pooler's connections have not set what is wanted.
func checkParameters(ctx context.Context, conn *pgx.Conn, want map[string]string) error {
	names := slices.Sorted(maps.Keys(want))
	const read = "SELECT current_setting(name) FROM unnest($1::text[]) WITH ORDINALITY AS asked (name, place) ORDER BY place"
	rows, err := conn.Query(ctx, read, names)
	if err != nil {
		return fmt.Errorf("read the parameters of the pooler's connection: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the parameters of the pooler's connection: %w", err)
	}
	for i, name := range names {
		if plain(found[i]) != plain(want[name]) {
			return fault.New(fault.Invalid, "the pooler's connection has %s = %q, expected %q: its entry needs the connect_query that the "+
				"subcommand pgbouncer prints", name, found[i], want[name])
		}
	}
	return nil
}

// plain is a parameter without the quotes that an identifier may have.
func plain(value string) string { return strings.Trim(value, `"`) }

// PoolerEntry is the line of the section [databases] of PgBouncer's configuration that URL names, for the server of DirectURL.
func (c Config) PoolerEntry() (string, error) {
	if c.DirectURL == "" {
		return "", fault.InvalidFields(fault.Field{
			Name: "database_direct_url", Problem: "empty; expected the URL of the server behind the pooler",
		})
	}
	through, err := pgx.ParseConfig(c.URL)
	if err != nil {
		return "", fault.Because(err, fault.Invalid, "database URL: %v", err)
	}
	direct, err := pgx.ParseConfig(c.DirectURL)
	if err != nil {
		return "", fault.Because(err, fault.Invalid, "direct database URL: %v", err)
	}
	if parsed, err := url.Parse(c.DirectURL); err == nil && strings.Contains(parsed.Host, ",") {
		return "", fault.InvalidFields(fault.Field{
			Name: "database_direct_url", Problem: "found several hosts; write the entry for one that the pooler follows",
		})
	}
	var calls []string
	parameters := c.parameters()
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		calls = append(calls, fmt.Sprintf("set_config(%s, %s, false)", quoted(name), quoted(parameters[name])))
	}
	query := "SELECT " + strings.Join(calls, ", ")
	return fmt.Sprintf("%s = host=%s port=%d dbname=%s pool_mode=transaction connect_query=%s\n",
		through.Database, direct.Host, direct.Port, direct.Database, quoted(query)), nil
}

// WritePoolerEntry writes PoolerEntry.
func (c Config) WritePoolerEntry(out io.Writer) error {
	entry, err := c.PoolerEntry()
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, entry)
	return err
}

// quoted is a text in quotes, as SQL and PgBouncer have them.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
