package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

const (
	// images are how many applications the flood is for, of one service each.
	images = 50
	// senders deliver at the same time, and retry like every sender of webhooks.
	senders = 32
	// drainWithin is how long the domain may take for what has piled up.
	drainWithin = 15 * time.Minute
)

// application makes an application of one service with one image.
func (w *world) application(ctx context.Context, name, image string) error {
	_, err := w.api.Ask(ctx, `mutation($input: CreateApplicationInput!) { createApplication(input: $input) { application { id } errors { field message code } } }`,
		map[string]any{"input": map[string]any{
			"name": name, "description": "",
			"services": []map[string]any{{"name": "api", "artifactSources": []map[string]any{
				{"sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": image}},
			}}},
		}})
	return err
}

// post delivers a document and answers the status.
func (w *world) post(ctx context.Context, path, media, authorization string, body []byte) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.deliveries+path, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("Authorization", "Bearer "+authorization)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, fmt.Errorf("deliver: %w", err)
	}
	return answer.StatusCode, answer.Body.Close()
}

// latency pushes an index of two platforms and reports it, again and again: from the delivery's first byte to the version
// set in the domain's tables. Without a digest, the tag is looked up at the OCI registry on the way.
func latency(ctx context.Context, w *world, o options) ([]figure, error) {
	if o.pushes == 0 {
		return nil, nil
	}
	image := w.host() + "/shop/api"
	if err := w.application(ctx, "shop", image); err != nil {
		return nil, err
	}
	var figures []figure
	for _, digested := range []bool{true, false} {
		var took []time.Duration
		for i := range o.pushes {
			tag := fmt.Sprintf("1.%d.%v", i, digested)
			digest, err := w.push(ctx, image+":"+tag)
			if err != nil {
				return nil, err
			}
			body := fmt.Appendf(nil, `{"image":%q,"tag":%q}`, image, tag)
			if digested {
				body = fmt.Appendf(nil, `{"image":%q,"tag":%q,"digest":%q}`, image, tag, digest)
			}
			began := clock.System().Now()
			if status, err := w.post(ctx, w.images, "application/json", secret, body); err != nil || status != http.StatusAccepted {
				return nil, fmt.Errorf("deliver %s: answered %d, %w", tag, status, err)
			}
			if err := w.await(ctx, time.Minute, `SELECT count(*) FROM domain.cd_version_set_entries e JOIN domain.cd_versions v ON v.id = e.version_id WHERE v.digest = $1`, 1, digest); err != nil {
				return nil, err
			}
			took = append(took, clock.System().Now().Sub(began))
		}
		f := figure{Name: "webhook to version set, digest reported", N: o.pushes, Note: "signed index of two platforms, TLS, password"}
		if !digested {
			f.Name = "webhook to version set, digest looked up"
		}
		f.P50, f.P99 = probe.Percentiles(took)
		figures = append(figures, f)
	}
	return figures, nil
}

// push pushes an index as a client does, and what refers to it as signing tools do.
func (w *world) push(ctx context.Context, reference string) (string, error) {
	tag, err := name.NewTag(reference)
	if err != nil {
		return "", fmt.Errorf("name %s: %w", reference, err)
	}
	index, err := random.Index(1000, 1, 2)
	if err != nil {
		return "", fmt.Errorf("make an index: %w", err)
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(w.oci.Client().Transport),
		remote.WithAuth(&authn.Basic{Username: username, Password: secret}),
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	subject, err := partial.Descriptor(index)
	if err != nil {
		return "", fmt.Errorf("describe %s: %w", reference, err)
	}
	signature, err := random.Image(100, 1)
	if err != nil {
		return "", fmt.Errorf("make a signature: %w", err)
	}
	referrer, ok := mutate.Subject(signature, *subject).(v1.Image)
	if !ok {
		return "", fmt.Errorf("the signature of %s is a %T", reference, referrer)
	}
	digest, err := referrer.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of a signature: %w", err)
	}
	if err := remote.Write(tag.Context().Digest(digest.String()), referrer, options...); err != nil {
		return "", fmt.Errorf("push the signature of %s: %w", reference, err)
	}
	return subject.Digest.String(), nil
}

// await looks every two milliseconds until a count is what it has to be.
func (w *world) await(ctx context.Context, within time.Duration, query string, want int, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		var n int
		if err := w.db.QueryRow(ctx, query, args...).Scan(&n); err != nil {
			return fmt.Errorf("count: %w", err)
		}
		if n >= want {
			return nil
		}
		pause := 2 * time.Millisecond
		if want > 1 {
			pause = 200 * time.Millisecond
		}
		if clock.Sleep(ctx, clock.System(), pause) != nil {
			return fmt.Errorf("found %d; expected %d within %s", n, want, within)
		}
	}
}

