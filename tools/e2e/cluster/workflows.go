package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// Submitter is the account that signs in to the Argo Server. It has the rights of the ClusterRole argo-submitter where a
// namespace binds it.
const Submitter = "submitter"

// controllerPort is where the workflow controller reports that it works. The port is fixed, so a machine has one such controller at a
// time.
const controllerPort = 6060

// podLog is what every container of a Workflow says, in the format of the container runtime interface.
const podLog = "2026-01-01T00:00:00.000000000+00:00 stdout F line 1 of the step\n" +
	"2026-01-01T00:00:01.000000000+00:00 stdout F password=hunter2hunter2\n" +
	"2026-01-01T00:00:02.000000000+00:00 stdout F no such table: orders\n"

// ArgoServer returns the URL of the Argo Server; empty without one.
func (c *Cluster) ArgoServer() string {
	if c.config.Workflows == "" {
		return ""
	}
	return "http://" + port.Address(c.ports["argo-server"])
}

// Token returns what an account signs in with.
func (c *Cluster) Token(account string) string { return c.tokens[account] }

// applyWorkflows applies what Argo Workflows needs, before KWOK looks for its own kinds; nothing without the programs.
func (c *Cluster) applyWorkflows(ctx context.Context) error {
	if c.config.Workflows == "" {
		return nil
	}
	if err := c.applyFolder(ctx, filepath.Join(c.config.Workflows, "manifests")); err != nil {
		return err
	}
	text, err := manifests.ReadFile("manifests/workflows.yaml")
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	logs := fmt.Sprintf(`apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: workflows}
spec: {logs: [{containers: [main, wait, init], logsFile: %q}]}
`, c.path("pod.log"))
	for _, each := range []string{string(text), logs} {
		if err := c.Apply(ctx, []byte(each)); err != nil {
			return err
		}
	}
	return nil
}

// startWorkflows starts the controller and the server of Argo Workflows; nothing without the programs.
func (c *Cluster) startWorkflows(ctx context.Context) error {
	if c.config.Workflows == "" {
		return nil
	}
	bin := filepath.Join(c.config.Workflows, "bin")
	return c.run(ctx,
		program{
			name: "workflow-controller", file: filepath.Join(bin, "workflow-controller"),
			ready: c.healthy("http://" + port.Address(controllerPort) + "/healthz"),
			args: []string{
				// The image is a string in pods that KWOK plays.
				"--kubeconfig=" + c.Kubeconfig(Admin), "--namespace=argo", "--executor-image=argoexec:none",
			},
			// It looks at a Workflow whose pod has ended after half a second, not after ten.
			env: []string{"LEADER_ELECTION_DISABLE=true", "DEFAULT_REQUEUE_TIME=500ms", "HOME=" + c.path("home")},
		},
		program{
			name: "argo-server", file: filepath.Join(bin, "argo"), ready: c.argoServes,
			args: []string{
				"server", "--kubeconfig=" + c.Kubeconfig(Admin), "--namespace=argo", "--auth-mode=client", "--secure=false",
				"--port=" + c.port("argo-server"),
			},
			env: []string{"HOME=" + c.path("home")},
		},
	)
}

// reserveController holds the port of the workflow controller against other runs until the cluster stops: what answers there would be taken
// for the controller of this cluster. Without Argo Workflows it does nothing.
func (c *Cluster) reserveController(ctx context.Context) error {
	if c.config.Workflows != "" && !c.reserved.Hold(ctx, c.config.Clock, controllerPort) {
		return fault.New(fault.Unavailable, "found port %d of the workflow controller in use or reserved, expected it to be free: one run with "+
			"Argo Workflows at a time fits on a machine", controllerPort)
	}
	return nil
}

// argoServes expects that the Argo Server answers to an account.
func (c *Cluster) argoServes(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ArgoServer()+"/api/v1/version", nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.tokens[Submitter])
	response, err := (&http.Client{Timeout: probeTimeout}).Do(r)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the Argo Server answered %s", response.Status)
	}
	return nil
}

// kubelet returns the arguments with which KWOK answers for the node's kubelet, so that pods have logs; none without Argo Workflows.
func (c *Cluster) kubelet() ([]string, error) {
	if c.config.Workflows == "" {
		return []string{"--enable-crds=Stage"}, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	now := c.config.Clock.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	for file, content := range map[string][]byte{
		"kubelet.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		"kubelet.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"pod.log":     []byte(podLog),
	} {
		if err := os.WriteFile(c.path(file), content, 0o600); err != nil {
			return nil, fmt.Errorf("write %s: %w", file, err)
		}
	}
	return []string{
		"--enable-crds=Stage,ClusterLogs", "--node-ip=127.0.0.1", "--node-port=" + c.port("kwok"),
		"--tls-cert-file=" + c.path("kubelet.crt"), "--tls-private-key-file=" + c.path("kubelet.key"),
	}, nil
}
