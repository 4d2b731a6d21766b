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
	"github.com/lockstep-cd/lockstep/pkg/stamp"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Files are PEM files, which may be replaced while the process runs: they are looked at again at every handshake.
// Files that do not fit together, as in the middle of a rotation, leave the former ones in force. The zero value is none.
type Files struct {
	// Cert and Key are our own certificate, with its chain, and its private key; both or neither.
	Cert, Key string
	// CA vouches for the other side. A server with one asks its clients for certificates (mTLS); a client without one
	// trusts the system's.
	CA string
	// System has a client trust the system's authorities beside CA: for servers of which some are public and others one's own.
	System bool
}

// Given reports whether there is any file.
func (f Files) Given() bool { return f.Cert != "" || f.Key != "" || f.CA != "" }

// Check is what is wrong with a configuration that names these files, none for nothing: the files of a client's side begin with
// prefix, as nats_ for nats_cert_file.
func (f Files) Check(prefix string) []fault.Field {
	if (f.Cert == "") == (f.Key == "") {
		return nil
	}
	return []fault.Field{{Name: prefix + "cert_file", Problem: "expected " + prefix + "cert_file and " + prefix + "key_file, or neither"}}
}

// Server is a server's configuration, for connections that speak one of the protocols (ALPN: h2, http/1.1). The error is Invalid
// and says which file is at fault.
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
			config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{loaded.certificate}, NextProtos: slices.Clone(protocols)}
			if loaded.authorities != nil {
				config.ClientCAs, config.ClientAuth = loaded.authorities, tls.RequireAndVerifyClientCert
			}
			return config, nil
		},
	}, nil
}

// Client is a client's side. The error is Invalid and says which file is at fault.
func (f Files) Client(log *slog.Logger) (*Client, error) {
	s := &source{files: f, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	return &Client{s}, nil
}

// Beside is a client's side that trusts the authorities in file beside the system's; nil where there is no file. The error is Invalid
// and says which file is at fault.
func Beside(file string, log *slog.Logger) (*Client, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // the system's alone are trusted without one
	}
	return Files{CA: file, System: true}.Client(log)
}

// Client is what a client's handshakes are made with. It is safe for concurrent use.
type Client struct{ source *source }

// Config is the configuration of one handshake, with the files as they are now. An empty server name is for libraries that
// set it themselves.
func (c *Client) Config(serverName string) *tls.Config {
	loaded := c.source.current()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: loaded.authorities, ServerName: serverName}
	if loaded.certificate.Certificate != nil {
		config.Certificates = []tls.Certificate{loaded.certificate}
	}
	return config
}

// source is files and what they held when they last fitted together.
type source struct {
	files Files
	log   *slog.Logger

	mu     sync.Mutex
	loaded material
	stamps [3]stamp.Stamp
}

// material is what the files hold; authorities are nil without a CA file.
type material struct {
	certificate tls.Certificate
	authorities *x509.CertPool
}

// current is what the files hold now, or held before.
func (s *source) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look() != s.stamps {
		if err := s.load(); err != nil {
			s.log.Warn("certificates not replaced", telemetry.KeyError, err)
		}
	}
	return s.loaded
}

// look is the stamps of the files. One that is not there has the zero stamp, which load will complain about.
func (s *source) look() (stamps [3]stamp.Stamp) {
	for i, file := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if file != "" {
			stamps[i], _ = stamp.Of(file)
		}
	}
	return stamps
}

func (s *source) load() error {
	stamps := s.look() // before reading: what changes meanwhile is read again
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
