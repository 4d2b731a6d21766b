package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/text"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// hostile is what a server that means harm has in every text of its answers: it clears the screen, writes over the line before, turns
// the order of writing, and would begin rows and cells of its own.
const hostile = "x\x1b[2J\x1b[1A\u009b31m\u202e\r\nfake\trow\x00\x07\U000e0041"

// shown is the beginning of it on a terminal.
const shown = `x\u001b[2J`

// askedOfTheHostile is how each command that prints what servers say is called; HOSTILE stands for that text, and for a file.
func askedOfTheHostile() []string {
	return []string{
		"application list", "application get HOSTILE", "application create a --service api=r.test/a", "application archive a",
		"policy installation",
		"application set a --label k=v --owner HOSTILE", "service set a HOSTILE --link HOSTILE=https://e.test",
		"application restore a", "application rename a HOSTILE",
		"application rollback-policy a", "application rollout-policy a", "application metrics a",
		"source list", "source kinds", "source hooks", "source add a api --kind HOSTILE --set image=x",
		"source set artifactsource_1 --set image=x", "source test --kind oci-image@1 --set image=x", "source check-now artifactsource_1",
		"source versions artifactsource_1", "source replace artifactsource_1 --set image=x", "source disable artifactsource_1",
		"source enable artifactsource_1", "source remove artifactsource_1", "service add a HOSTILE --set image=x", "service retire a HOSTILE",
		"service rename a HOSTILE HOSTILE",
		"service restore a HOSTILE", "version-set create a --from versionset_1",
		"pipeline get a", "pipeline set a FILE", "version-set list a", "version-set wait a", "version-set get versionset_1",
		"environment list", "environment get a", "environment drift a", "environment create a --tier production --driver HOSTILE --set x=1", "environment set a --driver HOSTILE --set x=1", "environment archive a",
		"environment rename a HOSTILE",
		"environment restore a",
		"environment approval a", "environment checks a", "environment direct-changes a --forbid", "environment change-control a --on",
		"change list", "change show c", "change confirm c", "change reject c", "change withdraw c", "change force c --reason a", "environment retry a", "driver list", "driver show HOSTILE", "driver check HOSTILE",
		"plan --repository git.example.com/a --path HOSTILE",
		"rollout list", "rollout get rollout_1", "rollout why rollout_1", "rollout create --application a", "rollout approve rollout_1 HOSTILE",
		"rollout reject rollout_1 HOSTILE", "rollout queue", "rollout cancel-queued queuedrollout_1", "rollout cancel-queued --application a",
		"rollout pause r", "rollout resume r", "rollout abort r", "rollout retry r", "rollout cancel r", "rollout rollback r",
		"rollout break-glass r --reason a", "rollout bypass-freeze r --reason a", "freeze list", "check list rollout_1", "check kinds", "check evaluate rollout_1 HOSTILE --environment a",
		"check decide rollout_1 HOSTILE --environment a --phase success --reason b", "check report HOSTILE --application a --environment b --version-set versionset_1", "freeze start --for 1h --reason a",
		"freeze extend HOSTILE --for 1h", "freeze end HOSTILE", "version veto HOSTILE --reason a", "version lift-veto HOSTILE --reason a",
		"trigger list a", "trigger decisions a HOSTILE", "trigger kinds", "trigger set a b", "trigger enable a HOSTILE",
		"trigger disable a HOSTILE", "trigger remove a b", "trigger release a b", "event send HOSTILE --source b",
		"notify channel list", "notify channel add a", "notify channel remove a", "notify channel kinds", "notify route list",
		"notify route add a --channel b", "notify route remove a", "notify test a", "notify preview a --event drift", "notify list", "notify retry 7", "notify account list",
		"notify account remove 3", "notify me channels", "notify me list", "notify me add a --channel b", "notify me remove a",
		"notify me messages", "notify me retry 7",
		"forge publish HOSTILE --environment HOSTILE", "forge list", "forge statuses --state failed", "forge hosts", "forge plans", "forge retry 7", "forge hook list",
		"forge hook add --forge github --repository HOSTILE", "forge hook remove 7", "forge account link 7 HOSTILE", "forge account list", "forge account unlink 3", "forge hook reports", "forge hook refusals",
		"feed list", "feed create a", "feed revoke a", "badge list", "badge set a",
		"chain list a", "chain show a", "chain cancel a",
		"credential list", "credential show HOSTILE", "credential create a --url https://x.example --reference env:X", "credential rotate a --reference env:X", "credential revoke a",
		"version provenance HOSTILE", "version provenance HOSTILE --look-up", "where component HOSTILE@1", "where digest HOSTILE",
		"version-set changes a b",
		"policy list", "policy show HOSTILE", "policy history HOSTILE", "policy put a FILE --reason b", "policy disable a --reason b", "policy check FILE",
		"policy explain HOSTILE", "policy decisions", "policy simulate a FILE", "policy requests", "policy answer HOSTILE --approve --reason b",
		"environment pin a --reason b", "environment unpin a", "rollout keep r --reason b", "rollout watch r",
		"journal list", "member list", "member add a", "member role HOSTILE owner", "member remove HOSTILE", "member grant HOSTILE deploy --reason a",
		"member grants HOSTILE", "member revoke g", "group grant HOSTILE approve", "group list",
		"group set HOSTILE --empty",
		"token list", "token create a", "token revoke t", "agent list", "agent get HOSTILE", "agent register a", "agent rotate HOSTILE",
		"agent revoke HOSTILE", "agent label HOSTILE a=b", "rollout targets rollout_1 --environment HOSTILE",
		"rollout pause-wave rollout_1 --environment a --wave 1", "rollout resume-wave rollout_1 --environment a --wave 1",
		"organization list", "organization create a --owner b", "organization rename HOSTILE b", "whoami", "access list", "access check", "audit",
		"admin verify-journal", "admin reconcile --since 2h --apply", "admin retention list", "admin retention archived handoffs", "admin retention set requests 30",
		"admin retention hold --reason HOSTILE", "publish r.test/a:1@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "doctor",
		"workflow start a FILE", "workflow list", "workflow get a", "workflow history a", "workflow timeline a", "workflow logs a", "workflow watch a",
		"workflow retry a", "workflow cancel a", "workflow export a", "workflow reset a b", "workflow change-program a FILE",
		"workflow terminate a --reason b", "workflow send ch_ABCDEFGHIJKLMNOPQRSTUVWXYZ 1", "workflow call --to a 1", "workflow check FILE", "function list", "function get HOSTILE", "workflow flow list",
		"workflow flow register a FILE", "workflow flow delete a",
		"workflow batch cancel --id a", "workflow batch terminate --id a --reason b", "workflow batch retry --id a --dry-run", "workflow batch reset --id a",
		"workflow event-type declare a FILE", "workflow event-type list", "workflow event-type delete HOSTILE",
		"workflow limits get", "workflow limits list", "workflow limits set --open-runs 5", "workflow retention list", "workflow retention archived", "workflow export a --archived", "workflow retention set --label a=HOSTILE --keep 1d",
		"workflow batch get 1", "workflow batch list", "workflow batch stop 1",
		"schedule register a FILE", "schedule apply HOSTILE", "schedule list", "schedule get a", "schedule pause a", "schedule resume a",
		"schedule backfill a --from 2026-11-20T00:00:00Z --to 2026-11-23T00:00:00Z", "schedule trigger a", "schedule delete a",
	}
}

