package core

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
)

// D48: the address of a repository has no character that is written in another way than it is read, and its name is bounded as it is read.
func TestAddressesOfRepositories(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"https://git.test/shop/api.git":                  true,
		"http://git.test/shop/%C3%A4":                    true,
		"https://git.test/shop/%00api":                   false,
		"https://git.test/shop/api%0A":                   false,
		"https://git.test/shop/%7Fapi":                   false,
		"https://git.test/shop/%C2%85api":                false,
		"https://git.test/shop/%ffapi":                   false,
		"https://git.test/shop/\napi":                    false,
		"https://user@git.test/shop/api":                 false,
		"ssh://git.test/shop/api":                        false,
		"https://git.test/" + strings.Repeat("a", 991):   true,
		"https://git.test/" + strings.Repeat("a", 992):   false,
		"https://git.test/" + strings.Repeat("Ⱥ", 400):   false, // of 2 bytes, and of 3 in lower case
		"https://git.test/" + strings.Repeat("%61", 300): true,
	} {
		if got := repositoryAddress(address); got != want {
			t.Errorf("%.60q: found %t; want %t", address, got, want)
		}
	}
	if plainAddress("https://ci.test/%00") {
		t.Error("found a link with a control character accepted")
	}
}

// D48: of a forge whose clock is ahead the time of reception counts, and what it delivers again later is the same.
func TestATimeThatIsAheadIsThatOfReception(t *testing.T) {
	t.Parallel()
	now := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	i := NewStatusIntake(nil, now)
	s := CommitStatus{Repository: "https://git.test/shop", Commit: strings.Repeat("a", 40), Context: "ci", Phase: "success", ObservedAt: "2026-03-25T10:04:00Z"}
	first, problems := i.check(s)
	if len(problems) > 0 || first.ObservedAt != "2026-03-25T10:00:00Z" {
		t.Errorf("found %s and %v; want the time of reception", first.ObservedAt, problems)
	}
	now.Advance(time.Minute)
	if again, _ := i.check(s); again.ID != first.ID || again.ObservedAt != "2026-03-25T10:01:00Z" {
		t.Errorf("found %s at %s; want event %s", again.ID, again.ObservedAt, first.ID)
	}
	s.ObservedAt = "2026-03-25T09:59:00Z"
	if past, _ := i.check(s); past.ObservedAt != s.ObservedAt {
		t.Errorf("found %s; want the time of the forge", past.ObservedAt)
	}
}
