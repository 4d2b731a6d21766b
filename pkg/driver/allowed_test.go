package driver_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The owner of an environment decides what applications may use in it.
func TestAnApplicationFitsWhatTheEnvironmentAllows(t *testing.T) {
	t.Parallel()
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	const config = `"repository_url": "https://git.example.com/shop", "destination_namespace": "shop-staging"`
	for _, tc := range []struct{ name, environment, config, want string }{
		{"no limits, as before the fields existed", `{}`, `{` + config + `}`, ""},
		{"empty lists", `{"projects": [], "repositories": []}`, `{` + config + `}`, ""},
		{"inside", `{"projects": ["default"], "repositories": ["https://git.example.com/*"], "destination_namespaces": ["shop-*", "!shop-production"]}`, `{` + config + `}`, ""},
		{
			"another namespace", `{"destination_namespaces": ["team-*"]}`, `{` + config + `}`,
			`/destination_namespace: found "shop-staging"; expected one that the environment allows (destination_namespaces: team-*)`,
		},
		{"a namespace that is taken away", `{"destination_namespaces": ["*", "!shop-staging"]}`, `{` + config + `}`, "/destination_namespace"},
		{"the default of the schema", `{"projects": ["team-*"]}`, `{` + config + `}`, `/project: found "default"`},
		{"another project", `{"projects": ["team-*"]}`, `{"project": "default-team", ` + config + `}`, `/project: found "default-team"`},
		{
			"another repository", `{"repositories": ["https://git.example.com/shop"]}`,
			`{"repository_url": "https://git.example.com/shop2", "destination_namespace": "a"}`, "/repository_url",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := b.CheckAllowed(json.RawMessage(tc.environment), json.RawMessage(tc.config))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want invalid: %s", err, tc.want)
			}
		})
	}
}
