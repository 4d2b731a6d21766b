package rpc

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Key is a bearer token in a configuration, given by digest or by reference, never in clear. To rotate one, configure the new one beside
// the old, switch the callers, and remove the old one.
type Key struct {
	Caller Caller
	// SHA256 is the token's digest, hexadecimal.
	SHA256 string
	// Ref is where the token is: env:NAME, or file:/path, which is read again whenever the file has changed. Exactly one of SHA256 and Ref
	// is set.
	Ref string
}

// Keyring is the set of tokens that a server accepts. It is safe for concurrent use.
type Keyring struct {
	keys []*key
}

// key is a token by its digest. All digests have the same length, so a comparison takes the same time for any token.
type key struct {
	caller Caller
	file   string

	mu     sync.Mutex
	digest [sha256.Size]byte
	known  bool
	stamp  certs.Stamp
}

// NewKeyring checks the keys. The error is Invalid; its fields are named by the key's position: "1.sha256".
func NewKeyring(keys []Key) (*Keyring, error) {
	r := &Keyring{}
	var wrong []fault.Field
	for i, k := range keys {
		made, field, problem := newKey(k)
		if problem != "" {
			wrong = append(wrong, fault.Field{Name: fmt.Sprintf("%d.%s", i, field), Problem: problem})
			continue
		}
		r.keys = append(r.keys, made)
	}
	if len(wrong) > 0 {
		return nil, fault.InvalidFields(wrong...)
	}
	return r, nil
}

// newKey never shows what it found: it may be a token entered by mistake.
func newKey(k Key) (made *key, field, problem string) {
	made = &key{caller: k.Caller}
	scheme, rest, _ := strings.Cut(k.Ref, ":")
	switch {
	case (k.SHA256 == "") == (k.Ref == ""):
		return nil, "sha256", "expected either it or ref"
	case k.SHA256 != "":
		sum, err := hex.DecodeString(k.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return nil, "sha256", "expected 64 hexadecimal digits"
		}
		made.digest, made.known = [sha256.Size]byte(sum), true
	case scheme == "env" && rest != "":
		token := os.Getenv(rest)
		if token == "" {
			return nil, "ref", "environment variable " + rest + " is empty or not set"
		}
		made.digest, made.known = sha256.Sum256([]byte(token)), true
	case scheme == "file" && rest != "":
		made.file = rest
		if !made.current() {
			return nil, "ref", "file " + rest + " cannot be read or is empty"
		}
	default:
		return nil, "ref", "expected a reference, env:NAME or file:/path"
	}
	return made, "", ""
}

// current reads the file again if it has changed, and reports whether there is a token. A deleted file revokes its token.
func (k *key) current() bool {
	if k.file == "" {
		return k.known
	}
	s, err := certs.StampOf(k.file)
	if err != nil {
		k.known, k.stamp = false, certs.Stamp{}
		return false
	}
	if k.known && s == k.stamp {
		return true
	}
	text, err := os.ReadFile(k.file)
	token := strings.TrimRight(string(text), "\r\n") // added by an editor, not part of the token
	k.known, k.stamp = err == nil && token != "", s
	k.digest = sha256.Sum256([]byte(token))
	return k.known
}

// with returns the keyring with additional tokens in clear. The empty token is ignored.
func (r *Keyring) with(tokens map[string]Caller) *Keyring {
	all := &Keyring{}
	if r != nil {
		all.keys = append(all.keys, r.keys...)
	}
	for token, caller := range tokens {
		if token != "" {
			all.keys = append(all.keys, &key{caller: caller, digest: sha256.Sum256([]byte(token)), known: true})
		}
	}
	return all
}

// find compares with every token, so that the time does not reveal a partial match.
func (r *Keyring) find(given [sha256.Size]byte) (found Caller, known bool) {
	for _, k := range r.keys {
		k.mu.Lock()
		if k.current() && subtle.ConstantTimeCompare(k.digest[:], given[:]) == 1 {
			found, known = k.caller, true
		}
		k.mu.Unlock()
	}
	return found, known
}
