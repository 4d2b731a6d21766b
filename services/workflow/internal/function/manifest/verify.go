package manifest

import (
	"reflect"
	"slices"
)

// verify reads the manifest before and after, makes the change in the values read before, and wants the two to be equal.
// So whatever went wrong while splicing, a manifest that means something else than intended is never returned.
func verify(content, pinned []byte, rollout doc, p pods, r Request) error {
	want, err := read(content)
	if err != nil {
		return err
	}
	got, err := read(pinned)
	if err != nil {
		return unsafe("the manifest", "is written in a way that cannot be changed: %v", err)
	}
	for _, image := range r.Images {
		field, index := p.find(image.Container)
		list, _ := want[p.index].at(append(slices.Clone(podPath), field)...).([]any)
		container, _ := list[index].(map[string]any)
		container["image"] = image.Reference
	}
	if strategy := r.strategy(rollout.steps()); strategy != nil {
		mergeInto(mapping(mapping(want[rollout.index].value, "spec"), "strategy"), strategy)
	}
	return same(want, got)
}

// same compares what was to come of a change with what did.
func same(want, got file) error {
	if !reflect.DeepEqual(want, got) {
		return unsafe("the manifest", "is written in a way that cannot be changed without changing more than the images and the strategy "+
			"(anchors, aliases and merge keys do that); expected these written out where they stand")
	}
	return nil
}

// mapping is the mapping below a key, made where there is none.
func mapping(m map[string]any, key string) map[string]any {
	inner, ok := m[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[key] = inner
	}
	return inner
}
