package git

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// D41, D56: a server of SSH that reports without end beside its answer is left after a little of it.
func TestAServerThatReportsWithoutEndIsLeft(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(s.host)
	var sent atomic.Int64
	const enough = 64 << 20
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // of a test
	go func() {
		for {
			wire, err := listener.Accept()
			if err != nil {
				return
			}
			go flood(wire, config, &sent, enough)
		}
	}()
	s.forge.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	}
	_, _, err = s.forge.ReadFile(t.Context(), 1, s.url, "main", "a")
	limit, ok := errors.AsType[*gitfetch.LimitError](err)
	if !ok || limit.Limit != "messages" {
		t.Errorf("found %v; want a limit of messages", err)
	}
	if n := sent.Load(); n > 8<<20 {
		t.Errorf("the server has sent %d bytes; want it left before", n)
	}
}

// flood answers each command with messages of so many bytes.
func flood(wire net.Conn, config *ssh.ServerConfig, sent *atomic.Int64, most int64) {
	defer wire.Close() //nolint:errcheck // of a test
	_, channels, requests, err := ssh.NewServerConn(wire, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for each := range channels {
		channel, requests, err := each.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				_ = r.Reply(true, nil)
				for text := make([]byte, 32<<10); sent.Load() < most; {
					n, err := channel.Stderr().Write(text)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
				_ = channel.Close()
			}
		}()
	}
}
