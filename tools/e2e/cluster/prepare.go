package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// The accounts with tokens.
const (
	Admin = "admin"
	Relay = "relay"
)

// prepare creates the folder, the ports and the credentials.
func (c *Cluster) prepare() error {
	for _, name := range []string{"log", "etcd", "certificates", "home/.kube", "tmp", "gpg", "argocd", "flux"} {
		if err := os.MkdirAll(c.path(name), 0o700); err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	var err error
	if c.ports, c.reserved, err = port.ChooseFor("etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler", "redis", "repo-server",
		"repo-server-metrics", "application-controller", "rollouts", "rollouts-metrics", "kwok", "prometheus", "argo-server",
		"source-health", "source-storage", "kustomize-health"); err != nil {
		return err
	}
	if err := c.writeKey(); err != nil {
		return err
	}
	policy := fmt.Sprintf("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, users: [%q]}\n- {level: None}\n",
		c.config.Audit)
	if err := os.WriteFile(c.path("audit-policy.yaml"), []byte(policy), 0o600); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	c.tokens = map[string]string{Admin: rand.Text(), Relay: rand.Text(), Submitter: rand.Text()}
	users := fmt.Sprintf("%s,admin,admin,system:masters\n%s,relay,relay\n%s,submitter,submitter\n",
		c.tokens[Admin], c.tokens[Relay], c.tokens[Submitter])
	if err := os.WriteFile(c.path("tokens.csv"), []byte(users), 0o600); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	for account, token := range c.tokens {
		if err := c.writeKubeconfig(c.Kubeconfig(account), token); err != nil {
			return err
		}
	}
	// Argo CD's controller reads this file when it is configured as inside the cluster but is not.
	return c.writeKubeconfig(c.path("home", ".kube", "config"), c.tokens[Admin])
}

// writeKey creates the key that signs the tokens of service accounts.
func (c *Cluster) writeKey() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(c.path("service-account.key"), text, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

func (c *Cluster) writeKubeconfig(path, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: e2e
clusters:
  - {name: e2e, cluster: {server: %q, insecure-skip-tls-verify: true}}
users:
  - {name: e2e, user: {token: %s}}
contexts:
  - {name: e2e, context: {cluster: e2e, user: e2e}}
`, c.URL(), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// connect creates the client with all rights.
func (c *Cluster) connect() error {
	c.rest = &rest.Config{
		Host: c.URL(), BearerToken: c.tokens[Admin], TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		UserAgent: "lockstep-e2e", QPS: 200, Burst: 400, WarningHandler: rest.NoWarnings{},
	}
	var err error
	if c.api, err = dynamic.NewForConfig(c.rest); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}
