package stream

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/mongodb"
)

// A site is where streams are opened: the deployment, or one of its members. A member is used when
// the one that answers for the deployment has lost a position, for example because it was synced
// recently and has a short oplog.
type site struct {
	client *mongodb.Client
	pool   *mongodb.Pool // of its own: a stream holds its connection while it waits for events
	host   string        // of the member, empty for the deployment
}

// memberTimeout bounds a request for the range of a member's oplog.
const memberTimeout = 3 * time.Second

// site makes the site of a client.
func (s *Source) site(client *mongodb.Client) (site, error) {
	pool, err := client.Pool(func(o *options.ClientOptions) {
		// We retry openings ourselves, and delay those that the driver still makes.
		o.SetRetryReads(false).SetMonitor(&event.CommandMonitor{Started: noteCommand, Succeeded: noteReply})
		// A closing stream and its replacement are open together for a moment.
		o.SetMaxPoolSize(uint64(2 * s.cfg.MaxStreams))
	})
	return site{client: client, pool: pool}, err
}

// member returns the site of a member.
func (s *Source) member(host string) (site, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.mu.members[host]; ok {
		return known, nil
	}
	client, err := s.client.Member(host)
	if err != nil {
		return site{}, err
	}
	made, err := s.site(client)
	if err != nil {
		return site{}, err
	}
	made.host = host
	s.mu.members[host] = made
	return made, nil
}

// gone handles a position that the stream's site has lost. A nil error means: reopen the stream,
// there or on another member.
func (st *stream) gone(ctx context.Context, lost error) error {
	hosts, err := st.source.client.Members(ctx)
	if err != nil { // nobody knows which members could have it
		st.failures++
		return st.backOff(ctx)
	}
	switch {
	case st.elsewhere(ctx, hosts):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return lost
}

// elsewhere moves the stream to a member that has its position, and reports whether there is one.
// It asks each member once until the stream makes progress again.
func (st *stream) elsewhere(ctx context.Context, hosts []string) bool {
	src := st.source
	for host, ok := untried(hosts, st.tried); ok; host, ok = untried(hosts, st.tried) {
		st.tried = append(st.tried, host)
		member, err := src.member(host)
		if err != nil {
			continue
		}
		reach, err := member.reach(ctx)
		if err == nil && outside(reach, st.position) == nil {
			src.metrics.elsewhere.Inc()
			src.client.Logger().Warn("the position is lost on one member of the set; another one has it", "member", host, "first", reach.First.String())
			st.at = member
			st.byTime = false
			st.gate.ids = nil
			return true
		}
	}
	return false
}

// reach returns the range of the member's oplog. It does not wait long for a member that does not
// answer, because another member may.
func (m site) reach(ctx context.Context) (mongodb.Reach, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	return m.client.Reach(ctx)
}

// untried returns the first host that has not been tried.
func untried(hosts, tried []string) (host string, ok bool) {
	i := slices.IndexFunc(hosts, func(h string) bool { return !slices.Contains(tried, h) })
	if i < 0 {
		return "", false
	}
	return hosts[i], true
}

// comesHome makes the next opening use the deployment again.
func (st *stream) comesHome() {
	if st.at.host != "" {
		st.at = st.source.home
		st.gate.ids = nil
	}
}

// gotOn notes that the stream has made proven progress.
func (st *stream) gotOn(to change.Position) {
	st.failures = 0
	st.unknown = 0
	st.refused = time.Time{}
	st.source.failing(nil)
	if to.After(st.position) {
		st.byTime, st.ended, st.tried = false, false, nil
	}
}
