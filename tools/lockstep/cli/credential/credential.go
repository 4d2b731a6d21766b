// Package credential has the commands about credentials of organizations, and about the keyset that their values are sealed with.
package credential

import (
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("credential", "", "Credentials: what programs log in with, known to them by name",
			own.list(), own.show(), own.create(), own.rotate(), own.revoke()),
		command.Noun("keyset", "", "Keysets: the keys that values of credentials are sealed with, in a file",
			own.keys(), own.createKeyset(), own.addKey(), own.promoteKey(), own.removeKey()),
	}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func table(w io.Writer, all []client.Credential) {
	command.Row(w, "NAME", "KIND", "STATE", "VERSION", "VALUE", "EXPIRES", "URLS")
	for _, c := range all {
		expires, value := "", "sealed"
		if c.ExpiresAt != nil {
			expires = command.Moment(*c.ExpiresAt)
		}
		if !c.Sealed {
			value = c.Reference
		}
		command.Row(w, c.Name, journal.Human(c.Kind), journal.Human(c.State), command.Number(c.Version), value, expires,
			strings.Join(c.URLPrefixes, " "))
	}
}

func (c commands) print(one client.Credential) error {
	return c.Print(one, func(w io.Writer) { table(w, []client.Credential{one}) })
}

func (c commands) list() *cobra.Command {
	return c.Asking("list", "List the credentials, without their values", "  lockstep credential list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Credentials(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
}

func (c commands) show() *cobra.Command {
	return c.Asking("show NAME", "Show a credential, without its value", "  lockstep credential show api", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Credentials(cmd.Context())
			if err != nil {
				return err
			}
			for _, one := range all {
				if one.Name == args[0] {
					return c.print(one)
				}
			}
			return fault.New(fault.NotFound, "credential %q does not exist", args[0])
		})
}

// value are the flags of a value, which is never a flag itself: it would be visible in the list of processes and in the shell's history.
type value struct {
	file, reference, reason string
	// passphrase is the file that has that of a private key of SSH.
	passphrase string
	expires    time.Duration
}

func (v *value) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.file, "value-file", "-", "the `file` that has the value; - for standard input")
	cmd.Flags().StringVar(&v.reference, "reference", "", "a `reference` to the value instead, such as vault:secret/data/shop/api#token")
	cmd.Flags().StringVar(&v.passphrase, "passphrase-file", "", "of a private key of SSH that is encrypted: the `file` that has its passphrase")
	command.DurationFlag(cmd, &v.expires, "expires-in", 0, "when the value ends where it is used, such as 90d; it is reported 14 days before")
	reasoned(cmd, &v.reason)
}

func reasoned(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the journal")
}

