// Package uri reads the URLs of buckets. It is the only place that knows their form; no error of it
// shows the URL, which may have a secret in a wrong place.
package uri
