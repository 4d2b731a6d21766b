package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

// server looks at the certificate that a server shows: whether it is trusted here, and for how long it is good.
func (c Config) server(ctx context.Context, name, address string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	check := "certificate of " + name
	conn, err := (&tls.Dialer{Config: c.trust()}).DialContext(ctx, "tcp", address)
	if err == nil {
		defer func() { _ = conn.Close() }()
		return c.certificate(check, stateOf(conn))
	}
	if remedy, is := untrusted(err); is != nil {
		return []Finding{wrong(check, err.Error(), remedy)}
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

// trust is whom the API is trusted by, for other servers.
func (c Config) trust() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t, ok := c.HTTP.Transport.(*http.Transport); ok && t.TLSClientConfig != nil {
		config = t.TLSClientConfig.Clone()
		config.NextProtos = nil
	}
	return config
}

// untrusted is why a certificate was not accepted, without what was done when that was found, and what to do about it; nil for any other
// error.
func untrusted(err error) (remedy string, is error) {
	if e, found := errorsAs[x509.UnknownAuthorityError](err); found {
		return "the certificate is of an authority that this machine does not trust: give its certificate with --ca-file, or have the server show one of a public authority", e
	}
	if e, found := errorsAs[x509.HostnameError](err); found {
		return "the certificate is for other names: connect by one of those, or have one made for this name", e
	}
	if e, found := errorsAs[x509.CertificateInvalidError](err); found && e.Reason == x509.Expired {
		return expiredRemedy, e
	}
	if e, found := errorsAs[*tls.CertificateVerificationError](err); found {
		return "the certificate is not accepted: renew it, from an authority that this machine trusts", e
	}
	return "", nil
}

const expiredRemedy = "the certificate has expired, or is not good yet: renew it, and see why what renews it by itself did not; the services take a new file without a restart"

// certificate looks at how long a certificate is good for yet.
func (c Config) certificate(check string, state *tls.ConnectionState) []Finding {
	if state == nil || len(state.PeerCertificates) == 0 {
		return nil
	}
	leaf := state.PeerCertificates[0]
	found := "is good until " + leaf.NotAfter.UTC().Format(time.DateTime)
	switch left := leaf.NotAfter.Sub(c.Clock.Now()); {
	case left <= 0: // of a server that nobody checks, as with sslmode=require
		return []Finding{wrong(check, "was good until "+leaf.NotAfter.UTC().Format(time.DateTime), expiredRemedy)}
	case left < expiring:
		return []Finding{warning(check, found, "renew it: what renews it by itself has had its time")}
	}
	return []Finding{ok(check, found)}
}
