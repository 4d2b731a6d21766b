package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// callTimeout is the deadline of a call whose caller has none: no call waits for ever.
const callTimeout = 30 * time.Second

// retries repeats a call that was answered UNAVAILABLE: every method of ours is idempotent.
const retries = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.1s","maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

// ClientConfig says whom to call.
type ClientConfig struct {
	// Address is host:port.
	Address string
	// Token is sent as a bearer token.
	Token string
	// CAFile holds the certificates that the server's is checked against; empty means the system's.
	CAFile string
	// Insecure turns TLS off: for loopback and for networks that encrypt by themselves.
	Insecure bool
}

// Dial makes a client connection; it connects at the first call and again whenever it has to. Errors of calls have a
// class (pkg/fault) and the fields the server named.
func Dial(c ClientConfig) (*grpc.ClientConn, error) {
	if c.Address == "" {
		return nil, fault.InvalidFields(fault.Field{Name: "address", Problem: "missing; expected host:port"})
	}
	transport, err := transportCredentials(c)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(c.Address,
		grpc.WithTransportCredentials(transport),
		grpc.WithPerRPCCredentials(bearer{c.Token, !c.Insecure}),
		grpc.WithDefaultServiceConfig(retries),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithUnaryInterceptor(clientCall),
	)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", c.Address, err)
	}
	return conn, nil
}

func clientCall(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	return fromStatus(next(ctx, method, req, reply, cc, opts...))
}

func transportCredentials(c ClientConfig) (credentials.TransportCredentials, error) {
	if c.Insecure {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fault.InvalidFields(fault.Field{Name: "ca_file", Problem: c.CAFile + " holds no PEM certificate"})
		}
	}
	return credentials.NewTLS(config), nil
}

// bearer sends a token with every call.
type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }
