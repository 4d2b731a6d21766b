package domain

import (
	"fmt"
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
