package pattern_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/pattern"
)

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, text  string
		match, overlap bool
	}{
		{"*", "", true, true},
		{"*", "a", true, true},
		{"*", "*", true, true},
		{"a", "a", true, true},
		{"a", "*", false, true},
		{"shop-*", "shop-staging", true, true},
		{"shop-*", "shop-*", true, true},
		{"shop-*", "*", false, true},
		{"shop-*", "*-staging", false, true},
		{"shop-*", "team-*", false, false},
		{"*a*b", "xaxb", true, true},
		{"*a*b", "xbxa", false, false},
		{"a*a", "a", false, false},
		{"kube-*", "kube-system", true, true},
		{"kube-system", "kube-*", false, true},
		{"", "", true, true},
		{"", "a", false, false},
		{"", "*", false, true},
		{"**", "a", true, true},
		{"a*b*c", "abcabc", true, true},
		{"ab*", "*bc", false, true},
		{"ab", "a*c", false, false},
	} {
		if got := pattern.Match(tc.pattern, tc.text); got != tc.match {
			t.Errorf("Match(%q, %q) = %t", tc.pattern, tc.text, got)
		}
		if got := pattern.Overlap(tc.pattern, tc.text); got != tc.overlap || pattern.Overlap(tc.text, tc.pattern) != got {
			t.Errorf("Overlap(%q, %q) = %t", tc.pattern, tc.text, got)
		}
	}
	hostile := strings.Repeat("*a", 200)
	if pattern.Overlap(hostile+"b", hostile+"c") {
		t.Error("two patterns with different ends overlap")
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	list := []string{"shop-*", "team", "!shop-root", "!*-old"}
	for text, want := range map[string]bool{
		"shop-a": true, "team": true, "teams": false, "shop-root": false, "shop-a-old": false, "shop-*": false, "shop-a*": false,
		"shop-a*-new": true, "": false,
	} {
		if got := pattern.Allows(list, text); got != want {
			t.Errorf("Allows(%q) = %t", text, got)
		}
	}
	if pattern.Allows(nil, "a") || pattern.Allows([]string{"!b"}, "a") {
		t.Error("a list that allows nothing allows something")
	}
}
