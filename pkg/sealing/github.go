package sealing

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// GitHubApp is an installation of a GitHub App. Texts of which numbers are made are kept as they are: GitHub gives no bound of them.
type GitHubApp struct {
	// ID is the number of the App, or its client id.
	ID string `json:"app_id,omitempty"`
	// Installation is the number of the installation.
	Installation string `json:"installation_id,omitempty"`
	// API is where GitHub's REST API is; empty for where it is for the host of the repositories.
	API string `json:"api_url,omitempty"`
}

var (
	appForm          = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	installationForm = regexp.MustCompile(`^[1-9][0-9]{0,17}$`)
)

// check finds what is wrong with an App of terms.
func (a GitHubApp) check(t Terms, wrong func(field, format string, args ...any)) {
	if t.Kind != Git {
		wrong("/kind", "found %.100s with githubApp; expected git", string(t.Kind))
	}
	if t.Username != "" || !t.Proof.OAuth2.IsZero() || t.Proof.Certificate != (Certificate{}) {
		wrong("/githubApp", "found it with username, oauth2 or certificate; expected it alone")
	}
	if t.Forge != "" && t.Forge != "git" && t.Forge != "github" {
		wrong("/forge", "found %.100q with githubApp; expected github, or git", t.Forge)
	}
	if !appForm.MatchString(a.ID) {
		wrong("/githubApp/appId", "found %.100q; expected the App ID or the client ID of the App, such as 123456", a.ID)
	}
	if !installationForm.MatchString(a.Installation) {
		wrong("/githubApp/installationId", "found %.100q; expected the number that the address of the installation ends with, such as 12345678", a.Installation)
	}
	if problem := addressProblem(a.API, "api/v3"); problem != "" {
		wrong("/githubApp/apiUrl", "%s", problem)
	}
	var first *url.URL
	for i, prefix := range t.URLPrefixes {
		u, err := ParsePrefix(prefix)
		if err != nil { // which is reported elsewhere
			continue
		}
		if first == nil {
			first = u
		}
		if u.Scheme != first.Scheme || !strings.EqualFold(u.Host, first.Host) {
			wrong(fmt.Sprintf("/urlPrefixes/%d", i), "found %s://%s; expected %s://%s, as the first has it: an App is at one GitHub", u.Scheme, u.Host,
				first.Scheme, first.Host)
		}
	}
}

// APIFor is the address of the REST API for a repository, without a slash at its end.
func (a GitHubApp) APIFor(repository *url.URL) string {
	switch {
	case a.API != "":
		return strings.TrimRight(a.API, "/")
	case strings.EqualFold(repository.Host, "github.com"):
		return "https://api.github.com"
	}
	return repository.Scheme + "://" + repository.Host + "/api/v3"
}

// The bounds of a key, in bits: GitHub makes keys of 2048, and a signature of a longer key than the second takes too long.
const minKey, maxKey = 2048, 8192

const expectedKey = "expected the private key of the App as GitHub has it downloaded: RSA, in PEM, not encrypted"

// ReadAppKey reads the private key of an App. Nothing of it is in the error.
func ReadAppKey(text string) (*rsa.PrivateKey, error) {
	wrong := func(found string) error { return fault.New(fault.Invalid, "found %s; %s", found, expectedKey) }
	block, behind := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return nil, wrong("no text in PEM")
	case strings.TrimSpace(string(behind)) != "":
		return nil, wrong("more than one block, or a text behind it")
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
		return nil, wrong("a key that is encrypted")
	}
	var parsed any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default: // its name may have a part of what was entered by mistake
		return nil, wrong("a block that is no private key of RSA")
	}
	if err != nil { // whose text may have a part of the key
		return nil, wrong("a key that cannot be read")
	}
	key, isRSA := parsed.(*rsa.PrivateKey)
	if !isRSA {
		return nil, wrong("a key that is not of RSA")
	}
	if bits := key.N.BitLen(); bits < minKey || bits > maxKey {
		return nil, fault.New(fault.Invalid, "found a key of %d bits; expected %d to %d", bits, minKey, maxKey)
	}
	return key, nil
}
