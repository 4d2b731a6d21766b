package store

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// What artifacts lead to: many versions and sets at once, a statement for each kind.

// LockApplications implements intake.Tx.
func (t *tx) LockApplications(ctx context.Context, ids []int64) error {
	return pg.Classify(t.q.LockApplications(ctx, t.organization, ids), "lock %d applications", len(ids))
}

// SourcesByMatchKeys implements intake.Tx.
func (t *tx) SourcesByMatchKeys(ctx context.Context, matchKeys []string) (map[string][]intake.SourceOwner, error) {
	rows, err := t.q.SourcesByMatchKeys(ctx, t.organization, matchKeys)
	found := make(map[string][]intake.SourceOwner, len(matchKeys))
	for _, r := range rows {
		found[r.MatchKey] = append(found[r.MatchKey], intake.SourceOwner{
			SourceID: r.SourceID, ServiceID: r.ServiceID, ApplicationID: r.ApplicationID, Ref: r.SourceRef, Config: r.SourceConfig,
		})
	}
	return found, pg.Classify(err, "find sources of %d artifacts", len(matchKeys))
}

// VersionsTaken implements intake.Tx.
func (t *tx) VersionsTaken(ctx context.Context, names, digests []core.Version) ([]core.Version, error) {
	p := query.VersionsTakenParams{OrganizationID: t.organization}
	for _, v := range names {
		p.SourcesOfNames, p.Names = append(p.SourcesOfNames, v.ArtifactSourceID), append(p.Names, v.Name)
	}
	for _, v := range digests {
		p.SourcesOfDigests, p.Digests = append(p.SourcesOfDigests, v.ArtifactSourceID), append(p.Digests, v.Digest)
	}
	rows, err := t.q.VersionsTaken(ctx, p)
	return convertAll(rows, func(r query.VersionsTakenRow) core.Version {
		return core.Version{ID: r.ID, ArtifactSourceID: r.ArtifactSourceID, Name: r.Name, Digest: r.Digest}
	}), pg.Classify(err, "read the names and digests of versions")
}

// AddVersions implements intake.Tx.
func (t *tx) AddVersions(ctx context.Context, all []core.Version) error {
	type key struct {
		source int64
		digest string
	}
	p, places := query.InsertVersionsParams{OrganizationID: t.organization}, make(map[key]int, len(all))
	for i, v := range all {
		p.ArtifactSources, p.Names, p.Digests = append(p.ArtifactSources, v.ArtifactSourceID), append(p.Names, v.Name),
			append(p.Digests, v.Digest)
		p.Refs, p.Published = append(p.Refs, v.Reference), append(p.Published, v.PublishedAt)
		p.CommitMessages = append(p.CommitMessages, v.CommitMessage)
		places[key{v.ArtifactSourceID, v.Digest}] = i
	}
	if err := t.q.RecordPublications(ctx); err != nil {
		return pg.Classify(err, "add %d versions", len(all))
	}
	rows, err := t.q.InsertVersions(ctx, p)
	for _, r := range rows {
		all[places[key{r.ArtifactSourceID, r.Digest}]].ID = r.ID
	}
	if err != nil {
		return pg.Classify(err, "add %d versions", len(all))
	}
	return t.addChanges(ctx, all)
}

// addChanges keeps what versions that are commits change.
func (t *tx) addChanges(ctx context.Context, all []core.Version) error {
	p := query.InsertVersionChangesParams{OrganizationID: t.organization}
	for _, v := range all {
		if v.Change.Since == "" {
			continue
		}
		p.Versions, p.Since = append(p.Versions, v.ID), append(p.Since, v.Change.Since)
		p.Files = append(p.Files, strings.Join(v.Change.Files, "\n"))
		messages := ""
		if len(v.Change.Messages) > 0 {
			list, _ := json.Marshal(v.Change.Messages) // texts
			messages = string(list)
		}
		p.Messages = append(p.Messages, messages)
	}
	if len(p.Versions) == 0 {
		return nil
	}
	return pg.Classify(t.q.InsertVersionChanges(ctx, p), "add what %d commits change", len(p.Versions))
}

// CommitsSince implements rollout.Tx.
func (t *tx) CommitsSince(ctx context.Context, version int64, digest string, most int) ([]core.Version, error) {
	rows, err := t.q.CommitsSince(ctx, query.CommitsSinceParams{
		OrganizationID: t.organization, VersionID: version, Digest: digest, Most: int32(most),
	})
	return convertAll(rows, func(r query.CommitsSinceRow) core.Version {
		v := core.Version{Digest: r.Digest, Change: core.CommitChange{Since: r.Since}}
		if r.Files != "" {
			v.Change.Files = strings.Split(r.Files, "\n")
		}
		_ = json.Unmarshal([]byte(r.Messages), &v.Change.Messages) // none, if they are not known
		return v
	}), pg.Classify(err, "read the commits from version %d back", version)
}

