package access

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/input"
)

type admissionKey struct{}

// An admission is an identity in a context, and the Authenticator that rechecks its credentials.
type admission struct {
	identity *Identity
	by       *Authenticator
}

// From returns the identity in a context that Admit returned; nil, which has no rights, if there is
// none.
func From(ctx context.Context) *Identity {
	a, _ := ctx.Value(admissionKey{}).(admission)
	return a.identity
}

// Admit authenticates a peer and returns a context for From, which ends when the credentials are no
// longer valid (see Hold). The caller must call the function when the connection ends. The error is
// that of Authenticate.
func (a *Authenticator) Admit(ctx context.Context, p Peer) (context.Context, context.CancelFunc, error) {
	i, err := a.Authenticate(p)
	if a.Seen != nil {
		a.Seen(p, i, err)
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, release := a.enter(ctx, i)
	return ctx, release, nil
}

// enter is Hold with the identity in the context.
func (a *Authenticator) enter(ctx context.Context, i *Identity) (context.Context, context.CancelFunc) {
	return a.Hold(context.WithValue(ctx, admissionKey{}, admission{i, a}), i)
}

// Keep returns a context with the identity of ctx, if any, that ends with base, and like that of
// Admit, but not with ctx: for work that outlives its request. The caller must call the function
// when that ends.
func Keep(ctx, base context.Context) (context.Context, context.CancelFunc) {
	if a, ok := ctx.Value(admissionKey{}).(admission); ok {
		return a.by.enter(base, a.identity)
	}
	return context.WithCancel(base)
}

// Handler authenticates requests (Admit) before it passes them to next, which must check rights
// itself with Permit. Tokens are accepted only in the header, because URLs are often logged.
func (a *Authenticator) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted, release := a.admit(w, r)
		if release == nil {
			return
		}
		defer release()
		next.ServeHTTP(w, admitted)
	})
}

// admit authenticates a request and returns the one to pass on, or refuses it: then release is nil.
func (a *Authenticator) admit(w http.ResponseWriter, r *http.Request) (admitted *http.Request, release context.CancelFunc) {
	ctx, release, err := a.Admit(r.Context(), Peer{Address: r.RemoteAddr, TLS: r.TLS, Listener: HTTP, Authorization: r.Header.Values("Authorization")})
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		Refuse(w, http.StatusUnauthorized, err)
		return nil, nil
	}
	return r.WithContext(ctx), release
}

// Apart passes requests of identities that may read everything to whole, and all others, also those
// without credentials, to part. A token that is not accepted is refused, so that nobody takes the
// part for the whole because of a wrong one.
func (a *Authenticator) Apart(whole, part http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := Peer{Address: r.RemoteAddr, TLS: r.TLS, Listener: HTTP, Authorization: r.Header.Values("Authorization")}
		i, err := a.Authenticate(p)
		switch {
		case err != nil && len(p.Authorization) > 0:
			if a.Seen != nil {
				a.Seen(p, nil, err)
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			Refuse(w, http.StatusUnauthorized, err)
		case i.Operates():
			whole.ServeHTTP(w, r)
		default:
			part.ServeHTTP(w, r)
		}
	})
}

// Refuse responds with a fault as JSON, as fault.Public has it: code, message, remedy.
func Refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(described(err)) // the client may have disconnected
}

// A description is a fault as clients see it.
type description struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy"`
}

func described(err error) (d description) {
	d.Code, d.Message, d.Remedy = fault.Public(err)
	return d
}

// RefuseLater refuses a request that may be repeated later. Because an EventSource gives up on any
// status but 200, it gets an empty stream that says when to reconnect.
func RefuseLater(w http.ResponseWriter, r *http.Request, status int, after time.Duration, err error) {
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
		Refuse(w, status, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = fmt.Fprintf(w, "retry: %d\nevent: unavailable\ndata: ", after.Milliseconds()) // the client may have disconnected
	_ = json.NewEncoder(w).Encode(described(err))
	_, _ = io.WriteString(w, "\n")
}

// LimitAfter returns a random time after which a client that has reached a limit may try again.
func LimitAfter() time.Duration { return 5*time.Second + rand.N(10*time.Second) }

// Handler counts requests as a use of their identities (From) before it passes them to next, and
// refuses those beyond a limit.
func (a *Accounts) Handler(use Use, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, err := a.Open(From(r.Context()), use, r.RemoteAddr)
		switch {
		case fault.Of(err) == fault.AccessLimit:
			RefuseLater(w, r, http.StatusTooManyRequests, LimitAfter(), err)
		case err != nil:
			Refuse(w, http.StatusForbidden, err)
		default:
			defer account.Close()
			next.ServeHTTP(w, r)
		}
	})
}

// Parameters refuses requests with other parameters than those named, or with values that input
// does not accept, in the query or in the path.
func Parameters(next http.Handler, names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := input.Query(r, names...)
		if err == nil {
			err = input.CheckPath(r)
		}
		if err != nil {
			Refuse(w, http.StatusBadRequest, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// CORS lets pages of the origins read responses to GET. An origin is compared literally: it has the
// form that browsers send, scheme://host[:port]. Without origins CORS returns next. It must wrap
// Handler, because browsers send preflight requests without a token. Cookies and certificates are
// not allowed.
func CORS(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	origins = slices.Clone(origins)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		asked := r.Header.Values("Origin")
		known := len(asked) == 1 && slices.Contains(origins, asked[0])
		if known {
			w.Header().Set("Access-Control-Allow-Origin", asked[0])
			w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		}
		preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
		switch {
		case !preflight:
			next.ServeHTTP(w, r)
		case !known:
			Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "requests from this origin are not allowed"))
		default:
			w.Header().Set("Access-Control-Allow-Methods", http.MethodGet)
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Last-Event-ID, Cache-Control, X-Requested-With") // the latter two are those of polyfills
			w.Header().Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
		}
	})
}
