// Package certs builds TLS configurations from certificate files, for the connections that services accept and those that they
// make. The files may be replaced while the process runs: existing connections stay open, and the next handshake uses the new files.
//
// It does not issue certificates: cert-manager, Vault or an operator does.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Files are PEM files that may be replaced while the process runs: every handshake checks whether they have changed. Files that do not fit
// together, as in the middle of a rotation, are ignored, and the previous ones stay in use. The zero value has no files.
type Files struct {
	// Cert and Key are our own certificate, with its chain, and its private key; both or neither.
	Cert, Key string
	// CA is the authority that the peer's certificate must come from. A server with one requires client certificates (mTLS); a client
	// without one trusts the system's authorities.
	CA string
	// System makes a client trust the system's authorities as well as CA, for servers of which some are public and some private.
	System bool
}

// Given reports whether any file is configured.
func (f Files) Given() bool { return f.Cert != "" || f.Key != "" || f.CA != "" }

// Check returns the problems of a configuration with these files, if any. The keys begin with prefix: nats_ for nats_cert_file.
func (f Files) Check(prefix string) []fault.Field {
	if (f.Cert == "") == (f.Key == "") {
		return nil
	}
	return []fault.Field{{Name: prefix + "cert_file", Problem: "expected " + prefix + "cert_file and " + prefix + "key_file, or neither"}}
}

// Server returns the configuration of a server whose connections use one of the protocols (ALPN: h2, http/1.1). The error is Invalid and
// names the file at fault.
func (f Files) Server(log *slog.Logger, protocols ...string) (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, fault.New(fault.Invalid, "tls: found no certificate or no key, expected both")
	}
	s := &source{files: f, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: slices.Clone(protocols),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			loaded := s.current()
			config := &tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{loaded.certificate},
				NextProtos: slices.Clone(protocols),
			}
			if loaded.authorities != nil {
				config.ClientCAs, config.ClientAuth = loaded.authorities, tls.RequireAndVerifyClientCert
			}
			return config, nil
		},
	}, nil
}

// Client returns the client side. The error is Invalid and names the file at fault.
func (f Files) Client(log *slog.Logger) (*Client, error) {
	s := &source{files: f, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	return &Client{s}, nil
}

// Beside returns a client side that trusts the authorities in file as well as the system's; nil without a file. The error is Invalid and
// names the file at fault.
func Beside(file string, log *slog.Logger) (*Client, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // the system's alone are trusted without one
	}
	return Files{CA: file, System: true}.Client(log)
}

// Client makes the configurations of a client's handshakes. It is safe for concurrent use.
type Client struct{ source *source }

// Config returns the configuration of one handshake, from the current files. An empty server name is for libraries that set it themselves.
func (c *Client) Config(serverName string) *tls.Config {
	loaded := c.source.current()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: loaded.authorities, ServerName: serverName}
	if loaded.certificate.Certificate != nil {
		config.Certificates = []tls.Certificate{loaded.certificate}
	}
	return config
}

// source holds files and their content when they last fitted together.
type source struct {
	files Files
	log   *slog.Logger

	mu     sync.Mutex
	loaded material
	stamps [3]Stamp
}

// material is the content of the files; authorities is nil without a CA file.
type material struct {
	certificate tls.Certificate
	authorities *x509.CertPool
}

// current returns the content of the files, or their previous content if they cannot be loaded.
func (s *source) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look() != s.stamps {
		if err := s.load(); err != nil {
			s.log.Warn("loading replaced certificates failed; the previous ones stay in use", telemetry.KeyError, err)
		}
	}
	return s.loaded
}

// look returns the stamps of the files. A missing file has the zero stamp; load reports it.
func (s *source) look() (stamps [3]Stamp) {
	for i, file := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if file != "" {
			stamps[i], _ = StampOf(file)
		}
	}
	return stamps
}

func (s *source) load() error {
	stamps := s.look() // before reading: a change meanwhile causes another read
	var m material
	if s.files.Cert != "" || s.files.Key != "" {
		pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
		if err != nil {
			return fault.New(fault.Invalid, "certificate %s with key %s: %w", s.files.Cert, s.files.Key, err)
		}
		m.certificate = pair
	}
	if s.files.CA != "" {
		pem, err := os.ReadFile(s.files.CA)
		if err != nil {
			return fault.New(fault.Invalid, "certificate authority: %w", err)
		}
		m.authorities = x509.NewCertPool()
		if s.files.System {
			if m.authorities, err = x509.SystemCertPool(); err != nil {
				return fault.New(fault.Invalid, "the system's certificate authorities: %w", err)
			}
		}
		if !m.authorities.AppendCertsFromPEM(pem) {
			return fault.New(fault.Invalid, "certificate authority %s: found no certificate, expected PEM", s.files.CA)
		}
	}
	s.loaded, s.stamps = m, stamps
	return nil
}
