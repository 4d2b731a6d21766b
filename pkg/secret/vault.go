package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

// VaultConfig configures a HashiCorp Vault, or an OpenBao, whose API is the same. Set either a token or a role.
type VaultConfig struct {
	// Address is its URL: https://vault.example.com:8200. Empty means that there is no Vault.
	Address string `koanf:"address"`
	// Namespace is the namespace of the paths, if Vault has namespaces.
	Namespace string `koanf:"namespace"`
	// TokenRef is a reference, env:NAME or file:/path, to the token, for an agent that keeps one in a file.
	TokenRef string `koanf:"token_ref"`
	// KubernetesRole is the role that the pod signs in as, in place of a token: with the account's token in KubernetesTokenFile, at the
	// authentication method mounted at KubernetesMount.
	KubernetesRole      string `koanf:"kubernetes_role"`
	KubernetesMount     string `koanf:"kubernetes_mount"      default:"kubernetes"`
	KubernetesTokenFile string `koanf:"kubernetes_token_file" default:"/var/run/secrets/kubernetes.io/serviceaccount/token"`
	// CAFile holds the certificates that the server's is verified against; empty means the system's.
	CAFile string `koanf:"ca_file"`
}

// Check returns the problems of the configuration, by key below vault.
func (c VaultConfig) Check() []fault.Field {
	if c.Address == "" {
		if c.TokenRef != "" || c.KubernetesRole != "" {
			return []fault.Field{{Name: "vault.address", Problem: "missing; expected the URL of Vault beside token_ref or kubernetes_role"}}
		}
		return nil
	}
	var wrong []fault.Field
	if u, err := url.Parse(c.Address); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		wrong = append(wrong, fault.Field{Name: "vault.address", Problem: "expected a URL such as https://vault.example.com:8200"})
	}
	if (c.TokenRef == "") == (c.KubernetesRole == "") {
		wrong = append(wrong, fault.Field{Name: "vault.token_ref", Problem: "expected either token_ref or kubernetes_role"})
	}
	if c.TokenRef != "" && (!reference.Is(c.TokenRef) || !strings.HasPrefix(c.TokenRef, "env:") && !strings.HasPrefix(c.TokenRef, "file:")) {
		wrong = append(wrong, fault.Field{Name: "vault.token_ref", Problem: "expected a reference, env:NAME or file:/path"})
	}
	return wrong
}

const (
	// askWithin bounds one request to Vault or Kubernetes.
	askWithin = 5 * time.Second
	// maxSecret bounds a response; Vault limits an entry to 1 MiB.
	maxSecret = 2 << 20
)

// vault reads entries of KV engines of version 2 over Vault's HTTP API.
type vault struct {
	config VaultConfig
	client *http.Client
	clock  clock.Clock

	// mu guards the token of a role, and the time to renew it.
	mu     sync.Mutex
	token  string
	renews time.Time
}

func newVault(c VaultConfig, now clock.Clock, log *slog.Logger) (*vault, error) {
	if wrong := c.Check(); len(wrong) > 0 {
		return nil, fault.InvalidFields(wrong...)
	}
	trust, err := certs.Files{CA: c.CAFile}.Client(log)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	if c.KubernetesMount == "" {
		c.KubernetesMount = "kubernetes"
	}
	return &vault{config: c, clock: now, client: client(trust, http.ProxyFromEnvironment)}, nil
}

