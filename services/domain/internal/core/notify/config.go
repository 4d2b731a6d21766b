package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/expression"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The bounds of configurations.
const (
	maxList       = 50
	maxText       = 256
	maxURL        = 1000
	maxConfig     = 16 << 10
	maxRecipients = 20
	maxExpression = 4 << 10
	maxDigest     = 1440
	// DefaultRate is how many messages a channel receives within a minute if nothing else was chosen, and MaxRate the most.
	DefaultRate = 20
	MaxRate     = 60
	// DefaultMembersRate is how many messages all members together receive within a minute, and MaxMembersRate the most: a mail server and a
	// vendor are not flooded by what concerns very many members.
	DefaultMembersRate = 120
	MaxMembersRate     = 1200
)

// channelConfig is the configuration of a channel of any kind: a kind has only some of the members.
type channelConfig struct {
	// URL is where it is: for what is a secret, the beginning of it.
	URL string `json:"url,omitempty"`
	// Account is the name of the credential, of the organization or, configured for the workflow service, of the operator.
	Account string `json:"account,omitempty"`
	// Target is the channel in Slack, Mattermost or Discord that a bot posts to; without it, Account is the URL of an incoming webhook.
	Target string `json:"target,omitempty"`
	// From and To are addresses of e-mail.
	From string   `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
	// Personal is that it reaches members, each at the member's own address, and is no place itself.
	Personal bool `json:"personal,omitempty"`
	// MembersRate is how many messages all members together receive within a minute; 0 for DefaultMembersRate.
	MembersRate int `json:"members_rate,omitempty"`
	// Workspace is the ID of the workspace of Slack in which chat accounts were linked that a personal channel writes to.
	Workspace string `json:"workspace,omitempty"`
	// Sign are the names of credentials that sign requests of a webhook.
	Sign []string `json:"sign,omitempty"`
	// Payload is what a webhook receives; empty for PayloadCloudEvents.
	Payload string `json:"payload,omitempty"`
	// Answers is the name of the organization's credential that the chat server proves presses of buttons with; empty for no buttons.
	Answers string `json:"answers,omitempty"`
	// Commands is the name of the organization's credential that the chat server proves slash commands with; empty for no commands.
	Commands string `json:"commands,omitempty"`
	// Updates is that the workflow of Teams answers the ID of the card that it posts, and updates the card whose ID it receives.
	Updates bool `json:"updates,omitempty"`
	// Subject is where messages are published on a NATS server, and Stored that a stream has to confirm that it has them.
	Subject string `json:"subject,omitempty"`
	Stored  bool   `json:"stored,omitempty"`
	// Details is that what happens to a rollout after the first message is also a reply to it, in its thread.
	Details bool `json:"details,omitempty"`
	// Templates are what the organization has it say.
	Templates templates `json:"templates,omitempty"`
	// origin names this installation in IDs.
	origin string
}

// problems collects what is wrong.
type problems []fault.Field

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortFunc(p, func(a, b fault.Field) int { return strings.Compare(a.Name, b.Name) })
	return fault.InvalidFields(p...)
}

// decode reads an object that has known members only.
func decode(raw json.RawMessage, into any, known []string, where string) error {
	var found problems
	if len(raw) > maxConfig {
		found.add(where, "found %d bytes; expected at most %d", len(raw), maxConfig)
		return found.err()
	}
	if len(raw) == 0 {
		raw = json.RawMessage(`{}`)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		found.add(where, "found no JSON object")
		return found.err()
	}
	for name := range members {
		if !slices.Contains(known, name) {
			found.add(where+"/"+name, "found a setting that does not exist here; expected %s", strings.Join(known, ", "))
		}
	}
	if len(found) > 0 {
		return found.err()
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(into); err != nil {
		if member, problem, ok := core.WrongMember(err); ok {
			found.add(where+"/"+member, "%s", problem)
		} else {
			found.add(where, "found no JSON object")
		}
	}
	return found.err()
}

// membersOf are those of a kind's configuration, with the required ones.
func membersOf(kind core.NotificationKind) (known, required []string, exists bool) {
	for _, k := range Kinds() {
		if k.Kind != kind {
			continue
		}
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		}
		_ = json.Unmarshal(k.Schema, &schema) // it is written above
		for name := range schema.Properties {
			known = append(known, name)
		}
		slices.Sort(known)
		return known, schema.Required, true
	}
	return nil, nil, false
}

var (
	accountForm = regexp.MustCompile(`^[^\s"'\\]{1,255}$`)
	targetForm  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)
	subjectForm = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	// addressForm is the form of an address of e-mail, as the workflow service sends to it.
	addressForm = regexp.MustCompile(`^[^\s@<>,;:"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,190}$`)
)

