package wiring

import (
	"net"

	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/notice"
)

// audit starts the audit log: accepted and refused clients, and the sessions.
func (s *Service) audit() {
	s.auditor = notice.NewAuditor(notice.AuditConfig{Registerer: s.registry}, s.board)
	s.listeners.Access.Seen = func(p access.Peer, i *access.Identity, err error) {
		host, _, unknown := net.SplitHostPort(p.Address)
		if unknown != nil {
			host = p.Address
		}
		if err != nil {
			s.auditor.Refused(p.Listener, host, access.Reason(err))
			return
		}
		s.auditor.Accepted(p.Listener, host, i.Name)
	}
}
