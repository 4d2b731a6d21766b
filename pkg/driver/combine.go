package driver

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A pipeline whose environments have different drivers is still one rollout, and one rollout is one run (D25, D53). Combine makes the
// driver of that run out of those of the environments: its deploy program hands a function to the walk that returns the part of each
// environment's driver. All texts are those of the bundles, so the digest of the combination pins every one of them.

// Combined is the name of a driver that Combine returns. It is kept with rollouts and never installed.
const Combined = "combined"

// parts is what a combination uses of a driver.
type parts struct {
	Deploy    *export `json:"deploy"`
	Preview   *export `json:"preview"`
	Plan      *export `json:"plan"`
	Cancelled *export `json:"cancelled"`
}

// export is a global of a module.
type export struct {
	Module string `json:"module"`
	Name   string `json:"name"`
}

func (p parts) byName() map[string]*export {
	all := map[string]*export{}
	if p.Deploy != nil {
		all["deploy"] = p.Deploy
	}
	if p.Preview != nil {
		all["preview"] = p.Preview
	}
	if p.Plan != nil {
		all["plan"] = p.Plan
	}
	if p.Cancelled != nil {
		all["cancelled"] = p.Cancelled
	}
	return all
}

// Combines reports whether the driver can be one of several in a pipeline.
func (b *Bundle) Combines() bool { return b.manifest.Parts.Deploy != nil }

// CombinesPreview reports whether a pipeline of several drivers can be previewed in this driver's environments.
func (b *Bundle) CombinesPreview() bool { return b.manifest.Parts.Preview != nil }

// CombinesPlan reports whether the driver's part of a pipeline of several drivers can be compared.
func (b *Bundle) CombinesPlan() bool { return b.manifest.Parts.Plan != nil }

// moduleLoad is a load at the beginning of a line, childStart a call that names a module otherwise, and ownStart one that names the program
// itself: that of a combination has the same name.
var (
	moduleLoad = regexp.MustCompile(`(?m)^(load\(\s*["'])([^"'\n]+)(["'])`)
	childStart = regexp.MustCompile(`\bstart_workflow\(`)
	ownStart   = regexp.MustCompile(`\bstart_workflow\("main\.star", `)
)

// Combine returns a driver whose deploy program carries a rollout through environments of all these drivers; each environment of the
// rollout's input names its own in the member driver. It has a preview, and a plan, if all of them have one, and a program for cancelled
// rollouts if one has. The order of the bundles does not matter. The error is Refused for a driver that cannot be combined, and for too
// many files.
func Combine(bundles ...*Bundle) (*Bundle, error) {
	bundles = slices.SortedFunc(slices.Values(bundles), func(a, b *Bundle) int { return strings.Compare(a.Ref(), b.Ref()) })
	bundles = slices.CompactFunc(bundles, func(a, b *Bundle) bool { return a.Ref() == b.Ref() })
	c := combination{
		files: map[string][]byte{
			"v1/configuration.json": []byte("{\"type\": \"object\"}\n"),
			"v1/none.star":          []byte("fail(\"a combination of drivers only deploys, previews and plans\")\n"),
		},
		manifest: manifestText{
			Ref: Combined, EnvironmentSchema: "v1/configuration.json", ApplicationEnvironmentSchema: "v1/configuration.json",
			Workflows: map[string]string{
				string(Onboarding): "v1/none.star", string(Setup): "v1/none.star", string(Deploy): "v1/deploy.star",
			},
			Modules: map[string]string{},
		},
	}
	previews, plans := true, true
	for i, b := range bundles {
		if !b.Combines() {
			return nil, fault.New(fault.Refused, "driver %s has no parts.deploy in its manifest, so it cannot be one of several in a pipeline", b.Ref())
		}
		if err := c.add(b); err != nil {
			return nil, err
		}
		if i == 0 {
			c.manifest.Steps = b.SupportedSteps()
		}
		c.manifest.Steps = slices.DeleteFunc(c.manifest.Steps, func(step string) bool { return !slices.Contains(b.manifest.Steps, step) })
		previews, plans = previews && b.CombinesPreview(), plans && b.CombinesPlan()
	}
	c.program("v1/deploy.star", "Takes a rollout through a pipeline of several drivers. Inputs: rollout, version_set, pipeline.",
		`load("lockstep:walk@1", "walk")`, bundles, func(b *Bundle) *export { return b.manifest.Parts.Deploy },
		`walk(rollout, version_set, pipeline, lambda environment: DRIVERS[environment["driver"]])`)
	if previews {
		c.examines(Preview, "Reports what a deploy would change.", bundles, func(b *Bundle) *export { return b.manifest.Parts.Preview })
	}
	if plans {
		c.examines(Plan, "Lists what a deploy would change.", bundles, func(b *Bundle) *export { return b.manifest.Parts.Plan })
	}
	none := func(b *Bundle) bool { return b.manifest.Parts.Cancelled == nil }
	if cancels := slices.DeleteFunc(slices.Clone(bundles), none); len(cancels) > 0 {
		c.manifest.Workflows[string(Cancelled)] = "v1/cancelled.star"
		c.program("v1/cancelled.star", "Stops what a cancelled rollout has left behind. Inputs: cancelled, rollout, version_set, pipeline.",
			`load("lockstep:idiom@1", "together")`, cancels, func(b *Bundle) *export { return b.manifest.Parts.Cancelled },
			`problems = together([
    (DRIVERS[environment["driver"]], rollout, environment)
    for environment in rollout["environments"]
    if environment["id"] in cancelled["environments"] and environment["driver"] in DRIVERS
])
found = [problem for problem in problems if problem]
if found:
    fail("; ".join(found))`)
	}
	text, err := json.MarshalIndent(c.manifest, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the manifest of a combination: %w", err)
	}
	c.files[manifestFile] = append(text, '\n')
	if len(c.files) > maxFiles {
		return nil, fault.New(fault.Refused, "the drivers of the pipeline have %d files together; expected at most %d", len(c.files), maxFiles)
	}
	return build(c.files)
}

