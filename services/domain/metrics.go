package domain

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/transport"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// exposition is what the metrics of this service are read from.
type exposition struct {
	conn       func() *bus.Conn
	pool       *pgxpool.Pool
	standby    *pg.Standby
	breakGlass func(ctx context.Context) (times int64, last time.Time, err error)
	journal    func(ctx context.Context) (problems int64, oldest time.Time, err error)
	breaches   func(ctx context.Context) (times int64, err error)
	bypasses   func(ctx context.Context) (times int64, err error)
	delivery   *telemetry.Delivery
	streams    *transport.Streams
	// decisions are those of triggers, by outcome.
	decisions func() map[string]int64
	// comparisons are those of manifests that rollouts have waited for, by result.
	comparisons func() map[string]int64
	// drifts are looks for drift, edits those of files that events make, and skips steps that commits have had skipped; each by outcome.
	drifts, edits, skips func() map[string]int64
	// archived is kept here; nil to describe it.
	archived *prometheus.CounterVec
	// notifications counts notifications by outcome.
	notifications func() map[string]int64
	// forges counts statuses of commits by outcome.
	forges func() map[string]int64
	// deployments counts deployments at forges by outcome.
	deployments func() map[string]int64
	// plans counts plans in comments on pull requests by outcome.
	plans func() map[string]int64
	// renderings counts overlays and charts that pull requests change, by outcome.
	renderings func() map[string]int64
	// reported are what became of statuses that forges report, by what.
	reported func() map[string]int64
	// latencies are the reports of programs of checks.
	latencies func() []rollout.CheckLatency
	// feeds are requests for feeds and badges, by outcome.
	feeds func() map[string]int64
	// presses are those of buttons in chats, by what became of them.
	presses func() map[string]int64
	// commands are slash commands in chats, by what became of them.
	commands func() map[string]int64
	// comments are commands in comments on pull requests, and answers what became of writing their answers, by outcome.
	comments, answers func() map[string]int64
	credentials       func(ctx context.Context) (expiring, expired int64, err error)
	backlog           func(ctx context.Context) (waiting int64, oldest time.Duration, err error)
}

// collectors are everything that /metrics exposes beside telemetry.Metrics.
func (e exposition) collectors() []prometheus.Collector {
	return append(bus.Metrics(e.conn), pg.Metrics(e.pool), pg.StandbyMetrics(e.standby), outbox.Metrics(e.pool),
		telemetry.BreakGlass(e.breakGlass), telemetry.Breaches(e.breaches), telemetry.FreezeBypasses(e.bypasses),
		journalMetrics{e.journal}, store.Metrics(e.pool), triggerMetrics{e.decisions}, comparisonMetrics{e.comparisons},
		driftLooks(e.drifts), triggerEdits(e.edits), skippedSteps(e.skips),
		notificationMetrics{e.notifications},
		forgeMetrics{e.forges}, deploymentMetrics{e.deployments}, pullMetrics{e.plans}, renderMetrics{e.renderings}, reportMetrics{e.reported},
		latencyMetrics{e.latencies},
		feedMetrics{e.feeds}, pressMetrics{e.presses}, commandMetrics{e.commands}, commentMetrics{e.comments}, answerMetrics{e.answers},
		credentialMetrics{e.credentials}, backlogMetrics{e.backlog}, cmp.Or(e.archived, archivedRows()),
		e.delivery, e.streams)
}

// Exposed are the collectors of everything that /metrics of this service exposes beside telemetry.Metrics. They read from nothing: they
// can be described, for references and for checks of dashboards and alerts, and not collected.
func Exposed() []prometheus.Collector {
	return exposition{delivery: new(telemetry.Delivery), streams: transport.NewStreams(1)}.collectors()
}

// Metrics are those of Exposed that no other service has.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		store.Metrics(nil), telemetry.BreakGlass(nil), telemetry.Breaches(nil), telemetry.FreezeBypasses(nil),
		journalMetrics{},
		triggerMetrics{},
		comparisonMetrics{},
		driftLooks(nil),
		triggerEdits(nil),
		skippedSteps(nil),
		notificationMetrics{},
		forgeMetrics{},
		deploymentMetrics{},
		pullMetrics{},
		renderMetrics{},
		reportMetrics{},
		latencyMetrics{},
		feedMetrics{},
		pressMetrics{},
		commentMetrics{},
		answerMetrics{},
		credentialMetrics{},
		backlogMetrics{},
		archivedRows(),
		pg.StandbyMetrics(nil),
		transport.NewStreams(1),
	}
}

