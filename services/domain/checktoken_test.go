package domain

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
)

// D48: a token that is bound to keys of checks reports no others, and neither does anything that is made with it: a browser's session, or
// another token.
func TestATokenIsBoundToKeysOfChecks(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"key":"scan"}`)
	report := func(a core.Actor, key string) error {
		_, err := c.checks.ReportCheck(t.Context(), a, check.Report{
			Application: c.application.Name, Environment: "dev", VersionSetID: c.set.ID, Key: key, Phase: core.CheckSuccess,
		})
		return err
	}
	holder := func(secret string, session bool) core.Actor {
		t.Helper()
		a, err := c.access.Authenticate(t.Context(), secret, session)
		c.ok(err)
		return a
	}
	bound := func(who string, a core.Actor) {
		t.Helper()
		c.ok(report(a, "scan"))
		if err := report(a, "healthy"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `the token reports only the checks scan; found "healthy"`) {
			t.Errorf("%s: found %v", who, err)
		}
	}
	ci, err := c.access.CreateMember(t.Context(), user(), access.NewMember{Name: "scanner", Kind: core.PrincipalAgent, Role: core.RoleMaintainer})
	c.ok(err)
	scopes := core.PermissionsOf(core.MayReport)
	made, secret, err := c.access.CreateToken(t.Context(), user(), access.NewToken{
		MemberID: ci.ID, Name: "ci", Scopes: scopes, CheckKeys: []string{"scan"},
	})
	c.ok(err)
	c.want(made.CheckKeys, []string{"scan"})
	a := holder(secret, false)
	bound("the token", a)
	session, _, err := c.access.StartSession(t.Context(), secret)
	c.ok(err)
	bound("its session", holder(session, true))
	_, second, err := c.access.CreateToken(t.Context(), a, access.NewToken{Name: "another"})
	c.ok(err)
	bound("a token that it has made", holder(second, false))
	reads, _, err := c.access.CreateToken(t.Context(), a, access.NewToken{Name: "reads", Scopes: core.PermissionsOf(core.MayRead)})
	c.ok(err)
	c.want(reads.CheckKeys, []string{"scan"})

	// A replica of a release that knows no bindings finds none of them while the new release is rolled out; those that an earlier release
	// with bindings has stored are still found.
	for who, secret := range map[string]string{"the token": secret, "its session": session, "a token that it has made": second} {
		plain := sha256.Sum256([]byte(secret))
		if found, err := c.store.OrganizationsWithToken(t.Context(), plain[:]); err != nil || len(found) > 0 {
			t.Errorf("%s: an earlier release finds it in %v, %v", who, found, err)
		}
	}
	const former = "lockstep_of-an-earlier-release"
	plain := sha256.Sum256([]byte(former))
	_, err = c.pool.Exec(t.Context(), `INSERT INTO cd_access_tokens (organization_id, member_id, name, scopes, check_keys, expires_at, digest)
		SELECT organization_id, member_id, 'former', scopes, check_keys, expires_at, $1 FROM cd_access_tokens WHERE id = $2`, plain[:], made.ID)
	c.ok(err)
	bound("a token as an earlier release has stored it", holder(former, false))

	for name, one := range map[string]struct {
		by    core.Actor
		n     access.NewToken
		class fault.Class
		want  string
	}{
		"a wider token":         {a, access.NewToken{Name: "x", CheckKeys: []string{"scan", "healthy"}}, fault.Denied, `found "healthy"`},
		"a key with capitals":   {user(), access.NewToken{Name: "x", CheckKeys: []string{"Scan"}}, fault.Invalid, "/checkKeys/0"},
		"more than twenty keys": {user(), access.NewToken{Name: "x", CheckKeys: make([]string, 21)}, fault.Invalid, "found 21 keys"},
	} {
		if _, _, err := c.access.CreateToken(t.Context(), one.by, one.n); !fault.Is(err, one.class) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: found %v; expected %v with %s", name, err, one.class, one.want)
		}
	}
	if _, err := c.pool.Exec(t.Context(), `UPDATE cd_access_tokens SET check_keys = '{}' WHERE id = $1`, made.ID); err == nil {
		t.Error("the keys of a token were changed")
	}
}