// silentOfServers are commands that print nothing of a server's answer, and why.
func silentOfServers() map[string]string {
	return map[string]string{
		"agent authority": "prints what it has generated", "demo": "has its own test, in its package", "dev": "prints its own addresses",
		"dev env":  "prints the addresses of a stack of this account, and nothing of its answer",
		"dev push": "prints what was given, and a digest of its own", "serve": "a service", "version": "a constant",
		"completion bash": "a script", "completion fish": "a script", "completion powershell": "a script", "completion zsh": "a script",
		"organization export": "prints the name of a file of its caller's, and a number",
		"journal export":      "prints what it has verified in the file, as journal verify does",
		"journal verify":      "prints what it has verified in a file",
		"workflow replay":     "prints what it has read in a file", "workflow test": "prints what programs of one's own do",
		"policy test": "prints what it has read in files", "policy schema": "a constant", "policy template": "a constant",
		"keyset list": "prints what it has read in a file", "keyset create": "prints what it has made here", "keyset add": "prints what it has made here",
		"keyset promote": "prints what it has changed in a file", "keyset remove": "prints what it has changed in a file",
		"driver push": "prints digests of files here", "check push": "prints digests of files here",
		"check new": "prints what it has written here", "check test": "prints what it has read in files",
		"driver new": "prints what it has written here", "driver test": "prints what it has read in files", "check simulate": "prints what it has computed from files",
		"driver pull": "prints what it has read of files, through the same table as driver check",
	}
}

