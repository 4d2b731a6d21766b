package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// R4-19, R4-11: a dry run names the fields that an apply would change: what the API server keeps for itself does not count, and only images
// and numbers of replicas have values.
func TestFieldsThatWouldChange(t *testing.T) {
	t.Parallel()
	const before = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"api","resourceVersion":"7","generation":3,"labels":{"team":"a"},
		"managedFields":[{"manager":"x"}]},"spec":{"replicas":2,"paused":false,"template":{"spec":{"containers":[{"name":"api","image":"api:1",
		"env":[{"name":"A","value":"secret"}],"args":["-x"]},{"name":"side","image":"side:1"}]}}},"status":{"replicas":2}}`
	for name, c := range map[string]struct {
		change []string
		want   []string
	}{
		"nothing":        {[]string{`"7"`, `"8"`, `"generation":3`, `"generation":4`, `"status":{"replicas":2}`, `"status":{}`}, nil},
		"replicas":       {[]string{`"replicas":2,"paused"`, `"replicas":4,"paused"`}, []string{"spec.replicas 2 4"}},
		"an image":       {[]string{`api:1`, `api:2`}, []string{"spec.template.spec.containers[api].image api:1 api:2"}},
		"a label":        {[]string{`"team":"a"`, `"team":"b"`}, []string{"metadata.labels.team <nil> <nil>"}},
		"a variable":     {[]string{`"secret"`, `"other"`}, []string{"spec.template.spec.containers[api].env[A].value <nil> <nil>"}},
		"an argument":    {[]string{`["-x"]`, `["-x","-y"]`}, []string{"spec.template.spec.containers[api].args[1] <nil> <nil>"}},
		"a removed list": {[]string{`,"args":["-x"]`, ``}, []string{"spec.template.spec.containers[api].args <nil> <nil>"}},
		"a container gone": {[]string{`,{"name":"side","image":"side:1"}`, ``}, []string{
			"spec.template.spec.containers[side].image side:1 <nil>", "spec.template.spec.containers[side].name <nil> <nil>",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := func(text string) (o Object) {
				if err := json.Unmarshal([]byte(text), &o); err != nil {
					t.Fatal(err)
				}
				return o
			}
			var got []string
			for _, f := range changedFields(read(before), read(strings.NewReplacer(c.change...).Replace(before))) {
				got = append(got, fmt.Sprint(f.path, " ", f.before, " ", f.after))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

// However many fields differ, an answer stays small and says that there are others.
func TestManyFieldsAreCounted(t *testing.T) {
	t.Parallel()
	data := map[string]any{}
	for i := range 3000 {
		data[fmt.Sprintf("%s-%04d", strings.Repeat("k", 900), i)] = "x"
	}
	left := mostFields + 5
	all := changedFields(Object{}, Object{"data": data})
	first, more := fieldsOf(all, &left)
	if one := fmt.Sprint(first[0]); len(first) != mostFields || !more || len(one) > longestField+100 {
		t.Errorf("found %d fields, more %t, the first %s", len(first), more, one)
	}
	if second, more := fieldsOf(all, &left); len(second) != 5 || !more || left != 0 {
		t.Errorf("found %d fields of another object, more %t, %d left", len(second), more, left)
	}
}
