package activity_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D46, D56: a repository over SSH is the same place as over HTTPS, by each spelling and each port, so that no rule about what a program may
// touch is passed by another one of its URLs.
func TestARepositoryOverSSHIsTheSamePlace(t *testing.T) {
	t.Parallel()
	for raw, same := range map[string]bool{
		"ssh://git@git.example.com/shop/api.git": true, "ssh://git.example.com:2222/Shop/api": true, "git@git.example.com:shop/api.git": true,
		"git@GIT.example.com:/shop/api": true, "ssh://git@git.example.com/shop/other": false, "git@other.example.com:shop/api": false,
	} {
		own := activity.Place{Repository: "https://git.example.com/shop/api", Branch: "main", Path: "staging"}
		touched := activity.Place{Repository: raw, Branch: "main", Path: "staging/api.yaml"}
		if got := own.Covers(touched) > 0; got != same {
			t.Errorf("%s: found %t; want %t", raw, got, same)
		}
		if why := touched.Ambiguous([]activity.Place{own}); why != "" {
			t.Errorf("%s: found %q; want a URL that is clear", raw, why)
		}
	}
	if a, b := activity.SameRepository("ssh://git@ssh.github.com:443/team/shop.git"), activity.SameRepository("https://github.com/team/shop"); a != b {
		t.Errorf("found %s and %s; want the same", a, b)
	}
	touched := activity.Place{Repository: "git@203.0.113.7:shop/api", Branch: "main", Path: "a"}
	if touched.Ambiguous([]activity.Place{{Repository: "https://git.example.com/shop/api"}}) == "" {
		t.Error("an address passes for no server that is known")
	}
}
