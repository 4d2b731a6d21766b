// Package simulated runs scenarios on the cluster that a stack simulates (tools/lockstep/simcluster), under the names of the real programs.
// Each program maps to its simulation: all of them are one process, so restarting any restarts them all, and a controller is frozen by
// scaling its workload to zero.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/e2e/cluster"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// part is the process of the stack that simulates the cluster.
const part = "simcluster"

// workload is the workload in the cluster that represents a program.
type workload struct{ kind, namespace, name string }

//nolint:gochecknoglobals // a constant
var workloads = map[string]workload{
	"rollouts-controller":           {"Deployment", "argo-rollouts", "argo-rollouts"},
	"argocd-application-controller": {"StatefulSet", "argocd", "argocd-application-controller"},
	"argocd-repo-server":            {"Deployment", "argocd", "argocd-repo-server"},
}

// Cluster is the simulated cluster of a stack.
type Cluster struct {
	stack *stack.Stack
	api   dynamic.Interface

	mu     sync.Mutex
	frozen map[string]bool
}

// New returns the cluster of a running stack.
func New(s *stack.Stack) (*Cluster, error) {
	api, err := dynamic.NewForConfig(&rest.Config{Host: s.Endpoints().Cluster, QPS: 200, Burst: 400})
	if err != nil {
		return nil, fmt.Errorf("client of the simulated cluster: %w", err)
	}
	return &Cluster{stack: s, api: api, frozen: map[string]bool{}}, nil
}

// URL returns the API server's URL.
func (c *Cluster) URL() string { return c.stack.Endpoints().Cluster }

// HTTP returns a client that may read: no authentication is needed.
func (c *Cluster) HTTP() (*http.Client, error) { return http.DefaultClient, nil }

// Resource returns a client for the objects of a kind.
func (c *Cluster) Resource(apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	return cluster.Resource(c.api, apiVersion, kind, namespace)
}

// Apply creates objects, or merges them into existing ones.
func (c *Cluster) Apply(ctx context.Context, text []byte) error {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		if err := c.applyOne(ctx, &unstructured.Unstructured{Object: object}); err != nil {
			return err
		}
	}
}

func (c *Cluster) applyOne(ctx context.Context, u *unstructured.Unstructured) error {
	client, err := c.Resource(u.GetAPIVersion(), u.GetKind(), u.GetNamespace())
	if err != nil {
		return err
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	_, err = client.Patch(ctx, u.GetName(), types.MergePatchType, text, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		var fresh unstructured.Unstructured // with the number types that the client can copy
		if err = fresh.UnmarshalJSON(text); err == nil {
			_, err = client.Create(ctx, &fresh, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// Restart kills the cluster; the stack restarts it. A frozen program works again.
func (c *Cluster) Restart(ctx context.Context, program string) error {
	if err := c.Thaw(ctx, program); err != nil {
		return err
	}
	starts, err := c.stack.Kill(part)
	if err != nil {
		return err
	}
	return c.stack.AwaitRestart(ctx, part, starts)
}

// Freeze suspends a controller.
func (c *Cluster) Freeze(ctx context.Context, program string) error {
	if _, ok := workloads[program]; !ok {
		return fault.New(fault.NotFound, "program %q: found no workload for it", program)
	}
	return c.scale(ctx, program, true)
}

// Thaw resumes a suspended controller. For others it is a no-op.
func (c *Cluster) Thaw(ctx context.Context, program string) error {
	c.mu.Lock()
	rests := c.frozen[program]
	c.mu.Unlock()
	if !rests {
		return nil
	}
	return c.scale(ctx, program, false)
}

func (c *Cluster) scale(ctx context.Context, program string, freeze bool) error {
	w := workloads[program]
	client, err := c.Resource("apps/v1", w.kind, w.namespace)
	if err != nil {
		return err
	}
	patch := `{"spec":{"replicas":1}}`
	if freeze {
		patch = `{"spec":{"replicas":0}}`
	}
	if _, err := client.Patch(ctx, w.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("scale %s: %w", program, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen[program] = freeze
	return nil
}

// SetBroken is a no-op: the image's labels define its behaviour.
func (*Cluster) SetBroken(context.Context, []string) error { return nil }

// Requests counts the relay's requests to the API server so far, by verb.
func (c *Cluster) Requests(ctx context.Context) (map[string]int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	found := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var verb string
		var n int
		if _, err := fmt.Sscanf(line, `apiserver_request_total{verb=%q,client="lockstep-relay"} %d`, &verb, &n); err == nil {
			found[verb] = n
		}
	}
	return found, nil
}
