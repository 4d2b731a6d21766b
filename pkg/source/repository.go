package source

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	defaultRegistry = "docker.io"
	// maxImage is more than any registry allows: 253 for the host, 255 for the repository, 128 for the tag, a digest.
	maxImage = 1024
	// maxHost is the limit of DNS.
	maxHost = 253
)

var (
	// DNS has no underscores in host names, but Docker and Compose use them in the names of containers.
	hostForm       = regexp.MustCompile(`^(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
)

// NormalizeImage returns the canonical name of an image's repository: with its registry, docker.io/library/… included where Docker omits
// it, in lower case, without tag and digest.
func NormalizeImage(image string) (string, error) {
	if len(image) > maxImage {
		return "", fault.New(fault.Invalid, "found %d bytes; expected at most %d", len(image), maxImage)
	}
	rest, err := unpinned(image)
	if err != nil {
		return "", err
	}
	rest = strings.ToLower(rest)
	host, repository, ok := strings.Cut(rest, "/")
	// Docker's own rule: a first part without dot and port, other than localhost, is a folder on Docker Hub.
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, repository = defaultRegistry, rest
	}
	if host != defaultRegistry {
		named := host
		if host, ok = NormalizeHost(named, "https"); !ok {
			return "", notAnImage(image, repository, named)
		}
	}
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = defaultRegistry
	}
	if host == defaultRegistry && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	if !repositoryForm.MatchString(repository) {
		return "", notAnImage(image, repository, host)
	}
	return host + "/" + repository, nil
}

func notAnImage(image, repository, host string) error {
	return fault.New(fault.Invalid, "found %s, understood as %s at registry %s; expected an image, such as registry.example.com/shop/api",
		quote(image), quote(repository), quote(host))
}

// NormalizeHost returns the canonical form of a registry's host, with its port unless that is 443: in lower case, without the trailing dot
// of a fully qualified name, and in ASCII if the name is internationalized. The scheme, http or https, is the one that the host was given
// with: in a reference, a name without dot and port would be a folder on Docker Hub, so the scheme's default port is added. It reports
// false for an invalid host.
func NormalizeHost(host, scheme string) (normalized string, ok bool) {
	name, port := strings.ToLower(host), ""
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, ']') {
		name, port = name[:at], name[at+1:]
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", false
		}
	}
	name = strings.TrimSuffix(name, ".")
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		// The IDNA profile of browsers and resolvers, except that underscores are allowed.
		profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))
		var err error
		if name, err = profile.ToASCII(name); err != nil {
			return "", false
		}
	}
	if len(name) > maxHost || !hostForm.MatchString(name) || strings.HasPrefix(name, "[") && net.ParseIP(strings.Trim(name, "[]")) == nil {
		return "", false
	}
	single := !strings.ContainsAny(name, ".:") && name != "localhost"
	switch {
	case port == "" && single && scheme == "http":
		port = "80"
	case port == "" && single:
		port = "443"
	case port == "443" && !single && name != "localhost":
		port = ""
	}
	if port != "" {
		name += ":" + port
	}
	return name, true
}

// quote quotes a value for a message, and shortens a long one.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}
