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
	touched := activity.Place{Repository: "git@203.0.113.7:shop/api", Branch: "main", Path: "a"}
	if touched.Ambiguous([]activity.Place{{Repository: "https://git.example.com/shop/api"}}) == "" {
		t.Error("an address passes for no server that is known")
	}
}

// D46, D56: what one server has under two ports, as a forge has its pages and its SSH, and what forges spell in another way over SSH, is
// one place; what only the server could distinguish is refused.
func TestSpellingsOverSSHThatServersHave(t *testing.T) {
	t.Parallel()
	const same, other, unclear = "same", "other", "unclear"
	for _, c := range []struct{ own, touched, want string }{
		{"https://git.example.com:8443/shop/api", "ssh://git@git.example.com/shop/api", same},
		{"https://git.example.com:8443/shop/api", "git@git.example.com:shop/api.git", same},
		{"https://git.example.com:8443/shop/api", "ssh://git@git.example.com:2222/shop/api.git", same},
		{"ssh://git@git.example.com:2222/shop/api.git", "https://git.example.com:8443/shop/api", same},
		{"https://git.example.com:8443/shop/api", "https://git.example.com/shop/api", other},
		{"https://git.example.com/scm/shop/api", "ssh://git@git.example.com:7999/shop/api.git", same},
		{"ssh://git@git.example.com:7999/shop/api.git", "https://git.example.com/scm/shop/api", same},
		{"https://git.example.com/scm/shop/api", "https://git.example.com/shop/api", other},
		{"git@git.example.com:shop/api", "ssh://git@git.example.com/~/shop/api", unclear},
		{"git@git.example.com:shop/api", "ssh://git@git.example.com/~git/shop/api", unclear},
		{"git@git.example.com:shop/api", "git@git.example.com:~/shop/api", unclear},
		{"git@git.example.com:shop/api", "git@git.example.com:~/other", unclear},
		{"ssh://git@git.example.com/~/shop/api", "git@git.example.com:shop/api", unclear},
		{"ssh://git@git.example.com/~/shop/api", "ssh://git@git.example.com/home/git/shop/api", unclear},
		{"ssh://git@git.example.com/~/shop/api", "ssh://git@git.example.com/~/shop/api.git", same},
		{"https://git.example.com/~ann/api", "git@git.example.com:~ann/api", same},
		{"git@git.example.com:shop/api", "ssh://git@git.example.com/home/git/shop/api", unclear},
		{"ssh://git@git.example.com/srv/git/shop/api", "git@git.example.com:shop/api", unclear},
		{"https://git.example.com/gitlab/shop/api", "git@git.example.com:shop/api", unclear},
		{"https://git.example.com/gitlab/shop/api", "https://git.example.com/shop/api", other},
		{"https://gitlab.com/team/shop/api", "git@gitlab.com:shop/api", other},
		{"https://git.example.com/shop/api", "ssh://git@git.example.com/shop/api.git/", same},
		{"https://git.example.com/shop/api", "ssh://git@git.example.com/shop/api/.git", same},
		{"https://git.example.com/shop/api", "ssh://git@git.example.com/shop/api.git/.git", same},
		{"https://git.example.com/shop/api", "git@git.example.com:team/app", other},
		{"https://github.com/team/shop", "ssh://git@ssh.github.com:443/team/shop.git", same},
		{"https://dev.azure.com/org/project/_git/repo", "git@ssh.dev.azure.com:v3/org/project/repo", same},
		{"https://dev.azure.com/org/_git/repo", "git@ssh.dev.azure.com:v3/org/repo/repo", same},
		{"https://org.visualstudio.com/DefaultCollection/project/_git/repo", "org@vs-ssh.visualstudio.com:v3/org/project/repo", same},
		{"https://dev.azure.com/org/project/_git/repo", "git@ssh.dev.azure.com:v3/org/project/other", other},
	} {
		own := activity.Place{Repository: c.own, Branch: "main", Path: "staging"}
		touched := activity.Place{Repository: c.touched, Branch: "main", Path: "staging/api.yaml"}
		got := other
		switch {
		case touched.Ambiguous([]activity.Place{own}) != "":
			got = unclear
		case own.Covers(touched) > 0:
			got = same
		}
		if got != c.want {
			t.Errorf("%s of a place %s: found %s (%s); want %s", c.touched, c.own, got, touched.Ambiguous([]activity.Place{own}), c.want)
		}
	}
	// One's own place is not a way around that of another.
	mine, theirs := activity.Place{Repository: "ssh://git@git.example.com/home/git/shop/api"}, activity.Place{Repository: "git@git.example.com:shop/api"}
	if mine.Ambiguous([]activity.Place{mine, theirs}) == "" {
		t.Error("a place that may be another one passes because it is spelled as it was declared")
	}
}
