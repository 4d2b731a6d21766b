package source

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestARankComparesAsTheSelectionOrders covers versions of every form that the library reads, and tags that are not versions.
func TestARankComparesAsTheSelectionOrders(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(rapid.Uint64Range(0, 12), rapid.Uint64())
	identifier := rapid.OneOf(
		rapid.SampledFrom([]string{
			"0", "1", "9", "10", "99999999999999999999", "123456789012345678901", "alpha", "alpha-1", "beta", "rc", "rc1",
			"rc-", "-", "A", "Z", "a", "0a",
		}),
		rapid.StringMatching(`[0-9A-Za-z-]{1,4}`),
	)
	tag := rapid.Custom(func(t *rapid.T) string {
		text := rapid.SampledFrom([]string{"", "v"}).Draw(t, "v")
		for i := range rapid.IntRange(1, 3).Draw(t, "numbers") {
			if i > 0 {
				text += "."
			}
			text += fmt.Sprint(number.Draw(t, "number"))
		}
		if parts := rapid.SliceOfN(identifier, 0, 3).Draw(t, "pre-release"); len(parts) > 0 {
			text += "-" + strings.Join(parts, ".")
		}
		if build := rapid.SampledFrom([]string{"", "", "+1", "+b.2"}).Draw(t, "build"); build != "" {
			text += build
		}
		return rapid.SampledFrom([]string{text, text, text, text, "latest"}).Draw(t, "tag")
	})
	byName := &Image{Selection: Lexical}
	rapid.Check(t, func(t *rapid.T) {
		a, b := tag.Draw(t, "a"), tag.Draw(t, "b")
		known := versionRank(a) != "" || versionRank(b) != ""
		if got, want := versionRank(a) < versionRank(b), lowerVersion(a, b); got != want && known {
			t.Fatalf("rank of %q is lower than that of %q: %t, of the versions %t", a, b, got, want)
		}
		if got := byName.Rank(a) < byName.Rank(b); got != (a < b) {
			t.Fatalf("%q is lower than %q: %t", a, b, got)
		}
	})
}
