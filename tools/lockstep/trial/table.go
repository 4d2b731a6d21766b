// Package trial plays cases of a driver against a complete stack whose cluster is simulated: each case has an application, an environment,
// a namespace and a repository of its own, and rollouts with what they must lead to.
package trial

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// Suffix is what the names of files with such cases end in.
const Suffix = ".cluster.yaml"

// Case is what a driver deploys, and what its rollouts must lead to. Texts in it may have placeholders, such as ${namespace}.
type Case struct {
	// File is the table that the case is in.
	File string `json:"-"`
	Name string `json:"name"`
	// Timeout is how long the case may take, in seconds; 0 is two minutes.
	Timeout int `json:"timeout"`
	// Driver is name@major; empty for the newest major of the driver that is tested.
	Driver   string   `json:"driver"`
	Services []string `json:"services"`
	// Objects are put into the cluster first, and Files are committed to the repository.
	Objects []map[string]any  `json:"objects"`
	Files   map[string]string `json:"files"`
	// Environment and Application are the driver's configuration: of the environment, and of the application in it.
	Environment map[string]any `json:"environment"`
	Application map[string]any `json:"application"`
	// Pipeline is as createFlowDefinition takes it. Its deploy steps are given environment and config; without it there is one such step.
	Pipeline map[string]any `json:"pipeline"`
	Rollouts []Rollout      `json:"rollouts"`
}

// Rollout is one rollout of a case, of images that are pushed before it. A service without an image keeps the one that it has.
type Rollout struct {
	Images map[string]Image `json:"images"`
	Expect Expectation      `json:"expect"`
}

// Image is an image, and how its pods behave: degraded-at=50.
type Image struct {
	Tag      string `json:"tag"`
	Simulate string `json:"simulate"`
}

// Expectation is what a rollout must have led to. What is not set is not compared.
type Expectation struct {
	State string `json:"state"`
	// Reason is part of the reason for which it ended. It is required of a failure, which may be another one than the one that is meant.
	Reason      string            `json:"reason"`
	Environment string            `json:"environment"`
	Deployments map[string]string `json:"deployments"`
	Objects     []Object          `json:"objects"`
}

// Object is an object of the cluster, with fields that it must have, or absent. Of an object among the fields only the members that are
// given are compared; lists are compared item by item.
type Object struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Namespace  string         `json:"namespace"`
	Name       string         `json:"name"`
	Fields     map[string]any `json:"fields"`
	Absent     bool           `json:"absent"`
}

const defaultTimeout = 2 * time.Minute

func (c Case) timeout() time.Duration {
	if c.Timeout == 0 {
		return defaultTimeout
	}
	return time.Duration(c.Timeout) * time.Second
}

//go:embed table.json
var schemaText []byte

// tableSchema is the schema, compiled once. It is part of the build: any test finds a defect in it.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var tableSchema = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(schemaText) })

// Read reads a table of cases. The error is Invalid and names file, case and field.
func Read(file string) ([]Case, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cases: %w", err)
	}
	given, err := document(file, text)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(given)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	compiled, err := tableSchema()
	if err != nil {
		return nil, err
	}
	if err := compiled.Validate(encoded); err != nil {
		return nil, located(file, given, err)
	}
	var table struct {
		Cases []Case `json:"cases"`
	}
	if err := decode(encoded, &table); err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	for i := range table.Cases {
		c := &table.Cases[i]
		c.File = file
		if slices.ContainsFunc(table.Cases[:i], func(other Case) bool { return other.Name == c.Name }) {
			return nil, fault.New(fault.Invalid, "%s: case %q: name: found it a second time, expected a name of its own", file, c.Name)
		}
		if wrong := c.check(); len(wrong) > 0 {
			for n := range wrong {
				wrong[n].Name = fmt.Sprintf("%s: case %q: %s", file, c.Name, wrong[n].Name)
			}
			return nil, fault.InvalidFields(wrong...)
		}
	}
	return table.Cases, nil
}

