package graph_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
)

// keysetOf is a keyset in a file.
func keysetOf(t *testing.T) *keyset.Keyset {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keyset.json")
	text, err := keyset.Create()
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return keyset.New(nil, "file:"+file)
}

// D56: a value goes in, and comes out of nothing: no answer, no error, no table.
func TestCredentialsAreNeverShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const canary = "kx7f3ab9-never-in-clear"
	input := map[string]any{
		"name": "api", "kind": "HTTP", "urlPrefixes": []string{"https://api.example.com/v1"}, "value": canary, "expiresAt": "2099-01-01T00:00:00Z",
		"reason": "for the shop",
	}
	const fields = `credential { name kind urlPrefixes version reference sealed state expiresAt author } errors { message field }`
	ask := func(organization int64, mutation, kind string, input map[string]any) string {
		t.Helper()
		a := f.ask(organization, `mutation($input: `+kind+`!) { it: `+mutation+`(input: $input) { `+fields+` } }`, map[string]any{"input": input})
		text := string(a.Data)
		for _, e := range a.Errors {
			text += " " + e.Message
		}
		if strings.Contains(text, canary) {
			t.Errorf("%s shows the value: %s", mutation, text)
		}
		return text
	}
	expect := func(what, found string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(found, part) {
				t.Errorf("%s: found %s; expected …%s…", what, found, part)
			}
		}
	}
	expect("made", ask(ours, "createCredential", "CreateCredentialInput", input), `"version":1`, `"sealed":true`, `"state":"LIVE"`, `"errors":[]`)
	expect("made twice", ask(ours, "createCredential", "CreateCredentialInput", input), "exists; rotate it")
	expect("of another organization", ask(theirs, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "value": canary}),
		"does not exist")
	expect("rotated", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "value": canary}), `"version":2`)
	expect("both", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "value": canary, "reference": "env:SHOP_X"}),
		"expected a value or a reference, and not both")
	expect("a pasted secret", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "reference": canary}),
		"may not use")
	expect("of another place", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "reference": "env:DATABASE_URL"}),
		"may not use")
	expect("an allowed reference", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "reference": "env:SHOP_X"}),
		`"version":3`, `"sealed":false`, `"reference":"env:SHOP_X"`)
	expect("two lines", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "value": canary + "\nx"}),
		"found a line break")
	expect("revoked", ask(ours, "revokeCredential", "RevokeCredentialInput", map[string]any{"name": "api", "reason": "leaked"}), `"state":"REVOKED"`)
	expect("after that", ask(ours, "rotateCredential", "RotateCredentialInput", map[string]any{"name": "api", "value": canary}), "was revoked at")
	input["urlPrefixes"] = []string{"https://other.example.com/"}
	expect("made again", ask(ours, "createCredential", "CreateCredentialInput", input), `"version":4`, "other.example.com")
	// No digest of a request with a value is kept, either: a reader could try values.
	for range 2 {
		if status, text := f.keyed(ours, "k", `{"query":"mutation { rotateCredential(input: {name: \"api\", value: \"`+canary+`\"}) { `+
			`credential { name } errors { message } } }"}`); status != 200 || !strings.Contains(text, `"errors":[]`) {
			t.Errorf("rotated under a key: %d %s", status, text)
		}
	}
	var kept int
	if err := f.owner.QueryRow(t.Context(), `SELECT count(*) FROM cd_requests`).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("%d digests of requests are kept, %v", kept, err)
	}
	list := f.ask(ours, `{ credentials { name version state } }`, nil)
	expect("listed", string(list.Data), `"version":6`)
	rows, err := f.owner.Query(t.Context(), `SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 50 {
		t.Fatal(tables, err)
	}
	for _, table := range tables {
		var found bool
		// Bytes are shown as hexadecimal digits.
		err := f.owner.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM `+pgx.Identifier{table}.Sanitize()+` t WHERE t::text LIKE '%' || $1 || '%'
			OR t::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'hex') || '%'
			OR t::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'base64') || '%')`,
			canary).Scan(&found)
		if err != nil || found {
			t.Errorf("%s has the value: %t, %v", table, found, err)
		}
	}
}

// D56: a GitHub App is made and shown with its numbers, and its key is in no answer; what is wrong with it is reported by field.
func TestACredentialOfAGitHubApp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	put := func(app map[string]any, value string) string {
		t.Helper()
		a := f.ask(ours, `mutation($input: CreateCredentialInput!) { createCredential(input: $input) {
			credential { kind forge githubApp { appId installationId apiUrl } oauth2 { clientId } } errors { message field } } }`,
			map[string]any{"input": map[string]any{
				"name": "app", "kind": "GIT", "urlPrefixes": []string{"https://github.com/team"}, "forge": "github", "githubApp": app, "value": value,
			}})
		text := string(a.Data)
		if len(a.Errors) > 0 || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("found %s, %v; want an answer without the key", text, a.Errors)
		}
		return text
	}
	for want, found := range map[string]string{
		`"githubApp","appId"`:          put(map[string]any{"appId": "", "installationId": ""}, key),
		`"githubApp","installationId"`: put(map[string]any{"appId": "7", "installationId": "shop"}, key),
		`"githubApp","apiUrl"`:         put(map[string]any{"appId": "7", "installationId": "42", "apiUrl": "ftp://a.example"}, key),
		`"value"`:                      put(map[string]any{"appId": "7", "installationId": "42"}, "ghp_canary"),
	} {
		if !strings.Contains(found, want) || strings.Contains(found, "canary") {
			t.Errorf("found %s; want a problem of %s", found, want)
		}
	}
	const want = `"githubApp":{"appId":"7","installationId":"42","apiUrl":""},"oauth2":null`
	if found := put(map[string]any{"appId": "7", "installationId": "42"}, key); !strings.Contains(found, want) || !strings.Contains(found, `"errors":[]`) {
		t.Errorf("found %s; want …%s…", found, want)
	}
}

