package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Kind is a kind of trigger, as forms need it.
type Kind struct {
	Kind core.TriggerKind
	// Description says when one begins a rollout.
	Description string
	// Schema describes its configuration, in JSON Schema.
	Schema json.RawMessage
	// Default is whether an application has one without saving it.
	Default bool
}

// Kinds are all kinds, in the order in which they are shown.
func Kinds() []Kind {
	inputs := property("inputs", `"type":"object","maxProperties":50,"description":"The inputs of its rollouts, as the pipeline declares them."`)
	until := property("until", `"type":"string","maxLength":63,"description":"The last environment that rollouts go to; without it, the whole pipeline."`)
	return []Kind{
		{
			Kind:        core.TriggerVersion,
			Description: "A rollout begins when the application has a new version set.",
			Schema: object("", until, inputs,
				property("quiet_seconds", `"type":"integer","minimum":0,"maximum":3600,"default":120,`+
					`"description":"How long no other version set may arrive before it begins."`),
				property("at_most_seconds", `"type":"integer","minimum":0,"maximum":86400,"default":900,`+
					`"description":"How long it waits at most, however many arrive."`),
				property("services", patterns("Only new versions of these services begin a rollout; * stands for any text. Without it, of all.")),
				property("sources", patterns("Only new versions of these sources begin a rollout, by the name of an image or of a repository, such as "+
					"registry.example.com/shop/api; * stands for any text. Without it, of all.")),
				property("versions", `"type":"string","maxLength":256,`+
					`"description":"The range that every new version has to be in, such as >=1.2.0 <2.0.0; without it, any."`),
				property("labels", fmt.Sprintf(`"type":"object","minProperties":1,"maxProperties":%d,"additionalProperties":{"type":"string","maxLength":%d},`+
					`"description":"The labels and annotations that every new image has to have, each with its value; * stands for any text."`, maxMembers, maxPattern)),
				property("facts", string(factsSchema())),
			),
		},
		{
			Kind: core.TriggerGit,
			Description: "A rollout begins when a source of kind git has a new commit, of the files that it is about. Commits that Lockstep made itself " +
				"begin none. A new application has one from its first such source on.",
			Schema: object("", until, inputs,
				property("quiet_seconds", `"type":"integer","minimum":0,"maximum":3600,"default":0,`+
					`"description":"How long no other version set may arrive before it begins."`),
				property("at_most_seconds", `"type":"integer","minimum":0,"maximum":86400,"default":900,`+
					`"description":"How long it waits at most, however many arrive."`),
				property("repositories", patterns("Only commits of these repositories, by host and path such as git.example.com/shop/config, begin a rollout; * stands for any text. Without it, of all.")),
			),
		},
		{
			Kind: core.TriggerManual, Default: true,
			Description: "People and machines begin rollouts in the console, with the command line, from a chat or through the API. Rolling back is always possible.",
			Schema:      object(""),
		},
		{
			Kind: core.TriggerDrift,
			Description: "What is live in an environment is deployed again when a resource there is missing, extra or different. It waits while a " +
				"rollout is under way, and for a time after it.",
			Schema: object("",
				property("window_seconds", `"type":"integer","minimum":0,"maximum":86400,"default":300,`+
					`"description":"How long after the last rollout drift does not count: observers may lag behind."`),
				property("environments", patterns("Only drift in these environments begins a rollout; without it, in all of the pipeline.")),
			),
		},
		{
			Kind:        core.TriggerSchedule,
			Description: "A rollout of the newest version set begins at times.",
			Schema: object(`"cron"`, until, inputs,
				property("cron", `"type":"string","minLength":1,"maxLength":256,`+
					`"description":"Minute, hour, day of the month, month and day of the week, such as 0 6 * * 1-5; or @hourly, @daily, @weekly."`),
				property("time_zone", `"type":"string","maxLength":100,"default":"UTC","description":"Where the times are, such as Europe/Berlin."`),
			),
		},
		{
			Kind:        core.TriggerEvent,
			Description: "A rollout of the newest version set begins when an event arrives, such as from a build.",
			Schema: object(`"types"`, until, inputs,
				property("types", patterns("The types of the events; * stands for any text.")),
				property("sources", patterns("Only events of these sources; without it, of all.")),
				property("data", `"type":"object","maxProperties":20,"additionalProperties":{"type":"string","maxLength":256},`+
					`"description":"What members of the data have to be, by their path, such as build.branch; * stands for any text."`),
				editSchema(),
			),
		},
		{
			Kind: core.TriggerChain,
			Description: "Rollouts of other applications follow those of this one, block after block, or rollouts of this one follow theirs. " +
				"An application takes part in a chain only if it follows the one that the chain begins with.",
			Schema: object("", inputs,
				property("blocks", fmt.Sprintf(`"type":"array","minItems":1,"maxItems":%d,`+
					`"description":"The applications whose rollouts follow those of this one. Each block begins when all of the one before are complete.",`+
					`"items":%s`, maxBlocks, object("", property("applications", patterns("Their names; * stands for any text.")),
					property("labels", fmt.Sprintf(`"type":"object","minProperties":1,"maxProperties":%d,"additionalProperties":{"type":"string","maxLength":63},`+
						`"description":"The labels that they have, each with its value; beside names, both have to match."`, core.MaxLabels)),
					property("drivers", patterns("The drivers that deploy them in an environment of their pipeline, such as kubernetes@1; * stands for any text. Beside names and labels, all have to match.")))),
				),
				property("environment", `"type":"string","maxLength":63,`+
					`"description":"The environment of this application after which the first block begins; without it, after its whole pipeline."`),
				property("follows", patterns("The applications whose chains this one takes part in; * stands for any text.")),
				property("until", `"type":"string","maxLength":63,`+
					`"description":"The last environment that rollouts of this application go to when it follows; without it, the whole pipeline."`),
			),
		},
	}
}