// TestNoServerReachesTheTerminal calls every command against servers whose every text, error and record is hostile.
func TestNoServerReachesTheTerminal(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, line := range askedOfTheHostile() {
		known[commandOf(t, line)] = true
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "lockstep ")
		if _, silent := silentOfServers()[name]; !silent && !cmd.HasSubCommands() && !known[name] && cmd.Name() != "help" {
			t.Errorf("lockstep %s is new: say in askedOfTheHostile how it is called", name)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(Command(""))
	schema := contract(t)
	for _, line := range askedOfTheHostile() {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			seen := false
			for _, mood := range []mood{answering, refusing, failing} {
				for _, output := range []string{"table", "json", "yaml"} {
					out, errOut := against(t, schema, mood, line, output)
					for _, written := range []string{out, errOut} {
						if text.Unsafe(written) {
							t.Errorf("-o %s, server %s: a terminal gets %q", output, mood, written)
						}
					}
					if output == "table" && strings.Contains(out+errOut, "\nfake") {
						t.Errorf("server %s: its text begins a line: %s", mood, out+errOut)
					}
					seen = seen || strings.Contains(out+errOut, shown)
					exact(t, output, out)
				}
			}
			if !seen {
				t.Errorf("nothing of the hostile text is shown, so this tests nothing")
			}
		})
	}
}

// exact checks that whatever has the hostile text in it has it whole once it is decoded.
func exact(t *testing.T, output, out string) {
	t.Helper()
	if output == "table" || !strings.Contains(out, "x\\e[2J") && !strings.Contains(out, shown) && !strings.Contains(out, `x\x1b[2J`) {
		return
	}
	var values []any
	decode := yaml.NewDecoder(strings.NewReader(out)).Decode
	if output == "json" {
		decode = json.NewDecoder(strings.NewReader(out)).Decode
	}
	for {
		var v any
		err := decode(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("-o %s: %v in %s", output, err, out)
			return
		}
		values = append(values, v)
	}
	var found func(v any) bool
	found = func(v any) bool {
		switch v := v.(type) {
		case string:
			return strings.Contains(v, hostile)
		case []any:
			return slices.ContainsFunc(v, found)
		case map[string]any:
			for key, one := range v {
				if key == hostile || found(one) {
					return true
				}
			}
		}
		return false
	}
	if !found(values) {
		t.Errorf("-o %s has lost the exact text: %s", output, out)
	}
}

