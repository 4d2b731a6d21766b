package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// startFlux applies what Flux needs, and starts its source controller and its kustomize controller; nothing without the programs.
func (c *Cluster) startFlux(ctx context.Context) error {
	if c.config.Flux == "" {
		return nil
	}
	if err := c.applyFolder(ctx, filepath.Join(c.config.Flux, "manifests")); err != nil {
		return err
	}
	text, err := manifests.ReadFile("manifests/flux.yaml")
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	if err := c.Apply(ctx, text); err != nil {
		return fmt.Errorf("flux.yaml: %w", err)
	}
	env := []string{
		"KUBECONFIG=" + c.Kubeconfig(Admin), "HOME=" + c.path("home"), "TMPDIR=" + c.path("tmp"), "RUNTIME_NAMESPACE=flux-system",
	}
	bin, storage := filepath.Join(c.config.Flux, "bin"), port.Address(c.ports["source-storage"])
	source, kustomize := port.Address(c.ports["source-health"]), port.Address(c.ports["kustomize-health"])
	return c.run(ctx,
		program{
			name: "source-controller", file: filepath.Join(bin, "source-controller"), env: env, ready: c.healthy("http://" + source + "/readyz"),
			args: []string{
				"--metrics-addr=0", "--health-addr=" + source, "--storage-path=" + c.path("flux"), "--storage-addr=" + storage,
				"--storage-adv-addr=" + storage,
			},
		},
		program{
			name: "kustomize-controller", file: filepath.Join(bin, "kustomize-controller"), env: env,
			ready: c.healthy("http://" + kustomize + "/readyz"),
			args:  []string{"--metrics-addr=0", "--health-addr=" + kustomize, "--requeue-dependency=1s"},
		},
	)
}