func property(name, rest string) string { return fmt.Sprintf(`%q:{%s}`, name, rest) }

func patterns(description string) string {
	return fmt.Sprintf(`"type":"array","maxItems":%d,"items":{"type":"string","minLength":1,"maxLength":256},"description":%q`, maxPatterns, description)
}

func object(required string, properties ...string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":[%s],"properties":{%s}}`,
		required, strings.Join(properties, ","),
	))
}

// The bounds of configurations.
const (
	maxPatterns = 50
	maxPattern  = 256
	maxMembers  = 20
	maxConfig   = 16 << 10
	maxBlocks   = 20
)

// config is the configuration of any kind: a kind has only the members of its schema.
type config struct {
	Until         string            `json:"until,omitempty"`
	QuietSeconds  *int              `json:"quiet_seconds,omitempty"`
	AtMostSeconds *int              `json:"at_most_seconds,omitempty"`
	Services      []string          `json:"services,omitempty"`
	Versions      string            `json:"versions,omitempty"`
	WindowSeconds *int              `json:"window_seconds,omitempty"`
	Environments  []string          `json:"environments,omitempty"`
	Cron          string            `json:"cron,omitempty"`
	TimeZone      string            `json:"time_zone,omitempty"`
	Types         []string          `json:"types,omitempty"`
	Sources       []string          `json:"sources,omitempty"`
	Data          map[string]string `json:"data,omitempty"`
	Blocks        []block           `json:"blocks,omitempty"`
	Environment   string            `json:"environment,omitempty"`
	Follows       []string          `json:"follows,omitempty"`
	Repositories  []string          `json:"repositories,omitempty"`
	Inputs        json.RawMessage   `json:"inputs,omitempty"`
	Edit          *edit             `json:"edit,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Facts         *facts            `json:"facts,omitempty"`
}

// block selects applications of a chain, by name, by label or by both.
type block struct {
	Applications []string          `json:"applications,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Drivers      []string          `json:"drivers,omitempty"`
}

// The defaults of D58 and R4-10.
const (
	defaultQuiet  = 2 * time.Minute
	defaultAtMost = 15 * time.Minute
	defaultWindow = 5 * time.Minute
)

func seconds(n *int, otherwise time.Duration) time.Duration {
	if n == nil {
		return otherwise
	}
	return time.Duration(*n) * time.Second
}

// quiet is how long a trigger of a kind waits for more version sets.
func (c config) quiet(kind core.TriggerKind) time.Duration {
	switch kind {
	case core.TriggerVersion:
		return seconds(c.QuietSeconds, defaultQuiet)
	case core.TriggerGit:
		return seconds(c.QuietSeconds, 0)
	case core.TriggerManual, core.TriggerDrift, core.TriggerSchedule, core.TriggerEvent, core.TriggerChain:
	}
	return 0
}

// Ranges knows ranges of versions.
type Ranges interface {
	// Check is nil for a range that can be read.
	Check(within string) error
	// Contains reports whether a version is in a range that Check accepted.
	Contains(within, version string) bool
}

// members are those that the configuration of a kind may have.
func members(kind core.TriggerKind) ([]string, bool) {
	for _, k := range Kinds() {
		if k.Kind != kind {
			continue
		}
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(k.Schema, &schema) // ours
		names := []string{}
		for name := range schema.Properties {
			names = append(names, name)
		}
		slices.Sort(names)
		return names, true
	}
	return nil, false
}

