package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// metric is what a collector says of one metric.
type metric struct {
	name, kind, help string
	labels           []string
}

// exposed are the metrics of each service beside those of all.
func exposed() map[string][]prometheus.Collector {
	return map[string][]prometheus.Collector{
		"registry": registry.Exposed(), "domain": domain.Exposed(), "workflow": workflow.Exposed(), "relay": relay.Exposed(nil),
	}
}

// metrics is the page of all metrics, by name, with the services that expose them.
func metrics(string) ([]*page, error) {
	p, err := newPage("metrics.md", "the collectors that the services register")
	if err != nil {
		return nil, err
	}
	all, by := map[string]metric{}, map[string][]string{}
	add := func(service string, collectors []prometheus.Collector) error {
		for _, c := range collectors {
			described, err := describe(c)
			if err != nil {
				return fmt.Errorf("%s: %w", service, err)
			}
			for _, m := range described {
				all[m.name], by[m.name] = m, append(by[m.name], service)
			}
		}
		return nil
	}
	if err := add("all services", telemetry.Metrics()); err != nil {
		return nil, err
	}
	for _, service := range sortedKeys(exposed()) {
		if err := add(service, exposed()[service]); err != nil {
			return nil, err
		}
	}
	for _, name := range sortedKeys(all) {
		m := all[name]
		facts := []string{"Type: " + m.kind, "Exposed by: " + strings.Join(by[name], ", ")}
		if len(m.labels) > 0 {
			facts = append(facts, "Labels: `"+strings.Join(m.labels, "`, `")+"`")
		}
		p.heading(2, name)
		p.list(facts...)
		p.paragraph(prose(m.help))
	}
	return []*page{p}, nil
}

// describe are the metrics of a collector.
func describe(c prometheus.Collector) ([]metric, error) {
	channel := make(chan *prometheus.Desc)
	go func() {
		c.Describe(channel)
		close(channel)
	}()
	var all []metric
	var failed error
	for d := range channel {
		found := description.FindStringSubmatch(d.String())
		if found == nil {
			failed = fmt.Errorf("metric: found %s; expected a name, a help text and labels", d)
			continue
		}
		help, err := strconv.Unquote(found[2])
		if err != nil {
			failed = fmt.Errorf("help text of %s: %w", found[1], err)
			continue
		}
		m := metric{name: found[1], help: help, kind: kindOf(c, found[1])}
		for _, constant := range constantLabel.FindAllStringSubmatch(found[3], -1) {
			m.labels = append(m.labels, constant[1])
		}
		if found[4] != "" {
			m.labels = append(m.labels, strings.Split(found[4], ",")...)
		}
		// A collector may have one metric twice, with different constant labels.
		if i := slices.IndexFunc(all, func(other metric) bool { return other.name == m.name }); i < 0 {
			all = append(all, m)
		}
	}
	return all, failed
}

// description is how the library writes what it knows of a metric; it has no other way to ask.
var (
	description   = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constantLabel = regexp.MustCompile(`(\w+)="`)
)

// kindOf is the type of a metric. A vector and a histogram have their own; of all other collectors, only counters end in _total.
func kindOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.CounterVec:
		return "counter"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}
