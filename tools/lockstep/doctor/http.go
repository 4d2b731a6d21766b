package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// skewed is how far a clock may be off: signatures of hooks are good for five minutes, and a journal is read by its times.
	skewed = 30 * time.Second
	// expiring is when a certificate is to be renewed at the latest.
	expiring = 21 * 24 * time.Hour
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
)

// api asks the smallest question there is.
func (c Config) api(ctx context.Context) []Finding {
	a, err := c.send(ctx, http.MethodPost, c.Endpoint, `{"query":"{__typename}"}`)
	if err != nil {
		todo := "is the domain service running, and does its ingress or HTTPRoute lead to it? kubectl rollout status deployment/<release>-domain"
		if remedy, is := untrusted(err); is != nil {
			todo = remedy
		}
		return []Finding{wrong("api", err.Error(), todo)}
	}
	findings := c.certificate("certificate of the api", a.tls)
	findings = append(findings, c.skew("clock of the api", a.date)...)
	switch {
	case a.status == http.StatusUnauthorized:
		return append(findings, wrong("api", "the token is refused",
			"set LOCKSTEP_TOKEN to the bootstrap token (the Secret that domain.bootstrapToken names) or to one of your own"))
	case a.status != http.StatusOK || !strings.Contains(a.body, "__typename"):
		return append(findings, wrong("api", fmt.Sprintf("%s answers %d: %s", c.Endpoint, a.status, excerpt(a.body)),
			"the address has to be that of GraphQL: https://<host>/graphql"))
	}
	return append(findings, ok("api", c.Endpoint+" answers, and takes the token"))
}

// health asks a service whether it is ready, and passes on what it says of its parts.
func (c Config) health(ctx context.Context, name, address string) []Finding {
	check := "service " + name
	a, err := c.send(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/readyz", "")
	if err != nil {
		return []Finding{wrong(check, err.Error(), "it does not run, or health_address is not set, or a network policy is in between: see its pods and their logs")}
	}
	var report struct {
		Checks map[string]string `json:"checks"`
	}
	if err := json.Unmarshal([]byte(a.body), &report); err != nil {
		return []Finding{wrong(check, fmt.Sprintf("%s answers %d: %s", address, a.status, excerpt(a.body)),
			"the address has to be that of health_address")}
	}
	findings := c.skew("clock of "+name, a.date)
	if a.status == http.StatusOK {
		return append(append(findings, c.release(check, "is ready", c.versionAt(ctx, address))), c.isolation(ctx, name, address)...)
	}
	for _, part := range slices.Sorted(maps.Keys(report.Checks)) {
		if report.Checks[part] != "ok" {
			findings = append(findings, wrong(check, part+": "+report.Checks[part], remedy(part)))
		}
	}
	return findings
}

// isolationMetric is by which the workflow service says how far the processes are confined in which it runs programs.
const isolationMetric = "lockstep_workflow_sandbox_isolation"

// isolation reads it, where a service has it.
func (c Config) isolation(ctx context.Context, name, address string) []Finding {
	a, err := c.send(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/metrics", "")
	if err != nil || a.status != http.StatusOK {
		return nil
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	if err != nil {
		return nil // it is no metric of ours
	}
	family, has := families[isolationMetric]
	if !has {
		return nil
	}
	check := "sandbox of " + name
	var missing []string
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if m.GetGauge().GetValue() == 0 {
			missing = append(missing, labels["layer"]+": "+labels["missing"])
		}
	}
	if len(missing) == 0 {
		return []Finding{ok(check, "programs have no network, no files and no sight of other processes")}
	}
	slices.Sort(missing)
	return []Finding{warning(check, strings.Join(missing, "; "),
		"run the workflow service on a kernel from 6.12 on with Landlock and seccomp, and let the container's seccomp profile permit both; until then its container is the wall")}
}

// versionAt is what a health server says of its release; empty where it says nothing.
func (c Config) versionAt(ctx context.Context, address string) string {
	a, err := c.send(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/version", "")
	var info struct {
		Version string `json:"version"`
	}
	if err != nil || json.Unmarshal([]byte(a.body), &info) != nil {
		return ""
	}
	return info.Version
}

// release compares a part's version with this command's. A part of another release works, since releases are compatible with their
// neighbours, but a reader of this command's output should know.
func (c Config) release(check, found, version string) Finding {
	if version != "" {
		found += ", version " + version
	}
	if c.Version == "" || version == "" || version == c.Version {
		return ok(check, found)
	}
	return warning(check, found+", and this command is "+c.Version, "finish the upgrade, relays included, or take the command of that release")
}

// remedy is what to do about one of the services' readiness checks.
func remedy(part string) string {
	switch part {
	case "database":
		return "is PostgreSQL up, and is the service's URL right? lockstep doctor --database-url says more"
	case "bus":
		return "is NATS up, and are the service's account and its password right? lockstep doctor --nats-url says more"
	case "cluster":
		return "the relay cannot reach its cluster's API: see its service account, its roles and its network policy"
	default:
		return "see the service's log"
	}
}

// skew compares a clock with ours. What an answer is older by than it took is no more than a second: Date has no fractions.
func (c Config) skew(check, date string) []Finding {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return nil // a server that does not send its time
	}
	return c.compare(check, theirs)
}

func (c Config) compare(check string, theirs time.Time) []Finding {
	off := c.Clock.Now().Sub(theirs).Round(time.Second)
	if off.Abs() <= skewed {
		return []Finding{ok(check, fmt.Sprintf("is within %v of ours", skewed))}
	}
	return []Finding{wrong(check, fmt.Sprintf("differs from ours by %v", off),
		"have both machines set their clocks by NTP: signatures expire, leases and journals go by time")}
}

// answer is what there is to see of a response.
type answer struct {
	status     int
	date, body string
	tls        *tls.ConnectionState
}

func (c Config) send(ctx context.Context, method, address, body string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader([]byte(body)))
	if err != nil {
		return answer{}, fmt.Errorf("address: %w", err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("read answer of %s: %w", address, err)
	}
	return answer{response.StatusCode, response.Header.Get("Date"), string(text), response.TLS}, nil
}

// excerpt is enough of a text to recognize it by.
func excerpt(text string) string {
	const most = 120
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
