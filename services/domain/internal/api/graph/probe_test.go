package graph_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// refersTo is what an input field names, by its name: an object of our organization's story. A field of type ID that is
// not here fails the test, so that a new one cannot be forgotten.
var refersTo = map[string]string{
	"rolloutId": "rollout_2", "versionSetId": "versionset_1", "environmentId": "environment_3",
	"applicationEnvironmentId": "applicationenvironment_1",
	"application":              "application_1", "memberId": "member_1", "groupId": "group_1", "tokenId": "accesstoken_1",
	"callRequestId": "callrequest_1", "queuedRolloutId": "queuedrollout_1",
	"changeId": "proposedchange_1", "grantId": "grant_1", "applications": "application_1", "environments": "environment_1",
	"agentId": "agent_1", "keyId": "agentkey_1", "members": "member_1",
	"organizationId": "organization_1", "freezeId": "freeze_1", "chainId": "chain_1", "vetoId": "veto_1", "versionId": "version_1", "serviceId": "service_1", "artifactSourceId": "artifactsource_1",
	"fromVersionSetId": "versionset_1", "subjectId": "application_1",
}

// example is a value of an input field that names nothing.
func example(t *testing.T, schema *ast.Schema, typ *ast.Type, name string) any {
	t.Helper()
	if typ.Elem != nil {
		return []any{example(t, schema, typ.Elem, name)}
	}
	switch typ.NamedType {
	case "String":
		switch name {
		case "sourceRef":
			return "oci-image@1"
		case "checkKeys":
			return "healthy"
		case "url":
			return "https://example.com"
		}
		return name
	case "Int":
		if name == "quorum" {
			return 2
		}
		return 60
	case "Time":
		return time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	case "Boolean":
		return true
	case "JSON":
		if name == "sourceConfig" {
			return map[string]any{"image": "r.example.com/x"}
		}
		return map[string]any{}
	}
	def := schema.Types[typ.NamedType]
	switch def.Kind {
	case ast.Enum:
		return def.EnumValues[0].Name
	case ast.InputObject:
		return inputOf(t, schema, def)
	default:
		t.Fatalf("%s: there is no example of a %s", name, typ)
		return nil
	}
}

// freezing sets freezes.
func (f *fixture) freezing(freezes int) {
	f.t.Helper()
	for n := range freezes {
		f.change(ours, "startFreeze", "freeze", "id", map[string]any{
			"reason": fmt.Sprintf("freeze %d", n), "endsAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		})
	}
}

// deciding puts a policy set, and records a decision.
func (f *fixture) deciding() {
	f.t.Helper()
	f.change(ours, "putPolicySet", "policySet", "id", map[string]any{
		"name": "rules", "text": `@id("base") permit (principal, action, resource);`, "reason": "audit",
	})
	if _, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, state, policy, reason,
		approver_group, quorum, requester_may, expires_at, decision, request)
		VALUES ($1, 'nightly', 'x', 'http.request', 'pending', 'rules/base', 'r', '', 1, false, now() + interval '1 day', '{}', '{}')`,
		ours); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_policy_decisions (organization_id, rollout_id, gate_id, verdict, decision, request)
		VALUES ($1, 1, '', 'allow', '{"verdict": "allow"}', '{}')`, ours); err != nil {
		f.t.Fatal(err)
	}
}

// references are the fields of an input that name objects.
func references(t *testing.T, mutation string, input *ast.Definition) []string {
	t.Helper()
	var all []string
	for _, f := range input.Fields {
		_, known := refersTo[f.Name]
		if f.Type.Name() == "ID" && !known {
			t.Errorf("%s.%s is an identifier: say in refersTo of what", mutation, f.Name)
		}
		if known {
			all = append(all, f.Name)
		}
	}
	return all
}

// inputOf is an example of an input, with the objects of refersTo.
func inputOf(t *testing.T, schema *ast.Schema, def *ast.Definition) map[string]any {
	t.Helper()
	in := map[string]any{}
	for _, f := range def.Fields {
		switch target, refers := refersTo[f.Name]; {
		case refers && f.Type.Elem != nil:
			in[f.Name] = []any{target}
		case refers:
			in[f.Name] = target
		default:
			in[f.Name] = example(t, schema, f.Type, f.Name)
		}
	}
	return in
}

var numbers = regexp.MustCompile(`\d+`)

