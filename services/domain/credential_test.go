package domain

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// keeper is a fixture with a keyset in a file.
type keeper struct {
	*fixture
	file string
	keys *keyset.Keyset
}

func newKeeper(t *testing.T) keeper {
	t.Helper()
	k := keeper{fixture: newFixture(t), file: filepath.Join(t.TempDir(), "keyset.json")}
	k.keys = keyset.New(nil, "file:"+k.file)
	k.put(keyset.Create())
	k.credentials = credential.New(credential.Deps{Store: k.store.ForCredential(), Sealer: k.keys, Clock: clock.System()})
	return k
}

// put replaces the keyset.
func (k keeper) put(text string, err error) string {
	k.t.Helper()
	k.ok(err)
	k.ok(os.WriteFile(k.file, []byte(text), 0o600))
	return text
}

func (k keeper) create(a core.Actor, name, value string) credential.Credential {
	k.t.Helper()
	c, err := k.credentials.Create(k.t.Context(), a, credential.NewCredential{
		Terms:    sealing.Terms{Name: name, Kind: sealing.HTTP, URLPrefixes: []string{"https://api.example.com/"}},
		NewValue: credential.NewValue{Value: credential.Value(value)},
	})
	k.ok(err)
	return c
}

// announced is the latest event about a credential, and how many there were.
func (k keeper) announced(organization int64, name string) (latest event.CredentialChanged, count int) {
	k.t.Helper()
	rows, err := k.pool.Query(k.t.Context(), `SELECT event->'data' FROM outbox WHERE event->>'type' = $1 AND event->>'organizationid' = $2::text
		AND event->'data'->>'name' = $3 ORDER BY id`, event.TypeCredentialChanged, itoa(organization), name)
	k.ok(err)
	for rows.Next() {
		before := latest.Sequence
		latest = event.CredentialChanged{}
		k.ok(rows.Scan(&latest))
		if latest.Sequence <= before {
			k.t.Errorf("event %d about %s has the sequence %d, expected one above %d", count, name, latest.Sequence, before)
		}
		count++
	}
	k.ok(rows.Err())
	return latest, count
}

// D56: after a rotation of the keyset, values of all organizations are sealed with the new key, once, and open as before; nothing that the
// journal of changes has of them is a value.
func TestCredentialsAreSealedAnew(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	const canary = "kx7f3ab9-never-in-clear"
	other := user()
	other.Organization = 2
	actors := map[int64]core.Actor{org: user(), 2: other}
	for _, a := range actors {
		k.create(a, "api", canary)
	}
	k.create(user(), "gone", canary)
	_, err := k.credentials.Revoke(t.Context(), user(), "gone", "leaked")
	k.ok(err)
	open := func(organization int64) (value string, key uint32) {
		t.Helper()
		e, _ := k.announced(organization, "api")
		key, _ = keyset.KeyOf(e.Sealed)
		value, err := k.keys.Open(t.Context(), e.Sealed, sealing.Terms{
			Organization: organization, Name: e.Name, Version: e.Version, Kind: sealing.Kind(e.Kind), URLPrefixes: e.URLPrefixes,
		})
		k.ok(err)
		return value, key
	}
	if n, err := k.credentials.Reseal(t.Context()); n != 0 || err != nil {
		t.Errorf("sealed %d anew, %v; expected none: they have the primary key", n, err)
	}
	text, err := os.ReadFile(k.file)
	k.ok(err)
	added := k.put(keyset.Add(string(text)))
	keys, err := keyset.List(added)
	k.ok(err)
	promoted := k.put(keyset.Promote(added, keys[1].ID))
	for round, want := range []int{2, 0} {
		if n, err := k.credentials.Reseal(t.Context()); n != want || err != nil {
			t.Errorf("round %d: sealed %d anew, %v; expected %d", round, n, err, want)
		}
	}
	k.put(keyset.Remove(promoted, keys[0].ID))
	for organization := range actors {
		if value, key := open(organization); value != canary || key != keys[1].ID {
			t.Errorf("organization %d: found %q of key %d, expected the value, of key %d", organization, value, key, keys[1].ID)
		}
	}
	// Announced again, as after a start, it is the same; a revoked one has no value.
	_, before := k.announced(org, "api")
	k.ok(k.credentials.Announce(t.Context()))
	if value, _ := open(org); value != canary {
		t.Errorf("announced again: %q", value)
	}
	if _, after := k.announced(org, "api"); after != before+1 {
		t.Errorf("%d events after %d, expected one more", after, before)
	}
	if e, _ := k.announced(org, "gone"); !e.Revoked || e.Sealed != nil || e.Reference != "" {
		t.Errorf("revoked: %+v", e)
	}
	// What cannot be opened is named and stays; the others are sealed all the same.
	k.put(keyset.Create())
	k.create(user(), "fresh", canary)
	if n, err := k.credentials.Reseal(t.Context()); n != 0 || err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("with another keyset: %d, %v", n, err)
	}
	var rows string
	k.ok(k.pool.QueryRow(t.Context(), `SELECT string_agg(x::text, ' ') FROM (SELECT c::text AS x FROM cd_changes c UNION ALL SELECT o::text FROM outbox o) all_of`).
		Scan(&rows))
	if strings.Contains(rows, canary) || !strings.Contains(rows, "createCredential") || strings.Contains(k.log.String(), canary) {
		t.Errorf("a value is in the journal, an event or the log: %s", rows)
	}
}

