package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Escalation (D62): a question that nobody has answered for some time is sent to another channel. It is a moment that is due then: it is
// stored with the message of the question, once, and routed by any worker at that time, if the question is still open.

const (
	// maxEscalations is how many more channels a question is sent to, and maxEscalation the minutes after which it does at most.
	maxEscalations = 5
	maxEscalation  = 7 * 24 * 60
)

// Escalation says when a question is sent to another channel.
type Escalation struct {
	// AfterMinutes counts from the question.
	AfterMinutes int `json:"after_minutes"`
	// Channel is the name of the channel.
	Channel string `json:"channel"`
}

// checkEscalations finds what is wrong with escalations. That their channels exist is checked where they are known.
func (c RouteConfig) checkEscalations(found *problems) {
	if len(c.Escalate) > maxEscalations {
		found.add("/config/escalate", "found %d; expected at most %d", len(c.Escalate), maxEscalations)
	}
	for i, e := range c.Escalate {
		at := fmt.Sprintf("/config/escalate/%d", i)
		if e.AfterMinutes < 1 || e.AfterMinutes > maxEscalation {
			found.add(at+"/after_minutes", "found %d; expected 1 to %d minutes", e.AfterMinutes, maxEscalation)
		}
		if i > 0 && e.AfterMinutes <= c.Escalate[i-1].AfterMinutes {
			found.add(at+"/after_minutes", "found %d; expected more than the %d before it", e.AfterMinutes, c.Escalate[i-1].AfterMinutes)
		}
		if !nameForm.MatchString(e.Channel) {
			found.add(at+"/channel", "found %.100q; expected the name of a channel", e.Channel)
		}
	}
}

// checkEscalationChannels refuses escalations to channels that do not exist, and to the route's own.
func (c RouteConfig) checkEscalationChannels(own string, channels []core.NotificationChannel) error {
	var found problems
	for i, e := range c.Escalate {
		exists := slices.ContainsFunc(channels, func(one core.NotificationChannel) bool {
			_, personal := isPersonal(one)
			return one.Name == e.Channel && !personal
		})
		if !exists || e.Channel == own {
			found.add(fmt.Sprintf("/config/escalate/%d/channel", i), "found %.100q; expected the name of a channel beside the route's own", e.Channel)
		}
	}
	return found.err()
}

// escalatesTo is whether a route escalates to a channel.
func escalatesTo(r core.NotificationRoute, channel string) bool {
	var config RouteConfig
	return json.Unmarshal(r.Config, &config) == nil &&
		slices.ContainsFunc(config.Escalate, func(e Escalation) bool { return e.Channel == channel })
}

// escalate stores when the question of a moment is sent to other channels, as the route that has sent it says.
func escalate(ctx context.Context, tx Tx, organization int64, n core.Notification, r core.NotificationRoute, now time.Time) error {
	if n.Moment != core.MomentApprovalNeeded && n.Moment != core.MomentCallRequested {
		return nil
	}
	var config RouteConfig
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return fmt.Errorf("read route %q: %w", r.Name, err)
	}
	if len(config.Escalate) == 0 {
		return nil
	}
	open, err := questions(ctx, tx, organization, []core.Notification{n}, now)
	if err != nil || len(open) == 0 { // it was answered before the message was made
		return err
	}
	for step, e := range config.Escalate {
		due := n.At.Add(time.Duration(e.AfterMinutes) * time.Minute)
		moment := core.MomentApprovalUnanswered
		if open[0].GateID == "" {
			moment = core.MomentCallUnanswered
		}
		err := tx.AddNotification(ctx, core.Notification{
			Moment: moment, Cause: escalationCause(r.ID, step, n.ID), At: due, DueAt: due, ApplicationID: n.ApplicationID, RolloutID: n.RolloutID,
			SubjectID: open[0].RequestID, Subject: n.Subject, Reason: n.Reason,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func escalationCause(route int64, step int, notification int64) string {
	return fmt.Sprintf("escalation:%d:%d:%d", route, step, notification)
}

// escalated is the message of an escalation that is due, to the channel that the route names at that time. It reports false if none is to
// be sent: the question is answered, or the route or the channel no longer exists.
func escalated(
	ctx context.Context, tx Tx, organization int64, n core.Notification, routes []core.NotificationRoute, channels []core.NotificationChannel,
	now time.Time,
) (m core.NotificationMessage, sends bool, err error) {
	q := core.Question{RolloutID: n.RolloutID, GateID: n.Subject, RequestID: n.SubjectID}
	if n.Moment == core.MomentCallUnanswered {
		q.GateID = ""
	}
	if open, err := isOpen(ctx, tx, organization, q, now); err != nil || !open {
		return m, false, err
	}
	var route, notification int64
	var step int
	if _, err := fmt.Sscanf(n.Cause, "escalation:%d:%d:%d", &route, &step, &notification); err != nil {
		return m, false, fmt.Errorf("read the cause %q: %w", n.Cause, err)
	}
	i := slices.IndexFunc(routes, func(r core.NotificationRoute) bool { return r.ID == route && r.Enabled })
	if i < 0 {
		return m, false, nil
	}
	var config RouteConfig
	if err := json.Unmarshal(routes[i].Config, &config); err != nil {
		return m, false, fmt.Errorf("read route %q: %w", routes[i].Name, err)
	}
	if step >= len(config.Escalate) {
		return m, false, nil
	}
	to := slices.IndexFunc(channels, func(c core.NotificationChannel) bool { return c.Name == config.Escalate[step].Channel && c.Enabled })
	if to < 0 {
		return m, false, nil
	}
	return core.NotificationMessage{
		ChannelID: channels[to].ID, RouteID: routes[i].ID, RolloutID: n.RolloutID, Key: key(n), DueAt: now, Severity: n.Moment.Severity(),
	}, true, nil
}
