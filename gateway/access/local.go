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

// Local refuses requests of web pages to a server that speaks plaintext on the loopback address
// listen. A browser on the machine sends requests there for every page that it shows, so the
// address alone proves nothing. Local refuses:
//
//   - A Host that is another name than localhost, the host of listen, or the host of one of the
//     origins: a page has made its own name resolve to this machine (DNS rebinding), and could read
//     the response. An IP address as Host is accepted, because a page cannot use one as its name,
//     except addresses that lead here indirectly (0.0.0.0, [::], [::ffff:127.0.0.1]), for which
//     browsers do not send the origin of a request. A missing Host is accepted, because every
//     browser sends one.
//   - An Origin that is neither one of the origins nor that of the server itself; without an
//     Origin, a request that another site has caused, according to the browser (Sec-Fetch-Site).
//
// Programs other than browsers send neither, and their Host is the configured address.
func Local(listen string, origins []string, next http.Handler) http.Handler {
	names := hostsOf(origins, listen)
	origins = slices.Clone(origins)
	return guard(next, func(r *http.Request) error {
		if host := hostname(r.Host); host != "" && !slices.Contains(names, host) && !isPlainAddress(host) {
			return fault.Newf(fault.AccessForeign, "the request is for host %.100q", r.Host)
		}
		return checkPage(r, origins)
	})
}

// guard refuses the requests for which check returns an error. What a check needs is not on the
// stack of a response that goes on for hours: with it, each event stream would need a stack of 16
// KiB instead of 8.
func guard(next http.Handler, check func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			Refuse(w, http.StatusForbidden, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Named refuses requests of browsers under a host name that others can register in DNS and that is
// not one of the server's own names: the hosts of its addresses and of the origins. A page whose
// own name resolves to the server (DNS rebinding) counts as a page of the server, and could read
// everything that needs no authentication. Named is for servers that speak plaintext on other than
// loopback addresses without authentication, because neither a certificate nor a token
// distinguishes such a page from theirs.
//
// Other programs may use any name, because no page can make them send requests. Names without a
// dot, and those of private networks (streamer.default.svc, node-1.internal), belong to no page.
func Named(addresses, origins []string, next http.Handler) http.Handler {
	names := hostsOf(origins, addresses...)
	return guard(next, func(r *http.Request) error {
		host := hostname(r.Host)
		isForeign := isRegistrable(host) && !slices.Contains(names, host)
		if isForeign && (isBrowser(r) || speaksLanguages(r)) {
			return fault.Newf(fault.AccessForeign, "a browser asks for host %.100q", r.Host)
		}
		return nil
	})
}

// hostsOf returns the hosts of listen addresses and of origins, and localhost.
func hostsOf(origins []string, addresses ...string) []string {
	names := []string{"localhost"}
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil {
			names = append(names, strings.ToLower(host))
		}
	}
	for _, origin := range origins {
		if u, err := url.Parse(origin); err == nil {
			names = append(names, u.Hostname())
		}
	}
	return names
}

// isRegistrable reports whether a host may be the name of a foreign page: one with a dot that is
// not below a name that nobody can register (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal, and
// the names of Kubernetes' services).
func isRegistrable(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	dot := strings.LastIndexByte(host, '.')
	return dot >= 0 && !slices.Contains([]string{"localhost", "local", "internal", "svc", "test"}, host[dot+1:]) && !strings.HasSuffix(host, ".home.arpa")
}

// speaksLanguages reports whether a request has the header Accept-Language, as every request of a
// browser does. A page can change its value, even to an empty one, as it can change User-Agent (in
// Firefox), but it cannot remove the header.
func speaksLanguages(r *http.Request) bool {
	_, said := r.Header["Accept-Language"]
	return said
}

// checkPage refuses a request that a page of another origin has sent, if the browser says so. known
// are the origins that are let in.
func checkPage(r *http.Request, known []string) error {
	asked := r.Header.Values("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	isSame := site == "" || site == "none" || site == "same-origin"
	switch {
	case len(asked) == 0 && isSame:
	case len(asked) == 1 && (slices.Contains(known, asked[0]) || isOwn(asked[0], r.Host)):
	case len(asked) == 0:
		return fault.Newf(fault.AccessForeign, "a page of another site has sent the request (Sec-Fetch-Site: %.20q)", site)
	default:
		return fault.Newf(fault.AccessForeign, "a page of origin %.100q has sent the request", asked[0])
	}
	return nil
}

// SameOrigin refuses requests with which a page of another origin would change something, whatever
// the page may read and however the browser proves who it is: all but GET, and event streams with a
// name, which take the name over and move its checkpoint. For these a browser must say which page
// has sent the request, or the request must have a header that such a page cannot set without
// leave; the origins are let in. Programs that are no browsers are let through.
func SameOrigin(origins []string, next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	origins = slices.Clone(origins)
	return guard(next, func(r *http.Request) error {
		if takesName(r) {
			if err := checkPage(r, origins); err != nil {
				return err
			}
			if isBrowser(r) && !provesPage(r) {
				return fault.Newf(fault.AccessForeign, "a browser does not say which page asks for an event stream with a name")
			}
		}
		if p.Check(r) != nil {
			return fault.Newf(fault.AccessForeign, "a page of origin %.100q has sent a request that changes something", r.Header.Get("Origin"))
		}
		return nil
	})
}

// takesName reports whether a request asks for an event stream with a name, or may do so: what only
// reads about a subscriber does not. A query that cannot be read is refused later.
func takesName(r *http.Request) bool {
	reads := r.URL.Path == "/v1/history" || strings.HasPrefix(r.URL.Path, "/v1/subscribers/") // other methods are SameOrigin's
	return r.Method != http.MethodOptions && !reads && r.URL.Query().Has("subscriber")
}

// provesPage reports whether a request contains its page, or cannot come from a page without
// permission: browsers ask the server first (CORS) before they send these headers for a page of
// another origin.
func provesPage(r *http.Request) bool {
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Authorization", "Last-Event-ID"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// isBrowser reports whether a browser may have sent a request. Pages cannot change its User-Agent
// in requests without CORS permission; media players send another one than the browser, and request
// ranges.
func isBrowser(r *http.Request) bool {
	agent := r.UserAgent()
	if strings.Contains(agent, "Mozilla/") || strings.Contains(agent, "AppleCoreMedia") {
		return true
	}
	for _, name := range []string{"Range", "Referer", "Cookie"} { // not Sec-Fetch-Mode, which Node.js sends, too
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// IsLocal reports whether a listen address is a loopback address, or localhost. Other names are not
// resolved.
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

// isPlainAddress reports whether a host is an address under which a program may know the server.
// Pages use addresses that lead to this machine only indirectly, the unspecified ones and IPv4
// addresses within IPv6, because browsers do not send the origin of a request there (W3C: "Secure
// Contexts", potentially trustworthy origins).
func isPlainAddress(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && !addr.IsUnspecified() && !addr.Is4In6() && (!compatible.Contains(addr) || addr.IsLoopback())
}

// compatible are IPv4 addresses in the old form of IPv6 (RFC 4291, 2.5.5.1).
//
//nolint:gochecknoglobals // a constant
var compatible = netip.MustParsePrefix("::/96")

// isOwn reports whether an origin is that of the server at the host: its scheme may be that of a
// proxy in front of the server.
func isOwn(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
