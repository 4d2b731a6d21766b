package workflow

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// programFlags say what a program comes with.
type programFlags struct {
	modules []string
	inputs  string
}

func (p *programFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&p.modules, "module", nil, "a module that the program loads, by the name of its `file`; repeatable")
	cmd.Flags().StringVar(&p.inputs, "inputs", "", "a JSON object whose members are globals of the program, or @`file`")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"star"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// read reads a program and what it comes with; "-" is the standard input.
func (p *programFlags) read(file string) (program []byte, modules map[string][]byte, inputs []byte, err error) {
	if file == "-" {
		program, err = io.ReadAll(os.Stdin)
	} else {
		program, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, nil, nil, fault.New(fault.Invalid, "program: %w", err)
	}
	modules, inputs, err = p.beside()
	return program, modules, inputs, err
}

// beside reads what a program comes with.
func (p *programFlags) beside() (modules map[string][]byte, inputs []byte, err error) {
	modules = map[string][]byte{}
	for _, module := range p.modules {
		if modules[filepath.Base(module)], err = os.ReadFile(module); err != nil {
			return nil, nil, fault.New(fault.Invalid, "module: %w", err)
		}
	}
	inputs = []byte(p.inputs)
	if from, isFile := strings.CutPrefix(p.inputs, "@"); isFile {
		if inputs, err = os.ReadFile(from); err != nil {
			return nil, nil, fault.New(fault.Invalid, "inputs: %w", err)
		}
	}
	return modules, inputs, nil
}

func (e *Engine) check() *cobra.Command {
	var given programFlags
	cmd := e.asking("check PROGRAM", "Check a program, and list what it uses, without running it",
		"  lockstep workflow check nightly.star --module lib.star --inputs @inputs.json", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			program, modules, inputs, err := given.read(args[0])
			if err != nil {
				return err
			}
			found, err := client.CheckProgram(ctx, &autoflowv1.CheckProgramRequest{
				Starlark: program, Modules: modules, Inputs: inputs, OrganizationId: e.organization,
			})
			if err != nil {
				return err
			}
			if err := e.Print(message{found}, func(w io.Writer) { checkTable(w, found) }); err != nil {
				return err
			}
			if n := len(found.GetProblems()); n > 0 {
				return fault.New(fault.Invalid, "%s: problems found: %d, expected none", args[0], n)
			}
			return nil
		})
	given.add(cmd)
	return cmd
}

func checkTable(w io.Writer, found *autoflowv1.CheckProgramResponse) {
	for _, p := range found.GetProblems() {
		command.Row(w, "problem", p.GetField(), p.GetDescription())
	}
	for _, name := range found.GetInputs() {
		command.Row(w, "input", name, "")
	}
	useRows(w, "function", found.GetFunctions())
	useRows(w, "waits for", found.GetWaits())
	useRows(w, "emits", found.GetEmits())
	for _, h := range found.GetHandlers() {
		command.Row(w, "handles", strings.Join(h.GetEventTypes(), ","), h.GetPosition()+" by "+h.GetFunction())
	}
	for _, position := range found.GetDynamic() {
		command.Row(w, "computed", "", position)
	}
}

func useRows(w io.Writer, what string, uses []*autoflowv1.Use) {
	for _, use := range uses {
		command.Row(w, what, use.GetName(), use.GetPosition())
	}
}

func (e *Engine) send() *cobra.Command {
	var messageID string
	cmd := e.asking("send TOKEN [JSON]", "Send a message to a channel of a workflow",
		"  lockstep workflow send ch_ABCDEFGHIJKLMNOPQRSTUVWXYZ '{\"approved\": true}' --id answer-1", command.Between(1, 2),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			if messageID == "" {
				messageID = id.New(e.Clock.Now())
			}
			request := &autoflowv1.SendToChannelRequest{OrganizationId: e.organization, Token: args[0], MessageId: messageID}
			if len(args) == 2 {
				request.Data = []byte(args[1])
			}
			sent, err := client.SendToChannel(ctx, request)
			if err != nil {
				return err
			}
			return e.Print(message{sent}, func(w io.Writer) {
				command.Row(w, "MESSAGE", "DUPLICATE")
				command.Row(w, messageID, strconv.FormatBool(sent.GetDuplicate()))
			})
		})
	cmd.Flags().StringVar(&messageID, "id", "", "the `id` of the message; repeating it is a no-op. By default a new one")
	return cmd
}

