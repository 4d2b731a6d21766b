// Package certstest creates certificate authorities and certificates for tests, as files that services can load.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
)

// Authority makes certificates for 127.0.0.1 and localhost.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last atomic.Int64
}

// forever is the expiry of certificates for which a test sets none.
func forever() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }

// New creates an authority.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{}
	a.cert, a.key = a.sign(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: forever(),
	})
	return a
}

// Write writes a new certificate, valid for servers and clients, its key and the authority to the files; unnamed ones are left out.
func (a *Authority) Write(tb testing.TB, f certs.Files) {
	tb.Helper()
	a.WriteUntil(tb, f, forever())
}

// WriteUntil is Write with a certificate that expires at end.
func (a *Authority) WriteUntil(tb testing.TB, f certs.Files, end time.Time) {
	tb.Helper()
	a.write(tb, f, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, NotAfter: end})
}

// WriteNamed is Write with a certificate for name only, not for this machine.
func (a *Authority) WriteNamed(tb testing.TB, f certs.Files, name string) {
	tb.Helper()
	a.write(tb, f, &x509.Certificate{DNSNames: []string{name}, NotAfter: forever()})
}

func (a *Authority) write(tb testing.TB, f certs.Files, template *x509.Certificate) {
	tb.Helper()
	template.Subject = pkix.Name{CommonName: "service"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert, key := a.sign(tb, template)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range []struct {
		name  string
		block *pem.Block
	}{
		{f.Cert, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}},
		{f.Key, &pem.Block{Type: "PRIVATE KEY", Bytes: private}},
		{f.CA, &pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}},
	} {
		if file.name == "" {
			continue
		}
		if err := os.WriteFile(file.name, pem.EncodeToMemory(file.block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// Files writes a certificate and the authority to files named after name in a folder.
func (a *Authority) Files(tb testing.TB, folder, name string) certs.Files {
	tb.Helper()
	f := certs.Files{
		Cert: filepath.Join(folder, name+".pem"), Key: filepath.Join(folder, name+".key"),
		CA: filepath.Join(folder, name+"-ca.pem"),
	}
	a.Write(tb, f)
	return f
}

func (a *Authority) sign(tb testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = big.NewInt(a.last.Add(1)), time.Unix(0, 0)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert, key
}
