package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

var update = flag.Bool("update", false, "write OUTPUT.md")

// outputs is what each command prints with -o json. A command that is in neither list fails the test.
func outputs() map[string]any {
	return map[string]any{
		"application list": []client.Application{}, "application get": client.Application{}, "application create": client.Application{},
		"application archive": client.Application{}, "application restore": client.Application{},
		"application rollback-policy": client.RollbackPolicy{}, "application rollout-policy": client.RolloutPolicy{},
		"application metrics": []client.DeliveryMetrics{},
		"source list":         []client.Source{}, "source kinds": []client.SourceKind{}, "source hooks": []client.Sender{}, "source add": client.Source{}, "source set": client.Source{},
		"source versions": []client.Version{}, "source test": client.Sight{}, "source check-now": client.Sight{},
		"pipeline get": client.FlowDefinition{}, "pipeline set": client.FlowDefinition{},
		"version-set list": []client.VersionSet{}, "version-set get": client.VersionSet{}, "version-set wait": client.VersionSet{},
		"environment list": []client.Environment{}, "environment get": client.Environment{}, "environment create": client.Environment{},
		"environment archive": client.Environment{}, "environment restore": client.Environment{}, "environment approval": client.EnvironmentApproval{},
		"environment retry": client.Environment{},
		"driver list":       client.DriverList{}, "driver show": client.Driver{}, "driver check": []checkedDriver{}, "driver push": []checkedDriver{}, "driver pull": []checkedDriver{},
		"rollout list": []client.Rollout{}, "rollout get": client.Rollout{}, "rollout create": client.Rollout{}, "rollout approve": client.Rollout{},
		"rollout reject": client.Rollout{}, "rollout pause": client.Rollout{}, "rollout resume": client.Rollout{}, "rollout abort": client.Rollout{},
		"rollout retry": client.Rollout{}, "rollout cancel": client.Rollout{}, "rollout rollback": client.Rollout{}, "rollout break-glass": client.Rollout{}, "rollout keep": client.Rollout{}, "rollout watch": client.Transition{},
		"journal list": []client.JournalEntry{}, "member list": []client.Member{}, "member add": client.Member{}, "member role": client.Member{}, "member remove": client.Member{},
		"group list": []client.Group{}, "group set": client.Group{}, "token list": []client.AccessToken{}, "token create": client.AccessToken{}, "token revoke": client.AccessToken{},
		"agent list": []client.Agent{}, "agent get": client.Agent{}, "agent register": client.Agent{}, "agent rotate": client.Agent{}, "agent revoke": client.Agent{},
		"organization list": []client.Organization{}, "organization create": client.Organization{}, "organization rename": client.Organization{}, "whoami": client.Viewer{},
		"access list": []client.AccessChange{}, "admin verify-journal": client.JournalCheck{}, "publish": published{},
		"version": versionAnswer{}, "doctor": []doctor.Finding{}, "dev": stack.Endpoints{}, "dev env": map[string]string{}, "dev push": pushedImage{},
	}
}

// otherwise are commands whose output is not an object of ours, and why.
func otherwise() map[string]string {
	return map[string]string{
		"workflow":        "its subcommands print the engine's messages (proto/lockstep/autoflow/v1) as ProtoJSON",
		"agent authority": "issuer, user and seed, all strings",
		"demo":            "a story for people", "serve": "a service", "completion": "a script for a shell",
	}
}

// TestEveryOutputIsDocumented compares OUTPUT.md with the types that are encoded (-update writes it).
func TestEveryOutputIsDocumented(t *testing.T) {
	t.Parallel()
	known, other := outputs(), otherwise()
	var check func(cmd *cobra.Command, path string)
	check = func(cmd *cobra.Command, path string) {
		if _, excused := other[path]; excused {
			return
		}
		if _, ok := known[path]; !ok && !cmd.HasSubCommands() {
			t.Errorf("lockstep %s is new: say in outputs what it prints with -o json", path)
		}
		delete(known, path)
		for _, sub := range cmd.Commands() {
			check(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
	}
	check((&command{getenv: os.Getenv}).root(), "")
	for path := range known {
		t.Errorf("lockstep %s: there is no such command", path)
	}
	file, want := filepath.Join("..", "OUTPUT.md"), outputPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("OUTPUT.md is not what the commands print; -update writes it (-want +got):\n%s", diff)
	}
}

// outputPage is the page: commands, then the types that they print.
func outputPage() string {
	var page strings.Builder
	page.WriteString("# What commands print with `-o json`\n\n" +
		"The same fields with `-o yaml`. A field stays as it is within a major version: more may be added, none changes its name or its meaning.\n" +
		"*May be missing* are fields that are left out when there is nothing to say. `rollout watch`, and whatever has\n" +
		"`--watch`, prints one object on each line; `environment retry --application` an [ApplicationEnvironment](#applicationenvironment);\n" +
		"`environment approval` null where nothing is asked. `-o name` prints only what other commands take, a name or an identifier on each\n" +
		"line, where `lockstep application`, `environment`, `version-set`, `rollout`, `agent`, `member`, `group` or `source` list, get or make something.\n" +
		"Times are RFC 3339. This page is written from the types that are encoded (`go test ./tools/lockstep/cli -run Documented -update`).\n\n" +
		"| command | prints |\n|---|---|\n")
	types := map[string]reflect.Type{}
	for _, path := range slices.Sorted(maps.Keys(outputs())) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", path, printed(reflect.TypeOf(outputs()[path]), types))
	}
	for _, path := range slices.Sorted(maps.Keys(otherwise())) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", path, otherwise()[path])
	}
	// Types lead to types: until none was met that is new.
	for met := -1; met != len(types); {
		met = len(types)
		for _, typ := range maps.Clone(types) {
			fieldRows(typ, types)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		fmt.Fprintf(&page, "\n## %s\n\n| field | type | |\n|---|---|---|\n%s", name, fieldRows(types[name], types))
	}
	return page.String()
}

// fieldRows are the rows of a type, those of what it embeds among them.
func fieldRows(typ reflect.Type, types map[string]reflect.Type) string {
	var rows strings.Builder
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-":
			continue
		case f.Anonymous && name == "":
			rows.WriteString(fieldRows(f.Type, types))
			continue
		case name == "":
			name = f.Name
		}
		missing := ""
		if strings.Contains(options, "omit") {
			missing = "may be missing"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", name, printed(f.Type, types), missing)
	}
	return rows.String()
}

// printed is a type in words; a structure of ours is added to types.
func printed(typ reflect.Type, types map[string]reflect.Type) string {
	switch {
	case typ.Kind() == reflect.Pointer:
		return printed(typ.Elem(), types)
	case typ == reflect.TypeFor[time.Time]():
		return "time"
	case typ == reflect.TypeFor[json.RawMessage](), typ.Kind() == reflect.Interface:
		return "any JSON"
	case typ.Kind() == reflect.Slice:
		return "list of " + printed(typ.Elem(), types)
	case typ.Kind() == reflect.Map:
		return "object of " + printed(typ.Elem(), types)
	case typ.Kind() == reflect.Struct:
		types[typ.Name()] = typ
		return "[" + typ.Name() + "](#" + strings.ToLower(typ.Name()) + ")"
	case typ.Kind() == reflect.Bool:
		return "boolean"
	case typ.Kind() == reflect.String:
		return "string"
	default:
		return "number"
	}
}

func TestProblemsAreCounted(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]string{1: "1 problem found", 2: "2 problems found"} {
		if got := (unwellError{count}).Error(); got != want {
			t.Errorf("%d: got %q, want %q", count, got, want)
		}
	}
}
