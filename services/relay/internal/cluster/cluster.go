// Package cluster is the relay's access to one Kubernetes cluster, through client-go's dynamic client: objects are maps, so the modules of
// Argo CD and Argo Rollouts are not needed. It returns classified errors and knows nothing of Functions.
//
// It is not a cache: every Get queries the API server.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// Config is the configuration of the access to a cluster.
type Config struct {
	// Kubeconfig is a file; "" means the pod's own service account, and outside a pod the usual places.
	Kubeconfig string
	// Context is one of the file's contexts; "" means its current one.
	Context string
	// RequestTimeout bounds every request except watches.
	RequestTimeout time.Duration
}

// Cluster is one cluster. It is safe for concurrent use.
type Cluster struct {
	api     dynamic.Interface
	raw     rest.Interface
	clock   clock.Clock
	timeout time.Duration

	// mu guards discovered, the kinds beyond the table in kind.go that were looked up at the API server.
	mu         sync.Mutex
	discovered map[core.Kind]resource
}

var _ core.Cluster = (*Cluster)(nil)

// Open reads the configuration. It sends no request to the cluster, which may be unreachable.
func Open(c Config, clk clock.Clock) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "kubeconfig: %v", err)
	}
	return forConfig(cfg, c.RequestTimeout, clk)
}

// forConfig creates the two clients: one for objects, one for other requests. It does not modify the caller's cfg.
func forConfig(cfg *rest.Config, timeout time.Duration, clk clock.Clock) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "lockstep-relay"
	// The relay has its own limit of calls, and one call sends at most eight requests at a time; the client's default of five requests a
	// second would be the bottleneck: k8s.apply reads and writes up to 2,000 objects.
	cfg.QPS, cfg.Burst = 200, 400
	// The API server's warnings are for users of kubectl.
	cfg.WarningHandler = rest.NoWarnings{}
	patient := rest.CopyConfig(cfg)
	patient.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retryAfter{next: next, clock: clk} })
	api, err := dynamic.NewForConfig(patient)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	raw, err := rest.UnversionedRESTClientFor(rawConfig(cfg))
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return &Cluster{api: api, raw: raw, clock: clk, timeout: timeout, discovered: map[core.Kind]resource{}}, nil
}

// rawConfig returns the configuration for requests that are not about objects: version and discovery.
func rawConfig(cfg *rest.Config) *rest.Config {
	cfg = dynamic.ConfigFor(cfg)
	cfg.GroupVersion = nil
	return cfg
}

// Get reads one object. It is never served from a cache: a decision about an old object would only be refused by its precondition.
func (c *Cluster) Get(ctx context.Context, ref core.Ref) (core.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.client(ctx, ref)
	if err != nil {
		return nil, err
	}
	var u *unstructured.Unstructured
	err = c.ask(ctx, func() error {
		u, err = client.Get(ctx, ref.Name, metav1.GetOptions{})
		return err //nolint:wrapcheck // classified below
	})
	if err != nil {
		return nil, classify(err, "get", ref)
	}
	return u.Object, nil
}

// List reads the objects of a selection, in all namespaces if it names none.
func (c *Cluster) List(ctx context.Context, s core.Selection, limit int) (all []core.Object, more bool, err error) {
	all, next, err := c.page(ctx, s, limit, "")
	more = next != "" || len(all) > limit // a server may ignore the limit
	return all[:min(len(all), limit)], more, err
}

// page reads one page of a selection: from the first object or from where another page has ended.
func (c *Cluster) page(ctx context.Context, s core.Selection, limit int, from string) (all []core.Object, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ref := core.Ref{Kind: s.Kind, Namespace: s.Namespace, Name: "of any name"}
	r, err := c.resolve(ctx, s.Kind)
	if err != nil {
		return nil, "", err
	}
	var client dynamic.ResourceInterface = c.api.Resource(r.gvr)
	if r.namespaced && s.Namespace != "" {
		client = c.api.Resource(r.gvr).Namespace(s.Namespace)
	}
	var list *unstructured.UnstructuredList
	err = c.ask(ctx, func() error {
		list, err = client.List(ctx, metav1.ListOptions{LabelSelector: s.Labels, Limit: int64(limit), Continue: from})
		return err //nolint:wrapcheck // classified below
	})
	switch {
	case apierrors.IsResourceExpired(err):
		return nil, "", fault.Because(err, fault.Conflict, "%s: the list was read too slowly", ref)
	case err != nil:
		return nil, "", classify(err, "list", ref)
	}
	for _, u := range list.Items {
		all = append(all, u.Object)
	}
	return all, list.GetContinue(), nil
}

