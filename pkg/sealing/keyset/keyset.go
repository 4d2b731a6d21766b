// Package keyset seals values with envelope encryption: each with a key of its own, which a key of the operator's keyset encrypts. What a
// value is bound to is authenticated with it, so that a copied ciphertext opens nowhere else.
//
// The keyset is a reference to a secret and is resolved at each use, so that it can be rotated while services run. This package stores no
// keys, and its errors contain neither keys nor values.
package keyset

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/secret"
)

// Keyset seals and opens values. It is safe for concurrent use; a nil Keyset has no keys.
type Keyset struct {
	secrets *secret.Reader
	ref     string
}

// New returns the keyset at a reference; empty for none.
func New(secrets *secret.Reader, ref string) *Keyset { return &Keyset{secrets, ref} }

// Configured reports whether there is a keyset.
func (k *Keyset) Configured() bool { return k != nil && k.ref != "" }

// keys is a keyset as it is now.
type keys struct {
	handle  *keyset.Handle
	primary uint32
	aead    tink.AEAD
}

// read reads the keyset. The error is Refused without one, Unavailable if it cannot be read now.
func (k *Keyset) read(ctx context.Context) (keys, error) {
	if !k.Configured() {
		return keys{}, fault.New(
			fault.Refused, "no keyset is configured, so values cannot be sealed or opened; an operator has to configure one (credentials.keyset_ref), "+
				"or the credential has to be a reference",
		)
	}
	text, err := k.secrets.Read(ctx, k.ref)
	if err != nil {
		// Its text names the reference, which is the operator's.
		return keys{}, fault.Because(err, fault.Unavailable, "the keyset cannot be read (credentials.keyset_ref); an operator has to look at it")
	}
	handle, err := parse(text)
	if err != nil {
		return keys{}, fault.Because(err, fault.Unavailable, "the keyset cannot be read: %s (credentials.keyset_ref)", fault.Public(err))
	}
	return open(handle)
}

func open(handle *keyset.Handle) (keys, error) {
	primary, err := handle.Primary()
	if err != nil {
		return keys{}, fault.New(fault.Unavailable, "the keyset has no primary key")
	}
	of, err := aead.New(handle)
	if err != nil {
		return keys{}, fault.New(fault.Unavailable, "the keyset has keys of another kind; expected those that `lockstep keyset create` makes")
	}
	return keys{handle, primary.KeyID(), aead.NewKMSEnvelopeAEAD2(aead.AES256GCMKeyTemplate(), of)}, nil
}

// parse reads the text of a keyset. Its error has nothing of the text.
func parse(text string) (*keyset.Handle, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	if err != nil {
		return nil, fault.New(fault.Invalid, "found what is no keyset; expected one that `lockstep keyset create` makes")
	}
	return handle, nil
}

// Seal seals a value with the primary key, for some terms. It also returns the number of the key.
func (k *Keyset) Seal(ctx context.Context, value string, terms sealing.Terms) (sealed []byte, key uint32, err error) {
	return k.seal(ctx, value, terms.Bytes())
}

// SealFor seals a text for a use. It opens for that use only, and never as the value of a credential.
func (k *Keyset) SealFor(ctx context.Context, use sealing.Use, text string) ([]byte, error) {
	sealed, _, err := k.seal(ctx, text, use.Bytes())
	return sealed, err
}

func (k *Keyset) seal(ctx context.Context, value string, bound []byte) (sealed []byte, key uint32, err error) {
	all, err := k.read(ctx)
	if err != nil {
		return nil, 0, err
	}
	sealed, err = all.aead.Encrypt([]byte(value), bound)
	if err != nil {
		return nil, 0, fault.Because(err, fault.Internal, "seal a value")
	}
	return sealed, all.primary, nil
}

// Open opens a value. The error is Unavailable for a key that the keyset does not have, or not yet, and Unauthenticated for what was sealed
// for other terms, or was changed.
func (k *Keyset) Open(ctx context.Context, sealed []byte, terms sealing.Terms) (string, error) {
	return k.open(ctx, sealed, terms.Bytes(), "the value does not open: it was sealed for another credential, or was changed")
}