// membersRate is how many messages all members together receive within a minute.
func (c channelConfig) membersRate() int { return cmp.Or(c.MembersRate, DefaultMembersRate) }

// readChannel reads and checks the configuration of a channel, with the defaults of its kind.
func readChannel(ctx context.Context, kind core.NotificationKind, raw json.RawMessage) (c channelConfig, err error) {
	known, required, exists := membersOf(kind)
	if !exists {
		var all []string
		for _, k := range core.AllNotificationKinds() {
			all = append(all, string(k))
		}
		return c, fault.InvalidFields(fault.Field{
			Name: "/kind", Problem: fmt.Sprintf("found %.100q; expected one of %s", string(kind), strings.Join(all, ", ")),
		})
	}
	if err := decode(raw, &c, known, "/config"); err != nil {
		return c, err
	}
	c.URL = cmp.Or(c.URL, defaultURL(kind, c.Target != "" || c.Personal))
	var found problems
	c.checkPersonal(&found, kind)
	given := map[string]bool{
		"url": c.URL != "", "account": c.Account != "", "from": c.From != "", "to": len(c.To) > 0, "subject": c.Subject != "",
	}
	for _, name := range required {
		if !given[name] {
			found.add("/config/"+name, "found none; a channel of kind %s needs it", kind)
		}
	}
	if c.URL != "" {
		checkURL(&found, kind, c.URL)
	}
	if c.Account != "" && !accountForm.MatchString(c.Account) || strings.Contains(c.Account, "://") {
		found.add("/config/account", "found what is no name of a credential; expected the name under which the organization or an operator has it, "+
			"never the secret itself")
	}
	if c.Target != "" && !targetForm.MatchString(c.Target) {
		found.add("/config/target", "found %.100q; expected the ID of a channel: letters, digits, - and _", c.Target)
	}
	if c.Answers != "" && !accountForm.MatchString(c.Answers) || strings.Contains(c.Answers, "://") {
		found.add("/config/answers", "found what is no name of a credential; expected the name under which the organization has it, never the secret itself")
	}
	if c.Commands != "" && !accountForm.MatchString(c.Commands) || strings.Contains(c.Commands, "://") {
		found.add("/config/commands", "found what is no name of a credential; expected the name under which the organization has it, never the secret itself")
	}
	if c.Details && c.Target == "" {
		found.add("/config/details", "found without target; only a bot that posts to a channel can reply in a thread")
	}
	if c.Subject != "" && (!subjectForm.MatchString(c.Subject) || strings.HasPrefix(c.Subject, "_INBOX")) {
		found.add("/config/subject", "found %.100q; expected parts of letters, digits, - and _ with dots between them, such as cd.notifications", c.Subject)
	}
	checkAddresses(&found, c)
	c.Templates.check(ctx, &found)
	if c.Payload != "" && c.Payload != PayloadCloudEvents && c.Payload != PayloadCDEvents {
		found.add("/config/payload", "found %.100q; expected %s or %s", c.Payload, PayloadCloudEvents, PayloadCDEvents)
	}
	if c.Payload == PayloadCDEvents && len(c.Templates) > 0 {
		found.add("/config/templates", "found with the payload %s, whose events have no texts; expected none, or the payload %s", PayloadCDEvents,
			PayloadCloudEvents)
	}
	if len(c.Sign) > 4 {
		found.add("/config/sign", "found %d; expected at most 4", len(c.Sign))
	}
	for i, name := range c.Sign {
		if !accountForm.MatchString(name) {
			found.add(fmt.Sprintf("/config/sign/%d", i), "found what is no name of a credential")
		}
	}
	return c, found.err()
}