func (e *Engine) call() *cobra.Command {
	var requestID, workflow string
	var wait time.Duration
	cmd := e.asking("call [TOKEN] [JSON]", "Send a message to a workflow, and print what its program answers",
		"  lockstep workflow call --to order-7 '{\"item\": \"tea\"}' --id item-1\n  lockstep workflow call ch_ABCDEFGHIJKLMNOPQRSTUVWXYZ '{\"approved\": true}' --wait 10s", command.Between(0, 2),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			if requestID == "" {
				requestID = id.New(e.Clock.Now())
			}
			request := &autoflowv1.CallChannelRequest{
				OrganizationId: e.organization, WorkflowId: workflow, RequestId: requestID, Wait: durationpb.New(wait),
			}
			if workflow == "" {
				if len(args) == 0 {
					return fault.New(fault.Invalid, "found neither a token nor --to ID; expected one of them")
				}
				request.Token, args = args[0], args[1:]
			}
			if len(args) > 1 {
				return fault.New(fault.Invalid, "found a token and --to ID; expected one of them")
			}
			if len(args) == 1 {
				request.Data = []byte(args[0])
			}
			answer, err := client.CallChannel(ctx, request)
			if err != nil {
				return err
			}
			if err := e.Print(message{answer}, func(w io.Writer) {
				command.Row(w, "CALL", "ANSWER", "ERROR")
				command.Row(w, requestID, string(answer.GetValue()), answer.GetError())
			}); err != nil || answer.GetError() == "" {
				return err
			}
			return fault.New(fault.Refused, "the program has answered the call with an error: %s", answer.GetError())
		})
	cmd.Flags().StringVar(&requestID, "id", "", "the `id` of the call; repeating it gets the same answer. By default a new one")
	cmd.Flags().StringVar(&workflow, "to", "", "the `id` of the workflow that is called, in place of a channel's token")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how `long` to wait for the answer, at most 1m")
	return cmd
}

// flow is about programs that events start. It lies under workflow because the flow of an application is another thing.
func (e *Engine) flow() *cobra.Command {
	cmd := command.Noun("flow", "flows", "Flows: programs that events start", e.flowRegister(), e.flowList(), e.flowDelete())
	cmd.GroupID = ""
	return cmd
}

func (e *Engine) flowRegister() *cobra.Command {
	var given programFlags
	var secrets, labels map[string]string
	cmd := e.asking("register NAME PROGRAM", "Register a program that events start, or replace it",
		"  lockstep workflow flow register on-push on_push.star --label team=shop", command.Exactly(2),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			program, modules, inputs, err := given.read(args[1])
			if err != nil {
				return err
			}
			answer, err := client.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{
				OrganizationId: e.organization, Name: args[0], Starlark: program, Modules: modules, Inputs: inputs, Secrets: secrets, Labels: labels,
			})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { flowTable(w, answer.GetFlow()) })
		})
	given.add(cmd)
	cmd.Flags().StringToStringVar(&secrets, "secret", nil, "a secret's `name=reference`")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "a label of every run, as `name=value`")
	return cmd
}

func (e *Engine) flowList() *cobra.Command {
	return e.asking("list", "List flows by name", "  lockstep workflow flow list", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			all, err := pages(0, func(size int32, token string) ([]*autoflowv1.Flow, string, error) {
				page, err := client.ListFlows(ctx, &autoflowv1.ListFlowsRequest{OrganizationId: e.organization, PageSize: size, PageToken: token})
				return page.GetFlows(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) { flowTable(w, all...) })
		})
}

func (e *Engine) flowDelete() *cobra.Command {
	return e.asking("delete NAME", "Delete a flow; the runs that it has started continue", "  lockstep workflow flow delete on-push",
		command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.DeleteFlow(ctx, &autoflowv1.DeleteFlowRequest{OrganizationId: e.organization, Name: args[0]})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { command.Row(w, args[0]+" is gone") })
		})
}

func flowTable(w io.Writer, all ...*autoflowv1.Flow) {
	command.Row(w, "NAME", "VERSION", "HANDLES", "STARTED", "REFUSED", "REGISTERED")
	for _, f := range all {
		handles := make([]string, len(f.GetHandlers()))
		for i, h := range f.GetHandlers() {
			handles[i] = strings.Join(h.GetEventTypes(), "|")
		}
		command.Row(w, f.GetName(), command.Number(int(f.GetVersion())), strings.Join(handles, ","), command.Number(int(f.GetStarted())),
			command.Number(int(f.GetRefused())), command.Moment(f.GetRegisteredAt().AsTime()))
	}
}
