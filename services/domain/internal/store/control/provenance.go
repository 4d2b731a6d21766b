package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Origins implements origin.Reads and rollout.Tx.
func (r Reads) Origins(ctx context.Context, organization int64, versions []int64) (map[int64]core.Origin, error) {
	found := map[int64]core.Origin{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		lookups, err := q.LookupsOfVersions(ctx, organization, versions)
		if err != nil {
			return pg.Classify(err, "read the lookups of versions")
		}
		for _, l := range lookups {
			found[l.VersionID] = core.Origin{VersionID: l.VersionID, LookedAt: l.LookedAt, NextAt: l.DueAt, Problem: l.Problem}
		}
		reports, err := q.ReportsOfVersions(ctx, organization, versions)
		if err != nil {
			return pg.Classify(err, "read the provenance of versions")
		}
		for _, row := range reports {
			report, err := provenance.Decode(row.Report)
			if err != nil {
				return fmt.Errorf("version %d: %w", row.VersionID, err)
			}
			o := found[row.VersionID]
			o.VersionID, o.Report, o.Since = row.VersionID, &report, row.CreatedAt
			found[row.VersionID] = o
		}
		return nil
	})
	return found, err
}

// Components implements origin.Reads.
func (r Reads) Components(ctx context.Context, organization int64, versions []int64) (map[int64][]provenance.Component, error) {
	found := map[int64][]provenance.Component{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ComponentsOfVersions(ctx, organization, versions)
		for _, row := range rows {
			found[row.VersionID] = append(found[row.VersionID], provenance.Component{Name: row.Name, Version: row.Version, PURL: row.Purl})
		}
		return pg.Classify(err, "read the components of versions")
	})
	return found, err
}

// commonly is in how many versions a component is common: what is live is searched then, and not all versions that have it.
const commonly = 1000

// WhereComponent implements origin.Reads.
func (r Reads) WhereComponent(
	ctx context.Context, organization int64, c provenance.Component, most int,
) (all []core.Whereabouts, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		p := query.WhereComponentParams{
			OrganizationID: organization, Name: c.Name, Version: c.Version, Purl: c.PURL, AtMost: int32(most),
		}
		count, err := q.CountComponents(ctx, organization, c.Name, commonly)
		if err != nil {
			return pg.Classify(err, "count the versions with the component %q", c.Name)
		}
		read := q.WhereComponent
		if count >= commonly {
			read = func(ctx context.Context, p query.WhereComponentParams) ([]query.WhereComponentRow, error) {
				rows, err := q.WhereCommonComponent(ctx, query.WhereCommonComponentParams(p))
				return convert(rows, func(row query.WhereCommonComponentRow) query.WhereComponentRow { return query.WhereComponentRow(row) }), err
			}
		}
		rows, err := read(ctx, p)
		all = convert(rows, func(row query.WhereComponentRow) core.Whereabouts {
			w := whereabouts(row.ApplicationID, row.EnvironmentID, row.ServiceID, row.VersionID, row.LiveSince)
			w.Component = provenance.Component{Name: row.Name, Version: row.Version, PURL: row.Purl}
			return w
		})
		return pg.Classify(err, "find where the component %q is live", c.Name)
	})
	return all, err
}

// WhereDigest implements origin.Reads.
func (r Reads) WhereDigest(ctx context.Context, organization int64, digest string, most int) (all []core.Whereabouts, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.WhereDigest(ctx, organization, digest, int32(most))
		all = convert(rows, func(row query.WhereDigestRow) core.Whereabouts {
			return whereabouts(row.ApplicationID, row.EnvironmentID, row.ServiceID, row.VersionID, row.LiveSince)
		})
		return pg.Classify(err, "find where the digest %q is live", digest)
	})
	return all, err
}

func whereabouts(application, environment, service, version int64, since *time.Time) core.Whereabouts {
	w := core.Whereabouts{ApplicationID: application, EnvironmentID: environment, ServiceID: service, VersionID: version}
	if since != nil { // it is, where something is live
		w.Since = *since
	}
	return w
}

// ClaimLookup implements origin.Tx.
func (w Writes) ClaimLookup(ctx context.Context, at, until time.Time) (origin.Lookup, bool, error) {
	rows, err := w.Q.ClaimLookup(ctx, &until, w.Entered, &at)
	if err != nil || len(rows) == 0 {
		return origin.Lookup{}, false, pg.Classify(err, "claim a version to look up")
	}
	row := rows[0]
	return origin.Lookup{VersionID: row.VersionID, Reference: row.Reference, CreatedAt: row.CreatedAt, Failures: int(row.Failures)}, true, nil
}

// SettleLookup implements origin.Tx.
func (w Writes) SettleLookup(ctx context.Context, version int64, due, lookedAt *time.Time, failures int, problem string) error {
	err := w.Q.SettleLookup(ctx, query.SettleLookupParams{
		DueAt: due, LookedAt: lookedAt, Failures: int32(failures), Problem: problem, OrganizationID: w.Entered, VersionID: version,
	})
	return pg.Classify(err, "settle the lookup of version %d", version)
}

// RequestLookup implements origin.Tx.
func (w Writes) RequestLookup(ctx context.Context, version int64, at time.Time) error {
	n, err := w.Q.RequestLookup(ctx, at, w.Entered, version)
	if err == nil && n == 0 {
		return fault.New(fault.NotFound, "version %d does not exist, or is no image", version)
	}
	return pg.Classify(err, "request the lookup of version %d", version)
}

// MarkForgeVersion implements origin.Tx.
func (w Writes) MarkForgeVersion(ctx context.Context, version int64) error {
	return pg.Classify(w.Q.MarkForgeVersion(ctx, version, w.Entered), "mark what is being rolled out with version %d", version)
}

// AddReport implements origin.Tx.
func (w Writes) AddReport(ctx context.Context, version int64, r provenance.Report, at time.Time) error {
	p := query.InsertComponentsParams{OrganizationID: w.Entered, VersionID: version}
	if r.Contents != nil {
		for _, c := range r.Contents.Components {
			p.Names, p.Versions, p.Purls = append(p.Names, c.Name), append(p.Versions, c.Version), append(p.Purls, c.PURL)
		}
		contents := *r.Contents
		contents.Components = nil // they are rows
		r.Contents = &contents
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the provenance of version %d: %w", version, err)
	}
	err = w.Q.InsertReport(ctx, query.InsertReportParams{OrganizationID: w.Entered, VersionID: version, Report: text, CreatedAt: at})
	if err == nil {
		_, err = w.Q.ForgetComponents(ctx, version)
	}
	if err == nil && len(p.Names) > 0 {
		err = w.Q.InsertComponents(ctx, p)
	}
	return pg.Classify(err, "keep the provenance of version %d", version)
}
