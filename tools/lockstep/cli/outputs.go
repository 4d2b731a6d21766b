package cli

import (
	rules "github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	engine "github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/driver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/local"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/policy"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/source"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Outputs are values of the types that commands print with -o json, by the command without "lockstep". The reference of the command line is
// written from them. A list stands for a list of its elements.
func Outputs() map[string]any {
	return map[string]any{
		"application list": []client.Application{}, "application get": client.Application{}, "application create": client.Application{},
		"policy installation": []client.InstallationPolicySet{},
		"application set":     client.Application{}, "service set": client.Service{},
		"application archive": client.Application{}, "application restore": client.Application{}, "application rename": client.Application{},
		"application rollback-policy": client.RollbackPolicy{}, "application rollout-policy": client.RolloutPolicy{},
		"application metrics": []client.DeliveryMetrics{},
		"source list":         []client.Source{}, "source kinds": []client.SourceKind{}, "source hooks": []client.Sender{},
		"source add": client.Source{}, "source set": client.Source{},
		"source replace": client.Source{}, "source disable": client.Source{}, "source enable": client.Source{}, "source remove": client.Source{},
		"service add": client.Service{}, "service retire": client.Service{},
		"service rename": client.Service{}, "service restore": client.Service{},
		"version-set create": client.VersionSet{},
		"source versions":    []client.Version{}, "source test": client.Sight{}, "source check-now": client.Sight{},
		"pipeline get": client.FlowDefinition{}, "pipeline set": client.FlowDefinition{},
		"version-set list": []client.VersionSet{}, "version-set get": client.VersionSet{}, "version-set wait": client.VersionSet{},
		"environment list": []client.Environment{}, "environment get": client.Environment{}, "environment drift": []client.Drifted{}, "environment create": client.Environment{}, "environment set": client.Environment{},
		"environment archive": client.Environment{}, "environment rename": client.Environment{}, "environment restore": client.Environment{},
		"environment pin": client.Environment{}, "environment unpin": client.Environment{},
		"check report": client.CheckReport{}, "check list": []client.RolloutCheck{},
		"check kinds": []client.CheckKind{}, "check evaluate": client.Rollout{}, "check decide": client.Rollout{}, "check new": []driver.CheckedDriver{},
		"check push": []driver.CheckedDriver{}, "check test": []workflow.Tested{}, "driver new": []driver.CheckedDriver{}, "driver test": []workflow.Tested{}, "check simulate": engine.TestSimulation{}, "freeze start": client.Freeze{}, "freeze list": []client.Freeze{}, "freeze extend": client.Freeze{}, "freeze end": client.Freeze{},
		"version veto": client.Veto{}, "version lift-veto": client.Veto{}, "rollout bypass-freeze": client.Rollout{},
		"rollout queue": []client.QueuedRollout{}, "rollout cancel-queued": client.QueuedRollout{},
		"rollout targets": []client.Target{}, "rollout pause-wave": client.Rollout{}, "rollout resume-wave": client.Rollout{},
		"version provenance": client.ProvenVersion{}, "where component": []client.Whereabouts{}, "where digest": []client.Whereabouts{},
		"version-set changes": client.ComponentChanges{},
		"trigger list":        client.ApplicationTriggers{}, "trigger decisions": []client.TriggerDecision{}, "trigger kinds": []client.TriggerKind{},
		"trigger set": client.Trigger{}, "trigger enable": client.Trigger{}, "trigger disable": client.Trigger{},
		"trigger remove": client.ApplicationTriggers{}, "trigger release": client.ApplicationTriggers{}, "event send": client.SentEvent{},
		"credential list": []client.Credential{}, "credential show": client.Credential{}, "credential create": client.Credential{},
		"credential rotate": client.Credential{}, "credential revoke": client.Credential{},
		"keyset list": []keyset.Key{}, "keyset create": []keyset.Key{}, "keyset add": []keyset.Key{}, "keyset promote": []keyset.Key{}, "keyset remove": []keyset.Key{},
		"notify channel list": []client.NotificationChannel{}, "notify channel add": client.NotificationChannel{},
		"notify channel remove": client.NotificationChannel{}, "notify channel kinds": []client.NotificationKind{},
		"notify route list": []client.NotificationRoute{}, "notify route add": client.NotificationRoute{},
		"notify route remove": client.NotificationRoute{}, "notify test": client.NotificationRoute{},
		"notify preview":     client.NotificationPreview{},
		"notify me channels": []client.MyNotificationChannel{}, "notify me list": []client.MyNotification{},
		"notify me add": client.MyNotification{}, "notify me remove": client.MyNotification{},
		"notify me messages": []client.NotificationMessage{}, "notify me retry": client.NotificationMessage{},
		"notify account list": []client.ChatAccount{}, "notify account remove": client.ChatAccount{},
		"notify list": []client.NotificationMessage{}, "notify retry": client.NotificationMessage{},
		"feed list": []client.Feed{}, "feed create": client.NewFeed{}, "feed revoke": client.Feed{},
		"badge list": []client.Badges{}, "badge set": client.Badges{},
		"forge publish": client.ForgeMirror{}, "forge list": []client.ForgeMirror{}, "forge statuses": []client.ForgeStatus{},
		"forge hosts": []client.ForgeHost{}, "forge plans": []client.ForgePull{}, "forge hook add": client.MadeForgeHook{}, "forge hook list": []client.ForgeHook{},
		"forge hook remove": client.ForgeHook{}, "forge hook reports": []client.ForgeReport{}, "forge hook refusals": []client.ForgeRefusal{}, "forge retry": client.Retried{},
		"forge account link": client.ForgeCode{}, "forge account list": []client.ForgeAccount{}, "forge account unlink": client.ForgeAccount{},
		"chain list": []client.Chain{}, "chain show": client.Chain{}, "chain cancel": client.Chain{},
		"environment approval": client.EnvironmentApproval{}, "environment checks": client.Environment{}, "environment direct-changes": client.Environment{},
		"policy list": []client.PolicySet{}, "policy show": client.PolicySet{}, "policy history": []client.PolicySet{}, "policy put": client.PolicySet{},
		"policy disable": client.PolicySet{}, "policy check": client.PolicyCheck{}, "policy test": []policy.TestedCase{},
		"policy requests": []client.CallRequest{}, "policy answer": client.CallRequest{},
		"policy explain": client.PolicyDecision{}, "policy decisions": []client.PolicyDecision{},
		"policy simulate": client.PolicySimulation{}, "policy schema": policy.Text{},
		"policy template":            []rules.Template{},
		"environment change-control": client.Environment{}, "change list": []client.ProposedChange{}, "change show": client.ProposedChange{},
		"change confirm": client.ProposedChange{}, "change reject": client.ProposedChange{}, "change withdraw": client.ProposedChange{},
		"change force":      client.ProposedChange{},
		"environment retry": client.Environment{},
		"driver list":       client.DriverList{}, "driver show": client.Driver{}, "driver check": []driver.CheckedDriver{},
		"driver push": []driver.CheckedDriver{}, "driver pull": []driver.CheckedDriver{},
		"plan":         client.Plan{},
		"rollout list": []client.Rollout{}, "rollout get": client.Rollout{}, "rollout create": client.Rollout{},
		"rollout approve": client.Rollout{},
		"rollout reject":  client.Rollout{}, "rollout pause": client.Rollout{}, "rollout resume": client.Rollout{},
		"rollout abort": client.Rollout{},
		"rollout retry": client.Rollout{}, "rollout cancel": client.Rollout{}, "rollout rollback": client.Rollout{},
		"rollout why": []client.Wait{}, "rollout break-glass": client.Rollout{}, "rollout keep": client.Rollout{}, "rollout watch": client.Transition{},
		"journal list": []client.JournalEntry{}, "member list": []client.Member{}, "member add": client.Member{}, "member role": client.Member{},
		"member remove": client.Member{}, "member grant": client.Grant{}, "member grants": []client.Grant{}, "member revoke": client.Grant{},
		"group grant": client.Grant{},
		"group list":  []client.Group{}, "group set": client.Group{}, "token list": []client.AccessToken{},
		"token create": client.AccessToken{}, "token revoke": client.AccessToken{},
		"agent list": []client.Agent{}, "agent get": client.Agent{}, "agent register": client.Agent{}, "agent rotate": client.Agent{},
		"agent label":       client.Agent{},
		"agent revoke":      client.Agent{},
		"organization list": []client.Organization{}, "organization create": client.Organization{}, "organization rename": client.Organization{},
		"whoami":      client.Viewer{},
		"access list": []client.AccessChange{}, "access check": []client.UnanswerableRule{}, "audit": []client.AuditEntry{}, "admin verify-journal": client.JournalCheck{}, "admin reconcile": []client.RecordDifference{}, "admin retention list": client.Retention{},
		"admin retention set": client.Retention{}, "admin retention hold": client.Retention{}, "admin retention archived": []client.ArchivedObject{},
		"publish": source.Published{},
		"version": versionAnswer{}, "doctor": []doctor.Finding{}, "dev": stack.Endpoints{}, "dev env": map[string]string{},
		"dev push": local.PushedImage{}, "workflow replay": engine.ReplayReport{}, "workflow test": []workflow.Tested{},
	}
}

// OtherOutputs describe what the commands print whose output is not an object of ours, by the command without "lockstep".
func OtherOutputs() map[string]string {
	return map[string]string{
		"workflow":            "messages of the engine's API, as ProtoJSON",
		"workflow export":     "the file that `lockstep workflow replay` reads: what the workflow began with, and its history",
		"schedule":            "messages of the engine's API, as ProtoJSON",
		"function":            "messages of the engine's API, as ProtoJSON",
		"organization export": "a sentence for people, and a file ([format](organization-export.md))",
		"journal export":      "a sentence for people, and a file ([format](journal-export.md))", "journal verify": "a sentence for people",
		"agent authority": "an object with `issuer`, `user` and `seed`, all strings",
		"demo":            "a report for people", "serve": "the log of a service", "completion": "a script for a shell",
	}
}
