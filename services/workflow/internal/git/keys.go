package git

import (
	"crypto/sha256"
	"slices"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/sshkey"
)

// maxKeys is how many keys are kept that were read.
const maxKeys = 100

// keys has the keys that were used last, by the digests of their values: a passphrase takes long to be checked, and one operation reads a
// key several times. Its zero value is empty. It is safe for concurrent use.
type keys struct {
	mu   sync.Mutex
	last []*readKey // the newest at the end
}

type readKey struct {
	digest [sha256.Size]byte
	once   sync.Once
	signer ssh.Signer
	err    error
}

// read reads a value, once while it is kept.
func (k *keys) read(value string) (ssh.Signer, error) {
	one := k.of(sha256.Sum256([]byte(value)))
	one.once.Do(func() { one.signer, one.err = sshkey.Read(value) })
	return one.signer, one.err
}

func (k *keys) of(digest [sha256.Size]byte) *readKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := &readKey{digest: digest}
	if at := slices.IndexFunc(k.last, func(r *readKey) bool { return r.digest == digest }); at >= 0 {
		one = k.last[at]
		k.last = slices.Delete(k.last, at, at+1)
	} else if len(k.last) >= maxKeys {
		k.last = slices.Delete(k.last, 0, 1)
	}
	k.last = append(k.last, one)
	return one
}
