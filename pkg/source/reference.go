package source

import (
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

var (
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestForm = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}|blake3:[0-9a-f]{64})$`)
	// likeDigest matches what may have been meant as a digest.
	likeDigest = regexp.MustCompile(`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-zA-Z]*$`)
)

// unpinned returns an image reference without its tag and digest, which are checked. The part before an @ may be a password, so it is
// neither treated as an image nor shown: this error may be stored.
func unpinned(reference string) (string, error) {
	rest := strings.TrimSpace(reference)
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		digest := rest[at+1:]
		if rest = rest[:at]; !digestForm.MatchString(digest) || strings.Contains(rest, "@") {
			if likeDigest.MatchString(digest) && !strings.Contains(rest, "@") {
				return "", fault.New(fault.Invalid, "found the digest %s; expected an algorithm and all of its hexadecimal digits, such as sha256: and 64 of them", quote(digest))
			}
			return "", fault.New(fault.Invalid, "found an @ that no digest follows (what stands before it is not shown); expected an image, such as registry.example.com/shop/api, without user and password")
		}
	}
	// A colon before the last slash is the registry's port, one after it begins the tag.
	if slash, colon := strings.LastIndexByte(rest, '/'), strings.LastIndexByte(rest, ':'); colon > slash {
		if tag := rest[colon+1:]; !tagForm.MatchString(tag) {
			return "", fault.New(fault.Invalid, "found the tag %s; expected letters, digits, _, . and -, at most 128 of them", quote(tag))
		}
		rest = rest[:colon]
	}
	return rest, nil
}