// triggerMetrics exports what the triggers decided in this process.
type triggerMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (triggerMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- triggerDecisions() }

// Collect implements prometheus.Collector.
func (m triggerMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(triggerDecisions(), prometheus.CounterValue, float64(n), outcome)
	}
}

func triggerDecisions() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_trigger_decisions_total", "What triggers decided in this process, by outcome: began, queued, declined, waiting, done, or "+
		"failed for an error of the service.", []string{"outcome"}, nil)
}

// comparisonMetrics exports what came of comparisons of manifests in this process.
type comparisonMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (comparisonMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- comparisonResults() }

// Collect implements prometheus.Collector.
func (m comparisonMetrics) Collect(ch chan<- prometheus.Metric) {
	for result, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(comparisonResults(), prometheus.CounterValue, float64(n), result)
	}
}

func comparisonResults() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_rollout_comparisons_total", "Comparisons of manifests that rollouts have waited for in this process, by "+
		"result: quick, pipeline, timeout for one that has not answered, or failed for one that could not compare everything.", []string{"result"}, nil)
}

// notificationMetrics exports the outcomes of notifications in this process.
type notificationMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (notificationMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- notificationCounts() }

// Collect implements prometheus.Collector.
func (m notificationMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(notificationCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func notificationCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_notifications_total", "Notifications in this process, by outcome: routed, and of messages sent, retried, "+
		"failed (dead letters), postponed for the rate of their channel, or digested; template_failed, sent with the default; of their links opened, and "+
		"unsigned for want of the keyset; of questions escalated; of messages to members, personal; credentials_failed, that credentials which end soon could not be looked up.",
		[]string{"outcome"}, nil)
}

// backlogMetrics exports how many messages wait.
type backlogMetrics struct {
	read func(ctx context.Context) (waiting int64, oldest time.Duration, err error)
}

// Describe implements prometheus.Collector.
func (backlogMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- waitingMessages()
	ch <- oldestMessage()
}

// Collect implements prometheus.Collector, whose interface has no context.
func (m backlogMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	waiting, oldest, err := m.read(ctx)
	if err != nil {
		return // a database that does not answer shows in other metrics
	}
	ch <- prometheus.MustNewConstMetric(waitingMessages(), prometheus.GaugeValue, float64(waiting))
	ch <- prometheus.MustNewConstMetric(oldestMessage(), prometheus.GaugeValue, oldest.Seconds())
}

func waitingMessages() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_notification_messages_waiting", "Messages of notifications of all organizations that wait to be sent, for a digest, "+
		"quiet hours or another attempt, or are being sent. Every replica reports the same.", nil, nil)
}

func oldestMessage() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_notification_oldest_due_age_seconds", "For how long the oldest message of a notification is due; 0 if none is. Every "+
		"replica reports the same.", nil, nil)
}

// forgeMetrics exports the outcomes of statuses of commits in this process.
type forgeMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (forgeMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- forgeCounts() }

