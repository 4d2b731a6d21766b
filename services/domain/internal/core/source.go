package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// SourceOCIImage is the kind of artifact source that is a container image in any registry (R7). It is the only kind yet;
// another one adds its configuration and its match key here.
const SourceOCIImage = "oci-image@1"

// MatchKey derives what a published artifact is looked up by from an artifact source. The findings are JSON pointers into
// the source: /sourceRef, /sourceConfig/image.
func MatchKey(ref string, config json.RawMessage) (string, []fault.Field) {
	if ref != SourceOCIImage {
		return "", []fault.Field{{Name: "/sourceRef", Problem: fmt.Sprintf("found %q; expected %s", ref, SourceOCIImage)}}
	}
	var c struct {
		Image *string `json:"image"`
	}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return "", []fault.Field{{Name: "/sourceConfig", Problem: fmt.Sprintf(`found %.60q; expected an object {"image": "registry/repository"} and nothing else`, config)}}
	}
	if c.Image == nil {
		return "", []fault.Field{{Name: "/sourceConfig/image", Problem: "found nothing; expected a value"}}
	}
	key, err := ImageMatchKey(*c.Image)
	if err != nil {
		return "", []fault.Field{{Name: "/sourceConfig/image", Problem: err.Error()}}
	}
	return key, nil
}

// ImageMatchKey is the match key of an image: whatever way its repository is written, tag and digest left out.
func ImageMatchKey(image string) (string, error) {
	name, err := NormalizeImage(image)
	if err != nil {
		return "", err
	}
	return "oci-image:" + name, nil
}

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
	rest := strings.ToLower(strings.TrimSpace(image))
	rest, _, _ = strings.Cut(rest, "@")
	// A colon before the last slash is the registry's port, one after it begins the tag.
	if slash, colon := strings.LastIndexByte(rest, '/'), strings.LastIndexByte(rest, ':'); colon > slash {
		rest = rest[:colon]
	}
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
		return "", fault.New(fault.Invalid, "found %q; expected an image, such as registry.example.com/shop/api", image)
	}
	return host + "/" + repository, nil
}

// imageOf is the image without tag and digest, spelled as it came.
func imageOf(image string) string {
	image, _, _ = strings.Cut(strings.TrimSpace(image), "@")
	if slash, colon := strings.LastIndexByte(image, '/'), strings.LastIndexByte(image, ':'); colon > slash {
		image = image[:colon]
	}
	return image
}
