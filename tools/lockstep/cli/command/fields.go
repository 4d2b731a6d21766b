package command

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Fields are those of a configuration, as field=value.
type Fields []string

// agentField is the field by which drivers name the relay that reaches a cluster: its number.
const agentField = "cluster_agent_id"

// WithAgent is JSON, with the number of an agent that was given by its name.
func (f Fields) WithAgent(ctx context.Context, api *client.Client) (json.RawMessage, error) {
	named := slices.Clone(f)
	for i, pair := range f {
		field, value, _ := strings.Cut(pair, "=")
		if _, err := strconv.ParseFloat(value, 64); field != agentField || value == "" || err == nil {
			continue
		}
		agent, err := api.Agent(ctx, value)
		if err != nil {
			return nil, err
		}
		named[i] = field + "=" + strconv.FormatInt(agent.Number, 10)
	}
	return named.JSON()
}

// JSON is the configuration. A value that is a number, true, false, a list or an object in JSON is one.
func (f Fields) JSON() (json.RawMessage, error) {
	config := map[string]any{}
	for _, pair := range f {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := config[name]; !ok || name == "" || twice {
			return nil, fault.New(fault.Invalid, "set: found %q; expected field=value, each field once, lists as JSON: 'field=[\"a\",\"b\"]'", pair)
		}
		var literal any
		if err := json.Unmarshal([]byte(value), &literal); err == nil {
			switch literal.(type) {
			case bool, float64, []any, map[string]any:
				config[name] = json.RawMessage(value)
				continue
			}
		}
		config[name] = value
	}
	return json.Marshal(config)
}
