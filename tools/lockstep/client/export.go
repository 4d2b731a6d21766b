package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// ExportJournal writes the sealed journals of the organization with rows between two instants to a file; a zero instant is no bound. The
// file is whole only once the last line, its signature, was written: verify it with package proof.
func (c *Client) ExportJournal(ctx context.Context, since, until time.Time, to io.Writer) error {
	bounds := url.Values{}
	for name, bound := range map[string]time.Time{"since": since, "until": until} {
		if !bound.IsZero() {
			bounds.Set(name, bound.UTC().Format(time.RFC3339Nano))
		}
	}
	response, err := c.file(ctx, bounds, "journal", "export")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(to, response.Body); err != nil {
		return fault.New(fault.Unavailable, "the export was cut off: %w", err)
	}
	return nil
}

// file asks for a file beside the endpoint. An answer that is no error has a body to close.
func (c *Client) file(ctx context.Context, parameters url.Values, path ...string) (*http.Response, error) {
	at, err := url.Parse(c.endpoint)
	if err != nil || at.Host == "" {
		return nil, fault.New(fault.Invalid, "endpoint: found %q; expected a URL such as https://lockstep.example.com/graphql", c.endpoint)
	}
	at = at.JoinPath(append([]string{".."}, path...)...)
	at.RawQuery = parameters.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fault.New(fault.Invalid, "endpoint %q: %w", c.endpoint, err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "%s does not answer: %w", c.endpoint, err)
	}
	if response.StatusCode != http.StatusOK {
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return nil, fault.New(classOfOther(response.StatusCode), "%s answered %s: %s", at, response.Status, firstLine(text))
	}
	return response, nil
}
