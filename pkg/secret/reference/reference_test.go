package reference_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"env:GIT_TOKEN": true, "file:/run/secrets/git": true, "vault:secret/data/ci#token": true,
		"": false, "hunter2": false, "env:": false, "env:a b": false, "env:TOKEN=hunter2": false, "file:relative": false, "https://x#y": false,
		"vault:path": false, "vault:path#": false, "vault:path#key": false, "vault:a/../b#key": false, "vault:a/b?x#key": false,
		// Nobody follows it: a Secret of Kubernetes is a file where it is mounted.
		"k8s:ns/name#key": false,
	} {
		if got := reference.Is(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