// OpenFor opens a text that was sealed for a use. The errors are those of Open.
func (k *Keyset) OpenFor(ctx context.Context, use sealing.Use, sealed []byte) (string, error) {
	return k.open(ctx, sealed, use.Bytes(), "the text does not open: it was sealed for another use, or was changed")
}

func (k *Keyset) open(ctx context.Context, sealed, bound []byte, unopened string) (string, error) {
	all, err := k.read(ctx)
	if err != nil {
		return "", err
	}
	if id, ok := KeyOf(sealed); ok && !all.has(id) {
		return "", fault.New(
			fault.Unavailable, "the value was sealed with key %d, which the keyset of this service does not have; an operator has to give all "+
				"services the same keyset (credentials.keyset_ref)", id,
		)
	}
	value, err := all.aead.Decrypt(sealed, bound)
	if err != nil {
		return "", fault.New(fault.Unauthenticated, "%s", unopened)
	}
	return string(value), nil
}

// Primary is the number of the key that values are sealed with.
func (k *Keyset) Primary(ctx context.Context) (uint32, error) {
	all, err := k.read(ctx)
	return all.primary, err
}

func (k keys) has(id uint32) bool {
	for i := range k.handle.Len() {
		if e, err := k.handle.Entry(i); err == nil && e.KeyID() == id && e.KeyStatus() == keyset.Enabled {
			return true
		}
	}
	return false
}

// KeyOf is the number of the key that a value was sealed with; false for what was not sealed by this package.
func KeyOf(sealed []byte) (uint32, bool) {
	// The length of the encrypted key, and the encrypted key, which begins with 1 and the number of the key that encrypts it.
	const behind = 4 + 1 + 4
	if len(sealed) < behind || sealed[4] != 1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(sealed[5:behind]), true
}

// Create makes the text of a keyset with one key.
func Create() (string, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return "", fault.Because(err, fault.Internal, "make a key")
	}
	return write(handle)
}

func write(handle *keyset.Handle) (string, error) {
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return "", fault.Because(err, fault.Internal, "write a keyset")
	}
	return strings.TrimSpace(text.String()), nil
}

// Add is a keyset with one more key, which is not the primary one yet: values are sealed with it once every service has it.
func Add(text string) (string, error) {
	return change(text, func(m *keyset.Manager) error {
		_, err := m.Add(aead.AES256GCMKeyTemplate())
		return err
	})
}

// Promote is a keyset whose primary key is another one of it.
func Promote(text string, id uint32) (string, error) {
	return change(text, func(m *keyset.Manager) error { return m.SetPrimary(id) })
}

// Remove is a keyset without a key. What was sealed with it no longer opens.
func Remove(text string, id uint32) (string, error) {
	return change(text, func(m *keyset.Manager) error { return m.Delete(id) })
}

func change(text string, do func(*keyset.Manager) error) (string, error) {
	handle, err := parse(text)
	if err != nil {
		return "", err
	}
	m := keyset.NewManagerFromHandle(handle)
	if err := do(m); err != nil {
		return "", fault.New(fault.Invalid, "the keyset has no such key, or it is the primary one; `lockstep keyset list` shows its keys")
	}
	if handle, err = m.Handle(); err != nil {
		return "", fault.Because(err, fault.Internal, "change a keyset")
	}
	return write(handle)
}

// Key is a key of a keyset, without itself.
type Key struct {
	ID      uint32 `json:"id"`
	Primary bool   `json:"primary"`
}

// List is the keys of a keyset.
func List(text string) ([]Key, error) {
	handle, err := parse(text)
	if err != nil {
		return nil, err
	}
	all := []Key{}
	for i := range handle.Len() {
		e, err := handle.Entry(i)
		if err != nil {
			return nil, fault.Because(err, fault.Internal, "read a keyset")
		}
		all = append(all, Key{e.KeyID(), e.IsPrimary()})
	}
	return all, nil
}