// client returns a client that follows no redirects: it sends a token. proxy is nil for none.
func client(trust *certs.Client, proxy func(*http.Request) (*url.URL, error)) *http.Client {
	return &http.Client{
		Timeout:       askWithin,
		Transport:     &http.Transport{Proxy: proxy, TLSClientConfig: trust.Config(""), ForceAttemptHTTP2: true, IdleConnTimeout: askWithin},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// read returns the value of a key. If Vault has revoked the token of a role early, it signs in again, once.
func (v *vault) read(ctx context.Context, path, key string) (string, error) {
	for again := v.config.KubernetesRole != ""; ; again = false {
		token, err := v.current(ctx)
		if err != nil {
			return "", err
		}
		var answer struct {
			Data struct {
				Data map[string]any `json:"data"`
			} `json:"data"`
		}
		err = v.ask(ctx, http.MethodGet, path, token, nil, &answer)
		if again && fault.Is(err, fault.Denied) {
			v.forget(token)
			continue
		}
		if err != nil {
			return "", err
		}
		switch value := answer.Data.Data[key].(type) {
		case string:
			return value, nil
		case nil:
			return "", fault.New(fault.NotFound, "vault:%s has no key %s", path, key)
		default:
			return "", fault.New(fault.Invalid, "vault:%s#%s is not a text", path, key)
		}
	}
}

// current returns the token to use: the operator's, or that of the role, which is renewed after two thirds of its lifetime.
func (v *vault) current(ctx context.Context) (string, error) {
	if v.config.TokenRef != "" {
		token, err := (*Reader)(nil).Read(ctx, v.config.TokenRef)
		if err != nil {
			return "", fault.Because(err, fault.Unavailable, "the token of Vault: %s", fault.Public(err))
		}
		return token, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.token != "" && v.clock.Now().Before(v.renews) {
		return v.token, nil
	}
	account, err := os.ReadFile(v.config.KubernetesTokenFile) // Kubernetes replaces it every hour
	if err != nil {
		return "", fault.Because(err, fault.Unavailable, "the account's token for Vault cannot be read from %s", v.config.KubernetesTokenFile)
	}
	body, err := json.Marshal(map[string]string{"role": v.config.KubernetesRole, "jwt": strings.TrimSpace(string(account))})
	if err != nil {
		return "", fmt.Errorf("encode the login at vault: %w", err)
	}
	var answer struct {
		Auth struct {
			ClientToken   string `json:"client_token"`
			LeaseDuration int64  `json:"lease_duration"` // in seconds; 0 means without end
		} `json:"auth"`
	}
	if err := v.ask(ctx, http.MethodPost, "auth/"+v.config.KubernetesMount+"/login", "", body, &answer); err != nil {
		return "", fmt.Errorf("sign in as %s: %w", v.config.KubernetesRole, err)
	}
	lease := time.Duration(answer.Auth.LeaseDuration) * time.Second
	if lease == 0 {
		lease = time.Hour
	}
	v.token, v.renews = answer.Auth.ClientToken, v.clock.Now().Add(lease*2/3)
	return v.token, nil
}

// forget drops a refused token, unless it has been replaced meanwhile.
func (v *vault) forget(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.token == token {
		v.token = ""
	}
}

// ask calls the API. Vault's error messages are not passed on: they may repeat the request.
func (v *vault) ask(ctx context.Context, method, path, token string, body []byte, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(v.config.Address, "/")+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask vault: %w", err)
	}
	if token != "" {
		request.Header.Set("X-Vault-Token", token)
	}
	if v.config.Namespace != "" {
		request.Header.Set("X-Vault-Namespace", v.config.Namespace)
	}
	request.Header.Set("X-Vault-Request", "true") // its agents require it, against forged requests
	response, err := v.client.Do(request)
	if err != nil {
		return fault.Because(err, fault.Unavailable, "Vault at %s does not answer", v.config.Address)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSecret))
	if err != nil {
		return fault.Because(err, fault.Unavailable, "Vault at %s does not answer in full", v.config.Address)
	}
	switch code := response.StatusCode; code {
	case http.StatusOK:
		if json.Unmarshal(text, answer) != nil {
			return fault.Because(errors.New("not the JSON expected"), fault.Unavailable,
				"Vault at %s answers %s with something other than an entry", v.config.Address, path)
		}
		return nil
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "vault:%s: missing, or deleted", path)
	case http.StatusForbidden, http.StatusUnauthorized, http.StatusBadRequest:
		return fault.New(fault.Denied, "Vault answers %s with %d: check the policy of the token or role", path, code)
	default: // sealed, standby, too many requests, or behind a proxy that cannot reach it
		return fault.New(fault.Unavailable, "Vault answers %s with %d", path, code)
	}
}
