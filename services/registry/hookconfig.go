package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

// HookConfig is an endpoint for one sender that cannot send a bearer token of ours.
type HookConfig struct {
	// Name identifies the hook, permanently: its reports are recorded under it, and its path depends on it.
	Name string `koanf:"name"`
	// Source is the sender's format, such as harbor or dockerhub.
	Source string `koanf:"source"`
	// Secrets are references, env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, to the secret that the sender signs with or
	// sends along. The hook's path depends on it as well. Configure two while one replaces the other.
	Secrets []string `koanf:"secrets"`
	// Host is the registry, with its port if it has one, in place of the one that the sender names.
	Host string `koanf:"host"`
	// Verify checks the digest at the registry even if the sender reports one.
	Verify bool `koanf:"verify"`
	// Rate is how many deliveries are accepted per second; 0 for 200. A burst may have twice as many: a registry that was disconnected
	// reports everything at once.
	Rate int `koanf:"rate"`
	// Organization is the only organization whose sources receive the hook's reports; 0 for all with a source of the image.
	Organization int64 `koanf:"organization"`
	// Repositories are patterns of the repositories that it may report, with the registry: * matches a part of the path, ** any path. Empty
	// means all.
	Repositories []string `koanf:"repositories"`
	// Issuer, Audience and Email are those of the identity tokens for source google.
	Issuer   string `koanf:"issuer"`
	Audience string `koanf:"audience"`
	Email    string `koanf:"email"`
}

// AccountConfig is a login for a registry, which is queried for digests.
type AccountConfig struct {
	// Host is the registry, or the registry and a path prefix.
	Host string `koanf:"host"`
	// Username is empty if the password is a token.
	Username string `koanf:"username"`
	// Password is a reference, env:NAME, file:/path, k8s:namespace/name#key or vault:path#key. It is resolved again every five minutes, so
	// that it may be replaced while the service runs.
	Password string `koanf:"password"`
	// Insecure allows HTTP if the registry does not speak HTTPS. It applies to the whole host, even if Host has a path.
	Insecure bool `koanf:"insecure"`
	// Organizations are those whose sources may use the account. Empty means the only organization; with more than one, the service does
	// not start.
	Organizations []int64 `koanf:"organizations"`
}

var (
	// A name becomes part of the events' source, /hooks/<name>. A host may have a path, for registries such as Artifactory that keep
	// several repositories under one name; it is in lower case because an image's path is.
	hookName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	hookHost = regexp.MustCompile(`^[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[a-z0-9._/-]*[a-z0-9])?$`)
)

// formats returns the formats that hooks may have, by name.
func formats() map[string]source.Format {
	all := map[string]source.Format{}
	for _, f := range source.Formats() {
		all[f.Name] = f
	}
	return all
}

// hookProblems returns the problems of the hooks and registries.
func (c Config) hookProblems() []fault.Field {
	var problems []fault.Field
	known, seen := formats(), map[string]bool{}
	for i, h := range c.Hooks {
		wrong := func(field, found, expected string) {
			problems = append(problems, fault.Field{
				Name: fmt.Sprintf("hooks[%d].%s", i, field), Problem: fmt.Sprintf("found %q; expected %s", found, expected),
			})
		}
		if !hookName.MatchString(h.Name) || seen[h.Name] {
			wrong("name", h.Name, "a name of its own of up to 63 letters in lower case, digits and dashes")
		}
		seen[h.Name] = true
		f, ok := known[h.Source]
		if !ok {
			wrong("source", h.Source, "one of "+strings.Join(names(known), ", "))
			continue
		}
		if f.NeedsHost && h.Host == "" || h.Host != "" && !hookHost.MatchString(h.Host) {
			wrong("host", h.Host, "the host of the registry, with its port if it has one")
		}
		if len(h.Secrets) < 1 || len(h.Secrets) > 2 || !all(h.Secrets, reference.Is) {
			// The value is not shown: it may be the secret itself, entered in place of a reference.
			problems = append(problems, fault.Field{
				Name:    fmt.Sprintf("hooks[%d].secrets", i),
				Problem: fmt.Sprintf("found %d entries that are not all references; expected one, or two during a change, each env:NAME, file:/path, k8s:namespace/name#key or vault:mount/data/path#key", len(h.Secrets)),
			})
		}
		for n, pattern := range h.Repositories {
			if err := core.CheckPattern(naming(), pattern); err != nil {
				problems = append(problems, fault.Field{Name: fmt.Sprintf("hooks[%d].repositories[%d]", i, n), Problem: err.Error()})
			}
		}
		if h.Organization < 0 {
			wrong("organization", strconv.FormatInt(h.Organization, 10), "the organization's number, or none")
		}
		if h.Rate < 0 {
			wrong("rate", strconv.Itoa(h.Rate), "how many deliveries are accepted per second")
		}
		// Without a client: the terms are checked here, and no issuer is contacted for its keys.
		if _, err := f.Proof(source.Terms{Issuer: h.Issuer, Audience: h.Audience, Email: h.Email}); err != nil {
			wrong("audience", h.Audience, err.Error())
		}
	}
	for i, r := range c.Registries {
		if slices.ContainsFunc(r.Organizations, func(id int64) bool { return id < 1 }) {
			problems = append(problems, fault.Field{
				Name:    fmt.Sprintf("registries[%d].organizations", i),
				Problem: fmt.Sprintf("found %v; expected organizations' numbers", r.Organizations),
			})
		}
		// The value is not shown: it is most likely the password itself.
		if r.Password != "" && !reference.Is(r.Password) {
			problems = append(problems, fault.Field{
				Name: fmt.Sprintf("registries[%d].password", i), Problem: "found a value that is not a reference; " + reference.Expected,
			})
		}
	}
	// The transport checks the list itself; its field is renamed to that of the configuration.
	if _, err := httpx.New(httpx.Config{Allow: c.AllowNetworks}); err != nil {
		for _, f := range fault.FieldsOf(err) {
			problems = append(problems, fault.Field{Name: strings.Replace(f.Name, "allow", "allow_networks", 1), Problem: f.Problem})
		}
	}
	return problems
}

func all(list []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !ok(s) })
}

func names(formats map[string]source.Format) []string {
	var list []string
	for name := range formats {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
