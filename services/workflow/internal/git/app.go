package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// appUser is the user name that GitHub wants with the token of an installation, over Git's protocol.
const appUser = "x-access-token"

const (
	// signedBefore is how far back what we sign begins, and signedFor how long it lasts: GitHub wants at most ten minutes by its own clock.
	signedBefore, signedFor = time.Minute, 8 * time.Minute
	// issuedWithin is how long GitHub may take to issue a token.
	issuedWithin = 30 * time.Second
	// settlesWithin is how long a token may not be known to all of its servers.
	settlesWithin = 10 * time.Second
	// answerMost is how many bytes its answer may have: it lists the repository with all that is to say of it.
	answerMost = 256 << 10
	// tokenMost is how many bytes a token may have.
	tokenMost = 8 << 10
)

// apps has tokens issued for installations of GitHub Apps.
type apps struct {
	issued *book.Issued
	// client reaches GitHub, by the rules of all requests of an operation (D41).
	client *http.Client
	clock  clock.Clock
}

func newApps(client *http.Client, c clock.Clock) *apps {
	// It follows no redirect: what we sign goes to the address that the credential is bound to.
	alone := *client
	alone.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &apps{issued: book.NewIssued(c), client: &alone, clock: c}
}

// app is the GitHub App that a credential is one of; its zero value for none.
func (c Credential) app() sealing.GitHubApp {
	if c.own == nil {
		return sealing.GitHubApp{}
	}
	return c.own.Proof.GitHubApp
}

// token is one for a repository. It is good for no other one of the installation.
func (a *apps) token(ctx context.Context, c *Credential, key string, repository *url.URL) (string, error) {
	project := sha256.Sum256([]byte(strings.ToLower(repository.Host + "/" + projectOf(repository)))) // a program chooses how long it is
	of := book.Holder{Organization: c.own.Organization, Name: c.own.Name, For: string(project[:])}
	value, again, err := a.issued.Of(ctx, of, key, c.own.Bytes(), issuedWithin, func(ctx context.Context) (book.Token, error) {
		return a.issue(ctx, c, key, repository)
	})
	if err != nil {
		return "", err
	}
	uses(ctx, used{again, a.issued.Younger(of, value, settlesWithin), func() { a.issued.Forget(of, value) }})
	return value, nil
}

// projectOf is the path of a repository at its forge.
func projectOf(repository *url.URL) string {
	return strings.TrimSuffix(strings.Trim(repository.Path, "/"), ".git")
}

// tokenForm is that of a token: GitHub has changed its length before, and it is one word.
var tokenForm = regexp.MustCompile(`^[\x21-\x7e]{8,}$`)

