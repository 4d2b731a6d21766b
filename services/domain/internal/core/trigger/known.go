package trigger

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// mostKnown bounds the text of the configurations that are kept as they were read, each with an allowance for what is beside its text.
const (
	mostKnown   = 16 << 20
	knownBeside = 1 << 10
)

// configs are configurations that were read already, by the digest of their kind and text. They are shared: nobody changes them.
type configs struct {
	mu    sync.Mutex
	bytes int
	all   map[[sha256.Size]byte]knownConfig
}

type knownConfig struct {
	config
	bytes int
}

// read is readConfig; a text that was read before is not read again. What is wrong is.
func (u *UseCases) read(kind core.TriggerKind, text json.RawMessage) (config, error) {
	digest := sha256.Sum256(append([]byte(kind+"\x00"), text...))
	k := &u.known
	k.mu.Lock()
	found, known := k.all[digest]
	k.mu.Unlock()
	if known {
		return found.config, nil
	}
	c, err := readConfig(kind, text, u.ranges)
	if err == nil {
		k.keep(digest, knownConfig{config: c, bytes: len(text) + knownBeside}, mostKnown)
	}
	return c, err
}

// keep adds one, in the place of any others if there is no room.
func (k *configs) keep(digest [sha256.Size]byte, one knownConfig, most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[[sha256.Size]byte]knownConfig{}
	}
	if _, known := k.all[digest]; known {
		return
	}
	for other, gone := range k.all {
		if k.bytes+one.bytes <= most {
			break
		}
		delete(k.all, other)
		k.bytes -= gone.bytes
	}
	k.all[digest] = one
	k.bytes += one.bytes
}
