package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// function has what there is to know of Functions.
func (c commands) function() *cobra.Command {
	e := &Engine{Command: c.Command}
	cmd := command.Noun("function", "", "Functions: what programs of the workflow service can call", e.functions(), e.functionGet())
	cmd.Long = `function calls the gRPC API of the workflow service, as workflow does.`
	flags := cmd.PersistentFlags()
	e.Flags(flags)
	flags.Int64Var(&e.organization, "organization", 0, "`number` of the organization (LOCKSTEP_ORGANIZATION); by default the token's")
	return cmd
}

func (e *Engine) functions() *cobra.Command {
	return e.asking("list", "List the Functions that programs can call, with those of the organization's workers",
		"  lockstep function list", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			found, err := client.ListFunctions(ctx, &autoflowv1.ListFunctionsRequest{OrganizationId: e.organization})
			if err != nil {
				return err
			}
			return e.Print(message{found}, func(w io.Writer) {
				command.Row(w, "NAME", "EFFECT", "WORKERS", "REGISTERED BY", "DOES")
				for _, f := range found.GetFunctions() {
					workers := ""
					if f.GetWorker() {
						workers = strconv.Itoa(int(f.GetWorkers()))
					}
					does, _, _ := strings.Cut(strings.ReplaceAll(f.GetDoc(), "\n", " "), ". ")
					command.Row(w, f.GetName(), effectOf(f), workers, registrar(f), strings.TrimSuffix(does, "."))
				}
			})
		})
}

// effectOf is what a Function does to anything outside, in words.
func effectOf(f *autoflowv1.FunctionInfo) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(f.GetEffect().String(), "FUNCTION_EFFECT_")), "_", " ")
}

func (e *Engine) functionGet() *cobra.Command {
	return e.asking("get NAME", "Show a Function: what it does, its arguments, its answer, and its workers", "  lockstep function get shop.reserve",
		command.Exactly(1), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			found, err := client.ListFunctions(ctx, &autoflowv1.ListFunctionsRequest{OrganizationId: e.organization})
			if err != nil {
				return err
			}
			for _, f := range found.GetFunctions() {
				if f.GetName() == args[0] {
					return e.Print(message{f}, func(w io.Writer) { showFunction(w, f) })
				}
			}
			return fault.New(fault.NotFound, "found no Function %q; lockstep function list shows all of the organization", args[0])
		})
}

// registrar is who registered a Function of workers as it is.
func registrar(f *autoflowv1.FunctionInfo) string {
	if f.GetRegisteredByWorker() == "" {
		return ""
	}
	by := strings.TrimSpace(f.GetRegisteredByWorker() + " " + f.GetRegisteredByVersion())
	if token := f.GetRegisteredBy(); token != "" {
		by += ", with the token " + token
	}
	return text.Line(by)
}

func showFunction(w io.Writer, f *autoflowv1.FunctionInfo) {
	command.Row(w, "NAME", f.GetName())
	command.Row(w, "EFFECT", effectOf(f))
	if f.GetWorker() {
		command.Row(w, "WORKERS", strconv.Itoa(int(f.GetWorkers())))
		if len(f.GetSecrets()) > 0 {
			command.Row(w, "SECRETS", text.Line(strings.Join(f.GetSecrets(), ", ")))
		}
		command.Row(w, "REGISTERED", command.Moment(f.GetRegisteredAt().AsTime()))
		command.Row(w, "BY", registrar(f))
	}
	if doc := strings.TrimSpace(f.GetDoc()); doc != "" {
		fmt.Fprintln(w, "\n"+within(doc))
	}
	for _, schema := range []struct {
		of   string
		text []byte
	}{{"ARGUMENTS", f.GetArgumentsSchema()}, {"ANSWER", f.GetResultSchema()}} {
		var indented bytes.Buffer
		if len(schema.text) > 0 && json.Indent(&indented, schema.text, "", "  ") == nil {
			fmt.Fprintln(w, "\n"+schema.of+" (JSON Schema)\n"+within(indented.String()))
		}
	}
}

// within is text of others over several lines, none of which can be mistaken for one of ours.
func within(others string) string {
	return "  " + strings.ReplaceAll(text.Lines(others), "\n", "\n  ")
}