// VersionSetsTaken implements intake.Tx.
func (t *tx) VersionSetsTaken(ctx context.Context, all []core.VersionSet) ([]core.VersionSet, error) {
	applications, digests := make([]int64, len(all)), make([]string, len(all))
	for i, s := range all {
		applications[i], digests[i] = s.ApplicationID, s.EntriesDigest
	}
	rows, err := t.q.VersionSetsTaken(ctx, applications, digests, t.organization)
	return convertAll(rows, func(r query.VersionSetsTakenRow) core.VersionSet {
		return core.VersionSet{ID: r.ID, ApplicationID: r.ApplicationID, EntriesDigest: r.EntriesDigest, Curated: r.Curated}
	}), pg.Classify(err, "look for %d version sets", len(all))
}

// LastVersionSets implements intake.Tx.
func (t *tx) LastVersionSets(ctx context.Context, applications []int64) (map[int64]string, error) {
	rows, err := t.q.LastVersionSets(ctx, applications, t.organization)
	found := make(map[int64]string, len(rows))
	for _, r := range rows {
		found[r.ApplicationID] = r.Name
	}
	return found, pg.Classify(err, "read the last version sets of %d applications", len(applications))
}

// SaveNewestVersionSets implements intake.Tx.
func (t *tx) SaveNewestVersionSets(ctx context.Context, sets map[int64]int64) ([]int64, error) {
	applications := slices.Sorted(maps.Keys(sets))
	ids := make([]int64, len(applications))
	for i, application := range applications {
		ids[i] = sets[application]
	}
	changed, err := t.q.SaveNewestVersionSets(ctx, t.organization, applications, ids)
	return changed, pg.Classify(err, "save the newest version sets of %d applications", len(sets))
}

// AddVersionSets implements intake.Tx.
func (t *tx) AddVersionSets(ctx context.Context, all []intake.NewVersionSet) error {
	type key struct {
		application int64
		digest      string
	}
	// Each set says how many entries it has. A deferred trigger compares at the commit, so that no set is ever kept in part.
	p, places := query.InsertVersionSetsParams{OrganizationID: t.organization}, make(map[key]int, len(all))
	for i, s := range all {
		p.Applications, p.Names, p.Digests = append(p.Applications, s.ApplicationID), append(p.Names, s.Name), append(p.Digests, s.EntriesDigest)
		p.Counts, p.Traces = append(p.Counts, int32(len(s.Entries))), append(p.Traces, telemetry.RecordedTrace(traced(ctx, s.In)))
		p.Curated = append(p.Curated, s.Curated)
		places[key{s.ApplicationID, s.EntriesDigest}] = i
	}
	rows, err := t.q.InsertVersionSets(ctx, p)
	if err != nil {
		return pg.Classify(err, "add %d version sets", len(all))
	}
	entries := query.InsertVersionSetEntriesParams{OrganizationID: t.organization}
	for _, r := range rows {
		set := &all[places[key{r.ApplicationID, r.EntriesDigest}]]
		set.ID = r.ID
		for _, e := range set.Entries {
			entries.VersionSets, entries.Versions = append(entries.VersionSets, r.ID), append(entries.Versions, e.VersionID)
			entries.ArtifactSources, entries.Services = append(entries.ArtifactSources, e.ArtifactSourceID), append(entries.Services, e.ServiceID)
		}
	}
	return pg.Classify(t.q.InsertVersionSetEntries(ctx, entries), "add %d entries of version sets", len(entries.Versions))
}

// VersionsNamed implements intake.Tx.
func (t *tx) VersionsNamed(ctx context.Context, application int64, names []string) ([]core.Version, error) {
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := t.q.VersionsNamed(ctx, names, t.organization, application)
	return convertAll(rows, version), pg.Classify(err, "find versions of application %d by name", application)
}

// AddCurated implements intake.Tx.
func (t *tx) AddCurated(ctx context.Context, c core.Curated) error {
	err := t.q.InsertCuratedVersionSet(ctx, query.InsertCuratedVersionSetParams{
		OrganizationID: t.organization, ApplicationID: c.ApplicationID, VersionSetID: c.VersionSetID, Name: c.Name, Reason: c.Reason,
		FromSetID: c.FromSetID, PrincipalType: string(c.Type), PrincipalID: c.Principal.ID, PrincipalName: c.PrincipalName,
	})
	return pg.Classify(err, "keep who curated version set %d", c.VersionSetID)
}

// CuratedBefore implements intake.Tx.
func (t *tx) CuratedBefore(ctx context.Context, c core.Curated, most int) (same bool, items int, err error) {
	row, err := t.q.CuratedBefore(ctx, query.CuratedBeforeParams{
		OrganizationID: t.organization, ApplicationID: c.ApplicationID, VersionSetID: c.VersionSetID, Name: c.Name, Reason: c.Reason,
		PrincipalType: string(c.Type), PrincipalID: c.Principal.ID, AtMost: int32(most),
	})
	return row.Same, int(row.Items), pg.Classify(err, "find who curated version set %d", c.VersionSetID)
}

// traced is ctx with the trace of an event, if it carries one.
func traced(ctx context.Context, in core.Inbound) context.Context {
	if e, ok := in.Envelope.(event.Event); ok {
		return telemetry.ExtractTrace(ctx, e)
	}
	return ctx
}
