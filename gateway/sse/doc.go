// Package sse reads a stream of server-sent events (WHATWG HTML, section 9.2.6), as `streamer tail` and the tests do.
package sse
