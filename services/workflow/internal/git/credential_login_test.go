package git

import (
	"net/url"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// A program chooses among the credentials of its organization for the repository, by name or by a secret of its run, and no others (D27,
// issue 18, item 2).
func TestAProgramNamesACredential(t *testing.T) {
	t.Parallel()
	const prefix = "https://git.example.com/shop"
	all := credentials{all: []Credential{
		{URLPrefix: prefix, PasswordRef: "env:A", Organizations: []int64{1}},
		{Name: "write", URLPrefix: prefix, PasswordRef: "env:B", Organizations: []int64{1}},
		{Name: "write", URLPrefix: prefix, PasswordRef: "env:C", Organizations: []int64{2}},
		{Name: "theirs", URLPrefix: prefix, PasswordRef: "env:D", Organizations: []int64{2}},
		{Name: "elsewhere", URLPrefix: "https://git.example.com/other", PasswordRef: "env:E", Organizations: []int64{1}},
	}}
	secrets := map[string]string{"own": "env:B", "theirs": "env:C", "stolen": "env:PATH"}
	u, err := url.Parse(prefix + "/api.git")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"": "env:A", "write": "env:B", "own": "env:B", "theirs": "", "stolen": "", "elsewhere": "", "none": "",
	} {
		found, err := all.of(activity.WithLogin(t.Context(), activity.Login{Name: name, Secrets: secrets}), 1, u)
		switch {
		case want == "" && !fault.Is(err, fault.Denied):
			t.Errorf("%q: found %v, %v, want a refusal", name, found, err)
		case want != "" && (err != nil || found == nil || found.PasswordRef != want):
			t.Errorf("%q: found %v, %v, want %s", name, found, err, want)
		}
	}
}
