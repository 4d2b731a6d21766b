package oci_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth/login"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
)

const canary = "c4n4ry-s3cr3t"

// shelf has the credentials of a test, whose sealed values are their texts.
type shelf struct {
	mu  sync.Mutex
	all []book.Credential
}

func (s *shelf) CredentialNamed(_ context.Context, organization int64, name string) (*book.Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		if c.Organization == organization && c.Name == name {
			return &c, nil
		}
	}
	return nil, nil //nolint:nilnil // none is no error
}

func (s *shelf) CredentialsOfKind(_ context.Context, organization int64, _ sealing.Kind) (all []book.Credential, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		if c.Organization == organization {
			c.Sealed = nil
			all = append(all, c)
		}
	}
	return all, nil
}

// put replaces the credential of a name of organization 1.
func (s *shelf) put(t sealing.Terms, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Organization, t.Kind, t.Version = 1, sealing.Registry, t.Version+1
	for i, c := range s.all {
		if c.Name == t.Name {
			t.Version = c.Version + 1
			s.all = append(s.all[:i], s.all[i+1:]...)
			break
		}
	}
	s.all = append(s.all, book.Credential{Terms: t, Sealed: []byte(value), Revoked: value == ""})
}

// owning is a registry that wants a login, and a client with the credentials of a shelf.
type owning struct {
	*shelf
	held
	*oci.Registries
	now *clocktest.Clock
	// user and password are what the registry wants; seen are the logins that came, with where.
	mu             sync.Mutex
	user, password string
	seen           []string
	// instead answers in place of the registry, if it reports true.
	instead func(w http.ResponseWriter, r *http.Request) bool
}

func own(t *testing.T) *owning {
	t.Helper()
	o := &owning{shelf: &shelf{}, user: "robot", password: canary, now: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))}
	o.held = hold(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, given := r.BasicAuth()
			o.mu.Lock()
			if given {
				o.seen = append(o.seen, user+":"+password)
			}
			instead, good := o.instead, user == o.user && password == o.password
			o.mu.Unlock()
			if instead != nil && instead(w, r) {
				return
			}
			if !good {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				http.Error(w, "no "+password, http.StatusUnauthorized) // as a registry may that repeats what it was sent
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	transport := http.DefaultTransport
	o.Registries = oci.New(oci.Deps{Transport: transport, Clock: o.now, Logins: login.New(login.Deps{
		Transport: transport, Clock: o.now, Book: book.NewBook(book.Deps{
			Store: o.shelf, Service: "registry",
			Open: func(_ context.Context, sealed []byte, _ sealing.Terms) (string, error) { return string(sealed), nil },
		}),
	})})
	return o
}

func (o *owning) wants(user, password string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.user, o.password = user, password
}

func (o *owning) at(path string) []string { return []string{"http://" + o.host + path} }

// finds looks a tag up, and checks what came of it.
func (o *owning) finds(t *testing.T, class fault.Class, part string) {
	t.Helper()
	got, err := o.Digest(t.Context(), 1, o.host+"/shop/api", "one", "")
	switch {
	case class == 0 && (err != nil || got != o.image):
		t.Errorf("found %s, %v; want %s", got, err, o.image)
	case class != 0 && (fault.ClassOf(err) != class || !strings.Contains(fmt.Sprint(err), part)):
		t.Errorf("found %v; want %s with %q", err, fault.Describe(class).Name, part)
	}
	if strings.Contains(fmt.Sprint(err, fault.Public(err)), canary) {
		t.Errorf("the error has the secret: %v", err)
	}
}

// D56: a credential of the organization logs in to the registries that it is bound to; it is rotated and revoked while sources are polled,
// and no other organization has it.
func TestAnOrganizationLogsInByItself(t *testing.T) {
	t.Parallel()
	o := own(t)
	o.finds(t, fault.Denied, "a credential of kind registry") // there is none
	if o.Access(1, o.host+"/shop/api") {
		t.Error("found access; want none without a credential")
	}
	terms := sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/shop")}
	o.put(terms, canary)
	o.finds(t, 0, "")
	if !o.Access(1, o.host+"/shop/api") || o.Access(2, o.host+"/shop/api") || o.Access(1, o.host+"/shopping/api") {
		t.Error("found other access; want that of the organization to what is below the URL")
	}
	if _, err := o.Digest(t.Context(), 2, o.host+"/shop/api", "one", ""); !fault.Is(err, fault.Denied) {
		t.Errorf("another organization: %v", err)
	}
	o.wants("robot", "another "+canary)
	o.finds(t, fault.Unauthenticated, `refuses the credential "images" with status 401`)
	o.put(terms, "another "+canary) // the next use has it
	o.finds(t, 0, "")
	o.put(terms, "")
	o.finds(t, fault.Unauthenticated, "was revoked")
	o.put(terms, "line\nbreak")
	o.finds(t, fault.Unauthenticated, "no value that can be sent")
	o.put(sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/shop"), Proof: later(t)}, canary)
	o.finds(t, fault.Unavailable, "later version")
}

// later is a proof that a later version has made.
func later(t *testing.T) (p sealing.Proof) {
	t.Helper()
	if err := json.Unmarshal([]byte(`{"harbor":{"robot":"x"}}`), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// D56: the value is sent to no host and no path that the credential is not bound to: not to a redirect's, and not to where a registry says
// that its tokens are issued.
func TestTheValueStaysWhereItIsBound(t *testing.T) {
	t.Parallel()
	o := own(t)
	var leaked sync.Map
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if h := r.Header.Get("Authorization"); h != "" {
			leaked.Store(r.URL.Path, h)
		}
	}))
	t.Cleanup(elsewhere.Close)
	terms := sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/shop")}
	o.put(terms, canary)
	o.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect) //nolint:gosec // to where the test says
		return true
	}
	if _, err := o.Digest(t.Context(), 1, o.host+"/shop/api", "one", ""); err == nil {
		t.Error("found an image at another host; want none")
	}
	var other []string // to another repository of the same host
	o.instead = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/theirs/"):
			other = append(other, r.Header.Get("Authorization"))
			http.NotFound(w, r)
		case strings.Contains(r.URL.Path, "/manifests/"):
			http.Redirect(w, r, "/v2/theirs/api/manifests/one", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	}
	_, err := o.Digest(t.Context(), 1, o.host+"/shop/api", "one", "")
	if len(other) == 0 || strings.Join(other, "") != "" {
		t.Errorf("found the logins %q at another repository, %v; want requests without one", other, err)
	}
	o.now.Advance(time.Hour) // the client is made anew
	realm := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)
	o.instead = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	o.finds(t, fault.Denied, "outside of the URLs of the credential")
	leaked.Range(func(path, h any) bool {
		t.Errorf("found the login %v at %v of another host", h, path)
		return true
	})
	o.put(sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/elsewhere")}, canary)
	o.instead = nil
	o.finds(t, fault.Denied, "a credential of kind registry")
	o.put(sealing.Terms{Name: "images", Username: "robot", URLPrefixes: []string{"https://" + o.host + "/shop"}}, canary)
	o.mu.Lock()
	o.seen = nil
	o.mu.Unlock()
	o.finds(t, fault.Denied, "") // the registry speaks plain HTTP, for which the credential is not
	if len(o.seen) > 0 {
		t.Errorf("found %d logins by HTTP; want none", len(o.seen))
	}
}

