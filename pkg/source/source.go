// Package source holds the kinds of artifact sources: a schema for each, what a source of that kind points at, and which
// artifacts it takes (R7, E61). A kind is to sources what a driver is to deployments: its configuration is opaque to
// tables, is validated and reflected by its schema, and is versioned, so that kinds grow without a change to what exists.
//
// It asks no registry and no repository: that is the registry service's. Which version a source leads to is the domain's.
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

// The kinds there are, by source_ref. A released one is never changed so that a valid configuration becomes invalid or
// means something else: that is a new major beside it.
const (
	OCIImage = "oci-image@1"
	Git      = "git@1"
)

// A Kind is one kind of source.
type Kind struct {
	// Ref is the source_ref: name@major.
	Ref string
	// Schema is the JSON Schema of source_config, with gitlabUi annotations for a form to reflect on (R23).
	Schema json.RawMessage

	compiled *schema.Schema
	parse    func(config json.RawMessage) (Source, []fault.Field)
}

// A Source is a source_config that has been understood.
type Source interface {
	// Key is what a published artifact is looked up by: equal for all sources that point at the same artifacts.
	Key() string
	// Takes reports whether an artifact that was published under a tag ("" for none) belongs to the source.
	Takes(tag string) bool
	// Rank is how high an artifact that was published under a tag is in the order of the selection, whenever it was published: a
	// text whose bytes compare as the selection orders, and "" for all where time alone decides. Of equal rank, the one that was
	// published last is the newest.
	Rank(tag string) string
	// Earliest reports whether of several publications of one artifact the earliest is the one that counts, since it goes by when
	// the artifact was made. Otherwise the last one does: a tag or branch that moves back is followed.
	Earliest() bool
	// Interval is how often it has to be asked whether there is something new; 0 for never.
	Interval() time.Duration
	// Place is the host whose limits such a question counts against.
	Place() string
}

//go:embed kinds/*.json
var files embed.FS

// kinds are compiled once. One that does not compile is a defect of the build, found by any test.
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

// Kinds are all kinds, in the order of their names.
func Kinds() []Kind { return slices.Clone(kinds()) }

// Parse understands the configuration of a source, or says everything that is wrong with it. Findings are named by JSON
// pointers into the source: /sourceRef, /sourceConfig/image.
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

// foundText is where a problem shows what was found.
var foundText = regexp.MustCompile(`found "(?:[^"\\]|\\.)*"`)

// withoutCredential leaves out what may be one: what stands before an @ or behind ? and #.
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
		if f.Name != "" && !strings.HasPrefix(f.Name, "/") { // not even JSON: a line and a column, which no form has
			found[i] = fault.Field{Problem: f.Name + ": " + f.Problem}
		}
		found[i].Name, found[i].Problem = "/sourceConfig"+found[i].Name, foundText.ReplaceAllStringFunc(found[i].Problem, withoutCredential)
	}
	return found
}

// decode is for configurations that fit their schema already.
func decode(config json.RawMessage, into any) []fault.Field {
	if err := json.Unmarshal(config, into); err != nil {
		return []fault.Field{{Problem: err.Error()}}
	}
	return nil
}

// defaultInterval is how often a source is asked that does not say.
const defaultInterval = 5 * time.Minute

func seconds(n int) time.Duration {
	if n == 0 {
		return defaultInterval
	}
	return time.Duration(n) * time.Second
}
