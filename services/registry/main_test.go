package registry

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
)

// TestMain keeps the tests from asking anybody's DNS: names that are in no hosts file are nowhere, at once. Spellings of
// addresses that only some resolvers take for addresses would otherwise wait for one, each of them.
func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the tests have no DNS")
	}}
	os.Exit(m.Run())
}
