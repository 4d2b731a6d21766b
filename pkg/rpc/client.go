package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// ClientConfig configures a client.
type ClientConfig struct {
	// Address is host:port, or a name in gRPC's syntax. Calls are spread over all addresses of a name in turn.
	Address string
	// ServerName is the name that the server's certificate must have; "" means the host of Address.
	ServerName string
	// Token is the bearer token to send; "" sends none.
	Token string
	// CAFile is the certificate authority of the server; "" means the system's.
	CAFile string
	// CertFile and KeyFile are our own certificate, for a server that requests one; both or neither.
	CertFile, KeyFile string
	// Insecure uses plain text, which includes the token.
	Insecure bool
}

// answerWithin is the deadline of a call without one.
const answerWithin = 10 * time.Second

// serviceConfig spreads calls over every address of the server's name, and retries calls that the server has not answered. Our methods are
// idempotent.
const serviceConfig = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]
}}]}`

// Dial returns a connection to a server, which need not be up yet. Errors of calls have the class that the server gave them, and
// Unavailable if it did not answer.
func Dial(c ClientConfig) (*grpc.ClientConn, error) {
	if c.Address == "" {
		return nil, fault.InvalidFields(fault.Field{Name: "address", Problem: "missing; expected host:port"})
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithUnaryInterceptor(c.unary), grpc.WithStreamInterceptor(c.stream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if c.ServerName != "" {
		options = append(options, grpc.WithAuthority(c.ServerName))
	}
	conn, err := grpc.NewClient(c.Address, options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "grpc address %q: %w", c.Address, err)
	}
	return conn, nil
}

func (c ClientConfig) transport() (credentials.TransportCredentials, error) {
	if c.Insecure {
		return insecure.NewCredentials(), nil
	}
	// The error of the next call reports problems with the files, so they are not logged.
	client, err := certs.Files{Cert: c.CertFile, Key: c.KeyFile, CA: c.CAFile}.Client(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("grpc client: %w", err)
	}
	return clientTLS{credentials.NewTLS(client.Config("")), client}, nil
}

func (c ClientConfig) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerWithin)
		defer cancel()
	}
	ctx, end := c.span(ctx, method)
	err := invoke(c.outgoing(ctx), method, req, reply, cc, opts...)
	telemetry.Annotate(ctx, telemetry.Count(telemetry.RPCStatus, int(status.Code(err))))
	end(spanProblem(err))
	return fromStatus(ctx, method, err)
}

// span starts the span of a call, as a child of the caller's.
func (c ClientConfig) span(ctx context.Context, method string) (context.Context, func(string)) {
	return telemetry.StartChildSpan(ctx, strings.TrimPrefix(method, "/"), telemetry.Client,
		append(callAttributes(method), telemetry.Text(telemetry.ServerAddress, c.Address))...)
}

func (c ClientConfig) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := streamer(c.outgoing(ctx), desc, cc, method, opts...)
	if err != nil {
		return nil, fromStatus(ctx, method, err)
	}
	return &clientStream{ClientStream: s, method: method}, nil
}

// outgoing adds our token and trace to the metadata.
func (c ClientConfig) outgoing(ctx context.Context) context.Context {
	pairs := make([]string, 0, 4)
	if c.Token != "" {
		pairs = append(pairs, "authorization", "Bearer "+c.Token)
	}
	if tp := telemetry.TraceParent(ctx); tp != "" {
		pairs = append(pairs, traceHeader, tp)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// clientStream classifies the errors of a stream. The end of a stream stays io.EOF.
type clientStream struct {
	grpc.ClientStream
	method string
}

// RecvMsg is the stream's, with classified errors.
func (s *clientStream) RecvMsg(m any) error {
	return s.class(s.ClientStream.RecvMsg(m))
}

// SendMsg is the stream's, with classified errors.
func (s *clientStream) SendMsg(m any) error {
	return s.class(s.ClientStream.SendMsg(m))
}

func (s *clientStream) class(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fromStatus(s.Context(), s.method, err)
}
