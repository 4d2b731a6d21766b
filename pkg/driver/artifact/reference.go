package artifact

import (
	"io/fs"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
)

// Scheme begins every reference, which distinguishes it from the path of a folder.
const Scheme = "oci://"

// A Reference names an artifact in a registry, by tag or by digest: oci://registry/repository:tag or oci://registry/repository@sha256:…
type Reference struct {
	repository, tag, digest string
}

// malformed describes what is wrong with a reference. Of all that is not allowed in a repository's name, capitals are the most common
// mistake and the hardest to see.
func malformed(s, repository string) error {
	host, path, _ := strings.Cut(repository, "/")
	if lower := strings.ToLower(path); lower != path {
		return fault.New(fault.Invalid, "found %q, whose repository %q has capitals; expected small letters only: %s%s/%s", s, path,
			Scheme, host, lower)
	}
	return fault.New(fault.Invalid, "found %q; %s", s, expected)
}

const expected = "expected oci://registry/repository:tag or oci://registry/repository@sha256:…"

// ParseReference parses a reference. Registry and tag are required, because docker.io and latest are never meant by omission. The error is
// Invalid.
func ParseReference(s string) (Reference, error) {
	rest, ok := strings.CutPrefix(s, Scheme)
	if !ok {
		return Reference{}, fault.New(fault.Invalid, "found %q; %s", s, expected)
	}
	rest, digest, byDigest := strings.Cut(rest, "@")
	r := Reference{repository: rest}
	if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, '/') {
		r.repository, r.tag = rest[:at], rest[at+1:]
		if _, err := name.NewTag(rest, name.StrictValidation); err != nil {
			return Reference{}, malformed(s, r.repository)
		}
	}
	if byDigest {
		r.digest = digest
		if _, err := name.NewDigest(r.repository+"@"+digest, name.StrictValidation); err != nil || digest == "" {
			return Reference{}, malformed(s, r.repository)
		}
	}
	// The path becomes part of the URL unchanged, and the library accepts dots.
	host, path, _ := strings.Cut(r.repository, "/")
	if r.tag == "" && r.digest == "" || !strings.ContainsAny(host, ".:") && host != "localhost" || !fs.ValidPath(path) {
		return Reference{}, malformed(s, r.repository)
	}
	return r, nil
}

// String formats the reference for ParseReference.
func (r Reference) String() string {
	s := Scheme + r.repository
	if r.tag != "" {
		s += ":" + r.tag
	}
	if r.digest != "" {
		s += "@" + r.digest
	}
	return s
}

// Fixed reports whether the reference is by digest, and thus always names the same artifact.
func (r Reference) Fixed() bool { return r.digest != "" }

// in converts the reference for the library: by digest if it has one, and over HTTP if an account allows that.
func (r Reference) in(accounts ociauth.Accounts) (name.Reference, error) {
	repository, err := name.NewRepository(r.repository, accounts.Options(r.repository)...)
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "found %q; %s", r, expected)
	}
	if r.digest != "" {
		return repository.Digest(r.digest), nil
	}
	return repository.Tag(r.tag), nil
}

// Host returns the registry, with its port if it has one.
func (r Reference) Host() string {
	host, _, _ := strings.Cut(r.repository, "/")
	return host
}
