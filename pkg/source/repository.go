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
	// maxImage is more than any registry takes: 253 for the host, 255 for the repository, 128 for the tag, a digest.
	maxImage = 1024
	// maxHost is what the DNS allows.
	maxHost = 253
)

var (
	// An underscore is in no host name of the DNS, but in those that Docker and Compose give to containers.
	hostForm       = regexp.MustCompile(`^(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
)

// NormalizeImage is the one way of writing the repository of an image reference: with its registry, docker.io/library/…
// where Docker leaves it out, in lower case, without tag and digest.
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
	// Docker's own rule: what has neither dot nor port, and is not localhost, is a folder on Docker Hub.
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
	return fault.New(fault.Invalid, "found %s, understood as %s at registry %s; expected an image, such as registry.example.com/shop/api", quote(image), quote(repository), quote(host))
}

// NormalizeHost is the one way of writing a registry's host, with its port unless that is 443: in lower case, without the dot that ends a
// fully qualified name, and in ASCII where the name is internationalized. The scheme, http or https, is that by which the host was named: in a
// reference, a name without dot and port would be a folder of Docker Hub, so it is written with the port that the scheme implies. ok is false for
// what is no host.
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
		// The profile of IDNA that browsers and resolvers use, but for underscores.
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

// quote shows what was found, cut where it would drown the message.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}
