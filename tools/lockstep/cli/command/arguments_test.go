package command_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

func TestAKeyIsGivenOnce(t *testing.T) {
	t.Parallel()
	all, err := command.KeysAndValues("label", []string{"team=shop", "note=a=b", "empty="})
	if err != nil || !maps.Equal(all, map[string]string{"team": "shop", "note": "a=b", "empty": ""}) {
		t.Errorf("found %v (%v)", all, err)
	}
	for pairs, want := range map[string]string{
		"team=shop team=web": "found team=shop and team=web, expected each key once", "team": `found "team", expected key=value`,
		"=shop": `found "=shop", expected key=value`,
	} {
		if _, err := command.KeysAndValues("label", strings.Fields(pairs)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v; expected %s", pairs, err, want)
		}
	}
}

func TestFieldsMayBeLists(t *testing.T) {
	t.Parallel()
	config, err := command.Fields{`namespaces=["shop-*"]`, "id=42", "poll=true", "range=^1", "name=[shop]"}.JSON()
	const want = `{"id":42,"name":"[shop]","namespaces":["shop-*"],"poll":true,"range":"^1"}`
	if err != nil || string(config) != want {
		t.Errorf("found %s (%v); expected %s", config, err, want)
	}
	if _, err := (command.Fields{"a=1", "a=2"}).JSON(); err == nil || !strings.Contains(err.Error(), "lists as JSON") {
		t.Errorf("found %v; expected how a list is given", err)
	}
}
