package sealing

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
)

// SchemeSSH is that of repositories that are reached over SSH.
const SchemeSSH = "ssh"

// SSHUser is whom forges have all of their users log in as.
const SSHUser = "git"

// SSHKey is that the value is a private key, behind a line with its passphrase if it has one (package sshkey).
type SSHKey struct {
	// KnownHosts are the servers that the key is used at, in lines of known_hosts or by fingerprints. No other is trusted.
	KnownHosts string `json:"known_hosts,omitempty"`
}

// maxKnownHosts is how many bytes known hosts may have.
const maxKnownHosts = 32 << 10

var sshUserForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}$`)

// check finds what is wrong with a key of terms.
func (k SSHKey) check(t Terms, wrong func(field, format string, args ...any)) {
	if t.Kind != Git {
		wrong("/kind", "found %.100s with sshKey; expected git", string(t.Kind))
	}
	if !t.Proof.OAuth2.IsZero() || t.Proof.Certificate != (Certificate{}) || t.Proof.GitHubApp != (GitHubApp{}) || t.Header != "" ||
		t.Proof.clouds() > 0 {
		wrong("/sshKey", "found it with header, oauth2, certificate, githubApp, ecr, gar or acr; expected it alone")
	}
	if t.Username != "" && !sshUserForm.MatchString(t.Username) {
		wrong("/username", "found %.100q with sshKey; expected the user that the server has you log in as, which is %s at most forges", t.Username, SSHUser)
	}
	if t.Forge != "" && t.Forge != "git" {
		wrong("/forge", "found %.100q with sshKey; expected none: pull requests and statuses need a credential for the https URL of the forge", t.Forge)
	}
	if strings.TrimSpace(k.KnownHosts) == "" || len(k.KnownHosts) > maxKnownHosts {
		wrong("/sshKey/knownHosts", "found %d bytes; expected the known hosts of the servers (as ssh-keyscan prints them, and checked) or their fingerprints, at most %d bytes",
			len(k.KnownHosts), maxKnownHosts)
		return
	}
	known, err := sshkey.ReadHosts(k.KnownHosts)
	if err != nil {
		wrong("/sshKey/knownHosts", "%s", fault.Public(err))
		return
	}
	var first *url.URL
	for i, prefix := range t.URLPrefixes {
		u, err := ParsePrefix(prefix)
		if err != nil || u.Scheme != SchemeSSH { // which is reported elsewhere
			continue
		}
		if !known.Know(u.Hostname(), Port(u)) {
			wrong("/sshKey/knownHosts", "found no key of %s; expected a line of each server of the URLs", u.Host)
		}
		if first == nil {
			first = u
		}
		if line := known.Unnamed(); line > 0 && (!strings.EqualFold(first.Hostname(), u.Hostname()) || Port(first) != Port(u)) {
			wrong(fmt.Sprintf("/urlPrefixes/%d", i), "found %s, and %s before it; expected one server, since line %d of the known hosts does not say whose fingerprint it is",
				u.Host, first.Host, line)
		}
	}
}

// SSHPlace is a repository that is reached over SSH.
type SSHPlace struct {
	// URL is its URL in one form: ssh://user@host:port/path, the user and the port only where they are given and not the usual ones.
	URL *url.URL
	// Path is how it is named to the server. Git has ssh://host/path absolute, and host:path below the home of the user.
	Path string
}

var (
	// scpForm is how Git and scp have it: user@host:path.
	scpForm  = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._+-]{0,99})@([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):([^/\x00-\x20][^\x00-\x1f\x7f]*|/[^\x00-\x1f\x7f]*)$`)
	portForm = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)
)

// ParseSSH reads the URL of a repository that is reached over SSH: ssh://user@host:port/path, or user@host:path. It reports false for what
// is neither. What servers could read in several ways is refused, as elsewhere.
func ParseSSH(raw string) (place SSHPlace, is bool, err error) {
	given, wrong := raw, func(problem string) (SSHPlace, bool, error) {
		return SSHPlace{}, true, fault.InvalidFields(fault.Field{Name: "url", Problem: problem})
	}
	parts := scpForm.FindStringSubmatch(raw)
	switch {
	case parts != nil && !strings.Contains(raw, "://"):
		given = "ssh://" + parts[1] + "@" + parts[2] + "/" + strings.TrimLeft(parts[3], "/")
		place.Path = parts[3]
	case len(raw) < len("ssh://") || !strings.EqualFold(raw[:len("ssh://")], "ssh://"):
		return place, false, nil
	}
	u, err := url.Parse(given)
	if err != nil {
		return wrong("found a text that is not a URL; expected ssh://git@host/path")
	}
	user := u.User
	if user != nil {
		if _, has := user.Password(); has || !sshUserForm.MatchString(user.Username()) {
			return wrong("found a password, or a user that SSH cannot have; expected ssh://git@host/path")
		}
		if user.Username() == SSHUser {
			user = nil
		}
	}
	u.User = nil
	if port := u.Port(); strings.HasSuffix(u.Host, ":") || port != "" && !portForm.MatchString(port) {
		return wrong("found a port that is no number above zero; expected ssh://git@host:2222/path")
	}
	if u.RawQuery != "" || u.ForceQuery || strings.ContainsAny(given, "#%") || strings.ContainsFunc(u.Path, isControl) {
		return wrong("found a query, a fragment, % or control characters; expected ssh://git@host/path")
	}
	if u, err = ParseURL(u.String(), SchemeSSH); err != nil {
		return SSHPlace{}, true, err
	}
	u.User, u.Host = user, strings.ToLower(u.Host)
	if u.Port() == "22" {
		u.Host = strings.TrimSuffix(u.Host, ":22")
	}
	if place.URL = u; place.Path == "" {
		place.Path = u.Path
		if strings.HasPrefix(u.Path, "/~") { // the home of a user, as Git has it
			place.Path = u.Path[1:]
		}
	}
	if strings.HasPrefix(place.Path, "-") { // which a program at the server could take for an option
		return wrong("found - at the beginning of the path; expected the path of a repository")
	}
	return place, true, nil
}

// Address is host and port.
func (p SSHPlace) Address() (host, port string) { return p.URL.Hostname(), Port(p.URL) }

// Server is the server as messages have it.
func (p SSHPlace) Server() string {
	if host, port := p.Address(); port != sshkey.DefaultPort {
		return net.JoinHostPort(host, port)
	}
	return p.URL.Hostname()
}
