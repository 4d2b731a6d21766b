package pg

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// toPrimary has every connection of a URL with several hosts go to the one that takes writes (target_session_attrs=read-write), unless the
// URL says otherwise: after a failover the first host may be a standby that answers.
func toPrimary(cc *pgx.ConnConfig) {
	if cc.ValidateConnect != nil {
		return
	}
	for _, f := range cc.Fallbacks { // also those of one host with and without encryption
		if f.Host != cc.Host || f.Port != cc.Port {
			cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
			return
		}
	}
}
