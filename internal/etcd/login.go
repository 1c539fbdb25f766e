package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// A login is a user of etcd, and the token that its password was checked for. A check costs etcd
// some 100 ms of a processor, so the token serves until it is denied.
type login struct {
	name, password string

	turn chan struct{} // held while the password is being checked
	mu   struct {
		sync.Mutex

		token string // empty where there is none
	}
}

// maxDenials is how often one request is sent with a new token.
const maxDenials = 3

func newLogin(name, password string) *login {
	return &login{name: name, password: password, turn: make(chan struct{}, 1)}
}

// current returns the token for a kind of requests, empty where there is none.
func (l *login) current(kind kind) string {
	if l == nil || kind == authenticating {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.token
}

// forget forgets a token that was denied.
func (l *login) forget(token string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.token == token {
		l.mu.token = ""
	}
}

// authenticate replaces a token that has become invalid, unless another request has replaced it
// already.
func (e *endpoints) authenticate(ctx context.Context, instead string) error {
	l := e.login
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	if token := l.current(reading); token != "" && token != instead {
		return nil
	}
	resp, err := pb.NewAuthClient(e).Authenticate(ctx, &pb.AuthenticateRequest{Name: l.name, Password: l.password})
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.token = resp.GetToken()
	return nil
}

// isDenial reports whether etcd requires another token, and has not executed the request.
func isDenial(err error) bool {
	return slices.ContainsFunc([]error{rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision},
		func(denial error) bool { return errors.Is(rpctypes.Error(err), denial) })
}

// withToken adds the token to a request, if there is one.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// tokenOf returns the token of a context.
func tokenOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	if tokens := md.Get(rpctypes.TokenFieldNameGRPC); len(tokens) > 0 {
		return tokens[len(tokens)-1]
	}
	return ""
}