// checkPersonal finds a channel that is both a place and one that reaches members, or neither.
func (c channelConfig) checkPersonal(found *problems, kind core.NotificationKind) {
	switch {
	case !c.Personal && kind == core.NotifyEmail && len(c.To) == 0:
		found.add("/config/to", "found none; a channel of kind email needs it, or personal")
	case c.MembersRate < 0 || c.MembersRate > MaxMembersRate:
		found.add("/config/members_rate", "found %d; expected 1 to %d messages a minute", c.MembersRate, MaxMembersRate)
	case !c.Personal && c.MembersRate != 0:
		found.add("/config/members_rate", "found without personal; a channel that is a place has rate alone")
	case !c.Personal && c.Workspace != "":
		found.add("/config/workspace", "found without personal; only a channel that writes to members has a workspace")
	case c.Personal && (c.Target != "" || len(c.To) > 0 || c.Answers != "" || c.Commands != ""):
		found.add("/config/personal", "found with target, to, answers or commands; a personal channel writes to each member, and has none of them")
	case c.Personal && kind == core.NotifySlack && !targetForm.MatchString(c.Workspace):
		found.add("/config/workspace", "found %.100q; a personal channel needs the ID of its workspace, such as T0123456789", c.Workspace)
	}
}

func checkAddresses(found *problems, c channelConfig) {
	if c.From != "" && !addressForm.MatchString(c.From) {
		found.add("/config/from", "found %.100q; expected an address such as cd@example.com", c.From)
	}
	if len(c.To) > maxRecipients {
		found.add("/config/to", "found %d; expected at most %d: use the address of a list", len(c.To), maxRecipients)
	}
	for i, to := range c.To {
		if !addressForm.MatchString(to) {
			found.add(fmt.Sprintf("/config/to/%d", i), "found %.100q; expected an address such as team@example.com", to)
		}
	}
}

// checkURL finds what is wrong with an address. Which networks it may be in is checked when it is used, by the guarded transport.
func checkURL(found *problems, kind core.NotificationKind, raw string) {
	schemes := []string{"https", "http"}
	switch kind { //nolint:exhaustive // the others are web servers
	case core.NotifyEmail:
		schemes = []string{"smtp", "smtps"}
	case core.NotifyNATS:
		schemes = []string{"tls", "nats"}
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "" || !slices.Contains(schemes, u.Scheme):
		found.add("/config/url", "found what is no such URL; expected %s://host", strings.Join(schemes, "://host or "))
	case len(raw) > maxURL:
		found.add("/config/url", "found %d bytes; expected at most %d", len(raw), maxURL)
	case u.User != nil:
		found.add("/config/url", "found a user in it; expected the name of a credential as account instead")
	case u.Fragment != "":
		found.add("/config/url", "found a fragment; expected none")
	case kind != core.NotifyWebhook && u.RawQuery != "":
		found.add("/config/url", "found a query; expected none: what is secret in a URL belongs into the credential")
	case kind == core.NotifyNATS && strings.Trim(u.Path, "/") != "":
		found.add("/config/url", "found a path; expected tls://host:4222: where messages are published is the subject")
	case strings.Contains(u.Path, "..") || strings.ContainsAny(raw, " \\\t\r\n"):
		found.add("/config/url", "found spaces, \\ or .. in it; expected the URL that is meant")
	}
}

