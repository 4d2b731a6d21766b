package crash

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// documented compares what a running service exposes at /metrics with the reference: it lists each metric of ours with its type, and with
// the service that exposes it. The reference is written from descriptions of collectors, which have no types; an exposition has them.
func documented(t *testing.T, service, exposition string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if start := strings.Index(exposition, "# HELP "); start > 0 {
		exposition = exposition[start:] // behind the status and the header
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(exposition))
	if err != nil || len(families) == 0 {
		t.Fatalf("metrics of %s: %d, %v", service, len(families), err)
	}
	ours := 0
	for name, family := range families {
		if !strings.HasPrefix(name, "lockstep_") {
			continue
		}
		ours++
		_, section, found := strings.Cut(string(page), "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if kind := strings.ToLower(family.GetType().String()); !found || !strings.Contains(section, "- Type: "+kind+"\n") {
			t.Errorf("the reference of metrics lacks %s, a %s of %s", name, kind, service)
		}
		_, by, _ := strings.Cut(section, "- Exposed by: ")
		by, _, _ = strings.Cut(by, "\n")
		if by != "all services" && !slices.Contains(strings.Split(by, ", "), service) {
			t.Errorf("the reference says that %s is exposed by %s; %s exposes it as well", name, by, service)
		}
	}
	if ours < 5 {
		t.Errorf("%s exposes %d metrics of ours, expected more", service, ours)
	}
}