// Create creates one object. If it exists by now the error is Conflict, so that the caller reads it again.
func (c *Cluster) Create(ctx context.Context, ref core.Ref, o core.Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.client(ctx, ref)
	if err != nil {
		return err
	}
	err = c.ask(ctx, func() error {
		_, err := client.Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{FieldManager: fieldManager})
		return err //nolint:wrapcheck // classified below
	})
	return classify(err, "create", ref)
}

// DryCreate has the API server validate an object.
func (c *Cluster) DryCreate(ctx context.Context, ref core.Ref, o core.Object) (core.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.client(ctx, ref)
	if err != nil {
		return nil, err
	}
	var u *unstructured.Unstructured
	err = c.ask(ctx, func() error {
		u, err = client.Create(ctx, &unstructured.Unstructured{Object: o},
			metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
		return err //nolint:wrapcheck // classified below
	})
	if err != nil {
		return nil, classify(err, "create", ref)
	}
	return u.Object, nil
}

// fieldManager is the name under which Kubernetes records the fields that the relay sets.
const fieldManager = "lockstep-relay"

// Patch applies a JSON merge patch. If the kind has no status subresource, a patch of the status goes to the object.
func (c *Cluster) Patch(ctx context.Context, ref core.Ref, patch core.Object, status bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.client(ctx, ref)
	if err != nil {
		return err
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", ref, err)
	}
	apply := func(subresources ...string) error {
		return c.ask(ctx, func() error {
			_, err := client.Patch(ctx, ref.Name, types.MergePatchType, body,
				metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
			return err //nolint:wrapcheck // looked at and classified below
		})
	}
	if !status {
		return classify(apply(), "patch", ref)
	}
	err = apply("status")
	// The subresource of Rollouts depends on the version of Argo Rollouts.
	if apierrors.IsNotFound(err) {
		err = apply()
	}
	return classify(err, "patch the status of", ref)
}

// AwaitChange watches the one object from the resource version on. Without a watch, or if it ends early, the caller polls, once a second at
// most. Without rights to watch, or behind a proxy that cuts watches off, everything still works, at the pace of polling.
func (c *Cluster) AwaitChange(ctx context.Context, ref core.Ref, resourceVersion string, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	if changed := c.watch(ctx, ref, resourceVersion); !changed {
		_ = clock.Sleep(ctx, c.clock, min(atMost, time.Second)) // an early return at the end of ctx is fine
	}
}

// watch returns when the object has changed, or at the deadline; it reports false if no watch can be established.
func (c *Cluster) watch(ctx context.Context, ref core.Ref, resourceVersion string) (changed bool) {
	client, err := c.client(ctx, ref)
	if err != nil {
		return false
	}
	w, err := client.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + ref.Name, ResourceVersion: resourceVersion,
	})
	if err != nil {
		return false
	}
	defer w.Stop()
	for {
		select {
		// At the deadline the caller reads the object again at once, as after a change.
		case <-ctx.Done():
			return true
		case e, open := <-w.ResultChan():
			if !open {
				return false
			}
			switch e.Type {
			case "ADDED", "MODIFIED", "DELETED":
			default: // an error, such as an expired resource version
				return false
			}
			// Servers that ignore the field selector send every object of the kind, and some send the present state first.
			u, isObject := e.Object.(*unstructured.Unstructured)
			if isObject && u.GetName() == ref.Name && u.GetResourceVersion() != resourceVersion {
				return true
			}
		}
	}
}

// Reachable requests the version of the API server. Any response shows that it is reachable; the error is for people to read.
func (c *Cluster) Reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// No retries: the heartbeat that calls it repeats anyway, and must not be late.
	err := c.raw.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	switch {
	case err == nil, apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return fault.Because(err, fault.Denied, "the cluster does not accept the relay's credentials")
	default:
		return fault.Because(err, fault.Unavailable, "the cluster does not answer: %v", err)
	}
}
