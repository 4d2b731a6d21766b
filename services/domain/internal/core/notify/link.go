package notify

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// A link in a message opens the question that the message asks (D63). It gives no right: who opens it signs in, and answers by the rules
// of the console. It says from which message of which channel a member came, which nobody can make up or repeat: it is sealed with the
// operator's keyset, bound to its organization, message and question, opens once, and not when the question is answered or the link is old.

// Sealer seals what links carry. Its errors are Refused without a keyset, Unavailable while it cannot be read, and Unauthenticated for what
// was not sealed with it for that use.
type Sealer interface {
	Configured() bool
	SealFor(ctx context.Context, use sealing.Use, text string) ([]byte, error)
	OpenFor(ctx context.Context, use sealing.Use, sealed []byte) (string, error)
}

const (
	// LinkPath is the page of the console that opens a link.
	LinkPath = "/answer"
	// linkLife is how long a link is good at most.
	linkLife = 7 * 24 * time.Hour
	// sealTime bounds how long a message waits for the keyset: without it, it has a link that is not signed.
	sealTime = 2 * time.Second
	// maxToken bounds what is read as a token, in bytes.
	maxToken = 2 << 10
)

// linked is what a link carries.
type linked struct {
	Organization int64 `json:"organization"`
	Message      int64 `json:"message"`
	Run          int   `json:"run"`
	core.Question
	// Expires is in seconds since 1970.
	Expires int64 `json:"expires"`
}

// LinkState is what became of a link that was opened.
type LinkState string

// The states.
const (
	// LinkOpened is that it has been opened now.
	LinkOpened LinkState = "opened"
	// LinkUsed is that it had been opened before.
	LinkUsed LinkState = "used"
	// LinkAnswered is that its question is not open any more.
	LinkAnswered LinkState = "answered"
	// LinkExpired is that it is too old.
	LinkExpired LinkState = "expired"
)

// AllLinkStates lists all states.
func AllLinkStates() []LinkState { return []LinkState{LinkOpened, LinkUsed, LinkAnswered, LinkExpired} }

// OpenedLink is a link with what became of it.
type OpenedLink struct {
	State LinkState
	// Opening is who opened it, now or before; without a member where nobody did.
	Opening core.NotificationOpening
}

// signedLink is the link to a question; empty without a keyset, or while the keyset cannot be read.
func (u *UseCases) signedLink(ctx context.Context, organization int64, m core.NotificationMessage, q openQuestion) string {
	if u.url == "" || u.sealer == nil || !u.sealer.Configured() {
		return ""
	}
	expires := u.clock.Now().Add(linkLife)
	if q.until != nil && q.until.Before(expires) {
		expires = *q.until
	}
	text, err := json.Marshal(linked{organization, m.ID, m.Run + 1, q.Question, expires.Unix()})
	if err != nil { // numbers and a text
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, sealTime)
	defer cancel()
	sealed, err := u.sealer.SealFor(ctx, sealing.UseLink, string(text))
	if err != nil {
		u.counts.unsigned.Add(1)
		return ""
	}
	// Behind a #, which browsers send nowhere: it is in no log of a proxy.
	return strings.TrimSuffix(u.url, "/") + LinkPath + "#" + base64.RawURLEncoding.EncodeToString(sealed)
}

// OpenLink opens the link of a message for a member who has signed in. It decides nothing. It is Refused for what no message had, or one of
// another organization.
func (u *UseCases) OpenLink(ctx context.Context, a core.Actor, token string) (OpenedLink, error) {
	var opened OpenedLink
	if err := a.May(core.ActionOpenLink); err != nil {
		return opened, err
	}
	l, err := u.readLink(ctx, a, token)
	if err != nil {
		return opened, err
	}
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		now := u.clock.Now()
		opened = OpenedLink{State: LinkExpired, Opening: core.NotificationOpening{MessageID: l.Message, Run: l.Run, Question: l.Question}}
		if now.Unix() >= l.Expires {
			return nil
		}
		if _, err := tx.LockMessage(ctx, l.Message); fault.Is(err, fault.NotFound) {
			return nil // messages are kept longer than links are good; one that is gone ends its link
		} else if err != nil {
			return err
		}
		open, err := isOpen(ctx, tx, a.Organization, l.Question, now)
		if err != nil {
			return err
		}
		if !open {
			opened.State = LinkAnswered
			return nil
		}
		opened.Opening.MemberID, opened.Opening.Member, opened.Opening.OpenedAt = a.ID, a.DisplayName(), now
		var first bool
		opened.Opening, first, err = tx.OpenNotificationLink(ctx, opened.Opening)
		opened.State = map[bool]LinkState{true: LinkOpened, false: LinkUsed}[first]
		return err
	})
	if err == nil && opened.State == LinkOpened {
		u.counts.opened.Add(1)
	}
	return opened, err
}

