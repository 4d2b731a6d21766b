package control

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxMessageID bounds the identifier of a message, in characters.
const maxMessageID = 255

// SendToChannel hands a message to the run that made the channel. It answers once the message is stored, and true if it
// was there already. A channel that there is not, or whose run has ended, is fault.NotFound.
func (s *Service) SendToChannel(ctx context.Context, m history.Message) (duplicate bool, err error) {
	var fields []fault.Field
	if !history.IsToken(m.Token) {
		fields = append(fields, fault.Field{Name: "token", Problem: "expected the token of a channel"})
	}
	if n := utf8.RuneCountInString(m.ID); n < 1 || n > maxMessageID || history.Storable(m.ID) != m.ID {
		fields = append(fields, fault.Field{
			Name:    "message_id",
			Problem: fmt.Sprintf("found %d characters, expected 1 to %d of text", n, maxMessageID),
		})
	}
	if len(m.Data) > 0 {
		fields = append(fields, fault.FieldsOf(history.MessageDoor.CheckField("data", m.Data))...)
	}
	if len(fields) > 0 {
		return false, fault.InvalidFields(fields...)
	}
	m.Time = s.clock.Now()
	_, duplicate, err = s.store.Send(ctx, m)
	return duplicate, err
}