// flood delivers CloudEvents at a steady rate, one a request, each of an image of its own digest. After a third of the time
// the domain is restarted, after two thirds NATS; both are away for a twelfth of it. Every event has to become a version.
func flood(ctx context.Context, w *world, o options) ([]figure, error) {
	if o.rate == 0 {
		return nil, nil
	}
	for i := range images {
		if err := w.application(ctx, fmt.Sprintf("flood-%d", i), fmt.Sprintf("flood.example.com/shop/api-%d", i)); err != nil {
			return nil, err
		}
	}
	total := int(float64(o.rate) * o.lasting.Seconds())
	var (
		group         sync.WaitGroup
		queue         = make(chan int, total)
		mu            sync.Mutex
		took          []time.Duration
		again, failed atomic.Int64
	)
	for range senders {
		group.Go(func() {
			for i := range queue {
				sum := sha256.Sum256(fmt.Appendf(nil, "flood %d", i))
				body := fmt.Appendf(nil, `{"specversion":"1.0","id":"flood-%d","source":"/bench","type":"com.gitlab.cd.artifact.published","data":{"image":"flood.example.com/shop/api-%d","digest":"sha256:%s","tag":"%d"}}`,
					i, i%images, hex.EncodeToString(sum[:]), i)
				began := clock.System().Now()
				for attempt := 1; ; attempt++ {
					status, err := w.post(ctx, "/v1/events", "application/cloudevents+json", token, body)
					if err == nil && status == http.StatusAccepted {
						break
					}
					if again.Add(1); attempt == 20 || ctx.Err() != nil {
						failed.Add(1)
						break
					}
					_ = clock.Sleep(ctx, clock.System(), 100*time.Millisecond) // ended early, the next attempt sees why
				}
				mu.Lock()
				took = append(took, clock.System().Now().Sub(began))
				mu.Unlock()
			}
		})
	}
	began := clock.System().Now()
	disturbed := make(chan error, 1)
	go func() { disturbed <- w.disturb(ctx, o.lasting) }()
	const tick = 10 * time.Millisecond
	for sent := 0; sent < total; {
		due := min(total, int(clock.System().Now().Sub(began).Seconds()*float64(o.rate)))
		for ; sent < due; sent++ {
			queue <- sent
		}
		if err := clock.Sleep(ctx, clock.System(), tick); err != nil {
			return nil, err
		}
	}
	close(queue)
	group.Wait()
	delivered := clock.System().Now().Sub(began)
	if err := <-disturbed; err != nil {
		return nil, err
	}
	if failed.Load() > 0 {
		return nil, fmt.Errorf("%d deliveries were not taken in 20 attempts", failed.Load())
	}
	if err := w.await(ctx, drainWithin, `SELECT count(*) FROM domain.cd_versions WHERE reference LIKE 'flood.example.com/%'`,
		total); err != nil {
		// Whether they are lost or wait says the outbox, which keeps them until the domain has them.
		var waiting int
		if err := w.db.QueryRow(ctx, `SELECT count(*) FROM registry.outbox`).Scan(&waiting); err != nil {
			return nil, fmt.Errorf("count what waits: %w", err)
		}
		return nil, fmt.Errorf("not every event is a version: %w; %d wait in the outbox", err, waiting)
	}
	there := clock.System().Now()
	sets, last, err := w.sets(ctx)
	if err != nil {
		return nil, err
	}
	f := figure{Name: "delivery answered, domain and NATS restarted", N: total, Note: fmt.Sprintf(
		"%.0f a second for %s, %d sent again, none lost; after the last one %s until all were versions, and %s until the last of %d version sets",
		float64(total)/delivered.Seconds(), delivered.Round(time.Second), again.Load(),
		there.Sub(began.Add(delivered)).Round(100*time.Millisecond),
		last.Sub(began.Add(delivered)).Round(100*time.Millisecond), sets)}
	f.P50, f.P99 = probe.Percentiles(took)
	return []figure{f}, nil
}

// sets checks whether each application of the flood has a version set of its latest version, once all versions exist, and
// returns how many sets there are and when the last one was made. There are as many as versions, except for those that were
// published after a newer one.
func (w *world) sets(ctx context.Context) (n int, last time.Time, err error) {
	var behind int
	err = w.db.QueryRow(ctx, `
		SELECT count(*), max(s.created_at), (
			SELECT count(*) FROM domain.cd_services c JOIN domain.cd_artifact_sources o ON o.service_id = c.id
			CROSS JOIN LATERAL (SELECT v.id FROM domain.cd_versions v WHERE v.artifact_source_id = o.id
			ORDER BY v.published_at DESC, v.id DESC LIMIT 1) latest
			WHERE o.match_key LIKE '%flood.example.com/%' AND NOT EXISTS (SELECT FROM domain.cd_version_set_entries e
			WHERE e.version_id = latest.id))
		FROM domain.cd_version_sets s JOIN domain.cd_applications a ON a.id = s.application_id WHERE a.name LIKE 'flood-%'`).Scan(&n, &last,
		&behind)
	if err == nil && behind > 0 {
		err = fmt.Errorf("the latest versions of %d applications are in no version set", behind)
	}
	if err != nil {
		return 0, last, fmt.Errorf("look at the version sets: %w", err)
	}
	return n, last, nil
}

// disturb restarts the domain and then NATS.
func (w *world) disturb(ctx context.Context, lasting time.Duration) error {
	away := func() error { return clock.Sleep(ctx, clock.System(), lasting/12) }
	if err := clock.Sleep(ctx, clock.System(), lasting/3); err != nil {
		return err
	}
	if err := w.domain(); err != nil {
		return err
	}
	if err := away(); err != nil {
		return err
	}
	w.startDomain(ctx)
	if err := clock.Sleep(ctx, clock.System(), lasting/3); err != nil {
		return err
	}
	return w.restartBus(away)
}
