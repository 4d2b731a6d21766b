package function

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// natsServer is a NATS server as the Function sees it.
type natsServer struct{ published []activity.SubjectMessage }

func (s *natsServer) Publish(_ context.Context, m activity.SubjectMessage) error {
	s.published = append(s.published, m)
	return nil
}

// D62: no program takes the ID of a notification, which a stream would then not store.
func TestIDsOfNotificationsAreReserved(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		run, id string
		sent    bool
	}{
		{"rollout-7", "release-1", true},
		{"rollout-7", "lockstep_ab_1_2_notification_3_1", false},
		{"notifications", "lockstep_1", false},
		{"notification-3-1", "lockstep_ab_1_2_notification_3_1", true},
	} {
		s := &natsServer{}
		args := m{"server": "tls://nats.example.com", "subject": "cd.shop", "message_id": one.id, "json": "a"}
		_, err := publish(s).Call(t.Context(), activity.Call{Organization: 1, Workflow: one.run, Args: args})
		if (err == nil) != one.sent || len(s.published) == 1 != one.sent || err != nil && !strings.Contains(err.Error(), "message_id") {
			t.Errorf("%s of %s: found %v and %d messages; want it sent: %t", one.id, one.run, err, len(s.published), one.sent)
		}
	}
}
