// Package authority lets the control plane decide who may connect to NATS as an agent. It answers the server's authentication
// requests (auth callout, NATS ADR-26) with the permissions of that agent alone, and closes connections whose keys have been revoked
// or have expired. Which keys are valid is for its caller to know.
//
// It connects as a user of the system account. The users of the services are part of the server's configuration, so they can connect
// even while this package does not answer; agents that are connected stay connected.
package authority

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Admission is the agent that a key belongs to, and the key.
type Admission struct {
	Agent, Key int64
}

// Keys knows which keys are good. Both are asked anew each time: what was revoked counts at once.
type Keys interface {
	// Admit is whose public key it is; NotFound when it is nobody's, or no longer valid.
	Admit(ctx context.Context, public string) (Admission, error)
	// Good are those of the keys that are good, all of which are in use.
	Good(ctx context.Context, keys []int64) (map[int64]bool, error)
}

// Deps is what Run needs.
type Deps struct {
	// URL and TLS are as in bus.Config.
	URL string
	TLS certs.Files
	// Identity signs the answers, and logs in.
	Identity Identity
	Keys     Keys
	// Changed gets a value whenever a key may have ended.
	Changed <-chan struct{}
	Clock   clock.Clock
	Log     *slog.Logger
}

const (
	question = "$SYS.REQ.USER.AUTH"
	queue    = "authority"
	// answerWithin is less than the time that servers leave a client to log in.
	answerWithin = 1500 * time.Millisecond
	// account is where agents and services meet: the one that servers have by themselves.
	account = "$G"
	// atOnce is how many questions are being answered at a time: after a restart of NATS all agents come together.
	atOnce = 16
	// lookEvery is how soon a key that has ended by time, or somewhere else, is found in use.
	lookEvery     = 15 * time.Second
	reconnectWait = 500 * time.Millisecond
	// requestLife is how long an agent may answer a request that it was sent.
	requestLife = 2 * time.Minute
)

// Run answers and cuts off until ctx ends. Any number of processes may: the server asks one of them.
func Run(ctx context.Context, d Deps) error {
	options := []nats.Option{
		nats.Name("authority"), nats.CustomInboxPrefix(inbox), d.Identity.login(), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			d.Log.WarnContext(ctx, "nats error", telemetry.KeyPart, queue, telemetry.KeyError, err)
		}),
	}
	secure, err := bus.TLSOptions(d.TLS, d.Log)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(d.URL, append(options, secure...)...)
	if err != nil {
		return fault.Because(err, fault.Unavailable, "nats at %s cannot be reached", d.URL)
	}
	defer nc.Close()
	places := make(chan struct{}, atOnce)
	_, err = nc.QueueSubscribe(question, queue, func(m *nats.Msg) {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			d.answer(ctx, m)
		}()
	})
	if err != nil {
		return fmt.Errorf("take questions about agents: %w", err)
	}
	for {
		if nc.Status() == nats.CONNECTED {
			if err := d.cutOff(ctx, nc); err != nil && ctx.Err() == nil {
				d.Log.WarnContext(ctx, "listing agent connections failed; will retry", telemetry.KeyError, err)
			}
		}
		timer := d.Clock.NewTimer(lookEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-d.Changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// answer answers one authorization request. What is wrong is logged; the caller learns only that access is denied.
func (d Deps) answer(ctx context.Context, m *nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	asked, err := jwt.DecodeAuthorizationRequestClaims(string(m.Data))
	if err != nil {
		d.Log.WarnContext(ctx, "malformed authorization request", telemetry.KeyError, err)
		return
	}
	user, admitted, err := d.decide(ctx, asked)
	reply := jwt.NewAuthorizationResponseClaims(asked.UserNkey)
	reply.Audience = asked.Server.ID
	if reply.Jwt = user; err != nil {
		reply.Error = "not let in"
		level := slog.LevelWarn
		if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unauthenticated) {
			level = slog.LevelError
		}
		d.Log.Log(ctx, level, "agent refused", slog.String("host", asked.ClientInformation.Host), slog.Any(telemetry.KeyError, err))
	} else {
		d.Log.InfoContext(ctx, "agent connected", telemetry.KeyAgent, admitted.Agent, "key", admitted.Key, "host", asked.ClientInformation.Host)
	}
	text, err := reply.Encode(d.Identity.issuer)
	if err == nil {
		err = m.Respond([]byte(text))
	}
	if err != nil {
		d.Log.ErrorContext(ctx, "answering an authorization request failed", telemetry.KeyError, err)
	}
}

// decide returns the signed user that a client may be. The signature over the server's nonce shows that it has the key; the
// server asks because it has not checked that itself.
func (d Deps) decide(ctx context.Context, asked *jwt.AuthorizationRequestClaims) (string, Admission, error) {
	public := asked.ConnectOptions.Nkey
	if public == "" {
		return "", Admission{}, fault.New(fault.Unauthenticated, "found no key; expected that of a registered agent")
	}
	if err := verify(public, asked.ClientInformation.Nonce, asked.ConnectOptions.SignedNonce); err != nil {
		return "", Admission{}, fault.Because(err, fault.Unauthenticated, "the key %s is not the caller's: %v", public, err)
	}
	of, err := d.Keys.Admit(ctx, public)
	if err != nil {
		return "", Admission{}, err
	}
	user := jwt.NewUserClaims(asked.UserNkey)
	user.Name, user.Audience = connectionOf(of), account
	publish, subscribe := bus.Permissions(bus.RelayUser(of.Agent))
	user.Pub.Allow.Add(publish...)
	user.Sub.Allow.Add(subscribe...)
	user.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: requestLife}
	signed, err := user.Encode(d.Identity.issuer)
	if err != nil {
		return "", Admission{}, fmt.Errorf("sign the permissions of agent %d: %w", of.Agent, err)
	}
	return signed, of, nil
}

func verify(public, nonce, signature string) error {
	key, err := nkeys.FromPublicKey(public)
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	signed, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		return fmt.Errorf("read the signature: %w", err)
	}
	if nonce == "" {
		return errors.New("there is nothing signed")
	}
	if err := key.Verify([]byte(nonce), signed); err != nil {
		return fmt.Errorf("check the signature: %w", err)
	}
	return nil
}
