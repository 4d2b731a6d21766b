package domain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// attested plays the registry service: what it knows of every image.
type attested struct {
	mu     sync.Mutex
	report provenance.Report
	off    bool
	err    error
	// asked are the organizations that images were looked up for.
	asked []int64
}

func (a *attested) Prove(_ context.Context, organization int64, image, digest string, claims bool) (provenance.Report, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, organization)
	if image == "" || digest == "" {
		return provenance.Report{}, false, fault.New(fault.Invalid, "found image %q and digest %q", image, digest)
	}
	report := a.report
	if !claims {
		report.Claimed = nil
	}
	return report, a.off, a.err
}

func (a *attested) reports(r provenance.Report, off bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report, a.off, a.err = r, off, err
}

// proving are the use cases over a registry service.
func (w winter) proving() (*origin.UseCases, *attested) {
	a := &attested{}
	return origin.New(w.store.ForOrigin(), a, w.now, w.wakeChores), a
}

// lookUp looks up everything that is due, and returns how much that was.
func (w winter) lookUp(u *origin.UseCases) (n int) {
	w.t.Helper()
	for ; ; n++ {
		_, worked, err := u.LookUpDue(w.t.Context())
		w.ok(err)
		if !worked {
			return n
		}
	}
}

// again has every version looked up.
func (w winter) again(u *origin.UseCases) {
	w.t.Helper()
	for _, id := range w.versions() {
		w.ok(u.LookUp(w.t.Context(), user(), id))
	}
	w.lookUp(u)
}

// versions are those of the set.
func (w winter) versions() (ids []int64) {
	w.t.Helper()
	entries, err := w.store.EntriesByVersionSet(w.t.Context(), org, []int64{w.set.ID})
	w.ok(err)
	for _, e := range entries[w.set.ID] {
		ids = append(ids, e.VersionID)
	}
	return ids
}

// signedOnly lets only signed images into production.
const signedOnly = ` unless { context.facts has signedBy && context.facts.signedBy.contains("release") }`

