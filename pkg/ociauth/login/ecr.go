package login

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
)

// keys are what requests to AWS are signed with.
type keys struct{ id, secret, session string }

// amazon is the domain of AWS for a region.
func amazon(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}

// ecr has a token of ECR issued (GetAuthorizationToken), after a role was assumed if the credential has one.
func (u *Use) ecr(ctx context.Context, value string) (book.Token, error) {
	e := u.credential.Proof.ECR
	k := keys{id: e.AccessKeyID, secret: value}
	if e.Role != "" {
		var err error
		if k, err = u.assume(ctx, e, k); err != nil {
			return book.Token{}, err
		}
	}
	target := addressOr(e.API, "https://api.ecr."+e.Region+"."+amazon(e.Region)) + "/"
	var issued struct {
		Data []struct {
			Token string  `json:"authorizationToken"`
			End   float64 `json:"expiresAt"`
		} `json:"authorizationData"`
	}
	err := u.signed(ctx, k, "ecr", target, http.Header{
		"Content-Type": {"application/x-amz-json-1.1"}, "X-Amz-Target": {"AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"},
	}, []byte("{}"), json.Unmarshal, &issued)
	if err != nil {
		return book.Token{}, err
	}
	if len(issued.Data) == 0 {
		return book.Token{}, u.unread(target)
	}
	// It is a user name, which is always the same, and the password, as basic authentication has them.
	raw, err := base64.StdEncoding.DecodeString(issued.Data[0].Token)
	user, password, found := strings.Cut(string(raw), ":")
	if err != nil || !found || user != userECR {
		return book.Token{}, u.unread(target)
	}
	good := time.Unix(int64(issued.Data[0].End), 0).Sub(u.logins.d.Clock.Now())
	return u.token(ctx, target, password, min(good, 12*time.Hour))
}

// assume has keys of a role issued (AssumeRole).
func (u *Use) assume(ctx context.Context, e sealing.ECR, k keys) (keys, error) {
	target := addressOr(e.STS, "https://sts."+e.Region+"."+amazon(e.Region)) + "/"
	body := url.Values{
		"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {e.Role}, "RoleSessionName": {"lockstep"}, "DurationSeconds": {"900"},
	}.Encode()
	var answer struct {
		Keys struct {
			ID      string `xml:"AccessKeyId"`
			Secret  string `xml:"SecretAccessKey"`
			Session string `xml:"SessionToken"`
		} `xml:"AssumeRoleResult>Credentials"`
	}
	err := u.signed(ctx, k, "sts", target, http.Header{
		"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"},
	}, []byte(body), xml.Unmarshal, &answer)
	if err != nil {
		return keys{}, err
	}
	of := answer.Keys
	if of.ID == "" || of.Secret == "" || !tokenForm.MatchString(of.Session) {
		return keys{}, u.unread(target)
	}
	u.logins.d.Conceal(ctx, of.Secret)
	u.logins.d.Conceal(ctx, of.Session)
	return keys{of.ID, of.Secret, of.Session}, nil
}

// signed sends a request that is signed (Signature Version 4 of AWS).
func (u *Use) signed(
	ctx context.Context, k keys, service, target string, header http.Header, body []byte, decode func([]byte, any) error, into any,
) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return fault.New(fault.Unauthenticated, "the address where tokens of the credential %q are issued cannot be used", u.Name())
	}
	request.Header = header
	sum := sha256.Sum256(body)
	with := aws.Credentials{AccessKeyID: k.id, SecretAccessKey: k.secret, SessionToken: k.session}
	region, now := u.credential.Proof.ECR.Region, u.logins.d.Clock.Now()
	err = v4.NewSigner().SignHTTP(ctx, with, request, hex.EncodeToString(sum[:]), service, region, now)
	if err != nil {
		return fault.New(fault.Unauthenticated, "the credential %q does not sign", u.Name())
	}
	return u.post(request, decode, into)
}