// Collect implements prometheus.Collector.
func (m forgeMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(forgeCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

// pullMetrics exports the outcomes of plans in comments on pull requests in this process.
type pullMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (pullMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- pullCounts() }

// Collect implements prometheus.Collector.
func (m pullMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(pullCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func pullCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_plans_total", "Plans of pull requests in this process, by outcome: sent when the pull request is done with, retried "+
		"or failed after a refusal, limited because the forge accepts no more requests for now, away because it does not answer, or ignored because no hook "+
		"or no application is about it.", []string{"outcome"}, nil)
}

// renderMetrics exports what became of overlays and charts that pull requests change, in this process.
type renderMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (renderMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- renderCounts() }

// Collect implements prometheus.Collector.
func (m renderMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(renderCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func renderCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_renderings_total", "Environments whose overlay or chart a pull request may change, in this process, by outcome: "+
		"rendered before and after it, failed to be, or left out because there were more than are rendered for one pull request, or because of their configuration.", []string{"outcome"}, nil)
}

// commentMetrics exports the outcomes of commands in comments in this process.
type commentMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (commentMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- commentCounts() }

// Collect implements prometheus.Collector.
func (m commentMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(commentCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func commentCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_commands_total", "Commands in comments on pull requests in this process, by outcome: answered, refused by the rules, "+
		"unlinked because nobody has linked the account, linked, repeated, failed for an error of the service, or ignored because no hook or no rollout is about "+
		"it, or one account has sent too many. Unwritten counts answers, besides, that were dropped because as many pull requests wait as may.", []string{"outcome"}, nil)
}

// answerMetrics exports what became of writing answers to commands into comments in this process.
type answerMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (answerMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- answerCounts() }

// Collect implements prometheus.Collector.
func (m answerMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(answerCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func answerCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_answers_total", "Comments with answers to commands in this process, by outcome: sent, retried or failed after a "+
		"refusal, limited because the forge accepts no more requests for now, or away because it does not answer.", []string{"outcome"}, nil)
}

// latencyMetrics exports what the programs of checks have reported to this process, and how long after their runs began.
type latencyMetrics struct{ read func() []rollout.CheckLatency }

// Describe implements prometheus.Collector.
func (latencyMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- checkLatency() }

// Collect implements prometheus.Collector.
func (m latencyMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, l := range m.read() {
		ch <- prometheus.MustNewConstHistogram(checkLatency(), l.Count, l.Sum.Seconds(), l.Within, string(l.Kind), string(l.Phase))
	}
}

func checkLatency() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_check_report_seconds", "How long after the run of a check's program began it has reported what is new, by kind and phase, "+
		"as recorded by this process.", []string{"kind", "phase"}, nil)
}

// reportMetrics exports what became of statuses that forges have reported to this process.
type reportMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (reportMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- reportCounts() }

// Collect implements prometheus.Collector.
func (m reportMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(reportCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func reportCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_reports_total", "What became of statuses of commits that forges have reported to this process, by outcome: taken, old "+
		"because a later one is known, or ignored because no hook may report it.", []string{"outcome"}, nil)
}

// deploymentMetrics exports the outcomes of attempts to publish deployments at forges.
type deploymentMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (deploymentMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- deploymentCounts() }

// Collect implements prometheus.Collector.
func (m deploymentMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(deploymentCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func deploymentCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_deployments_total", "Attempts to publish deployments at forges in this process, by outcome: sent, retried "+
		"or failed after a refusal, limited because the forge accepts no more requests for now, or away because it does not answer.", []string{"outcome"}, nil)
}

func forgeCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_forge_statuses_total", "Attempts to publish statuses of commits in this process, by outcome: sent, retried "+
		"or failed after a refusal, limited because the forge accepts no more requests for now, or away because it does not answer.", []string{"outcome"}, nil)
}

// feedMetrics exports the outcomes of requests for feeds and badges.
type feedMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (feedMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- feedCounts() }

// Collect implements prometheus.Collector.
func (m feedMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(feedCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func feedCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_feed_requests_total", "Requests for feeds and badges in this process, by outcome: served, unknown because no feed or badge has "+
		"this address, or limited because there were too many; unchanged counts those of the served whose reader had the document already.",
		[]string{"outcome"}, nil)
}

// pressMetrics exports the outcomes of presses of buttons in chats.
type pressMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (pressMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- pressCounts() }

// Collect implements prometheus.Collector.
func (m pressMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(pressCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

// commandMetrics exports the outcomes of slash commands in chats.
type commandMetrics struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector.
func (commandMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- commandCounts() }

// Collect implements prometheus.Collector.
func (m commandMetrics) Collect(ch chan<- prometheus.Metric) {
	for outcome, n := range m.read() {
		ch <- prometheus.MustNewConstMetric(commandCounts(), prometheus.CounterValue, float64(n), outcome)
	}
}

func commandCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_chat_commands_total", "Slash commands in chats that this process has received, by outcome: answered, refused, "+
		"unlinked (the chat account is no member's), repeated, failed, unproved (no chat server has proved it).", []string{"outcome"}, nil)
}

func pressCounts() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_chat_presses_total", "Presses of buttons in chats that this process has received, by outcome: answered, refused, "+
		"unlinked (the chat account is no member's), repeated, failed, unproved (no chat server has proved it).", []string{"outcome"}, nil)
}
