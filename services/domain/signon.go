package domain

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/oidc"
)

// redirectPath is where an identity provider sends browsers back to, below the public address.
const redirectPath = "/session/oidc/callback"

// oidcProblems is what is wrong with the identity provider's part of a configuration.
func (c Config) oidcProblems() []fault.Field {
	o := c.OIDC
	if o.Issuer == "" {
		return nil
	}
	var problems []fault.Field
	if !isOrigin(c.PublicURL) {
		problems = append(problems, fault.Field{
			Name:    "public_url",
			Problem: fmt.Sprintf("found %q; expected the console's address, without a path, such as https://cd.example.com: browsers are sent back there", c.PublicURL),
		})
	}
	if u, err := url.Parse(o.Issuer); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		problems = append(problems, fault.Field{
			Name:    "oidc.issuer",
			Problem: fmt.Sprintf("found %q; expected an address such as https://id.example.com", o.Issuer),
		})
	}
	if o.ClientID == "" {
		problems = append(problems, fault.Field{
			Name:    "oidc.client_id",
			Problem: "found none; expected what the identity provider knows this installation by",
		})
	}
	if _, err := rolesOf(o.Roles); err != nil {
		problems = append(problems, fault.Field{Name: "oidc.roles", Problem: err.Error()})
	}
	return problems
}

func isOrigin(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") && strings.Trim(u.Path, "/") == "" &&
		u.RawQuery == "" && u.User == nil
}

// rolesOf reads group=role or group=role@organization. A group may have an equals sign in its name, a role does not.
func rolesOf(written []string) ([]oidc.Grant, error) {
	var all []oidc.Grant
	for _, w := range written {
		at := strings.LastIndex(w, "=")
		role, number, elsewhere := strings.Cut(w[at+1:], "@")
		organization := int64(ownerOrganization)
		var err error
		if elsewhere {
			organization, err = strconv.ParseInt(number, 10, 64)
		}
		if at <= 0 || err != nil || organization <= 0 || !slices.Contains(core.AllRoles(), core.Role(role)) {
			return nil, fmt.Errorf("found %q; expected <group>=<role>, the role one of viewer, approver, deployer, maintainer, owner, or <group>=<role>@<number of the organization>", w)
		}
		all = append(all, oidc.Grant{Group: w[:at], Organization: organization, Role: core.Role(role)})
	}
	return all, nil
}

// signOn is the identity provider of a configuration; nil where there is none.
func (s *service) signOn(c Config) (*api.SignOn, error) {
	o := c.OIDC
	if o.Issuer == "" {
		return nil, nil
	}
	roles, err := rolesOf(o.Roles)
	if err != nil {
		return nil, fault.InvalidFields(fault.Field{Name: "oidc.roles", Problem: err.Error()})
	}
	provider, err := oidc.New(oidc.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, RedirectURL: strings.TrimSuffix(c.PublicURL, "/") + redirectPath,
		Scopes: o.Scopes, NameClaim: o.NameClaim, GroupsClaim: o.GroupsClaim, Roles: roles, CAFile: o.CAFile,
	})
	if err != nil {
		return nil, err
	}
	return &api.SignOn{Label: o.Label, Provider: provider, Sessions: s.access, Clock: clock.System(), Log: s.log}, nil
}

// fingerprintRounds make it slow to find out a token by its fingerprint.
const fingerprintRounds = 100_000

// fingerprint shows whether a secret was changed, and nothing else of it; empty for none.
func fingerprint(secret string) (string, error) {
	if secret == "" {
		return "", nil
	}
	key, err := pbkdf2.Key(sha256.New, secret, []byte("lockstep/configuration"), fingerprintRounds, 4)
	if err != nil {
		return "", fmt.Errorf("compute a fingerprint: %w", err)
	}
	return hex.EncodeToString(key), nil
}

// recordConfiguration has the journals of changes say how people sign in and with what the installation begins, where that has changed
// since the last start (D50): in the first organization all of it, in any other the groups that have a role there.
func (s *service) recordConfiguration(ctx context.Context, c Config) error {
	mark, err := fingerprint(c.BootstrapToken)
	if err != nil {
		return err
	}
	agents := []map[string]any{}
	for _, a := range c.BootstrapAgents {
		agents = append(agents, map[string]any{"number": a.Number, "name": a.Name, "public_key": a.PublicKey})
	}
	o := c.OIDC
	all := map[string]any{
		"bootstrap": map[string]any{
			"organization": c.BootstrapOrganization, "sign_in": c.BootstrapToken != "", "fingerprint": mark, "agents": agents,
		},
		"session_lifetime": c.SessionLifetime.String(),
	}
	if o.Issuer != "" {
		all["oidc"] = map[string]any{
			"issuer": o.Issuer, "client_id": o.ClientID, "scopes": o.Scopes, "name_claim": o.NameClaim, "groups_claim": o.GroupsClaim,
			"roles": o.Roles, "session_lifetime": o.SessionLifetime.String(), "ca_file": o.CAFile, "label": o.Label,
		}
	}
	before, err := s.access.LatestConfiguration(ctx, ownerOrganization)
	if err != nil {
		return err
	}
	granted, err := grantedElsewhere(o, before)
	if err != nil {
		return err
	}
	for _, organization := range slices.Sorted(maps.Keys(granted)) {
		var settings any
		if roles := granted[organization]; len(roles) > 0 {
			settings = map[string]any{"oidc": map[string]any{"issuer": o.Issuer, "groups_claim": o.GroupsClaim, "roles": roles}}
		}
		if err := s.access.RecordConfiguration(ctx, organization, settings); err != nil {
			return err
		}
	}
	// The last one: after a crash before it, the next start finds the same differences.
	return s.access.RecordConfiguration(ctx, ownerOrganization, all)
}

// grantedElsewhere are the groups that the configuration gives roles in organizations other than the first one, by organization; none for
// one in which the configuration that was recorded last gave some.
func grantedElsewhere(o OIDC, recorded json.RawMessage) (map[int64][]string, error) {
	var before struct {
		OIDC struct {
			Roles []string `json:"roles"`
		} `json:"oidc"`
	}
	if recorded != nil {
		if err := json.Unmarshal(recorded, &before); err != nil {
			return nil, fmt.Errorf("decode the recorded configuration: %w", err)
		}
	}
	all := map[int64][]string{}
	if former, err := rolesOf(before.OIDC.Roles); err == nil { // else they were recorded by a release with other roles
		for _, g := range former {
			all[g.Organization] = nil
		}
	}
	if o.Issuer != "" {
		grants, err := rolesOf(o.Roles)
		if err != nil {
			return nil, fault.InvalidFields(fault.Field{Name: "oidc.roles", Problem: err.Error()})
		}
		for _, g := range grants {
			all[g.Organization] = append(all[g.Organization], g.Group+"="+string(g.Role))
		}
	}
	delete(all, ownerOrganization)
	return all, nil
}
