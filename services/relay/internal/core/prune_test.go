package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// namesOf are the objects that an answer names in a list, and how many it has together with those that it only counts.
func namesOf(t *testing.T, answer Answer, list string) (names []string, together int) {
	t.Helper()
	named, isList := answer.Value[list].([]any)
	more, isNumber := answer.Value["more_"+list].(int)
	if !isList || !isNumber {
		t.Errorf("found %s %T and more_%s %T, expected a list and a number", list, answer.Value[list], list, answer.Value["more_"+list])
	}
	for _, one := range named {
		o, _ := one.(map[string]any)
		names = append(names, Object(o).text("name"))
	}
	return names, len(names) + more
}

// D53: everything that the owner no longer has is pruned, however many objects it has by then, also if the cluster does not say
// all of them at the first attempt. A call counts each once.
func TestPruneSeesAllObjectsOfTheOwner(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]map[string][]error{
		"at once": nil,
		"away":    {"page 2": {fault.New(fault.Unavailable, "away")}, "page 3": {fault.New(fault.Conflict, "expired")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCupboard()
			c.fail = fail
			const old = 2*maxObjects + 7
			for i := range old {
				c.put("v1", "ConfigMap", "shop", fmt.Sprintf("old-%04d", i), shopOwner, manager(shopOwner))
			}
			before, prune := len(c.objects), func(more string) int {
				answer := c.run(t, objectLimits(), FunctionApply, applyArgs(`,"prune":true`+more, manifest("v1", "ConfigMap", "shop", "a")))
				names, together := namesOf(t, answer, "pruned")
				different := slices.Compact(slices.Sorted(slices.Values(names)))
				if answer.Err != nil || together < old || len(names) < 500 || len(different) != len(names) {
					t.Errorf("%s: %v, %d pruned, %d of %d names different", more, answer.Err, together, len(different), len(names))
				}
				return together
			}
			dry := prune(`,"dry_run":true`)
			if len(c.objects) != before {
				t.Errorf("the dry run left %d of %d objects", len(c.objects), before)
			}
			if pruned := prune(""); pruned != dry || len(c.objects) != before+1-pruned {
				t.Errorf("%d pruned, %d in the dry run, %d of %d objects are left", pruned, dry, len(c.objects), before)
			}
		})
	}
}

// D53: a call that has changed the cluster answers, however many objects it has changed, deleted and kept, and however long their names
// are: those that do not fit into the answer are counted.
func TestWhatIsDoneFitsIntoAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ applied, pruned, kept, length int }{
		{applied: 1, pruned: 6000, length: 66},
		{applied: maxObjects, pruned: maxObjects, length: 66},
		{applied: maxObjects, pruned: 3000, kept: 3000, length: 253},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			c := newCupboard()
			const version, kind = "networking.example.com/v1", "VirtualService"
			c.serve(version, kind, "virtualservices.networking.example.com", true)
			named := func(what string, i int) string {
				return fmt.Sprintf("%s-%s-%05d", what, strings.Repeat("x", tt.length-len(what)-7), i)
			}
			for i := range tt.pruned {
				c.put(version, kind, "shop", named("old", i), shopOwner, manager(shopOwner))
			}
			for i := range tt.kept {
				c.put(version, kind, "shop", named("kept", i), shopOwner, manager(shopOwner))
				c.objects[kind+" shop/"+named("kept", i)].object("metadata")["annotations"] = map[string]any{annotationPrune: "false"}
			}
			all, before := make([]string, tt.applied), len(c.objects)
			for i := range all {
				all[i] = manifest(version, kind, "shop", named("new", i))
			}
			check := func(answer Answer) {
				t.Helper()
				if answer.Err != nil || answer.Value["created"] != tt.applied {
					t.Fatalf("found %v, %v created", answer.Err, answer.Value["created"])
				}
				for list, want := range map[string]int{"changed": tt.applied, "pruned": tt.pruned, "not_pruned": tt.kept} {
					names, together := namesOf(t, answer, list)
					if together != want || len(names) < min(want, 100) {
						t.Errorf("found %d %s, %d of them named, expected %d", together, list, len(names), want)
					}
				}
				if b, err := json.Marshal(answer.Value); err != nil || len(b) > maxValue {
					t.Errorf("found %d bytes, %v, expected at most %d", len(b), err, maxValue)
				}
			}
			dry := c.run(t, objectLimits(), FunctionApply, applyArgs(`,"prune":true,"dry_run":true`, all...))
			if len(c.writes) > 0 {
				t.Errorf("the dry run wrote %d times", len(c.writes))
			}
			if tt.applied*tt.length < maxValue/2 {
				check(dry)
			} else if dry.Err == nil || dry.Err.Code != CodeTooLarge { // programs decide by what it would change: all of it, or nothing
				t.Errorf("dry run: found %v, expected %s", dry.Err, CodeTooLarge)
			}
			check(c.run(t, objectLimits(), FunctionApply, applyArgs(`,"prune":true`, all...)))
			if want := before - tt.pruned + tt.applied; len(c.objects) != want {
				t.Errorf("%d objects are left, expected %d", len(c.objects), want)
			}
		})
	}
}

