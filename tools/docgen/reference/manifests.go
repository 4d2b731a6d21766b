package reference

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// manifests are the pages about a driver's manifest, the configuration of each built-in driver, and artifact sources.
func manifests(root string) ([]*page, error) {
	manifest, err := newPage("manifests.md", "pkg/driver/manifest.json")
	if err != nil {
		return nil, err
	}
	if err := writeSchemaFile(manifest, filepath.Join(root, "pkg/driver/manifest.json")); err != nil {
		return nil, err
	}
	manifest.heading(2, "Example")
	text, err := os.ReadFile(filepath.Join(root, "pkg/driver/bundles/argo-rollouts/manifest.json"))
	if err != nil {
		return nil, fmt.Errorf("manifest of the built-in driver: %w", err)
	}
	manifest.paragraph("The manifest of the built-in driver:")
	manifest.code("json", string(text))
	drivers, err := driverConfigs()
	if err != nil {
		return nil, err
	}
	sources, err := newPage("artifact-sources.md", "pkg/source/kinds")
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(root, "pkg/source/kinds/*.json"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("kinds of artifact sources: found %d, %w; expected some", len(names), err)
	}
	for _, name := range names {
		base := filepath.Base(name)
		sources.heading(2, base[:len(base)-len(".json")])
		if err := writeSchemaFile(sources, name); err != nil {
			return nil, err
		}
	}
	return []*page{manifest, drivers, sources}, nil
}

// writeSchemaFile adds the properties of a schema in a file.
func writeSchemaFile(p *page, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	if err := writeSchema(p, text); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func writeSchema(p *page, text []byte) error {
	s, err := newSchema(text)
	if err != nil {
		return err
	}
	p.paragraph(prose(sentence(s.root.text("description"))))
	return s.write(p, s.root)
}

// driverConfigs is the page about the configurations that the built-in drivers take.
func driverConfigs() (*page, error) {
	p, err := newPage("drivers.md", "the schemas in pkg/driver/bundles")
	if err != nil {
		return nil, err
	}
	set, err := driver.Embedded()
	if err != nil {
		return nil, fmt.Errorf("built-in drivers: %w", err)
	}
	for _, bundle := range set.All() {
		p.heading(2, bundle.Ref())
		p.heading(3, bundle.Ref()+" environment")
		p.paragraph("The configuration of an environment.")
		if err := writeSchema(p, bundle.EnvironmentSchema()); err != nil {
			return nil, fmt.Errorf("environment of %s: %w", bundle.Ref(), err)
		}
		text, config, err := example(bundle.Name() + "-environment.yaml")
		if err != nil {
			return nil, err
		}
		if err := bundle.ValidateEnvironment(config); err != nil {
			return nil, fmt.Errorf("example of an environment of %s: %w", bundle.Ref(), err)
		}
		p.code("yaml", text)
		p.heading(3, bundle.Ref()+" application")
		p.paragraph("The configuration of an application in an environment: `config` of a [step `deploy`](flow.md#step-deploy).")
		if err := writeSchema(p, bundle.ApplicationEnvironmentSchema()); err != nil {
			return nil, fmt.Errorf("application of %s: %w", bundle.Ref(), err)
		}
	}
	return p, nil
}
