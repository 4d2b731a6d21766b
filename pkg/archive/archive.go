// Package archive keeps what is deleted from the database in a bucket of an S3-compatible object storage, each object with the SHA-256 of
// its content, which is compared whenever it is read.
package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

// Config says where the bucket is. Without an endpoint there is no archive.
type Config struct {
	// Endpoint is the storage's host, with an optional port: s3.eu-central-1.amazonaws.com, minio.storage:9000. Empty for no archive.
	Endpoint string `koanf:"endpoint"`
	// Bucket is the name of the bucket, which has to exist.
	Bucket string `koanf:"bucket"`
	// Prefix is what the names of all objects begin with; several installations may share a bucket.
	Prefix string `koanf:"prefix" default:"lockstep"`
	// Region is the bucket's region, for storages that have several.
	Region string `koanf:"region" default:"us-east-1"`
	// AccessKeyRef and SecretKeyRef are references to the key pair: env:NAME, file:/path, k8s:namespace/name#key or vault:path#key. They
	// are resolved again every minute.
	AccessKeyRef string `koanf:"access_key_ref"`
	SecretKeyRef string `koanf:"secret_key_ref"`
	// CAFile holds certificate authorities of the storage, in addition to the system's; empty for the system's alone.
	CAFile string `koanf:"ca_file"`
	// Plain connects without TLS; only for a storage on the same machine, or behind a proxy that encrypts.
	Plain bool `koanf:"plain"`
}

// Check finds what is wrong with the settings.
func (c Config) Check() (problems []fault.Field) {
	if c.Endpoint == "" {
		if c.Bucket != "" {
			problems = append(problems, fault.Field{Name: "archive.bucket", Problem: "found without archive.endpoint, expected both or neither"})
		}
		return problems
	}
	if strings.Contains(c.Endpoint, "/") {
		problems = append(problems, fault.Field{
			Name: "archive.endpoint", Problem: fmt.Sprintf("found %q, expected a host with an optional port, without a scheme", c.Endpoint),
		})
	}
	if c.Bucket == "" {
		problems = append(problems, fault.Field{Name: "archive.bucket", Problem: "missing, expected the name of a bucket"})
	}
	if strings.HasPrefix(c.Prefix, "/") || strings.HasSuffix(c.Prefix, "/") {
		problems = append(problems, fault.Field{Name: "archive.prefix", Problem: fmt.Sprintf("found %q, expected no slash at its ends", c.Prefix)})
	}
	for _, ref := range []struct{ name, value string }{
		{"archive.access_key_ref", c.AccessKeyRef}, {"archive.secret_key_ref", c.SecretKeyRef},
	} {
		if !reference.Is(ref.value) {
			problems = append(problems, fault.Field{Name: ref.name, Problem: "missing or malformed; " + reference.Expected})
		}
	}
	return problems
}

// MostObject bounds an object that is read, in bytes.
const MostObject = 1 << 30

// requestTimeout bounds what one request to the storage may take, its body included.
const requestTimeout = 5 * time.Minute

// Object is an object of the bucket.
type Object struct {
	// Name is its name below the prefix.
	Name string
	// Size is in bytes.
	Size int64
	// At is when it was stored.
	At time.Time
}

// Bucket is a bucket of a storage. It is safe for concurrent use.
type Bucket struct {
	client *minio.Client
	bucket string
	prefix string
}

// Open makes a Bucket, nil without an endpoint. It connects to nothing yet.
func Open(c Config, secrets *secret.Reader, now clock.Clock, log *slog.Logger) (*Bucket, error) {
	if c.Endpoint == "" {
		return nil, nil //nolint:nilnil // no archive is configured
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4,
	}
	trust, err := certs.Beside(c.CAFile, log)
	if err != nil {
		return nil, fmt.Errorf("archive.ca_file: %w", err)
	}
	if trust != nil {
		host, _, err := net.SplitHostPort(c.Endpoint)
		if err != nil {
			host = c.Endpoint
		}
		transport.TLSClientConfig = trust.Config(host)
	}
	client, err := minio.New(c.Endpoint, &minio.Options{
		Creds:  credentials.New(&keys{config: c, secrets: secrets, clock: now}),
		Secure: !c.Plain, Transport: transport, Region: c.Region, MaxRetries: 3,
	})
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "archive.endpoint: found %q", c.Endpoint)
	}
	return &Bucket{client: client, bucket: c.Bucket, prefix: c.Prefix}, nil
}

