package access

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/fault"
)

// An Authenticator authenticates peers. Its methods are safe for concurrent use.
type Authenticator struct {
	cfg     Config
	listed  *watchedFiles[*roster]
	keys    *watchedFiles[keySet]
	jwts    *verifier
	allowed *Identity // the identity of every peer if nothing is configured

	// Seen is called with the result of every Admit, and with failed TLS handshakes (ErrHandshake).
	// It must be set before the first one, and must not block. Optional.
	Seen func(p Peer, i *Identity, err error)
}

// Everybody returns an Authenticator that gives every peer the same identity without limits, as New
// does for the zero Config.
func Everybody() *Authenticator {
	return &Authenticator{cfg: Config{}.withDefaults(), allowed: Anonymous()}
}

// New reads the files of cfg.
func New(cfg Config) (*Authenticator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Authenticator{cfg: cfg.withDefaults()}
	var err error
	if cfg.Identities != "" {
		parse := rosterParser(cfg.TLS.ClientCA != "", cfg.Apart)
		if a.listed, err = openFiles(fault.AccessBadFile, a.cfg.Logger, parse, cfg.Identities); err != nil {
			return nil, err
		}
	}
	if cfg.JWKS != "" {
		parse := func(contents [][]byte) (keySet, error) { return parseKeySet(contents[0]) }
		if a.keys, err = openFiles(fault.AccessBadFile, a.cfg.Logger, parse, cfg.JWKS); err != nil {
			return nil, err
		}
		expect := expectation{Issuer: cfg.Issuer, Audiences: cfg.Audiences, Leeway: a.cfg.Leeway}
		a.jwts = newVerifier(expect, a.keys.Get)
	}
	if a.listed == nil && a.jwts == nil {
		a.allowed = Anonymous()
	}
	return a, nil
}

// Err returns why changed files are not in force, or nil.
func (a *Authenticator) Err() error {
	var errs []error
	if a.listed != nil {
		errs = append(errs, a.listed.Err())
	}
	if a.keys != nil {
		errs = append(errs, a.keys.Err())
	}
	return errors.Join(errs...)
}

// Known returns the number of listed tokens and subjects, and of keys for JWTs.
func (a *Authenticator) Known() (tokens, subjects, keys int) {
	if a.listed != nil {
		r := a.listed.Get()
		tokens, subjects = len(r.tokens), len(r.subjects)
	}
	if a.keys != nil {
		keys = len(a.keys.Get())
	}
	return tokens, subjects, keys
}

// Unlimited returns the names of listed identities without a limit of subscriptions, or with none
// of events and of bytes, in their order.
func (a *Authenticator) Unlimited() []string {
	if a.listed == nil {
		return nil
	}
	names := map[string]bool{}
	r := a.listed.Get()
	note := func(i *Identity) {
		if i.MaxSubscriptions == 0 || i.EventsPerSecond == 0 && i.BytesPerSecond == 0 {
			names[i.Name] = true
		}
	}
	for _, l := range r.tokens {
		note(l.identity)
	}
	for _, i := range r.subjects {
		note(i)
	}
	return slices.Sorted(maps.Keys(names))
}

var (
	errNothingShown   = errors.New("no token and no client certificate")
	errUnknownSubject = errors.New("the client certificate's subject is not listed")
	errUnknownToken   = errors.New("the token is unknown")
	errCertExpired    = errors.New("the client certificate has expired")
	errRightsChanged  = errors.New("the rights of the identity have changed: reconnect")

	// ErrHandshake is why a peer was refused whose TLS handshake failed: its certificate, or the
	// server's for it, was not accepted.
	ErrHandshake = errors.New("the TLS handshake failed")
)

// The servers of a node, as a Peer and the file of identities name them.
const (
	GRPC = "grpc"
	HTTP = "http"
)

// A Peer is the other end of a connection, with its credentials.
type Peer struct {
	// Address is its host:port. A plaintext token is accepted from the local host only.
	Address string
	// TLS is the state of the connection, nil for plaintext.
	TLS *tls.ConnectionState
	// Listener is the server that it has connected to: GRPC or HTTP. It says which authority has
	// vouched for a certificate.
	Listener string
	// Authorization holds all values of the authorization header or metadata.
	Authorization []string
}