// read is the value that the flags name.
func (v *value) read(cmd *cobra.Command, now time.Time) (given client.CredentialValue, err error) {
	given.Reference = v.reference
	if v.expires > 0 {
		at := now.Add(v.expires)
		given.ExpiresAt = &at
	}
	if v.reference != "" {
		if cmd.Flags().Changed("value-file") {
			return given, fault.New(fault.Invalid, "found --value-file and --reference; expected one of them")
		}
		if v.passphrase != "" {
			return given, fault.New(fault.Invalid, "found --passphrase-file and --reference; expected the passphrase in what it refers to, in a line before the key (passphrase: …)")
		}
		return given, nil
	}
	from := cmd.InOrStdin()
	if v.file != "-" {
		file, err := os.Open(v.file)
		if err != nil {
			return given, fault.Because(err, fault.Invalid, "--value-file: %s", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, sealing.MaxValue+2))
	if err != nil {
		return given, fault.Because(err, fault.Invalid, "the value cannot be read: %s", err)
	}
	// Editors and echo end a text with a line break that is not part of the value.
	if given.Value = strings.TrimRight(string(text), "\r\n"); given.Value == "" {
		return given, fault.New(fault.Invalid, "found no value on standard input or in --value-file; expected it, or --reference")
	}
	if v.passphrase != "" {
		passphrase, err := textOf("passphrase-file", v.passphrase, "the passphrase of the key")
		if err != nil {
			return given, err
		}
		if passphrase = strings.TrimRight(passphrase, "\r\n"); strings.ContainsAny(passphrase, "\r\n") {
			return given, fault.New(fault.Invalid, "--passphrase-file: found several lines in %s; expected the passphrase in one", v.passphrase)
		}
		given.Value = sshkey.Join(passphrase, given.Value)
	}
	return given, nil
}

func (c commands) create() *cobra.Command {
	var n client.Credential
	var v value
	var token client.CredentialOAuth2
	var certificate bool
	var authorities string
	var app client.CredentialGitHubApp
	var of clouds
	var key sshKey
	cmd := c.Asking("create NAME", "Make a credential. The value is read from standard input or a file, and never shown again",
		"  lockstep credential create api --kind http --url https://api.example.com/v1 < token.txt\n"+
			"  lockstep credential create manifests --kind git --url https://git.example.com/shop --username bot --value-file token.txt --expires-in 90d\n"+
			"  lockstep credential create hub --kind http --url https://hub.example.com/ --header X-Api-Key --reference vault:secret/data/shop/hub#key\n"+
			"  lockstep credential create approvals --kind http --url https://approvals.example.com/ --token-url https://id.example.com/token --client-id lockstep --scope read < secret.txt\n"+
			"  cat client.pem client-key.pem | lockstep credential create inner --kind http --url https://inner.example.com/ --client-certificate --ca inner-ca.pem\n"+
			"  lockstep credential create team --kind git --url https://github.com/team --forge github --github-app Iv23liAbCdEf --installation 12345678 --value-file team.private-key.pem\n"+
			"  lockstep credential create images --kind registry --url https://registry.example.com/shop --username robot < password.txt\n"+
			"  lockstep credential create ecr --kind registry --url https://123456789012.dkr.ecr.eu-central-1.amazonaws.com/ --ecr AKIAIOSFODNN7EXAMPLE --region eu-central-1 < secret.txt"+"\n"+
			"  lockstep credential create deploy --kind git --url ssh://git.example.com/shop --ssh-key id_ed25519 --known-hosts known_hosts",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) (err error) {
			if n.SSHKey, err = key.read(cmd, &v); err != nil {
				return err
			}
			given, err := v.read(cmd, c.Clock.Now())
			if err != nil {
				return err
			}
			n.Name, n.Kind = args[0], strings.ToUpper(n.Kind)
			of.onto(cmd, &n, token.TokenURL, app.APIURL)
			flagged := cmd.Flags().Changed
			if slices.ContainsFunc([]string{"client-id", "scope", "send"}, flagged) || flagged("token-url") && n.GAR == nil {
				token.Scopes = append([]string{}, token.Scopes...)
				n.OAuth2 = &token
			}
			if slices.ContainsFunc([]string{"github-app", "installation"}, flagged) || flagged("api-url") && n.ECR == nil {
				n.GitHubApp = &app
			}
			if certificate {
				n.Certificate = &client.CredentialCertificate{}
			}
			if cmd.Flags().Changed("ca") {
				n.Certificate = &client.CredentialCertificate{}
				if n.Certificate.CA, err = textOf("ca", authorities, "certificates in PEM"); err != nil {
					return err
				}
			}
			made, err := api.CreateCredential(cmd.Context(), n, given, v.reason)
			if err != nil {
				return err
			}
			return c.print(made)
		})
	command.WordFlag(cmd, &n.Kind, "kind", "http", "what it is for", []string{"http", "git", "registry"})
	cmd.Flags().StringArrayVar(&n.URLPrefixes, "url", nil, "a `URL` that the value may be sent to: scheme, host and the beginning of a path; repeatable")
	_ = cmd.MarkFlagRequired("url")
	cmd.Flags().StringVar(&n.Username, "username", "", "makes it a user `name` and a password; otherwise http and registry are a bearer token")
	cmd.Flags().StringVar(&n.Header, "header", "", "makes it the value of that `header`, such as X-Api-Key")
	command.WordFlag(cmd, &n.Forge, "forge", "", "of git: the interface of the repositories", []string{"git", "gitlab", "github", "gitea", "bitbucket"})
	cmd.Flags().StringVar(&token.TokenURL, "token-url", "", "makes it a client of OAuth 2.0: the `URL` where tokens are issued; the value is the client's secret")
	cmd.Flags().StringVar(&token.ClientID, "client-id", "", "of OAuth 2.0: the `id` of the client")
	cmd.Flags().StringArrayVar(&token.Scopes, "scope", nil, "of OAuth 2.0: a `scope` of the tokens; repeatable")
	command.WordFlag(cmd, &token.Send, "send", "header", "of OAuth 2.0: how the client proves itself", []string{"header", "body"})
	cmd.Flags().BoolVar(&certificate, "client-certificate", false, "the value is a certificate and its key, in PEM, which connections are opened with")
	cmd.Flags().StringVar(&authorities, "ca", "", "with --client-certificate: a `file` with the authorities that may vouch for the servers, in PEM")
	cmd.Flags().StringVar(&app.AppID, "github-app", "", "of git: makes it a GitHub App with this App `ID` or client ID; the value is the App's private key, in PEM")
	cmd.Flags().StringVar(&app.InstallationID, "installation", "", "of a GitHub App: the `number` of its installation, which the installation's address ends with")
	cmd.Flags().StringVar(&app.APIURL, "api-url", "", "of a GitHub App: the `URL` of GitHub's REST API, if it is neither https://api.github.com nor https://HOST/api/v3")
	of.flags(cmd)
	key.flags(cmd)
	v.flags(cmd)
	return cmd
}

