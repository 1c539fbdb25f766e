package access

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/mongostream/streamer/fault"
)

// An Authenticator says who is at the other end of a connection. Its methods may be called from anywhere at once.
type Authenticator struct {
	cfg     Config
	listed  *watchedFiles[*roster]
	keys    *watchedFiles[keySet]
	jwts    *verifier
	allowed *Identity // of everybody, where nothing is configured
}

// Everybody lets in everybody as one identity that may everything, as New does of the zero Config.
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
		parse := rosterParser(cfg.TLS.ClientCA != "")
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

// Err returns why files as they stand are not in force, or nil.
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

// Known returns how many tokens and subjects are listed, and how many keys may sign JWTs.
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

var (
	errNothingShown   = errors.New("neither a token nor a certificate was shown")
	errUnknownSubject = errors.New("the client certificate's subject is not listed")
	errUnknownToken   = errors.New("the token is not known")
	errCertExpired    = errors.New("the client certificate has expired")
	errRightsChanged  = errors.New("what the identity may do has changed: connect again")
)

// A Peer is the other end of a connection, and what it shows.
type Peer struct {
	// Address is its host:port. A token that comes in plaintext is good from this machine only.
	Address string
	// TLS is the state of the connection, nil for plaintext.
	TLS *tls.ConnectionState
	// Authorization are all values of the authorization header or metadata.
	Authorization []string
}

// Authenticate returns who is there. An error is a fault, STRM-ACCESS-UNAUTHENTICATED or STRM-ACCESS-TOKEN-EXPOSED, and quotes no secret.
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
	i := *found // the one that is listed is shared
	i.again = prove
	return &i, nil
}

// proof returns what proves the identity, now and later on.
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
	return func() (*Identity, error) { return a.bySubject(name, expires) }, nil
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

func (a *Authenticator) bySubject(name string, expires time.Time) (*Identity, error) {
	if time.Now().After(expires) {
		return nil, errCertExpired
	}
	if a.listed != nil {
		if i := a.listed.Get().bySubject(name, expires); i != nil {
			return i, nil
		}
	}
	return nil, errUnknownSubject
}

// Hold returns a context that ends when ctx does, when i's proof runs out, and within the time of Config.Recheck after i would no longer be
// let in or would be given other rights. context.Cause is then a fault, STRM-ACCESS-UNAUTHENTICATED. The caller must call the
// function when the connection is over.
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
	// A moment later, because what expires at a time is still good at it.
	return max(min(a.cfg.Recheck, time.Until(i.Expires)+time.Millisecond), time.Millisecond)
}

// recheck proves the identity once more.
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
