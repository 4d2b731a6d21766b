// Command charts writes the parts of the Helm charts that are derived from other files (package derive lists them), the schemas against
// which kubeconform validates the charts (package kinds), and the charts rendered with each file of values. `make charts` runs its tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-cd/lockstep/tools/charts/derive"
	"github.com/lockstep-cd/lockstep/tools/charts/kinds"
	"github.com/lockstep-cd/lockstep/tools/charts/render"
)

func main() {
	check := flag.Bool("check", false, "change nothing; fail when a file would be changed")
	root := flag.String("root", "../..", "the root of the checkout")
	schemas := flag.Bool("schemas", false, "write the schemas of kinds into tools/charts/schemas and nothing else; downloads modules")
	into := flag.String("render", "", "write the charts, rendered with each file of values, into this folder and nothing else")
	flag.Parse()
	var err error
	switch {
	case *schemas:
		err = kinds.Write(context.Background(), filepath.Join(*root, "tools/charts/schemas"))
	case *into != "":
		err = renderAll(context.Background(), *root, *into)
	default:
		err = derived(*root, *check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

// derived writes stale derived files or, with check, fails if there are any.
func derived(root string, check bool) error {
	stale, err := derive.Stale(root, !check)
	if err != nil {
		return err
	}
	for _, name := range stale {
		fmt.Fprintln(os.Stderr, "charts:", name)
	}
	if check && len(stale) > 0 {
		return fmt.Errorf("%d files differ from what they are derived from; run `make charts-write`", len(stale))
	}
	return nil
}

// thirdParty returns the third-party kinds that the charts create if the cluster has them.
func thirdParty() []string {
	return []string{
		"monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PodMonitor",
		"monitoring.coreos.com/v1/PrometheusRule",
	}
}

// renderAll writes <chart>-<values>.yaml for each file of values in testdata.
func renderAll(ctx context.Context, root, into string) error {
	files, err := filepath.Glob(filepath.Join(root, "tools/charts/testdata/*/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("values: found %d files, %w; expected some in tools/charts/testdata", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read values: %w", err)
		}
		var values map[string]any
		if err := yaml.UnmarshalStrict(text, &values); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		chart := filepath.Base(filepath.Dir(file))
		objects, _, err := render.Objects(ctx, render.Release{
			Chart: filepath.Join(root, "charts", chart), Name: chart, Namespace: "delivery", Values: values, APIs: thirdParty(),
		})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var all strings.Builder
		for _, o := range objects {
			all.WriteString("---\n" + o.Text)
		}
		if err := os.WriteFile(filepath.Join(into, chart+"-"+filepath.Base(file)), []byte(all.String()), 0o600); err != nil {
			return fmt.Errorf("write rendered chart: %w", err)
		}
	}
	return nil
}