// D56: a credential that a later version has made is not rotated by this one, which would lose what it is, and is announced as it is.
func TestACredentialOfALaterVersion(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.create(user(), "api", "canary")
	const proof = `{"later":{"key":"x"}}`
	_, err := k.pool.Exec(t.Context(), `UPDATE cd_credentials SET proof = $1 WHERE name = 'api'`, proof)
	k.ok(err)
	_, err = k.credentials.Rotate(t.Context(), user(), "api", credential.NewValue{Value: "another"})
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "later version") {
		t.Errorf("found %v; want that it was made by a later version", err)
	}
	k.ok(k.credentials.Announce(t.Context()))
	if e, _ := k.announced(org, "api"); string(e.Proof) != proof || e.Version != 1 || e.Sealed == nil {
		t.Errorf("found %+v; want it as it is", e)
	}
	_, err = k.credentials.Revoke(t.Context(), user(), "api", "")
	k.ok(err)
	if e, _ := k.announced(org, "api"); !e.Revoked || e.Sealed != nil {
		t.Errorf("found %+v; want it revoked", e)
	}
}

// D56: only those who may configure everywhere make credentials, and each row of the journal has its author.
func TestWhoMakesCredentials(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.create(user(), "api", "x")
	for _, role := range []core.Role{core.RoleViewer, core.RoleApprover, core.RoleDeployer} {
		a := user()
		a.Permissions = role.Permissions()
		if _, err := k.credentials.Rotate(t.Context(), a, "api", credential.NewValue{Value: "y"}); !fault.Is(err, fault.Denied) {
			t.Errorf("%s rotates: %v", role, err)
		}
		if _, err := k.credentials.Revoke(t.Context(), a, "api", ""); !fault.Is(err, fault.Denied) {
			t.Errorf("%s revokes: %v", role, err)
		}
	}
	without := credential.New(credential.Deps{Store: k.store.ForCredential(), Sealer: keyset.New(nil, ""), Clock: clock.System()})
	_, err := without.Rotate(t.Context(), user(), "api", credential.NewValue{Value: "hunter2"})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no keyset is configured") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without a keyset: %v", err)
	}
	if n, err := without.Reseal(t.Context()); n != 0 || err != nil {
		t.Errorf("without a keyset: %d, %v", n, err)
	}
}

