package bus

import (
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
			for k, v := range map[string]string{"specversion": binary, "id": "5", "source": "/x", "type": event.TypeDeploymentHealthy, "organizationid": "1", "datacontenttype": "application/json"} {
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