// issuer issues tokens with a number each.
type issuer struct {
	*httptest.Server
	mu     sync.Mutex
	count  int
	status int
	bodies []string
	answer func(r *http.Request, token string) string
}

func issue(t *testing.T, answer func(r *http.Request, token string) string) *issuer {
	t.Helper()
	i := &issuer{answer: answer}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // what cannot be read is empty
		i.mu.Lock()
		defer i.mu.Unlock()
		i.bodies = append(i.bodies, r.Header.Get("Authorization")+" "+r.Form.Encode())
		if i.status != 0 {
			http.Error(w, canary, i.status)
			return
		}
		if strings.Contains(r.URL.Path, "token") || r.Form.Get("Action") == "" {
			i.count++
		}
		_, _ = fmt.Fprint(w, i.answer(r, fmt.Sprintf("token-no-%d", i.count)))
	}))
	t.Cleanup(i.Close)
	return i
}

// lasts checks that one token is issued for many uses, another one shortly before its end, once it is not accepted, and after a rotation;
// and that a server which issues none, or answers anything else, is reported without its words.
func (i *issuer) lasts(t *testing.T, o *owning, user string, terms sealing.Terms, value string, good time.Duration) {
	t.Helper()
	o.wants(user, "token-no-1")
	o.put(terms, value)
	for range 3 {
		o.finds(t, 0, "")
	}
	o.wants(user, "token-no-2") // the first was taken back
	o.finds(t, 0, "")
	o.wants(user, "token-no-3")
	o.now.Advance(good - 20*time.Second)
	o.finds(t, 0, "")
	o.put(terms, value) // another version
	o.wants(user, "token-no-4")
	o.finds(t, 0, "")
	if i.count != 4 {
		t.Errorf("found %d tokens issued; want 4", i.count)
	}
	for status, class := range map[int]fault.Class{
		400: fault.Unauthenticated, 401: fault.Unauthenticated, 302: fault.Unauthenticated, 429: fault.Unavailable, 503: fault.Unavailable,
	} {
		i.mu.Lock()
		i.status = status
		i.mu.Unlock()
		o.put(terms, value)
		o.finds(t, class, fmt.Sprint("status ", status))
	}
	i.mu.Lock()
	i.status, i.answer = 0, func(*http.Request, string) string {
		return `{"access_token":"a b","refresh_token":"` + strings.Repeat("x", 1<<20)
	}
	i.mu.Unlock()
	o.put(terms, value)
	o.finds(t, fault.Unauthenticated, "no token")
	for _, body := range i.bodies {
		if strings.Contains(body, value) && user != acrUser {
			t.Errorf("found the value in a request: %.200s", body)
		}
	}
}

const acrUser = "00000000-0000-0000-0000-000000000000"

