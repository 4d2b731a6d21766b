package domain

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// D52: what an image claims is read once, stays when later lookups do not read it, and opens no passage that requires a verified commit.
func TestAClaimOpensNothing(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	u, registry := w.proving()
	commit := strings.Repeat("a", 40)
	w.put(policy.NewPolicySet{Text: noProduction(` unless { context.facts has revisions && context.facts.revisions.contains("` + commit + `") }`)})
	claim := &provenance.Claim{Source: "https://git.example.com/shop/api", Revision: commit}
	registry.reports(provenance.Report{Claimed: claim}, false, nil)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.lookUp(u)
	w.review()
	w.want(w.granted(), []string{"staging"})
	registry.reports(provenance.Report{Claimed: &provenance.Claim{Source: "https://git.example.com/other"}, SignedBy: []string{"release"}}, false, nil)
	w.again(u)
	w.review()
	w.want(w.granted(), []string{"staging"})
	for id, o := range w.origins(u) {
		r := o.Report
		if r == nil || r.Claimed == nil || *r.Claimed != *claim || len(r.SignedBy) != 1 || len(r.Sources) != 0 {
			t.Errorf("version %d: %+v; expected the first claim, beside what is verified", id, o.Report)
		}
	}

	registry.reports(provenance.Report{Sources: []provenance.Source{{Repository: "https://git.example.com/shop/api", Revision: commit}}}, false, nil)
	w.again(u)
	w.review()
	w.want(w.granted(), []string{"staging", "production"})
}