// readConfig reads and checks the configuration of a kind.
func readConfig(kind core.TriggerKind, text json.RawMessage, ranges Ranges) (config, error) {
	var c config
	if len(text) == 0 {
		text = json.RawMessage(`{}`)
	}
	known, exists := members(kind)
	if !exists {
		return c, invalid("/kind", "found %.100q; expected version, git, manual, drift, schedule, event or chain", string(kind))
	}
	if len(text) > maxConfig {
		return c, invalid("/config", "found %d bytes; expected at most %d", len(text), maxConfig)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return c, invalid("/config", "found no JSON object")
	}
	for name := range given {
		if !slices.Contains(known, name) {
			return c, invalid("/config/"+name, "a trigger of kind %s has no such setting; expected %s", kind, either(known))
		}
	}
	if err := checkFilters(given); err != nil {
		return c, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&c); err != nil {
		if member, problem, ok := core.WrongMember(err); ok {
			return c, invalid("/config/"+member, "%s", problem)
		}
		return c, invalid("/config", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	found := c.check(kind, ranges)
	if len(found) > 0 {
		return c, fault.InvalidFields(found...)
	}
	return c, nil
}

func either(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// memberPattern is the path of a member of an event's data.
const memberPattern = `^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,9}$`

var memberPath = regexp.MustCompile(memberPattern)

func (c config) check(kind core.TriggerKind, ranges Ranges) (found []fault.Field) {
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: "/config/" + field, Problem: fmt.Sprintf(format, args...)})
	}
	between := func(field string, n *int, most int) {
		if n != nil && (*n < 0 || *n > most) {
			wrong(field, "found %d; expected 0 to %d", *n, most)
		}
	}
	between("quiet_seconds", c.QuietSeconds, 3600)
	between("at_most_seconds", c.AtMostSeconds, 86400)
	between("window_seconds", c.WindowSeconds, 86400)
	if seconds(c.AtMostSeconds, defaultAtMost) < c.quiet(kind) {
		wrong("at_most_seconds", "found less than quiet_seconds; expected at least as much")
	}
	for field, list := range map[string][]string{
		"services": c.Services, "environments": c.Environments, "types": c.Types, "sources": c.Sources,
		"follows": c.Follows, "repositories": c.Repositories,
	} {
		if len(list) > maxPatterns {
			wrong(field, "found %d; expected at most %d", len(list), maxPatterns)
		}
		for i, one := range list {
			if one == "" || len(one) > maxPattern {
				wrong(fmt.Sprintf("%s/%d", field, i), "found %d bytes; expected 1 to %d", len(one), maxPattern)
			}
		}
	}
	if c.Until != "" {
		found = append(found, core.CheckName("/config/until", c.Until)...)
	}
	if kind == core.TriggerChain {
		found = append(found, c.checkChain()...)
	}
	if len(c.Inputs) > 0 && c.Inputs[0] != '{' {
		wrong("inputs", "found %.40q; expected an object of inputs by name", string(c.Inputs))
	}
	if c.Versions != "" {
		if err := ranges.Check(c.Versions); err != nil || len(c.Versions) > maxPattern {
			wrong("versions", "found %.100q; expected a range of versions, such as >=1.2.0 <2.0.0", c.Versions)
		}
	}
	if kind == core.TriggerSchedule {
		if _, err := cron.Parse(c.Cron); err != nil {
			wrong("cron", "found %.100q: %s; expected five fields, such as 0 6 * * 1-5", c.Cron, err)
		}
		if _, err := c.location(); err != nil {
			wrong("time_zone", "found %.100q; expected a time zone such as Europe/Berlin", c.TimeZone)
		}
	}
	if kind == core.TriggerEvent && len(c.Types) == 0 {
		wrong("types", "found none; expected the types of the events that begin a rollout")
	}
	if c.Edit != nil {
		found = append(found, c.Edit.check()...)
	}
	found = append(found, c.checkLabels()...)
	if c.Facts != nil {
		found = append(found, c.Facts.check()...)
	}
	if len(c.Data) > maxMembers {
		wrong("data", "found %d members; expected at most %d", len(c.Data), maxMembers)
	}
	for path, want := range c.Data {
		if !memberPath.MatchString(path) || len(want) > maxPattern {
			wrong("data", "found %.100q; expected the path of a member, such as build.branch, with a pattern of at most %d bytes", path, maxPattern)
		}
	}
	slices.SortFunc(found, func(a, b fault.Field) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func (c config) location() (*time.Location, error) {
	if c.TimeZone == "" {
		return time.UTC, nil
	}
	if c.TimeZone == "Local" {
		return nil, fmt.Errorf("found %q", c.TimeZone)
	}
	return time.LoadLocation(c.TimeZone)
}

// next is when a schedule is due after an instant; zero if never.
func (c config) next(after time.Time) (time.Time, error) {
	e, err := cron.Parse(c.Cron)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the cron expression: %w", err)
	}
	location, err := c.location()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time zone: %w", err)
	}
	return e.Next(after, location), nil
}

// due is whether a schedule is due at an instant.
func (c config) due(at time.Time) bool {
	next, err := c.next(at.Add(-time.Second))
	return err == nil && next.Equal(at)
}