// D53: between the list and its turn, an object may be kept, be another's, be applied again or be replaced: then it is not deleted. One
// that only changed is.
func TestPruneLooksAgainAtWhatHasChanged(t *testing.T) {
	t.Parallel()
	change := func(edit func(metadata Object)) func(c *cupboard) {
		return func(c *cupboard) {
			o := maps.Clone(c.objects["ConfigMap shop/old"])
			metadata := maps.Clone(o.object("metadata"))
			edit(metadata)
			c.version++
			metadata["resourceVersion"] = fmt.Sprint(c.version)
			o["metadata"] = map[string]any(metadata)
			c.objects["ConfigMap shop/old"] = o
		}
	}
	labels := func(owner, installation string) func(c *cupboard) {
		return change(func(m Object) { m["labels"] = map[string]any{LabelOwner: owner, LabelInstallation: installation} })
	}
	applies := func(by, at string) func(c *cupboard) {
		return change(func(m Object) {
			m["managedFields"] = []any{map[string]any{"manager": by, "operation": "Apply", "time": at}}
		})
	}
	for name, tt := range map[string]struct {
		meanwhile func(c *cupboard)
		left      bool
		list      string
	}{
		"asks to be kept":      {change(func(m Object) { m["annotations"] = map[string]any{annotationPrune: "false"} }), true, "not_pruned"},
		"is kept by Helm":      {change(func(m Object) { m["annotations"] = map[string]any{annotationHelm: "keep"} }), true, "not_pruned"},
		"another owner":        {labels("o7.e3.a6", ""), true, ""},
		"another installation": {labels(shopOwner, "there"), true, ""},
		"another manager":      {applies("kubectl", ""), true, ""},
		"applied again":        {applies(manager(shopOwner), "2026-11-29T12:00:00Z"), true, "not_pruned"},
		"being deleted":        {change(func(m Object) { m["deletionTimestamp"] = "2026-11-29T12:00:00Z" }), true, "pruned"},
		"replaced":             {func(c *cupboard) { c.put("v1", "ConfigMap", "shop", "old", "", "kubectl") }, true, "pruned"},
		"gone":                 {func(c *cupboard) { delete(c.objects, "ConfigMap shop/old") }, false, "pruned"},
		"another status":       {change(func(Object) {}), false, "pruned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, tries := newCupboard(), 0
				c.put("v1", "ConfigMap", "shop", "old", shopOwner, manager(shopOwner))
				c.deleting = func(string) error {
					if tries++; tries == 1 {
						tt.meanwhile(c)
					}
					return nil
				}
				answer, took := runHere(t, c)
				_, left := c.objects["ConfigMap shop/old"]
				if answer.Err != nil || left != tt.left || took > time.Second {
					t.Errorf("found %v after %s, the object is left: %v, expected %v", answer.Err, took, left, tt.left)
				}
				for _, list := range []string{"pruned", "not_pruned"} {
					if _, found := namesOf(t, answer, list); (found == 1) != (list == tt.list) {
						t.Errorf("found %d in %s, expected it in %q", found, list, tt.list)
					}
				}
			})
		})
	}
}

// runHere prunes for a control plane that reports its installation.
func runHere(t *testing.T, c *cupboard) (Answer, time.Duration) {
	t.Helper()
	start := clock.System().Now()
	answer := c.runner(objectLimits()).Run(t.Context(), Call{
		ID: callID, Function: FunctionApply, Args: json.RawMessage(applyArgs(`,"prune":true`, manifest("v1", "ConfigMap", "", "a"))),
		Deadline: start.Add(5 * time.Minute), Organization: "7", Owner: shopOwner, Installation: "here",
	})
	return answer, clock.System().Now().Sub(start)
}

// D53: if a deletion fails, the error says how many objects were deleted before, and names some.
func TestTheErrorOfADeletionNamesWhatIsDeleted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		old  int
		err  error
		code string
		want []string
	}{
		"refused": {30, fault.New(fault.Denied, "may not delete"), CodeForbidden, []string{
			"may not delete; the objects of the call are applied, and 29 of 30 that are to be pruned are deleted: ConfigMap shop/old-00, ",
			"ConfigMap shop/old-09, and 19 more",
		}},
		"away until the deadline": {3, fault.New(fault.Unavailable, "away"), CodeTimeout, []string{
			"waited until the deadline", "2 of 3 that are to be pruned are deleted: ConfigMap shop/old-00, ConfigMap shop/old-01",
		}},
		"for an unknown reason": {2, errors.New("hunter2"), CodeInternal, []string{"its log has the reason; ", "1 of 2 that"}},
		"the only one":          {1, fault.New(fault.Denied, "may not delete"), CodeForbidden, []string{"0 of 1 that are to be pruned are deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCupboard()
				for i := range tt.old {
					c.put("v1", "ConfigMap", "shop", fmt.Sprintf("old-%02d", i), shopOwner, manager(shopOwner))
				}
				c.deleting = func(key string) error {
					if strings.HasSuffix(key, fmt.Sprintf("old-%02d", tt.old-1)) {
						return tt.err
					}
					return nil
				}
				answer, _ := runHere(t, c)
				if answer.Err == nil || answer.Err.Code != tt.code || strings.Contains(answer.Err.Message, "hunter2") ||
					strings.Contains(answer.Err.Message, "old-10") {
					t.Fatalf("found %+v", answer.Err)
				}
				for _, want := range tt.want {
					if !strings.Contains(answer.Err.Message, want) {
						t.Errorf("found %q, expected %q in it", answer.Err.Message, want)
					}
				}
			})
		})
	}
}
