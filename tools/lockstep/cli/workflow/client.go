package workflow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Engine is what the commands about AutoFlow share.
type Engine struct {
	*command.Command
	address       string
	ca, cert, key string
	organization  int64
}

// asking is a subcommand that asks AutoFlow.
func (e *Engine) asking(use, short, example string, args cobra.PositionalArgs,
	run func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: args, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.CheckOutput(); err != nil {
				return err
			}
			return e.Ask(func(client autoflowv1.AutoFlowClient) error { return run(cmd.Context(), client, args) })
		},
	}
}

// Ask connects to the configured workflow service for as long as run lasts.
func (e *Engine) Ask(run func(autoflowv1.AutoFlowClient) error) error {
	config, err := e.config()
	if err != nil {
		return err
	}
	conn, err := rpc.Dial(config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return unanswered(config, run(autoflowv1.NewAutoFlowClient(conn)))
}

// Flags say where AutoFlow is, and who asks it.
func (e *Engine) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&e.address, "grpc", "", "`address` of the workflow service (LOCKSTEP_GRPC)")
	flags.StringVar(&e.ca, "grpc-ca", "", "`file` with the certificate authority of the workflow service; by default the system's")
	flags.StringVar(&e.cert, "grpc-cert", "", "`file` with the client certificate, if the workflow service requires one")
	flags.StringVar(&e.key, "grpc-key", "", "`file` with the key of the client certificate")
}

// IsNamed reports whether the caller has said where AutoFlow is.
func (e *Engine) IsNamed() bool {
	return e.address != "" || e.EndpointsFile != "" || e.Getenv("LOCKSTEP_GRPC") != ""
}

// unanswered adds to the error of a command the address that did not answer, and the reason. The user of a terminal may know both,
// unlike the clients of a server.
func unanswered(config rpc.ClientConfig, err error) error {
	var cause interface{ GRPCStatus() *status.Status }
	if !fault.Is(err, fault.Unavailable) || !errors.As(err, &cause) || cause.GRPCStatus().Code() != codes.Unavailable {
		return err
	}
	over := "TLS (grpc:// is for plain text)"
	if config.Insecure {
		over = "plain text (grpcs:// is for TLS)"
	}
	return fault.Because(err, fault.Unavailable, "%s; asked at %s over %s: %s", err, config.Address, over, cause.GRPCStatus().Message())
}

// config is where AutoFlow is, and who we are to it.
func (e *Engine) config() (rpc.ClientConfig, error) {
	config := rpc.ClientConfig{Token: e.Token, CAFile: e.ca, CertFile: e.cert, KeyFile: e.key}
	address := e.address
	if address == "" && e.EndpointsFile == "" {
		address = e.Getenv("LOCKSTEP_GRPC")
	}
	if address == "" && e.EndpointsFile != "" {
		endpoints, err := stack.ReadEndpoints(e.EndpointsFile)
		if err != nil {
			return config, fault.New(fault.Invalid, "%w", err)
		}
		address = "grpc://" + endpoints.GRPC
		if config.Token == "" {
			config.Token = endpoints.Token
		}
	}
	if address == "" {
		return config, fault.New(fault.Invalid, "missing address of the workflow service; expected --grpc ADDRESS, LOCKSTEP_GRPC or --endpoints-file FILE")
	}
	if config.Token == "" {
		config.Token = e.Getenv("LOCKSTEP_TOKEN")
	}
	if e.organization == 0 {
		if text := e.Getenv("LOCKSTEP_ORGANIZATION"); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return config, fault.New(fault.Invalid, "LOCKSTEP_ORGANIZATION: found %q, expected a number", text)
			}
			e.organization = n
		} else if e.address == "" && e.EndpointsFile != "" {
			e.organization = 1 // a local stack has one organization, and its token is for any
		}
	}
	scheme, host, found := strings.Cut(address, "://")
	if !found {
		scheme, host = "grpcs", address
	}
	if scheme != "grpc" && scheme != "grpcs" {
		return config, fault.New(fault.Invalid, "grpc: found %q, expected host:port, grpcs://host:port or grpc://host:port", address)
	}
	config.Address, config.Insecure = host, scheme == "grpc"
	return config, nil
}

// pages follows the pages of a list to its end, or to limit items when that is above zero.
func pages[T any](limit int, page func(size int32, token string) ([]T, string, error)) ([]T, error) {
	all := []T{}
	for token := ""; ; {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-len(all))
		}
		items, next, err := page(int32(size), token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if token = next; token == "" || (limit > 0 && len(all) >= limit) {
			return all, nil
		}
	}
}

// pageSize is how many items are asked for at once.
const pageSize = 100

// message prints a message in the JSON mapping of protocol buffers, every field of it.
type message struct{ proto.Message }

// MarshalJSON is the mapping; the encoder around it sets the spaces, which protojson varies on purpose.
func (m message) MarshalJSON() ([]byte, error) {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m.Message)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return text, nil
}

func messages[T proto.Message](all []T) []message {
	list := make([]message, len(all))
	for i, m := range all {
		list[i] = message{m}
	}
	return list
}

const statePrefix = "WORKFLOW_STATE_"

func stateName(s autoflowv1.WorkflowState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), statePrefix))
}

// parseState is the state of a name; AutoFlow refuses what is none.
func parseState(name string) autoflowv1.WorkflowState {
	return autoflowv1.WorkflowState(autoflowv1.WorkflowState_value[statePrefix+strings.ToUpper(name)])
}

func stateNames() (names []string) {
	for n := range len(autoflowv1.WorkflowState_name) + 1 {
		if _, known := autoflowv1.WorkflowState_name[int32(n)]; known && n > 0 {
			names = append(names, stateName(autoflowv1.WorkflowState(n)))
		}
	}
	return names
}

// firstLineOf is what a cell of a table has room for.
func firstLineOf(text string) string {
	const most = 120
	line, rest, _ := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	if rest != "" {
		return line + " …"
	}
	return line
}