// document is the one YAML document of a file.
func document(file string, text []byte) (any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var given, more any
	if err := decoder.Decode(&given); err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	if given == nil {
		return nil, fault.New(fault.Invalid, "%s: found nothing, expected cases under `cases`", file)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, fault.New(fault.Invalid, "%s: found a second YAML document, expected one, with all cases under `cases`", file)
	} else if !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	var wrong []fault.Field
	otherNames(given, "", func(pointer string, name any) {
		wrong = append(wrong, fault.Field{
			Name: file + ": " + place(given, pointer), Problem: fmt.Sprintf("found the name %v, which is no text, expected it in quotes", name),
		})
	})
	if len(wrong) > 0 {
		return nil, fault.InvalidFields(wrong...)
	}
	return given, nil
}

// otherNames reports the names of members that are no texts, with the JSON pointer of the object that they are in.
func otherNames(value any, pointer string, report func(pointer string, name any)) {
	switch v := value.(type) {
	case []any:
		for i, each := range v {
			otherNames(each, fmt.Sprintf("%s/%d", pointer, i), report)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			otherNames(v[name], pointer+"/"+name, report)
		}
	case map[any]any:
		for name, each := range v {
			if text, ok := name.(string); ok {
				otherNames(each, pointer+"/"+text, report)
			} else {
				report(pointer, name)
			}
		}
	}
}

// located has the findings of the schema name file and case.
func located(file string, given any, err error) error {
	found := fault.FieldsOf(err)
	if len(found) == 0 {
		return fault.New(fault.Invalid, "%s: %w", file, err)
	}
	out := make([]fault.Field, len(found))
	for i, f := range found {
		out[i] = fault.Field{Name: file + ": " + place(given, f.Name), Problem: f.Problem}
	}
	return fault.InvalidFields(out...)
}

// place is a JSON pointer into a table for people: the case by its name, and the field in it.
func place(given any, pointer string) string {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	if len(parts) < 2 || parts[0] != "cases" {
		return pointer
	}
	name := parts[1]
	table, _ := given.(map[string]any)
	cases, _ := table["cases"].([]any)
	if i, err := strconv.Atoi(parts[1]); err == nil && i < len(cases) {
		one, _ := cases[i].(map[string]any)
		if own, ok := one["name"].(string); ok {
			name = strconv.Quote(own)
		}
	}
	return strings.TrimSuffix("case "+name+": "+strings.Join(parts[2:], "."), ": ")
}

// check reports what the schema cannot: names that are of nothing.
func (c Case) check() []fault.Field {
	var wrong []fault.Field
	problem := func(at, format string, args ...any) {
		wrong = append(wrong, fault.Field{Name: at, Problem: fmt.Sprintf(format, args...)})
	}
	known := func(at, service string) {
		if !slices.Contains(c.Services, service) {
			problem(at, "found the service %q, expected one of %q", service, c.Services)
		}
	}
	kind := func(at, apiVersion, kind string) {
		if _, ok := apiserver.ByKind(apiVersion, kind); !ok {
			problem(at, "found %s %s, expected a kind of the simulated cluster, such as apps/v1 Deployment", apiVersion, kind)
		}
	}
	for i, o := range c.Objects {
		apiVersion, _ := o["apiVersion"].(string)
		name, _ := o["kind"].(string)
		kind(fmt.Sprintf("objects.%d", i), apiVersion, name)
	}
	for i, r := range c.Rollouts {
		at := fmt.Sprintf("rollouts.%d.", i)
		for _, service := range slices.Sorted(maps.Keys(r.Images)) {
			known(at+"images", service)
		}
		for _, service := range c.Services {
			if _, pushed := r.Images[service]; i == 0 && !pushed {
				problem(at+"images", "found none for %s, expected one for each service in the first rollout", service)
			}
		}
		if r.Expect.State == "failed" && strings.TrimSpace(r.Expect.Reason) == "" {
			problem(at+"expect.reason", "found none, expected a part of the reason for which it fails: a driver with a defect fails as well")
		}
		for _, service := range slices.Sorted(maps.Keys(r.Expect.Deployments)) {
			known(at+"expect.deployments", service)
		}
		for n, o := range r.Expect.Objects {
			at := fmt.Sprintf("%sexpect.objects.%d", at, n)
			kind(at, o.APIVersion, o.Kind)
			if o.Absent && o.Fields != nil {
				problem(at, "found absent and fields, expected one of them")
			}
		}
	}
	return append(wrong, c.unknownPlaceholders()...)
}
