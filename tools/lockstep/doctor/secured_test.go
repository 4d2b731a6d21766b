package doctor_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
)

// finding is the first of a check that is not well, or else the first of all.
func finding(findings []doctor.Finding, check string) doctor.Finding {
	of := slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Check != check })
	for _, f := range of {
		if f.State != doctor.OK {
			return f
		}
	}
	return append(of, doctor.Finding{})[0]
}

// TestTheDatabasesCertificate has a real server show certificates that are valid, soon to expire, expired, for another name and of an
// unknown authority. Each is reported with its own remedy.
func TestTheDatabasesCertificate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	authority, stranger := certstest.New(t), certstest.New(t)
	ca := authority.Files(t, t.TempDir(), "ours").CA
	s := pgtest.NewSecured(t, false, func(f certs.Files) { authority.WriteUntil(t, f, time.Now().Add(20*24*time.Hour)) })
	const certificate = "certificate of the database"
	// The server reads its files when it comes to it.
	eventually := func(mode, check string, state doctor.State, found, remedy string) {
		t.Helper()
		c := doctor.Config{DatabaseURL: s.URL + "?sslmode=" + mode + "&sslrootcert=" + ca}
		for {
			f := finding(doctor.Examine(ctx, c), check)
			if f.State == state && strings.Contains(f.Found, found) && strings.Contains(f.Remedy, remedy) {
				return
			}
			if clock.Sleep(ctx, clock.System(), 20*time.Millisecond) != nil {
				t.Fatalf("sslmode=%s: found %+v, want %s %s with %q → %q", mode, f, check, state, found, remedy)
			}
		}
	}
	eventually("verify-full", certificate, doctor.Warning, "is good until", "renew it")
	early := doctor.Config{
		DatabaseURL: s.URL + "?sslmode=verify-full&sslrootcert=" + ca,
		Clock:       clocktest.New(time.Now().Add(-7 * 24 * time.Hour)),
	}
	expect(t, doctor.Examine(ctx, early), certificate, doctor.OK, "is good until")

	s.Rotate(t, func(f certs.Files) { authority.WriteUntil(t, f, time.Now().Add(-time.Hour)) })
	eventually("verify-full", "database", doctor.Wrong, "expired", "has expired")
	eventually("require", "database", doctor.Wrong, "expired", "has expired") // with an authority given, require checks it
	unchecked := doctor.Config{DatabaseURL: s.URL + "?sslmode=require"}
	expect(t, doctor.Examine(ctx, unchecked), certificate, doctor.Wrong, "was good until") // nobody would notice otherwise

	s.Rotate(t, func(f certs.Files) { authority.WriteNamed(t, f, "db.example.com") })
	eventually("verify-full", "database", doctor.Wrong, "127.0.0.1", "for other names")
	eventually("verify-ca", "database", doctor.OK, "PostgreSQL", "")

	s.Rotate(t, func(f certs.Files) { stranger.Write(t, f) })
	eventually("verify-full", "database", doctor.Wrong, "unknown authority", "does not trust")
}

// TestTheCertificateOfNATS is trusted by the authority that the command is given, and not without it.
func TestTheCertificateOfNATS(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t)
	files := authority.Files(t, t.TempDir(), "nats")
	s, err := natsserver.Start(natsserver.Config{
		StoreDir: t.TempDir(), Log: bustest.Log(t), TLS: certs.Files{Cert: files.Cert, Key: files.Key},
		Users: []natsserver.User{{Name: bus.UserWorkflow, Password: "w"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	text, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	c := doctor.Config{NATSURL: "tls://" + s.URL()[strings.Index(s.URL(), "://")+3:], NATSUser: bus.UserWorkflow, NATSPassword: "w"}
	if f := finding(doctor.Examine(t.Context(), c), "nats"); f.State != doctor.Wrong || !strings.Contains(f.Remedy, "--ca-file") {
		t.Errorf("an unknown authority: %+v", f)
	}
	c.HTTP = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	findings := doctor.Examine(t.Context(), c)
	expect(t, findings, "nats", doctor.OK, "takes the account workflow")
	expect(t, findings, "certificate of nats", doctor.OK, "is good until")
}

// TestStorage: a disk is reported when it is nearly full, and whatever was closed because it was.
func TestStorage(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t)
	const check = "storage of the database"
	var used int64
	if err := pool.QueryRow(t.Context(), "SELECT pg_database_size(current_database())").Scan(&used); err != nil {
		t.Fatal(err)
	}
	examine := func(options string, most int64) []doctor.Finding {
		return doctor.Examine(t.Context(), doctor.Config{DatabaseURL: c.URL + options, DatabaseStorage: most})
	}
	expect(t, examine("", 0), check, doctor.OK, "--database-storage")
	expect(t, examine("", 1000*used), check, doctor.OK, "MB are used, 0 %")
	expect(t, examine("", used*10/9), check, doctor.Warning, "MB are used, ")
	expect(t, examine("", used/2), check, doctor.Wrong, "MB are used, ")
	separator := "?"
	if strings.Contains(c.URL, "?") {
		separator = "&"
	}
	expect(t, examine(separator+"default_transaction_read_only=on", 0), "writes to the database", doctor.Wrong, "takes none")

	for body, want := range map[string]doctor.Finding{
		`{"storage":10,"config":{"max_storage":100}}`: {State: doctor.OK, Found: "10 %"},
		`{"storage":85,"config":{"max_storage":100}}`: {State: doctor.Warning, Found: "85 %"},
		`{"storage":97,"config":{"max_storage":100}}`: {State: doctor.Wrong, Found: "97 %"},
		`{"storage":97,"config":{}}`:                  {State: doctor.Warning, Found: "no limit"},
		`{"disabled":true}`:                           {State: doctor.Wrong, Found: "JetStream is off"},
		`<html>`:                                      {State: doctor.Wrong, Found: "<html>"},
	} {
		findings := doctor.Examine(t.Context(), doctor.Config{NATSMonitor: answers(t, 200, body, nil)})
		expect(t, findings, "storage of nats", want.State, want.Found)
	}
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	expect(t, doctor.Examine(t.Context(), doctor.Config{NATSMonitor: away.URL}), "storage of nats", doctor.Wrong, "refused")
}
