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
	at, err := url.Parse(c.endpoint)
	if err != nil || at.Host == "" {
		return fault.New(fault.Invalid, "endpoint: found %q; expected a URL such as https://lockstep.example.com/graphql", c.endpoint)
	}
	bounds := url.Values{}
	for name, bound := range map[string]time.Time{"since": since, "until": until} {
		if !bound.IsZero() {
			bounds.Set(name, bound.UTC().Format(time.RFC3339Nano))
		}
	}
	at = at.JoinPath("..", "journal", "export")
	at.RawQuery = bounds.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fault.New(fault.Invalid, "endpoint %q: %w", c.endpoint, err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return fault.New(fault.Unavailable, "%s does not answer: %w", c.endpoint, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fault.New(classOfOther(response.StatusCode), "%s answered %s: %s", at, response.Status, firstLine(text))
	}
	if _, err := io.Copy(to, response.Body); err != nil {
		return fault.New(fault.Unavailable, "the export was cut off: %w", err)
	}
	return nil
}