// TestEveryMutationProbedFromAnotherOrganization names, field by field of the schema, objects of another organization. The
// answer is that there is none, in the very words of an object that nobody has: not even that it exists can be inferred.
func TestEveryMutationProbedFromAnotherOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	f.queued()
	f.freezing(1)
	f.change(ours, "vetoVersion", "veto", "id", map[string]any{"versionId": "version_1", "reason": "bad"})
	schema, probes := schemaOf(t), 0
	for _, m := range schema.Mutation.Fields {
		input := schema.Types[m.Arguments.ForName("input").Type.Name()]
		for _, field := range references(t, m.Name, input) {
			probes++
			ask := func(target string) string {
				in := inputOf(t, schema, input)
				if _, many := in[field].([]any); many {
					in[field] = []any{target}
				} else {
					in[field] = target
				}
				for _, other := range references(t, m.Name, input) {
					if other != field && !input.Fields.ForName(other).Type.NonNull {
						delete(in, other)
					}
				}
				a := f.ask(theirs, "mutation($input: "+input.Name+"!) { it: "+m.Name+"(input: $input) { errors { field message code } } }",
					map[string]any{"input": in})
				var data struct{ It struct{ Errors []userError } }
				a.into(t, &data)
				// What is for those who operate the installation is denied before anything is looked up: in the same words for every number.
				if field == "organizationId" && len(data.It.Errors) == 1 && data.It.Errors[0].Code == "DENIED" {
					return fmt.Sprint(data.It.Errors)
				}
				if len(data.It.Errors) == 0 || !strings.Contains(data.It.Errors[0].Message, "does not exist") ||
					!slices.Contains([]string{"NOT_FOUND", "INVALID"}, data.It.Errors[0].Code) {
					t.Errorf("%s with %s = %s from another organization: answered %+v; want that it does not exist", m.Name, field, target, data.It.Errors)
				}
				return numbers.ReplaceAllString(fmt.Sprint(data.It.Errors), "#")
			}
			target := refersTo[field]
			if there, nowhere := ask(target), ask(target[:strings.LastIndexByte(target, '_')]+"_99999"); there != nowhere {
				t.Errorf("%s with %s: what exists answers %s, what does not %s", m.Name, field, there, nowhere)
			}
		}
	}
	if probes < 15 {
		t.Errorf("%d probes: the schema was not understood", probes)
	}
}

// TestWhatHasAnIdentifierIsANode: an identifier that the API gives out is one that it finds again.
func TestWhatHasAnIdentifierIsANode(t *testing.T) {
	t.Parallel()
	schema := schemaOf(t)
	for _, def := range schema.Types {
		if f := def.Fields.ForName("id"); def.Kind == ast.Object && f != nil && f.Type.Name() == "ID" &&
			!slices.Contains(def.Interfaces, "Node") {
			t.Errorf("%s has an identifier and is no Node", def.Name)
		}
	}
}

// TestEveryNodeProbedFromAnotherOrganization asks for one of each kind that the schema has.
func TestEveryNodeProbedFromAnotherOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	f.freezing(1)
	f.chained()
	f.queued()
	f.change(ours, "vetoVersion", "veto", "id", map[string]any{"versionId": "version_1", "reason": "bad"})
	f.deciding()
	schema := schemaOf(t)
	kinds := schema.GetPossibleTypes(schema.Types["Node"])
	if len(kinds) < 14 {
		t.Fatalf("%d kinds of nodes", len(kinds))
	}
	for _, kind := range kinds {
		global := strings.ToLower(kind.Name) + "_1"
		for organization, want := range map[int64]bool{ours: true, theirs: false} {
			var data struct{ Node *struct{ ID string } }
			f.ask(organization, `query($id: ID!) { node(id: $id) { id } }`, map[string]any{"id": global}).into(t, &data)
			if (data.Node != nil) != want {
				t.Errorf("%s for organization %d: found %v, want it there: %v", global, organization, data.Node, want)
			}
		}
	}
}