func defaultURL(kind core.NotificationKind, bot bool) string {
	switch kind {
	case core.NotifySlack:
		if bot {
			return "https://slack.com/api/"
		}
		return "https://hooks.slack.com/services/"
	case core.NotifyDiscord:
		if bot {
			return "https://discord.com/api/v10/"
		}
		return "https://discord.com/api/webhooks/"
	case core.NotifyPagerDuty:
		return "https://events.pagerduty.com/v2/enqueue"
	case core.NotifyOpsgenie:
		return "https://api.opsgenie.com/v2/alerts"
	case core.NotifyTeams, core.NotifyMattermost, core.NotifyEmail, core.NotifyWebhook, core.NotifyNATS:
		return ""
	default:
		return ""
	}
}

// RouteConfig says what a route matches, and how it sends.
type RouteConfig struct {
	// Events are moments; empty for all. The other lists are patterns in which * stands for any text, and empty ones match everything.
	Events       []core.NotificationMoment `json:"events,omitempty"`
	Applications []string                  `json:"applications,omitempty"`
	Environments []string                  `json:"environments,omitempty"`
	Tiers        []core.Tier               `json:"tiers,omitempty"`
	Severities   []string                  `json:"severities,omitempty"`
	// Labels are those that the application has to have; none matches everything.
	Labels map[string]string `json:"labels,omitempty"`
	// Expression is in CEL; it decides in addition.
	Expression string `json:"expression,omitempty"`
	// DigestMinutes collects what happens for so long; 0 sends at once.
	DigestMinutes int `json:"digest_minutes,omitempty"`
	// Quiet are hours in which only what is of high severity is sent; the rest waits for their end.
	Quiet *Quiet `json:"quiet,omitempty"`
	// Escalate are the channels that a question is sent to that nobody answers, in their order.
	Escalate []Escalation `json:"escalate,omitempty"`
}

// Quiet are quiet hours of every day.
type Quiet struct {
	From     string `json:"from"`
	To       string `json:"to"`
	TimeZone string `json:"time_zone"`
}

// expressionNames are what an expression of a route refers to.
func expressionNames() []string {
	return []string{"event", "application", "environments", "tiers", "severity", "rollout", "subject", "reason", "principal", "labels"}
}

// readRoute reads and checks the configuration of a route.
func readRoute(raw json.RawMessage) (c RouteConfig, err error) {
	known := []string{"applications", "digest_minutes", "environments", "escalate", "events", "expression", "labels", "quiet", "severities", "tiers"}
	if err := decode(raw, &c, known, "/config"); err != nil {
		return c, err
	}
	var found problems
	c.checkMatch(&found)
	c.checkEscalations(&found)
	c.checkTimes(&found)
	return c, found.err()
}

// byNames is the configuration as it is stored, with the names of environments where its author has written what they are shown as: what is
// stored never follows a display name. Patterns, and expressions, are of names.
func (c RouteConfig) byNames(ctx context.Context, tx core.ShownReads, organization int64) (json.RawMessage, error) {
	names, err := tx.EnvironmentsShownAs(ctx, organization, c.Environments)
	if err != nil {
		return nil, err
	}
	c.Environments = core.ByNames(c.Environments, names)
	config, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the configuration of a route: %w", err)
	}
	return config, nil
}

// checkTimes finds what is wrong with digests and quiet hours.
func (c RouteConfig) checkTimes(found *problems) {
	if c.DigestMinutes < 0 || c.DigestMinutes > maxDigest {
		found.add("/config/digest_minutes", "found %d; expected 0 to %d minutes", c.DigestMinutes, maxDigest)
	}
	if q := c.Quiet; q != nil {
		for field, at := range map[string]string{"from": q.From, "to": q.To} {
			if _, err := clockTime(at); err != nil {
				found.add("/config/quiet/"+field, "found %.100q; expected a time such as 22:00", at)
			}
		}
		if q.From == q.To {
			found.add("/config/quiet/to", "found the beginning; expected another time")
		}
		if _, err := q.location(); err != nil {
			found.add("/config/quiet/time_zone", "found %.100q; expected a time zone such as Europe/Berlin", q.TimeZone)
		}
	}
}