// D56: one credential that fails keeps no other from being announced, also behind it; and of those that have changed of late only they are
// announced again. The errors name what failed.
func TestOneCredentialKeepsNoOtherFromBeingAnnounced(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	for _, name := range []string{"first", "second", "third"} {
		k.create(user(), name, "x")
	}
	count := func(name string) int {
		_, n := k.announced(org, name)
		return n
	}
	before := []int{count("first"), count("third")}
	_, err := k.pool.Exec(t.Context(), `CREATE FUNCTION no_second() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
	k.ok(err)
	_, err = k.pool.Exec(t.Context(), `CREATE TRIGGER no_second BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW::text LIKE '%second%') EXECUTE FUNCTION no_second()`)
	k.ok(err)
	if err := k.credentials.Announce(t.Context()); err == nil || !strings.Contains(err.Error(), "credential 2 of organization 1") ||
		strings.Contains(err.Error(), "credential 1 ") {
		t.Errorf("found %v; want that the second one failed", err)
	}
	want := func(first, third int) {
		t.Helper()
		if got := []int{count("first"), count("third")}; got[0] != before[0]+first || got[1] != before[1]+third {
			t.Errorf("found %v announcements after %v; want %d and %d more", got, before, first, third)
		}
	}
	want(1, 1)
	_, err = k.pool.Exec(t.Context(), `UPDATE cd_credentials SET changed_at = now() - interval '2 hours' WHERE name <> 'third'`)
	k.ok(err)
	k.ok(k.credentials.AnnounceChanged(t.Context(), clock.System().Now().Add(-time.Hour)))
	want(1, 2)
}

// D56: for half an hour after its start, the service announces all credentials every five minutes, then those that have changed; all of
// them every six hours, and often again after a failure.
func TestWhenCredentialsAreAnnounced(t *testing.T) {
	t.Parallel()
	var a announcements
	at := time.Unix(1_800_000_000, 0)
	all, changed := 0, 0
	for second := 0; second < 12*3600; second += 30 {
		every, since := a.due(at.Add(time.Duration(second) * time.Second))
		if every {
			all++
		} else if !since.IsZero() {
			changed++
		}
		if second == 30*60 && (all != 7 || changed != 0) {
			t.Errorf("after half an hour: %d and %d; want 7 and 0", all, changed)
		}
	}
	if all != 8 || changed < 130 || changed > 140 {
		t.Errorf("in twelve hours: %d times all and %d times what has changed; want 8 and about 137", all, changed)
	}
	a.again()
	if every, _ := a.due(at.Add(12*time.Hour + 5*time.Minute)); !every {
		t.Error("after a failure: found that not all are announced; want them")
	}
}

// R3-41, D56: a client of OAuth 2.0 and a certificate of the client are sealed for what they are: their value opens for nothing else. They
// are checked when they are made and when they are rotated, announced and recorded without a secret, and sealed anew as all others.
func TestClientsAndCertificatesAreSealed(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	files := certstest.New(t).Files(t, t.TempDir(), "client")
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		k.ok(err)
		return string(text)
	}
	pair, authorities := read(files.Cert)+"\n"+read(files.Key), read(files.CA)
	const canary = "kx7f3ab9-never-in-clear"
	token := sealing.Proof{OAuth2: sealing.OAuth2{TokenURL: "https://id.example.com/token", ClientID: "shop", Scopes: []string{"read"}}}
	certificate := sealing.Proof{Certificate: sealing.Certificate{Client: true, CA: authorities}}
	app := sealing.Proof{GitHubApp: sealing.GitHubApp{ID: "Iv23", Installation: "42"}}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	k.ok(err)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	_, modern, err := ed25519.GenerateKey(rand.Reader)
	k.ok(err)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(modern, "", []byte(canary))
	k.ok(err)
	deploy := sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}
	for name, one := range map[string]struct {
		proof sealing.Proof
		kind  sealing.Kind
		value string
		wrong string // a value that it cannot have
	}{
		"key":   {deploy, sealing.Git, sshkey.Join(canary, string(pem.EncodeToMemory(block))), canary},
		"token": {token, sealing.HTTP, canary, "a\nb"}, "certificate": {certificate, sealing.HTTP, pair, canary},
		"app": {app, sealing.Git, key, canary},
	} {
		scheme := "https"
		if name == "key" {
			scheme = "ssh"
		}
		put := func(value string) (credential.Credential, error) {
			return k.credentials.Create(t.Context(), user(), credential.NewCredential{
				Terms:    sealing.Terms{Name: name, Kind: one.kind, URLPrefixes: []string{scheme + "://api.example.com/"}, Proof: one.proof},
				NewValue: credential.NewValue{Value: credential.Value(value)},
			})
		}
		if _, err := put(one.wrong); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: found %v; expected it to be refused without the value", name, err)
		}
		_, err := put(one.value)
		k.ok(err)
		wrong := credential.NewValue{Value: credential.Value(one.wrong)}
		if _, err := k.credentials.Rotate(t.Context(), user(), name, wrong); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %v; expected the rotation to be refused", name, err)
		}
		_, err = k.credentials.Rotate(t.Context(), user(), name, credential.NewValue{Value: credential.Value(one.value)})
		k.ok(err)
		e, n := k.announced(org, name)
		if n != 2 {
			t.Errorf("%s: found %d events; expected 2", name, n)
		}
		var proof sealing.Proof
		k.ok(json.Unmarshal(e.Proof, &proof))
		terms := sealing.Terms{Organization: org, Name: name, Version: 2, Kind: one.kind, URLPrefixes: e.URLPrefixes, Proof: proof}
		value, err := k.keys.Open(t.Context(), e.Sealed, terms)
		k.ok(err)
		if value != one.value {
			t.Errorf("%s: the value opens as another one", name)
		}
		terms.Proof = sealing.Proof{}
		if _, err := k.keys.Open(t.Context(), e.Sealed, terms); err == nil {
			t.Errorf("%s: the value opens as one that is sent itself", name)
		}
		if _, err := k.credentials.Secret(t.Context(), org, name); !fault.Is(err, fault.Refused) && (one.kind == sealing.HTTP || err == nil) {
			t.Errorf("%s: found %v; expected that it is no secret to check with", name, err)
		}
		if n := k.countOf(`SELECT count(*) FROM cd_changes WHERE concat(before::text, after::text) LIKE '%` + canary + `%'
			OR concat(before::text, after::text) LIKE '%PRIVATE KEY%'`); n != 0 {
			t.Errorf("%s: %d changes have the value in clear", name, n)
		}
		_, err = k.credentials.Revoke(t.Context(), user(), name, "leaked")
		k.ok(err)
	}
	text, err := os.ReadFile(k.file)
	k.ok(err)
	k.put(keyset.Add(string(text)))
	if n, err := k.credentials.Reseal(t.Context()); n != 0 || err != nil {
		t.Errorf("sealed %d anew, %v; expected none: they were revoked", n, err)
	}
}

// D56: the registry service gets the credentials for registries of all organizations, sealed, in order and page by page, revoked ones
// without a value, and none of another kind; and it hears of each change.
func TestTheRegistryServicePullsCredentials(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	hints := 0
	k.credentials = credential.New(credential.Deps{
		Store: k.store.ForCredential(), Sealer: k.keys, Clock: clock.System(), Changed: func() { hints++ },
	})
	put := func(name string, kind sealing.Kind, proof sealing.Proof) {
		t.Helper()
		_, err := k.credentials.Create(t.Context(), user(), credential.NewCredential{
			Terms:    sealing.Terms{Name: name, Kind: kind, URLPrefixes: []string{"https://registry.example.com/"}, Proof: proof},
			NewValue: credential.NewValue{Value: "hunter2hunter2"},
		})
		k.ok(err)
	}
	ecr := sealing.Proof{ECR: sealing.ECR{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", Region: "eu-central-1"}}
	put("images", sealing.Registry, sealing.Proof{})
	put("api", sealing.HTTP, sealing.Proof{})
	put("ecr", sealing.Registry, ecr)
	put("old", sealing.Registry, sealing.Proof{})
	_, err := k.credentials.Revoke(t.Context(), user(), "old", "leaked")
	k.ok(err)
	if hints != 4 {
		t.Errorf("found %d hints; want one for each change of a credential for registries", hints)
	}
	answer := events.Pulled(nil, nil, k.credentials.ForRegistries)
	var found []*sourcesv1.Credential
	for after := int64(0); ; {
		request, err := proto.Marshal(&sourcesv1.PullRequest{After: after, Limit: 2, Credentials: true})
		k.ok(err)
		raw, err := answer(t.Context(), request)
		k.ok(err)
		if strings.Contains(string(raw), "hunter2") {
			t.Error("the answer has a value in clear")
		}
		var page sourcesv1.PullResponse
		k.ok(proto.Unmarshal(raw, &page))
		if page.GetCredentials() == nil || len(page.GetCredentials().GetCredentials()) > 2 {
			t.Fatalf("found %v; want a page", &page)
		}
		if len(page.GetCredentials().GetCredentials()) == 0 {
			break
		}
		found = append(found, page.GetCredentials().GetCredentials()...)
		after = found[len(found)-1].GetId()
	}
	if len(found) != 3 || found[0].GetName() != "images" || found[1].GetName() != "ecr" || !found[2].GetRevoked() || found[2].GetSealed() != nil {
		t.Fatalf("found %v; want images, ecr and the revoked one", found)
	}
	var proof sealing.Proof
	k.ok(json.Unmarshal([]byte(found[1].GetProof()), &proof))
	value, err := k.keys.Open(t.Context(), found[1].GetSealed(), sealing.Terms{
		Organization: org, Name: "ecr", Version: 1, Kind: sealing.Registry, URLPrefixes: found[1].GetUrlPrefixes(), Proof: proof,
	})
	if err != nil || value != "hunter2hunter2" {
		t.Errorf("found %v; want that the value opens with what was pulled", err)
	}
}