// D56: credentials for registries are made and shown without their values, also those for which clouds issue tokens; what is wrong with one
// is reported by field.
func TestCredentialsForRegistries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const canary = "kx7f3ab9-never-in-clear"
	put := func(name string, more map[string]any) string {
		t.Helper()
		input := map[string]any{"name": name, "kind": "REGISTRY", "urlPrefixes": []string{"https://registry.example.com/shop"}, "value": canary}
		maps.Copy(input, more)
		a := f.ask(ours, `mutation($input: CreateCredentialInput!) { createCredential(input: $input) { credential { kind username
			ecr { accessKeyId region roleArn } gar { tokenUrl } acr { tenantId clientId } } errors { message field } } }`,
			map[string]any{"input": input})
		text := string(a.Data)
		if len(a.Errors) > 0 || strings.Contains(text, canary) {
			t.Errorf("%s: found %s, %v; want an answer without the value", name, text, a.Errors)
		}
		return text
	}
	ecr := map[string]any{"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "region": "eu-central-1"}
	acr := map[string]any{"tenantId": "shop.onmicrosoft.com", "clientId": "42"}
	for name, one := range map[string]struct {
		more map[string]any
		want string
	}{
		"basic":  {map[string]any{"username": "robot"}, `"kind":"REGISTRY","username":"robot","ecr":null,"gar":null,"acr":null`},
		"ecr":    {map[string]any{"ecr": ecr}, `"ecr":{"accessKeyId":"AKIAIOSFODNN7EXAMPLE","region":"eu-central-1","roleArn":""}`},
		"acr":    {map[string]any{"acr": acr}, `"acr":{"tenantId":"shop.onmicrosoft.com","clientId":"42"}`},
		"key":    {map[string]any{"gar": map[string]any{}}, `"field":["value"]`},
		"region": {map[string]any{"ecr": map[string]any{"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "region": "../x"}}, `"field":["ecr","region"]`},
		"none":   {map[string]any{"ecr": map[string]any{"accessKeyId": "", "region": ""}}, `"field":["ecr","accessKeyId"]`},
		"role":   {map[string]any{"ecr": map[string]any{"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "region": "eu-central-1", "roleArn": "x"}}, `"field":["ecr","roleArn"]`},
		"tenant": {map[string]any{"acr": map[string]any{"tenantId": "a/b", "clientId": "42"}}, `"field":["acr","tenantId"]`},
		"two":    {map[string]any{"ecr": ecr, "acr": acr}, `"errors":[{`},
		"kind":   {map[string]any{"kind": "HTTP", "ecr": ecr}, `"field":["kind"]`},
		"header": {map[string]any{"header": "X-Api-Key"}, `"field":["header"]`},
		"mail":   {map[string]any{"urlPrefixes": []string{"smtp://mail.example.com/"}}, `"field":["urlPrefixes","0"]`},
	} {
		if found := put(name, one.more); !strings.Contains(found, one.want) {
			t.Errorf("%s: found %s; want …%s…", name, found, one.want)
		}
	}
	rotated := f.ask(ours, `mutation { rotateCredential(input: {name: "ecr", value: "`+canary+`-2"}) { credential { version ecr { region } } errors { message } } }`, nil)
	if !strings.Contains(string(rotated.Data), `"version":2,"ecr":{"region":"eu-central-1"}`) {
		t.Errorf("found %s; want the second version of the same account", rotated.Data)
	}
}

// D56: a key of SSH is made and shown with the servers that are known, and without the key and its passphrase.
func TestACredentialOfAKeyOfSSH(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("canary"))
	if err != nil {
		t.Fatal(err)
	}
	key := "passphrase: canary\n" + string(pem.EncodeToMemory(block))
	put := func(known, value string) string {
		t.Helper()
		a := f.ask(ours, `mutation($input: CreateCredentialInput!) { createCredential(input: $input) {
			credential { kind urlPrefixes sshKey { knownHosts } githubApp { appId } } errors { message field } } }`,
			map[string]any{"input": map[string]any{
				"name": "deploy", "kind": "GIT", "urlPrefixes": []string{"ssh://git.example.com/team"},
				"sshKey": map[string]any{"knownHosts": known}, "value": value,
			}})
		text := string(a.Data)
		if len(a.Errors) > 0 || strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "canary") {
			t.Errorf("found %s, %v; want an answer without the key and its passphrase", text, a.Errors)
		}
		return text
	}
	const known = "git.example.com SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, wrong := range []string{put("", key), put("other.example.com SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", key)} {
		if !strings.Contains(wrong, `"sshKey","knownHosts"`) {
			t.Errorf("found %s; want a problem of the known hosts", wrong)
		}
	}
	if wrong := put(known, strings.Replace(key, "canary", "canaries", 1)); !strings.Contains(wrong, `"value"`) {
		t.Errorf("found %s; want a problem of the passphrase", wrong)
	}
	const want = `"sshKey":{"knownHosts":"` + known + `"},"githubApp":null`
	if found := put(known, key); !strings.Contains(found, want) || !strings.Contains(found, `"errors":[]`) {
		t.Errorf("found %s; want …%s…", found, want)
	}
}