// TestEveryQueryProbedFromAnotherOrganization asks every field of Query from an organization that has nothing, with all
// that it could name of ours.
func TestEveryQueryProbedFromAnotherOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	f.queued()
	f.deciding()
	named := map[string][]string{
		// probed above or below, one's own, and nobody's
		"node": {}, "viewer": {}, "validateDriverConfig": {}, "drivers": {}, "driverOrigins": {}, "artifactSourceKinds": {},
		"artifactSenders": {}, "journalCursor": {}, "journalCheck": {}, "journalChain": {}, "recordDifferences": {}, "retention": {}, "archivedObjects": {}, "validateFlowDefinition": {}, "flowDefinitionSchema": {}, "checksSchema": {}, "checkKinds": {}, "checkPolicies": {}, "policyVocabulary": {}, "triggerKinds": {}, "notificationKinds": {},
		"notificationChannels": {""}, "notificationRoutes": {""}, "notificationMessages": {""}, "credentials": {""}, "forgeMirrors": {""}, "forgeStatuses": {""}, "forgeHosts": {""}, "forgeHooks": {""}, "forgeReports": {""}, "forgeRefusals": {""}, "forgePulls": {""},
		"chatAccounts": {""}, "chatAccountOfLink": {`(token: "` + f.pressed() + `")`},
		"myNotificationChannels": {""}, "myNotifications": {""}, "myNotificationMessages": {""},
		"feeds": {""}, "badges": {""}, "notificationPreview": {`(channel: "team", event: DRIFT)`},
		"application": {`(name: "shop")`}, "workflow": {`(workflowId: "rollout-2")`}, "environment": {`(name: "staging")`},
		"workflowSchedule": {`(name: "nightly")`},
		"workflowCount":    {"", `(subject: "rollout_2")`, `(filter: {idContains: "rollout"})`},
		"rollout":          {`(id: "rollout_1")`},
		"rolloutTargets":   {`(rolloutId: "rollout_1", environment: "staging")`, `(rolloutId: "rollout_1", environment: "environment_1")`},
		"rollouts":         {"", `(application: "shop")`, `(application: "application_1")`, `(environment: "staging")`, `(environment: "environment_1")`},
		"agent":            {`(name: "cluster")`},
		"deliveryMetrics": {
			`(application: "shop")`, `(application: "application_1")`, `(application: "shop", environment: "staging")`,
			`(application: "application_1", environment: "environment_1")`,
		},
		"unanswerableRules": {"", `(applicationId: "application_1")`, `(environmentId: "environment_1")`},
		"rolloutPreview":    {`(id: "rolloutpreview_1")`},
		"planPreview":       {`(input: {repository: "git.test/shop/config", branch: "main", paths: ["a"]})`},
		"artifactSources":   {"", `(application: "shop")`, `(application: "application_1")`},
		"whereComponent":    {`(name: "zlib")`}, "whereDigest": {`(digest: "` + digest(1) + `")`},
		"componentChanges": {`(before: "versionset_1", after: "versionset_1")`},
		"forgeAccounts":    {""}, "workflowFunctions": {""},
		"policySets": {""}, "installationPolicies": {""}, "policySetVersions": {`(name: "rules")`}, "policyDecision": {`(id: "policydecision_1")`}, "controlDecisions": {""},
		"queuedRollouts": {"", `(application: "shop")`, `(application: "application_1")`},
		"callRequests":   {"", `(pending: false)`}, "callRequest": {`(id: "callrequest_1")`},
		"simulatePolicies": {
			`(input: {name: "rules", text: "// nothing", since: "2020-01-01T00:00:00Z"})`,
			`(input: {name: "rules", application: "shop", text: "// nothing", since: "2020-01-01T00:00:00Z"})`,
		},
	}
	for _, field := range schemaOf(t).Query.Fields {
		if strings.HasPrefix(field.Name, "__") {
			continue
		}
		arguments, known := named[field.Name]
		connection := strings.HasSuffix(field.Type.Name(), "Connection")
		if !known && !connection {
			t.Errorf("Query.%s is new: say in named how to ask it for something of another organization", field.Name)
		}
		if !known {
			arguments = []string{""}
		}
		for _, args := range arguments {
			selection := "id"
			switch field.Type.Name() {
			case "Workflow":
				selection = "workflowId"
			case "WorkflowSchedule", "NotificationChannel", "NotificationRoute", "Credential", "MyNotification", "MyNotificationChannel", "Feed":
				selection = "name"
			case "ForgeMirror", "Badges":
				selection = "application"
			case "ForgeHost":
				selection = "host"
			case "NotificationMessage", "ForgeStatus", "ForgeHook", "ForgeReport", "ForgePull", "ChatAccount", "ForgeAccount":
				selection = "number"
			case "WorkflowFunction":
				selection = "name"
			case "ForgeRefusal":
				selection = "what"
			case "NotificationPreview":
				selection = "title"
			case "WorkflowCount":
				selection = "count"
			case "PolicySimulation":
				selection = "evaluated"
			case "DeliveryMetrics":
				selection = "deployments"
			case "Whereabouts":
				selection = "since"
			case "ComponentChanges":
				selection = "changes { name }"
			case "PlanPreview":
				selection = "applications { files }"
			case "UnanswerableRule":
				selection = "problem"
			case "InstallationPolicySet":
				selection = "name"
			}
			if connection {
				selection = "nodes { __typename } pageInfo { hasNextPage endCursor }"
			}
			a := f.ask(theirs, `{ it: `+field.Name+args+` { `+selection+` } }`, nil)
			var data struct{ It json.RawMessage }
			if len(a.Data) > 0 {
				if err := json.Unmarshal(a.Data, &data); err != nil {
					t.Fatal(err)
				}
			}
			empty := string(data.It) == "null" || string(data.It) == "[]" || strings.HasPrefix(string(data.It), `{"nodes":[],`) || string(data.It) == `{"count":0}` ||
				string(data.It) == `{"evaluated":0}` || string(data.It) == `{"changes":[]}` ||
				string(data.It) == `{"applications":[]}` || string(data.It) == `[{"name":"http.request"}]` // the engine's own, which all have
			if len(a.Errors) > 0 {
				// Lists of the installation are denied to all but those who operate it.
				empty = a.Errors[0].Extensions.Code == "NOT_FOUND" || field.Name == "organizations" && a.Errors[0].Extensions.Code == "DENIED"
			}
			if !empty {
				t.Errorf("%s%s from another organization: answered %s %+v", field.Name, args, a.Data, a.Errors)
			}
		}
	}
}

