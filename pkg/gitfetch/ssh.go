package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
)

// HandshakeTimeout is how long a server of SSH may take until it has proved itself and has accepted the key.
const HandshakeTimeout = 20 * time.Second

// SSH reaches one repository over SSH, with one connection for an operation. It uses nothing of the user of the process: no agent,
// no configuration, no keys and no known hosts of files. It implements the Git library's transport, and ignores the endpoint and the login
// that it is given there.
type SSH struct {
	// Dial connects. It decides which servers may be reached (D41).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Host and Port are the server, and Path the repository as it is named to the server.
	Host, Port, Path string
	// User is whom to log in as, Key what with, and Hosts the servers that are known.
	User  string
	Key   ssh.Signer
	Hosts sshkey.Hosts
	// Handshake is how long the server may take for it; 0 for HandshakeTimeout.
	Handshake time.Duration

	mu   sync.Mutex
	conn *sshConn
	// accounted is the share that has the memory of the connection.
	accounted *Share
}

var _ transport.Transport = (*SSH)(nil)

// SSHError is what is wrong with a connection or a request, fit to be shown.
type SSHError struct{ fault *fault.Error }

// Error implements error.
func (e *SSHError) Error() string { return e.fault.Error() }

// Unwrap has the class be found.
func (e *SSHError) Unwrap() error { return e.fault }

func sshError(class fault.Class, cause error, format string, args ...any) error {
	return &SSHError{fault.Because(cause, class, format, args...)}
}

// sshConn is a connection, below the encryption and above it.
type sshConn struct {
	wire   net.Conn
	client *ssh.Client
}

// within bounds how long what follows may take.
func (c *sshConn) within(limit time.Duration) {
	_ = c.wire.SetDeadline(time.Now().Add(limit)) //nolint:forbidigo // the deadline of a connection is one of the system's clock
}

// server is the server as messages have it.
func (s *SSH) server() string {
	if s.Port == sshkey.DefaultPort {
		return s.Host
	}
	return net.JoinHostPort(s.Host, s.Port)
}

// account takes the memory of a connection from a share, once.
func (s *SSH) account(share *Share) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounted == share {
		return nil
	}
	if err := share.Use(sshWindow); err != nil {
		return err
	}
	s.accounted = share
	return nil
}

// connect is the connection, which is opened if there is none yet, or anew. It ends with the context.
func (s *SSH) connect(ctx context.Context, anew bool) (*sshConn, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && !anew {
		return s.conn, true, nil
	}
	if s.conn != nil {
		_ = s.conn.client.Close()
	}
	limit := s.Handshake
	if limit <= 0 {
		limit = HandshakeTimeout
	}
	dialing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wire, err := s.Dial(dialing, "tcp", net.JoinHostPort(s.Host, s.Port))
	if err != nil {
		return nil, false, fmt.Errorf("connect to %s: %w", s.server(), err)
	}
	// Of what comes next nothing knows the context.
	context.AfterFunc(ctx, func() { _ = wire.Close() })
	conn := &sshConn{wire: wire}
	conn.within(limit)
	c, channels, requests, err := ssh.NewClientConn(wire, net.JoinHostPort(s.Host, s.Port), s.settings())
	if err != nil {
		_ = wire.Close()
		return nil, false, s.notOpened(err, limit)
	}
	conn.client = ssh.NewClient(c, channels, requests)
	s.conn = conn
	return conn, false, nil
}

// settings are those of a connection: the one key, the known servers, and algorithms without known weaknesses.
func (s *SSH) settings() *ssh.ClientConfig {
	return &ssh.ClientConfig{
		Config: ssh.Config{
			KeyExchanges: []string{
				ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519, ssh.KeyExchangeECDHP256, ssh.KeyExchangeECDHP384, ssh.KeyExchangeECDHP521,
				ssh.KeyExchangeDH16SHA512, ssh.KeyExchangeDH14SHA256,
			},
			Ciphers: []string{
				ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305, ssh.CipherAES256CTR, ssh.CipherAES192CTR, ssh.CipherAES128CTR,
			},
			MACs: []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM, ssh.HMACSHA256, ssh.HMACSHA512},
		},
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(s.Key)}, HostKeyAlgorithms: s.Hosts.Algorithms(s.Host, s.Port),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error { return s.Hosts.Check(s.Host, s.Port, key) },
		BannerCallback:  func(string) error { return nil },
		ClientVersion:   "SSH-2.0-Lockstep",
	}
}

// notOpened is the error of a handshake that has failed.
func (s *SSH) notOpened(err error, limit time.Duration) error {
	if own, ok := errors.AsType[*fault.Error](err); ok { // of the check of the server's key
		return &SSHError{own}
	}
	if none, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok {
		return sshError(fault.Refused, err, "%s has no %.50s of SSH that can be used: found %.300s; expected one of %.300s", s.server(), none.What,
			printable(strings.Join(none.RequestedAlgorithms, ", ")), strings.Join(none.SupportedAlgorithms, ", "))
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return sshError(fault.Unavailable, err, "%s has not answered within %s as a server of SSH does", s.server(), limit)
	}
	// The library has no types for these.
	if strings.Contains(err.Error(), "no common public key signature algorithm") {
		return sshError(fault.Refused, err, "%s takes signatures of RSA with SHA-1 only, which are not made; expected a key of Ed25519 or ECDSA, or a newer server",
			s.server())
	}
	if strings.Contains(err.Error(), "unable to authenticate") {
		return sshError(fault.Unauthenticated, err, "%s does not accept the key %s for the user %q", s.server(), ssh.FingerprintSHA256(s.Key.PublicKey()), s.User)
	}
	return sshError(fault.Unavailable, err, "%s has ended the connection before it was logged in to", s.server())
}

// NewUploadPackSession implements transport.Transport.
func (s *SSH) NewUploadPackSession(*transport.Endpoint, transport.AuthMethod) (transport.UploadPackSession, error) {
	return &sshUpload{sshSession{of: s, command: transport.UploadPackServiceName}}, nil
}

// NewReceivePackSession implements transport.Transport.
func (s *SSH) NewReceivePackSession(*transport.Endpoint, transport.AuthMethod) (transport.ReceivePackSession, error) {
	return &sshReceive{sshSession{of: s, command: transport.ReceivePackServiceName}}, nil
}

// quote is a text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// printable is a text of a server without what a terminal could take for something else.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
