package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// headerTimeout bounds how long Prometheus may take to send the header of a scrape.
const headerTimeout = 10 * time.Second

// gauges are the values that Prometheus scrapes.
type gauges struct {
	mu     sync.Mutex
	values map[string]float64
}

// ServeHTTP writes them in the text format of Prometheus.
func (g *gauges) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, name := range slices.Sorted(maps.Keys(g.values)) {
		_, _ = fmt.Fprintf(w, "e2e_value{name=%q} %s\n", name, strconv.FormatFloat(g.values[name], 'g', -1, 64))
	}
}

// startMetrics starts Prometheus, and what it scrapes; nothing without the program.
func (c *Cluster) startMetrics(ctx context.Context) error {
	if c.config.Prometheus == "" {
		return nil
	}
	c.gauges = &gauges{values: map[string]float64{}}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for scrapes: %w", err)
	}
	c.scraped = &http.Server{Handler: c.gauges, ReadHeaderTimeout: headerTimeout}
	go func() { _ = c.scraped.Serve(listener) }()
	// A scrape every 200 ms: a value is queried half a second after it was set.
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs:\n- job_name: e2e\n  static_configs: [{targets: [%q]}]\n",
		listener.Addr())
	if err := os.WriteFile(c.path("prometheus.yaml"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the configuration of Prometheus: %w", err)
	}
	return c.run(ctx, program{
		name: "prometheus", file: c.config.Prometheus, ready: c.healthy(c.Metrics() + "/-/ready"),
		args: []string{
			"--config.file=" + c.path("prometheus.yaml"), "--storage.tsdb.path=" + c.path("prometheus"),
			"--web.listen-address=" + port.Address(c.ports["prometheus"]), "--log.level=warn", "--query.lookback-delta=2s",
		},
	})
}

// Metrics returns the URL of Prometheus; empty without one.
func (c *Cluster) Metrics() string {
	if c.config.Prometheus == "" {
		return ""
	}
	return "http://" + port.Address(c.ports["prometheus"])
}

// SetMetric sets the gauge e2e_value{name="…"}; nil removes it.
func (c *Cluster) SetMetric(name string, value *float64) error {
	if c.gauges == nil {
		return fault.New(fault.Invalid, "metric %q: found no Prometheus, expected --prometheus", name)
	}
	c.gauges.mu.Lock()
	defer c.gauges.mu.Unlock()
	if value == nil {
		delete(c.gauges.values, name)
	} else {
		c.gauges.values[name] = *value
	}
	return nil
}

// stopMetrics ends what Prometheus scrapes.
func (c *Cluster) stopMetrics() {
	if c.scraped == nil {
		return
	}
	if err := c.scraped.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		c.config.Log.Warn("closing the scraped server failed", "error", err)
	}
}