// commandOf is the path of the command that a line calls.
func commandOf(t *testing.T, line string) string {
	t.Helper()
	cmd, _, err := Command("").Find(strings.Fields(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimPrefix(cmd.CommandPath(), "lockstep ")
}

// mood is how a hostile server answers.
type mood string

const (
	answering mood = "answering"
	// refusing servers say in an answer's payload what is wrong with what was sent, failing ones that the call failed.
	refusing mood = "refusing"
	failing  mood = "failing"
)

// against runs one command against hostile servers.
func against(t *testing.T, schema *ast.Schema, m mood, line, output string) (out, errOut string) {
	t.Helper()
	api := httptest.NewServer(hostileAPI(schema, m))
	t.Cleanup(api.Close)
	file := filepath.Join(t.TempDir(), "f.star")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"LOCKSTEP_ENDPOINT": api.URL, "LOCKSTEP_REGISTRY": api.URL, "LOCKSTEP_TOKEN": "secret", "LOCKSTEP_REGISTRY_TOKEN": "secret",
		"LOCKSTEP_GRPC": "grpc://" + hostileAutoflow(t, m), "LOCKSTEP_ORGANIZATION": "1",
	}
	var args []string
	for _, word := range strings.Fields(line) {
		args = append(args, strings.NewReplacer("HOSTILE", hostile, "FILE", file).Replace(word))
	}
	if args[0] == "doctor" {
		args = append(args, "--health", "x="+api.URL)
	}
	var stdout, stderr bytes.Buffer
	run(t.Context(), command.New("v1", &stdout, &stderr, func(name string) string { return env[name] }), append(args, "-o", output))
	return stdout.String(), stderr.String()
}

func contract(t *testing.T) *ast.Schema {
	t.Helper()
	files, err := filepath.Glob("../../../services/domain/internal/api/graph/schema/*.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	var sources []*ast.Source
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, &ast.Source{Name: file, Input: string(text)})
	}
	schema, err := gqlparser.LoadSchema(sources...)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// hostileAPI answers every document of the schema, and every other request, with hostile texts.
func hostileAPI(schema *ast.Schema, m mood) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var asked struct{ Query string }
		_ = json.Unmarshal(body, &asked)
		w.Header().Set("Content-Type", "application/json")
		document, err := gqlparser.LoadQueryWithRules(schema, asked.Query, nil)
		switch {
		case asked.Query == "":
			status := http.StatusAccepted // as the registry service takes an event
			if m == failing {
				status = http.StatusBadRequest
			}
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"status": hostile, "version": hostile, "detail": hostile,
				"events": []string{hostile}, hostile: hostile,
			})
		case err != nil || m == failing:
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{
				"message": hostile, "path": []any{hostile},
				"extensions": map[string]string{"code": hostile},
			}}})
		default:
			operation := document.Operations[0]
			_ = json.NewEncoder(w).Encode(map[string]any{"data": fill(schema, operation.SelectionSet, m)})
		}
	})
}

// fill is an answer to a selection.
func fill(schema *ast.Schema, set ast.SelectionSet, m mood) map[string]any {
	object := map[string]any{}
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			object[s.Alias] = value(schema, s, s.Definition.Type, m)
		case *ast.InlineFragment:
			for key, v := range fill(schema, s.SelectionSet, m) {
				object[key] = v
			}
		case *ast.FragmentSpread:
			for key, v := range fill(schema, s.Definition.SelectionSet, m) {
				object[key] = v
			}
		}
	}
	return object
}

func value(schema *ast.Schema, field *ast.Field, typ *ast.Type, m mood) any {
	if typ.Elem != nil {
		if typ.Elem.Name() == "UserError" && m == answering {
			return []any{}
		}
		return []any{value(schema, field, typ.Elem, m)}
	}
	if field.Name == "error" && m == answering || field.Name == "queued" || field.Name == "archivedAt" {
		return nil
	}
	switch typ.NamedType {
	case "Boolean":
		return field.Name != "hasNextPage" && field.Name != "hasPreviousPage"
	case "Int":
		return 1
	case "Float":
		return 1.5
	case "Time":
		return "2026-01-02T03:04:05Z"
	case "JSON":
		return map[string]any{hostile: []any{hostile}}
	case "RolloutState":
		return "CANCELLED" // a watch ends
	}
	switch def := schema.Types[typ.NamedType]; def.Kind {
	case ast.Scalar, ast.Enum:
		return hostile
	default:
		return fill(schema, field.SelectionSet, m)
	}
}

