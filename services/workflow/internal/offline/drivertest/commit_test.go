package drivertest

import (
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// withCommits gives each service a version of a source of commits as well, beside its image.
func withCommits(in object) object {
	for _, environment := range in["rollout"].(object)["environments"].([]any) {
		for _, d := range environment.(object)["deployments"].([]any) {
			one := d.(object)
			one["versions"] = append(one["versions"].([]any), object{
				"artifact_source_id": 77, "name": "af417b8698bd", "image": "git:https://git/shop.git#main", "digest": "",
				"reference": "git:https://git/shop.git#main?af417b8698bd",
			})
		}
	}
	return in
}

// A service that has a source of commits beside its image is deployed with the image, whether the pipeline says which one or not.
func TestACommitBesideAnImageIsNoImage(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		world  func(*testing.T) *world
		inputs func() object
	}{
		"argo-rollouts": {shop, func() object { return inputs(2, nil) }},
		"kubernetes":    {plainShop, func() object { return plainInputs(nil) }},
		"git":           {gitShop, func() object { return gitInputs(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone, beside := of.world(t), of.world(t)
			alone.run(driver.Deploy, of.inputs())
			if failure := beside.run(driver.Deploy, withCommits(of.inputs())); failure != "" {
				t.Fatal(failure)
			}
			if !slices.Equal(alone.story, beside.story) {
				t.Errorf("found %q, expected %q", beside.story, alone.story)
			}
		})
	}
}
