package trigger

import "testing"

// D56, R4-28: an edit may be of a repository over SSH, but without a password, and not by a pull request.
func TestAnEditOverSSH(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		repository string
		pull       bool
		right      bool
	}{
		{"ssh://git@git.example.com/shop/config.git", false, true},
		{"ssh://git.example.com:2222/shop/config", false, true},
		{"ssh://git@git.example.com/shop/config.git", true, false},
		{"ssh://git:hunter2@git.example.com/shop/config.git", false, false},
		{"ssh://git@git.example.com/../config.git", false, false},
		{"https://git@git.example.com/shop/config.git", false, false},
		{"https://git.example.com/shop/config.git", true, true},
	} {
		e := edit{Repository: c.repository, PullRequest: c.pull, Branch: "main"}
		wrong := false
		for _, f := range e.check() {
			wrong = wrong || f.Name == "/config/edit/repository"
		}
		if wrong == c.right {
			t.Errorf("%+v: found wrong %t", c, wrong)
		}
	}
}
