package contract_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event/contract"
)

const name = "com.gitlab.cd.thing.happened"

const base = `{"type":"object","required":["id"],"properties":{
	"id":{"type":"integer"},"state":{"type":"string","enum":["new","old"]},"parts":{"type":"array","items":{"type":"object","properties":{"url":{"type":"string"}}}}}}`

func catalogue(schema, data string) contract.Catalogue {
	return contract.Catalogue{
		Schemas: map[string][]byte{name: []byte(schema)}, Examples: map[string][]byte{name: []byte(`{"data":` + data + `}`)},
	}
}

// TestChangesThatBreakTheReleaseBefore has a case for each sentence of Breaking, and changes that break nobody.
func TestChangesThatBreakTheReleaseBefore(t *testing.T) {
	t.Parallel()
	before := catalogue(base, `{"id":1}`)
	for about, c := range map[string]struct {
		schema, data string
		want         []string
	}{
		"nothing":           {base, `{"id":1}`, nil},
		"an optional field": {`{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"state":{"type":"string","enum":["new","old"]},"parts":{"type":"array","items":{"type":"object","properties":{"url":{"type":"string"}}}},"more":{"type":"string"}}}`, `{"id":1,"more":"x"}`, nil},
		"a field is gone": {
			`{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"parts":{"type":"array","items":{"type":"object","properties":{}}}}}`, `{"id":1}`,
			[]string{name + ".parts[].url: the field is gone", name + ".state: the field is gone"},
		},
		"another type": {
			`{"type":"object","required":["id"],"properties":{"id":{"type":["integer","null"]},"state":{"type":"string","enum":["new","old"]},"parts":{"type":"array","items":{"type":"object","properties":{"url":{"type":"string"}}}}}}`, `{"id":1}`,
			[]string{name + ".id: found type [integer null]; expected integer as before"},
		},
		"a value is gone": {
			`{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"state":{"type":"string","enum":["new"]},"parts":{"type":"array","items":{"type":"object","properties":{"url":{"type":"string"}}}}}}`, `{"id":1}`,
			[]string{name + ".state: the value old is gone"},
		},
		"required": {
			`{"type":"object","required":["id","state"],"properties":{"id":{"type":"integer"},"state":{"type":"string","enum":["new","old"]},"parts":{"type":"array","items":{"type":"object","properties":{"url":{"type":"string"}}}}}}`, `{"id":1,"state":"new"}`,
			[]string{name + ".state: required now, and it was not", name + `: the example before is not valid under the other release's schema: /state: found nothing; expected a value`},
		},
		"an example with a value that the release before does not know": {
			`{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"state":{"type":"string","enum":["new","old","odd"]},"parts":{"type":"array","items":{"type":"object","properties":{"url":{"type":"string"}}}}}}`, `{"id":1,"state":"odd"}`,
			[]string{name + `: today's example is not valid under the other release's schema: /state: found "odd"; expected one of "new", "old"`},
		},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			found, err := contract.Breaking(before, catalogue(c.schema, c.data))
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(found)
			want := slices.Sorted(slices.Values(c.want))
			if diff := cmp.Diff(want, found); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	found, err := contract.Breaking(before, contract.Catalogue{Schemas: map[string][]byte{"com.gitlab.cd.other": []byte(base)}})
	if want := []string{name + ": the type is gone"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("without the type: found %q, %v; want %q", found, err, want)
	}
}

// TestTheCatalogueBreaksNobody: that of this tree, compared with itself.
func TestTheCatalogueBreaksNobody(t *testing.T) {
	t.Parallel()
	c, err := contract.Load("..")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := contract.Breaking(c, c); err != nil || len(found) > 0 {
		t.Errorf("found %q, %v; expected nothing", found, err)
	}
}
