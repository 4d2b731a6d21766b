package sealing

import (
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// D56: each cloud by itself is right, is for registries only, is the only proof, and issues tokens over https only.
func TestTermsOfClouds(t *testing.T) {
	t.Parallel()
	ecr := ECR{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", Region: "eu-central-1", API: "https://ecr.example.com", STS: "https://sts.example.com"}
	gar := GAR{Key: true, TokenURL: "https://oauth2.example.com/token"}
	acr := ACR{Tenant: "shop.onmicrosoft.com", ClientID: "11111111-2222-3333-4444-555555555555", Authority: "https://login.example.com"}
	with := func(p Proof, change func(*Terms)) Terms {
		terms := Terms{Organization: 1, Name: "images", Version: 1, Kind: Registry, URLPrefixes: []string{"https://r.example.com/"}, Proof: p}
		if change != nil {
			change(&terms)
		}
		return terms
	}
	key := SSHKey{KnownHosts: "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
	for name, c := range map[string]struct {
		terms Terms
		wrong string // a field, or empty for terms that are right
	}{
		"ecr":               {with(Proof{ECR: ecr}, nil), ""},
		"ecr alone":         {with(Proof{ECR: ECR{AccessKeyID: ecr.AccessKeyID, Region: ecr.Region}}, nil), ""},
		"ecr for nothing":   {with(Proof{ECR: ECR{Region: "x"}}, nil), "/ecr/accessKeyId"},
		"gar":               {with(Proof{GAR: gar}, nil), ""},
		"gar alone":         {with(Proof{GAR: GAR{Key: true}}, nil), ""},
		"acr":               {with(Proof{ACR: acr}, nil), ""},
		"acr without":       {with(Proof{ACR: ACR{Tenant: acr.Tenant}}, nil), "/acr/clientId"},
		"ecr for http":      {with(Proof{ECR: ecr}, func(t *Terms) { t.Kind = HTTP }), "/kind"},
		"gar for git":       {with(Proof{GAR: gar}, func(t *Terms) { t.Kind = Git }), "/kind"},
		"acr for http":      {with(Proof{ACR: acr}, func(t *Terms) { t.Kind = HTTP }), "/kind"},
		"two":               {with(Proof{ECR: ecr, GAR: gar}, nil), "/ecr"},
		"a key of SSH":      {with(Proof{GAR: gar, SSHKey: key}, nil), "/gar"},
		"an App":            {with(Proof{ACR: acr, GitHubApp: GitHubApp{ID: "1"}}, nil), "/acr"},
		"a client":          {with(Proof{ACR: acr, OAuth2: OAuth2{ClientID: "x"}}, nil), "/acr"},
		"a user":            {with(Proof{GAR: gar}, func(t *Terms) { t.Username = "x" }), "/gar"},
		"a header":          {with(Proof{ECR: ecr}, func(t *Terms) { t.Header = "X-Key" }), "/ecr"},
		"http of ECR":       {with(Proof{ECR: ECR{AccessKeyID: ecr.AccessKeyID, Region: ecr.Region, API: "http://ecr.example.com"}}, nil), "/ecr/apiUrl"},
		"http of STS":       {with(Proof{ECR: ECR{AccessKeyID: ecr.AccessKeyID, Region: ecr.Region, STS: "HTTP://sts.example.com"}}, nil), "/ecr/stsUrl"},
		"http of GAR":       {with(Proof{GAR: GAR{Key: true, TokenURL: "http://oauth2.example.com/token"}}, nil), "/gar/tokenUrl"},
		"http of ACR":       {with(Proof{ACR: ACR{Tenant: acr.Tenant, ClientID: acr.ClientID, Authority: "http://login.example.com"}}, nil), "/acr/authorityUrl"},
		"a server of mails": {with(Proof{}, func(t *Terms) { t.URLPrefixes = []string{"smtp://mail.example.com/"} }), "/urlPrefixes/0"},
	} {
		found := c.terms.Check()
		if c.wrong == "" && len(found) > 0 || c.wrong != "" && !slices.ContainsFunc(found, func(f fault.Field) bool { return f.Name == c.wrong }) {
			t.Errorf("%s: found %v; want %q", name, found, c.wrong)
		}
	}
	// A key of SSH is the only proof, too.
	terms := with(Proof{SSHKey: key}, func(t *Terms) { t.Kind, t.URLPrefixes = Git, []string{"ssh://git.example.com/"} })
	if found := terms.Check(); len(found) > 0 {
		t.Errorf("a key of SSH: found %v", found)
	}
	if found := key.problems(terms); len(found) > 0 {
		t.Errorf("a key of SSH: found %v", found)
	}
	terms.Proof.ECR = ecr
	if found := key.problems(terms); !slices.Contains(found, "/sshKey") {
		t.Errorf("a key of SSH with a cloud: found %v; want /sshKey", found)
	}
}

// problems are the fields that are wrong with a key of terms.
func (k SSHKey) problems(t Terms) (fields []string) {
	k.check(t, func(field, _ string, _ ...any) { fields = append(fields, field) })
	return fields
}