// D52: an image is looked up when it becomes a version, a policy sees what is known, and a signature that appears later opens the passage
// that waited for it. One that is withdrawn counts no more.
func TestASignatureThatAppearsLaterOpensAPassage(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	u, registry := w.proving()
	w.put(policy.NewPolicySet{Text: noProduction(signedOnly)})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	if n := w.lookUp(u); n < len(w.versions()) {
		t.Fatalf("looked up %d versions; expected those of the set, %d", n, len(w.versions()))
	}
	w.want(w.review(), 1) // it is known now that they are not signed
	w.want(w.granted(), []string{"staging"})
	w.want(w.lookUp(u), 0)
	w.again(u)
	w.want(w.review(), 0) // nothing is new

	registry.reports(provenance.Report{SignedBy: []string{"release"}, Evidence: []provenance.Evidence{{Digest: "sha256:1", Signer: "release"}}}, false, nil)
	w.again(u)
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})
	w.verifyJournal(r)
	w.want(w.countOf(`SELECT count(*) FROM cd_policy_decisions WHERE gate_id = 'production' AND verdict = 'allow'
		AND request -> 'facts' -> 'signed_by' = '["release"]'`), 1)

	registry.reports(provenance.Report{}, false, nil)
	w.again(u)
	for id, o := range w.origins(u) {
		if o.Report == nil || len(o.Report.SignedBy) > 0 {
			t.Errorf("version %d: %+v; expected that it is signed no more", id, o.Report)
		}
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_version_reports WHERE version_id = ANY($1)`, w.versions()), 3*len(w.versions()))
}

func (w winter) origins(u *origin.UseCases) map[int64]core.Origin {
	w.t.Helper()
	all, err := u.Origins(w.t.Context(), org, w.versions())
	w.ok(err)
	return all
}

// D52: one image of the set that is not signed keeps the fact from the set, and no critical vulnerabilities are known only after a scan.
func TestEveryImageHasToHaveTheFact(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	u, registry := w.proving()
	w.put(policy.NewPolicySet{Text: noProduction(` unless { context.facts has critical && ["CVE-1"].containsAll(context.facts.critical) }`)})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	for _, tt := range []struct {
		report provenance.Report
		want   []string
	}{
		{provenance.Report{}, []string{"staging"}},
		{provenance.Report{Vulnerabilities: &provenance.Vulnerabilities{Critical: []string{"CVE-1", "CVE-2"}}}, []string{"staging"}},
		{provenance.Report{Vulnerabilities: &provenance.Vulnerabilities{Critical: []string{"CVE-1"}}}, []string{"staging", "production"}},
	} {
		registry.reports(tt.report, false, nil)
		w.again(u)
		w.review()
		w.want(w.granted(), tt.want)
	}
}

// D52: while a registry does not answer, what is known stays, and it is asked again after longer and longer pauses; without signers it is
// looked up hourly.
func TestALookupThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	u, registry := w.proving()
	registry.reports(provenance.Report{SignedBy: []string{"release"}}, false, nil)
	w.again(u)
	registry.reports(provenance.Report{}, false, fault.New(fault.Unavailable, "the registry does not answer"))
	pauses := []time.Duration{}
	for range 9 {
		w.again(u)
		for _, o := range w.origins(u) {
			if len(o.Report.SignedBy) != 1 || o.Problem == "" || o.LookedAt == nil {
				t.Errorf("found %+v; expected what was known, and the problem", o)
			}
			pauses = append(pauses, o.NextAt.Sub(w.now.Now()))
		}
	}
	pauses = slices.Compact(pauses)
	w.want(fmt.Sprint(pauses), "[1m0s 2m0s 4m0s 8m0s 16m0s 32m0s 1h0m0s]")
	registry.reports(provenance.Report{}, true, nil)
	w.again(u)
	for _, o := range w.origins(u) {
		if len(o.Report.SignedBy) != 1 || o.Problem != "" || !o.NextAt.Equal(w.now.Now().Add(time.Hour)) {
			t.Errorf("without signers: %+v", o)
		}
	}
	if err := u.LookUp(t.Context(), user(), 1<<40); !fault.Is(err, fault.NotFound) {
		t.Errorf("a version that does not exist: %v", err)
	}
	stranger := user()
	stranger.Organization = 2
	if err := u.LookUp(t.Context(), stranger, w.versions()[0]); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's version: %v", err)
	}
}

// D52: a component and a digest are found where they are live, and what differs between two sets is listed.
func TestWhereAComponentIsLive(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	u, registry := w.proving()
	log4j := provenance.Component{Name: "log4j-core", Version: "2.14.1", PURL: "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"}
	registry.reports(provenance.Report{Contents: &provenance.Contents{Format: "CycloneDX", Count: 2, Components: []provenance.Component{
		log4j, {Name: "zlib", Version: "1.3"},
	}}}, false, nil)
	w.again(u)
	places := func(found []core.Whereabouts, err error) (n int) {
		w.ok(err)
		return len(found)
	}
	w.want(places(u.WhereComponent(t.Context(), user(), "log4j-core", "")), 0) // nothing is live
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.succeed(r)
	services := len(w.versions())
	for _, tt := range []struct {
		name, version string
		want          int
	}{
		{"log4j-core", "", 2 * services},
		{"log4j-core", "2.14.1", 2 * services},
		{"log4j-core", "2.17.0", 0},
		{"log4j", "", 0},
		{log4j.PURL, "", 2 * services},
		{"pkg:maven/other/log4j-core@2.14.1", "", 0},
	} {
		w.want(places(u.WhereComponent(t.Context(), user(), tt.name, tt.version)), tt.want)
	}
	stranger := user()
	stranger.Organization = 2
	w.want(places(u.WhereComponent(t.Context(), stranger, "log4j-core", "")), 0)
	versions, err := w.store.VersionsByID(t.Context(), org, w.versions())
	w.ok(err)
	for _, v := range versions {
		found, err := u.WhereDigest(t.Context(), user(), v.Digest)
		w.ok(err)
		if len(found) != 2 || found[0].VersionID != v.ID || found[0].Since.IsZero() {
			t.Errorf("digest %s: %+v; expected staging and production", v.Digest, found)
		}
		w.want(places(u.WhereDigest(t.Context(), stranger, v.Digest)), 0)
	}

	before := w.set
	w.set = w.release(9)
	registry.reports(provenance.Report{Contents: &provenance.Contents{Format: "SPDX", Count: 1, Components: []provenance.Component{
		{Name: "log4j-core", Version: "2.17.0"},
	}}}, false, nil)
	w.again(u)
	changes, known, err := u.ComponentChanges(t.Context(), org, before.ID, w.set.ID)
	w.ok(err)
	if !known || len(changes) == 0 || changes[0].Name != "log4j-core" || !slices.Contains(changes[0].After, "2.17.0") {
		t.Errorf("changes %+v, known %t", changes, known)
	}
	for _, bad := range []string{"", "pkg:", string(make([]byte, 501))} {
		if _, err := u.WhereComponent(t.Context(), user(), bad, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("a search for %.10q: %v; expected a refusal", bad, err)
		}
	}
}
