// Package sse reads server-sent events (WHATWG HTML, section 9.2.6) for clients such as `streamer
// tail`.
package sse