// Reason returns why a peer was refused, in one of a few words.
func Reason(err error) string {
	for reason, is := range map[string][]error{
		"nothing_shown": {errNothingShown}, "unknown_subject": {errUnknownSubject}, "unknown_token": {errUnknownToken, errNotAToken, errUnknownKey},
		"handshake": {ErrHandshake}, "expired": {errCertExpired, errExpired}, "bad_signature": {errSignature}, "wrong_audience": {errAudience, errIssuer}, "bad_rights": {errRights},
	} {
		if slices.ContainsFunc(is, func(is error) bool { return errors.Is(err, is) }) {
			return reason
		}
	}
	if fault.Of(err) == fault.AccessTokenExposed {
		return "token_exposed"
	}
	return "malformed"
}

// Authenticate returns the identity of a peer. The error is a fault, STRM-ACCESS-UNAUTHENTICATED or
// STRM-ACCESS-TOKEN-EXPOSED, and contains no secret.
func (a *Authenticator) Authenticate(p Peer) (*Identity, error) {
	if a.allowed != nil {
		return a.allowed, nil
	}
	prove, err := a.proof(p)
	if err != nil {
		return nil, err
	}
	found, err := prove()
	if err != nil {
		return nil, fault.New(fault.AccessUnauthenticated, err)
	}
	i := *found // the listed identity is shared
	i.again = prove
	return &i, nil
}

// proof returns a function that verifies the credentials, now and again later.
func (a *Authenticator) proof(p Peer) (func() (*Identity, error), error) {
	token, err := bearer(p.Authorization)
	switch {
	case err != nil:
		return nil, fault.New(fault.AccessUnauthenticated, err)
	case token != "" && p.TLS == nil && !isLoopback(p.Address):
		return nil, fault.Newf(fault.AccessTokenExposed, "a token came from %s without TLS", p.Address)
	case token != "":
		return func() (*Identity, error) { return a.byToken(token) }, nil
	}
	name, expires, err := subject(p.TLS)
	switch {
	case err != nil:
		return nil, fault.New(fault.AccessUnauthenticated, err)
	case name == "":
		return nil, fault.New(fault.AccessUnauthenticated, errNothingShown)
	}
	return func() (*Identity, error) { return a.bySubject(p.Listener, name, expires) }, nil
}

func (a *Authenticator) byToken(token string) (*Identity, error) {
	if a.listed != nil {
		if i := a.listed.Get().byToken(token); i != nil {
			return i, nil
		}
	}
	if a.jwts != nil {
		t, err := a.jwts.Verify(token)
		if err != nil {
			return nil, err
		}
		return ofToken(t)
	}
	return nil, errUnknownToken
}

func (a *Authenticator) bySubject(listener, name string, expires time.Time) (*Identity, error) {
	if time.Now().After(expires) {
		return nil, errCertExpired
	}
	if a.listed != nil {
		if i := a.listed.Get().bySubject(listener, name, expires); i != nil {
			return i, nil
		}
	}
	return nil, errUnknownSubject
}

// Hold returns a context that ends when ctx ends, when the credentials of i expire, or within
// Config.Recheck after i is no longer accepted or has other rights. context.Cause is then a fault,
// STRM-ACCESS-UNAUTHENTICATED. The caller must call the function when the connection ends.
func (a *Authenticator) Hold(ctx context.Context, i *Identity) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(context.Canceled) }
	if i.again == nil {
		return ctx, stop
	}
	go func() {
		timer := time.NewTimer(a.untilRecheck(i))
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if err := i.recheck(); err != nil {
				cancel(fault.New(fault.AccessUnauthenticated, err))
				return
			}
			timer.Reset(a.untilRecheck(i))
		}
	}()
	return ctx, stop
}

func (a *Authenticator) untilRecheck(i *Identity) time.Duration {
	if i.Expires.IsZero() {
		return a.cfg.Recheck
	}
	// A moment later, because credentials are still valid at the time of their expiry.
	return max(min(a.cfg.Recheck, time.Until(i.Expires)+time.Millisecond), time.Millisecond)
}

// recheck verifies the credentials again.
func (i *Identity) recheck() error {
	now, err := i.again()
	if err != nil {
		return err
	}
	if !now.sameRights(i) {
		return errRightsChanged
	}
	return nil
}
