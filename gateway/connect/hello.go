package connect

import (
	"context"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/connect/standing"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/match"
)

const (
	maxFilter = match.MaxSource
	maxID     = 256 // bytes of an id
	maxFields = 100
	// aheadSlack is how far a position may be ahead of the log's current time, which different servers of a sharded cluster tell a
	// little differently.
	aheadSlack = 15 * time.Second
)

// A hello is what a client said of itself, checked.
type hello struct {
	gateway, process string
	started          time.Time
	start            streampb.Start
	time             time.Time
	stands           *standing.Standing // nil where it does not say
	auto, owned      bool
	subscriptions    []*streampb.Subscription
}

// readHello checks a Hello.
func (s *Server) readHello(m *streampb.Hello) (*hello, error) {
	bad := func(format string, args ...any) (*hello, error) {
		return nil, fault.Newf(fault.SessionBadRequest, "hello: "+format, args...)
	}
	h := &hello{
		gateway: m.GetGatewayId(), process: m.GetProcessId(), started: m.GetStartedAt().AsTime(), start: m.GetStart(), time: m.GetTime().AsTime(),
		auto: m.GetAck() == streampb.AckMode_ACK_MODE_AUTO, owned: m.GetPartitions() == streampb.Partitions_PARTITIONS_OWNED,
		subscriptions: m.GetSubscriptions(),
	}
	switch {
	case h.gateway == "" || len(h.gateway) > maxID:
		return bad("gateway_id must have 1 to %d bytes", maxID)
	case len(h.process) > maxID:
		return bad("process_id must have at most %d bytes", maxID)
	case h.start == streampb.Start_START_UNSPECIFIED:
		return bad("start must be given: START_RESUME, START_NOW, START_EARLIEST or START_TIME")
	case h.start == streampb.Start_START_TIME && (m.GetTime() == nil || h.time.Unix() <= 0 || h.time.Unix() > 1<<32-1):
		return bad("START_TIME needs a time")
	case len(h.subscriptions) > s.cfg.MaxSubscriptions:
		return nil, fault.Newf(fault.SessionTooWide, "%d subscriptions, a session has at most %d", len(h.subscriptions), s.cfg.MaxSubscriptions)
	case h.start != streampb.Start_START_RESUME && len(m.GetPositions()) > 0:
		return bad("positions go with START_RESUME")
	case len(m.GetPositions()) == 0:
		return h, nil
	case m.GetCluster() != s.cfg.Cluster:
		return nil, fault.Newf(fault.SessionBadPosition, "the positions are of cluster %q, this is %q", m.GetCluster(), s.cfg.Cluster)
	}
	var err error
	h.stands, err = standing.Read(int(m.GetPartitionCount()), m.GetPositions())
	return h, err
}

// A beginning is where a session begins.
type beginning struct {
	session   fanout.SessionConfig
	recovered bool
	refused   error // why a cursor is not used, nil where all are
}

// begin finds out where a session begins.
func (s *Server) begin(ctx context.Context, h *hello) (b beginning, err error) {
	b.session = fanout.SessionConfig{Gateway: h.gateway, Process: h.process, Owned: h.owned}
	b.recovered = true
	now, err := s.cfg.Now(ctx)
	if err != nil {
		return b, fault.New(fault.MongoUnreachable, err)
	}
	first, known, err := s.cfg.First(ctx)
	if err != nil {
		return b, fault.New(fault.MongoUnreachable, err)
	}
	switch h.start {
	case streampb.Start_START_EARLIEST:
		if !known {
			return b, fault.Newf(fault.SessionBadRequest, "START_EARLIEST: the oldest entry of the log cannot be found here: give a time")
		}
		b.session.Start, b.session.Earliest = change.At(first), true
	case streampb.Start_START_TIME:
		b.session.Start = change.At(change.Timestamp{T: uint32(h.time.Unix()), I: 1})
	case streampb.Start_START_RESUME:
		if b, err = s.resume(ctx, h, b, now); err != nil {
			return b, err
		}
	default:
		b.session.Start = change.At(now.Next())
	}
	start := b.session.Start.Time
	if ahead := start.Time().Sub(now.Time()); ahead > aheadSlack {
		return b, fault.Newf(fault.LogAhead, "the session is to begin at %s, MongoDB is at %s", start, now)
	}
	if known && first.Compare(start) > 0 {
		b.recovered = false // the hub finds the same, and tells it in each partition
	}
	return b, nil
}

