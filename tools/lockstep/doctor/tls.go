package doctor

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// server looks at the certificate that a server shows: whether it is trusted here, and for how long it is good.
func (c Config) server(ctx context.Context, name, address string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	check := "certificate of " + name
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t, ok := c.HTTP.Transport.(*http.Transport); ok && t.TLSClientConfig != nil {
		config = t.TLSClientConfig.Clone() // whom the API is trusted by
		config.NextProtos = nil
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err == nil {
		defer func() { _ = conn.Close() }()
		return c.certificate(check, stateOf(conn))
	}
	if _, untrusted := errorsAs[*tls.CertificateVerificationError](err); untrusted {
		return []Finding{wrong(check, err.Error(), certificateRemedy)}
	}
	return []Finding{wrong(check, err.Error(), "is it up, does it speak TLS there, and does a network policy let us through?")}
}

// stateOf is the TLS of a connection; nil where there is none.
func stateOf(conn net.Conn) *tls.ConnectionState {
	secured, is := conn.(*tls.Conn)
	if !is {
		return nil
	}
	state := secured.ConnectionState()
	return &state
}