// clouds are the flags of accounts of clouds, for which tokens of registries are issued.
type clouds struct {
	ecr client.CredentialECR
	gar bool
	acr client.CredentialACR
}

func (c *clouds) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.ecr.AccessKeyID, "ecr", "", "of registry: makes it an account of AWS with this `ID` of an access key; the value is the secret access key (--api-url: where tokens are issued)")
	cmd.Flags().StringVar(&c.ecr.Region, "region", "", "of ECR: the `region` of the registry")
	cmd.Flags().StringVar(&c.ecr.RoleARN, "role", "", "of ECR: the `ARN` of a role that is assumed first")
	cmd.Flags().StringVar(&c.ecr.STSURL, "sts-url", "", "of ECR: the `URL` where roles are assumed, if it is not https://sts.REGION.amazonaws.com")
	cmd.Flags().BoolVar(&c.gar, "gar", false, "of registry: makes it a service account of Google Cloud; the value is its key, in JSON (--token-url: where tokens are issued)")
	cmd.Flags().StringVar(&c.acr.ClientID, "acr", "", "of registry: makes it a service principal of Azure with this application (client) `ID`; the value is its secret")
	cmd.Flags().StringVar(&c.acr.TenantID, "tenant", "", "of ACR: the `ID` of the principal's tenant, or its domain")
	cmd.Flags().StringVar(&c.acr.AuthorityURL, "authority-url", "", "of ACR: the `URL` where the principal proves itself, if it is not https://login.microsoftonline.com")
}

// onto adds the account of a cloud that the flags have.
func (c *clouds) onto(cmd *cobra.Command, n *client.Credential, tokenURL, apiURL string) {
	if slices.ContainsFunc([]string{"ecr", "region", "role", "sts-url"}, cmd.Flags().Changed) {
		c.ecr.APIURL, n.ECR = apiURL, &c.ecr
	}
	if c.gar {
		n.GAR = &client.CredentialGAR{TokenURL: tokenURL}
	}
	if slices.ContainsFunc([]string{"acr", "tenant", "authority-url"}, cmd.Flags().Changed) {
		n.ACR = &c.acr
	}
}

// textOf is the text of a file that a flag names.
func textOf(flag, file, expected string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fault.Because(err, fault.Invalid, "--%s: %s", flag, err)
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", fault.New(fault.Invalid, "--%s: found nothing in %s; expected %s", flag, file, expected)
	}
	return string(text), nil
}

func (c commands) rotate() *cobra.Command {
	var v value
	cmd := c.Asking("rotate NAME", "Give a credential another value, which the next use gets",
		"  lockstep credential rotate api --value-file token.txt --reason 'quarterly rotation'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			given, err := v.read(cmd, c.Clock.Now())
			if err != nil {
				return err
			}
			rotated, err := api.RotateCredential(cmd.Context(), args[0], given, v.reason)
			if err != nil {
				return err
			}
			return c.print(rotated)
		})
	v.flags(cmd)
	return cmd
}

func (c commands) revoke() *cobra.Command {
	var reason string
	cmd := c.Asking("revoke NAME", "End a credential: its value is deleted, and uses of its name fail",
		"  lockstep credential revoke api --reason leaked", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			revoked, err := api.RevokeCredential(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.print(revoked)
		})
	reasoned(cmd, &reason)
	return cmd
}
