package core

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestAValueOfAnotherTypeIsReportedInWords(t *testing.T) {
	t.Parallel()
	var into struct {
		Services []string `json:"services"`
		Quiet    int      `json:"quiet"`
		Off      *bool    `json:"off"`
		Name     string   `json:"name"`
		Facts    struct {
			Signed bool `json:"signed"`
		} `json:"facts"`
	}
	for text, want := range map[string][2]string{
		`{"services":"api"}`:         {"services", `found a text; expected a list, such as ["a","b"]`},
		`{"services":[1]}`:           {"services", "found a number; expected a text"},
		`{"quiet":"soon"}`:           {"quiet", "found a text; expected a whole number"},
		`{"quiet":1.5}`:              {"quiet", "found a number; expected a whole number"},
		`{"off":[]}`:                 {"off", "found a list; expected true or false"},
		`{"name":true}`:              {"name", "found true or false; expected a text"},
		`{"facts":[]}`:               {"facts", "found a list; expected an object"},
		`{"facts":{"signed":"yes"}}`: {"facts/signed", "found a text; expected true or false"},
	} {
		member, problem, ok := WrongMember(json.Unmarshal([]byte(text), &into))
		if !ok || member != want[0] || problem != want[1] {
			t.Errorf("%s: found %q, %q, %t; expected %q", text, member, problem, ok, want)
		}
	}
	if _, _, ok := WrongMember(errors.New("another")); ok {
		t.Error("another error is about a member")
	}
}
