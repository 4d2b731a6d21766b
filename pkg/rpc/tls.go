package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// TLSFiles are PEM files, which may be replaced while the process runs: they are looked at again at every handshake.
// Files that do not fit together, as in the middle of a rotation, leave the former ones in force.
type TLSFiles struct {
	// Cert and Key are our own certificate, with its chain, and its private key; both or neither.
	Cert, Key string
	// CA vouches for the other side. A server with one asks its clients for certificates (mTLS); a client without one
	// trusts the system's.
	CA string
}

// Server is a server's configuration. The error is Invalid and says which file is at fault.
func (f TLSFiles) Server(log *slog.Logger) (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, fault.New(fault.Invalid, "tls: found no certificate or no key, expected both")
	}
	s := &tlsSource{files: f, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			loaded := s.current(hello.Context())
			config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{loaded.certificate}, NextProtos: []string{"h2"}}
			if loaded.authorities != nil {
				config.ClientCAs, config.ClientAuth = loaded.authorities, tls.RequireAndVerifyClientCert
			}
			return config, nil
		},
	}, nil
}

// client is a client's side of the handshake.
func (f TLSFiles) client() (credentials.TransportCredentials, error) {
	s := &tlsSource{files: f, log: slog.New(slog.DiscardHandler)} // the next call's error says what the server thinks
	if err := s.load(); err != nil {
		return nil, err
	}
	return clientTLS{credentials.NewTLS(s.loaded.clientConfig()), s}, nil
}

// tlsSource is files and what they held when they last fitted together.
type tlsSource struct {
	files TLSFiles
	log   *slog.Logger

	mu     sync.Mutex
	loaded tlsMaterial
	stamps [3]stamp
}

// tlsMaterial is what the files hold; authorities are nil without a CA file.
type tlsMaterial struct {
	certificate tls.Certificate
	authorities *x509.CertPool
}

// current is what the files hold now, or held before.
func (s *tlsSource) current(ctx context.Context) tlsMaterial {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look() != s.stamps {
		if err := s.load(); err != nil {
			s.log.WarnContext(ctx, "certificates not replaced", telemetry.KeyError, err)
		}
	}
	return s.loaded
}

// look is the stamps of the files. One that is not there has the zero stamp, which load will complain about.
func (s *tlsSource) look() (stamps [3]stamp) {
	for i, file := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if file != "" {
			stamps[i], _ = stampOf(file)
		}
	}
	return stamps
}

func (s *tlsSource) load() error {
	stamps := s.look() // before reading: what changes meanwhile is read again
	var m tlsMaterial
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
		if !m.authorities.AppendCertsFromPEM(pem) {
			return fault.New(fault.Invalid, "certificate authority %s: found no certificate, expected PEM", s.files.CA)
		}
	}
	s.loaded, s.stamps = m, stamps
	return nil
}

func (m tlsMaterial) clientConfig() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: m.authorities}
	if m.certificate.Certificate != nil {
		config.Certificates = []tls.Certificate{m.certificate}
	}
	return config
}

// clientTLS makes each handshake with the files as they are then.
type clientTLS struct {
	credentials.TransportCredentials
	source *tlsSource
}

// ClientHandshake is that of the present files.
func (c clientTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := credentials.NewTLS(c.source.current(ctx).clientConfig()).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, fmt.Errorf("tls with %s: %w", authority, err)
	}
	return secured, info, nil
}

// Clone is for connections of its own with the same files.
func (c clientTLS) Clone() credentials.TransportCredentials {
	return clientTLS{c.TransportCredentials.Clone(), c.source}
}
