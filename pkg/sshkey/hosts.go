package sshkey

import (
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // what OpenSSH hides the names of known hosts by
	"encoding/base64"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// DefaultPort is where servers of SSH listen.
const DefaultPort = "22"

// maxLines is how many lines of known hosts there may be.
const maxLines = 200

// Hosts are servers by their keys. A server that is not among them is not spoken to: none is trusted because it was the first to answer.
type Hosts struct{ all []host }

// host is a line: the names of a server and a key, or the fingerprint of one.
type host struct {
	line int
	// names are as known_hosts has them: host, [host]:port, or hidden. None stands for every server, which only a fingerprint may.
	names       []string
	fingerprint string
	// kind is empty for a fingerprint, which does not say.
	kind    string
	revoked bool
}

var (
	fingerprintForm = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)
	hostForm        = regexp.MustCompile(`^(\[[A-Za-z0-9._:-]+\]:[0-9]{1,5}|[A-Za-z0-9._:-]+|\|1\|[A-Za-z0-9+/=]+\|[A-Za-z0-9+/=]+)$`)
)

// ReadHosts reads lines of known_hosts (host key-type key), or fingerprints: SHA256:…, or HOST SHA256:….
func ReadHosts(text string) (Hosts, error) {
	var h Hosts
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		one, problem := readHost(line)
		if problem != "" {
			return Hosts{}, fault.New(fault.Invalid, "line %d: %s", i+1, problem)
		}
		one.line = i + 1
		if h.all = append(h.all, one); len(h.all) > maxLines {
			return Hosts{}, fault.New(fault.Invalid, "found more than %d lines; expected those of the servers that are used", maxLines)
		}
	}
	return h, nil
}

// readHost reads one line. A line is not shown: it may have been a private key.
func readHost(line string) (one host, problem string) {
	words := strings.Fields(line)
	if last := words[len(words)-1]; len(words) <= 2 && fingerprintForm.MatchString(last) {
		one.fingerprint = last
		if len(words) == 2 {
			one.names = strings.Split(words[0], ",")
		}
		return one, namesProblem(one.names)
	}
	if strings.HasPrefix(line, "@cert-authority") {
		return one, "found an authority of certificates; expected the key of a server itself, or its fingerprint (SHA256:…)"
	}
	marker, names, key, _, rest, err := ssh.ParseKnownHosts([]byte(line))
	if err != nil || len(rest) > 0 {
		return one, "found neither a line of known_hosts (host, type and key, as ssh-keyscan prints them) nor a fingerprint (SHA256:…, or host and SHA256:…)"
	}
	one = host{names: names, kind: key.Type(), fingerprint: ssh.FingerprintSHA256(key), revoked: marker == "revoked"}
	if problem := keyProblem(key); problem != "" && !one.revoked {
		return one, problem
	}
	return one, namesProblem(names)
}

func namesProblem(names []string) string {
	for _, name := range names {
		if !hostForm.MatchString(name) {
			return fmt.Sprintf("found the host %.100q; expected a name, [name]:port, or a hashed one, without patterns", name)
		}
	}
	return ""
}

// keyProblem is what makes the key of a server unsafe.
func keyProblem(key ssh.PublicKey) string {
	if AlgorithmsOf(key.Type()) == nil {
		return fmt.Sprintf("found a key of type %.50q; expected one of %s", key.Type(), strings.Join(kinds(), ", "))
	}
	if of, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := of.CryptoPublicKey().(*rsa.PublicKey); ok && public.N.BitLen() < minBits {
			return fmt.Sprintf("found a key of RSA of %d bits; expected at least %d", public.N.BitLen(), minBits)
		}
	}
	return ""
}

// is reports whether a line is about a server.
func (h host) is(name, port string) bool {
	return len(h.names) == 0 || slices.ContainsFunc(h.names, func(known string) bool { return sameHost(known, name, port) })
}

func sameHost(known, name, port string) bool {
	whole := strings.ToLower(name)
	if port != DefaultPort {
		whole = "[" + whole + "]:" + port
	}
	salt, sum, hidden := strings.Cut(strings.TrimPrefix(known, "|1|"), "|")
	if !hidden || !strings.HasPrefix(known, "|1|") {
		return strings.EqualFold(known, whole) || port == DefaultPort && strings.EqualFold(known, "["+name+"]:"+port)
	}
	key, err := base64.StdEncoding.DecodeString(salt)
	want, err2 := base64.StdEncoding.DecodeString(sum)
	if err != nil || err2 != nil {
		return false
	}
	mac := hmac.New(sha1.New, key)
	_, _ = mac.Write([]byte(whole))
	return hmac.Equal(mac.Sum(nil), want)
}

// Know reports whether a key of a server is known.
func (h Hosts) Know(name, port string) bool {
	return slices.ContainsFunc(h.all, func(one host) bool { return !one.revoked && one.is(name, port) })
}

// Unnamed is the number of a line whose fingerprint is for every server; 0 for none.
func (h Hosts) Unnamed() int {
	for _, one := range h.all {
		if len(one.names) == 0 {
			return one.line
		}
	}
	return 0
}

// Algorithms are those that a server is asked to prove itself with: those of the keys that it is known by. Where a fingerprint is known,
// which does not say of what kind its key is, they are all.
func (h Hosts) Algorithms(name, port string) (all []string) {
	for _, kind := range kinds() {
		if slices.ContainsFunc(h.all, func(one host) bool { return !one.revoked && one.is(name, port) && (one.kind == kind || one.kind == "") }) {
			all = append(all, AlgorithmsOf(kind)...)
		}
	}
	return all
}

// Check reports whether a server that has proved to have a key is the one that is known. The error says both fingerprints.
func (h Hosts) Check(name, port string, key ssh.PublicKey) error {
	server := name
	if port != DefaultPort {
		server = net.JoinHostPort(name, port)
	}
	found := fmt.Sprintf("found the host key %s (%s)", ssh.FingerprintSHA256(key), key.Type())
	if problem := keyProblem(key); problem != "" {
		return fault.New(fault.Refused, "the server %s is not trusted: %s", server, problem)
	}
	var known []string
	for _, one := range h.all {
		switch {
		case !one.is(name, port):
		case one.revoked && one.fingerprint == ssh.FingerprintSHA256(key):
			return fault.New(fault.Refused, "the server %s is not trusted: %s, which line %d of the known hosts has revoked", server, found, one.line)
		case !one.revoked:
			text := one.fingerprint
			if one.kind != "" {
				text += " (" + one.kind + ")"
			}
			known = append(known, text)
		}
	}
	switch {
	case len(known) == 0:
		return fault.New(fault.Refused, "the server %s is not trusted: %s; the credential knows none of this server", server, found)
	case !slices.ContainsFunc(h.all, func(one host) bool {
		return !one.revoked && one.is(name, port) && one.fingerprint == ssh.FingerprintSHA256(key)
	}):
		return fault.New(fault.Refused, "the server %s is not trusted: %s; expected %s. Its key was replaced, or another server answers: ask who runs it, and "+
			"create a credential with the new key", server, found, strings.Join(known, " or "))
	}
	return nil
}
