package trigger

import (
	"encoding/json"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// deepest is how deep settings within settings are shown.
const deepest = 5

func (c commands) kinds() *cobra.Command {
	return c.Asking("kinds", "List the kinds of triggers with their settings; with -o json, the schemas of their configurations",
		"  lockstep trigger kinds\n  lockstep trigger kinds -o json",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.TriggerKinds(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { kindTable(w, all) })
		})
}

// kindTable prints the kinds, each with its settings below it.
func kindTable(w io.Writer, all []client.TriggerKind) {
	command.Row(w, "KIND", "SETTING", "TYPE", "DEFAULT", "DESCRIPTION")
	for _, k := range all {
		state := "off"
		if k.Default {
			state = "on"
		}
		command.Row(w, journal.Human(k.Kind), "", "", state, k.Description)
		var s setting
		if json.Unmarshal(k.Schema, &s) == nil { // one that cannot be read is in the JSON
			s.rows(w, "", deepest)
		}
	}
}

// setting is a JSON Schema as far as it is shown.
type setting struct {
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Default     json.RawMessage    `json:"default"`
	Enum        json.RawMessage    `json:"enum"`
	Required    []string           `json:"required"`
	Properties  map[string]setting `json:"properties"`
	Items       *setting           `json:"items"`
	Values      json.RawMessage    `json:"additionalProperties"`
}

// rows prints the settings within one, by name: first those that are required.
func (s setting) rows(w io.Writer, prefix string, depth int) {
	if depth == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	slices.SortStableFunc(names, func(a, b string) int { return s.rank(a) - s.rank(b) })
	for _, name := range names {
		one, standard := s.Properties[name], ""
		switch {
		case s.rank(name) == 0:
			standard = "required"
		case one.Default != nil:
			standard = string(one.Default)
		}
		command.Row(w, "", prefix+name, one.kind(), standard, one.Description)
		one.rows(w, prefix+name+".", depth-1)
		if one.Items != nil {
			one.Items.rows(w, prefix+name+"[].", depth-1)
		}
	}
}

// rank is 0 for what is required and 1 for the rest.
func (s setting) rank(name string) int {
	if slices.Contains(s.Required, name) {
		return 0
	}
	return 1
}

// kind is the type of a setting, in words.
func (s setting) kind() string {
	switch {
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case s.Enum != nil:
		return "one of " + string(s.Enum)
	case s.Type == "object" && s.Properties == nil:
		var values setting
		if json.Unmarshal(s.Values, &values) == nil && values.Type != "" {
			return "object of " + values.Type
		}
	}
	return s.Type
}
