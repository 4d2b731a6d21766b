package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// ExportOrganization writes everything that is stored of the organization as JSON lines, and answers how many rows there are. A file
// without its last line, or with another digest, is not whole: the error says so.
func (c *Client) ExportOrganization(ctx context.Context, to io.Writer) (rows int, err error) {
	response, err := c.file(ctx, nil, "organization", "export")
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	in, sum, lines := bufio.NewReaderSize(response.Body, 64<<10), sha256.New(), 0
	for {
		line, err := lineOf(in)
		if fault.Is(err, fault.Terminal) {
			return 0, err
		}
		if err != nil && !errors.Is(err, io.EOF) || len(line) == 0 {
			return 0, fault.New(fault.Unavailable, "the export was cut off behind %d lines", lines)
		}
		if _, err := to.Write(line); err != nil {
			return 0, fmt.Errorf("write the export: %w", err)
		}
		if bytes.HasPrefix(line, []byte(`{"end":`)) {
			return lines - 1, exportIsWhole(line, lines-1, hex.EncodeToString(sum.Sum(nil)))
		}
		_, _ = sum.Write(line) // never an error
		lines++
	}
}

// exportIsWhole judges the last line of an export, behind so many rows with that digest.
func exportIsWhole(line []byte, rows int, digest string) error {
	var last struct {
		End struct {
			Rows   int    `json:"rows"`
			SHA256 string `json:"sha256"`
		} `json:"end"`
	}
	if err := json.Unmarshal(line, &last); err != nil || last.End.Rows != rows || last.End.SHA256 != digest {
		return fault.New(fault.Unavailable, "the export is not whole: found %d rows with the digest %s, expected %d with %s",
			rows, digest, last.End.Rows, last.End.SHA256)
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
