// Package source holds the kinds of artifact sources: a schema for each, what a source of that kind points at, and which artifacts it
// accepts (R7, E61). A kind is to sources what a driver is to deployments: its configuration is opaque to tables, is validated and
// presented by its schema, and is versioned, so that new kinds do not change existing ones.
//
// It contacts no registry and no repository: the registry service does. The domain decides which version a source leads to.
package source

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// The kinds, by source_ref. A released kind never changes so that a valid configuration becomes invalid or changes its meaning: that
// requires a new major.
const (
	OCIImage = "oci-image@1"
	Git      = "git@1"
)

// A Kind is one kind of source.
type Kind struct {
	// Ref is the source_ref: name@major.
	Ref string
	// Schema is the JSON Schema of source_config, with gitlabUi annotations for a form (R23).
	Schema json.RawMessage

	compiled *schema.Schema
	parse    func(config json.RawMessage) (Source, []fault.Field)
}

// A Source is a parsed source_config.
type Source interface {
	// Key is what published artifacts are matched by: equal for all sources that point at the same artifacts.
	Key() string
	// Takes reports whether an artifact published under a tag ("" for none) belongs to the source.
	Takes(tag string) bool
	// Rank returns the position of a tag in the order of the selection, independent of when it was published: a text whose bytes compare as
	// the selection orders; always "" if only the time decides. Of equal rank, the one published last is the newest.
	Rank(tag string) string
	// Earliest reports whether the earliest of several publications of one artifact counts, because the selection orders by creation time.
	// Otherwise the last one counts: a tag or branch that moves back is followed.
	Earliest() bool
	// Interval is how often to poll the source; 0 for never.
	Interval() time.Duration
	// Place is the host whose rate limits a poll counts against.
	Place() string
}

//go:embed kinds/*.json
var files embed.FS

// kinds holds the compiled kinds. One that does not compile is a defect of the build, found by any test.
//
//nolint:gochecknoglobals // written once, by sync.OnceValue
var kinds = sync.OnceValue(func() []Kind {
	all := []Kind{
		{Ref: Git, parse: func(config json.RawMessage) (Source, []fault.Field) { return parseGit(config) }},
		{Ref: OCIImage, parse: func(config json.RawMessage) (Source, []fault.Field) { return parseImage(config) }},
	}
	for i := range all {
		text, err := files.ReadFile("kinds/" + all[i].Ref + ".json")
		if err != nil {
			panic(err)
		}
		if all[i].compiled, err = schema.Compile(text, schema.UI()); err != nil {
			panic(fmt.Sprintf("source: schema of %s: %v", all[i].Ref, err))
		}
		all[i].Schema = text
	}
	return all
})

// Kinds returns all kinds, ordered by name.
func Kinds() []Kind { return slices.Clone(kinds()) }

// Parse parses the configuration of a source, or reports everything that is wrong with it. Findings are named by JSON pointers into the
// source: /sourceRef, /sourceConfig/image.
func Parse(ref string, config json.RawMessage) (Source, []fault.Field) {
	kinds := kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Ref == ref })
	if i < 0 {
		names := make([]string, len(kinds))
		for i, k := range kinds {
			names[i] = k.Ref
		}
		return nil, []fault.Field{{Name: "/sourceRef", Problem: fmt.Sprintf("found %.60q; expected one of %s", ref, strings.Join(names, ", "))}}
	}
	if err := kinds[i].compiled.Validate(config); err != nil {
		return nil, under(fault.FieldsOf(err))
	}
	src, found := kinds[i].parse(config)
	if len(found) > 0 {
		return nil, under(found)
	}
	return src, nil
}

// foundText matches the part of a problem that shows what was found.
var foundText = regexp.MustCompile(`found "(?:[^"\\]|\\.)*"`)

// withoutCredential removes possible credentials: what precedes an @ or follows ? or #.
func withoutCredential(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		text = `found "…` + text[at:]
	}
	if at := strings.IndexAny(text, "?#"); at >= 0 {
		text = text[:at+1] + `…"`
	}
	return text
}

func under(found []fault.Field) []fault.Field {
	for i, f := range found {
		if f.Name != "" && !strings.HasPrefix(f.Name, "/") { // not even JSON: a line and a column, which a form cannot show
			found[i] = fault.Field{Problem: f.Name + ": " + f.Problem}
		}
		found[i].Name, found[i].Problem = "/sourceConfig"+found[i].Name, foundText.ReplaceAllStringFunc(found[i].Problem, withoutCredential)
	}
	return found
}

// decode decodes a configuration that fits its schema.
func decode(config json.RawMessage, into any) []fault.Field {
	if err := json.Unmarshal(config, into); err != nil {
		return []fault.Field{{Problem: err.Error()}}
	}
	return nil
}

// defaultInterval is the interval of a source that sets none.
const defaultInterval = 5 * time.Minute

func seconds(n int) time.Duration {
	if n == 0 {
		return defaultInterval
	}
	return time.Duration(n) * time.Second
}
