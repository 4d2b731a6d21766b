package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics that every service has for the golden signals: traffic, errors and latency of requests and events. Saturation is in the
// metrics of the database pool (pg.Metrics), the Go runtime and the process. Labels have few values each: no tenant, no path, no id.
//
// They belong to the process, as those of the Go runtime do: a second Health in one process, as in tests, exports the same.
//
//nolint:gochecknoglobals // counters of the process
var (
	requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lockstep_request_duration_seconds", Help: "How long requests took, by protocol, method and status.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"protocol", "method", "status"})
	inFlight = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lockstep_requests_in_flight", Help: "Requests in progress, by protocol.",
	}, []string{"protocol"})
	events = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lockstep_event_duration_seconds", Help: "How long events took to handle, by consumer, type and outcome.",
		Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"consumer", "type", "outcome"})
	eventAge = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lockstep_event_age_seconds", Help: "How old events were when they were handled, by consumer.",
		Buckets: []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 1800, 7200, 86400},
	}, []string{"consumer"})
	authentications = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_authentication_failures_total",
		Help: "Failed authentications, by protocol and outcome: refused, or throttled before the credential was checked.",
	}, []string{"protocol", "outcome"})
	rejected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_events_rejected_total", Help: "Events from the bus that were rejected, by consumer and reason: the invalid part of the event, or failed.",
	}, []string{"consumer", "reason"})
	functions = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lockstep_function_duration_seconds",
		Help:    "How long attempts at Functions took where they were executed, by function and outcome: ok or failed.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	}, []string{"function", "outcome"})
)

// Metrics returns the collectors that every Health exposes, beside those of Go and the process.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{buildInfo(), requests, inFlight, events, eventAge, rejected, authentications, functions}
}

// ObserveFunction counts one attempt at a Function. function is the name of a registered one.
func ObserveFunction(function string, ok bool, took time.Duration) {
	outcome := "failed"
	if ok {
		outcome = "ok"
	}
	functions.WithLabelValues(function, outcome).Observe(took.Seconds())
}

// RejectedEvent counts a rejected event. reason takes few different values.
func RejectedEvent(consumer, reason string) { rejected.WithLabelValues(consumer, reason).Inc() }

// The outcomes of failed authentications.
const (
	OutcomeRefused   = "refused"
	OutcomeThrottled = "throttled"
)

// AuthenticationFailed counts a failed authentication.
func AuthenticationFailed(protocol, outcome string) {
	authentications.WithLabelValues(protocol, outcome).Inc()
}

// The protocols of requests. A stream of events stays open as long as a client listens: its duration is no latency.
const (
	ProtocolHTTP   = "http"
	ProtocolStream = "stream"
	ProtocolGRPC   = "grpc"
)

// RequestStarted counts a request as in progress until end is called.
func RequestStarted(protocol string) (end func()) {
	gauge := inFlight.WithLabelValues(protocol)
	gauge.Inc()
	return gauge.Dec
}

// ObserveRequest counts an answered request. method is GET or POST, or a gRPC method's full name, and status 200 or OK.
func ObserveRequest(protocol, method, status string, took time.Duration) {
	requests.WithLabelValues(protocol, method, status).Observe(took.Seconds())
}

// ObserveEvent counts one attempt to handle an event. age is the time since the event happened; zero or less is not counted.
func ObserveEvent(consumer, eventType, outcome string, took, age time.Duration) {
	events.WithLabelValues(consumer, eventType, outcome).Observe(took.Seconds())
	if age > 0 {
		eventAge.WithLabelValues(consumer).Observe(age.Seconds())
	}
}