// TestAJournalIsCheckedForOnesOwnOrganization counts what is read of another organization's: nothing.
func TestAJournalIsCheckedForOnesOwnOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	for organization, some := range map[int64]bool{ours: true, theirs: false} {
		var data struct {
			JournalCheck struct {
				Rollouts, Rows int
				Differences    []struct{ Subject, Problem string }
			}
		}
		f.ask(organization, `{ journalCheck { rollouts rows differences { subject problem } pageInfo { hasNextPage } } }`, nil).into(t, &data)
		// The story's workflows requested no passages, which the check finds (D46).
		breaches := slices.DeleteFunc(slices.Clone(data.JournalCheck.Differences), func(d struct{ Subject, Problem string }) bool {
			return !strings.Contains(d.Problem, "which had not been granted")
		})
		if c := data.JournalCheck; (c.Rollouts > 0) != some || (c.Rows > 0) != some || (len(breaches) > 0) != some ||
			len(c.Differences) > len(breaches) {
			t.Errorf("organization %d: %+v", organization, c)
		}
	}
}

// populate is the story, with one of everything that the probes name.
func (f *fixture) populate() {
	f.t.Helper()
	f.story()
	m := must(f.access.CreateMember(f.t.Context(), actor(ours),
		access.NewMember{Name: "alice", Kind: core.PrincipalUser, Role: core.RoleOwner}))(f.t)
	if _, _, err := f.access.RegisterAgent(f.t.Context(), actor(ours), "cluster"); err != nil {
		f.t.Fatal(err)
	}
	must(f.rollouts.PreviewRollout(f.t.Context(), actor(ours), rollout.NewPreview{VersionSetID: 1}))(f.t)
	must(f.access.CreateGroup(f.t.Context(), actor(ours), "release", []int64{m.ID}))(f.t)
	must(f.access.GrantPermissions(f.t.Context(), actor(ours), access.NewGrant{MemberID: m.ID, Permissions: everything()}))(f.t)
	if _, _, err := f.access.CreateToken(f.t.Context(), actor(ours), access.NewToken{MemberID: m.ID, Name: "laptop"}); err != nil {
		f.t.Fatal(err)
	}
	f.proposing(1)
}

// D49: the labels of a freeze are set and read as those of policy sets are; a field that is no object says so.
func TestAFreezeByLabelIsSetAndRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	labels := map[string]any{"tier": "critical"}
	input := map[string]any{
		"reason": "audit", "endsAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "applicationLabels": labels,
	}
	made := f.change(ours, "startFreeze", "freeze", "applicationLabels environmentLabels", input)
	if got, _ := made.Object["applicationLabels"].(map[string]any); len(made.Errors) > 0 || got["tier"] != "critical" ||
		made.Object["environmentLabels"] != nil {
		t.Errorf("found %+v; want the label of applications, and none of environments", made)
	}
	input["environmentLabels"] = "region=eu"
	bad := f.change(ours, "startFreeze", "freeze", "id", input)
	if len(bad.Errors) != 1 || bad.Errors[0].Field[0] != "environmentLabels" || !strings.Contains(bad.Errors[0].Message, "expected an object of strings") {
		t.Errorf("found %+v; want what was expected", bad)
	}
}

// D49, D51: a scope that asks of a label without a text would concern nothing; one without a label was meant to narrow something.
func TestAScopeAsksOfLabelsWithTexts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for field, value := range map[string]any{
		"environmentLabels": map[string]any{"region": nil}, "applicationLabels": map[string]any{},
	} {
		made := f.change(ours, "startFreeze", "freeze", "id", map[string]any{
			"reason": "audit", "endsAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), field: value,
		})
		if len(made.Errors) != 1 || made.Errors[0].Field[0] != field {
			t.Errorf("%s: found %+v; want it refused", field, made)
		}
	}
	put := f.change(ours, "putPolicySet", "policySet", "id", map[string]any{
		"name": "rules", "text": `@id("base") permit (principal, action, resource);`, "reason": "audit", "applicationLabels": map[string]any{"tier": nil},
	})
	if len(put.Errors) != 1 || put.Errors[0].Field[0] != "applicationLabels" {
		t.Errorf("a policy set: found %+v; want it refused", put)
	}
}
