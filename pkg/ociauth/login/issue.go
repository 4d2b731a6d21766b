package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
)

// tokenForm is that of a token.
var tokenForm = regexp.MustCompile(`^[\x21-\x7e]{8,}$`)

// post sends a request for a token, and reads the answer. Nothing of what the server says but its status is in the error: it is a server's
// that a user has named.
func (u *Use) post(request *http.Request, decode func([]byte, any) error, into any) error {
	target := request.URL.Scheme + "://" + request.URL.Host
	answer, err := u.logins.client.Do(request) //nolint:gosec // the transport decides what is reached (D41)
	if err != nil {
		if own, ok := errors.AsType[*fault.Error](err); ok && own.Class() == fault.Denied { // by the rules about what may be reached
			return fault.New(fault.Denied, "%s, where tokens of the credential %q are issued, may not be reached: %s", target, u.Name(), fault.Public(own))
		}
		return fault.New(fault.Unavailable, "%s, where tokens of the credential %q are issued, does not answer", target, u.Name())
	}
	defer answer.Body.Close()
	switch status := answer.StatusCode; {
	case status == http.StatusOK:
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return fault.New(fault.Unavailable, "%s has issued no token for the credential %q: status %d", target, u.Name(), status)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return fault.New(fault.Unauthenticated, "%s redirects with status %d, which is not followed with the credential %q; expected the present address", target, status, u.Name())
	default:
		return fault.New(fault.Unauthenticated, "%s has issued no token for the credential %q: status %d; expected an account that is in force and may read there, and the right clock of this service",
			target, u.Name(), status)
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, answerMost+1))
	if err != nil {
		return fault.New(fault.Unavailable, "reading the answer of %s for the credential %q was interrupted", target, u.Name())
	}
	if len(raw) > answerMost || decode(raw, into) != nil {
		return u.unread(target)
	}
	return nil
}

func (u *Use) unread(target string) error {
	return fault.New(fault.Unauthenticated, "%s has issued no token for the credential %q that can be read", target, u.Name())
}

// token is one that was issued.
func (u *Use) token(ctx context.Context, target, value string, good time.Duration) (book.Token, error) {
	if len(value) > tokenMost || !tokenForm.MatchString(value) {
		return book.Token{}, u.unread(target)
	}
	u.logins.d.Conceal(ctx, value)
	if good <= 0 {
		return book.Token{}, fault.New(fault.Unauthenticated, "%s has issued a token for the credential %q that has ended; expected the clock of this service to be right", target, u.Name())
	}
	return book.Token{Value: value, Good: good}, nil
}

// form is a request with a form.
func form(ctx context.Context, target string, values url.Values) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(values.Encode()))
	if err != nil {
		return nil, fault.New(fault.Unauthenticated, "the address where tokens are issued cannot be used")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	return request, nil
}

const (
	googleTokens = "https://oauth2.googleapis.com/token" //nolint:gosec // an address
	// googleScope is what registries of Google Cloud want: what the account may do there is decided by its roles.
	googleScope = "https://www.googleapis.com/auth/cloud-platform"
	// signedFor is how long what is signed is good for.
	signedFor = 8 * time.Minute
)

// gar has an access token issued for a service account (RFC 7523, 2.1), which Artifact Registry and Container Registry take for a password.
func (u *Use) gar(ctx context.Context, value string) (book.Token, error) {
	account, err := sealing.ReadServiceAccount(value)
	if err != nil {
		return book.Token{}, fault.New(fault.Unauthenticated, "the credential %q has no key that can be used: %s", u.Name(), fault.Public(err))
	}
	target := addressOr(u.credential.Proof.GAR.TokenURL, googleTokens)
	now := u.logins.d.Clock.Now()
	signed, err := sealing.SignJWT(account.Key, account.KeyID, map[string]any{
		"iss": account.Email, "scope": googleScope, "aud": target, "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(signedFor).Unix(),
	})
	if err != nil {
		return book.Token{}, fault.New(fault.Unauthenticated, "the credential %q has a key that does not sign", u.Name())
	}
	u.logins.d.Conceal(ctx, signed)
	request, err := form(ctx, target, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {signed}})
	if err != nil {
		return book.Token{}, err
	}
	var issued struct {
		Token string  `json:"access_token"`
		Good  float64 `json:"expires_in"`
	}
	if err := u.post(request, json.Unmarshal, &issued); err != nil {
		return book.Token{}, err
	}
	return u.token(ctx, target, issued.Token, seconds(issued.Good))
}

// seconds is how long a token is good for, as its server says: an hour at most.
func seconds(n float64) time.Duration {
	return time.Duration(min(max(n, 0), time.Hour.Seconds())) * time.Second
}

const (
	microsoft = "https://login.microsoftonline.com"
	// azureScope is what registries of Azure want.
	azureScope = "https://containerregistry.azure.net/.default"
	// azureGood is how long a refresh token of a registry is taken to be good for if it does not say: they last three hours.
	azureGood = time.Hour
)

// acr has an access token issued for a service principal, and exchanges it at the registry for one that the registry takes for a password.
func (u *Use) acr(ctx context.Context, value string) (book.Token, error) {
	a := u.credential.Proof.ACR
	target := addressOr(a.Authority, microsoft) + "/" + url.PathEscape(a.Tenant) + "/oauth2/v2.0/token"
	request, err := form(ctx, target, url.Values{
		"grant_type": {"client_credentials"}, "client_id": {a.ClientID}, "client_secret": {value}, "scope": {azureScope},
	})
	if err != nil {
		return book.Token{}, err
	}
	var access struct {
		Token string `json:"access_token"`
	}
	if err := u.post(request, json.Unmarshal, &access); err != nil {
		return book.Token{}, err
	}
	if len(access.Token) > tokenMost || !tokenForm.MatchString(access.Token) {
		return book.Token{}, u.unread(target)
	}
	u.logins.d.Conceal(ctx, access.Token)
	registry := &url.URL{Scheme: map[bool]string{true: "http", false: "https"}[u.insecure], Host: u.registry, Path: "/oauth2/exchange"}
	request, err = form(ctx, registry.String(), url.Values{
		"grant_type": {"access_token"}, "service": {u.registry}, "tenant": {a.Tenant}, "access_token": {access.Token},
	})
	if err != nil {
		return book.Token{}, err
	}
	var issued struct {
		Token string `json:"refresh_token"`
	}
	if err := u.post(request, json.Unmarshal, &issued); err != nil {
		return book.Token{}, err
	}
	good := azureGood
	if end, ok := endOf(issued.Token); ok {
		good = min(good, end.Sub(u.logins.d.Clock.Now()))
	}
	return u.token(ctx, registry.String(), issued.Token, good)
}

// endOf is when a JSON Web Token ends, as it says itself.
func endOf(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		End int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.End <= 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.End, 0), true
}
