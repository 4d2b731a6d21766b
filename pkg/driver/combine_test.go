package driver_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

func embedded(t *testing.T, ref string) *driver.Bundle {
	t.Helper()
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Get(ref)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// D53: Flux beside others, also beside git@1, whose modules it loads from the host (D34): both pin them.
func TestFluxIsCombined(t *testing.T) {
	t.Parallel()
	for _, refs := range [][]string{{"flux@1", "git@1", "kubernetes@1"}, {"argo-rollouts@1", "flux@1", "kubernetes@1"}, {"argo-workflows@1", "flux@1"}} {
		var all []*driver.Bundle
		for _, ref := range refs {
			all = append(all, embedded(t, ref))
		}
		combined, err := driver.Combine(all...)
		if err != nil {
			t.Errorf("%v: %v", refs, err)
			continue
		}
		for _, workflow := range []driver.Workflow{driver.Deploy, driver.Preview} {
			p, err := combined.Program(workflow)
			if err != nil || !strings.Contains(string(p.Source), `"flux@1": part_`) {
				t.Errorf("%v: %s: %v\n%s", refs, workflow, err, p.Source)
			}
			for name, text := range p.Modules {
				if strings.HasPrefix(name, "flux_1__") && strings.Contains(string(text), `load("lockstep:`) {
					t.Errorf("%v: module %s loads a text that its driver has not pinned", refs, name)
				}
			}
		}
	}
}

// D53: one run carries a rollout through environments of several drivers. Every text of theirs is pinned, each driver keeps its own
// modules, also where two have one of the same name, and the order in which they are given is of no consequence.
func TestDriversAreCombined(t *testing.T) {
	t.Parallel()
	argo, plain, workflows := embedded(t, "argo-rollouts@1"), embedded(t, "kubernetes@1"), embedded(t, "argo-workflows@1")
	all, err := driver.Combine(argo, plain, workflows, plain)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := driver.Combine(workflows, plain, argo); err != nil || again.Digest() != all.Digest() {
		t.Errorf("in another order: %v, digests differ", err)
	}
	if got := all.SupportedSteps(); !slices.Equal(got, argo.SupportedSteps()) {
		t.Errorf("found steps %v", got)
	}
	archive, err := all.Export()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := driver.Import(archive)
	if err != nil || kept.Digest() != all.Digest() {
		t.Fatalf("kept and read again: %v", err)
	}
	for _, workflow := range []driver.Workflow{driver.Deploy, driver.Preview} {
		p, err := kept.Program(workflow)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"argo-rollouts@1", "kubernetes@1", "argo-workflows@1"} {
			if !strings.Contains(string(p.Source), `"`+ref+`": part_`) {
				t.Errorf("%s has no part of %s:\n%s", workflow, ref, p.Source)
			}
		}
		for _, name := range []string{"kubernetes_1__desired.star", "argo_workflows_1__desired.star"} {
			if text := string(p.Modules[name]); text == "" || strings.Contains(text, `load("lockstep:`) {
				t.Errorf("module %s is missing, or loads a text that its driver has not pinned:\n%.300s", name, text)
			}
		}
	}
	// D53: of the three, Argo Workflows alone leaves something behind when a rollout is cancelled.
	p, err := kept.Program(driver.Cancelled)
	if err != nil || !strings.Contains(string(p.Source), `"argo-workflows@1": part_0`) || strings.Contains(string(p.Source), "kubernetes@1") {
		t.Errorf("after a cancellation: %v\n%s", err, p.Source)
	}
	other, err := driver.Combine(argo, plain)
	if err == nil && other.Has(driver.Cancelled) {
		t.Error("two of them leave nothing behind; found a program for cancelled rollouts")
	}
	if err != nil || other.Digest() == all.Digest() {
		t.Errorf("two of the three: %v, the digest is the same", err)
	}
}

// D53: what cannot be combined is refused with the reason, and nothing is combined wrongly.
func TestDriversThatCannotBeCombined(t *testing.T) {
	t.Parallel()
	of := func(change func(files map[string][]byte)) *driver.Bundle {
		files := hosted(`load("lockstep:walk@1", "walk")`)
		files["v1/p.star"] = []byte("part = struct()\n")
		files["manifest.json"] = []byte(strings.Replace(string(files["manifest.json"]), `"v1/d.star"}}`,
			`"v1/d.star"},"modules":{"p.star":"v1/p.star"},"parts":{"deploy":{"module":"p.star","name":"part"}}}`, 1))
		if change != nil {
			change(files)
		}
		bundles, err := driver.FromFiles(files)
		if err != nil {
			t.Fatal(err)
		}
		return bundles[0]
	}
	plain := embedded(t, "kubernetes@1")
	if c, err := driver.Combine(plain, of(nil)); err != nil || c.Has(driver.Preview) {
		t.Errorf("without a preview of one of them: %v, previews: %v", err, err == nil)
	}
	without := of(func(files map[string][]byte) {
		files["manifest.json"] = []byte(strings.Replace(string(files["manifest.json"]),
			`,"parts":{"deploy":{"module":"p.star","name":"part"}}`, "", 1))
	})
	children := of(func(files map[string][]byte) {
		files["v1/p.star"] = []byte("part = struct(apply = lambda r, v, e: [start_workflow(\"main.star\", {}), start_workflow(\"p.star\")])\n")
	})
	for problem, b := range map[string]*driver.Bundle{"driver x@1 has no parts.deploy": without, "starts workflows": children} {
		if _, err := driver.Combine(plain, b); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), problem) {
			t.Errorf("found %v, expected %q", err, problem)
		}
	}
	files := hosted("pass")
	files["manifest.json"] = []byte(strings.Replace(string(files["manifest.json"]), `"v1/d.star"}}`,
		`"v1/d.star"},"parts":{"deploy":{"module":"q.star","name":"part"}}}`, 1))
	if _, err := driver.FromFiles(files); err == nil || !strings.Contains(err.Error(), "/parts/deploy/module") {
		t.Errorf("a part of a module that the manifest does not have: %v", err)
	}
}
