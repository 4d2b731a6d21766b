package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
	"github.com/lockstep-cd/lockstep/services/registry/internal/sigstore"
)

// SignerConfig is who is trusted to state something about images: either the holder of a key, or an identity whose certificates a root
// issues. Nothing is requested from the internet: roots are configured.
type SignerConfig struct {
	// Name is what policies and people know the signer by.
	Name string `koanf:"name"`
	// PublicKey is a reference, env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, to a public key in PEM, such as cosign.pub.
	PublicKey string `koanf:"public_key"`
	// TrustedRoot is a reference to a Sigstore trusted root as JSON (trusted_root.json), public or private. A signature has to have everything
	// that the root has the means to verify: an entry in its transparency log, and a time by log or time-stamp authority.
	TrustedRoot string `koanf:"trusted_root"`
	// Issuer is who has confirmed the identity, exactly as certificates name it, such as https://gitlab.example.com; only with trusted_root.
	Issuer string `koanf:"issuer"`
	// Subject is a pattern of the identities that count, in which * stands for any characters, such as
	// https://gitlab.example.com/shop/*; only with trusted_root.
	Subject string `koanf:"subject"`
	// May lists what the signer may state: signature, provenance, sbom, vulnerabilities, vex. Empty means everything.
	May []string `koanf:"may"`
	// BuildLevel is the SLSA level, 1 to 4, of provenance that the signer signs; 0 if it is not known.
	BuildLevel int `koanf:"build_level"`
	// Organizations are those whose images the signer is trusted for. Empty means all.
	Organizations []int64 `koanf:"organizations"`
}

// maxSigners bounds what each piece of evidence is verified with.
const maxSigners = 50

// signerProblems are invalid settings of signers.
func (c Config) signerProblems() []fault.Field {
	var problems []fault.Field
	if len(c.Signers) > maxSigners {
		problems = append(problems, fault.Field{Name: "signers", Problem: fmt.Sprintf("found %d; expected at most %d", len(c.Signers), maxSigners)})
	}
	names := map[string]bool{}
	for i, s := range c.Signers {
		wrong := func(key, format string, args ...any) {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("signers[%d].%s", i, key), Problem: fmt.Sprintf(format, args...)})
		}
		if !hookName.MatchString(s.Name) || names[s.Name] {
			wrong("name", "found %q; expected a name of its own, of lower-case letters, digits and hyphens", s.Name)
		}
		names[s.Name] = true
		for key, value := range map[string]string{"public_key": s.PublicKey, "trusted_root": s.TrustedRoot} {
			if value != "" && !reference.Is(value) {
				wrong(key, "found a value that is not a reference; %s", reference.Expected)
			}
		}
		switch {
		case (s.PublicKey == "") == (s.TrustedRoot == ""):
			wrong("public_key", "found %t and trusted_root %t; expected one of them", s.PublicKey != "", s.TrustedRoot != "")
		case s.TrustedRoot != "" && (s.Issuer == "" || s.Subject == ""):
			wrong("issuer", "found %q with the subject %q; expected both, because a root certifies everybody", s.Issuer, s.Subject)
		case s.PublicKey != "" && s.Issuer+s.Subject != "":
			wrong("issuer", "found an identity beside a key; expected it beside a trusted_root")
		}
		for _, one := range s.May {
			if !slices.Contains(prove.Kinds(), prove.Kind(one)) {
				wrong("may", "found %q; expected some of %v", one, prove.Kinds())
			}
		}
		if s.BuildLevel < 0 || s.BuildLevel > 4 {
			wrong("build_level", "found %d; expected 1 to 4, or 0 for none", s.BuildLevel)
		}
		if slices.ContainsFunc(s.Organizations, func(id int64) bool { return id < 1 }) {
			wrong("organizations", "found %v; expected organizations' numbers", s.Organizations)
		}
	}
	return problems
}

// signers are the configured ones. Their keys and roots are read when they are used, so that they can be replaced.
func (c Config) signers(secrets *secret.Reader) sigstore.Signers {
	all := make([]sigstore.Signer, len(c.Signers))
	for i, s := range c.Signers {
		all[i] = sigstore.Signer{
			Name: s.Name, Issuer: s.Issuer, Subject: s.Subject, BuildLevel: s.BuildLevel, Organizations: s.Organizations,
		}
		for _, one := range s.May {
			all[i].Kinds = append(all[i].Kinds, prove.Kind(one))
		}
		if s.PublicKey != "" {
			all[i].Key = func(ctx context.Context) (string, error) { return secrets.Read(ctx, s.PublicKey) }
		} else {
			all[i].Root = func(ctx context.Context) (string, error) { return secrets.Read(ctx, s.TrustedRoot) }
		}
	}
	return sigstore.New(all)
}
