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

// D53: what an environment allows also holds for fields of objects in an application's config, and for nothing that is absent.
func TestLimitsHoldInside(t *testing.T) {
	t.Parallel()
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Get("kubernetes@1")
	if err != nil {
		t.Fatal(err)
	}
	const chart = `{"namespace": "shop", "services": [], "helm": {"chart": "oci://elsewhere.example.com/api", "version": "1.0.0"}}`
	for _, tc := range []struct{ name, environment, config, want string }{
		{"a chart elsewhere", `{"charts": ["oci://ghcr.io/shop/*"]}`, chart, `/helm/chart: found "oci://elsewhere.example.com/api"`},
		{"a chart that is allowed", `{"charts": ["oci://elsewhere.example.com/*"]}`, chart, ""},
		{"no repository at all", `{"repositories": ["https://git.example.com/*"]}`, chart, ""},
		{"no chart at all", `{"charts": ["oci://ghcr.io/shop/*"]}`, `{"namespace": "shop", "repository_url": "https://git.example.com/a", "files": ["a"]}`, ""},
		{"a chart that is no text", `{"charts": ["oci://ghcr.io/shop/*"]}`, `{"helm": {"chart": 1}}`, "/helm/chart"},
	} {
		err := b.CheckAllowed(json.RawMessage(tc.environment), json.RawMessage(tc.config))
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: refused: %v", tc.name, err)
		case tc.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: found %v, expected Invalid: %s", tc.name, err, tc.want)
		}
	}
}

// A limit that is written where nothing looks for it would protect nothing.
func TestLimitsThatAreNotEnforcedAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, schema string
		refused      bool
	}{
		{"a property", `{"type": "object", "properties": {"a": {"type": "string", "allowedBy": "x"}}}`, false},
		{"inside of an object", `{"type": "object", "properties": {"a": {"properties": {"b": {"allowedBy": "x"}, "c": false}}}}`, false},
		{"a property of that name", `{"type": "object", "properties": {"allowedBy": {"type": "string"}, "properties": {"type": "object"}}}`, false},
		{"an item", `{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "allowedBy": "x"}}}}`, true},
		{"a definition", `{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string", "allowedBy": "x"}}}`, true},
		{"a condition", `{"type": "object", "allOf": [{"properties": {"a": {"allowedBy": "x"}}}]}`, true},
	} {
		_, err := driver.Load(files(map[string]string{"v1/app.json": tc.schema}))
		if tc.refused != (err != nil && strings.Contains(err.Error(), "found allowedBy where it is not enforced")) || !tc.refused && err != nil {
			t.Errorf("%s: found %v", tc.name, err)
		}
	}
}
