// Package probe is what the measurements of services share: asking the domain's API as a client does, and saying what a
// figure was taken on.
//
// It measures nothing by itself.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// startWithin bounds the start of a service.
const startWithin = 2 * time.Minute

// Folder makes a temporary folder that the account of a database server can enter; the caller removes it.
func Folder() (string, error) {
	dir, err := os.MkdirTemp("", "lockstep-bench-")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the server's account has to get in
		return "", errors.Join(fmt.Errorf("open the folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// API is the domain's GraphQL API.
type API struct {
	// URL is its address, /graphql included, and Token whom it is asked as.
	URL, Token string
}

// Await waits until the API answers.
func (a API) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		_, err := a.Ask(ctx, `{ viewer { principalId } }`, nil)
		if err == nil {
			return nil
		}
		if clock.Sleep(ctx, clock.System(), 50*time.Millisecond) != nil {
			return fmt.Errorf("the service does not answer: %w", err)
		}
	}
}

// Ask sends a document and answers the body. Errors of the API are errors.
func (a API) Ask(ctx context.Context, query string, variables map[string]any) ([]byte, error) {
	answer, err := a.send(ctx, a.URL, "application/json", map[string]any{"query": query, "variables": variables})
	if err == nil && bytes.Contains(answer, []byte(`"errors":[{`)) {
		return nil, fmt.Errorf("answered %.500s", answer)
	}
	return answer, err
}

// Post sends JSON of a media type to a path of the same server, and answers the body.
func (a API) Post(ctx context.Context, path, media string, content any) ([]byte, error) {
	return a.send(ctx, strings.TrimSuffix(a.URL, "/graphql")+path, media, content)
}

func (a API) send(ctx context.Context, to, media string, content any) ([]byte, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Content-Type", media)
	request.Header.Set("Authorization", "Bearer "+a.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("answered %d: %.500s", response.StatusCode, answer)
	}
	return answer, nil
}

// FreeAddress is one that nobody listens on at this moment.
func FreeAddress() (string, error) {
	ports, reservation, err := port.Choose(1)
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer reservation.Release() // nothing else is started beside a measurement
	return port.Address(ports[0]), nil
}

// Percentiles are the middle and the 99th of a hundred, in milliseconds. It sorts in place.
func Percentiles(took []time.Duration) (p50, p99 float64) {
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return Milliseconds(took[len(took)/2]), Milliseconds(took[len(took)*99/100])
}

// Milliseconds is a duration as figures have it.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Load is the machine's load average: a figure without it says little.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
