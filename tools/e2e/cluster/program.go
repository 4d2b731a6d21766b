package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// probeTimeout bounds one readiness check.
const probeTimeout = 2 * time.Second

// controlPlane returns the programs of Kubernetes.
func (c *Cluster) controlPlane() []program {
	etcd := "http://" + port.Address(c.ports["etcd"])
	peer := "http://" + port.Address(c.ports["etcd-peer"])
	key := c.path("service-account.key")
	var audit []string
	if c.config.Audit != "" {
		audit = []string{"--audit-policy-file=" + c.path("audit-policy.yaml"), "--audit-log-path=" + c.AuditFile()}
	}
	return []program{
		{
			name: "etcd", stage: 0, ready: c.healthy(etcd + "/health"),
			args: []string{
				"--data-dir=" + c.path("etcd"), "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
				"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
				"--unsafe-no-fsync", "--log-level=warn",
			},
		},
		{
			name: "kube-apiserver", stage: 1, ready: c.healthy(c.URL() + "/readyz"),
			args: append([]string{
				"--etcd-servers=" + etcd, "--cert-dir=" + c.path("certificates"), "--secure-port=" + c.port("apiserver"),
				"--bind-address=127.0.0.1", "--service-account-issuer=https://kubernetes.default.svc",
				"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
				"--token-auth-file=" + c.path("tokens.csv"), "--authorization-mode=RBAC",
				"--service-cluster-ip-range=10.0.0.0/24", "--kubelet-preferred-address-types=InternalIP",
				// Otherwise the taint of a new node would never be removed.
				"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
			}, audit...),
		},
		{
			name: "kube-controller-manager", stage: 2, ready: c.healthy("https://" + port.Address(c.ports["controller-manager"]) + "/healthz"),
			args: []string{
				"--kubeconfig=" + c.Kubeconfig(Admin), "--leader-elect=false", "--bind-address=127.0.0.1",
				"--secure-port=" + c.port("controller-manager"), "--cert-dir=" + c.path("certificates"),
				// The node lifecycle controller would consider KWOK's nodes dead.
				"--controllers=replicaset-controller,deployment-controller,statefulset-controller,namespace-controller,job-controller," +
					"garbage-collector-controller,endpoints-controller,endpointslice-controller",
			},
		},
		{
			name: "kube-scheduler", stage: 2, ready: c.healthy("https://" + port.Address(c.ports["scheduler"]) + "/healthz"),
			args: []string{
				"--kubeconfig=" + c.Kubeconfig(Admin), "--leader-elect=false", "--bind-address=127.0.0.1",
				"--secure-port=" + c.port("scheduler"), "--cert-dir=" + c.path("certificates"),
			},
		},
	}
}

// controllers returns the programs that run on Kubernetes.
func (c *Cluster) controllers() ([]program, error) {
	kubelet, err := c.kubelet()
	if err != nil {
		return nil, err
	}
	redis, repositories := port.Address(c.ports["redis"]), port.Address(c.ports["repo-server"])
	env := []string{
		"KUBECONFIG=" + c.Kubeconfig(Admin), "HOME=" + c.path("home"), "TMPDIR=" + c.path("tmp"), "ARGOCD_FAKE_IN_CLUSTER=true",
		"ARGOCD_GPG_ENABLED=false", "ARGOCD_TLS_DATA_PATH=" + c.path("argocd"), "ARGOCD_SSH_DATA_PATH=" + c.path("argocd"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
	}
	path := os.Getenv("PATH")
	for _, program := range []string{c.config.Kustomize, c.config.Helm} {
		if program != "" {
			path = filepath.Dir(program) + string(filepath.ListSeparator) + path
		}
	}
	env = append(env, "PATH="+path)
	return []program{
		{
			name: "kwok", stage: 0, ready: c.healthy("http://" + port.Address(c.ports["kwok"]) + "/healthz"),
			args: append([]string{
				"--kubeconfig=" + c.Kubeconfig(Admin), "--manage-all-nodes=true", "--node-lease-duration-seconds=0",
				"--server-address=" + port.Address(c.ports["kwok"]),
			}, kubelet...),
			// Otherwise a file in the user's home would be used as configuration.
			env: []string{"HOME=" + c.path("home")},
		},
		{name: "redis", stage: 0, args: []string{redis}, ready: connects(redis)},
		{
			name: "argocd-repo-server", stage: 1, env: env, ready: connects(repositories),
			args: []string{
				"--disable-tls", "--address=127.0.0.1", "--port=" + c.port("repo-server"), "--metrics-address=127.0.0.1",
				"--metrics-port=" + c.port("repo-server-metrics"), "--redis=" + redis,
			},
		},
		{
			name: "argocd-application-controller", stage: 1, env: env,
			ready: c.healthy("http://" + port.Address(c.ports["application-controller"]) + "/healthz"),
			args: []string{
				"--kubeconfig=" + c.Kubeconfig(Admin), "--namespace=argocd", "--redis=" + redis, "--repo-server=" + repositories,
				"--repo-server-plaintext", "--metrics-port=" + c.port("application-controller"),
				"--status-processors=4", "--operation-processors=4",
			},
		},
		{
			name: "rollouts-controller", stage: 1, ready: c.healthy("http://" + port.Address(c.ports["rollouts"]) + "/healthz"),
			args: []string{
				"--kubeconfig=" + c.Kubeconfig(Admin), "--leader-elect=false", "--healthzPort=" + c.port("rollouts"),
				"--metricsPort=" + c.port("rollouts-metrics"),
			},
		},
	}, nil
}

func (c *Cluster) port(name string) string { return strconv.Itoa(c.ports[name]) }

// healthy expects status 200 from a URL.
func (c *Cluster) healthy(url string) func(context.Context) error {
	client := &http.Client{
		Timeout: probeTimeout,
		//nolint:gosec // certificates that the programs have made for themselves, on this machine
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		response, err := client.Do(r)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s: %s", url, response.Status, text)
		}
		return nil
	}
}

// connects expects that the address accepts connections.
func connects(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		return connection.Close()
	}
}
