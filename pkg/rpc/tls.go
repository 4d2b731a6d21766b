package rpc

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/lockstep-cd/lockstep/pkg/certs"
)

// clientTLS uses the current files for each handshake.
type clientTLS struct {
	credentials.TransportCredentials
	client *certs.Client
}

// ClientHandshake performs a handshake with the current files.
func (c clientTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := credentials.NewTLS(c.client.Config("")).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, fmt.Errorf("tls with %s: %w", authority, err)
	}
	return secured, info, nil
}

// Clone returns a copy with the same files.
func (c clientTLS) Clone() credentials.TransportCredentials {
	return clientTLS{c.TransportCredentials.Clone(), c.client}
}
