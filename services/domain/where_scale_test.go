package domain

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// D52: a component and a digest are found at once, whether few versions have the component or all, and whether it is live in many places
// or in few. LOCKSTEP_WHERE_VERSIONS is how many versions there are; with 10,000 of 500 components, the slowest of twenty searches has to
// take 50 ms at most.
func TestWhereIsAnsweredAtScale(t *testing.T) {
	t.Parallel()
	const most = 50 * time.Millisecond
	versions, components := 400, 50
	whole := os.Getenv("LOCKSTEP_WHERE_VERSIONS")
	if whole != "" {
		var err error
		if versions, err = strconv.Atoi(whole); err != nil {
			t.Fatal(err)
		}
		components = 500
	}
	w := frozen(t)
	u, _ := w.proving()
	applications := max(1, versions/20)
	tx, err := w.pool.Begin(t.Context())
	w.ok(err)
	// The rows stand alone: what they refer to is not searched.
	for _, statement := range []string{
		`SET LOCAL session_replication_role = replica`,
		`INSERT INTO cd_versions (organization_id, id, artifact_source_id, name, digest, reference, published_at) OVERRIDING SYSTEM VALUE
			SELECT 1, 100000 + i, 100000 + i % $2, 'v' || i, 'sha256:' || lpad(to_hex(i), 64, '0'), 'r.example.com/app@' || i, now() FROM
				generate_series(1, $1::int) i`,
		`INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id)
			SELECT 1, 100000 + i, 100000 + i, 100000 + i % $2, 100000 + i % $2 FROM generate_series(1, $1::int) i`,
		// The latest version of each application is live in two environments.
		`INSERT INTO cd_cells (organization_id, application_id, environment_id, application_name, live_rollout_environment_id, live_version_set_id, live_since)
			SELECT 1, 100000 + i % $2, e, 'app-' || i % $2, 100000 + i, 100000 + i, now() FROM generate_series($1::int - $2 + 1, $1::int) i,
				generate_series(100001, 100002) e`,
	} {
		arguments := []any{versions, applications}
		if statement[0] == 'S' {
			arguments = nil
		}
		_, err := tx.Exec(t.Context(), statement, arguments...)
		w.ok(err)
	}
	// Filled row by row, the index takes minutes.
	var index string
	w.ok(tx.QueryRow(t.Context(), `SELECT indexdef FROM pg_indexes
		WHERE schemaname = current_schema() AND indexname = 'cd_version_components_by_name'`).Scan(&index))
	_, err = tx.Exec(t.Context(), `DROP INDEX cd_version_components_by_name`)
	w.ok(err)
	_, err = tx.Exec(t.Context(), `INSERT INTO cd_version_components (organization_id, version_id, ordinal, name, version, purl)
		SELECT 1, 100000 + i, j,
			CASE WHEN j = 1 AND i % 20 = 0 THEN 'log4j-core' WHEN j <= 20 THEN 'common-' || j ELSE 'part-' || (i * 7919 + j * 104729) % 50000 END,
			'1.' || i % 40, ''
		FROM generate_series(1, $1::int) i, generate_series(1, $2::int) j`, versions, components)
	w.ok(err)
	_, err = tx.Exec(t.Context(), index)
	w.ok(err)
	w.ok(tx.Commit(t.Context()))
	_, err = w.pool.Exec(t.Context(), `ANALYZE cd_version_components, cd_version_set_entries, cd_cells, cd_versions`)
	w.ok(err)
	wall := clock.System()
	measure := func(name string, want int, search func() (int, error)) {
		t.Helper()
		var took []time.Duration
		for range 20 {
			began := wall.Now()
			found, err := search()
			took = append(took, wall.Now().Sub(began))
			w.ok(err)
			if found != want {
				t.Fatalf("%s: found %d places; expected %d", name, found, want)
			}
		}
		slices.Sort(took)
		t.Logf("%s: %d places, fastest %s, median %s, slowest %s", name, want, took[0], took[len(took)/2], took[len(took)-1])
		if whole != "" && took[len(took)-2] > most {
			t.Errorf("%s took %s; expected at most %s", name, took[len(took)-2], most)
		}
	}
	component := func(name, version string) func() (int, error) {
		return func() (int, error) {
			found, err := u.WhereComponent(t.Context(), user(), name, version)
			return len(found), err
		}
	}
	// Of the live versions, those whose number 20 divides.
	some := 0
	for i := versions - applications + 1; i <= versions; i++ {
		if i%20 == 0 {
			some += 2
		}
	}
	measure("a component of some", min(500, some), component("log4j-core", ""))
	measure("a component of all", min(500, 2*applications), component("common-5", ""))
	measure("a component that none has", 0, component("nothing", ""))
	measure("a version of a component that none has", 0, component("common-5", "9"))
	measure("a digest that is live", 2, func() (int, error) {
		found, err := u.WhereDigest(t.Context(), user(), fmt.Sprintf("sha256:%064x", versions))
		return len(found), err
	})
	measure("a digest that is not", 0, func() (int, error) {
		found, err := u.WhereDigest(t.Context(), user(), fmt.Sprintf("sha256:%064x", 1))
		return len(found), err
	})
}
