package core

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const syncArguments = `"agent_id":42,"app_name":"shop","app_namespace":"argocd","revision":"` + revision + `","mode":"existing"`

// overriding returns a request with overrides, as a program sends it.
func overriding(t *testing.T, overrides string) SyncRequest {
	t.Helper()
	want, err := parseSync(Call{ID: callID, Args: json.RawMessage(`{` + syncArguments + `,"overrides":` + overrides + `}`)}, false)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// syncedWith returns an Application that another actor has synced to the revision with the source.
func syncedWith(source string) string {
	source = `{"repoURL":"http://git/shop.git","path":"staging","targetRevision":"` + revision + `"` + source + `}`
	return `{"spec":{"source":` + source + `},"status":{"sync":{"status":"Synced","revision":"` + revision + `"},
		"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + revision + `","source":` + source + `},"operation":{"sync":{}}}}}`
}

func TestTheSameRevisionWithOtherParametersIsSynced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, overrides, source string
		want                    Action
	}{
		{"other image", `{"kustomize":{"images":["api=r/api@sha256:2"]}}`, `,"kustomize":{"images":["api=r/api@sha256:1"]}`, Patch},
		{
			"the same image, and more", `{"kustomize":{"images":["api=r/api@sha256:2"]}}`,
			`,"kustomize":{"namePrefix":"x-","images":["api=r/api@sha256:2"]}`, Done,
		},
		{"no parameters yet", `{"helm":{"valuesObject":{"image":"x","steps":[{"setWeight":50}]}}}`, ``, Patch},
		{
			"the same values, and more", `{"helm":{"valuesObject":{"image":"x","steps":[{"setWeight":50}]}}}`,
			`,"helm":{"valuesObject":{"image":"x","steps":[{"setWeight":50}],"replicas":2}}`, Done,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := NextSync(overriding(t, tc.overrides), object(t, syncedWith(tc.source)))
			check(t, got, err, tc.want, "", "")
		})
	}
}

func TestOverridesArePartOfTheSourceThatIsWritten(t *testing.T) {
	t.Parallel()
	want := overriding(t, `{"kustomize":{"images":["api=r/api@sha256:2"]}}`)
	got, err := NextSync(want, object(t, syncedWith("")))
	if err != nil {
		t.Fatal(err)
	}
	source := object(t, `{"targetRevision":"`+revision+`","kustomize":{"images":["api=r/api@sha256:2"]}}`)
	if diff := cmp.Diff(map[string]any(source), got.Body["spec"].(map[string]any)["source"]); diff != "" {
		t.Errorf("source of the patch (-want +got):\n%s", diff)
	}
	want.Mode, want.Source = ModeManaged, &Source{RepoURL: "http://git/shop.git", Path: "staging"}
	if got, err = NextSync(want, nil); err != nil || got.Body["spec"].(map[string]any)["source"].(map[string]any)["kustomize"] == nil {
		t.Errorf("source of a new Application: %v, %v", got.Body, err)
	}
}

func TestOverridesOfOtherFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, overrides := range []string{`{"helm":{"valueFiles":["/etc/passwd"]}}`, `{"directory":{}}`, `{"kustomize":7}`, `7`} {
		_, err := parseSync(Call{Args: json.RawMessage(`{` + syncArguments + `,"overrides":` + overrides + `}`)}, false)
		if err == nil || !strings.Contains(err.Error(), "overrides") {
			t.Errorf("%s: %v", overrides, err)
		}
	}
}
