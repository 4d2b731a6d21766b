package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const own = root
	tests := []struct {
		name string
		in   pkg
		want string // part of the only violation; "" for none
	}{
		{"core with the leaves", pkg{
			ImportPath: own + "services/domain/internal/core",
			Imports:    []string{"fmt", own + "pkg/fault", own + "pkg/clock"},
		}, ""},
		{"core and SQL", pkg{ImportPath: own + "services/domain/internal/core", Imports: []string{"database/sql"}}, "database/sql"},
		{
			"core and a third party",
			pkg{ImportPath: own + "services/domain/internal/core/rollout", Imports: []string{"go.starlark.net/starlark"}},
			"starlark",
		},
		{
			"core and its store",
			pkg{ImportPath: own + "services/domain/internal/core", Imports: []string{own + "services/domain/internal/store"}},
			"internal/store",
		},
		{"events and the store", pkg{
			ImportPath: own + "services/domain/internal/events",
			Imports:    []string{own + "services/domain/internal/store"},
		}, "internal/store"},
		{"api and pgx", pkg{ImportPath: own + "services/domain/internal/api/graph", Imports: []string{"github.com/jackc/pgx/v5"}}, "pgx"},
		{"store and NATS", pkg{ImportPath: own + "services/workflow/internal/store", Imports: []string{"github.com/nats-io/nats.go"}}, "nats"},
		{"store and generated SQL", pkg{
			ImportPath: own + "services/workflow/internal/store",
			Imports:    []string{own + "services/workflow/internal/store/query", "github.com/jackc/pgx/v5"},
		}, ""},
		{"an adapter and another", pkg{
			ImportPath: own + "services/workflow/internal/function",
			Imports:    []string{own + "services/workflow/internal/git"},
		}, "internal/git"},
		{"root knows its adapters", pkg{
			ImportPath: own + "services/workflow",
			Imports:    []string{own + "services/workflow/internal/git", own + "services/workflow/internal/store", own + "pkg/bus"},
		}, ""},
		{"root and another service", pkg{ImportPath: own + "services/workflow", Imports: []string{own + "services/domain"}}, "services/domain"},
		{
			"a test and another service",
			pkg{ImportPath: own + "services/workflow", XTestImports: []string{own + "services/domain"}},
			"by contract only",
		},
		{"a test of its own service", pkg{
			ImportPath:   own + "services/workflow",
			XTestImports: []string{own + "services/workflow/internal/store", "github.com/google/go-cmp/cmp"},
		}, ""},
		{"a room and one below", pkg{
			ImportPath: own + "services/workflow/internal/core/engine",
			Imports:    []string{own + "services/workflow/internal/core/history", own + "pkg/clock"},
		}, ""},
		{"a room and one above", pkg{
			ImportPath: own + "services/workflow/internal/core/history",
			Imports:    []string{own + "services/workflow/internal/core/engine"},
		}, "core/engine"},
		{"a room and a third party", pkg{
			ImportPath: own + "services/workflow/internal/core/engine",
			Imports:    []string{"go.starlark.net/starlark"},
		}, "starlark"},
		{"nouns and a room", pkg{
			ImportPath: own + "services/domain/internal/core",
			Imports:    []string{own + "services/domain/internal/core/rollout"},
		}, "core/rollout"},
		{"a room and the nouns", pkg{
			ImportPath: own + "services/domain/internal/core/rollout",
			Imports:    []string{own + "services/domain/internal/core"},
		}, ""},
		{"a view and what changes", pkg{
			ImportPath: own + "services/domain/internal/core/view",
			Imports:    []string{own + "services/domain/internal/core/rollout"},
		}, "core/rollout"},
		{"a room that is not listed", pkg{ImportPath: own + "services/workflow/internal/core/attic"}, "the list of rooms"},
		{"an unknown layer", pkg{ImportPath: own + "services/workflow/internal/manager"}, "no rule knows this layer"},
		{"an adapter of another service", pkg{ImportPath: own + "services/registry/internal/cluster"}, "no rule knows this layer"},
		{"a leaf and a third party", pkg{ImportPath: own + "pkg/id", Imports: []string{"github.com/google/uuid"}}, "uuid"},
		{"pkg and a service", pkg{ImportPath: own + "pkg/rpc", Imports: []string{own + "services/domain"}}, "services/domain"},
		{"pkg and the test kit", pkg{ImportPath: own + "pkg/bus", Imports: []string{own + "pkg/testkit/port"}}, "testkit"},
		{"a test in pkg and the test kit", pkg{ImportPath: own + "pkg/bus", XTestImports: []string{own + "pkg/testkit/bustest"}}, ""},
		{"the test kit", pkg{ImportPath: own + "pkg/testkit/bustest", Imports: []string{own + "pkg/testkit/port", own + "pkg/bus"}}, ""},
		{"root and the test kit", pkg{ImportPath: own + "services/workflow", Imports: []string{own + "pkg/testkit/postgres"}}, "testkit"},
		{"a tool and the test kit", pkg{ImportPath: own + "tools/lockstep/stack", Imports: []string{own + "pkg/testkit/postgres"}}, ""},
		{"a command and its service", pkg{ImportPath: own + "services/relay/cmd/relay", Imports: []string{own + "services/relay", "os"}}, ""},
		{
			"a command and another service",
			pkg{ImportPath: own + "services/relay/cmd/relay", Imports: []string{own + "services/domain"}},
			"services/domain",
		},
		{
			"a tool and all services",
			pkg{ImportPath: own + "tools/lockstep", Imports: []string{own + "services/domain", own + "services/relay"}},
			"",
		},
		{"a name that says nothing", pkg{ImportPath: own + "pkg/util", Name: "util"}, "does not say"},
		{"outside the module root", pkg{ImportPath: "example.com/x"}, "outside"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := check([]pkg{tt.in})
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want no violation", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one violation with %q", got, tt.want)
			}
		})
	}
}

// TestRoomsImportOnlyWhatIsBelow keeps the lists of rooms free of arrows that run back up.
func TestRoomsImportOnlyWhatIsBelow(t *testing.T) {
	t.Parallel()
	for service, all := range rooms() {
		var listed []string
		for _, r := range all {
			for _, below := range r.below {
				if !slices.Contains(listed, below) {
					t.Errorf("%s: room %s names %s, want only rooms listed before it", service, r.name, below)
				}
			}
			listed = append(listed, r.name)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	got, err := decode(strings.NewReader(`{"ImportPath":"a","Imports":["b"]}` + "\n" + `{"ImportPath":"c"}`))
	if err != nil || len(got) != 2 || got[0].Imports[0] != "b" || got[1].ImportPath != "c" {
		t.Errorf("decode: got %+v, %v", got, err)
	}
	if _, err := decode(strings.NewReader(`{"ImportPath":`)); err == nil {
		t.Error("decode of half an object: got no error")
	}
}