// keys resolves the key pair, again after a minute.
type keys struct {
	config  Config
	secrets *secret.Reader
	clock   clock.Clock
	at      time.Time
}

func (k *keys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return k.Retrieve()
}

func (k *keys) Retrieve() (credentials.Value, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	access, err := k.secrets.Read(ctx, k.config.AccessKeyRef)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("archive.access_key_ref: %w", err)
	}
	secretKey, err := k.secrets.Read(ctx, k.config.SecretKeyRef)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("archive.secret_key_ref: %w", err)
	}
	k.at = k.clock.Now()
	return credentials.Value{AccessKeyID: access, SecretAccessKey: secretKey, SignerType: credentials.SignatureV4}, nil
}

func (k *keys) IsExpired() bool { return k.clock.Now().Sub(k.at) > time.Minute }

// digestKey is the member of an object's metadata with the SHA-256 of its content, hexadecimal.
const digestKey = "Sha256"

// Put stores an object, in place of one of the same name. It returns when the storage has confirmed it. The error is Unavailable if the
// storage cannot be reached or refuses.
func (b *Bucket) Put(ctx context.Context, name, contentType string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	put, err := b.client.PutObject(ctx, b.bucket, b.key(name), bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{
		ContentType: contentType, UserMetadata: map[string]string{digestKey: digest}, DisableMultipart: len(content) < 16<<20,
	})
	if err != nil {
		return classify(err, "store %s", name)
	}
	if put.Size != int64(len(content)) {
		return fault.New(fault.Unavailable, "store %s: the storage confirmed %d bytes, expected %d", name, put.Size, len(content))
	}
	return nil
}

// Get reads an object and compares its content with its digest. The error is NotFound if there is none, and Terminal if its content is
// not what was stored.
func (b *Bucket) Get(ctx context.Context, name string) ([]byte, error) {
	return b.GetUpTo(ctx, name, MostObject)
}

// GetUpTo is Get for an object of at most so many bytes; a larger one is not read, and the error is Invalid.
func (b *Bucket) GetUpTo(ctx context.Context, name string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := b.client.GetObject(ctx, b.bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, classify(err, "read %s", name)
	}
	defer func() { _ = object.Close() }() // what it reports is about what was not read
	info, err := object.Stat()
	if err != nil {
		return nil, classify(err, "read %s", name)
	}
	if info.Size > most {
		return nil, fault.New(fault.Invalid, "read %s: found %d bytes, expected at most %d", name, info.Size, most)
	}
	content, err := io.ReadAll(io.LimitReader(object, most))
	if err != nil {
		return nil, classify(err, "read %s", name)
	}
	sum := sha256.Sum256(content)
	if found, stored := hex.EncodeToString(sum[:]), info.UserMetadata[digestKey]; found != stored {
		return nil, fault.New(fault.Terminal, "%s was changed after it was archived: found SHA-256 %s, expected %s", name, found, stored)
	}
	return content, nil
}

// List lists the objects whose names begin with a prefix, by name, after a name.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx) // ends the listing when the caller stops
		defer cancel()
		options := minio.ListObjectsOptions{Prefix: b.key(prefix), Recursive: true}
		if after != "" {
			options.StartAfter = b.key(after)
		}
		for found := range b.client.ListObjectsIter(ctx, b.bucket, options) {
			if found.Err != nil {
				yield(Object{}, classify(found.Err, "list %s", prefix))
				return
			}
			name := strings.TrimPrefix(found.Key, b.key(""))
			if !yield(Object{Name: name, Size: found.Size, At: found.LastModified}, nil) {
				return
			}
		}
	}
}

func (b *Bucket) key(name string) string {
	if b.prefix == "" {
		return name
	}
	return b.prefix + "/" + name
}

// classify says what an error of the storage is.
func classify(err error, format string, args ...any) error {
	doing := fmt.Sprintf("archive: "+format, args...)
	response := minio.ErrorResponse{}
	known := &fault.Error{}
	switch {
	case errors.Is(err, context.Canceled) || errors.As(err, &known): // the latter is about the key pair
		return fmt.Errorf("%s: %w", doing, err)
	case errors.As(err, &response) && response.Code == minio.NoSuchKey:
		return fault.New(fault.NotFound, "%s: there is no such object", doing)
	case errors.As(err, &response) && response.Code != "":
		return fault.New(fault.Unavailable, "%s: the storage answered %s", doing, response.Code)
	default:
		return fault.Because(err, fault.Unavailable, "%s", doing)
	}
}
