package authority

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Identity is who the authority is to NATS: an issuer, whose signature the server trusts, and a user, who logs in. Both come
// of one secret, so that there is one to keep.
type Identity struct {
	issuer, user nkeys.KeyPair
	// Issuer and User are the public halves, for the server's configuration: auth_callout's issuer, and the user of the system
	// account.
	Issuer, User string
}

// NewSeed is a new secret; it begins with SA.
func NewSeed() (string, error) {
	pair, err := nkeys.CreateAccount()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return string(seed), nil
}

// NewIdentity is the identity of a secret.
func NewIdentity(seed string) (Identity, error) {
	kind, raw, err := nkeys.DecodeSeed([]byte(seed))
	if err != nil || kind != nkeys.PrefixByteAccount {
		return Identity{}, fault.New(fault.Invalid,
			"found what is no seed of an authority; expected SA…, as \"lockstep agent authority\" makes it")
	}
	var i Identity
	if i.issuer, err = nkeys.FromRawSeed(nkeys.PrefixByteAccount, raw); err != nil {
		return Identity{}, fmt.Errorf("read the issuer: %w", err)
	}
	// Another key, so that nothing that logs in ever signs what lets others in: the server chooses what a login signs.
	derived, err := hkdf.Key(sha256.New, raw, nil, "lockstep authority user", sha256.Size)
	if err != nil {
		return Identity{}, fmt.Errorf("derive the user: %w", err)
	}
	if i.user, err = nkeys.FromRawSeed(nkeys.PrefixByteUser, derived); err != nil {
		return Identity{}, fmt.Errorf("derive the user: %w", err)
	}
	if i.Issuer, err = i.issuer.PublicKey(); err != nil {
		return Identity{}, fmt.Errorf("read the issuer: %w", err)
	}
	if i.User, err = i.user.PublicKey(); err != nil {
		return Identity{}, fmt.Errorf("derive the user: %w", err)
	}
	return i, nil
}

// login is how the user logs in.
func (i Identity) login() nats.Option {
	return nats.Nkey(i.User, func(nonce []byte) ([]byte, error) {
		signed, err := i.user.Sign(nonce)
		if err != nil {
			return nil, fmt.Errorf("sign the login: %w", err)
		}
		return signed, nil
	})
}