// resume goes on from the positions given, from those kept under the gateway's id, or from now on, with a notice of what may have been
// missed.
func (s *Server) resume(ctx context.Context, h *hello, b beginning, now change.Timestamp) (beginning, error) {
	if h.stands != nil {
		stood, refused, err := h.stands.Open(ctx, s.cfg.Cursors, s.cfg.Partitions)
		if err != nil {
			return b, err
		}
		b.session.Start, b.refused = h.stands.Rearmost(stood), refused
		if h.stands.Partitions == s.cfg.Partitions {
			b.session.Have, b.session.Stood = h.stands.Have, stood
		}
		return b, nil
	}
	if s.cfg.Rows != nil {
		row, ok, err := s.cfg.Rows.Row(ctx, h.gateway)
		switch {
		case err != nil: // as if there were none, which is told
			s.logger.Warn("a gateway's row cannot be read", "gateway", h.gateway, "error", err)
		case ok && row.Partitions == s.cfg.Partitions:
			b.session.Start, b.session.Have = row.Base, make(map[change.Partition]wire.Place)
			for p, position := range row.Positions {
				b.session.Have[p] = wire.PlaceOf(position)
				if b.session.Start.After(position) {
					b.session.Start = position
				}
			}
			for p := range change.Partition(s.cfg.Partitions) {
				if _, differs := b.session.Have[p]; !differs {
					b.session.Have[p] = wire.PlaceOf(row.Base)
				}
			}
			return b, nil
		case ok:
			b.session.Start = row.Base
			for _, position := range row.Positions {
				if b.session.Start.After(position) {
					b.session.Start = position
				}
			}
			return b, nil
		}
	}
	b.recovered, b.session.Start = false, change.At(now.Next())
	b.session.Lost = &delivery.Notice{
		Kind: delivery.Resync, Reason: "position_unknown", Found: time.Now(),
		Advice: "Nothing is known of where this gateway stood: read the documents again. Changes come from now on.",
	}
	return b, nil
}

// readSubscription compiles a subscription.
func readSubscription(m *streampb.Subscription, carries match.Carries) (sub fanout.Subscription, err error) {
	if m.GetId() == "" || len(m.GetId()) > maxID {
		return sub, fault.Newf(fault.SessionBadRequest, "a subscription's id must have 1 to %d bytes", maxID)
	}
	if len(m.GetFields()) > maxFields {
		return sub, fault.Newf(fault.SessionBadRequest, "%d fields, at most %d", len(m.GetFields()), maxFields)
	}
	for _, field := range m.GetFields() {
		if field == "" || strings.ContainsAny(field, ".\x00") {
			return sub, fault.Newf(fault.SessionBadRequest, "field %q: only top-level fields can be chosen", field)
		}
	}
	ops, err := match.ParseOps(m.GetOps())
	if err != nil {
		return sub, fault.New(fault.SessionBadRequest, err)
	}
	filter := match.Filter{Source: m.GetFilter(), DB: m.GetDb(), Coll: m.GetColl(), Ops: ops, Carries: carries}
	switch m.GetDeletes() {
	case streampb.Deletes_DELETES_NONE:
		filter.Deletes = match.DeletesNone
	case streampb.Deletes_DELETES_BEFORE:
		filter.Deletes = match.DeletesBefore
	default:
		filter.Deletes = match.DeletesAll
	}
	program, err := match.Compile(filter)
	if err != nil {
		return sub, err
	}
	sub = fanout.Subscription{ID: m.GetId(), Program: program, Shape: wire.Shape{Fields: m.GetFields()}}
	if m.GetFormat() == streampb.Format_FORMAT_JSON {
		sub.Shape.Format = wire.JSON
	}
	return sub, nil
}
