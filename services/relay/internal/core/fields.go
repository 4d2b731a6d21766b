package core

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

const (
	// mostFields is how many fields a dry run names of one object, and mostFieldsTogether of all objects of a call.
	mostFields         = 20
	mostFieldsTogether = 1000
	// longestField is how much of a value is answered, in bytes.
	longestField = 500
)

// field is one that differs between two states of an object. Values are those of images and numbers of replicas; others may be secret.
type field struct {
	path          string
	before, after any
}

// changedFields are the fields that differ between an object and what an apply would make of it, by path. What the API server keeps for
// itself does not count.
func changedFields(before, after Object) []field {
	var all []field
	for _, name := range slices.Sorted(maps.Keys(union(before, after))) {
		switch name {
		case "status", "apiVersion", "kind":
		case "metadata":
			a, b := before.object("metadata"), after.object("metadata")
			for _, part := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
				compareValues("metadata."+part, a[part], b[part], &all)
			}
		default:
			compareValues(name, before[name], after[name], &all)
		}
	}
	return all
}

func union(a, b map[string]any) map[string]bool {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

// compareValues adds the fields below a path that differ.
func compareValues(path string, before, after any, all *[]field) {
	if len(*all) > mostFields || reflect.DeepEqual(before, after) {
		return
	}
	if a, b, both := mappings(before, after); both {
		for _, name := range slices.Sorted(maps.Keys(union(a, b))) {
			compareValues(path+"."+name, a[name], b[name], all)
		}
		return
	}
	a, aList := before.([]any)
	b, bList := after.([]any)
	if aList && bList {
		compareLists(path, a, b, all)
		return
	}
	f := field{path: path}
	if showsValue(path) {
		f.before, f.after = before, after
	}
	*all = append(*all, f)
}

// mappings are two values as mappings, if they are. An empty one and none are the same to the API server.
func mappings(before, after any) (a, b map[string]any, both bool) {
	a, isA := before.(map[string]any)
	b, isB := after.(map[string]any)
	return a, b, (isA || before == nil) && (isB || after == nil) && (isA || isB)
}

// compareLists compares lists of named things by name, and others by position.
func compareLists(path string, a, b []any, all *[]field) {
	byName, namedA := named(a)
	others, namedB := named(b)
	if namedA && namedB && len(a)+len(b) > 0 {
		for _, name := range slices.Sorted(maps.Keys(union(byName, others))) {
			compareValues(fmt.Sprintf("%s[%s]", path, name), byName[name], others[name], all)
		}
		return
	}
	for i := range max(len(a), len(b)) {
		var before, after any
		if i < len(a) {
			before = a[i]
		}
		if i < len(b) {
			after = b[i]
		}
		compareValues(fmt.Sprintf("%s[%d]", path, i), before, after, all)
	}
}

// named are the items of a list by their names; false if one has none, or two have the same.
func named(list []any) (map[string]any, bool) {
	all := make(map[string]any, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, _ := m["name"].(string)
		if _, twice := all[name]; name == "" || twice {
			return nil, false
		}
		all[name] = item
	}
	return all, true
}

// showsValue reports whether the values of a field are answered.
func showsValue(path string) bool {
	return path == "spec.replicas" || strings.HasSuffix(path, "].image") && strings.Contains(path, "ontainers[")
}

// fieldsOf is the answer about the fields of an object; more is set if others differ as well.
func fieldsOf(all []field, left *int) (answer []any, more bool) {
	most := min(mostFields, *left)
	if len(all) > most {
		all, more = all[:most], true
	}
	*left -= len(all)
	answer = make([]any, len(all))
	for i, f := range all {
		one := map[string]any{"path": cutField(f.path)}
		if f.before != nil {
			one["before"] = cutField(fmt.Sprint(f.before))
		}
		if f.after != nil {
			one["after"] = cutField(fmt.Sprint(f.after))
		}
		answer[i] = one
	}
	return answer, more
}

func cutField(text string) string {
	if len(text) <= longestField {
		return text
	}
	return strings.ToValidUTF8(text[:longestField], "") + "…"
}
