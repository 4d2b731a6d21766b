package bus

import (
	"fmt"

	"github.com/nats-io/nkeys"
)

// NewKey is a key for a user of NATS: the public half, which begins with U, and the seed, which begins with SU and which only
// the user may have.
func NewKey() (public, seed string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	defer pair.Wipe()
	text, err := pair.Seed()
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	public, err = pair.PublicKey()
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	return public, string(text), nil
}
