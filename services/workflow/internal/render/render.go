package render

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// maxText bounds what is rendered, in bytes. It becomes part of the history of a run.
const maxText = 4 << 20

// task is a request to Compute: one of the two.
type task struct {
	Kustomize *activity.KustomizeRequest `json:",omitempty"`
	Helm      *activity.HelmRequest      `json:",omitempty"`
}

// Renderer has tasks computed in child processes.
type Renderer struct{ do, preview do }

// do has a child call Compute for an organization.
type do func(ctx context.Context, organization int64, task []byte) ([]byte, error)

var _ activity.Renderer = (*Renderer)(nil)

// New makes a Renderer. preview does what do does, for previews.
func New(do, preview func(ctx context.Context, organization int64, task []byte) ([]byte, error)) *Renderer {
	return &Renderer{do, preview}
}

// Kustomize implements activity.Renderer.
func (r *Renderer) Kustomize(ctx context.Context, q activity.KustomizeRequest) (activity.Rendered, error) {
	return r.render(ctx, q.Organization, q.Preview, task{Kustomize: &q})
}

// Helm implements activity.Renderer.
func (r *Renderer) Helm(ctx context.Context, q activity.HelmRequest) (activity.Rendered, error) {
	return r.render(ctx, q.Organization, q.Preview, task{Helm: &q})
}

func (r *Renderer) render(ctx context.Context, organization int64, preview bool, t task) (out activity.Rendered, err error) {
	body, err := json.Marshal(t)
	if err != nil {
		return out, fmt.Errorf("encode a task: %w", err)
	}
	by := r.do
	if preview {
		by = r.preview
	}
	answer, err := by(ctx, organization, body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("decode what was rendered: %w", err)
	}
	if len(out.Text) > maxText { // the child is not believed
		return out, tooMuch(len(out.Text))
	}
	return out, nil
}

func tooMuch(size int) error {
	return fault.New(fault.Refused, "rendered %d bytes, expected at most %d", size, maxText)
}

// nowhere refuses all requests: the libraries would fetch what content refers to.
type nowhere struct{}

// RoundTrip refuses.
func (nowhere) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fault.New(fault.Refused, "found a reference to %s; expected all content to be in the repository", r.URL.Redacted())
}

// Compute carries a task out, in a child process.
func Compute(body []byte) ([]byte, error) {
	// A second lock beside the isolation of the child, which an old kernel may lack: the libraries use the default client, and start git
	// from PATH, which children do not have.
	http.DefaultTransport = nowhere{}
	return compute(body)
}

func compute(body []byte) ([]byte, error) {
	var t task
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("decode a task: %w", err)
	}
	var out activity.Rendered
	var err error
	switch {
	case t.Kustomize != nil:
		out, err = kustomize(*t.Kustomize)
	case t.Helm != nil:
		out, err = helm(*t.Helm)
	default:
		err = fault.New(fault.Invalid, "found no task")
	}
	if err != nil {
		return nil, err
	}
	if len(out.Text) > maxText {
		return nil, tooMuch(len(out.Text))
	}
	answer, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode what was rendered: %w", err)
	}
	return answer, nil
}
