package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

var _ core.Objects = (*Cluster)(nil)

// Resource looks up a kind.
func (c *Cluster) Resource(ctx context.Context, k core.Kind) (core.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.resolve(ctx, k)
	if err != nil {
		return core.Resource{}, err
	}
	return core.Resource{Kind: k, Name: r.gvr.GroupResource().String(), Namespaced: r.namespaced}, nil
}

// Resources looks up all kinds at the API server. Groups whose server is away are left out: their objects could not be deleted now either.
func (c *Cluster) Resources(ctx context.Context) ([]core.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var all []core.Resource
	lists, err := discovery.NewDiscoveryClient(c.raw).ServerPreferredResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, classify(err, "look up", core.Ref{Kind: core.Kind{Kind: "kinds"}, Name: "of the cluster"})
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			all = append(all, core.Resource{
				Kind: core.Kind{APIVersion: list.GroupVersion, Kind: r.Kind},
				Name: gv.WithResource(r.Name).GroupResource().String(), Namespaced: r.Namespaced,
			})
		}
	}
	return all, nil
}

const (
	// pageSize is how many objects one request of Pages reads.
	pageSize = 500
	// mostPages is how many pages it reads: as many objects of one owner would be a mistake, or the server's list has no end.
	mostPages = 200
)

// Pages reads all objects of a selection. The API server knows for minutes only where a page ends.
func (c *Cluster) Pages(ctx context.Context, s core.Selection, page func([]core.Object)) error {
	from := ""
	for range mostPages {
		all, next, err := c.page(ctx, s, pageSize, from)
		if err != nil {
			return err
		}
		page(all)
		if next == "" {
			return nil
		}
		if next == from {
			return &core.Error{Code: core.CodeInternal, Message: fmt.Sprintf(
				"list %s: the server of this kind answers the same page without an end", s.Kind.Kind)}
		}
		from = next
	}
	return &core.Error{Code: core.CodeTooLarge, Message: fmt.Sprintf("list %s: found more than %d pages of %d objects, expected fewer",
		s.Kind.Kind, mostPages, pageSize)}
}

// Apply sends a server-side apply.
func (c *Cluster) Apply(ctx context.Context, ref core.Ref, o core.Object, manager string, dryRun bool) (core.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.client(ctx, ref)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ref, err)
	}
	options := metav1.PatchOptions{FieldManager: manager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var u *unstructured.Unstructured
	err = c.ask(ctx, func() error {
		u, err = client.Patch(ctx, ref.Name, types.ApplyPatchType, body, options)
		return err //nolint:wrapcheck // classified below
	})
	if err != nil {
		if conflict := fieldConflict(err, ref); conflict != nil {
			return nil, conflict
		}
		return nil, classify(err, "apply", ref)
	}
	return u.Object, nil
}

// fieldConflict is the error for fields that belong to other managers; nil for any other error.
func fieldConflict(err error, ref core.Ref) error {
	var refused apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &refused) || refused.Status().Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range refused.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, fmt.Sprintf("%s (%s)", cause.Field, cause.Message))
		}
	}
	const shown = 10
	switch {
	case len(fields) == 0:
		return nil
	case len(fields) > shown:
		fields = append(fields[:shown], fmt.Sprintf("and %d more", len(fields)-shown))
	}
	return &core.Error{Code: core.CodeConflict, Message: fmt.Sprintf(
		"%s: fields are managed by others: %s; leave them out of the manifests, or have the other manager give them up", ref,
		strings.Join(fields, ", "))}
}

// Delete deletes an object as it was seen.
func (c *Cluster) Delete(ctx context.Context, ref core.Ref, seen core.Seen, propagation string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.client(ctx, ref)
	if err != nil {
		return err
	}
	policy := map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground,
		"orphan": metav1.DeletePropagationOrphan,
	}[propagation]
	same := types.UID(seen.UID)
	conditions := metav1.Preconditions{UID: &same}
	if seen.Version != "" {
		conditions.ResourceVersion = &seen.Version
	}
	err = c.ask(ctx, func() error {
		return client.Delete(ctx, ref.Name, metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &conditions})
	})
	return classify(err, "delete", ref)
}

// maxLogRead is where reading a log ends, in bytes.
const maxLogRead = 16 << 20

// Logs reads the end of a log: at most one byte more than is wanted, which shows that there is more.
func (c *Cluster) Logs(ctx context.Context, l core.LogRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ref := core.Ref{Kind: core.Kind{APIVersion: "v1", Kind: "Pod"}, Namespace: l.Namespace, Name: l.Pod}
	request := c.raw.Get().AbsPath("/api/v1/namespaces", l.Namespace, "pods", l.Pod, "log").Param("tailLines", strconv.FormatInt(l.Lines, 10))
	if l.Container != "" {
		request = request.Param("container", l.Container)
	}
	if l.Seconds > 0 {
		request = request.Param("sinceSeconds", strconv.FormatInt(l.Seconds, 10))
	}
	if l.Previous {
		request = request.Param("previous", "true")
	}
	stream, err := request.Stream(ctx)
	if err != nil {
		return "", classify(err, "read the log of", ref)
	}
	defer func() { _ = stream.Close() }()
	// A limit in the request would cut off the end.
	var end []byte
	buffer := make([]byte, 32<<10)
	for read := 0; read < maxLogRead; {
		n, err := stream.Read(buffer)
		read += n
		end = append(end, buffer[:n]...)
		if over := len(end) - int(l.Bytes) - 1; over > 0 {
			end = slices.Delete(end, 0, over)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fault.Because(err, fault.Unavailable, "the log of %s: the cluster does not answer", ref)
		}
	}
	return string(end), nil
}

// Health is the state of an object by kstatus.
func (*Cluster) Health(o core.Object) (state, reason string) {
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: o})
	if err != nil {
		return string(kstatus.UnknownStatus), err.Error()
	}
	return string(result.Status), result.Message
}
