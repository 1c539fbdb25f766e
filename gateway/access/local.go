package access

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/mongostream/streamer/fault"
)

// Local refuses what web pages send to a server that speaks plaintext on the loopback address listen. A browser on the machine sends requests
// there for every page that it shows, so the address alone proves nothing:
//
//   - A Host that is another name than localhost, the host of listen, or the host of one of the origins: a page has had its own name resolved
//     to this machine (DNS rebinding), and would read the answer. An IP address as Host is good, because a page cannot make one its name, and
//     so is none, which no browser sends.
//   - An Origin that is neither one of the origins nor that of the server itself, and without one a request of which the browser says that
//     another site has caused it (Sec-Fetch-Site).
//
// Programs that are no browsers send neither, and their Host is the address that they were given.
func Local(listen string, origins []string, next http.Handler) http.Handler {
	names := []string{"localhost"}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		names = append(names, strings.ToLower(host))
	}
	for _, origin := range origins {
		if u, err := url.Parse(origin); err == nil {
			names = append(names, u.Hostname())
		}
	}
	origins = slices.Clone(origins)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostname(r.Host); host != "" && !slices.Contains(names, host) && !isAddress(host) {
			Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForeign, "the request is for host %.100q", r.Host))
			return
		}
		switch asked, site := r.Header.Values("Origin"), r.Header.Get("Sec-Fetch-Site"); {
		case len(asked) == 0 && (site == "" || site == "none" || site == "same-origin"):
		case len(asked) == 1 && (slices.Contains(origins, asked[0]) || isOwn(asked[0], r.Host)):
		case len(asked) == 0:
			Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForeign, "a page of another site has sent the request (Sec-Fetch-Site: %.20q)", site))
			return
		default:
			Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForeign, "a page of origin %.100q has sent the request", asked[0]))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SameOrigin refuses requests with which a page of another origin would change something, whatever the page may read and however the browser
// proves who it is. Programs that are no browsers are let through.
func SameOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForeign, "a page of origin %.100q has sent a request that changes something", r.Header.Get("Origin")))
	}))
	return p.Handler(next)
}

// IsLocal reports whether a listen address is a loopback address, or localhost. Other names are not resolved.
func IsLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && host == "localhost" || isLoopback(address)
}

// hostname returns the host of a Host header, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// isOwn reports whether an origin is that of the server at the host: its scheme is that of a proxy which may stand in front.
func isOwn(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
