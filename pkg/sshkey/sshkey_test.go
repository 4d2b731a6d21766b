package sshkey_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
)

func inPEM(t *testing.T, key crypto.PrivateKey, passphrase string) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// slow is a key as ssh-keygen -a 2000000000 would write it.
func slow(t *testing.T, key crypto.PrivateKey) string {
	t.Helper()
	made, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("canary"))
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(made.Bytes), "bcrypt") + len("bcrypt") + 4 + 4 + 16 // behind the options' length, the salt's and the salt
	copy(made.Bytes[at:], []byte{0, 0, 0, 33})
	return string(pem.EncodeToMemory(made))
}

// D56: the keys that are taken, and those that are not: of DSA, too short ones, those that cost too much, and what is no key. None of it
// is in the errors.
func TestPrivateKeys(t *testing.T) {
	t.Parallel()
	_, modern, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // one that is refused
	if err != nil {
		t.Fatal(err)
	}
	general, err := x509.MarshalPKCS8PrivateKey(modern)
	if err != nil {
		t.Fatal(err)
	}
	own := inPEM(t, modern, "")
	for name, tt := range map[string]struct{ value, want string }{
		"Ed25519": {own, ""}, "ECDSA": {inPEM(t, curve, ""), ""}, "RSA": {inPEM(t, long, ""), ""},
		"RSA as before":         {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(long)), ""},
		"in the general form":   {block("PRIVATE KEY", general), ""},
		"other line breaks":     {strings.ReplaceAll(own, "\n", "\r\n"), ""},
		"encrypted":             {sshkey.Join("canary of ours", inPEM(t, modern, "canary of ours")), ""},
		"encrypted, otherwise":  {"passphrase:canary\r\n" + inPEM(t, modern, "canary"), ""},
		"a wrong passphrase":    {sshkey.Join("canary", inPEM(t, modern, "another")), "not encrypted with"},
		"no passphrase":         {inPEM(t, modern, "canary"), "no passphrase"},
		"a passphrase too much": {sshkey.Join("canary", own), "not encrypted"},
		"one of RSA":            {sshkey.Join("canary", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(long))), "not encrypted"},
		"too many rounds":       {sshkey.Join("canary", slow(t, modern)), "rounds"},
		"RSA that is short":     {inPEM(t, short, ""), "1024 bits"},
		"DSA":                   {block("DSA PRIVATE KEY", []byte("canary")), "of DSA"},
		"a password":            {"canary", "no text in PEM"},
		"a text before":         {"canary\n" + own, "a text before"},
		"two keys":              {own + own, "more than one block"},
		"a public key":          {block("PUBLIC KEY", []byte("canary")), "no private key"},
		"cut off":               {block("OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00canary")), "cannot be read"},
		"an old encryption":     {block("ENCRYPTED PRIVATE KEY", []byte("canary")), "ssh-keygen -p"},
	} {
		key, err := sshkey.Read(tt.value)
		switch {
		case tt.want == "" && (err != nil || key == nil):
			t.Errorf("%s: found %v; want a key", name, err)
		case tt.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary")):
			t.Errorf("%s: found %v; want …%s…", name, err, tt.want)
		}
		if key == nil {
			continue
		}
		if all, ok := key.(ssh.MultiAlgorithmSigner); !ok || strings.Contains(" "+strings.Join(all.Algorithms(), " ")+" ", " ssh-rsa ") {
			t.Errorf("%s: it signs with SHA-1", name)
		}
	}
}

// D56: a server is known by a line of known_hosts, also a hidden one, or by a fingerprint, and by nothing else.
func TestKnownHosts(t *testing.T) {
	t.Parallel()
	public := func() ssh.PublicKey {
		key, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		made, err := ssh.NewPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	key, other := public(), public()
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	fingerprint := ssh.FingerprintSHA256(key)
	for text, tt := range map[string]struct{ host, port, want string }{
		"git.example.com " + line:                                     {"git.example.com", "22", ""},
		"# theirs\n\n a,GIT.example.com " + line + " comment of hers": {"Git.Example.com", "22", ""},
		"[git.example.com]:22 " + line:                                {"git.example.com", "22", ""},
		"[git.example.com]:2222 " + line:                              {"git.example.com", "2222", ""},
		knownhosts.HashHostname("git.example.com") + " " + line:       {"git.example.com", "22", ""},
		knownhosts.HashHostname("[git.example.com]:29") + " " + line:  {"git.example.com", "29", ""},
		fingerprint:                                                      {"git.example.com", "29", ""},
		"git.example.com " + fingerprint:                                 {"git.example.com", "22", ""},
		"git.example.com  " + line:                                       {"git.example.com", "2222", "knows none"},
		"other.example.com " + line:                                      {"git.example.com", "22", "knows none"},
		"other.example.com " + fingerprint:                               {"git.example.com", "22", "knows none"},
		knownhosts.HashHostname("x.example.com") + " " + line:            {"git.example.com", "22", "knows none"},
		"git.example.com " + ssh.FingerprintSHA256(other):                {"git.example.com", "22", "expected " + ssh.FingerprintSHA256(other)},
		"git.example.com " + line + "\n@revoked git.example.com " + line: {"git.example.com", "22", "line 2"},
	} {
		hosts, err := sshkey.ReadHosts(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = hosts.Check(tt.host, tt.port, key)
		if tt.want == "" && (err != nil || !hosts.Know(tt.host, tt.port) || hosts.Algorithms(tt.host, tt.port) == nil) {
			t.Errorf("%s: found %v; want that it is known", text, err)
		}
		if tt.want != "" && (!fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "found the host key "+fingerprint)) {
			t.Errorf("%s: found %v; want …%s…", text, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		"*.example.com " + line: "without patterns", "!a.example.com " + line: "without patterns", "@cert-authority * " + line: "an authority",
		"git.example.com": "neither", "canary canary canary": "neither", "git.example.com ssh-dss AAAAB3NzaC1kc3M=": "neither",
		"MD5:00:11": "neither", "-----BEGIN OPENSSH PRIVATE KEY-----": "neither", "a b " + fingerprint: "neither",
		strings.Repeat(fingerprint+"\n", 201): "more than 200 lines",
	} {
		if _, err := sshkey.ReadHosts("# theirs\n" + text); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: found %v; want …%s…", text, err, want)
		}
	}
}
