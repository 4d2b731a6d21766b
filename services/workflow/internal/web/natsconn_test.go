package web

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// hostileServer is a server that sends some text, and then another one again and again, until it has sent 32 MiB or its client has gone.
// With accepting it takes the connection first. It counts what it has sent.
type hostileServer struct {
	certificate      *tls.Config
	accepting        bool
	text, again      string
	sent             atomic.Int64
	encrypted, first bool
}

func (h *hostileServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	info := `INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true,"tls_required":true}` + "\r\n"
	if !h.encrypted {
		info = strings.Replace(info, "true}", "false}", 1)
	}
	begun := h.first
	if h.encrypted {
		if !h.first {
			_, _ = io.WriteString(conn, info)
			begun = true
		}
		conn = tls.Server(conn, h.certificate)
	}
	if h.accepting {
		if !begun || h.first {
			_, _ = io.WriteString(conn, info)
		}
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "PING") {
				break
			}
		}
		_, _ = io.WriteString(conn, "PONG\r\n")
	}
	_, _ = io.WriteString(conn, h.text)
	for h.again != "" && h.sent.Load() < 32<<20 {
		n, err := io.WriteString(conn, h.again)
		h.sent.Add(int64(n))
		if err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, conn)
}

// D62: whatever a NATS server sends, before or after it takes a connection, encrypted or not, little of it is kept, and the process
// continues.
func TestANATSServerThatSendsTooMuch(t *testing.T) {
	t.Parallel()
	certificate := httptest.NewTLSServer(nil)
	certificate.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certificate.Certificate())
	long := strings.Repeat("x", 64<<10)
	for name, text := range map[string][2]string{
		"a line without an end":   {"INFO ", long},
		"an error without an end": {"-ERR '", long},
		"errors":                  {"", strings.Repeat("-ERR 'x'\r\n", 6000)},
		"a large message":         {"MSG a 1 2000000000\r\n", ""},
		"a message beyond memory": {"MSG a 1 1000000000000000\r\n", ""},
		"headers beyond memory":   {"HMSG\ta\t1\t1000000000000000\t1000000000000000\r\n", ""},
	} {
		for mode, h := range map[string]*hostileServer{
			"plain": {}, "plain, connected": {accepting: true},
			"encrypted, connected":  {accepting: true, encrypted: true},
			"encrypted first":       {encrypted: true, first: true},
			"encrypted from before": {encrypted: true, first: true, accepting: true},
		} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				h.text, h.again, h.certificate = text[0], text[1], certificate.TLS
				listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = listener.Close() })
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							return
						}
						go h.serve(conn)
					}
				}()
				url := "nats://" + listener.Addr().String()
				if h.first {
					url = "tls://" + listener.Addr().String()
				}
				m := activity.SubjectMessage{
					Organization: 1, Server: url, Subject: "a", MessageID: "m", Data: []byte("1"), Timeout: 20 * time.Second, Plain: !h.encrypted, Stored: h.accepting,
				}
				err = natsClient(t, url, "/none", trusted).Publish(t.Context(), m)
				if !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Unavailable) {
					t.Errorf("found %v; expected that it is refused, or unavailable", err)
				}
				// An error ends the connection at once.
				if h.accepting && name != "errors" && !fault.Is(err, fault.Refused) {
					t.Errorf("found %v; expected that it is refused", err)
				}
				if n := h.sent.Load(); n > 16<<20 { // the rest is in buffers of the system
					t.Errorf("the server has sent %d bytes", n)
				}
			})
		}
	}
}

// D62: a credential that is bound to a subject of a server is for no other subject.
func TestACredentialOfASubject(t *testing.T) {
	t.Parallel()
	c, url, _ := natsServer(t, true, password)
	c.credentials.all[0].URLPrefixes = []string{url + "/cd.shop"}
	if err := c.Publish(t.Context(), onSubject(url, "cd.shop")); err != nil {
		t.Error(err)
	}
	if err := c.Publish(t.Context(), onSubject(url, "cd.other")); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; expected that the credential is not for it", err)
	}
}