// hostileAutoflow serves an engine whose every text is hostile, and answers its address.
func hostileAutoflow(t *testing.T, m mood) string {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unary := func(_ context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		if m != answering {
			return nil, refusedBy(m)
		}
		return answerOf(info.FullMethod), nil
	}
	stream := func(_ any, s grpc.ServerStream, info *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		if m != answering {
			return refusedBy(m)
		}
		if strings.HasSuffix(info.FullMethod, "/ExportWorkflow") {
			return sendExport(s)
		}
		whole, ok := answerOf(info.FullMethod).(*autoflowv1.WatchWorkflowResponse)
		if !ok {
			return refusedBy(failing)
		}
		entry := &autoflowv1.HistoryEntry{}
		poison(entry.ProtoReflect(), 0)
		workflow := &autoflowv1.Workflow{}
		poison(workflow.ProtoReflect(), 0)
		for _, news := range []proto.Message{whole, watchOf("entry", entry), watchOf("workflow", workflow)} {
			if err := s.SendMsg(news); err != nil {
				return err
			}
		}
		return nil
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
	autoflowv1.RegisterAutoFlowServer(server, &autoflowv1.UnimplementedAutoFlowServer{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return lis.Addr().String()
}

// sendExport is an export whose values are JSON, as they have to be, with hostile texts.
func sendExport(s grpc.ServerStream) error {
	text, err := json.Marshal(map[string]string{hostile: hostile})
	if err != nil {
		return err
	}
	head, entry := &autoflowv1.ExportedWorkflow{}, &autoflowv1.ExportedEntry{}
	poison(head.ProtoReflect(), 0)
	poison(entry.ProtoReflect(), 0)
	head.Inputs, head.Continuation, entry.Value, entry.Error = text, text, text, nil
	for _, part := range []*autoflowv1.ExportWorkflowResponse{
		{Part: &autoflowv1.ExportWorkflowResponse_Workflow{Workflow: head}}, {Part: &autoflowv1.ExportWorkflowResponse_Entry{Entry: entry}},
	} {
		if err := s.SendMsg(part); err != nil {
			return err
		}
	}
	return nil
}

func watchOf(field string, m proto.Message) proto.Message {
	news := (&autoflowv1.WatchWorkflowResponse{}).ProtoReflect()
	news.Set(news.Descriptor().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOfMessage(m.ProtoReflect()))
	return news.Interface()
}

func answerOf(fullMethod string) proto.Message {
	service := autoflowv1.File_lockstep_autoflow_v1_autoflow_proto.Services().ByName("AutoFlow")
	output, err := protoregistry.GlobalTypes.FindMessageByName(service.Methods().ByName(protoreflect.Name(path.Base(fullMethod))).Output().FullName())
	if err != nil {
		return nil
	}
	m := output.New()
	poison(m, 0)
	return m.Interface()
}

// poison fills a message: every text is hostile, every list and map has one element, and there is no next page.
func poison(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case depth > 5 || f.Name() == "next_page_token":
		case f.IsMap():
			one := m.NewField(f)
			key := protoreflect.ValueOfString(hostile).MapKey()
			if f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() == protoreflect.StringKind {
				one.Map().Set(key, protoreflect.ValueOfString(hostile))
				m.Set(f, one)
			}
		case f.IsList():
			one := m.NewField(f)
			if f.Kind() == protoreflect.MessageKind {
				element := one.List().NewElement()
				poison(element.Message(), depth+1)
				one.List().Append(element)
			} else {
				one.List().Append(scalarOf(f))
			}
			m.Set(f, one)
		case f.Kind() == protoreflect.MessageKind:
			one := m.NewField(f)
			if f.Message().FullName() == "google.protobuf.Timestamp" {
				one = protoreflect.ValueOfMessage((&timestamppb.Timestamp{Seconds: 1_800_000_000}).ProtoReflect())
			} else {
				poison(one.Message(), depth+1)
			}
			m.Set(f, one)
		default:
			m.Set(f, scalarOf(f))
		}
	}
}

func scalarOf(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(hostile)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(hostile))
	case protoreflect.EnumKind:
		if v := f.Enum().Values().ByName("WORKFLOW_STATE_FAILED"); v != nil {
			return protoreflect.ValueOfEnum(v.Number())
		}
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	default:
		return protoreflect.ValueOfInt64(1)
	}
}

func refusedBy(m mood) error {
	if m == refusing {
		return statusError(3)
	}
	return statusError(9)
}

func statusError(code codes.Code) error { return status.Error(code, hostile) }