// manifestText is a manifest as it is written.
type manifestText struct {
	Ref                          string            `json:"ref"`
	Steps                        []string          `json:"supported_pipeline_steps"`
	EnvironmentSchema            string            `json:"environment_schema"`
	ApplicationEnvironmentSchema string            `json:"application_environment_schema"`
	Workflows                    map[string]string `json:"workflows"`
	Modules                      map[string]string `json:"modules"`
}

// combination is a driver in the making.
type combination struct {
	files    map[string][]byte
	manifest manifestText
}

// add adds the modules of a bundle, under names that no other bundle's have, with its own texts of host modules.
func (c *combination) add(b *Bundle) error {
	texts := hostOf(b.files)
	for name, file := range b.manifest.Modules {
		texts[name] = b.files[file]
	}
	for name, text := range texts {
		if childStart.Match(ownStart.ReplaceAll(text, nil)) {
			return fault.New(fault.Refused, "driver %s starts workflows from its modules (%s), so it cannot be one of several in a pipeline", b.Ref(), name)
		}
		own := moduleOf(b, name)
		if _, taken := c.manifest.Modules[own]; taken {
			return fault.New(fault.Refused, "driver %s has two modules whose names differ from %q in no letter or digit", b.Ref(), name)
		}
		c.manifest.Modules[own] = "v1/" + own
		c.files["v1/"+own] = moduleLoad.ReplaceAllFunc(text, func(load []byte) []byte {
			m := moduleLoad.FindSubmatch(load)
			if _, loads := texts[string(m[2])]; !loads {
				return load
			}
			return []byte(string(m[1]) + moduleOf(b, string(m[2])) + string(m[3]))
		})
	}
	return nil
}

// examines adds a program that reports on every environment, and changes nothing.
func (c *combination) examines(w Workflow, doc string, bundles []*Bundle, part func(*Bundle) *export) {
	path := "v1/" + string(w) + ".star"
	c.manifest.Workflows[string(w)] = path
	c.program(path, doc+" Inputs: preview, rollout, version_set.", `load("lockstep:idiom@1", "emit")`, bundles, part,
		`emit("rollout.previewed", {
    "preview_id": preview["id"],
    "environments": [DRIVERS[environment["driver"]](rollout, version_set, environment) for environment in rollout["environments"]],
})`)
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// moduleOf is the name of a bundle's module in a combination. What is before the double underscore contains none.
func moduleOf(b *Bundle, name string) string {
	plain := func(s string) string { return noName.ReplaceAllString(s, "_") }
	return plain(b.Ref()) + "__" + plain(strings.TrimSuffix(name, ".star")) + ".star"
}

// program writes a program that chooses among the parts of all bundles.
func (c *combination) program(path, doc, load string, bundles []*Bundle, part func(*Bundle) *export, last string) {
	var loads, entries strings.Builder
	for i, b := range bundles {
		fmt.Fprintf(&loads, "load(%q, part_%d = %q)\n", moduleOf(b, part(b).Module), i, part(b).Name)
		fmt.Fprintf(&entries, "    %q: part_%d,\n", b.Ref(), i)
	}
	c.files[path] = []byte(fmt.Sprintf("\"\"\"%s\"\"\"\n\n%s\n%s\nDRIVERS = {\n%s}\n\n%s\n", doc, load, loads.String(), entries.String(), last))
}