// readLink reads a token.
func (u *UseCases) readLink(ctx context.Context, a core.Actor, token string) (l linked, err error) {
	unknown := fault.New(fault.Refused, "the link is in no message of this installation, or was changed; open it from the message again")
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(token) > maxToken {
		return l, unknown
	}
	if u.sealer == nil || !u.sealer.Configured() {
		return l, fault.New(fault.Refused, "links of messages are not signed here any more; look for the question on the page Waiting for me")
	}
	text, err := u.sealer.OpenFor(ctx, sealing.UseLink, sealed)
	if fault.Is(err, fault.Unauthenticated) {
		return l, unknown
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("read a link: %w", err)
	}
	if l.Organization != a.Organization {
		return l, fault.New(fault.Refused, "the link is of a message of another organization; sign in there, and open it again")
	}
	return l, nil
}

// openQuestion is a question that nobody has answered finally.
type openQuestion struct {
	core.Question
	// what names it for people, and until is when it closes by itself; nil for never.
	what  string
	until *time.Time
}

// isOpen is whether a question can be answered.
func isOpen(ctx context.Context, tx Tx, organization int64, q core.Question, now time.Time) (bool, error) {
	if q.GateID == "" {
		calls, err := tx.CallRequestsByID(ctx, organization, []int64{q.RequestID})
		return calls[q.RequestID].StateAt(now) == core.CallPending, err
	}
	gates, err := tx.OpenGates(ctx, organization, []int64{q.RolloutID})
	for _, g := range gates[q.RolloutID] {
		if g.GateID == q.GateID && g.RequestID == q.RequestID {
			return true, err
		}
	}
	return false, err
}

// questions are the open ones among those that moments asked, oldest first.
func questions(ctx context.Context, tx Tx, organization int64, all []core.Notification, now time.Time) ([]openQuestion, error) {
	var rollouts, requests []int64
	for _, n := range all {
		switch n.Moment { //nolint:exhaustive // the others ask nothing
		case core.MomentApprovalNeeded, core.MomentApprovalUnanswered:
			rollouts = append(rollouts, n.RolloutID)
		case core.MomentCallRequested, core.MomentCallUnanswered:
			requests = append(requests, n.SubjectID)
		}
	}
	var open []openQuestion
	if len(rollouts) > 0 {
		gates, err := tx.OpenGates(ctx, organization, core.Distinct(rollouts))
		if err != nil {
			return nil, err
		}
		for _, n := range all {
			for _, g := range gates[n.RolloutID] {
				if (n.Moment == core.MomentApprovalNeeded || n.Moment == core.MomentApprovalUnanswered) && g.GateID == n.Subject {
					q := core.Question{RolloutID: n.RolloutID, GateID: g.GateID, RequestID: g.RequestID}
					open = append(open, openQuestion{q, g.GateID, g.ExpiresAt()})
				}
			}
		}
	}
	if len(requests) > 0 {
		calls, err := tx.CallRequestsByID(ctx, organization, core.Distinct(requests))
		if err != nil {
			return nil, err
		}
		for _, n := range all {
			c, known := calls[n.SubjectID]
			if known && (n.Moment == core.MomentCallRequested || n.Moment == core.MomentCallUnanswered) && c.StateAt(now) == core.CallPending {
				open = append(open, openQuestion{core.Question{RolloutID: c.RolloutID, RequestID: c.ID}, c.Function, c.ExpiresAt})
			}
		}
	}
	return distinct(open), nil
}

// distinct are questions, each once: a gate that asked twice is in two moments.
func distinct(all []openQuestion) []openQuestion {
	seen := map[core.Question]bool{}
	var once []openQuestion
	for _, q := range all {
		if !seen[q.Question] {
			seen[q.Question] = true
			once = append(once, q)
		}
	}
	return once
}
