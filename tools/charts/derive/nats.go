package derive

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
)

// user returns an account in the format of NATS's configuration file. The password is a variable of the server's environment, so that the
// file contains no secret.
func user(name, variable, publish, subscribe string) string {
	return fmt.Sprintf("{\n  user: %q, password: $%s\n  permissions: {\n    publish: [\n%s    ]\n    subscribe: [\n%s    ]\n%s  }\n}\n",
		name, variable, publish, subscribe, responses())
}

// responses lets an account answer each request that it has received: without it the answers between domain and registry are denied.
func responses() string {
	return fmt.Sprintf("    allow_responses: {max: 1, expires: %q}\n", bus.AnswerWithin)
}

func subjects(list []string) string {
	var out strings.Builder
	for _, s := range list {
		fmt.Fprintf(&out, "      %q\n", s)
	}
	return out.String()
}

// account returns the user of a name with the permissions from bus.Permissions.
func account(name, variable string) string {
	publish, subscribe := bus.Permissions(name)
	return user(name, variable, subjects(publish), subjects(subscribe))
}

func services() string {
	var all strings.Builder
	for _, name := range []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow} {
		all.WriteString(account(name, "NATS_PASSWORD_"+strings.ToUpper(name)))
	}
	return all.String()
}

// placeholder is a number that no real agent has. It stands for AGENT in the permissions of a relay.
const placeholder = 987654321

func agent() string {
	return strings.ReplaceAll(account(bus.RelayUser(placeholder), "NATS_PASSWORD_RELAY_"+strconv.Itoa(placeholder)),
		strconv.Itoa(placeholder), "AGENT")
}

// callout makes the server ask the authority about all unknown users; issuer and user are its public keys.
func callout(issuer, user string) string {
	return "auth_callout {\n  issuer: " + issuer + "\n  account: \"$SYS\"\n  auth_users: [registry, domain, workflow, " + user + "]\n}\n"
}

// system returns the authority's user of the system account.
func system(user string) string {
	publish, subscribe := authority.Permissions()
	return "{\n  nkey: " + user + "\n  permissions: {\n    publish: [\n" + subjects(publish) + "    ]\n    subscribe: [\n" +
		subjects(subscribe) +
		"    ]\n" + responses() + "  }\n}\n"
}

// users returns the files of the chart's own NATS: the services' accounts, and a relay's, whose number is AGENT.
func users() map[string][]byte {
	return map[string][]byte{
		"nats-users.conf": []byte(services()), "nats-relay.conf": []byte(agent()),
		"nats-callout.conf": []byte(callout("ISSUER", "AUTHORITY")), "nats-system.conf": []byte(system("AUTHORITY")),
	}
}

// server returns a complete configuration, with an authority over agents, for operators of their own NATS.
func server() []byte {
	indent := func(s string) string { return "    " + strings.TrimSpace(strings.ReplaceAll(s, "\n", "\n    ")) + "\n" }
	half := func(s string) string { return "  " + strings.TrimSpace(strings.ReplaceAll(s, "\n", "\n  ")) + "\n" }
	return []byte(`# The accounts of Lockstep on your NATS, version 2.10 or later, and what each may do; written by make charts from pkg/bus.
# Passwords and the public keys of the authority are variables of the server's environment. About agents the server asks the domain
# service ("lockstep agent authority" makes the keys).
port: 4222
max_payload: 8MB
jetstream {
  store_dir: /data
  # An event is stored before it is confirmed.
  sync_interval: always
}
authorization {
  users = [
` + indent(services()) + "  ]\n" + half(callout("$NATS_AUTHORITY_ISSUER", "$NATS_AUTHORITY_USER")) +
		"}\naccounts {\n  \"$SYS\" {\n    users = [\n" +
		indent(half(system("$NATS_AUTHORITY_USER"))) + "    ]\n  }\n}\n")
}
