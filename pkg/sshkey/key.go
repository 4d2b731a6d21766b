// Package sshkey reads what SSH connections are opened with, and what servers are known by: private keys, and lines of known hosts (D56).
//
// It connects to nothing. Nothing of a private key or a passphrase is in its errors.
package sshkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The bounds of a key of RSA, in bits: shorter ones are not safe, and a signature of a longer one takes too long.
const minBits, maxBits = 2048, 8192

// maxRounds is how many rounds a passphrase may take to be checked: ssh-keygen does 16 or 24, and the owner of a key chooses.
const maxRounds = 32

const expected = "expected a private key as ssh-keygen makes it: Ed25519, ECDSA or RSA, in PEM"

// passphraseLine begins the line that a value has before a key that is encrypted.
const passphraseLine = "passphrase:"

// Split separates a value into its two secrets: the passphrase, in a line of its own before the key ("passphrase: …"), and the key. The
// passphrase is empty for a value without such a line.
func Split(value string) (passphrase, key string) {
	rest, found := strings.CutPrefix(value, passphraseLine)
	if !found {
		return "", value
	}
	passphrase, key, _ = strings.Cut(rest, "\n")
	return strings.TrimPrefix(strings.TrimSuffix(passphrase, "\r"), " "), key
}

// Join is the value of a key and the passphrase that it is encrypted with.
func Join(passphrase, key string) string {
	if passphrase == "" {
		return key
	}
	return passphraseLine + " " + passphrase + "\n" + key
}

// Read reads a value: a private key, behind the line of its passphrase if it has one.
func Read(value string) (ssh.Signer, error) {
	wrong := func(found string) (ssh.Signer, error) {
		return nil, fault.New(fault.Invalid, "found %s; %s", found, expected)
	}
	passphrase, text := Split(value)
	block, behind := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return wrong("no text in PEM")
	case !strings.HasPrefix(strings.TrimLeft(text, "\r\n\t "), "-----BEGIN "):
		return wrong("a text before the key other than the line of its passphrase (passphrase: …)")
	case strings.TrimSpace(string(behind)) != "":
		return wrong("more than one block, or a text behind it")
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
		return wrong("a key that is encrypted in a form of PEM that is not read (ssh-keygen -p -f FILE writes it anew)")
	case block.Type == "DSA PRIVATE KEY":
		return wrong("a key of DSA")
	case block.Type != "OPENSSH PRIVATE KEY" && passphrase != "":
		return wrong("a passphrase, and a key that is not encrypted")
	}
	var raw any
	var err error
	switch block.Type {
	case "OPENSSH PRIVATE KEY":
		raw, err = open(block, text, passphrase)
	case "RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY":
		raw, err = ssh.ParseRawPrivateKey([]byte(text))
	default: // its name may have a part of what was entered by mistake
		return wrong("a block that is no private key")
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return nil, own
	}
	if err != nil { // whose text may have a part of the key
		return wrong("a key that cannot be read")
	}
	return signer(raw)
}

// header is what an OpenSSH key has before its keys (PROTOCOL.key of OpenSSH).
type header struct {
	Cipher, KDF, Options string
	Rest                 []byte `ssh:"rest"`
}

// open reads a key of OpenSSH's own form.
func open(block *pem.Block, text, passphrase string) (any, error) {
	body, found := strings.CutPrefix(string(block.Bytes), "openssh-key-v1\x00")
	var h header
	if !found || ssh.Unmarshal([]byte(body), &h) != nil {
		return nil, fault.New(fault.Invalid, "found a key that cannot be read; %s", expected)
	}
	encrypted := h.KDF != "none"
	switch {
	case !encrypted && passphrase != "":
		return nil, fault.New(fault.Invalid, "found a passphrase, and a key that is not encrypted; %s", expected)
	case !encrypted:
		return ssh.ParseRawPrivateKey([]byte(text))
	case passphrase == "":
		return nil, fault.New(fault.Invalid, "found a key that is encrypted, and no passphrase; expected the line \"passphrase: …\" before the key")
	}
	var kdf struct {
		Salt   string
		Rounds uint32
	}
	if h.KDF != "bcrypt" || ssh.Unmarshal([]byte(h.Options), &kdf) != nil {
		return nil, fault.New(fault.Invalid, "found a key that is encrypted in an unknown way; %s", expected)
	}
	if kdf.Rounds > maxRounds {
		return nil, fault.New(fault.Invalid, "found a key whose passphrase takes %d rounds; expected at most %d (ssh-keygen -a)", kdf.Rounds, maxRounds)
	}
	raw, err := ssh.ParseRawPrivateKeyWithPassphrase([]byte(text), []byte(passphrase))
	if err != nil { // a key that is damaged reads like that as well
		return nil, fault.New(fault.Invalid, "found a passphrase that the key is not encrypted with; expected its own")
	}
	return raw, nil
}

// signer checks that a key is of a kind and a size that are safe.
func signer(raw any) (ssh.Signer, error) {
	switch key := raw.(type) {
	case *ed25519.PrivateKey:
		raw = *key
	case ed25519.PrivateKey, *ecdsa.PrivateKey:
	case *rsa.PrivateKey:
		if bits := key.N.BitLen(); bits < minBits || bits > maxBits {
			return nil, fault.New(fault.Invalid, "found a key of RSA of %d bits; expected %d to %d", bits, minBits, maxBits)
		}
	default:
		return nil, fault.New(fault.Invalid, "found a key of another kind; %s", expected)
	}
	own, ok := raw.(crypto.Signer)
	if !ok {
		return nil, fault.New(fault.Invalid, "found a key that does not sign; %s", expected)
	}
	made, err := ssh.NewSignerFromSigner(own)
	if err != nil {
		return nil, fault.New(fault.Invalid, "found a key that SSH does not know; %s", expected)
	}
	algorithms := AlgorithmsOf(made.PublicKey().Type())
	both, ok := made.(ssh.AlgorithmSigner)
	if !ok || algorithms == nil {
		return nil, fault.New(fault.Invalid, "found a key that SSH does not know; %s", expected)
	}
	restricted, err := ssh.NewSignerWithAlgorithms(both, algorithms)
	if err != nil {
		return nil, fault.New(fault.Invalid, "found a key that SSH does not know; %s", expected)
	}
	return restricted, nil
}

// AlgorithmsOf are the algorithms of signatures of a kind of key, without those of SHA-1; nil for a kind that is not used.
func AlgorithmsOf(kind string) []string {
	switch kind {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return []string{kind}
	case ssh.KeyAlgoRSA:
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return nil
}

// kinds are the kinds of keys of servers, best first.
func kinds() []string {
	return []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}
}
