package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// overfull is how many percent of its room something may have taken before it is wrong: what stops at full needs hours to be mended.
	overfull = 95
	// heldBack is how many bytes of its journal a server may keep for a replica that is away.
	heldBack = 1 << 30
)

// room judges how much of what there is is taken, in bytes.
func room(check string, used, most int64, remedy string) Finding {
	found := fmt.Sprintf("%d of %d MB are used, %d %%", used>>20, most>>20, used*100/most)
	switch percent := used * 100 / most; {
	case percent >= overfull:
		return wrong(check, found, remedy)
	case percent >= full:
		return warning(check, found, remedy)
	default:
		return ok(check, found)
	}
}

// storage looks at the room that the database takes. How large its volume is, SQL does not say: DatabaseStorage does. A server that is full
// often takes no writes, so that is looked at as well.
func (c Config) storage(ctx context.Context, conn *pgx.Conn) []Finding {
	const check = "storage of the database"
	var used int64
	var closed, standby bool
	if err := conn.QueryRow(ctx, `SELECT pg_database_size(current_database()), current_setting('transaction_read_only')::bool, pg_is_in_recovery()`).Scan(&used, &closed, &standby); err != nil {
		return []Finding{wrong(check, err.Error(), "the account has to be able to connect to the database")}
	}
	var findings []Finding
	switch {
	case standby:
		findings = append(findings, wrong("writes to the database", "the server is a standby",
			"the URL has to lead to the primary: with several hosts in it, target_session_attrs=read-write"))
	case closed:
		findings = append(findings, wrong("writes to the database", "the database takes none",
			"servers close themselves when their disk is full: make room or enlarge the volume, then unset default_transaction_read_only"))
	}
	if c.DatabaseStorage > 0 {
		findings = append(findings, room(check, used, c.DatabaseStorage,
			"enlarge the volume, or keep less: event_retention of the workflow service says for how long what has ended is kept"))
	} else {
		findings = append(findings, ok(check, fmt.Sprintf("%d MB are used; --database-storage says of how much", used>>20)))
	}
	return append(findings, slots(ctx, conn)...)
}

// slots are replicas that are away, for which the server keeps its journal until its disk is full.
func slots(ctx context.Context, conn *pgx.Conn) []Finding {
	rows, err := conn.Query(ctx, `SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots
		WHERE NOT active AND restart_lsn IS NOT NULL AND NOT pg_is_in_recovery() AND pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) > $1
		ORDER BY 1`, int64(heldBack))
	if err != nil {
		return nil // a server that does not let everybody see its slots
	}
	var name string
	var held int64
	var findings []Finding
	_, _ = pgx.ForEachRow(rows, []any{&name, &held}, func() error { // as above
		findings = append(findings, warning("replication slot "+name,
			fmt.Sprintf("is not in use, and holds back %d MB of the server's journal", held>>20),
			"bring its replica back, or SELECT pg_drop_replication_slot('"+name+"'): the journal grows until the disk is full"))
		return nil
	})
	return findings
}

// monitored checks the room that JetStream has on its disk, which NATS reports at its monitoring port.
func (c Config) monitored(ctx context.Context) []Finding {
	const check = "storage of nats"
	address := strings.TrimSuffix(c.NATSMonitor, "/") + "/jsz"
	a, err := c.send(ctx, http.MethodGet, address, "")
	if err != nil {
		return []Finding{wrong(check, err.Error(), "is http_port of NATS set (8222), and does a network policy let us through?")}
	}
	var info struct {
		Disabled bool  `json:"disabled"`
		Storage  int64 `json:"storage"`
		Config   struct {
			MaxStorage int64 `json:"max_storage"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(a.body), &info); a.status != http.StatusOK || err != nil {
		return []Finding{wrong(check, fmt.Sprintf("%s answers %d: %s", address, a.status, excerpt(a.body)),
			"the address has to be that of NATS's monitoring, as http://nats:8222")}
	}
	switch {
	case info.Disabled:
		return []Finding{wrong(check, "JetStream is off", "turn it on, with a volume (jetstream { store_dir: … }): the services need it")}
	case info.Config.MaxStorage <= 0:
		return []Finding{warning(check, fmt.Sprintf("%d MB are used, and there is no limit", info.Storage>>20),
			"set max_file_store to less than the volume has, so that streams are refused before the disk is full")}
	}
	return []Finding{room(check, info.Storage, info.Config.MaxStorage,
		"enlarge the volume and max_file_store; is a consumer away, so that what it has to read waits (below)?")}
}
