package source

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseCDEvents parses artifact.published, artifact.packaged and artifact.deleted of CDEvents, in any version: as the data of a CloudEvent,
// or on its own.
// The artifact is a package URL of type oci or docker; other packages are skipped.
func parseCDEvents(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	e := top
	if top.has("specversion") {
		e = top.in("data")
	}
	context, subject := e.in("context"), e.in("subject")
	context.require("type", "the type of a CDEvent")
	// The type ends in a version of its own, as in dev.cdevents.artifact.published.0.2.0; all of them have the fields used here.
	about := context.text("type")
	deleted := strings.HasPrefix(about, "dev.cdevents.artifact.deleted.")
	if !deleted && !strings.HasPrefix(about, "dev.cdevents.artifact.published.") &&
		!strings.HasPrefix(about, "dev.cdevents.artifact.packaged.") {
		return nil, top.err()
	}
	purl := lowerType(subject.text("id"))
	if purl != "" && !strings.HasPrefix(purl, "pkg:oci/") && !strings.HasPrefix(purl, "pkg:docker/") {
		return nil, top.err()
	}
	at := subject.name("id")
	n := core.Notification{
		ID: context.text("id"), PublishedAt: stamp(context.text("timestamp")), Deleted: deleted,
		Names: core.Names{ID: context.name("id"), Image: at, Digest: at, Tag: at},
	}
	var ok bool
	if n.Image, n.Tag, n.Digest, ok = splitPackageURL(purl); !ok {
		subject.wrong("id", "a package URL with repository_url, such as pkg:oci/api@sha256%3A…?repository_url=registry.example.com/shop/api&tag=1.4.0")
	}
	if deleted && n.Digest != "" {
		n.Tag = "" // the artifact is deleted, and not one of its tags
	}
	return single(n, top.err())
}

// lowerType returns a package URL with scheme and type in lower case; neither is case-sensitive.
func lowerType(purl string) string {
	scheme, rest, ok := strings.Cut(purl, ":")
	if !ok || !strings.EqualFold(scheme, "pkg") {
		return purl
	}
	kindOf, rest, ok := strings.Cut(strings.TrimLeft(rest, "/"), "/")
	if !ok {
		return purl
	}
	return "pkg:" + strings.ToLower(kindOf) + "/" + rest
}

// splitPackageURL splits a package URL. For type oci, repository_url is the whole repository; for type docker, the repository is namespace
// and name in the registry repository_url.
func splitPackageURL(purl string) (image, tag, digest string, ok bool) {
	rest, isOCI := strings.CutPrefix(purl, "pkg:oci/")
	rest = strings.TrimPrefix(rest, "pkg:docker/")
	rest, _, _ = strings.Cut(rest, "#")
	path, query, _ := strings.Cut(rest, "?")
	qualifiers, err := url.ParseQuery(query)
	if err != nil {
		return "", "", "", false
	}
	path, version, _ := strings.Cut(path, "@")
	name, err1 := url.PathUnescape(path)
	version, err2 := url.PathUnescape(version)
	if err1 != nil || err2 != nil || name == "" {
		return "", "", "", false
	}
	repository, inTag, _ := splitReference(dropScheme(qualifiers.Get("repository_url")))
	switch {
	case isOCI && repository == "":
		return "", "", "", false // it does not say where
	// The specification of package URLs has repository_url end in the name. Some generators omit it.
	case isOCI && repository != name && !strings.HasSuffix(repository, "/"+name):
		image = repository + "/" + name
	case isOCI:
		image = repository
	case repository != "":
		image = repository + "/" + name
	case strings.Contains(name, "/"):
		image = hubHost + "/" + name
	default:
		// Docker Hub's own images have no namespace in a package URL; its API has them under library.
		image = hubHost + "/library/" + name
	}
	tag = qualifiers.Get("tag")
	if tag == "" {
		tag = inTag
	}
	if isDigest(version) {
		digest = version
	} else if tag == "" {
		tag = version
	}
	return image, tag, digest, true
}
