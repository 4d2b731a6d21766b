package core

import (
	"strings"
	"testing"
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
