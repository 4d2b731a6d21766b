package reference_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"env:GIT_TOKEN": true, "file:/run/secrets/git": true, "vault:secret/data/ci#token": true,
		"": false, "hunter2": false, "env:": false, "env:a-b": false, "env:1a": false, "env:p$ss": false, "env:_A1": true, "env:a b": false, "env:TOKEN=hunter2": false, "file:relative": false, "https://x#y": false,
		"vault:path": false, "vault:path#": false, "vault:path#key": false, "vault:a/../b#key": false, "vault:a/b?x#key": false,
		"k8s:ns/name#key": true, "k8s:delivery-2/git.example.com#.dockerconfigjson": true,
		"k8s:name#key": false, "k8s:ns/name": false, "k8s:ns/name#": false, "k8s:ns/../name#key": false, "k8s:ns/a/b#key": false,
		"k8s:NS/name#key": false,
		"k8s:ns/name#a b": false, "k8s:-ns/name#key": false, "k8s:ns/name?x#key": false,
	} {
		if got := reference.Is(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