// D56: tokens of ECR are issued for a signed request, after a role was assumed if the credential has one.
func TestTokensOfECR(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"", "arn:aws:iam::123456789012:role/images"} {
		o := own(t)
		i := issue(t, func(r *http.Request, token string) string {
			key := "AKIAIOSFODNN7EXAMPLE"
			if r.Form.Get("Action") == "AssumeRole" {
				if r.Form.Get("RoleArn") != role || !strings.Contains(r.Header.Get("Authorization"), "Credential="+key+"/20260325/eu-central-1/sts/aws4_request") {
					return "<x/>"
				}
				return `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>` +
					`<SecretAccessKey>s</SecretAccessKey><SessionToken>session-token</SessionToken></Credentials></AssumeRoleResult></AssumeRoleResponse>`
			}
			if role != "" {
				key = "ASIAROLE"
			}
			if !strings.Contains(r.Header.Get("Authorization"), "Credential="+key+"/20260325/eu-central-1/ecr/aws4_request") ||
				(r.Header.Get("X-Amz-Security-Token") == "session-token") != (role != "") ||
				r.Header.Get("X-Amz-Target") != "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken" {
				return "{}"
			}
			end := o.now.Now().Add(30 * time.Minute).Unix()
			return fmt.Sprintf(`{"authorizationData":[{"authorizationToken":%q,"expiresAt":%d}]}`, base64.StdEncoding.EncodeToString([]byte("AWS:"+token)), end)
		})
		i.lasts(t, o, "AWS", sealing.Terms{Name: "ecr", URLPrefixes: o.at("/shop"), Proof: sealing.Proof{ECR: sealing.ECR{
			AccessKeyID: "AKIAIOSFODNN7EXAMPLE", Region: "eu-central-1", Role: role, API: i.URL, STS: i.URL + "/",
		}}}, canary, 30*time.Minute)
	}
}

// D56: tokens of Google Cloud are issued for what the key of a service account has signed. What the key says of where does not count.
func TestTokensOfGAR(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "images@shop.iam.gserviceaccount.com", "private_key_id": "1", "token_uri": "http://127.0.0.1:1/",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := own(t)
	i := issue(t, func(r *http.Request, token string) string {
		parts := strings.Split(r.Form.Get("assertion"), ".")
		if r.Form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || len(parts) != 3 {
			return "{}"
		}
		raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
		if !strings.Contains(string(raw), `"iss":"images@shop.iam.gserviceaccount.com"`) || !strings.Contains(string(raw), `"aud":"http://`+r.Host+`/token"`) {
			return "{}"
		}
		return `{"access_token":"` + token + `","expires_in":1800}`
	})
	terms := sealing.Terms{Name: "gar", URLPrefixes: o.at("/shop"), Proof: sealing.Proof{GAR: sealing.GAR{Key: true, TokenURL: i.URL + "/token"}}}
	i.lasts(t, o, "oauth2accesstoken", terms, string(account), 30*time.Minute)
	o.put(terms, `{"type":"authorized_user","refresh_token":"`+canary+`"}`)
	o.finds(t, fault.Unauthenticated, "no key that can be used")
}

// D56: a service principal proves itself at the authority, and what it gets is exchanged at the registry.
func TestTokensOfACR(t *testing.T) {
	t.Parallel()
	o := own(t)
	i := issue(t, func(r *http.Request, token string) string {
		if r.URL.Path != "/tenant-1/oauth2/v2.0/token" || r.Form.Get("client_secret") != canary || r.Form.Get("client_id") != "client-1" {
			return "{}"
		}
		return `{"access_token":"access-` + token + `"}`
	})
	o.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/oauth2/exchange" {
			return false
		}
		_ = r.ParseForm() // what cannot be read is empty
		if r.Form.Get("grant_type") != "access_token" || r.Form.Get("service") != o.host || r.Form.Get("client_secret") != "" {
			http.Error(w, canary, http.StatusBadRequest)
			return true
		}
		claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, o.now.Now().Add(30*time.Minute).Unix()))
		token := strings.TrimPrefix(r.Form.Get("access_token"), "access-")
		o.wants(acrUser, "h."+claims+"."+token)
		_, _ = fmt.Fprintf(w, `{"refresh_token":"h.%s.%s"}`, claims, token)
		return true
	}
	terms := sealing.Terms{Name: "acr", URLPrefixes: o.at("/shop"), Proof: sealing.Proof{ACR: sealing.ACR{Tenant: "tenant-1", ClientID: "client-1", Authority: i.URL}}}
	o.put(terms, canary)
	for range 3 {
		o.finds(t, 0, "")
	}
	if i.count != 1 {
		t.Errorf("found %d tokens issued; want 1", i.count)
	}
	o.now.Advance(30*time.Minute - 20*time.Second)
	o.finds(t, 0, "")
	if i.count != 2 {
		t.Errorf("found %d tokens issued; want another one before the end of the first", i.count)
	}
	o.put(terms, "wrong")
	o.finds(t, fault.Unauthenticated, "no token")
}
