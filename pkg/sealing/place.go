package sealing

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The schemes of mail servers: with STARTTLS, and encrypted from the beginning.
const (
	SchemeMail    = "smtp"
	SchemeMailTLS = "smtps"
)

// The schemes of NATS servers: encrypted once the server has said that it can be, and from the beginning.
const (
	SchemeNATS    = "nats"
	SchemeNATSTLS = "tls"
)

// SchemeWorker is that of Functions of workers: worker://shop.charge stands for all that a worker is sent with calls of shop.charge.
const SchemeWorker = "worker"

// WorkerURL is where a value goes that is sent to workers with the calls of a Function.
func WorkerURL(function string) *url.URL {
	return &url.URL{Scheme: SchemeWorker, Host: function, Path: "/"}
}

// ParseURL reads a URL of one of some schemes. What servers could read in several ways is refused: the check of a prefix would mean
// nothing.
func ParseURL(raw string, schemes ...string) (*url.URL, error) {
	wrong := func(problem string) error { return fault.InvalidFields(fault.Field{Name: "url", Problem: problem}) }
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Opaque != "":
		return nil, wrong("found a text that is not a URL; expected https://host/path") // it is not shown: its query may be a secret
	case !slices.Contains(schemes, u.Scheme):
		return nil, wrong(fmt.Sprintf("found the scheme %q; expected %s", u.Scheme, strings.Join(schemes, " or ")))
	case u.Hostname() == "" || strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' || r <= ' ' || r == '%' }):
		return nil, wrong("found no host, or one that is not ASCII; expected a host name")
	case u.User != nil:
		return nil, wrong("found a user in it; expected the argument credential instead")
	case strings.Contains(u.Path, `\`):
		return nil, wrong(`found \ in the path; expected /`)
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if name, _, _ := strings.Cut(part, ";"); name == "." || name == ".." {
			return nil, wrong("found . or .. in the path; expected the path that is meant")
		}
	}
	u.Fragment, u.RawFragment = "", ""
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// ParsePrefix reads the beginning of the URLs of a credential: of web, mail, NATS or SSH servers, or a Function of workers.
func ParsePrefix(raw string) (*url.URL, error) {
	u, err := ParseURL(raw, "https", "http", SchemeMail, SchemeMailTLS, SchemeNATS, SchemeNATSTLS, SchemeWorker, SchemeSSH)
	if err == nil && u.Scheme == SchemeWorker && (u.Path != "/" || u.Port() != "" || u.Host != strings.ToLower(u.Host) || !strings.Contains(u.Host, ".")) {
		return nil, fault.InvalidFields(fault.Field{
			Name: "url", Problem: fmt.Sprintf("found %.100q; expected the name of a function of workers and nothing behind it: worker://shop.charge", raw),
		})
	}
	return u, err
}

// Covers reports whether a URL is below one of some prefixes. Scheme, host and port have to be the same, and the path has to begin with the
// parts of the prefix, as they are separated before anything is decoded. A path that servers could read in several ways is below none.
func Covers(prefixes []string, u *url.URL) bool {
	path, plain := parts(u)
	return plain && slices.ContainsFunc(prefixes, func(prefix string) bool {
		p, err := ParsePrefix(prefix)
		if err != nil || p.Scheme != u.Scheme || !strings.EqualFold(p.Hostname(), u.Hostname()) || Port(p) != Port(u) {
			return false
		}
		beginning, plain := parts(p)
		return plain && len(beginning) <= len(path) && slices.Equal(beginning, path[:len(beginning)])
	})
}

// parts are what slashes separate in a path, each decoded once, without an empty one at the end. It reports false for a path that a server
// which decodes twice, or takes a backslash for a slash, would read differently, or that has a part which leads elsewhere.
func parts(u *url.URL) (all []string, plain bool) {
	all = strings.Split(strings.TrimPrefix(strings.TrimSuffix(u.EscapedPath(), "/"), "/"), "/")
	for i, escaped := range all {
		part, err := url.PathUnescape(escaped)
		if err != nil || strings.Contains(part, `\`) {
			return nil, false
		}
		lower := strings.ToLower(part)
		if slices.ContainsFunc([]string{"%2e", "%2f", "%5c", "%25"}, func(twice string) bool { return strings.Contains(lower, twice) }) {
			return nil, false
		}
		for inside := range strings.SplitSeq(part, "/") {
			if name, _, _ := strings.Cut(inside, ";"); name == "." || name == ".." {
				return nil, false
			}
		}
		all[i] = part
	}
	if len(all) == 1 && all[0] == "" {
		return nil, true
	}
	return all, true
}

// Port is the port of a URL, that of its scheme if it names none.
func Port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{
		"http": "80", "https": "443", SchemeMail: "587", SchemeMailTLS: "465", SchemeNATS: "4222", SchemeNATSTLS: "4222", SchemeSSH: "22",
	}[u.Scheme]
}
