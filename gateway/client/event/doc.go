// Package event reads from change events what the client needs to know of them, without the driver: programs that link the client bring their
// own.
package event
