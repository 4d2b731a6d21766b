package bus

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// FuzzDecode: whatever comes on a subject is an event of the catalogue that belongs there, or Invalid.
func FuzzDecode(f *testing.F) {
	const subject = "cd.domain.1.deployment.healthy"
	f.Add("", []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"com.gitlab.cd.deployment.healthy","organizationid":"1","data":{"deployment_id":1}}`))
	f.Add("", []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"com.gitlab.cd.","organizationid":1,"data":{}}`))
	f.Add("", []byte(`{"specversion":"0.3","data_base64":"x"}`))
	f.Add("", []byte(`[`))
	f.Add("1.0", []byte(`{"deployment_id":1}`))
	f.Add("9", []byte(`null`))
	f.Fuzz(func(t *testing.T, binary string, data []byte) {
		header := nats.Header{}
		if binary != "" {
			for k, v := range map[string]string{
				"specversion": binary, "id": "5", "source": "/x", "type": event.TypeDeploymentHealthy,
				"organizationid": "1", "datacontenttype": "application/json",
			} {
				header.Set("ce-"+k, v)
			}
		}
		e, err := decode(t.Context(), subject, header, data)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("error %v of class %v, want invalid", err, fault.ClassOf(err))
			}
			return
		}
		if got, err := event.Subject(e); err != nil || got != subject {
			t.Errorf("an event of %q was let in, error %v", got, err)
		}
	})
}

// TestDecodeReadsBothModes covers what a message may be beside what this package writes, and where it may come.
func TestDecodeReadsBothModes(t *testing.T) {
	t.Parallel()
	const catalogue, external = "cd.domain.1.deployment.healthy", "cd.domain.1.external"
	binary := func(more ...string) nats.Header {
		header := nats.Header{"content-type": {"application/json"}}
		for _, pair := range append([][2]string{
			{"specversion", "1.0"},
			{"id", "5"},
			{"source", "/x"},
			{"type", event.TypeDeploymentHealthy},
			{"organizationid", "1"},
		}, pairs(more)...) {
			header["ce-"+pair[0]] = []string{pair[1]}
		}
		return header
	}
	const healthy = `{"deployment_id":1}`
	for _, tt := range []struct {
		name, subject, data string
		header              nats.Header
		wantID, refused     string
	}{
		{name: "binary", subject: catalogue, header: binary(), data: healthy, wantID: "5"},
		{
			name: "binary, percent-encoded", subject: catalogue, header: binary("id", "a%20b%C3%A9%25", "source", "/x%2Fy"),
			data: healthy, wantID: "a bé%",
		},
		{name: "binary, a percent sign that encodes nothing", subject: catalogue, header: binary("id", "100%"), data: healthy, wantID: "100%"},
		{name: "binary, an old version", subject: catalogue, header: binary("specversion", "0.3"), data: healthy, refused: "specversion"},
		{
			name: "binary, a type outside of the catalogue", subject: external, header: binary("type", "com.example.a b"),
			data: `{"n":1}`, wantID: "5",
		},
		{
			name: "a type outside of the catalogue on another subject", subject: catalogue, header: binary("type", "com.example.tick"),
			data: healthy, refused: "type",
		},
		{name: "a type of the catalogue on the subject of others", subject: external, header: binary(), data: healthy, refused: "subject"},
		{
			name: "another organization", subject: external, header: binary("type", "com.example.tick", "organizationid", "2"), data: `{}`,
			refused: "subject",
		},
		{
			name: "another organization, in the catalogue", subject: catalogue, header: binary("organizationid", "2"), data: healthy,
			refused: "subject",
		},
		{name: "no organization", subject: external, header: nats.Header{
			"ce-specversion": {"1.0"}, "ce-id": {"5"}, "ce-source": {"/x"},
			"ce-type": {"com.example.tick"},
		}, refused: "organizationid"},
		{name: "a longer subject", subject: external + ".more", header: binary("type", "com.example.tick"), data: `{}`, refused: "type"},
		{
			name: "structured, without content-type", subject: catalogue,
			data: `{"specversion":"1.0","id":"5","source":"/x","type":"com.gitlab.cd.deployment.healthy","organizationid":"1","data":{"deployment_id":1}}`, wantID: "5",
		},
		{name: "empty", subject: catalogue, refused: "malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, err := decode(t.Context(), tt.subject, tt.header, []byte(tt.data))
			if tt.refused != "" {
				if err == nil || rejection(err) != tt.refused {
					t.Errorf("found %v, expected a refusal for %s", err, tt.refused)
				}
				return
			}
			if err != nil || e.ID() != tt.wantID {
				t.Errorf("found the event %q and %v, expected %q", e.ID(), err, tt.wantID)
			}
		})
	}
}

func pairs(texts []string) (pairs [][2]string) {
	for i := 0; i+1 < len(texts); i += 2 {
		pairs = append(pairs, [2]string{texts[i], texts[i+1]})
	}
	return pairs
}

// TestTheReasonsForGivingUpAreFew: they are the label of a metric.
func TestTheReasonsForGivingUpAreFew(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"malformed": fault.New(fault.Invalid, "no CloudEvent"),
		"data":      fault.InvalidFields(fault.Field{Name: "data.rollout_id", Problem: "a string"}),
		"other":     fault.InvalidFields(fault.Field{Name: "x" + event.Prefix, Problem: "anything"}),
		"failed":    errors.New("broken"),
	} {
		if got := rejection(err); got != want {
			t.Errorf("%v: found %q, expected %q", err, got, want)
		}
	}
	if got := rejection(fault.New(fault.Denied, "not yours")); got != fault.Denied.String() {
		t.Errorf("found %q, expected %q", got, fault.Denied)
	}
}
