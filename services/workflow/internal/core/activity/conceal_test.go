package activity_test

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// A secret is taken out in every form in which servers and Functions commonly write bytes (D27).
func TestASecretIsTakenOutInEveryForm(t *testing.T) {
	t.Parallel()
	const value = "h~\xc3\xbf?\xc3\xbf>unter2" // its base64 has characters that differ between the kinds, and is padded
	ctx, secrets := activity.WithConcealed(t.Context())
	activity.Conceal(ctx, value)
	activity.Conceal(ctx, value+" and more")
	raw := []byte(value)
	for name, form := range map[string]string{
		"plain": value, "base64": base64.StdEncoding.EncodeToString(raw), "unpadded base64": base64.RawStdEncoding.EncodeToString(raw),
		"base64 for addresses": base64.URLEncoding.EncodeToString(raw), "unpadded base64 for addresses": base64.RawURLEncoding.EncodeToString(raw),
		"hexadecimal": hex.EncodeToString(raw), "upper-case hexadecimal": strings.ToUpper(hex.EncodeToString(raw)),
		"one that begins with another": value + " and more",
	} {
		if found := secrets.Redact("sent <" + form + ">"); found != "sent <"+history.Redacted+">" {
			t.Errorf("%s: found %q, expected nothing of the secret", name, found)
		}
	}
}