// issue has a token issued for one repository (POST /app/installations/{installation_id}/access_tokens).
func (a *apps) issue(ctx context.Context, c *Credential, key string, repository *url.URL) (book.Token, error) {
	signed, err := a.sign(c, key)
	if err != nil {
		return book.Token{}, err
	}
	activity.Conceal(ctx, signed)
	app := c.app()
	target := app.APIFor(repository) + "/app/installations/" + app.Installation + "/access_tokens"
	// What is signed goes there, and the login of the operation to its own places only.
	ctx = withPlaces(ctx)
	mayGo(ctx, target)
	// Of two repositories of an installation, no names are the same: an installation is at one account.
	body, err := json.Marshal(map[string][]string{"repositories": {path.Base(projectOf(repository))}})
	if err != nil {
		return book.Token{}, fault.Because(err, fault.Internal, "encode a request for a token")
	}
	//nolint:gosec,nolintlint // the transport decides (D41); gosec does not find it every time
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return book.Token{}, fault.New(fault.Invalid, "the API address of the credential %q cannot be used", c.Name)
	}
	request.Header.Set("Authorization", "Bearer "+signed)
	request.Header.Set("Accept", "application/vnd.github+json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	answer, err := a.client.Do(request) //nolint:gosec,nolintlint // see above
	if err != nil {
		if fault.Is(err, fault.Denied) { // by the rules about where a program may go
			return book.Token{}, fault.Because(err, fault.Refused, "the API of the credential %q may not be reached: %s", c.Name, fault.Public(err))
		}
		return book.Token{}, silent(target, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return book.Token{}, a.notIssued(c, answer, repository)
	}
	return a.read(ctx, c, answer.Body)
}

// read takes the token out of GitHub's answer.
func (a *apps) read(ctx context.Context, c *Credential, body io.Reader) (book.Token, error) {
	raw, err := io.ReadAll(io.LimitReader(body, answerMost+1))
	if err != nil {
		return book.Token{}, fault.Because(err, fault.Unavailable, "reading the token of the credential %q was interrupted", c.Name)
	}
	var issued struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if len(raw) > answerMost || json.Unmarshal(raw, &issued) != nil || len(issued.Token) > tokenMost ||
		!tokenForm.MatchString(issued.Token) || issued.ExpiresAt.IsZero() {
		return book.Token{}, fault.New(fault.Unauthenticated, "the API of the credential %q does not answer like GitHub: it has issued no token that can be read", c.Name)
	}
	activity.Conceal(ctx, issued.Token)
	good := issued.ExpiresAt.Sub(a.clock.Now())
	if good <= 0 {
		return book.Token{}, fault.New(fault.Unauthenticated, "GitHub has issued a token for the credential %q that ended at %s; expected the clock of this service to be right",
			c.Name, issued.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return book.Token{Value: issued.Token, Good: good}, nil
}

// notIssued is the error of a token that was not issued. Nothing of the answer but its status is in it: it is a server's that a user has
// named.
func (a *apps) notIssued(c *Credential, answer *http.Response, repository *url.URL) error {
	app, name := c.app(), path.Base(projectOf(repository))
	limited := answer.Header.Get("X-Ratelimit-Remaining") == "0" || answer.Header.Get("Retry-After") != ""
	status := answer.StatusCode
	switch {
	case status == http.StatusTooManyRequests || limited && (status == http.StatusForbidden || status == http.StatusServiceUnavailable):
		answered := rest{now: a.clock.Now, seen: &allowance{}}
		answered.look(answer)
		return fault.Because(&limitError{answered.pause(answer)}, fault.Unavailable, "GitHub has issued no token for the credential %q: status %d", c.Name, status)
	case status >= http.StatusInternalServerError:
		return fault.New(fault.Unavailable, "GitHub has issued no token for the credential %q: status %d", c.Name, status)
	case status == http.StatusUnauthorized:
		return fault.New(fault.Unauthenticated, "GitHub does not accept the App %s of the credential %q (status 401): its private key belongs to another App or was deleted, "+
			"or the clock of this service is wrong", app.ID, c.Name)
	case status == http.StatusForbidden:
		return fault.New(fault.Denied, "GitHub issues no tokens for the installation %s of the credential %q (status 403): it is suspended, or the App may not be used", app.Installation,
			c.Name)
	case status == http.StatusNotFound:
		return fault.New(fault.Unauthenticated, "GitHub knows no installation %s of the App %s of the credential %q (status 404): the App was uninstalled, or the number is that of another App",
			app.Installation, app.ID, c.Name)
	case status == http.StatusUnprocessableEntity:
		return fault.New(fault.Denied, "GitHub issues no token for %q to the installation %s of the credential %q (status 422): the installation has no such repository, or it was renamed", name,
			app.Installation, c.Name)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return fault.New(fault.Unauthenticated, "the API of the credential %q redirects with status %d, which is not followed; expected its present address", c.Name, status)
	}
	return fault.New(fault.Unauthenticated, "the API of the credential %q has issued no token: status %d", c.Name, status)
}

// sign is what proves the App.
func (a *apps) sign(c *Credential, text string) (string, error) {
	key, err := sealing.ReadAppKey(text)
	if err != nil {
		return "", fault.New(fault.Unauthenticated, "the credential %q has no key that can be used: %s", c.Name, fault.Public(err))
	}
	now := a.clock.Now()
	token, err := sealing.SignJWT(key, "", map[string]any{
		"iss": c.app().ID, "iat": now.Add(-signedBefore).Unix(), "exp": now.Add(signedFor).Unix(),
	})
	if err != nil { // whose text may say something of the key
		return "", fault.New(fault.Unauthenticated, "the credential %q has a key that does not sign", c.Name)
	}
	return token, nil
}
