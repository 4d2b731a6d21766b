package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// D51: sets of an installation leave room for those of organizations, and whatever is wrong with one is found when a service starts.
func TestSetsOfAnInstallationAreRead(t *testing.T) {
	t.Parallel()
	write := func(policies int) string {
		var text strings.Builder
		for i := range policies {
			fmt.Fprintf(&text, "@id(\"p%d\")\nforbid (principal, action, resource);\n", i)
		}
		file := filepath.Join(t.TempDir(), "policies.cedar")
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	many := write(policy.MaxPolicies)
	for name, tt := range map[string]struct {
		files []policy.InstallationFile
		wrong int
		want  string
	}{
		"none":         {nil, -1, ""},
		"two":          {[]policy.InstallationFile{{Name: "a", File: write(2)}, {Name: "b", File: write(1), Mode: "off"}}, -1, ""},
		"twice":        {[]policy.InstallationFile{{Name: "a", File: write(1)}, {Name: "a", File: write(1)}}, 1, "found the name a twice"},
		"no file":      {[]policy.InstallationFile{{Name: "a", File: "/nowhere.cedar"}}, 0, "no such file"},
		"no mode":      {[]policy.InstallationFile{{Name: "a", File: write(1), Mode: "on"}}, 0, "expected enforce, dry_run or off"},
		"many sets":    {make([]policy.InstallationFile, 21), -1, "found 21 sets; expected at most 20"},
		"many of them": {[]policy.InstallationFile{{Name: "a", File: many}, {Name: "b", File: many}, {Name: "c", File: many}}, 2, ""},
	} {
		sets, wrong, err := policy.ReadInstallation(tt.files)
		if name == "many of them" {
			tt.want = "expected at most 200 in all sets"
			tt.wrong = 200 / policy.MaxPolicies
		}
		if wrong != tt.wrong || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: found %d sets, %d, %v; expected %d, %q", name, len(sets), wrong, err, tt.wrong, tt.want)
		}
	}
}
