package source

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	defaultRegistry = "docker.io"
	// maxImage is more than any registry takes: 253 for the host, 255 for the repository, 128 for the tag, a digest.
	maxImage = 1024
)

var (
	hostForm       = regexp.MustCompile(`^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?$`)
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
	if bare, isDefault := strings.CutSuffix(host, ":443"); isDefault && strings.ContainsAny(bare, ".:") {
		host = bare // without dot and port it would read as a folder
	}
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = defaultRegistry
	}
	if host == defaultRegistry && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	if !hostForm.MatchString(host) || !repositoryForm.MatchString(repository) {
		return "", fault.New(fault.Invalid, "found %s, understood as %s at registry %s; expected an image, such as registry.example.com/shop/api", quote(image), quote(repository), quote(host))
	}
	return host + "/" + repository, nil
}

// quote shows what was found, cut where it would drown the message.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}
