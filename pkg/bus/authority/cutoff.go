package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Permissions are what the user of the system account needs: to take questions, to list connections and to end them.
func Permissions() (publish, subscribe []string) {
	return []string{"$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.*.CONNZ", "$SYS.REQ.SERVER.*.KICK"}, []string{question, inbox + ".>"}
}

const (
	inbox = "_INBOX_authority"
	// listed is how many connections a server lists at a time.
	listed = 1024
	// silence ends the answers of a cluster of servers, of which nobody knows how many there are.
	silence = 500 * time.Millisecond
)

// connectionOf is what a connection is called at the server: whose it is, by which key.
func connectionOf(a Admission) string { return fmt.Sprintf("relay-%d.key-%d", a.Agent, a.Key) }

var connectionName = regexp.MustCompile(`^relay-(\d+)\.key-(\d+)$`)

// connections are a server's, as CONNZ reports them.
type connections struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Data struct {
		Total       int `json:"total"`
		Offset      int `json:"offset"`
		Connections []struct {
			CID            uint64 `json:"cid"`
			AuthorizedUser string `json:"authorized_user"`
		} `json:"connections"`
	} `json:"data"`
}

// connection is one of an agent's.
type connection struct {
	server string
	cid    uint64
	of     Admission
}

// cutOff ends every connection whose key is no longer valid. It compares all open connections, not changes, so keys
// that were revoked while NATS was away, or by a process that died then, are found as well.
func (d Deps) cutOff(ctx context.Context, nc *nats.Conn) error {
	open, err := list(ctx, nc)
	if err != nil {
		return err
	}
	keys := make([]int64, 0, len(open))
	for _, c := range open {
		keys = append(keys, c.of.Key)
	}
	if len(keys) == 0 {
		return nil
	}
	good, err := d.Keys.Good(ctx, keys)
	if err != nil {
		return fmt.Errorf("look the keys of agents up: %w", err)
	}
	for _, c := range open {
		if good[c.of.Key] {
			continue
		}
		if err := kick(ctx, nc, c); err != nil {
			return err
		}
		d.Log.WarnContext(ctx, "agent disconnected: its key is revoked or expired", telemetry.KeyAgent, c.of.Agent, "key", c.of.Key)
	}
	return nil
}

// kick ends a connection. A server that goes away meanwhile takes the connection with it.
func kick(ctx context.Context, nc *nats.Conn, c connection) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	// Servers do nothing that nobody waits for the answer of.
	if _, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER."+c.server+".KICK", fmt.Appendf(nil, `{"cid":%d}`, c.cid)); err != nil {
		return fmt.Errorf("cut agent %d off: %w", c.of.Agent, err)
	}
	return nil
}

// list is every connection of an agent, at every server.
func list(ctx context.Context, nc *nats.Conn) ([]connection, error) {
	to := nc.NewInbox()
	answers, err := nc.SubscribeSync(to)
	if err != nil {
		return nil, fmt.Errorf("listen for connections: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	ask := func(server string, offset int) error {
		text := fmt.Sprintf(`{"auth":true,"limit":%d,"offset":%d}`, listed, offset)
		if err := nc.PublishRequest("$SYS.REQ.SERVER."+server+".CONNZ", to, []byte(text)); err != nil {
			return fmt.Errorf("ask for connections: %w", err)
		}
		return nil
	}
	if err := ask("PING", 0); err != nil {
		return nil, err
	}
	var all []connection
	for {
		quiet, cancel := context.WithTimeout(ctx, silence)
		m, err := answers.NextMsgWithContext(quiet)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listen for connections: %w", err)
		}
		var c connections
		if err := json.Unmarshal(m.Data, &c); err != nil {
			return nil, fmt.Errorf("read connections: %w", err)
		}
		for _, one := range c.Data.Connections {
			if name := connectionName.FindStringSubmatch(one.AuthorizedUser); name != nil {
				agent, _ := strconv.ParseInt(name[1], 10, 64) // digits
				key, _ := strconv.ParseInt(name[2], 10, 64)
				all = append(all, connection{c.Server.ID, one.CID, Admission{agent, key}})
			}
		}
		if next := c.Data.Offset + len(c.Data.Connections); len(c.Data.Connections) > 0 && next < c.Data.Total {
			if err := ask(c.Server.ID, next); err != nil {
				return nil, err
			}
		}
	}
}
