package contract_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/contract"
)

const base = `
interface Node { id: ID! }
type Query { one(id: ID!, in: In, old: Int @deprecated): Thing all(first: Int = 10): [Thing!]! gone: Int @deprecated state: State either: Either }
type Thing implements Node { id: ID! name: String! note: String }
type Other { a: Int }
union Either = Thing | Other
enum State { ON OFF LOST @deprecated }
input In { a: Int! b: [Int] c: Int! = 3 }
`

// TestBreaking changes one thing at a time.
func TestBreaking(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, from, to string
		want           []string
	}{
		{"nothing", "", "", nil},
		{"a description", "type Other {", "\"what it is\"\ntype Other {", nil},
		{"a new field", "note: String", "note: String more: Int", nil},
		{"a new type and value", "enum State { ON", "type New { a: Int } enum State { NEW ON", nil},
		{"a new argument", "all(first: Int = 10", "all(first: Int = 10, last: Int", nil},
		{"a new argument with a default", "all(first: Int = 10", "all(first: Int = 10, last: Int! = 1", nil},
		{"a promise more", "note: String", "note: String!", nil},
		{"an argument that may be left out", "one(id: ID!", "one(id: ID", nil},
		{"a deprecated field goes", " gone: Int @deprecated", "", nil},
		{"a deprecated argument goes", ", old: Int @deprecated", "", nil},
		{"a deprecated value goes", " LOST @deprecated", "", nil},
		{"a field goes", " note: String", "", []string{"Thing.note is gone, and was not deprecated"}},
		{"a promise less", "name: String!", "name: String", []string{"Thing.name was String! and is String"}},
		{"another type", "name: String!", "name: Int!", []string{"Thing.name was String! and is Int!"}},
		{"a list", "note: String", "note: [String]", []string{"Thing.note was String and is [String]"}},
		{"less in a list", "[Thing!]!", "[Thing]!", []string{"Query.all was [Thing!]! and is [Thing]!"}},
		{"an argument goes", "all(first: Int = 10)", "all", []string{"Query.all no longer takes first, which was not deprecated"}},
		{"an argument is required", "in: In,", "in: In!,", []string{"Query.one took in: In and takes In!"}},
		{"a new argument is required", "one(id: ID!", "one(id: ID!, more: Int!", []string{"Query.one now requires more: Int!"}},
		{"a field of an input goes", " b: [Int]", "", []string{"In no longer takes b, which was not deprecated"}},
		{"a field of an input is required", "a: Int!", "a: Int! d: Int!", []string{"In now requires d: Int!"}},
		{"a default goes", "c: Int! = 3", "c: Int!", []string{"In took c: Int! and takes Int!"}},
		{"null in a list is refused", "b: [Int]", "b: [Int!]", []string{"In took b: [Int] and takes [Int!]"}},
		{"a value goes", "ON OFF", "ON", []string{"enum State no longer has OFF"}},
		{"a member goes", "Thing | Other", "Thing", []string{"union Either no longer has Other"}},
		{"an interface goes", "Thing implements Node", "Thing", []string{"Thing no longer implements Node"}},
		{
			"a type goes", "type Other { a: Int }\nunion Either = Thing | Other", "union Either = Thing",
			[]string{"union Either no longer has Other", "object Other is gone"},
		},
		{"another kind", "enum State { ON OFF LOST @deprecated }", "scalar State", []string{"State was enum and is scalar"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			after := strings.Replace(base, tt.from, tt.to, 1)
			if tt.from != "" && after == base {
				t.Fatalf("%q is not in the schema", tt.from)
			}
			if diff := cmp.Diff(tt.want, contract.Breaking(load(t, base), load(t, after))); diff != "" {
				t.Errorf("what breaks (-want +got):\n%s", diff)
			}
		})
	}
}

// load writes each text into a file of a folder of its own, and loads the folder.
func load(t *testing.T, texts ...string) *ast.Schema {
	t.Helper()
	schema, err := contract.Load(write(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func write(t *testing.T, texts ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.graphqls", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestLoad(t *testing.T) {
	t.Parallel()
	split := load(t, "extend type Query { more: More }", "type More { a: Int }", "type Query { one: Int }")
	if got := split.Query.Fields.ForName("more"); got == nil || got.Type.Name() != "More" {
		t.Errorf("a field of an extension in another file: found %v", got)
	}
	for _, folder := range []string{
		write(t), write(t, "type Query {"), write(t, "type Query { a: Missing }"),
		filepath.Join(t.TempDir(), "missing"),
	} {
		if _, err := contract.Load(folder); err == nil {
			t.Errorf("%s: a schema that cannot be read is no error", folder)
		}
	}
}
