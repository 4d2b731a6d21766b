package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// accountDir is where a pod finds its account's token and the certificate authority of its cluster.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// cluster reads Secrets of the cluster that the process runs in, with the pod's account: a reference gives access to nothing that the
// account cannot read.
type cluster struct {
	// base is the API's address. tokenFile is read each time, because Kubernetes replaces the token every hour.
	base, tokenFile string
	client          *http.Client
}

// newCluster returns the cluster from the environment that Kubernetes gives its pods. It is nil outside a cluster, and in a pod without a
// token.
func newCluster(host, port, dir string, log *slog.Logger) (*cluster, error) {
	ca := filepath.Join(dir, "ca.crt")
	if _, missing := os.Stat(ca); host == "" || missing != nil {
		return nil, nil //nolint:nilnil,nilerr // not an error until a reference needs it
	}
	trust, err := certs.Files{CA: ca}.Client(log)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return &cluster{base: "https://" + net.JoinHostPort(host, port), tokenFile: filepath.Join(dir, "token"), client: client(trust, nil)}, nil
}

// read returns the value of a key of a Secret.
func (c *cluster) read(ctx context.Context, path, key string) (string, error) {
	ref := "k8s:" + path + "#" + key
	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", fault.Because(err, fault.Unavailable, "the account's token for Kubernetes cannot be read from %s", c.tokenFile)
	}
	namespace, name, _ := strings.Cut(path, "/")
	address := c.base + "/api/v1/namespaces/" + url.PathEscape(namespace) + "/secrets/" + url.PathEscape(name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", fmt.Errorf("ask kubernetes: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return "", fault.Because(err, fault.Unavailable, "%s: Kubernetes does not answer", ref)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSecret))
	if err != nil {
		return "", fault.Because(err, fault.Unavailable, "%s: Kubernetes does not answer in full", ref)
	}
	switch code := response.StatusCode; code {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", fault.New(fault.NotFound, "%s: there is no such Secret", ref)
	case http.StatusForbidden, http.StatusUnauthorized:
		return "", fault.New(fault.Denied, "%s: Kubernetes answers %d; the service's account needs get on this Secret (kubernetesSecrets of the chart)", ref, code)
	default:
		return "", fault.New(fault.Unavailable, "%s: Kubernetes answers %d", ref, code)
	}
	var answer struct {
		Data map[string][]byte `json:"data"`
	}
	if json.Unmarshal(text, &answer) != nil { // the decoder's error may quote the secret
		return "", fault.New(fault.Unavailable, "%s: Kubernetes answers with something else than a Secret", ref)
	}
	value, there := answer.Data[key]
	if !there {
		return "", fault.New(fault.NotFound, "%s: the Secret has no such key", ref)
	}
	return string(value), nil
}