func (c RouteConfig) checkMatch(found *problems) {
	for i, e := range c.Events {
		if !slices.Contains(core.AllNotificationMoments(), e) {
			var all []string
			for _, m := range core.AllNotificationMoments() {
				all = append(all, string(m))
			}
			found.add(fmt.Sprintf("/config/events/%d", i), "found %.100q; expected one of %s", string(e), strings.Join(all, ", "))
		}
	}
	for i, tier := range c.Tiers {
		switch tier {
		case core.TierDevelopment, core.TierQA, core.TierStaging, core.TierProduction:
		default:
			found.add(fmt.Sprintf("/config/tiers/%d", i), "found %.100q; expected development, qa, staging or production", string(tier))
		}
	}
	for i, s := range c.Severities {
		if !slices.Contains([]string{"low", "normal", "high"}, s) {
			found.add(fmt.Sprintf("/config/severities/%d", i), "found %.100q; expected low, normal or high", s)
		}
	}
	for field, patterns := range map[string][]string{"applications": c.Applications, "environments": c.Environments} {
		if len(patterns) > maxList {
			found.add("/config/"+field, "found %d; expected at most %d", len(patterns), maxList)
		}
		for i, p := range patterns {
			if p == "" || len(p) > maxText {
				found.add(fmt.Sprintf("/config/%s/%d", field, i), "found %d bytes; expected 1 to %d", len(p), maxText)
			}
		}
	}
	for _, problem := range core.CheckLabels("/config/labels", c.Labels) {
		found.add(problem.Name, "%s", problem.Problem)
	}
	if c.Expression == "" {
		return
	}
	if len(c.Expression) > maxExpression {
		found.add("/config/expression", "found %d bytes; expected at most %d", len(c.Expression), maxExpression)
		return
	}
	program, err := expression.Compile(c.Expression, expressionNames()...)
	if err == nil {
		err = program.Expect(expression.Bool)
	}
	if err != nil {
		found.add("/config/expression", "%s; it may refer to %s", err, strings.Join(expressionNames(), ", "))
	}
}

// stored is how a message keeps them; nil for none.
func (q *Quiet) stored() json.RawMessage {
	if q == nil {
		return nil
	}
	raw, _ := json.Marshal(q) // of texts
	return raw
}

func clockTime(text string) (time.Time, error) {
	at, err := time.Parse("15:04", text)
	if err != nil {
		return at, fmt.Errorf("read a time of day: %w", err)
	}
	return at, nil
}

func (q Quiet) location() (*time.Location, error) {
	if q.TimeZone == "Local" {
		return nil, fmt.Errorf("found %q", q.TimeZone)
	}
	location, err := time.LoadLocation(cmp.Or(q.TimeZone, "UTC"))
	if err != nil {
		return nil, fmt.Errorf("find the time zone: %w", err)
	}
	return location, nil
}

// until is when the quiet hours end that an instant is in; the zero time if it is in none.
func (q *Quiet) until(now time.Time) time.Time {
	if q == nil {
		return time.Time{}
	}
	location, err := q.location()
	from, errFrom := clockTime(q.From)
	to, errTo := clockTime(q.To)
	if err != nil || errFrom != nil || errTo != nil { // it was checked when it was saved; a time zone may be missing here
		return time.Time{}
	}
	local := now.In(location)
	for back := range 2 { // they may have begun the day before
		y, m, d := local.AddDate(0, 0, -back).Date()
		begin := time.Date(y, m, d, from.Hour(), from.Minute(), 0, 0, location)
		end := time.Date(y, m, d, to.Hour(), to.Minute(), 0, 0, location)
		if !end.After(begin) {
			end = time.Date(y, m, d+1, to.Hour(), to.Minute(), 0, 0, location)
		}
		if !now.Before(begin) && now.Before(end) {
			return end
		}
	}
	return time.Time{}
}
