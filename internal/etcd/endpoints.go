package etcd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// An endpoint is one address of etcd, and the connection to it.
type endpoint struct {
	address string
	conn    *grpc.ClientConn

	// Under the mutex of the endpoints.
	suspect bool // it did not answer the last request
	streams map[*stream]struct{}
}

// endpoints are all addresses of one etcd, as one connection. Requests go to the first endpoint of
// a list. One that does not answer in time moves to the end of the list, and the request is retried
// at the next, if it is safe to send it twice. Once another endpoint has answered, the streams of
// the one that did not are ended, so that they are opened again at the other.
type endpoints struct {
	all     []*endpoint
	attempt time.Duration // the timeout of an attempt where there is another endpoint
	login   *login        // nil without a user
	logger  *slog.Logger

	mu struct {
		sync.Mutex

		order    []*endpoint
		patience [kinds]patience
		failure  error // of the last attempt that failed, nil before
	}
}

var _ grpc.ClientConnInterface = (*endpoints)(nil)

// A kind of requests, which is slow or fast as a whole.
type kind int

const (
	reading kind = iota
	writing
	renewing
	authenticating
	kinds
)

// A patience says how often the timeout of one kind of requests is doubled. It doubles when all
// endpoints have been too slow: then none of them is at fault, and only waiting helps.
type patience struct {
	doublings int
	since     time.Time          // of the last doubling
	slow      map[*endpoint]bool // that have been too slow since
}

const maxDoublings = 3

// errElsewhere ends the streams of an endpoint that does not answer while another one does.
var errElsewhere = status.Error(codes.Unavailable, "the endpoint does not answer, and another one does")

// connect makes the connections, which are established in the background.
func connect(cfg Config, options ...grpc.DialOption) (*endpoints, error) {
	security, err := tlsOf(cfg)
	if err != nil {
		return nil, err
	}
	e := &endpoints{attempt: min(cfg.LeaseTTL/12, longestAttempt), logger: cfg.Logger}
	if cfg.Username != "" && cfg.Password != "" {
		e.login = newLogin(cfg.Username, cfg.Password)
	}
	for _, address := range cfg.Endpoints {
		scheme, host, found := strings.Cut(address, "://")
		if !found {
			scheme = ""
			host = address
		}
		creds := insecure.NewCredentials()
		if scheme == "https" || scheme == "" && security != nil {
			creds = credentials.NewTLS(security.Clone())
		}
		conn, err := grpc.NewClient("passthrough:///"+strings.TrimSuffix(host, "/"),
			append(append(connectionOptions(), grpc.WithTransportCredentials(creds)), options...)...)
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		conn.Connect()
		e.all = append(e.all, &endpoint{address: address, conn: conn, streams: make(map[*stream]struct{})})
	}
	if len(e.all) == 0 {
		return nil, clientv3.ErrNoAvailableEndpoints
	}
	e.mu.order = slices.Clone(e.all)
	rand.Shuffle(len(e.all), func(i, j int) { e.mu.order[i], e.mu.order[j] = e.mu.order[j], e.mu.order[i] }) // not all clients use the same one
	return e, nil
}

// wait waits until one of several endpoints is connected, as long as an attempt may take.
func (e *endpoints) wait(ctx context.Context) {
	if len(e.all) == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.attempt)
	defer cancel()
	var waiting sync.WaitGroup
	for _, at := range e.all {
		waiting.Go(func() {
			state := at.conn.GetState()
			for state != connectivity.Ready && at.conn.WaitForStateChange(ctx, state) {
				state = at.conn.GetState()
			}
			if state == connectivity.Ready {
				cancel()
			}
		})
	}
	waiting.Wait()
}

func (e *endpoints) close() error {
	var errs []error
	for _, at := range e.all {
		errs = append(errs, at.conn.Close())
	}
	return errors.Join(errs...)
}

// retryFor is how long a request is retried whose context has no deadline. etcd's members elect
// another leader within some 2 s.
const retryFor = 5 * time.Second

// Invoke implements [grpc.ClientConnInterface]. It retries where etcd has refused to carry the
// request out, or it is safe to carry it out twice: until the context ends, or for retryFor if that
// has no deadline. Otherwise it returns an error that [retryUncertain] takes for an unknown
// outcome.
func (e *endpoints) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx = clientv3.WithRequireLeader(ctx)
	kind, repeatable := classOf(args)
	var tried []*endpoint
	var last error
	_, bounded := ctx.Deadline()
	for denied, began := 0, time.Now(); ; {
		at := e.choose(tried)
		if at == nil {
			tried = nil
			if !bounded && time.Since(began) >= retryFor {
				return last
			}
			if err := pauseFor(ctx, sayAgain); err != nil {
				return status.FromContextError(err).Err()
			}
			continue
		}
		tried = append(tried, at)
		token := e.login.current(kind)
		err := e.try(withToken(ctx, token), at, kind, func(ctx context.Context) error {
			return at.conn.Invoke(ctx, method, args, reply, opts...)
		})
		if last = err; status.Code(err) == codes.Unknown {
			e.login.forget(token) // an older etcd may report in this way that it is too old
		}
		mayLogIn := kind != authenticating && e.login != nil && denied < maxDenials
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case mayLogIn && isDenial(err):
			if err := e.authenticate(ctx, token); err != nil {
				return err
			}
			denied++
			tried = nil
		case isRefusal(err), repeatable && unknown(rpctypes.Error(err)):
		default:
			return err
		}
	}
}

// try makes one attempt at an endpoint, within its timeout, and records how that went.
func (e *endpoints) try(ctx context.Context, at *endpoint, kind kind, send func(context.Context) error) error {
	sending, end := context.WithCancelCause(ctx)
	defer end(nil)
	began := time.Now()
	stop := e.limit(at, kind, end)
	defer stop()
	err := send(sending)
	late := context.Cause(sending)
	switch {
	case err == nil:
		e.answered(at, kind, time.Since(began))
	case ctx.Err() != nil:
		e.record(err)
	case late != nil:
		err = late
	case status.Code(err) == codes.Canceled && at.conn.GetState() != connectivity.Shutdown:
		err = status.Errorf(codes.Unavailable, "%s: %s", at.address, status.Convert(err).Message()) // by the server, which stops
		e.failed(at, kind, time.Time{}, err)
	case isRefusal(err), unknown(rpctypes.Error(err)):
		e.failed(at, kind, time.Time{}, err)
	default:
		e.answered(at, kind, time.Since(began))
		e.record(err)
	}
	return err
}

// choose returns the first connected endpoint of the list that has not been tried, else the first
// that has not been tried, else nil. Those before a connected one move to the end of the list, so
// that streams and requests stay together.
func (e *endpoints) choose(tried []*endpoint) (chosen *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, at := range e.mu.order {
		state := at.conn.GetState()
		if state == connectivity.Idle {
			at.conn.Connect()
		}
		switch {
		case slices.Contains(tried, at):
		case state == connectivity.Ready:
			e.mu.order = slices.Concat(e.mu.order[i:], e.mu.order[:i])
			return at
		case chosen == nil:
			chosen = at
		}
	}
	return chosen
}

// limit calls late with an error when an attempt that begins now exceeds its timeout, unless stop
// is called before. A single endpoint has no timeout.
func (e *endpoints) limit(at *endpoint, kind kind, late func(error)) (stop func() bool) {
	if len(e.all) == 1 {
		return func() bool { return true }
	}
	e.mu.Lock()
	bound := e.attempt << e.mu.patience[kind].doublings
	e.mu.Unlock()
	began := time.Now()
	return time.AfterFunc(bound, func() {
		err := status.Errorf(codes.Unavailable, "%s: no answer within %s", at.address, bound)
		e.failed(at, kind, began, err)
		late(err)
	}).Stop
}

// answered records that an endpoint has answered, whatever it said, and ends the streams of those
// that do not.
func (e *endpoints) answered(at *endpoint, kind kind, took time.Duration) {
	e.mu.Lock()
	recovered := at.suspect
	at.suspect = false
	if took <= e.attempt {
		e.mu.patience[kind] = patience{}
	}
	var hung []*stream
	for _, other := range e.all {
		if other.suspect {
			hung = slices.AppendSeq(hung, maps.Keys(other.streams))
		}
	}
	e.mu.Unlock()
	for _, s := range hung {
		s.end(errElsewhere)
	}
	if recovered {
		e.logger.Info("etcd endpoint answers again", "endpoint", at.address)
	}
}

// failed records that an endpoint did not answer a request. Began is when that was sent if the
// timeout is over, else zero.
func (e *endpoints) failed(at *endpoint, kind kind, began time.Time, err error) {
	e.mu.Lock()
	e.mu.failure = err
	if i := slices.Index(e.mu.order, at); i >= 0 {
		e.mu.order = append(slices.Delete(e.mu.order, i, i+1), at)
	}
	first := !at.suspect
	at.suspect = true
	p := &e.mu.patience[kind]
	if !began.IsZero() && !began.Before(p.since) && p.doublings < maxDoublings {
		if p.slow == nil {
			p.slow = make(map[*endpoint]bool)
		}
		if p.slow[at] = true; len(p.slow) == len(e.all) {
			*p = patience{doublings: p.doublings + 1, since: time.Now()}
		}
	}
	e.mu.Unlock()
	if first {
		e.logger.Warn("etcd endpoint does not answer", "endpoint", at.address, "error", err)
	}
}

// record keeps why a request failed, if it is the first.
func (e *endpoints) record(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.failure = cmp.Or(e.mu.failure, err)
}

// lastFailure returns the error of the last failed attempt, empty if there was none. It explains a
// broken connection, which the error of a request that ends with its context does not.
func (e *endpoints) lastFailure() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.failure == nil {
		return ""
	}
	return status.Convert(e.mu.failure).Message()
}

// classOf returns the kind of a request, and whether it is safe to carry it out twice: a lease that
// is granted twice leaves one without keys, which expires, and one that is revoked twice is gone.
func classOf(request any) (_ kind, repeatable bool) {
	switch r := request.(type) {
	case *pb.RangeRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.MemberListRequest:
		return reading, true
	case *pb.TxnRequest:
		if readsOnly(r) {
			return reading, true
		}
		return writing, false
	case *pb.LeaseGrantRequest, *pb.LeaseRevokeRequest:
		return writing, true
	case *pb.AlarmRequest:
		return writing, r.Action == pb.AlarmRequest_GET
	case *pb.AuthenticateRequest:
		return authenticating, true
	}
	return writing, false
}

// readsOnly reports whether a transaction writes nothing in either branch.
func readsOnly(txn *pb.TxnRequest) bool {
	writes := func(op *pb.RequestOp) bool {
		if nested := op.GetRequestTxn(); nested != nil {
			return !readsOnly(nested)
		}
		return op.GetRequestRange() == nil
	}
	return !slices.ContainsFunc(txn.Success, writes) && !slices.ContainsFunc(txn.Failure, writes)
}

// isRefusal reports whether an endpoint has refused to carry a request out: it knows no leader, or
// is a learner.
func isRefusal(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner))
}

// pauseFor waits for d, or until the context ends, whose error it returns then.
func pauseFor(ctx context.Context, d time.Duration) error {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
